"The wheel carries what a learner needs and works where only Python is; the code is clean."
import hashlib, os, subprocess, sys, zipfile
from pathlib import Path

import pytest
from notebooks import NBS, PICTURES, ROOT

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_wheel_carries_lessons_data_and_pictures(wheel):
    with zipfile.ZipFile(wheel) as z:
        inside = {n: z.read(n) for n in z.namelist()}
    lessons = {f"tito_nb/_lessons/{p.relative_to(ROOT / 'nbs').as_posix()}": p for p in NBS}
    data = {p.relative_to(ROOT).as_posix(): p for folder in (ROOT / "tito_nb/data", PICTURES) if folder.is_dir() for p in folder.iterdir()}
    modules = {p.relative_to(ROOT).as_posix(): p for p in (ROOT / "tito_nb").rglob("*.py")}
    assert lessons and data and modules
    wanted = lessons | data | modules | {"tito_nb/py.typed": ROOT / "tito_nb/py.typed"}
    assert not sorted(set(wanted) - set(inside))
    assert not [n for n, p in wanted.items() if inside[n] != p.read_bytes()]
    extra = [n for n in inside if n not in wanted and ".dist-info/" not in n]
    assert not [n for n in extra if not n.startswith("tito_nb/_lessons/") or any(part[0] in "._" for part in n.split("/")[2:])]
    assert {"LICENSE", "NOTICE"} <= {n.rpartition("/")[2] for n in inside if "/licenses/" in n}


def test_wheel_works_where_only_python_is(wheel, tmp_path):
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, env=env)
    python = tmp_path / "venv/bin/python"
    site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], env=env, check=True, capture_output=True, text=True).stdout.strip()
    here = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site, wheel]
    subprocess.run(here, check=True, capture_output=True, env=env)
    code = """
import tito_nb, tito_nb.renderer, tito_nb.rollouts
from pathlib import Path
from tito_nb.cli import LESSONS, checkout_lessons, copy_lessons, main
assert checkout_lessons() is None and LESSONS.is_dir()
print(len(tito_nb.rollouts.load_rollouts()), *copy_lessons(LESSONS, Path("lessons")).same, sep="\\n")
raise SystemExit(main(["learn", "--folder", "nowhere"]))
"""
    done = subprocess.run([python, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 2 and "pip install 'tito_nb[learn]'" in done.stderr, done.stderr  # this environment has no JupyterLab
    assert not (tmp_path / "nowhere").exists()
    count, *names = done.stdout.splitlines()
    assert count == "256" and set(names) >= {p.relative_to(ROOT / "nbs").as_posix() for p in NBS}
    for path in NBS:
        copy = tmp_path / "lessons" / path.relative_to(ROOT / "nbs")
        assert hashlib.sha256(copy.read_bytes()).digest() == hashlib.sha256(path.read_bytes()).digest()


@pytest.mark.parametrize("command", [["ruff", "check", "--no-cache", "."], ["mypy"]], ids=lambda c: c[0])
def test_static(command):
    done = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
