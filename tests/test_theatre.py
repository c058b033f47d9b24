"The drift theatre: frames by property, drawings as XML, the widget through its traits, the page in Chromium."
import asyncio, dataclasses, itertools, json, re, subprocess, sys
from pathlib import Path
from random import Random
from xml.dom import minidom

import pytest
from hypothesis import given, settings, strategies as st
from test_views import FAULTS, HEIGHT, NASTY, PAGE, WIDTHS, browser, page, sized  # noqa: F401

from tito_nb.bpe import BpeTokenizer
from tito_nb.delta import DeltaTokenizer, ForgedTurn
from tito_nb.drift import Cause, explain_drift, mito_tokens, resegment
from tito_nb.merge_tree import UnknownToken
from tito_nb.renderer import CHATML, Message, render
from tito_nb.rollouts import load_rollouts
from tito_nb.training import train
from tito_nb.views import drift as view
from tito_nb.views import merge, theme
from tito_nb.views.drift import DRIFT_CSS, NAMES, SWITCHES, drift_html, drift_picture, drift_steps_html, drift_steps_picture, remembered, theatre_frames

ROLLOUTS = load_rollouts()
REAL, END = ROLLOUTS.tokenizer, ROLLOUTS.end_of_turn
TOY = BpeTokenizer(train([b"<|im_start|>user\n", b"<|im_start|>assistant\n", b"<|im_end|>\n", b"banana bandana"], 40))  # bytes mode
TALK = (Message("user", "weather?"),)
TOOL = '{"error": "no tool"}'
ALL = bytes(range(256))

switched = st.sets(st.sampled_from([*SWITCHES]))
words = st.lists(st.sampled_from(["<think>", "</think>", '{"a": 1, "b": [2, 3]}', " banana", "token", "\n", "é😀", " "]), max_size=5).map("".join).map(str.encode)
contents = words | st.binary(max_size=24)
chances = st.sampled_from([0.0, 0.1, 0.5, 1.0])


def xml(markup: str) -> minidom.Document:
    return minidom.parseString(f"<r>{markup}</r>".encode())


def real_frames(content: bytes, p=0.5, seed=0, causes=(), tool: bytes | str = b"ok", stop=True):
    ids = [*resegment(REAL, content, p, Random(seed)), *[END] * stop]
    return theatre_frames(REAL, TALK, ids, tool, causes=causes), ids


def recorded(k: int, causes=(), tool=TOOL):
    return theatre_frames(REAL, ROLLOUTS[k].messages, ROLLOUTS[k].tokens, tool, causes=causes)


def ids(frame, lane: str) -> list[int]:
    return [cell.token for cell in frame.lane(lane)]


def data(cells) -> bytes:
    return b"".join(bytes(cell.data) for cell in cells)


def spans(frame) -> list[tuple[int, int]]:
    "The sampled ids of a frame, from its letters"
    letters = "".join(cell.source for cell in frame.lane("tito"))
    return [match.span() for match in re.finditer("S+", letters)]


def buffers(tokenizer, messages, sampled, tool) -> list[list[int]]:
    "What a delta tokenizer holds at each step"
    history = DeltaTokenizer(tokenizer, CHATML)
    history.append(*messages)
    held = [list(history.open_turn())]
    for action in (lambda: history.sample(sampled), history.close_turn, lambda: history.append(Message("tool", tool)), history.open_turn):
        action()
        held.append(list(history.tokens))
    return held


# ---------------------------------------------------------------- frames


@given(contents, chances, st.integers(0, 9), switched, contents, st.booleans())
def test_lanes_are_the_ids_of_the_two_loops(content, p, seed, causes, tool, stop):
    frames, sampled = real_frames(content, p, seed, causes, tool, stop)
    assert [frame.name for frame in frames] == list(NAMES) and [frame.step for frame in frames] == list(range(5))
    assert [ids(frame, "tito") for frame in frames] == buffers(REAL, TALK, sampled, tool)
    assert ids(frames[0], "mito") == ids(frames[0], "tito") and ids(frames[1], "mito") == ids(frames[1], "tito")
    held = [*TALK, Message("assistant", remembered(content, causes)), Message("tool", tool)]
    newline = Cause.BOUNDARY_NEWLINE in causes
    for frame, count in ((frames[2], 2), (frames[3], 3)):
        mito, turn = mito_tokens(REAL, held[:count]), len(mito_tokens(REAL, held[:2]))
        assert ids(frame, "mito") == (mito[: turn - 1] + mito[turn:] if newline else mito)
    assert ids(frames[4], "mito") == ids(frames[3], "mito") + ids(frames[0], "tito")[-4:]
    for frame in frames:
        for lane in ("tito", "mito"):
            assert data(frame.lane(lane)) == REAL.decode(ids(frame, lane))
            assert all(cell.control == (cell.token in REAL.control.values()) for cell in frame.lane(lane))


