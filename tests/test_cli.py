"`tito-nb learn`: a learner's work is never lost, and what goes wrong is said in one line."
import json, os, random, stat, subprocess, sys
from pathlib import Path

import pytest
from notebooks import ROOT

from tito_nb import cli
from tito_nb.cli import MANIFEST, Delivery, checkout_lessons, copy_lessons, delivered, lab_options, main, names, report


def put(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def content(folder: Path) -> dict[str, str]:
    return {n: (folder / n).read_text() for n in names(folder)}


def test_this_is_a_source_tree():
    assert checkout_lessons() == ROOT / "nbs"


def test_hidden_and_private_files_are_not_lessons(tmp_path):
    put(tmp_path, a="1", sub__b="1", _proc="1", _x__c="1")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "a").touch()
    assert names(tmp_path) == ["a", "sub/b"]


def test_no_history_of_edits_and_versions_loses_work(tmp_path):
    "Random edits, deletions, versions, lost lists: what the learner wrote is there or was removed by the learner"
    rng = random.Random(0)
    for trial in range(60):
        source, target = tmp_path / f"s{trial}", tmp_path / f"t{trial}"
        mine: dict[str, str] = {}
        for step in range(8):
            put(source, **{n: f"v{rng.randrange(3)}" for n in ("a", "b", "d__c")})
            result = copy_lessons(source, target)
            now, package = content(target), content(source)
            assert {n: now[n] for n in mine} == mine, "an edit was overwritten"
            assert all(now[n] == package[n] for n in result.same) and set(result.same) | set(result.changed) == set(package)
            assert set(mine) <= set(result.changed) | {n for n in result.same if mine.get(n) == package[n]}
            what, which = rng.choice(["edit", "remove", "lose", "damage", "nothing"]), rng.choice(["a", "b", "d/c"])
            if what == "edit":
                mine[which] = f"mine {rng.random()}"
                (target / which).write_text(mine[which])
            elif what == "remove":
                (target / which).unlink()
                mine.pop(which, None)
            elif what == "lose":
                (target / MANIFEST).unlink(missing_ok=True)
            elif what == "damage":
                (target / MANIFEST).write_text(rng.choice(["", "[]", '{"a": 1}', "{", "\x00"]))


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"a.txt": 1}', "\udcff"])
def test_a_damaged_list_counts_as_empty(tmp_path, damage):
    put(tmp_path).joinpath(MANIFEST).write_bytes(damage.encode("utf-8", "surrogateescape"))
    assert delivered(tmp_path) == {}
    (tmp_path / MANIFEST).unlink()
    (tmp_path / MANIFEST).mkdir()
    assert delivered(tmp_path) == {}


def test_links_and_folders_in_the_way_are_the_learners(tmp_path):
    source, target = put(tmp_path / "s", a="new", b="new", c="new", d__e="new", f__g="new"), tmp_path / "t"
    outside = put(tmp_path / "outside", a="mine", d__e="mine")
    target.mkdir()
    (target / "a").symlink_to(outside / "a")
    (target / "b").symlink_to(tmp_path / "nowhere")
    (target / "c").mkdir()
    (target / "d").symlink_to(outside / "d")
    (target / "f").write_text("a file where a folder should be")
    assert copy_lessons(source, target) == Delivery((), ("a", "b", "c", "d/e", "f/g"), ("a", "b", "c", "d/e", "f/g"))
    assert content(outside) == {"a": "mine", "d/e": "mine"} and not (tmp_path / "nowhere").exists()


def test_the_folder_itself_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    copy_lessons(put(tmp_path / "s", a="1"), tmp_path / "link")
    assert content(tmp_path / "real") == {"a": "1"}


