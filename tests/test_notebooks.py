"Every notebook runs; what is committed is what a fresh run shows; its checks hold for the exported module too."
import json

import pytest
from notebooks import KERNEL, LIVE, NBS, PICTURES, difference, is_picture, name, parts, png, read, save, text
from photograph import figures

from tito_nb.views.theme import digest


@pytest.mark.parametrize("path", NBS, ids=name)
def test_runs(path, fresh):
    assert fresh[path].ok, fresh[path].error[-4000:]


@pytest.mark.parametrize("path", NBS, ids=name)
def test_committed_outputs_equal_a_fresh_run(path, fresh, request):
    assert fresh[path].ok, "the notebook does not run"
    if request.config.getoption("save_outputs"):
        save(path, fresh[path].copy)
    new = {c["id"]: c for c in read(fresh[path].copy)["cells"]}
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "code":
            why = difference(cell, new[cell["id"]])
            assert not why, f"#{cell['id']}: run pytest tests/test_notebooks.py --save-outputs and look at the difference\n{why}"


@pytest.mark.parametrize("path", NBS, ids=name)
def test_committed_file_is_clean(path):
    from fastcore.nbio import nb2str, read_nb
    from nbdev.clean import clean_nb

    before, nb = read(path), read_nb(path)
    clean_nb(nb)
    assert before["cells"] == json.loads(nb2str(nb))["cells"], "run nbdev-clean"
    assert before["metadata"] == {"kernelspec": KERNEL}
    for cell in before["cells"]:
        for o in cell.get("outputs", []):
            data = o.get("data", {})
            assert LIVE not in data, f"#{cell['id']}: a widget view is committed"
            assert not {"text/html", "image/png"} <= set(data) and not is_picture(data), f"#{cell['id']}: the HTML of a picture is committed"


@pytest.mark.parametrize("path", [p for p in NBS if parts(p)[0]], ids=name)
def test_checks_hold_for_the_exported_module(path, fresh):
    assert not fresh[path].on_module, fresh[path].on_module


def test_every_picture_has_its_photograph_and_no_photograph_is_left_over(fresh):
    assert all(r.ok for r in fresh.values()), "a notebook does not run"
    outputs = [o for r in fresh.values() for c in read(r.copy)["cells"] for o in c.get("outputs", [])]
    here = {p.stem for p in PICTURES.glob("*")}
    wanted = set(figures(outputs))
    assert (sorted(wanted - here), sorted(here - wanted)) == ([], []), "run pytest tests/test_notebooks.py --save-outputs"
    for o in outputs:  # what a fresh run shows is what lies there
        if is_picture(o.get("data", {})):
            assert png(o["data"]["image/png"]) == (PICTURES / f"{digest(text(o['data']['text/html']))}.png").read_bytes()
