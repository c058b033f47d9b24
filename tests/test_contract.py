"The contract: its list against the proofs and the papers, its checks on what is broken on purpose."
import re, shutil, subprocess
from types import SimpleNamespace

import pytest
from notebooks import ROOT, read
from tables import QWEN_TOY, Plain

from tito_nb import contract
from tito_nb.bpe import BpeTokenizer
from tito_nb.contract import PROPERTIES, STATUSES, check, markdown_table, smaller, texts
from tito_nb.merge_tree import MergeTable
from tito_nb.renderer import QWEN3, ChatFormat
from tito_nb.rollouts import load_rollouts

PROOFS = ROOT / "proofs"
EXECUTABLE = {*contract.TABLE_CHECKS, *contract.TOKENIZER_CHECKS, *contract.FORMAT_CHECKS, *contract.DELTA_CHECKS}


# the list

def test_each_property_is_whole():
    assert [each.name for each in PROPERTIES.values()] == list(PROPERTIES) and len(PROPERTIES) == 36
    for each in PROPERTIES.values():
        assert each.statement and each.python and each.status in STATUSES
        assert bool(each.theorems) == (each.status == "PROVED"), each.name
    assert {name for name, each in PROPERTIES.items() if each.status == "PROVED"} == EXECUTABLE - {"R7", "D8"}  # these two are not in the model


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "nbs" / "index.ipynb"], ids=lambda path: path.name)
def test_the_table_is_that_of_the_papers(path):
    text = path.read_text(encoding="utf-8") if path.suffix == ".md" else "\n".join("".join(cell["source"]) for cell in read(path)["cells"])
    assert markdown_table() in text + "\n"


