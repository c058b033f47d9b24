"The lessons in real JupyterLab in Chromium: every notebook runs, nothing breaks in a place that no cell output shows."
import json, re, urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from lab import Desk, desk, serve
from notebooks import KERNEL, NBS, name

from tito_nb.views.drift import SWITCHES

BROKEN_WIDGET = """
import ipywidgets, traitlets
class Broken(ipywidgets.DOMWidget):
    _model_module = _view_module = traitlets.Unicode("nowhere").tag(sync=True)
    _model_module_version = _view_module_version = traitlets.Unicode("1").tag(sync=True)
    _model_name = _view_name = traitlets.Unicode("Nothing").tag(sync=True)
Broken()
"""
CONTROLS = {  # notebooks that are wrong on purpose: what the runner must say of them
    "cell": ("1 / 0", "ZeroDivisionError"),
    "widget": (BROKEN_WIDGET, "broken output"),
    "page": ("from IPython.display import Javascript\nJavascript('setTimeout(() => { throw new Error(\"from the page\") })')", "error in the page"),
    "callback": ("import ipywidgets\nb = ipywidgets.Button(description='Fail')\nb.on_click(lambda _: 1 / 0)\nb", "error in a callback"),
    "axe": ("from IPython.display import HTML\nHTML('<div class=\"tn\"><p style=\"color: #bbb; background: #fff\">pale</p><svg role=\"img\"></svg></div>')", ""),
    "wide": ("from IPython.display import HTML\nHTML('<div class=\"tn\"><div style=\"width: 1500px\">wide</div></div>')", ""),
    "good": ("import ipywidgets\nipywidgets.Button(description='Fine')", ""),
}


