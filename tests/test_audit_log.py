"The audit log: every change is found given the head, what is damaged is refused, and operations add up to the state they were logged from."
import ast, json, math, os, random
from array import array
from pathlib import Path

import pytest
from delta_machine import freeze
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import QWEN_TOY, Plain, attempt_error

import tito_nb.audit_log as audit_log
from tito_nb.audit_log import AuditLog, DamagedLog, InvalidEntry, read_log, replay, spelled, verify
from tito_nb.delta import DeltaTokenizer, InsideGroup, WrongOrder
from tito_nb.ids_mode import turn_ids
from tito_nb.merge_tree import UnknownToken
from tito_nb.renderer import CHATML, QWEN3, Message

CONTROL = QWEN_TOY.control
END, EOS, THINK = (CONTROL[text] for text in (b"<|im_end|>", b"<|endoftext|>", b"<think>"))


def short() -> AuditLog:
    log = AuditLog()
    log.add("append", spans=[["rendered", [1, 2], 0, None, None]], closed=[0])
    log.add("open", spans=[["prompt", [9], 1, None, None]])
    log.add("sample", spans=[["sampled", [4], 1, [-0.5], 0]])
    log.add("close", spans=[], reason="stop")
    return log


def data(log: AuditLog) -> bytes:
    return log.data


# ----------------------------------------------------------- every change is found

def test_every_change_of_a_byte_is_found():
    "D8, EXHAUSTIVE: each byte of a short log by each other byte, its head known; and all but those of the last line without it"
    log = short()
    whole, head, unseen = data(log), log.head, 0
    last = len(whole) - len(log._lines[-1])
    assert read_log(whole, head).head == head
    for at in range(len(whole)):
        for other in range(256):
            if other == whole[at]:
                continue
            changed = whole[:at] + bytes([other]) + whole[at + 1 :]
            try:
                read_log(changed, head)
            except DamagedLog as error:
                assert 0 <= error.line <= len(log)
            else:
                raise AssertionError((at, other))
            if at >= last:
                try:
                    unseen += len(read_log(changed)) > 0
                except DamagedLog:
                    pass
    assert unseen > 0  # the last line can only be told by the head


def test_every_cut_and_every_other_order_is_found():
    "A file that ends early, and lines left out, doubled or exchanged"
    log = short()
    whole, lines = data(log), log._lines
    changed = [whole[:n] for n in range(len(whole))] + [whole + line for line in lines]
    for i in range(len(lines)):
        changed += [b"".join(lines[:i] + lines[i + 1 :]), b"".join(lines[:i] + lines[i : i + 1] * 2 + lines[i + 1 :])]
        changed += [b"".join([*lines[:i], lines[j], *lines[i + 1 : j], lines[i], *lines[j + 1 :]]) for j in range(i + 1, len(lines))]
    for one in changed:
        attempt_error(DamagedLog, lambda: read_log(one, log.head))
    shorter = b"".join(lines[:-1])
    assert len(read_log(shorter)) == len(log) - 1 and "the head is" in str(attempt_error(DamagedLog, lambda: read_log(shorter, log.head)))


@given(st.integers(0, 2**32), st.data())
@settings(max_examples=60)
def test_a_change_of_a_rollouts_log_is_found(seed, drawn):
    log = played(seed)[0].log
    whole = data(log)
    at = drawn.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + drawn.draw(st.binary(max_size=3)) + whole[at + drawn.draw(st.integers(0, 3)) :]
    if changed != whole:
        attempt_error(DamagedLog, lambda: read_log(changed, log.head))


@pytest.mark.parametrize("text", [
    b"", b"\n", b"{}\n", b"[]\n", b"\xff\n", b'{"about":null,"format":"tito_nb audit log","version":2}\n', b'{"about":null,"format":"tito_nb","version":1}\n',
    b'{"about":null,"format":"tito_nb audit log","version":1}', b'{"about":null,"format":"tito_nb audit log","more":1,"version":1}\n', b"[" * 100_000 + b"\n",
    b'{"format":"tito_nb audit log","about":null,"version":1}\n', b'{"about":null,"format":"tito_nb audit log","version":1.0}\n',
])
def test_what_is_no_log(text):
    assert attempt_error(DamagedLog, lambda: read_log(text)).line == 0


