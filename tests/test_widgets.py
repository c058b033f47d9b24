"The widgets without a browser: controls are driven as a browser drives them, through their traits."
import asyncio, re, time

import pytest
import traitlets
from hypothesis import given, settings, strategies as st

W = pytest.importorskip("ipywidgets")

from tito_nb import widgets  # noqa: E402
from tito_nb.bpe import encode  # noqa: E402
from tito_nb.merge_tree import MergeTable  # noqa: E402
from tito_nb.views.merge import merge_html, merge_steps_picture  # noqa: E402
from tito_nb.views.merge_frames import merge_frames  # noqa: E402
from tito_nb.views.theme import Picture  # noqa: E402
from tito_nb.widgets import CHOICES, MergeStepper, picture, typeable, typed  # noqa: E402

LOW = MergeTable(((108, 111), (256, 119)))  # lo, low


def right(stepper: MergeStepper) -> bool:
    "Do number, bound, frame and picture of a stepper agree?"
    frames = merge_frames(stepper.table, typed(stepper.text))
    return (
        stepper.frames == frames and stepper.frame == frames[stepper.step] and stepper.controls.step.value == stepper.step
        and stepper.controls.step.max == stepper.last == len(frames) - 1 and stepper.view.value == merge_html(stepper.frame, steady=True, live=True)
    )


# ---------------------------------------------------------------- bytes in a text box


@given(st.binary(max_size=30) | st.text(max_size=20).map(str.encode))
def test_every_byte_string_can_be_typed(data):
    text = typeable(data)
    assert typed(text) == data and text.isprintable()


def test_escapes():
    assert typed(r"\xf0\x9F\n\r\t\\") == b"\xf0\x9f\n\r\t\\"
    assert typed(r"\\x41 \x4 \q \\n \é") == rb"\x41 \x4 \q \n " + "\\é".encode()
    assert typeable(b"\\x41") == r"\\x41" and typeable(b" a\n\0") == r" a\n\x00"
    assert typed("\\") == b"\\" and typed("") == b"" and typeable("␣".encode()) == "␣"


@given(st.text(st.sampled_from("\\xnrt4f é"), max_size=12))
def test_nothing_that_can_be_typed_is_an_error(text):
    assert typed(typeable(typed(text))) == typed(text)


# ---------------------------------------------------------------- stepping


def test_buttons_step_within_the_frames():
    stepper = MergeStepper("low low", LOW)
    assert stepper.step == 0 and right(stepper) and stepper.last == 4
    stepper.controls.back.click()
    assert stepper.step == 0
    for step in (1, 2, 3, 4, 4):
        stepper.controls.next.click()
        assert stepper.step == step and right(stepper)
    stepper.controls.back.click()
    assert stepper.step == 3 and right(stepper)
    stepper.controls.step.value = 1  # typed into Step
    assert stepper.step == 1 and right(stepper)
    stepper.controls.step.value = 99
    assert stepper.step == 4 and right(stepper)
    stepper.back()
    stepper.next()
    stepper.step = -7
    assert stepper.step == 0 and right(stepper)
    with pytest.raises(traitlets.TraitError):
        stepper.step = "1"
    assert right(stepper)


def test_the_last_frame_is_the_encoding():
    for name, choice in CHOICES.items():
        stepper = MergeStepper(table=name)
        assert right(stepper) and stepper.last > 1, "an example has something to step through"
        stepper.step = stepper.last
        assert stepper.frame.tokens == encode(stepper.table, choice.example.encode())


@settings(deadline=None, max_examples=40)
@given(st.lists(st.one_of(st.integers(-1, 9), st.text(st.sampled_from("low\\x0 "), max_size=9), st.sampled_from([*CHOICES]), st.sampled_from("bnrp")), max_size=8))
def test_any_sequence_of_actions_leaves_it_right(actions):
    stepper = MergeStepper("low", "ties")
    for action in actions:
        if isinstance(action, int):
            stepper.controls.step.value = action
        elif action in CHOICES:
            stepper.boxes.table.value = action
        elif action in ("b", "n", "r"):
            getattr(stepper.controls, {"b": "back", "n": "next", "r": "reset"}[action]).click()
        elif action == "p":
            stepper.controls.play.value = True  # no event loop runs here
            assert "Play needs a running kernel" in stepper.view.value and not stepper.play and not stepper.controls.play.value
            stepper.reset()
        else:
            stepper.boxes.text.value = action
        assert right(stepper)