@given(contents, chances, st.integers(0, 9), switched, contents)
def test_columns_are_cut_where_both_lanes_have_a_border_in_the_same_bytes(content, p, seed, causes, tool):
    frames, _ = real_frames(content, p, seed, causes, tool)
    for frame in frames:
        index = other = 0
        for column in frame.columns:
            assert (column.index, column.other_index) == (index, other) and (column.tito or column.mito)
            index, other = index + len(column.tito), other + len(column.mito)
            assert column.drift or column.tito == column.mito
        places = [column.place for column in frame.columns]
        assert places == sorted(set(places))
        drift = explain_drift(REAL, ids(frame, "tito"), ids(frame, "mito"), spans(frame))
        if drift.same_bytes:  # between two equal columns, what drifts spells the same bytes; no border inside is common
            for drifted, group in itertools.groupby(frame.columns, key=lambda column: column.drift):
                run = list(group)
                assert data(c for column in run for c in column.tito) == data(c for column in run for c in column.mito)
        starts = {(column.index, column.other_index) for column in frame.columns if column.drift}
        assert {(region.start, region.other_start) for region in drift.regions} <= starts
        marked = [column.index for column in frame.columns if column.first]
        assert marked == ([] if frame.first is None else [frame.first]) and frame.first == drift.first


@given(contents, chances, st.integers(0, 9), switched)
def test_counts_are_those_of_explain_drift_and_of_the_cells(content, p, seed, causes):
    for frame in real_frames(content, p, seed, causes)[0]:
        drift = explain_drift(REAL, ids(frame, "tito"), ids(frame, "mito"), spans(frame))
        counts = frame.counts
        assert dataclasses.astuple(counts) == (drift.sampled_in_spans, drift.trained, drift.never_sampled, drift.lost, drift.logprobs_misaligned)
        assert counts.trained == sum(cell.loss for cell in frame.lane("mito"))
        assert counts.sampled == sum(cell.loss for cell in frame.lane("tito")) == sum(cell.source == "S" for cell in frame.lane("tito"))
        drifted = [column for column in frame.columns if column.drift]
        assert counts.never_sampled == sum(cell.loss for column in drifted for cell in column.mito)
        assert counts.lost == sum(cell.source == "S" for column in drifted for cell in column.tito)
        assert all(cell.source == "" for column in drifted for cell in column.mito)
        kept = sum(cell.source == "S" for c in frame.columns if not c.drift and c.index == c.other_index for cell in c.tito)
        assert counts.misaligned == counts.sampled - kept


def test_counts_are_right_where_text_outside_the_sampled_ids_differs():
    "No switch rewrites the tool result, a template may"
    tito, mito = [*REAL.encode(b"ab"), END, *REAL.encode(b"rain")], [*REAL.encode(b"ab"), END, *REAL.encode(b"snow")]
    sampled = ((0, tito.index(END) + 1),)
    scene = view._Scene(tuple(tito), "S" * sampled[0][1] + "T" * (len(tito) - sampled[0][1]), sampled, tuple(mito))
    drift = explain_drift(REAL, tito, mito, sampled)
    columns = view._columns(REAL, scene, drift)
    assert drift.trained == sum(cell.loss for column in columns for cell in column.mito) == sampled[0][1] < len(mito)


@given(contents, chances, st.integers(0, 9), switched, st.booleans())
def test_letters(content, p, seed, causes, stop):
    frames, sampled = real_frames(content, p, seed, causes, b"t", stop)
    letters = ["".join(cell.source for cell in frame.lane("tito")) for frame in frames]
    assert re.fullmatch(rf"P+S{{{len(sampled)}}}C{{{1 if stop else 2}}}T+P{{4}}", letters[-1])  # the end of turn is S where it was sampled
    assert all(letters[-1].startswith(some) for some in letters)
    closed = letters[-1].index("C")
    assert ids(frames[-1], "tito")[closed - len(sampled) : closed] == sampled