# --------------------------------------------------- operations add up to the state

def played(seed: int, chat_format=QWEN3, tokenizer=QWEN_TOY) -> tuple[DeltaTokenizer, list[str]]:
    "A rollout of random operations with a log, and what was done"
    rng, words = random.Random(seed), [b"a", b"user\n", b"\n\n", b"<|im_end|>", "é".encode(), b"\xff"]
    tags = chat_format is QWEN3
    message = lambda: Message(rng.choice(["user", "tool", "system"]), b"".join(rng.choices(words, k=rng.randint(0, 3))))
    if rng.random() < 0.3:
        ids = [token for turn, _ in turn_ids(tokenizer, [Message("user", "x"), Message("tool", "1"), Message("tool", "2")], chat_format) for token in turn]
        delta = DeltaTokenizer.from_tokens(tokenizer, ids, chat_format, AuditLog("adopted"))
    else:
        delta = DeltaTokenizer(tokenizer, chat_format, AuditLog())
    done = []
    for _ in range(rng.randint(1, 14)):
        before = delta.log.head
        try:
            if delta._buffer.turn is None:
                done.append(rng.choice(["append", "append", "open", "open", "insert", "remove", "restart", "fork"]))
                if done[-1] == "append":
                    delta.append(*[message() for _ in range(rng.randint(0, 3))])
                elif done[-1] == "open":
                    delta.open_turn()
                elif done[-1] == "insert":
                    delta = delta.insert(rng.randint(0, len(delta.messages)), message())
                elif done[-1] == "remove":
                    delta = delta.remove(rng.randint(0, len(delta.messages)))
                elif done[-1] == "restart":
                    delta.restart([message() for _ in range(rng.randint(0, 2))])
                else:
                    delta = delta.fork()
            else:
                done.append(rng.choice(["sample", "sample", "sample", "close", "discard"]))
                if done[-1] == "sample":
                    plain = [token for _ in range(rng.randint(0, 3)) for token in tokenizer.encode(rng.choice([b"a", b"user\n", b"\n"]))]
                    stops = rng.choice([[], [], [END], [EOS], [THINK]]) if tags else rng.choice([[], [tokenizer.control[b"<|im_end|>"]] if tokenizer.control else tokenizer.encode(b"<|im_end|>")])
                    ids = plain + stops
                    logprobs = rng.choice([None, [rng.choice([-0.0, -rng.random()]) for _ in ids]])
                    delta.sample(ids, logprobs, version=rng.choice([None, 0, 3]), after_stop=rng.choice(["refuse", "keep"]))
                elif done[-1] == "close":
                    delta.close_turn(rng.choice([None, "stop", "length"]), thinking=rng.choice(["keep", "close"]) if tags else "keep")
                else:
                    delta.discard_turn()
        except (ValueError, IndexError):
            assert delta.log.head == before, "a refused call was logged"
            done[-1] += " refused"
    return delta, done


@pytest.mark.parametrize("chat_format, tokenizer", [(QWEN3, QWEN_TOY), (CHATML, QWEN_TOY), (CHATML, Plain())], ids=["qwen3", "chatml", "bytes"])
def test_operations_add_up_to_the_state(chat_format, tokenizer, tmp_path):
    "D8: saved, loaded and replayed, ids, spans, log-probabilities, messages, turn and examples are equal, and so is what happens next"
    ran: set[str] = set()
    for seed in range(250):
        delta, done = played(seed, chat_format, tokenizer)
        ran |= set(done)
        delta.save(tmp_path / "log")
        again = DeltaTokenizer.load(tmp_path / "log", tokenizer, chat_format, delta.log.head)
        assert freeze(again._buffer) == freeze(delta._buffer), (seed, done)
        assert freeze(again.training_examples()) == freeze(delta.training_examples()) and again.log.head == delta.log.head
        assert verify(delta.log, delta.tokens, delta.log.head).ok and verify(tmp_path / "log", delta.tokens).ok and delta.audit().ok
        for one in (again, delta):
            if one._buffer.turn is None:
                one.append(Message("user", "and?"))
                one.open_turn()
            one.sample([97], after_stop="keep")
        assert freeze(again._buffer) == freeze(delta._buffer) and again.log.head == delta.log.head
    assert ran >= {"append", "open", "insert", "remove", "restart", "fork", "sample", "close", "discard", "sample refused"}