def theorems() -> dict[str, tuple[str, str]]:
    "Theorem -> (property, file), as the proofs list them"
    rows = [line.split("\t") for line in (PROOFS / "THEOREMS.tsv").read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {row[1]: (row[0], row[2]) for row in rows if row[1] != "theorem"}


def test_what_is_proved_has_its_theorems():
    listed = theorems()
    for each in PROPERTIES.values():
        for theorem in each.theorems:
            assert theorem in listed, (each.name, theorem)
            assert re.search(rf"^(Theorem|Corollary|Lemma) {theorem}\b", (PROOFS / listed[theorem][1]).read_text(encoding="utf-8"), re.MULTILINE), theorem


@pytest.mark.skipif(shutil.which("coqtop") is None, reason="Coq is not installed")
def test_the_proof_of_the_lesson_is_what_coq_prints():
    [cell] = [cell for cell in read(ROOT / "nbs" / "08_contract.ipynb")["cells"] if cell["id"] == "contract-proof-steps"]
    goals = [block.strip("\n") for block in re.findall(r"```\n(.*?)```", "".join(cell["source"]), re.DOTALL)]
    said = subprocess.run(["coqtop", "-q"], input=(PROOFS / "Example.v").read_text(encoding="utf-8"), capture_output=True, text=True, timeout=60).stdout
    said, at = "\n".join(line.strip() for line in said.splitlines()), 0
    assert len(goals) == 7
    for goal in goals:
        at = said.index(goal, at) + len(goal)
    assert "Error" not in said


# the checks hold where they should

def test_all_holds_for_the_library():
    seen = []
    report = check(progress=seen.append)
    assert report.ok and list(report.lines) == seen and {line.name for line in seen} == EXECUTABLE
    assert all(line.holds and line.cases > 300 and not line.counterexample for line in seen)
    assert repr(report).startswith("tito_nb: all hold\nB1 ") and "✗" not in report._repr_html_()


@pytest.mark.parametrize("tokenizer", [load_rollouts().tokenizer, BpeTokenizer(MergeTable([(104, 105)])), Plain()], ids=["ids", "bytes", "plain"])
def test_all_holds_for_a_tokenizer_that_gives_back_what_it_encoded(tokenizer):
    report = check(tokenizer=tokenizer)
    bytes_mode = {"R7"} if not tokenizer.control else set()
    assert report.ok and {line.name for line in report.lines if line.holds is None} == {"B1", "B2", "B3", "B8", "B9", "B10", "B11"} | bytes_mode


def test_a_format_that_exists_as_ids_only():
    report = check(tokenizer=QWEN_TOY, chat_format=QWEN3)
    assert report.ok and {line.name for line in report.lines if line.holds} == {"B4", "B5", "B6", "B7", "R7", "D1", "D2", "D3", "D4", "D5", "D6", "D7", "D8", "D9"}


def test_another_format():
    own = ChatFormat("own", b"<|open|>", b"<|close|>", ("assistant", "user"))
    report = check(chat_format=own)
    assert report.ok and "own" in report.about and {line.name for line in report.lines if line.holds} >= {"R1", "R6", "D1", "D7"}


# and fail where they should

class Stripping(Plain):
    def encode(self, data):
        return super().encode(data.strip())


class Leaking(Plain):
    "Content that spells a control token becomes one"
    control = {b"<|im_start|>": 256, b"<|im_end|>": 257}

    def encode(self, data):
        text, ids = data.encode() if isinstance(data, str) else data, []
        while text:
            token = next((t for t in self.control if text.startswith(t)), text[:1])
            ids.append(self.control.get(token, token[0]))
            text = text[len(token) :]
        return ids

    def decode(self, tokens):
        spelled = {i: bytes([i]) for i in range(256)} | {token: text for text, token in self.control.items()}
        return b"".join(spelled[token] for token in tokens)


class Lying(BpeTokenizer):
    def is_canonical(self, tokens):
        return True


class Forgetful(Plain):
    "Decodes whole sequences otherwise than their tokens"

    def decode(self, tokens):
        return bytes(tokens).replace(b" .", b".") if len(list(tokens)) > 1 else bytes(tokens)


BROKEN = {
    "stripping": (Stripping(), {"B4", "D1", "D2", "D3", "D4", "D5", "D6", "D7", "D8"}, "B4", r"b'\t': does not hold"),
    "leaking": (Leaking(), {"R7", "D1", "D2", "D3", "D4", "D5", "D6", "D7", "D8", "D9"}, "D9", "b'': does not hold"),
    "lying": (Lying(MergeTable([(104, 105), (10, 10)])), {"B7"}, "B7", r"b'\n\n': does not hold"),
    "forgetful": (Forgetful(), None, "B6", "b' .': does not hold"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tokenizer_fails_with_the_smallest_text(name):
    tokenizer, fails, least, counterexample = BROKEN[name]
    if name == "forgetful":
        line = contract._on_texts("B6", contract.TOKENIZER_CHECKS["B6"], contract.Subject(tokenizer, contract.CHATML), [b"ab .cd . e"])
    else:
        report = check(tokenizer=tokenizer)
        assert {line.name for line in report.lines if line.holds is False} == fails and not report.ok and "NOT all hold" in repr(report)
        [line] = [line for line in report.lines if line.name == least]
    assert line.counterexample == counterexample


FAULTS = {  # a function of the library broken under the checks -> the properties that must fail
    "encode_long": (lambda table, data: [*data], {"B2"}),
    "is_canonical": (lambda table, tokens: True, {"B7"}),
    "splits_safely": (lambda table, a, b: True, {"B8"}),
    "inner_pairs": (lambda table: frozenset(), {"B9"}),
    "check_linear": (lambda table, made: True, {"B11"}),
    "check_derivation": (lambda table, made: False, {"B11"}),
    "escape": (lambda data: data, {"R4"}),
    "unescape": (lambda data: data, {"R4"}),
    "bpe_spec": (lambda rules, data, tokens: False, {"B2"}),
    "ranked_bpe": (lambda rules, data: [], {"B3"}),
    "derivation": (lambda rules, data: [()], {"B1"}),
    "parse": (lambda data, *, chat_format: [], {"R1", "R3"}),
    "render_message": (lambda message, chat_format: b"", {"R2", "R6"}),
    "parse_ids": (lambda tokenizer, ids, chat_format: [], {"R7"}),
    "replay": (lambda log: contract.DeltaTokenizer(QWEN_TOY), {"D8"}),
    "verify": (lambda log, tokens, head: SimpleNamespace(ok=True), {"D8"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_function_is_seen(name, monkeypatch):
    broken, fails = FAULTS[name]
    monkeypatch.setattr(contract, name, broken)
    names = fails | {"B4", "R5"}
    found = {each: check(each).lines[0] for each in names}
    assert {each for each, line in found.items() if line.holds is False} >= fails, found
    assert all(found[each].counterexample for each in fails) and found["B4"].holds


def test_slices_and_tokens_are_looked_at(monkeypatch):
    monkeypatch.setattr(contract, "is_canonical", lambda table, tokens: len(tokens) != 1)
    assert check("B10").lines[0].holds is False
    monkeypatch.setattr(contract, "encode", lambda table, data: [*data])
    assert {name: check(name).lines[0].holds for name in ("B2", "B3", "B5", "B6")} == {"B2": False, "B3": False, "B5": True, "B6": True}


class Loose(contract.DeltaTokenizer):
    "A buffer with the loss on everything"
    loss_mask = property(lambda self: bytearray(b"\1" * len(self)))


def test_a_broken_buffer_is_seen(monkeypatch):
    monkeypatch.setattr(contract, "DeltaTokenizer", Loose)
    assert {name for name in contract.DELTA_CHECKS if check(name).lines[0].holds is False} == {"D2", "D5", "D6"}

    class Encoding(contract.DeltaTokenizer.__mro__[1]):
        "A buffer that encodes the whole history again at each append"
        def append(self, *messages):
            super().append(*messages)
            self._buffer.ids[: len(self._buffer.ids)] = self._buffer.ids[::-1]

    monkeypatch.setattr(contract, "DeltaTokenizer", Encoding)
    assert {"D1", "D4", "D6", "D7"} <= {name for name in contract.DELTA_CHECKS if check(name).lines[0].holds is False}


# the parts

def test_texts_are_the_same_each_time_and_more_with_effort():
    few, more = list(texts(0)), list(texts(1))
    assert few == list(texts(0)) and len(few) < len(more) and few[0] == b"" and few[1:257] == [bytes([b]) for b in range(256)]
    assert set(contract.ODD) <= set(few) and any(len(text) > 15 for text in few)


@pytest.mark.parametrize(("data", "least"), [(b"xxaxxbxx", b"ab"), (b"ab", b"ab"), (b"aabb", b"ab"), (b"a" * 50 + b"b" * 50, b"ab")])
def test_smaller(data, least):
    assert smaller(data, lambda part: b"a" in part and b"b" in part and part.index(b"a") < part.rindex(b"b")) == least


@pytest.mark.parametrize("bad", [dict(name="B99"), dict(name="drift"), dict(effort=-1), dict(effort=4), dict(effort=True), dict(effort="1")])
def test_what_is_not_there(bad):
    with pytest.raises(ValueError, match="no check of the name|effort: an integer"):
        check(**bad)


def test_what_is_no_tokenizer():
    for bad in (5, Plain, "tokenizer"):
        with pytest.raises(TypeError, match="a tokenizer with encode, decode and control needed"):
            check(tokenizer=bad)
    with pytest.raises(TypeError, match="a ChatFormat needed"):
        check(chat_format="ChatML")


def test_more_effort_is_a_larger_universe():
    assert check("B4", effort=1).lines[0].cases == 30_555


def test_a_report_escapes_what_it_shows():
    line = contract.Line("B4", False, 1, "<script>&")
    html = contract.Report("<b>", (line,))._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;&amp;" in html and "&lt;b&gt;" in html