@given(contents, chances, st.integers(0, 9), switched)
def test_captions_agree_with_the_frames(content, p, seed, causes):
    frames, sampled = real_frames(content, p, seed, causes)
    for frame in frames:
        assert frame.caption == frame.plan.captions[frame.step] and not re.search(r"\. [A-Z]", re.sub("‹[^›]*›", "", frame.caption))
        assert frame.caption.endswith(".") and frame.caption.count("‹") == frame.caption.count("›")
    sizes = [(len(ids(frame, "tito")), len(ids(frame, "mito"))) for frame in frames]
    numbers = [[int(number) for number in re.findall(r"\d+", re.sub("‹[^›]*›", "", frame.caption))] for frame in frames]
    assert numbers[0] == [sizes[0][0]] and numbers[1] == [len(sampled)]
    assert numbers[3] == [sizes[3][0] - sizes[2][0], sizes[3][1]]
    closed, last = frames[2], frames[4]
    if closed.first is None:
        assert numbers[2] == [] and "nothing drifts" in closed.caption
    elif closed.counts.never_sampled:
        assert numbers[2] == [closed.counts.never_sampled] and "the gradient lands on" in closed.caption and "became nothing" not in closed.caption
    elif closed.counts.lost:
        assert numbers[2] == [closed.counts.lost, closed.counts.sampled] and "lost" in closed.caption
    else:
        assert numbers[2] == [] and "the loss stays on what was sampled" in closed.caption
    if last.first is None:
        assert numbers[4] == [sizes[4][0]] and "agree" in last.caption
    elif sizes[4][0] == sizes[4][1]:
        assert numbers[4] == [sizes[4][0], last.counts.never_sampled or last.first]
    else:
        assert numbers[4] == [*sizes[4], *([last.counts.misaligned, last.counts.sampled] if last.counts.misaligned else [])]


def test_recorded_rollouts():
    silent, shorter = recorded(13), recorded(15)
    assert silent[4].caption == "Both loops send 222 ids, so no check of lengths sees the 2 tokens that were never sampled."
    assert silent[2].caption == 'In MITO ‹"}›\u00a0‹}› became ‹"›\u00a0‹}}›: the gradient lands on 2 tokens that were never sampled.'
    assert silent[4].first == 202 and dataclasses.astuple(silent[4].counts) == (19, 19, 2, 2, 2)
    assert shorter[4].caption == "TITO sends 228 ids and MITO 227: 21 of 25 log-probabilities sit at another id."
    assert dataclasses.astuple(shorter[4].counts) == (25, 24, 3, 4, 21)
    assert recorded(0)[2].caption == "MITO encodes the text again and this time gets the same ids: nothing drifts."


@given(st.text(st.sampled_from("ban d\n"), max_size=20).map(str.encode), st.integers(0, 5), switched)
def test_delimiters_that_are_ordinary_bytes(content, seed, causes):
    sampled = resegment(TOY, content + b"<|im_end|>", 0.5, Random(seed))
    frames = theatre_frames(TOY, TALK, sampled, "banana", causes=causes)
    assert [ids(frame, "tito") for frame in frames] == buffers(TOY, TALK, sampled, "banana")
    held = [*TALK, Message("assistant", remembered(content, causes)), Message("tool", "banana")]
    head = len(render(held[:2]))
    cut = lambda text: text[: head - 1] + text[head:] if Cause.BOUNDARY_NEWLINE in causes else text
    assert data(frames[3].lane("mito")) == cut(render(held)) and ids(frames[3], "mito") == TOY.encode(cut(render(held)))
    assert data(frames[4].lane("mito")) == cut(render(held)) + b"<|im_start|>assistant\n"
    for frame in frames:
        xml(drift_html(frame))


def test_what_each_switch_does_and_which_cause_is_found():
    text = b'<think>which?</think>{"city": "Paris", "days": 2}'
    for cause in SWITCHES:
        frames, _ = real_frames(text, p=0.0, causes=[cause])
        last = frames[4]
        drift = explain_drift(REAL, ids(last, "tito"), ids(last, "mito"), spans(last))
        assert cause in drift.causes and Cause.UNKNOWN not in drift.causes and "without effect" not in last.plan.source
    frames, _ = real_frames(b"plain", p=0.0, causes=[Cause.SPELLING, Cause.TEMPLATE_REWRITE])
    assert frames[4].plan.source == "without effect here: JSON re-spelled, Thinking dropped" and frames[4].first is None
    assert remembered(b'<think>{"a": 1}', SWITCHES) == b'<think>{'
    assert remembered(b'{"a": "\\ud800"}', {Cause.SPELLING}) == b'{"a": "\\ud800"}'  # what cannot be written anew stays
    assert remembered(b"\xff", {Cause.SPELLING}) == b"\xff" and remembered(b"[" * 100_000, {Cause.SPELLING}) == b"[" * 100_000