# ---------------------------------------------------------------- text and table


def test_typing_keeps_the_step_and_stays_at_the_end():
    stepper = MergeStepper("low low", LOW)
    stepper.step = 1
    stepper.boxes.text.value = "low low low"
    assert stepper.step == 1 and right(stepper)
    stepper.boxes.text.value = "lo"
    assert stepper.step == stepper.last == 1 and right(stepper)
    for text in ("lo", "lo ", "lo l", "lo lo", "lo low"):
        stepper.boxes.text.value = text
        assert stepper.step == stepper.last and right(stepper) and stepper.boxes.text.value == text  # the box is never written to


def test_any_bytes_can_be_passed_and_typed():
    assert MergeStepper(b"\xf0\x9f\x98", LOW).text == r"\xf0\x9f\x98"
    assert MergeStepper("line\n\\", LOW).frame.data == tuple(b"line\n\\")
    assert MergeStepper(bytearray(b"a"), LOW).text == MergeStepper(memoryview(b"a"), LOW).text == "a"
    for start in range(0, 256, 64):
        data = bytes(range(start, start + 64))
        stepper = MergeStepper(data, LOW)
        assert bytes(stepper.frame.data) == data and right(stepper)
    stepper.boxes.text.value = r"\x00"
    assert stepper.frame.tokens == [0]


@pytest.mark.parametrize("bad", [5, [97], 1.5, True])
def test_a_text_is_text_or_bytes(bad):
    with pytest.raises(TypeError):
        MergeStepper(bad)


@pytest.mark.parametrize("bad", ["nothing", "given", 3, [(97, 97)], ()])
def test_a_table_is_a_table_or_a_name(bad):
    with pytest.raises(ValueError, match="words, ties, drift, trained, smollm2"):
        MergeStepper("a", bad)


def test_choosing_a_table():
    stepper = MergeStepper()
    assert stepper.boxes.table.value == "words" and stepper.text == CHOICES["words"].example and stepper.boxes.training.layout.display == "none"
    stepper.boxes.table.value = "ties"
    assert stepper.text == CHOICES["ties"].example and right(stepper)  # it was only an example
    stepper.boxes.text.value = "aab"
    stepper.boxes.table.value = "drift"
    assert stepper.text == "aab" and right(stepper)  # it was the learner's own
    with pytest.raises(traitlets.TraitError):
        stepper.boxes.table.value = "nothing"
    given_table = MergeStepper("low", LOW)
    assert given_table.boxes.table.value == "given" and given_table.table is LOW
    given_table.boxes.table.value = "ties"
    given_table.boxes.table.value = "given"
    assert given_table.table is LOW and right(given_table)


def test_training_on_the_spot():
    stepper = MergeStepper("abab", "trained")
    assert stepper.boxes.training.layout.display is None
    stepper.boxes.training.value = "abab"
    assert stepper.table.rules[0] == (97, 98) and right(stepper)
    stepper.boxes.training.value = ""
    assert stepper.table.rules == () and stepper.last == 0 and right(stepper)
    stepper.reset()
    assert stepper.boxes.training.value and stepper.text == "abab" and stepper.step == 0 and right(stepper)


def test_reset_brings_back_the_beginning():
    stepper = MergeStepper("low low", LOW)
    stepper.step, stepper.boxes.text.value, stepper.boxes.table.value = 2, "aaa", "ties"
    stepper.controls.reset.click()
    assert (stepper.step, stepper.text, stepper.table) == (0, "low low", LOW) and right(stepper)


