"The rules of the house, as far as a program can read them."
import ast, re, shutil, subprocess
from pathlib import Path

import pytest
from notebooks import KERNEL, NBS, ROOT, name, read, text

MAX_LINES, MAX_CELLS = 40, 60
MACHINE = re.compile(r"(?<![\w.])/(?:root|work|home|tmp/dev)/")  # paths of one machine
WORKPLACE = re.compile(r"\b(?:helper|session|subagent)s?\b", re.IGNORECASE)  # the project speaks of itself alone
TEXT = {".py", ".ipynb", ".md", ".toml", ".ini", ".txt", ".json", ".css", ".svg", ".html", ".yml", ".yaml", ".sh", ""}


def faults(nb: dict) -> list[str]:
    "What is wrong with a notebook"
    cells = nb["cells"]
    ids = [c["id"] for c in cells]
    out = [f"id {i} occurs twice" for i in sorted({i for i in ids if ids.count(i) > 1})]
    out += [f"id {i} says nothing" for i in ids if re.fullmatch(r"[0-9a-f-]{6,}", i)]
    out += ["kernelspec"] if nb["metadata"].get("kernelspec") != KERNEL else []
    out += ["metadata.widgets"] if "widgets" in nb["metadata"] else []
    out += [f"{len(cells)} cells"] if len(cells) > MAX_CELLS else []
    first = text(cells[0]["source"]) if cells else ""
    if not (cells and cells[0]["cell_type"] == "markdown" and re.match(r"# \S.*\n+> \S", first)):
        out.append("the first cell is not a title and a subtitle")
    for c in cells:
        source = text(c["source"])
        out += [f"#{c['id']}: {len(source.splitlines())} lines"] if c["cell_type"] == "code" and len(source.splitlines()) > MAX_LINES else []
        out += [f"#{c['id']}: empty"] if not source.strip() else []
        out += [f"#{c['id']}: an error is committed" for o in c.get("outputs", []) if o["output_type"] == "error"]
        out += [f"#{c['id']}: a patch" for line in source.splitlines() if c["cell_type"] == "code" and line.startswith("@patch")]
    return out


def undocumented(source: str) -> list[str]:
    "Public functions and classes without docstring, public functions without types"
    out = []
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            out += [f"{node.name}: no docstring"] if not ast.get_docstring(node) else []
            inner = [n for n in node.body if isinstance(n, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else [node]
            for f in inner:
                if f.name.startswith("_"):
                    continue
                out += [f"{node.name}.{f.name}: no docstring"] if f is not node and not ast.get_docstring(f) else []
                arguments = [*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs]
                untyped = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
                out += [f"{f.name}: {', '.join(untyped)} without type"] if untyped else []
                out += [f"{f.name}: result without type"] if f.returns is None else []
    return out


def said(path: str, content: str) -> list[str]:
    "Words and paths that do not belong into a file of the project"
    found = [m[0] for m in MACHINE.finditer(content)]
    if not path.startswith("tests/"):  # pytest and JupyterLab have words of their own
        found += [m[0] for m in WORKPLACE.finditer(content)]
    return found


def committed() -> list[Path]:
    "The files that git has or would add; without git, the files that matter"
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True) if shutil.which("git") else None
    top = [n for n in done.stdout.split("\0") if n] if done and done.returncode == 0 else []
    if not top:
        folders = [ROOT / n for n in ("nbs", "tito_nb", "tests", ".ci")]
        top = [str(p.relative_to(ROOT)) for f in folders for p in f.rglob("*")] + [p.name for p in ROOT.iterdir()]
    paths = (ROOT / n for n in top if "__pycache__" not in n)
    return sorted(p for p in paths if p.is_file() and p.suffix in TEXT and p.name != "LICENSE")


@pytest.mark.parametrize("path", NBS, ids=name)
def test_notebook(path):
    assert not faults(read(path))


def test_ids_are_unique_in_the_house():
    ids = [c["id"] for path in NBS for c in read(path)["cells"]]
    assert not sorted({i for i in ids if ids.count(i) > 1})


@pytest.mark.parametrize("path", sorted(p for p in (ROOT / "tito_nb").rglob("*.py") if p.name not in ("__init__.py", "_modidx.py")), ids=lambda p: p.stem)
def test_what_is_exported_is_documented(path):
    assert not undocumented(path.read_text(encoding="utf-8"))


def test_the_project_speaks_of_itself_alone():
    files = {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in committed()}
    assert {"README.md", "tests/test_house.py"} <= set(files)
    assert not {name: found for name, content in files.items() if (found := said(name, content))}


def notebook(**changes) -> dict:
    cells = [{"cell_type": "markdown", "id": "toy-title", "source": "# Toy\n\n> A toy", "metadata": {}},
             {"cell_type": "code", "id": "toy-code", "source": "1", "metadata": {}, "outputs": [], "execution_count": None}]
    return {"cells": [cells[0], cells[1] | changes], "metadata": {"kernelspec": KERNEL}}


@pytest.mark.parametrize("change", [
    {"id": "toy-title"}, {"id": "a45f753a"}, {"source": "1\n" * 41}, {"source": " "}, {"source": "@patch\ndef f(): ..."},
    {"outputs": [{"output_type": "error", "ename": "E", "evalue": "", "traceback": []}]},
])
def test_a_faulty_cell_is_seen(change):
    assert faults(notebook()) == [] and len(faults(notebook(**change))) == 1


@pytest.mark.parametrize("change", [
    lambda nb: nb["metadata"].update(widgets={}), lambda nb: nb["metadata"].update(kernelspec={"name": "other"}),
    lambda nb: nb["cells"].extend({"cell_type": "markdown", "id": f"toy-{i}", "source": "x"} for i in range(59)),
    lambda nb: nb["cells"][0].update(source="# Toy"),
])
def test_a_faulty_notebook_is_seen(change):
    nb = notebook()
    change(nb)
    assert len(faults(nb)) == 1


@pytest.mark.parametrize("source", [
    "def f() -> int:\n    return 1", "class C:\n    x = 1", "def f(x) -> int:\n    'd'", "def f(x: int):\n    'd'",
    "class C:\n    'd'\n    def m(self) -> int: ...",
])
def test_a_missing_docstring_or_type_is_seen(source):
    assert len(undocumented(source)) == 1
    assert not undocumented("def f(x: int) -> int:\n    'd'\nclass C:\n    'd'\n    def m(self) -> int:\n        'd'\ndef _g(x): ...")


def test_a_word_or_path_of_the_workplace_is_seen():
    slash = "/"
    assert said("README.md", f"see {slash}home{slash}me/x") and said("tests/x.py", f"'{slash}root{slash}x'")
    assert said("README.md", "a Session of it") and not said("tests/x.py", "scope='session'")
    assert not said("README.md", "https://example.org/home/x, homework/a, obsession")