@pytest.mark.parametrize("bad, error", [
    (dict(causes=[Cause.UNKNOWN]), ValueError), (dict(causes=["spelling"]), ValueError), (dict(sampled=[10**6]), UnknownToken),
    (dict(sampled=[ROLLOUTS.tokenizer.control[b"<|im_start|>"]]), ForgedTurn), (dict(tool_result=None), (TypeError, ValueError)),
])
def test_bad_input_is_refused(bad, error):
    good = dict(tokenizer=REAL, messages=TALK, sampled=[97, END], tool_result="x")
    theatre_frames(**good)
    with pytest.raises(error):
        theatre_frames(**(good | bad))


def test_frames_are_plain_data():
    for frame in recorded(15):
        back = json.loads(json.dumps(dataclasses.asdict(frame)))
        assert back["caption"] == frame.caption and [c["token"] for column in back["columns"] for c in column["tito"]] == ids(frame, "tito")
        hash(frame)
        with pytest.raises(dataclasses.FrozenInstanceError):
            frame.step = 0


# ---------------------------------------------------------------- drawings


def text(node) -> str:
    return node.data if node.nodeType == node.TEXT_NODE else "".join(text(child) for child in node.childNodes)


def classed(root, name: str) -> list:
    return [node for node in root.getElementsByTagName("*") if name in node.getAttribute("class").split()]


def count_of(chip: str) -> int:
    "Ids of both lanes that a chip stands for; none if it is still to come"
    same, differ = re.match(r"(\d+) ids", chip), re.match(r"TITO (\d+)MITO (\d+)≠ in \d+ places", chip)
    return 2 * int(same[1]) if same else int(differ[1]) + int(differ[2]) if differ else len(chip)


@settings(max_examples=40)
@given(st.binary(max_size=24) | words, chances, switched)
def test_pictures_are_xml_and_show_what_the_frame_says(content, p, causes):
    for frame in real_frames(content, p, 1, causes)[0]:
        root = xml(drift_html(frame, steady=True, live=True))
        (image,) = [node for node in root.getElementsByTagName("div") if node.getAttribute("role") == "img"]
        assert image.getAttribute("aria-label") == frame.caption
        assert [text(node) for node in root.getElementsByTagName("p")][0] == re.sub("[‹›]", "", frame.caption)
        shown = sum(len(column.tito) + len(column.mito) for column in frame.columns)
        cells = [cell for row in classed(image, "row") for cell in row.childNodes if "none" not in cell.getAttribute("class")]
        folded = sum(count_of(text(chip)) for chip in classed(image, "fold"))
        assert len(cells) + folded == shown
        for cell in cells:  # never by colour alone: dashes, sign and letter
            kinds, words_ = cell.getAttribute("class").split(), text(cell.lastChild).split()
            assert ("not" in kinds) == ("≠" in words_) and (kinds[0] in ("same", "never") or kinds[0] in words_)
        assert len(classed(image, "first")) == (frame.first is not None)
        assert [int(text(node)) for node in root.getElementsByTagName("strong")] == [frame.counts.never_sampled, frame.counts.lost, frame.counts.misaligned]
        drifted = sum(column.drift for column in frame.columns)
        assert len(root.getElementsByTagName("tbody")[0].getElementsByTagName("tr")) == (min(drifted, view.ROWS) + (drifted > view.ROWS) or 1)


@pytest.mark.parametrize("content", [ALL[i : i + 64] for i in range(0, 256, 64)] + [NASTY, b""], ids=["0", "64", "128", "192", "nasty", "empty"])
def test_all_bytes_can_be_drawn(content):
    for p in (0.0, 1.0):
        for frame in real_frames(content, p, causes=[Cause.TRUNCATION], tool=content)[0]:
            xml(drift_html(frame, steady=True))