def test_branches_have_logs_of_their_own():
    delta = DeltaTokenizer(QWEN_TOY, QWEN3, AuditLog())
    delta.append(Message("user", "x"))
    head, branch, other = delta.log.head, delta.insert(0, Message("system", "y")), delta.fork()
    other.append(Message("user", "z"))
    assert delta.log.head == head and len({head, branch.log.head, other.log.head}) == 3
    assert replay(branch.log).ids == branch.tokens and replay(other.log).ids == other.tokens
    assert attempt_error(InsideGroup, lambda: DeltaTokenizer.from_tokens(QWEN_TOY, [t for i, _ in turn_ids(QWEN_TOY, [Message("tool", "1"), Message("tool", "2")], QWEN3) for t in i], QWEN3).remove(1))


def test_without_a_log_nothing_can_be_saved(tmp_path):
    attempt_error(WrongOrder, lambda: DeltaTokenizer(QWEN_TOY).save(tmp_path / "log"))
    assert not list(tmp_path.iterdir())


def test_a_history_begins_with_an_empty_log():
    attempt_error(WrongOrder, lambda: DeltaTokenizer(QWEN_TOY, log=short()))
    for bad in ("log", [], True):
        attempt_error(TypeError, lambda: DeltaTokenizer(QWEN_TOY, log=bad))
    assert "not 5" in str(attempt_error(DamagedLog, lambda: read_log(data(short()), 5)))


def test_another_tokenizers_log_is_refused(tmp_path):
    delta = DeltaTokenizer(QWEN_TOY, QWEN3, AuditLog())
    delta.append(Message("user", "x"))
    delta.save(tmp_path / "log")
    attempt_error(UnknownToken, lambda: DeltaTokenizer.load(tmp_path / "log", type(QWEN_TOY)(QWEN_TOY.table, control={b"<|im_start|>": 300, b"<|im_end|>": 301})))
    swapped = {**CONTROL, b"<|im_start|>": CONTROL[b"<|fim|>"], b"<|fim|>": CONTROL[b"<|im_start|>"]}
    error = attempt_error(DamagedLog, lambda: DeltaTokenizer.load(tmp_path / "log", type(QWEN_TOY)(QWEN_TOY.table, control=swapped), QWEN3))
    assert "not of this tokenizer and format" in str(error)


def test_the_audit_compares_with_the_log():
    for spoil in (lambda b: b.ids.__setitem__(0, CONTROL[b"<|im_end|>"]), lambda b: b.reasons.__setitem__(0, "stop"), lambda b: b.logprobs.__setitem__(b.spans[2].start, array("d", [-9.0]))):
        delta = DeltaTokenizer(QWEN_TOY, QWEN3, AuditLog())
        delta.append(Message("user", "x"))
        delta.open_turn()
        delta.sample([97], [-1.0])
        delta.close_turn("length")
        assert delta.audit().ok
        spoil(delta._buffer)
        report = delta.audit()
        assert not report.ok and report.facts[audit_fact()] is False


def audit_fact() -> str:
    from tito_nb.delta import log_agrees
    return log_agrees.__doc__


# ------------------------------------------------------------------ rules of order

R, P, S, C, X = (lambda ids, message, logprobs=None, version=None, kind=kind: [kind, ids, message, logprobs, version] for kind in ("rendered", "prompt", "sampled", "closed", "context"))
ONE = ("append", {"spans": [R([1], 0)], "closed": [0]})
OPEN = ("open", {"spans": [P([9], 1)]})
SAID = ("sample", {"spans": [S([4, 5], 1, [-1, -2], 0)]})
SHUT = ("close", {"spans": [C([6], 1)], "reason": "stop"})


def built(*operations) -> AuditLog:
    log = AuditLog()
    for op, fields in operations:
        log.add(op, **fields)
    return log