def notebook(source: str) -> str:
    cell = {"cell_type": "code", "id": "toy", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
    return json.dumps({"cells": [cell], "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    "Address of `tito-nb learn` on a copy of the lessons; beside them the notebooks that are wrong on purpose"
    home = tmp_path_factory.mktemp("learn")
    (home / "lessons" / "controls").mkdir(parents=True)
    for control, (source, _) in CONTROLS.items():
        (home / "lessons" / "controls" / f"{control}.ipynb").write_text(notebook(source))
    with serve(home / "lessons", home) as base:
        yield base


@pytest.fixture(scope="module")
def lab(server, chromium) -> Desk:
    with desk(server, chromium) as made:
        yield made


@pytest.fixture
def visit(lab):
    "Open a notebook and run all of it; it is closed afterwards"
    opened = []

    def go(path: str) -> Desk:
        opened.append(path)
        lab.open(path)
        lab.run_all()
        return lab

    yield go
    if opened:
        lab.close()


def test_learn_answers(server):
    answer = urllib.request.urlopen(f"{server}/lab/tree/index.ipynb?token=t", timeout=30)
    assert answer.status == 200 and b"JupyterLab" in answer.read()
    page = urllib.request.urlopen(f"{server}/api/contents/?token=t", timeout=30).read()
    assert {p["name"] for p in json.loads(page)["content"]} >= {p.name for p in NBS if p.parent.name == "nbs"}


def test_delivered_lessons_are_trusted(lab):
    "Before anything is run: what is committed is shown as it is, not cut down"
    lab.open("02_bpe.ipynb")
    cells = lab.page.evaluate("() => window.nb.content.widgets.filter(w => w.model.type === 'code').map(w => [w.model.trusted, w.model.outputs.length])")
    lab.close()
    assert any(outputs for _, outputs in cells) and all(trusted for trusted, _ in cells)


@pytest.mark.parametrize("path", NBS, ids=name)
def test_notebook_in_jupyterlab(path, visit, request):
    lab = visit(name(path))
    assert not lab.faults()
    found = lab.audit()
    assert not found["violations"]
    if folder := request.config.getoption("screenshots"):
        lab.screenshot(Path(folder) / f"{name(path).removesuffix('.ipynb').replace('/', '-')}.png")
    lab.page.set_viewport_size({"width": 600, "height": 900})
    try:
        lab.page.wait_for_timeout(100)
        assert not lab.overflow()
    finally:
        lab.page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.parametrize("control", CONTROLS)
def test_what_is_wrong_on_purpose_is_seen(control, visit):
    expected = CONTROLS[control][1]
    lab = visit(f"controls/{control}.ipynb")
    if control == "callback":
        assert not lab.faults()
        lab.page.get_by_role("button", name="Fail").click()
        lab.page.wait_for_timeout(500)
    found, audit, overflow = lab.faults(), lab.audit(), lab.overflow()
    assert len(found) == bool(expected) and all(expected in f for f in found)
    assert sorted(v.split()[0] for v in audit["violations"]) == (["color-contrast", "svg-img-alt"] if control == "axe" else ["svg-img-alt"] if control == "widget" else [])
    assert bool(overflow) == (control == "wide") and (audit["looked"] > 0 or control in ("cell", "page"))


class Stepper:
    "The first stepper of a notebook, as a learner meets it: by the names of its controls"
    notebook_name, text_label, choice_label, typed_at = "01_spec.ipynb", "Text", "Merge table", "0"
    labels = ["Text", "Merge table", "Back", "Next", "Play", "Step", "Reset"]

    def __init__(self, lab: Desk):
        self.lab, self.page = lab, lab.page
        outputs = lab.page.locator(".jp-OutputArea-output")
        self.output = outputs.filter(has=lab.page.get_by_role("button", name="Next", exact=True)).first
        self.text = self.output.get_by_label(self.text_label, exact=True)
        self.choice = self.output.get_by_label(self.choice_label, exact=True)
        self.step = self.output.get_by_label("Step", exact=True)

    def button(self, label: str):
        return self.output.get_by_role("button", name=label, exact=True)

    def settle(self, ms: int = 250) -> None:
        "Wait until no message has come for a while"
        seen = -1
        while seen != self.lab.traffic.received:
            seen = self.lab.traffic.received
            self.page.wait_for_timeout(ms)

    def at(self) -> tuple[int, int]:
        "(step, last step) as the figure says"
        step, last = re.findall(r"step (\d+) of (\d+)", self.output.inner_text())[0]
        return int(step), int(last)

    def wait(self, step: int) -> None:
        self.output.get_by_text(re.compile(rf"^step {step} of \d+(: .*)?$")).wait_for()
        assert int(self.step.input_value()) == step

    def shown(self) -> str:
        "What the figure shows of what was typed: here the row of tokens"
        row = self.output.get_by_role("group", name="Tokens and their ids, in order")
        return "".join(row.locator("code").all_inner_texts()).replace("␣", " ")

    def height(self) -> float:
        return self.output.bounding_box()["height"]

    def notebook(self) -> list:
        "Mode, active cell and the cells of the notebook: what commands would change"
        return self.page.evaluate("() => { const c = window.nb.content; return [c.mode, c.activeCellIndex, ...c.widgets.map(w => w.model.id)]; }")

    def folded(self) -> list[int]:
        "Cells of the notebook that are not to be seen"
        return self.page.evaluate("() => [...window.nb.node.querySelectorAll('.jp-Cell')].flatMap((c, i) => c.offsetHeight ? [] : [i])")


class Theatre(Stepper):
    notebook_name, text_label, choice_label, typed_at = "04_drift.ipynb", "Tool result", "Sampled ids", "4"
    labels = ["Sampled ids", "Rollout", "Tool result", *SWITCHES.values(), "Back", "Next", "Play", "Step", "Reset"]

    def shown(self) -> str:
        "The tool message in the upper lane"
        cells = "".join(self.output.locator(".cols .T > b").all_inner_texts())
        return re.fullmatch(r"<\|im_start\|>tool⏎(.*)<\|im_end\|>⏎", cells)[1].replace("␣", " ")


@pytest.fixture(scope="module", params=[Stepper, Theatre], ids=["merge", "drift"])
def opened(lab, request):
    lab.open(request.param.notebook_name)
    lab.run_all()
    made = request.param(lab)
    made.output.click(position={"x": 3, "y": 3})  # its cell is the active one
    yield made
    lab.close()


@pytest.fixture
def stepper(opened):
    "The stepper at its first step; whatever a test does with it, nothing may go wrong"
    opened.button("Reset").click()
    opened.settle()
    opened.wait(0)
    yield opened
    opened.settle()
    assert not opened.lab.faults()


def test_stepper_by_mouse(stepper):
    last = stepper.at()[1]
    assert last >= 2
    for step in range(1, last + 1):
        stepper.button("Next").click()
        stepper.wait(step)
    stepper.button("Next").click()
    stepper.settle()
    assert stepper.at() == (last, last)
    stepper.button("Back").click()
    stepper.wait(last - 1)
    stepper.step.fill("1")
    stepper.step.press("Tab")
    stepper.wait(1)


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_stepper_by_keyboard_from_command_mode(stepper, key):
    "In command mode letters and arrows are commands of the notebook: they fold headings, move between cells, insert and delete them"
    page, before = stepper.page, stepper.notebook()
    page.keyboard.press("Escape")
    for label, step in (("Next", 1), ("Next", 2), ("Back", 1)):
        stepper.button(label).focus()
        page.keyboard.press(key)
        stepper.wait(step)
    stepper.step.focus()
    page.keyboard.press("ArrowUp")
    stepper.wait(2)
    boxes = stepper.output.locator("[tabindex='0'][role=group]")
    for summary in stepper.output.locator("summary").all():
        summary.focus()
        page.keyboard.press(key)
    assert boxes.count() >= 1 and all(box.is_visible() for box in boxes.all())
    for box in (stepper.step, stepper.text, *boxes.all()):
        box.focus()
        for arrow in ("ArrowLeft", "ArrowRight"):
            page.keyboard.press(arrow)
        assert box.evaluate("e => e === document.activeElement")
    stepper.choice.focus()
    chosen = stepper.choice.input_value()
    for press in (key, "ArrowDown", "Enter"):  # open the list, go down, choose
        page.keyboard.press(press)
        page.wait_for_timeout(200)
    stepper.settle()
    assert stepper.choice.input_value() != chosen
    assert stepper.notebook() == before and stepper.folded() == []


def test_every_control_is_reached_by_tab(stepper):
    stepper.output.get_by_label(stepper.labels[0], exact=True).focus()
    reached = []
    for _ in range(len(stepper.labels) + 1):
        reached.append(stepper.page.evaluate("() => { const e = document.activeElement; return (e.labels && e.labels[0] || e).textContent.trim(); }"))
        stepper.page.keyboard.press("Tab")
    assert [label for label in reached if label in stepper.labels] == stepper.labels


def test_quick_typing_loses_nothing(stepper):
    typed = "then the hen, the et"
    assert len(typed) == 20
    stepper.text.fill("")
    stepper.settle()
    stepper.text.press_sequentially(typed)
    stepper.settle()
    assert stepper.text.input_value() == typed
    stepper.step.fill(stepper.typed_at)
    stepper.step.press("Tab")
    stepper.settle()
    assert stepper.shown() == typed


def test_play_runs_to_the_end_and_stops(stepper):
    last = stepper.at()[1]
    stepper.button("Play").click()
    stepper.button("Pause").wait_for()
    stepper.output.get_by_text(re.compile(f"^step {last} of {last}(: .*)?$")).wait_for()
    stepper.button("Play").wait_for()
    stepper.settle()
    assert stepper.at() == (last, last)


def test_a_step_costs_few_messages_and_no_height(stepper):
    last, height = stepper.at()[1], stepper.height()
    for label, steps in (("Next", range(1, last + 1)), ("Back", range(last - 1, -1, -1))):
        for step in steps:
            before = replace(stepper.lab.traffic)
            stepper.button(label).click()
            stepper.wait(step)
            stepper.settle()
            now = stepper.lab.traffic
            cost = now.sent - before.sent, now.received - before.received, now.received_bytes - before.received_bytes
            assert cost[0] <= 2 and cost[1] <= 10 and cost[2] <= 32 * 1024, cost
            assert stepper.height() == height


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
@pytest.mark.parametrize("size", [(1280, 900, "wide"), (600, 900, "narrow"), (640, 450, "zoomed")], ids=lambda s: s[2])
def test_stepper_can_be_read(stepper, theme, size, request):
    page, width, height = stepper.page, *size[:2]
    stepper.lab.theme(theme)
    page.set_viewport_size({"width": width, "height": height})
    try:
        for step in range(stepper.at()[1] + 1):
            if step:
                stepper.button("Next").click()
            stepper.wait(step)
            assert not stepper.lab.overflow()
        found = stepper.lab.audit()
        assert found["looked"] and not found["violations"]
        if folder := request.config.getoption("screenshots"):
            stepper.output.screenshot(path=Path(folder) / f"{type(stepper).__name__.lower()}-{theme.split()[1].lower()}-{size[2]}.png")
    finally:
        page.set_viewport_size({"width": 1280, "height": 900})
        stepper.lab.theme("JupyterLab Light")