def test_index_every_five_and_at_each_part():
    over = [text(small) for column in classed(xml(drift_html(recorded(13)[4])), "col") for small in column.childNodes if small.nodeName == "small"]
    assert over == ["182 assistant", "185", "190", "195", "200", "▼ first ≠ at index 202", "205", "206 tool result", "210", "215", "218 next prompt", "220"]


def test_history_and_long_equal_stretches_are_folded_with_their_counts():
    def chips(frame):
        return [[text(b) for b in chip.getElementsByTagName("b")] for chip in classed(xml(drift_html(frame)), "fold")]

    assert chips(recorded(13)[0]) == chips(recorded(13)[4]) == [["182 ids"]]
    long, _ = real_frames(b" banana" * 40 + b'"}}', p=0.0)
    assert len(chips(long[4])) == 2 and chips(long[0])[1] == []  # still to come
    many = classed(xml(drift_html(real_frames(b"tokenizer lowest" * 20, p=1.0)[0][4])), "fold")
    assert any(re.match(r"TITO \d+MITO \d+≠ in \d+ places", text(chip)) for chip in many)


@pytest.mark.parametrize("k", [13, 24, 99, 102, 105, 126, 234])
@pytest.mark.parametrize("causes", [(), [Cause.TRUNCATION], [*SWITCHES]], ids=["again", "cut", "all"])
def test_sizes_of_what_a_step_sends(k, causes):
    "The bar is 32 KB a step"
    frames = recorded(k, causes, ALL[:64])
    content = REAL.decode([token for token in ROLLOUTS[k].tokens if token != END])
    frames += theatre_frames(REAL, ROLLOUTS[k].messages, [*resegment(REAL, content, 1.0, Random(k)), END], ALL[128:192])
    for frame in frames:
        assert len(json.dumps(drift_html(frame, steady=True, live=True), ensure_ascii=False).encode()) <= 32 * 1024


def test_variables_are_in_the_palette_and_rules_stay_in_the_figure():
    css = theme.squeeze(DRIFT_CSS)
    fixed = {"sans", "mono", *(f"{name}-size" for name in theme.TYPE)}
    assert set(re.findall(r"var\(--tn-([\w-]+)\)", css + drift_html(recorded(13)[4]))) <= set(theme.LIGHT) | fixed
    assert not re.findall(r"#[0-9A-Fa-f]{3,6}\b", css)
    selectors = [part for rule in re.findall(r"([^{}]+)\{", re.sub(r"@(media|container)[^{]*\{", "", css)) for part in rule.split(",")]
    assert len(selectors) > 30 and all(".tn" in selector for selector in selectors)


def test_the_stepper_without_a_program():
    frames = recorded(15)
    root = xml(drift_steps_html(frames))
    radios = root.getElementsByTagName("input")
    assert [radio.getAttribute("aria-label") for radio in radios] == [f"step {f.step}, {f.name}: {f.caption}" for f in frames]
    assert [i for i, radio in enumerate(radios) if radio.hasAttribute("checked")] == [4] and len({radio.getAttribute("name") for radio in radios}) == 1
    assert len(set(re.findall(r' name="([^"]*)"', drift_steps_html(frames) + drift_steps_html(frames, salt="2") + drift_steps_html(recorded(13))))) == 3
    markup = drift_steps_picture(frames).markup
    assert not re.search(r"<script|\son\w+=|https?://|url\(|@import", markup) and len(markup.encode()) < 90_000
    assert drift_picture(frames).text == frames[4].caption != drift_picture(frames, 2).text == frames[2].caption
    for step in (5, -6):
        with pytest.raises(IndexError, match="0 to 4"):
            drift_picture(frames, step)


def test_the_same_on_every_run():
    code = (
        "from test_theatre import recorded; from tito_nb.views.drift import *; import hashlib;"
        "print(hashlib.sha256(drift_steps_picture(recorded(15)).markup.encode()).hexdigest())"
    )
    here = theme.hashlib.sha256(drift_steps_picture(recorded(15)).markup.encode()).hexdigest()
    env = {"PYTHONHASHSEED": "7", "PYTHONPATH": f"{Path(theme.__file__).parents[2]}:{Path(__file__).parent}"}
    assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.strip() == here


# ---------------------------------------------------------------- the widget

W = pytest.importorskip("ipywidgets")
from tito_nb import widgets  # noqa: E402
from tito_nb.widgets import OWN, DriftTheatre, stage, theatre_picture, typeable  # noqa: E402


