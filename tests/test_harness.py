"The harness itself: what it takes for equal, what it writes, and that it sees what it is there to see."
import base64, json, struct, zlib
from pathlib import Path

import pytest
from conftest import Running, album
from notebooks import KERNEL, LIVE, bitmap, difference, find, is_picture, read, save, shown, still


def png(width: int = 2, shade: int = 0) -> bytes:
    "A small PNG file"
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([shade]) * width for _ in range(2))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, 2, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def code(source: str, *outputs: dict, id: str = "toy-code") -> dict:
    return {"cell_type": "code", "id": id, "source": source, "metadata": {}, "execution_count": None, "outputs": list(outputs)}


def result(**data) -> dict:
    return {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": {k.replace("__", "/"): v for k, v in data.items()}}


def house(folder: Path, **notebooks: list[dict]) -> list[Path]:
    "A small project with notebooks, none of which has been run"
    (folder / "nbs").mkdir(parents=True)
    (folder / "tito_nb").mkdir()
    (folder / "tito_nb" / "__init__.py").write_text('__version__ = "0"\n')
    (folder / "pyproject.toml").write_text('[project]\nname="toy"\n[tool.nbdev]\nlib_path = "tito_nb"\nnbs_path = "nbs"\nexec_profile = false\n')
    title = {"cell_type": "markdown", "id": "toy-title", "source": "# Toy\n\n> A toy", "metadata": {}}
    for name, cells in notebooks.items():
        nb = {"cells": [title, *cells], "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
        (folder / "nbs" / f"{name}.ipynb").write_text(json.dumps(nb))
    return find(folder / "nbs")


PICTURE = '<div class="tn-picture x">a</div>'


@pytest.mark.parametrize("data, kept", [
    ({"text/plain": "1"}, {"text/plain"}),
    ({"text/html": "<p>", "text/plain": "1"}, {"text/html", "text/plain"}),
    ({"text/html": "<p>", "text/plain": "1", "image/png": ""}, {"image/png", "text/plain"}),
    ({LIVE: {}, "text/html": "<p>", "text/plain": "1", "image/png": ""}, {"image/png", "text/plain"}),
    ({LIVE: {}, "text/plain": "1"}, {"text/plain"}),
    ({"image/png": ""}, {"image/png"}),
])
def test_what_is_committed_of_an_output(data, kept):
    assert set(still(data)) == kept


@pytest.mark.parametrize("data, yes", [
    ({"text/html": PICTURE}, True), ({"text/html": [PICTURE[:9], PICTURE[9:]]}, True), ({"text/html": PICTURE, LIVE: {}}, True),
    ({"text/html": f"<p>{PICTURE}</p>"}, False), ({"text/html": "<div class='tn-pictures'>"}, False), ({"text/plain": PICTURE}, False), ({}, False),
])
def test_what_is_photographed(data, yes):
    assert is_picture(data) == yes


@pytest.mark.parametrize("before, after, equal", [
    ("<f at 0x7f00>", "<f at 0x7f99>", True), ("1", "2", False), ("\x1b[31mred\x1b[0m", "red", True),
])
def test_text_is_compared_without_addresses(before, after, equal):
    assert (shown(code("x", result(text__plain=before))) == shown(code("x", result(text__plain=after)))) == equal


def test_streams_are_compared_joined():
    whole = code("x", {"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]})
    cut = code("x", *({"output_type": "stream", "name": "stdout", "text": part} for part in ("a\n", "b\n")))
    other = code("x", {"output_type": "stream", "name": "stderr", "text": "a\nb\n"})
    assert shown(whole) == shown(cut) != shown(other)


def test_bitmaps_are_compared_by_size():
    assert bitmap("image/png", b64(png(2, 0))) == bitmap("image/png", b64(png(2, 9))) != bitmap("image/png", b64(png(3)))


def test_a_picture_is_compared_with_its_photograph():
    fresh = code("x", result(text__html=PICTURE, text__plain="a", image__png=b64(png(2, 0))))
    assert not difference(code("x", result(text__plain="a", image__png=b64(png(2, 0)))), fresh)
    assert "photograph" in difference(code("x", result(text__plain="a", image__png=b64(png(2, 9)))), fresh)
    assert difference(code("x", result(text__plain="a")), fresh)
    assert difference(code("x", result(text__plain="b", image__png=b64(png(2, 0)))), fresh)


def test_a_cell_that_varies_is_compared_by_presence():
    one, other, none = (code("#| varies\nx", *o) for o in ([result(text__plain="1")], [result(text__plain="2")], []))
    assert not difference(one, other) and difference(none, one)


def test_a_run_is_seen_to_fail_and_to_differ(tmp_path):
    good = [code("#| default_exp toy", id="toy-exp"), code("#| export\ndef f() -> int:\n    'one'\n    return 1", id="toy-f"), code("f()", id="toy-use")]
    lost = [code("#| default_exp lost", id="toy-exp"), code("#| hide\nimport math", id="toy-hide"), code("#| export\ndef g() -> float:\n    return math.pi", id="toy-g"),
            code("g()", id="toy-use")]
    paths = house(tmp_path / "house", good=good, wrong=[code("1 / 0")], lost=lost, nothing=[])
    for name, body in {"toy": "def f() -> int:\n    return 1\n", "lost": "def g() -> float:\n    return math.pi\n"}.items():
        (tmp_path / "house" / "tito_nb" / f"{name}.py").write_text(body)
    (tmp_path / "home").mkdir()
    running = Running(paths, tmp_path / "home", tmp_path / "house")
    results = {p.stem: r for p, r in running.results().items()}
    assert {name: r.ok for name, r in results.items()} == {"good": True, "lost": True, "nothing": True, "wrong": False}
    assert "ZeroDivisionError" in results["wrong"].error and not results["good"].on_module and "NameError" in results["lost"].on_module
    path, copy = tmp_path / "house/nbs/good.ipynb", results["good"].copy
    use = {c["id"]: c for c in read(copy)["cells"]}["toy-use"]
    assert difference(read(path)["cells"][-1], use), "outputs that are not there are not missed"
    assert save(path, copy) and not save(path, copy), "a second save changes nothing"
    assert not difference(read(path)["cells"][-1], use) and shown(read(path)["cells"][-1]) == [("text/plain", "1")]
    running.stop()
    assert not (tmp_path / "home").exists()


def test_saving_drops_what_a_run_leaves_behind(tmp_path):
    live = result(text__html="<p>", text__plain="w", image__png=b64(png())) | {}
    live["data"][LIVE] = {"model_id": "x"}
    path, fresh = (house(tmp_path / n, toy=[code("w", *o)])[0] for n, o in (("a", []), ("b", [live])))
    nb = read(path)
    nb["metadata"] |= {"widgets": {}, "language_info": {}}
    path.write_text(json.dumps(nb))
    assert save(path, fresh) and not save(path, fresh)
    nb = read(path)
    assert nb["metadata"] == {"kernelspec": KERNEL} and set(nb["cells"][1]["outputs"][0]["data"]) == {"image/png", "text/plain"}


def test_the_album_is_filled_and_cleared(tmp_path, monkeypatch):
    import conftest
    import photograph
    from tito_nb.views import theme

    def fake(htmls, folder):
        for name in htmls:
            (folder / f"{name}.png").write_bytes(png())

    monkeypatch.setattr(photograph, "photograph", fake)
    monkeypatch.setattr(conftest, "PICTURES", tmp_path / "pictures")
    monkeypatch.setattr(theme, "photo", lambda html: (tmp_path / "pictures" / f"{theme.digest(html)}.png").read_bytes())
    fresh = house(tmp_path / "house", toy=[code("x", result(text__html=PICTURE, text__plain="a"))])[0]
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "0123456789abcdef.png").write_bytes(png())
    album({fresh: conftest.Fresh(fresh, True, "", "")})
    assert [p.name for p in (tmp_path / "pictures").iterdir()] == [f"{theme.digest(PICTURE)}.png"]
    assert set(read(fresh)["cells"][1]["outputs"][0]["data"]) == {"text/html", "text/plain", "image/png"}