def test_the_documented_size_of_the_real_table():
    assert len(MergeStepper(table="smollm2").table.rules) == 8417


# ---------------------------------------------------------------- messages


def test_too_long_a_text_is_a_message_and_not_the_end():
    stepper = MergeStepper("a" * 65, LOW)
    assert stepper.frame is None and "65 bytes are too many to draw, the limit is 64." in stepper.view.value and stepper.step == stepper.last == 0
    stepper.next()
    stepper.controls.next.click()
    assert stepper.step == 0 and "65 bytes" in stepper.view.value
    stepper.boxes.text.value = "low"
    assert right(stepper)


@pytest.mark.parametrize("where", ["trace", "draw", "table"])
def test_an_exception_in_a_callback_is_shown(where, monkeypatch):
    stepper = MergeStepper("low", LOW)

    def broken(*_):
        raise RuntimeError("a <broken> part")

    if where == "draw":
        stepper.draw = broken
        stepper.controls.next.click()
    elif where == "trace":
        monkeypatch.setattr(widgets, "merge_frames", broken)
        stepper.boxes.text.value = "lower"
    else:
        monkeypatch.setattr(widgets, "CHOICES", {**CHOICES, "ties": widgets.Choice("", "", broken)})
        stepper.boxes.table.value = "ties"
    assert "RuntimeError: a &lt;broken&gt; part" in stepper.view.value and (stepper.frame is None) == (where != "draw")
    monkeypatch.undo()
    stepper.draw = MergeStepper("low", LOW).draw
    stepper.controls.reset.click()
    assert right(stepper) and stepper.text == "low"


def test_a_lone_surrogate_is_a_message():
    stepper = MergeStepper("low", LOW)
    stepper.boxes.text.value = "a\ud800"
    assert stepper.frame is None and "UnicodeEncodeError" in stepper.view.value and "position 1" in stepper.view.value
    with pytest.raises(UnicodeEncodeError):
        MergeStepper("\ud800", LOW)


# ---------------------------------------------------------------- play


@pytest.mark.parametrize("seconds, error", [("x", TypeError), (None, TypeError), (True, TypeError), (0, ValueError), (-1, ValueError), (float("nan"), ValueError), (float("inf"), ValueError)])
def test_seconds_are_a_number_above_zero(seconds, error):
    with pytest.raises(error, match="^seconds: a number"):
        MergeStepper("low", LOW, seconds=seconds)


def test_play_is_off_at_first_and_stops_at_the_end():
    async def watch():
        stepper = MergeStepper("low low", LOW, seconds=0.001)
        assert not stepper.play and stepper.controls.play.description == "Play"
        stepper.controls.play.value = True
        assert stepper.play and stepper.controls.play.description == "Pause" and stepper.step == 0
        await asyncio.wait_for(stepper.task, 5)
        assert stepper.step == stepper.last == 4 and not stepper.play and not stepper.controls.play.value
        assert stepper.controls.play.description == "Play" and right(stepper)
        stepper.play = True  # again, from the first
        assert stepper.step == 0
        await asyncio.wait_for(stepper.task, 5)
        assert stepper.step == stepper.last

    asyncio.run(watch())


def test_pause_stops_at_once_and_two_quick_clicks_make_one_player():
    async def watch():
        stepper = MergeStepper("low low low low", LOW, seconds=0.02)
        steps = []
        stepper.observe(lambda change: steps.append(change["new"]), "step")
        stepper.play = True
        await asyncio.sleep(0.001)  # it waits before its first step
        stepper.play = False
        await asyncio.sleep(0.05)
        assert steps == []
        stepper.play = True
        first = stepper.task
        stepper.play = False
        stepper.play = True
        await asyncio.wait_for(first, 5)
        assert steps == [] and stepper.task is not first
        await asyncio.wait_for(stepper.task, 5)
        assert steps == list(range(1, stepper.last + 1))

    asyncio.run(watch())