def right(theatre) -> bool:
    "Do controls, frames and picture agree?"
    boxes = theatre.boxes
    causes = [cause for cause, switch in boxes.switches.items() if switch.value]
    messages, sampled, source = widgets.turn_of(boxes)
    frames = theatre_frames(REAL, messages, sampled, widgets.typed(theatre.tool), causes=causes, source=source)
    return (
        theatre.frames == frames and theatre.frame == frames[theatre.step] and theatre.last == theatre.controls.step.max == 4
        and theatre.controls.step.value == theatre.step and theatre.view.value == drift_html(theatre.frame, steady=True, live=True)
    )


def shown(theatre) -> set[str]:
    return {box.description for box in theatre.boxes.all if box.layout.display != "none"}


def test_a_theatre_opens_on_a_recorded_rollout():
    theatre = DriftTheatre()
    assert right(theatre) and theatre.step == 0 and ids(theatre.frames[4], "tito") == ids(recorded(13)[4], "tito")
    for step in (1, 2, 3, 4, 4):
        theatre.controls.next.click()
        assert theatre.step == step and right(theatre)
    theatre.back()
    theatre.next()
    theatre.controls.step.value = 2
    assert theatre.step == 2 and right(theatre)
    theatre.boxes.rollout.value = 15
    assert theatre.step == 2 and right(theatre) and "3 tokens that were never sampled" in theatre.view.value
    assert DriftTheatre(15, step=4).frame == dataclasses.replace(theatre.frames[4])


def test_only_the_controls_that_are_needed_are_shown():
    theatre, always = DriftTheatre(), {"Sampled ids", "Tool result", *SWITCHES.values()}
    assert shown(theatre) == always | {"Rollout"}
    theatre.boxes.source.value = "simulated"
    assert shown(theatre) == always | {"Rollout", "Dropout", "Seed"} and right(theatre)
    theatre.boxes.source.value = "own"
    assert shown(theatre) == always | {"Text", "Dropout", "Seed"} and right(theatre)


@settings(max_examples=25)
@given(st.lists(st.one_of(
    st.tuples(st.just("step"), st.integers(-1, 6)), st.tuples(st.just("source"), st.sampled_from(["recorded", "simulated", "own"])),
    st.tuples(st.just("rollout"), st.integers(0, 255)), st.tuples(st.just("dropout"), st.sampled_from(widgets.DROPOUTS)),
    st.tuples(st.just("seed"), st.integers(0, 9)), st.tuples(st.just("text"), contents.map(typeable)), st.tuples(st.just("tool"), contents.map(typeable)),
    st.tuples(st.just("switch"), st.sampled_from([*SWITCHES])), st.tuples(st.just("click"), st.sampled_from(["back", "next", "reset"])),
), max_size=6))
def test_any_sequence_of_actions_leaves_it_right(actions):
    theatre = DriftTheatre()
    for name, value in actions:
        if name == "step":
            theatre.controls.step.value = value
        elif name == "switch":
            theatre.boxes.switches[value].value ^= True
        elif name == "click":
            getattr(theatre.controls, value).click()
        else:
            getattr(theatre.boxes, name).value = value
        assert right(theatre)


def test_dropout_and_seed_say_what_is_sampled():
    none, some = DriftTheatre(text="banana token", dropout=0.0), DriftTheatre(text="banana token", dropout=0.33, seed=3)
    assert none.frames[4].first is None and right(some)
    letters = [cell for cell in some.frames[4].lane("tito") if cell.source == "S"]
    assert [cell.token for cell in letters] == [*resegment(REAL, "banana token", 0.33, Random(3)), END]
    some.boxes.dropout.value = 1.0
    assert some.frames[4].counts.sampled == len("banana token") + 1


def test_messages_stand_in_a_figure_of_their_own_name_and_the_step_is_kept():
    theatre = DriftTheatre(text="low", step=3)
    theatre.boxes.text.value = "x" * 65
    assert theatre.frame is None and "Text: 65 bytes are too many to draw, the limit is 64." in theatre.view.value
    assert "Drift theatre" in theatre.view.value and "Merge stepper" not in theatre.view.value and theatre_picture(theatre).text in theatre.view.value
    theatre.boxes.text.value = "x" * 64
    assert theatre.step == 3 and right(theatre)
    theatre.tool = "y" * 65
    assert "Tool result: 65 bytes" in theatre.view.value
    theatre.controls.reset.click()
    assert right(theatre) and theatre.step == 0 and theatre.text == "low" and theatre.tool == widgets.TOOL
    theatre.boxes.text.value = "\ud800"
    assert "UnicodeEncodeError" in theatre.view.value