@pytest.mark.parametrize("operations", [
    [("open", {"spans": [P([9], 1)]})], [ONE, OPEN, ONE], [ONE, OPEN, OPEN], [SAID], [ONE, SAID], [ONE, SHUT], [("discard", {})], [ONE, ("discard", {})],
    [("append", {"spans": [R([1], 1)], "closed": [0]})], [("append", {"spans": [R([1], 0)], "closed": [1]})], [("append", {"spans": [R([1], 0)], "closed": []})],
    [("append", {"spans": [], "closed": [0]})], [("append", {"spans": [R([1], 0)], "closed": [None, 0]})], [("append", {"spans": [S([1], 0)], "closed": [0]})],
    [("append", {"spans": [R([], 0)], "closed": [0]})], [("append", {"spans": [R([-1], 0)], "closed": [0]})], [("append", {"spans": [R([2**32], 0)], "closed": [0]})],
    [("append", {"spans": [R([True], 0)], "closed": [0]})], [("append", {"spans": [R([1], 0, [-1])], "closed": [0]})], [("append", {"spans": [R([1], 0, None, 1)], "closed": [0]})],
    [("append", {"spans": [R([1], False)], "closed": [0]})], [("append", {"spans": "x", "closed": [0]})], [("append", {"spans": [["rendered", [1], 0]], "closed": [0]})], [("append", {"spans": []})],
    [("append", {"spans": [], "closed": [], "more": 1})], [ONE, ONE], [ONE, ("adopt", {"spans": [X([1], None)], "closed": [0]})], [("adopt", {"spans": [X([1], 0)], "closed": [0]})],
    [("adopt", {"spans": [X([1], None)], "closed": [0, 0]})], [("adopt", {"spans": [X([1], None)], "closed": [2]})], [("adopt", {"spans": [X([1], None)] * 2, "closed": [0]})],
    [ONE, ("open", {"spans": []})], [ONE, ("open", {"spans": [P([9], 0)]})], [ONE, OPEN, ("sample", {"spans": [S([4], 0)]})], [ONE, OPEN, ("sample", {"spans": [S([4], None), S([4], 1)]})],
    [ONE, OPEN, ("sample", {"spans": [S([4], 1, [-1, -1])]})], [ONE, OPEN, ("sample", {"spans": [S([4], 1, [0.5])]})], [ONE, OPEN, ("sample", {"spans": [S([4], 1, ["-1"])]})],
    [ONE, OPEN, ("sample", {"spans": [S([4], 1, [True])]})], [ONE, OPEN, ("sample", {"spans": [S([4], 1, None, -1)]})], [ONE, OPEN, ("sample", {"spans": [S([4], 1, None, True)]})],
    [ONE, OPEN, SAID, ("close", {"spans": [C([6], 0)], "reason": None})], [ONE, OPEN, SAID, ("close", {"spans": [C([6], 1)] * 2, "reason": None})], [ONE, OPEN, SAID, ("close", {"spans": [], "reason": 1})],
    [ONE, OPEN, ("insert", {"index": 0, "place": 0, "spans": [R([2], 0)]})], [ONE, ("insert", {"index": 2, "place": 1, "spans": [R([2], 2)]})], [ONE, ("insert", {"index": 1, "place": 0, "spans": [R([2], 1)]})],
    [ONE, ("insert", {"index": 0, "place": 0, "spans": [R([2], 1)]})], [ONE, ("insert", {"index": 0, "place": 0, "spans": []})], [ONE, ("insert", {"index": True, "place": 1, "spans": [R([2], 1)]})],
    [ONE, OPEN, ("remove", {"index": 0, "start": 0, "stop": 1})], [ONE, ("remove", {"index": 1, "start": 1, "stop": 1})], [ONE, ("remove", {"index": 0, "start": 0, "stop": 2})],
    [ONE, OPEN, ("restart", {"spans": [], "closed": []})], [ONE, ("restart", {"spans": [R([1], 0)], "closed": [0]})],
])
def test_operations_out_of_order(operations):
    error = attempt_error(DamagedLog, lambda: replay(built(*operations)))
    assert error.line == len(operations) and not verify(built(*operations), []).ok
    assert len(operations) == 1 or replay(built(*operations[:-1]))  # the last one is to blame