def test_another_table_or_a_message_stops_play():
    async def watch():
        stepper = MergeStepper("low low", LOW, seconds=0.001)
        for change in (lambda: setattr(stepper.boxes.table, "value", "ties"), lambda: setattr(stepper.boxes.text, "value", "a" * 65), stepper.reset):
            stepper.play = True
            change()
            assert not stepper.play and stepper.controls.play.description == "Play"
            step = stepper.step
            await asyncio.sleep(0.02)
            assert stepper.step == step

    asyncio.run(watch())


def test_an_exception_while_playing_is_shown():
    async def watch():
        stepper = MergeStepper("low low", LOW, seconds=0.001)

        def broken(_):
            raise RuntimeError("broken")

        stepper.draw = broken
        stepper.play = True
        task = stepper.task
        await asyncio.wait_for(task, 5)
        assert task.exception() is None and "RuntimeError: broken" in stepper.view.value and not stepper.play

    asyncio.run(watch())


# ---------------------------------------------------------------- what is sent and what is shown elsewhere


def test_a_step_sends_two_messages_and_no_style(monkeypatch):
    stepper = MergeStepper("low low", LOW)
    sent: list = []
    monkeypatch.setattr(W.Widget, "_should_send_property", lambda self, key, value: sent.append((self, key, value)) or False)
    stepper.controls.next.click()
    assert [(widget, key) for widget, key, _ in sent] in ([(stepper.controls.step, "value"), (stepper.view, "value")], [(stepper.view, "value"), (stepper.controls.step, "value")])
    assert "<style" not in stepper.view.value and "<style" in stepper.children[0].value and stepper.children[0].layout.display == "none"


def test_one_polite_live_region():
    stepper = MergeStepper("low low", LOW)
    for _ in range(5):
        assert stepper.view.value.count("aria-live") == 1
        assert re.search(r'<p aria-live="polite">([^<]*)', stepper.view.value)
        stepper.next()
    stepper.text = "a" * 65
    assert stepper.view.value.count("aria-live") == 1


def test_only_stock_controls_and_each_has_a_name():
    stock = {W.Text, W.Button, W.ToggleButton, W.BoundedIntText, W.Dropdown, W.HTML, W.HBox, MergeStepper}

    def walk(widget):
        yield widget
        for child in getattr(widget, "children", ()):
            yield from walk(child)

    parts = list(walk(MergeStepper("low", LOW)))
    assert {type(part) for part in parts} == stock
    assert [part for part in parts if not isinstance(part, (W.Box, W.HTML)) and not part.description] == []


def test_the_bundle_has_a_live_view_a_stepper_and_a_sentence():
    stepper = MergeStepper("low low", LOW)
    bundle, _ = stepper._repr_mimebundle_()
    still = merge_steps_picture(merge_frames(LOW, b"low low"))
    assert bundle["text/html"] == still.markup and bundle["text/plain"] == still.text and "application/vnd.jupyter.widget-view+json" in bundle
    stepper.text = "a" * 65
    assert isinstance(picture(stepper), Picture) and stepper._repr_mimebundle_()[0]["text/plain"].startswith("65 bytes")
    assert "aria-live" not in stepper._repr_mimebundle_()[0]["text/html"]


def test_a_step_is_quick():
    stepper = MergeStepper('{"name": "search", "arguments": {"query": "weather in Reykjavi"}', "smollm2")
    durations = []
    for _ in range(20):
        start = time.perf_counter()
        stepper.next()
        durations.append(time.perf_counter() - start)
    assert sorted(durations)[10] < 0.05


def test_a_reset_to_a_text_that_is_too_long_is_a_sentence():
    stepper = MergeStepper("a" * 65)
    stepper.reset()
    assert stepper.frame is None and "65 bytes are too many" in stepper.view.value
    stepper.text = "aa"
    assert stepper.message == "" and stepper.frame is not None


def test_typing_into_an_empty_box_begins_at_the_first_step():
    stepper = MergeStepper("", table="ties")
    stepper.text = "aaaa"
    assert (stepper.step, stepper.last) == (0, 2)