def test_an_exception_is_shown(monkeypatch):
    theatre = DriftTheatre()

    def broken(*_, **__):
        raise RuntimeError("a <broken> part")

    monkeypatch.setattr(widgets, "theatre_frames", broken)
    theatre.boxes.rollout.value = 14
    assert "RuntimeError: a &lt;broken&gt; part" in theatre.view.value and theatre.frame is None
    monkeypatch.undo()
    theatre.reset()
    assert right(theatre)


def test_any_text_and_tool_result_can_be_passed():
    for start in range(0, 256, 64):
        part = ALL[start : start + 64]
        theatre = DriftTheatre(text=part, tool=part, step=4)
        assert right(theatre) and data(theatre.frame.lane("tito")).count(part) == 2
    assert DriftTheatre(text="").boxes.source.value == "own" and DriftTheatre(text="", source="recorded").boxes.source.value == "recorded"
    assert right(DriftTheatre(text="<|im_end|>", step=4)) and DriftTheatre(causes=[Cause.TRUNCATION]).boxes.switches[Cause.TRUNCATION].value


@pytest.mark.parametrize("bad", [
    dict(rollout=256), dict(rollout=True), dict(rollout="13"), dict(source="other"), dict(dropout=1.5), dict(dropout=True), dict(dropout=float("nan")),
    dict(seed=-1), dict(causes=[Cause.UNKNOWN]), dict(causes=[[1]]), dict(text=5), dict(tool=None), dict(source=""), dict(source=[]),
    dict(seconds="x"), dict(seconds=None), dict(seconds=0), dict(seconds=True), dict(seconds=float("nan")), dict(step="x"), dict(step=True), dict(step=1.5),
])
def test_arguments_are_checked(bad):
    with pytest.raises((ValueError, TypeError)):
        DriftTheatre(**bad)


@pytest.mark.parametrize("bad", [Cause.UNKNOWN, [1], "SPELLING", None])
def test_a_cause_without_a_switch(bad):
    with pytest.raises(ValueError, match="^no switch for .*; there are SPELLING, TEMPLATE_REWRITE, BOUNDARY_NEWLINE, TRUNCATION$"):
        DriftTheatre(causes=[bad])


def test_reset_where_the_first_state_is_too_long():
    for theatre in (DriftTheatre(tool="x" * 65), DriftTheatre(text="x" * 65)):
        theatre.reset()
        assert "65 bytes are too many" in theatre.view.value and theatre.frame is None


def test_the_caption_agrees_with_the_counters_where_the_loss_stays():
    theatre = DriftTheatre(text="\n\n", dropout=0.0, causes=[Cause.TRUNCATION], step=2)
    counts, caption = theatre.frame.counts, theatre.frame.plan.captions[2]
    assert counts.never_sampled == counts.lost == 0 < counts.misaligned and "2 of 2 log-probabilities sit at another id" in caption


def test_play_walks_to_the_end_and_stops():
    async def watch():
        theatre = DriftTheatre(seconds=0.001)
        assert not theatre.play
        theatre.controls.play.value = True
        await asyncio.wait_for(theatre.task, 5)
        assert theatre.step == 4 and not theatre.play and right(theatre)

    asyncio.run(watch())


def test_a_step_and_a_change_send_two_messages_and_no_style(monkeypatch):
    theatre = DriftTheatre()
    sent: list = []
    monkeypatch.setattr(W.Widget, "_should_send_property", lambda self, key, value: sent.append((self, key)) or False)
    theatre.controls.next.click()
    assert sorted(key for _, key in sent) == ["value", "value"] and {widget for widget, _ in sent} == {theatre.controls.step, theatre.view}
    sent.clear()
    theatre.boxes.tool.value = "other"
    assert [widget for widget, _ in sent if widget is not theatre.boxes.tool] == [theatre.view]
    assert "<style" not in theatre.view.value and theatre.view.value.count("aria-live") == 1


