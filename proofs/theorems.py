"""The list of main theorems.

A main theorem is one with a comment `(** B7. ... *)` directly above it: the property's name (or
several), then the statement in words.  From these comments this script writes THEOREMS.tsv, the file
Assumptions.v, which prints what each theorem rests on, and the table in README.md.

    python3 theorems.py            writes the three
    python3 theorems.py --check    says whether they are up to date
"""
import re
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PROPERTY = r"(?:not B|[BRD]\d+)"
MAIN = re.compile(
    rf"\(\*\* ({PROPERTY}(?:, {PROPERTY})*)\. ((?:(?!\*\)).)*?) \*\)\n(?:Theorem|Corollary|Lemma|Example) (\w+)",
    re.DOTALL,
)
BEGIN, END = "<!-- theorems: written by theorems.py -->\n", "<!-- end of theorems -->\n"


class Theorem(NamedTuple):
    property: str  # "B7", or several: "B7, B9"
    name: str
    file: str
    statement: str  # in words


def files(here: Path = HERE) -> list[str]:
    "The files in reading order"
    return [line for line in (here / "_CoqProject").read_text(encoding="utf-8").splitlines() if line.endswith(".v")]


def theorems(here: Path = HERE) -> list[Theorem]:
    "All main theorems in reading order"
    found = []
    for file in files(here):
        for match in MAIN.finditer((here / file).read_text(encoding="utf-8")):
            found.append(Theorem(match[1], match[3], file, " ".join(match[2].split())))
    return found


def as_tsv(found: list[Theorem]) -> str:
    return "".join("\t".join(row) + "\n" for row in [("property", "theorem", "file", "statement"), *found])


def group(theorem: Theorem) -> str:
    "B, R, D or not_B"
    return "not_B" if theorem.property.startswith("not") else theorem.property[0]


def as_coq(found: list[Theorem]) -> str:
    "A file that prints what the theorems of each group rest on; one print for each theorem would take a minute"
    modules = list(dict.fromkeys(theorem.file.removesuffix(".v") for theorem in found))
    lines = ["(* Written by theorems.py: what the main theorems rest on. *)", f"From TitoNb Require {' '.join(modules)}."]
    for name in dict.fromkeys(map(group, found)):
        members = [f"@{theorem.file.removesuffix('.v')}.{theorem.name}" for theorem in found if group(theorem) == name]
        lines += [f"Definition theorems_{name} := (" + ",\n  ".join(members) + ").", f"Print Assumptions theorems_{name}."]
    return "\n".join(lines) + "\n"


def as_markdown(found: list[Theorem]) -> str:
    cells = [(t.property, f"`{t.name}`", f"`{t.file}`", t.statement.replace("|", r"\|").replace("<", "&lt;")) for t in found]
    rows = [f"| {' | '.join(row)} |\n" for row in cells]
    return "| property | theorem | file | statement in words |\n|---|---|---|---|\n" + "".join(rows)


def written(here: Path = HERE) -> dict[Path, str]:
    "Each written file, and what should stand in it"
    found, readme = theorems(here), here / "README.md"
    made = {here / "THEOREMS.tsv": as_tsv(found), here / "Assumptions.v": as_coq(found)}
    if readme.exists():
        before, rest = readme.read_text(encoding="utf-8").split(BEGIN)
        made[readme] = before + BEGIN + as_markdown(found) + END + rest.split(END)[1]
    return made


def main() -> None:
    if "--check" in sys.argv:
        old = [path.name for path, text in written().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
        sys.exit(f"not up to date: {', '.join(old)}; run theorems.py" if old else 0)
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
    print(len(theorems()), "theorems")


if __name__ == "__main__":
    main()