def test_a_group_is_one_span():
    state = replay(built(("append", {"spans": [R([1, 2], 0), R([3], 2)], "closed": [0, None, 2]})))
    assert state.borders == [0, None, 2] and [span.message for span in state.spans] == [0, 2]
    attempt_error(DamagedLog, lambda: replay(built(("append", {"spans": [R([1, 2], 0)], "closed": [0, None]}), ("remove", {"index": 0, "start": 0, "stop": 2}))))


# ------------------------------------------------------------------------- entries

@pytest.mark.parametrize("op, fields", [
    ("nothing", {}), ("append", {"before": "x"}), ("append", {"spans": {1, 2}}), ("append", {"spans": math.nan}), ("append", {"spans": math.inf}), ("append", {"spans": b"x"}), (None, {}), ([], {}),
])
def test_what_is_no_entry(op, fields):
    log = short()
    before = data(log)
    try:
        log.add(op, **fields)
    except (InvalidEntry, TypeError):
        pass
    else:
        raise AssertionError("accepted")
    assert data(log) == before
    attempt_error(InvalidEntry, lambda: AuditLog(7))
    attempt_error(InvalidEntry, lambda: spelled({"x": array("I", [1])}))


def test_verification_says_what_it_looked_at():
    log = short()
    found = verify(log, [1, 2, 9, 4])
    assert found.ok and found.facts["the head is the known one"] is None and found.first_broken is None
    assert verify(log, [1, 2, 9, 4], log.head).facts["the head is the known one"] is True
    assert verify(log, [1, 2, 9, 5]).first_broken == "they give the tokens" and verify(log, [1, 2, 9, 4], "0" * 64).first_broken == "the head is the known one"
    spoiled = log.branch()
    spoiled._lines[2] = spoiled._lines[2].replace(b"9", b"8")
    assert verify(spoiled, [1, 2, 8, 4]).facts["the chain is whole"] is False and "line 2" in verify(spoiled, [1, 2, 8, 4]).first_broken
    assert data(log) != data(spoiled) and log.entries[1]["spans"][0][1] == [9] and len(log) == 4 and "4 entries" in repr(log)


# -------------------------------------------------------------------------- saving

@pytest.mark.parametrize("step", ["write", "os.fsync", "os.replace"])
def test_a_failed_save_leaves_the_old_file(step, tmp_path, monkeypatch):
    path, log = tmp_path / "log", short()
    log.save(path)
    before, longer = path.read_bytes(), log.branch()
    longer.add("open", spans=[P([9], 2)])

    def full(*_):
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        if step == "write":
            real = os.fdopen
            patched.setattr(os, "fdopen", lambda handle, mode: Full(real(handle, mode)))
        else:
            patched.setattr(os, step.removeprefix("os."), full)
        attempt_error(OSError, lambda: longer.save(path))
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["log"]
    longer.save(path)
    assert AuditLog.load(path, longer.head).head == longer.head
    attempt_error(OSError, lambda: log.save(tmp_path / "no folder" / "log"))


class Full:
    "A file on a full disk"

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, _):
        self.file.write(b"half")
        raise OSError("no space left on device")


def test_a_damaged_file_is_left_as_it_is(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(data(short())[:-5])
    attempt_error(DamagedLog, lambda: AuditLog.load(path))
    attempt_error(DamagedLog, lambda: DeltaTokenizer.load(path, QWEN_TOY))
    assert path.read_bytes() == data(short())[:-5] and not verify(path, []).ok
    attempt_error(FileNotFoundError, lambda: AuditLog.load(tmp_path / "none"))


def test_the_verifier_stands_alone():
    "It imports the standard library and nothing of the package"
    tree = ast.parse(Path(audit_log.__file__).read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not any("tito_nb" in name for name in names) and all(node.level == 0 and "tito_nb" not in (node.module or "") for node in froms)


def test_lines_are_json_that_anyone_can_read():
    for line in short()._lines:
        assert spelled(json.loads(line)) == line
