"Options and fixtures: one fresh run of all notebooks, Chromium."
import os, shutil, tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import settings
from notebooks import NBS, PICTURES, ROOT, hang, parts, read, run, run_on_module

settings.register_profile("house", deadline=None, derandomize=True)  # the same examples each time, however busy the machine is
settings.load_profile("house")


def pytest_addoption(parser):
    parser.addoption("--save-outputs", action="store_true", help="write changed outputs and pictures of a fresh run into the notebooks")
    parser.addoption("--screenshots", metavar="DIR", help="write screenshots of the notebooks in JupyterLab to DIR (with the equals sign)")


@dataclass(frozen=True)
class Fresh:
    "A notebook after a run of its own"
    copy: Path  # the notebook with the outputs of the run
    ok: bool  # did every cell run?
    error: str  # what went wrong
    on_module: str  # what went wrong with the exported module in place of the exported cells


class Running:
    "All notebooks of `root` on their way: each in a copy of nbs/, twice, in a new process each time, two at once"

    def __init__(self, paths: list[Path], home: Path, root: Path = ROOT):
        self.home, self.paths = home, paths
        shutil.copytree(root / "nbs", home / "nbs", ignore=shutil.ignore_patterns(".*"))
        shutil.copy(root / "pyproject.toml", home)
        self.copies = [home / path.relative_to(root) for path in paths]
        originals = [shutil.copy(copy, copy.with_suffix(".original")) for copy in self.copies]
        self.pool = ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1)
        self.runs = [self.pool.submit(run, copy) for copy in self.copies]
        self.again = [self.pool.submit(run_on_module, p, root) if parts(path)[0] else None for path, p in zip(paths, originals)]

    def results(self) -> dict[Path, Fresh]:
        "Wait for all of them"
        rows = zip(self.paths, self.copies, self.runs, self.again)
        return {path: Fresh(copy, *r.result(), again.result() if again else "") for path, copy, r, again in rows}

    def stop(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        shutil.rmtree(self.home, ignore_errors=True)


RUNNING = pytest.StashKey[Running]()


def pytest_collection_finish(session):
    "The notebooks run beside the other tests"
    if not session.config.option.collectonly and any("fresh" in getattr(item, "fixturenames", ()) for item in session.items):
        session.config.stash[RUNNING] = Running(NBS, Path(tempfile.mkdtemp(prefix="fresh-")))


def pytest_unconfigure(config):
    if RUNNING in config.stash:
        config.stash[RUNNING].stop()


@pytest.fixture(scope="session")
def fresh(request) -> dict[Path, Fresh]:
    "All notebooks, run; with `--save-outputs` also photographed"
    results = request.config.stash[RUNNING].results()
    if request.config.getoption("save_outputs") and all(r.ok for r in results.values()):
        album(results)
    return results


def album(results: dict[Path, Fresh]) -> None:
    "Photograph the pictures that have no photograph, remove the photographs that have no picture"
    from photograph import figures, photograph, stale

    shots = {name: html for r in results.values() for c in read(r.copy)["cells"] for name, html in figures(c.get("outputs", [])).items()}
    photograph(shots, PICTURES)
    for result in results.values():
        hang(result.copy)
    for path in stale(shots, PICTURES):
        path.unlink()


@pytest.fixture(scope="session")
def chromium() -> str:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Chromium: apt-get install chromium")
    return path