def test_reset_makes_the_frames_once(monkeypatch):
    theatre, made = DriftTheatre(text=OWN, step=2), []
    theatre.boxes.source.value, theatre.boxes.seed.value, theatre.boxes.switches[Cause.SPELLING].value = "simulated", 4, True
    monkeypatch.setattr(widgets, "theatre_frames", lambda *a, **k: made.append(1) or theatre_frames(*a, **k))
    theatre.reset()
    assert len(made) == 1 and right(theatre) and theatre.boxes.source.value == "own"
    stage(theatre)
    assert len(made) == 2


def test_the_bundle_has_the_live_view_and_the_stepper():
    theatre = DriftTheatre(15)
    bundle, _ = theatre._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle and bundle["text/html"] == drift_steps_picture(theatre.frames).markup
    assert bundle["text/plain"] == theatre.frames[4].caption
    assert merge.NAME not in bundle["text/html"]


def test_only_stock_controls_and_each_has_a_name():
    def walk(widget):
        yield widget
        for child in getattr(widget, "children", ()):
            yield from walk(child)

    parts = list(walk(DriftTheatre()))
    assert {type(part) for part in parts} == {W.Text, W.Button, W.ToggleButton, W.BoundedIntText, W.Dropdown, W.HTML, W.HBox, DriftTheatre}
    assert all(part.description for part in parts if not isinstance(part, (W.HTML, W.HBox, DriftTheatre)))


# ---------------------------------------------------------------- in a browser


def example(name: str):
    return {
        "silent": lambda: recorded(13), "shorter": lambda: recorded(15), "cut": lambda: recorded(24, [Cause.TRUNCATION]),
        "bytes": lambda: real_frames(ALL[128:192], 1.0)[0], "thinking": lambda: real_frames(b"<think>" + b"which tool? " * 4 + b'</think>{"a": 1}', causes=[*SWITCHES])[0],
        "wide": lambda: real_frames("好的，天气很好".encode() + b"=" * 30, 0.0, tool="好" * 20)[0],
    }[name]()


@pytest.mark.parametrize("name", ["silent", "shorter", "cut", "bytes", "thinking", "wide"])
def test_stepping_changes_no_height_and_nothing_sticks_out(page, name):  # noqa: F811
    frames = example(name)
    style = f"<style>{theme.theme_css()}{theme.squeeze(DRIFT_CSS)}</style>"
    page.set_content(PAGE.format(f'{style}<div id="here"></div>'))
    for width in WIDTHS:
        heights = []
        for frame in frames:
            sized(page, width).evaluate("html => { here.innerHTML = html }", drift_html(frame, steady=True))
            heights.append(page.evaluate(HEIGHT))
            page.evaluate("document.querySelector('details').open = true")
            assert not page.evaluate(FAULTS), (width, frame.step)
        assert len(set(heights)) == 1, (width, heights)


def test_cells_that_are_there_never_move_and_hold_their_text(page):  # noqa: F811
    style = f"<style>{theme.theme_css()}{theme.squeeze(DRIFT_CSS)}</style>"
    page.set_content(PAGE.format(f'{style}<div id="here"></div>'))
    where = """() => [...document.querySelectorAll('.col:not(.later) .row:first-of-type > span')].map(e => { const r = e.getBoundingClientRect();
      return [Math.round(r.left), Math.round(r.top)] })"""
    full = """() => [...document.querySelectorAll('.row > span')].filter(e => [...e.children].some(c => {
      const range = document.createRange(); range.selectNodeContents(c);
      return range.getBoundingClientRect().width > e.getBoundingClientRect().width })).map(e => e.textContent)"""
    for frames in (recorded(13), recorded(15), example("bytes"), example("wide")):
        before = None
        for frame in frames[2:]:
            page.evaluate("html => { here.innerHTML = html }", drift_html(frame, steady=True))
            now = page.evaluate(where)
            assert not page.evaluate(full)
            assert before is None or now[: len(before)] == before
            before = now


def test_the_static_stepper_shows_one_frame_and_steps(page):  # noqa: F811
    page.set_content(PAGE.format(drift_steps_picture(recorded(15)).markup))
    visible = "[...document.querySelectorAll('.tn-frames > div')].map((e, i) => e.offsetHeight ? i : -1).filter(i => i >= 0)"
    assert page.evaluate(visible) == [4]
    height = page.evaluate(HEIGHT)
    page.locator(".tn-steps label").nth(2).click()
    assert page.evaluate(visible) == [2] and page.evaluate(HEIGHT) == height and not page.evaluate(FAULTS)
    page.keyboard.press("ArrowRight")
    assert page.evaluate(visible) == [3]