def test_an_interrupted_copy_goes_on(tmp_path, monkeypatch):
    source, target = put(tmp_path / "s", a="1", b="1", c="1"), tmp_path / "t"
    copy_lessons(source, target)
    put(source, a="2", b="2", c="2")
    replace, calls = os.replace, []

    def broken(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt  # while the second file is moved into its place
        replace(*args)

    with monkeypatch.context() as m:
        m.setattr(os, "replace", broken)
        with pytest.raises(KeyboardInterrupt):
            copy_lessons(source, target)
    assert content(target) == {"a": "2", "b": "1", "c": "1"} and not [p for p in target.iterdir() if p.name.endswith(".part")]
    put(source, a="3", b="3", c="3")  # a newer version before the learner tries again
    assert copy_lessons(source, target) == Delivery(("a", "b", "c"), (), ()) and content(target) == {"a": "3", "b": "3", "c": "3"}


def test_a_read_only_package_gives_writable_copies(tmp_path):
    source = put(tmp_path / "s", a="1")
    (source / "a").chmod(0o444)
    copy_lessons(source, tmp_path / "t")
    assert (tmp_path / "t/a").stat().st_mode & stat.S_IWUSR


@pytest.mark.parametrize("target, message", [("file", "is a file, not a folder"), ("file/below", "Not a directory"), ("s/below", "lies inside the lessons")])
def test_folders_that_cannot_be_are_refused(tmp_path, monkeypatch, capsys, target, message):
    put(tmp_path, file="1", s__a="1")
    monkeypatch.setattr(cli, "checkout_lessons", lambda: None)
    monkeypatch.setattr(cli, "LESSONS", tmp_path / "s")
    assert main(["learn", "--folder", str(tmp_path / target)]) == 2
    said = capsys.readouterr().err
    assert message in said and str(tmp_path / target) in said and said.count("\n") == 1
    assert content(tmp_path) == {"file": "1", "s/a": "1"}


def test_an_unwritable_folder_is_refused(tmp_path):
    put(tmp_path, s__a="1")
    (tmp_path / "t").mkdir(mode=0o555)
    tmp_path.chmod(0o755)
    code = """
import os, sys
from pathlib import Path
from tito_nb import cli
import ipywidgets, matplotlib, jupyterlab.labapp
cli.checkout_lessons, cli.LESSONS = (lambda: None), Path("s")
if os.geteuid() == 0:  # root may write anywhere
    os.seteuid(65534)
sys.exit(cli.main(["learn", "--folder", "t"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=dict(os.environ, PYTHONPATH=str(ROOT)), capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("tito-nb learn: ") and done.stderr.endswith(": Permission denied\n"), done.stderr
    assert done.stderr.count("\n") == 1 and not list((tmp_path / "t").iterdir())


@pytest.mark.parametrize("missing", ["jupyterlab", "ipywidgets", "matplotlib"])
def test_a_missing_extra_is_named(tmp_path, missing):
    code = f"import sys; sys.modules[{missing!r}] = None; from tito_nb.cli import main; sys.exit(main(['learn', '--folder', 'x']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=dict(os.environ, PYTHONPATH=str(ROOT)), capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout and not (tmp_path / "x").exists()
    assert done.stderr == f"tito-nb learn needs {missing}. Install it with: {sys.executable} -m pip install 'tito_nb[learn]'\n"


def test_an_installation_without_lessons_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "checkout_lessons", lambda: None)
    monkeypatch.setattr(cli, "LESSONS", tmp_path / "none")
    assert main(["learn", "--folder", str(tmp_path / "t")]) == 2
    assert "no lessons in this installation" in capsys.readouterr().err and not (tmp_path / "t").exists()


def started(monkeypatch, *argv: str) -> list[str]:
    "What JupyterLab would be started with"
    from jupyterlab.labapp import LabApp

    calls: list[list[str]] = []
    monkeypatch.setattr(LabApp, "launch_instance", lambda argv: calls.append(argv))
    assert main(["learn", *argv]) == 0
    return calls[0]


def test_what_reaches_jupyterlab(tmp_path, monkeypatch, capsys):
    source = put(tmp_path / "s", a="1")
    monkeypatch.setattr(cli, "checkout_lessons", lambda: None)
    monkeypatch.setattr(cli, "LESSONS", source)
    monkeypatch.chdir(tmp_path)
    argv = started(monkeypatch, "--port", "9000", "--folder", "a folder", "--no-browser", "--ServerApp.x=1 2")
    assert f"--ServerApp.root_dir={tmp_path / 'a folder'}" in argv and argv[-4:] == ["--port", "9000", "--no-browser", "--ServerApp.x=1 2"]
    assert capsys.readouterr().out == f"Lessons: {tmp_path / 'a folder'}\n"
    (tmp_path / "a folder" / "a").write_text("mine")
    put(source, a="2")
    started(monkeypatch, "--folder", "a folder")
    assert "a: you changed it, so it was left" in capsys.readouterr().out
    started(monkeypatch)
    assert content(tmp_path / "tito_nb_lessons") == {"a": "2"}


def test_a_source_tree_is_opened_in_place(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cli, "trust", lambda lessons: [])
    assert f"--ServerApp.root_dir={ROOT / 'nbs'}" in started(monkeypatch) and capsys.readouterr().out == ""
    assert f"--ServerApp.root_dir={tmp_path / 'x'}" in started(monkeypatch, "--folder", str(tmp_path / "x"))
    assert names(tmp_path / "x") == names(ROOT / "nbs")


def test_only_what_is_as_delivered_is_signed(tmp_path, monkeypatch):
    empty = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    put(tmp_path / "s", **{"a.ipynb": empty, "b.ipynb": empty, "c.txt": "1"})
    signed: list[str] = []
    monkeypatch.setattr(cli, "trust", lambda lessons: signed.extend(p.name for p in lessons) or [])
    monkeypatch.setattr(cli, "checkout_lessons", lambda: None)
    monkeypatch.setattr(cli, "LESSONS", tmp_path / "s")
    put(tmp_path / "t", **{"b.ipynb": "mine"})
    cli.prepare(tmp_path / "t")
    assert signed == ["a.ipynb"]


def test_without_a_place_for_signatures_the_lessons_open(tmp_path, monkeypatch, capsys):
    put(tmp_path, file="1")
    put(tmp_path / "s", **{"a.ipynb": json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})})
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "file" / "data"))
    monkeypatch.setattr(cli, "checkout_lessons", lambda: None)
    monkeypatch.setattr(cli, "LESSONS", tmp_path / "s")
    assert cli.prepare(tmp_path / "t") == tmp_path / "t" and "not signed" in capsys.readouterr().out


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("display", [True, False])
def test_options_for_this_machine(root, display):
    options = lab_options(Path("x"), ["--last"], root, display)
    assert ("--allow-root" in options, "--no-browser" in options, options[-1]) == (root, not display, "--last")


def test_exit_codes_of_wrong_commands(capsys):
    for argv in ([], ["teach"], ["learn", "--folder"]):
        with pytest.raises(SystemExit) as e:
            main(argv)
        assert e.value.code == 2
    for argv in (["--version"], ["--help"], ["learn", "--help"]):
        with pytest.raises(SystemExit) as e:
            main(argv)
        assert e.value.code == 0
    assert "--folder" in capsys.readouterr().out


def test_nothing_is_said_of_a_file_that_does_not_wait():
    assert report(Path("x"), Delivery((), ("a",), ())) == "Lessons: x"
    assert "b: you changed it" in report(Path("x"), Delivery((), ("a", "b"), ("b",)))
