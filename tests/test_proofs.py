"The proofs: they are accepted, rest on nothing, say what the list says, and the package answers as the model does."
import importlib.util, inspect, random, re, shutil, subprocess
from pathlib import Path

import pytest
from notebooks import ROOT

from tito_nb import bpe, delta, merging, renderer

PROOFS = ROOT / "proofs"
WANTED = {f"B{i}" for i in range(1, 12)} | {f"R{i}" for i in range(1, 7)} | {f"D{i}" for i in (1, 2, 3, 4, 5, 6, 7, 9)}


def load(name: str):
    "A script of the folder as a module"
    spec = importlib.util.spec_from_file_location(f"proofs_{name}", PROOFS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    __import__("sys").modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


listing, vectors = load("theorems"), load("vectors")
THEOREMS = listing.theorems(PROOFS)
needs_coq = pytest.mark.skipif(shutil.which("coqc") is None, reason="coqc is not installed (Debian: coq)")
needs_ocaml = pytest.mark.skipif(shutil.which("ocamlfind") is None, reason="ocamlfind is not installed")


def coqc(folder: Path, file: str) -> subprocess.CompletedProcess:
    return subprocess.run(["coqc", "-q", "-Q", ".", "TitoNb", file], cwd=folder, capture_output=True, text=True)


def make(folder: Path, *arguments: str) -> str:
    run = subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, (run.stdout + run.stderr)[-3000:]
    return run.stdout


# the texts

def test_the_list_is_that_of_the_comments():
    for path, text in listing.written(PROOFS).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run proofs/theorems.py"


def test_every_property_has_its_theorems():
    assert {name for theorem in THEOREMS for name in theorem.property.split(", ")} == WANTED | {"not B"}
    names = [(theorem.file, theorem.name) for theorem in THEOREMS]
    assert len(set(names)) == len(names) and all(theorem.statement.endswith(".") for theorem in THEOREMS)


def stripped(text: str) -> str:
    "A Coq file without its comments"
    depth, kept = 0, []
    for part in re.split(r"(\(\*|\*\))", text):
        depth += {"(*": 1, "*)": -1}.get(part, 0)
        if depth == 0 and part != "*)":
            kept.append(part)
    return "".join(kept)


def gaps(text: str) -> list[str]:
    "Sentences that let something pass unproved; assumptions of a section count where the section is not closed"
    out, depth = [], 0
    for line in stripped(text).splitlines():
        word = (line.split() or [""])[0].rstrip(".")
        depth += {"Section": 1, "End": -1}.get(word, 0)
        if re.search(r"\b(Admitted|Axioms?|Parameters?|Conjecture|admit|give_up|bypass_check|Unset Guard Checking)\b", line):
            out.append(line)
        elif word in ("Variable", "Variables", "Hypothesis", "Hypotheses", "Context") and depth == 0:
            out.append(line)
    return out


def test_a_gap_is_seen():
    assert gaps("Lemma a : 0 = 1.\nAdmitted.") and gaps("Axiom a : 0 = 1.") and gaps("Hypothesis a : 0 = 1.")
    assert not gaps("(* no Axiom here (* nor here *) *)\nSection A.\nVariable a : nat.\nEnd A.")


@pytest.mark.parametrize("file", listing.files(PROOFS))
def test_nothing_is_left_unproved(file):
    assert gaps((PROOFS / file).read_text(encoding="utf-8")) == []


def test_every_file_is_in_the_project():
    assert {path.name for path in PROOFS.glob("*.v")} == {*listing.files(PROOFS), "Assumptions.v", "Extract.v"}


# the vectors

def test_the_fixed_vectors_are_what_the_package_answers():
    made = vectors.as_coq(vectors.cases(vectors.FIXED_SEED, vectors.FIXED_ROUNDS))
    assert (PROOFS / "Vectors.v").read_text(encoding="utf-8") == made, "run proofs/vectors.py"


def test_the_vectors_ask_everything():
    made, events = vectors.cases(5, 240), {}
    assert {case.function for case in made} == set(vectors.FUNCTIONS)
    for function, (_, kind, _) in vectors.FUNCTIONS.items():
        answers = [case.answer for case in made if case.function == function]
        if kind == "bool":
            assert {True, False} == set(answers), function
        if kind.endswith("or none"):
            assert any(answer is None for answer in answers) and any(answer is not None for answer in answers), function
    for case in made:
        if case.function == "rollout":
            for event, view in zip(case.arguments[1], case.answer[0]):
                events.setdefault(event[0], set()).add(view is not None)
    assert events == {name: {True, False} for name in ("append", "open", "sample", "close", "discard", "insert", "remove", "restart")}
    assert any(len(case.answer[1]) > 2 for case in made if case.function == "rollout"), "several training examples"
    assert {len(case.arguments[2]) <= bpe.SHORT for case in made if case.function == "encode"} == {True, False}
    assert any(any(score) for case in made if case.function == "rollout" for _, _, score in case.answer[1])


# the build

@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    "A copy of the folder with all proofs checked"
    if shutil.which("coqc") is None:
        pytest.skip("coqc is not installed (Debian: coq)")
    folder = tmp_path_factory.mktemp("proofs") / "proofs"
    files = [*listing.files(PROOFS), "Assumptions.v", "Extract.v", "driver.ml", "_CoqProject", "Makefile"]
    folder.mkdir()
    for file in files:
        shutil.copy(PROOFS / file, folder)
    make(folder, "-j2")
    return folder


@pytest.fixture(scope="module")
def program(built) -> Path:
    "The extracted program"
    if shutil.which("ocamlfind") is None:
        pytest.skip("ocamlfind is not installed")
    make(built, "model")
    return built / "build" / "model"


@needs_coq
def test_the_theorems_rest_on_nothing(built):
    wanted = len({listing.group(theorem) for theorem in THEOREMS})
    assert wanted == 4
    run = coqc(built, "Assumptions.v")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["Closed under the global context"] * wanted
    said = (built / "Assumptions.v").read_text(encoding="utf-8")
    assert said.count("Print Assumptions") == wanted and said.count("@") == len(THEOREMS)


@needs_coq
def test_an_axiom_is_seen(built):
    (built / "Leak.v").write_text("Axiom no : False.\nTheorem all : 0 = 1.\nProof. destruct no. Qed.\nPrint Assumptions all.\n", encoding="utf-8")
    run = coqc(built, "Leak.v")
    assert run.returncode == 0 and "Closed under" not in run.stdout and "no : False" in run.stdout


@needs_coq
def test_no_lemma_is_idle(built):
    defined, used = set(), set()
    for file in listing.files(PROOFS):
        for line in (built / file).with_suffix(".glob").read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[0].startswith("R"):
                used.add((words[1], words[3]))
            elif words[0] in ("prf", "def"):
                defined.add((f"TitoNb.{file.removesuffix('.v')}", words[3]))
    main = {(f"TitoNb.{theorem.file.removesuffix('.v')}", theorem.name) for theorem in THEOREMS}
    asked = {("TitoNb.Trace", "run_rollout")}  # by the extracted program
    assert sorted(each for each in defined - used - main - asked if each[0] not in ("TitoNb.Example", "TitoNb.Vectors")) == []


@needs_coq
def test_fresh_vectors_for_the_kernel(built):
    seed = random.randrange(10**6)
    print("seed", seed)
    (built / "Fresh.v").write_text(vectors.as_coq(vectors.cases(seed, 2)), encoding="utf-8")
    run = coqc(built, "Fresh.v")
    assert run.returncode == 0, (seed, run.stderr[-2000:])


@needs_coq
@needs_ocaml
def test_the_package_answers_as_the_extracted_program(program):
    seed = random.randrange(10**6)
    print("seed", seed)
    made = vectors.cases(seed, 300)
    wrong = vectors.differences(program, made)
    assert len(made) > 9000 and not wrong, (seed, wrong[0][0].request(), wrong[0][0].expected(), wrong[0][1])


# the tests of the tests

MUTANTS = {
    "the textbook encoder takes the greatest": (merging, "encode_textbook", "min(found)", "max(found)"),
    "the short encoder merges the last of the lowest": (merging, "encode_short", "gaps.index(rank)", "len(gaps) - 1 - gaps[::-1].index(rank)"),
    "the short encoder does not repair the gap before": (merging, "encode_short", "if i > 0:", "if i > 1:"),
    "the long encoder takes stale places": (merging, "_sweep", "j == end or (tokens[i], tokens[j]) != table.rules[rank]", "j == end"),
    "the long encoder forgets the pair before": (merging, "_sweep", "if before >= 0:", "if before > 0:"),
    "the linear checker looks at one side": (merging, "check_linear", "key(left[i]) < step or ", ""),
    "the linear checker looks at the other side": (merging, "check_linear", " or key(j) < step", ""),
    "the replaying checker stops early": (merging, "check_derivation", "optimal(table.rules, tokens) is None and ", ""),
    "the walk undoes the left tree first": (bpe, "_border_stays", "if left > right:", "if left >= right and left > 255:"),
    "the walk's limit is one too low": (bpe, "_border_stays", "right - 256 + 1", "right - 256"),
    "the inner pairs are the wrong ends": (bpe, "_edges", "inner.add((last[left], first[right]))", "inner.add((first[left], first[right]))"),
    "a cut is judged by the first token": (bpe, "splits_safely", "left[-1]", "left[0]"),
    "the escape does not escape itself": (renderer, "escape", "_RUN.sub", 're.compile(rb"<(\\\\?+)\\|").sub'),
    "the newline is doubled": (delta, "judge", "tail[len(rest) :]", "tail[len(rest) :] or chat_format.newline".replace("chat_format", "history.chat_format")),
    "a torn delimiter is closed": (delta, "judge", "if rest not in", "if rest != tail[: len(rest)] and rest not in"),
    "what was sampled stays sampled": (delta, "moved", '"replayed" if span.kind == "sampled" else span.kind', "span.kind"),
    "ids after the end are taken": (delta, "follow", "bytes(data[stop:]) + piece != chat_format.newline", "False"),
    "a restart files nothing": (delta, "restart", '("sampled", "replayed")', '("replayed",)'),
    "a discarded turn leaves its prompt": (delta, "discard_turn", "del buffer.ids[turn.start :], buffer.spans[turn.first :]",
                                          "del buffer.ids[buffer.spans[turn.first].end :], buffer.spans[turn.first + 1 :]"),
}


def mutate(monkeypatch, module, name: str, old: str, new: str) -> None:
    "Put a changed function into its module, and into the modules that import it"
    original = getattr(module, name)
    source = inspect.getsource(original)
    assert source.count(old) == 1, (name, old)
    namespace = dict(vars(module))
    exec(compile(source.replace(old, new), name, "exec"), namespace)
    changed = type(original)(namespace[name].__code__, vars(module), name, original.__defaults__, original.__closure__)
    for place in (merging, bpe, renderer, delta):
        if vars(place).get(name) is original:
            monkeypatch.setattr(place, name, changed)


@needs_coq
@needs_ocaml
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_package_differs(monkeypatch, program, mutant):
    mutate(monkeypatch, *MUTANTS[mutant])
    assert vectors.differences(program, vectors.cases(5, 90))


@needs_coq
@pytest.mark.parametrize("mutant", ["the long encoder forgets the pair before", "the escape does not escape itself", "the newline is doubled"])
def test_the_kernel_sees_a_broken_package(monkeypatch, built, mutant):
    with monkeypatch.context() as patch:
        mutate(patch, *MUTANTS[mutant])
        broken = vectors.cases(5, 90)
    right = {case.request(): case for case in vectors.cases(5, 90)}
    other = next(case for case in broken if case.request() in right and case.expected() != right[case.request()].expected())
    (built / "Broken.v").write_text(vectors.as_coq([other]), encoding="utf-8")
    run = coqc(built, "Broken.v")
    assert run.returncode != 0 and "Unable to unify" in run.stderr
