"A second delta tokenizer, written from what is said about the first, and a machine that compares the two after each step."
import math, random, re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tables import random_table

from tito_nb.bpe import BpeTokenizer
from tito_nb.delta import BadSample, DeltaTokenizer, ForgedTurn, InsideGroup, InsideToken, TokenParseError, WrongOrder
from tito_nb.merge_tree import UnknownToken
from tito_nb.renderer import CHATML, QWEN3, InvalidMessage, Message, ParseError, parse
from tito_nb.rollouts import load_rollouts
from tito_nb.training import train

START, END, NEWLINE = b"<|im_start|>", b"<|im_end|>", b"\n"
ROLES = ("system", "user", "assistant", "tool")
TYPED = (WrongOrder, BadSample, UnknownToken, ForgedTurn, InsideToken, InsideGroup, InvalidMessage, ParseError, TokenParseError, IndexError, TypeError)


# ------------------------------------------------------------- nothing changed

def freeze(value: Any) -> Any:
    "A value that compares equal exactly if nothing in `value` changed, machine floats bit for bit"
    if isinstance(value, array):
        return value.typecode, value.tobytes()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if is_dataclass(value):
        return type(value).__name__, *((f.name, freeze(getattr(value, f.name))) for f in fields(value))
    if isinstance(value, Mapping):
        return tuple((key, freeze(value[key])) for key in sorted(value, key=repr))
    if isinstance(value, (list, tuple)):
        return tuple(map(freeze, value))
    return value


def state(delta: DeltaTokenizer) -> Any:
    "All that a delta tokenizer holds: ids, spans, log-probabilities, borders, turn, notes, finished examples"
    return freeze({name: value for name, value in vars(delta).items() if name not in ("tokenizer", "chat_format", "_fixed")})  # `_fixed` is remembered, not held


def refused(delta: DeltaTokenizer, call, errors=TYPED) -> Exception:
    "The error of a call that has to fail with one of `errors` and to change nothing"
    before = state(delta)
    try:
        found = call()
    except errors as error:
        assert state(delta) == before, f"{type(error).__name__} left a change"
        return error
    raise AssertionError(f"not refused: {found!r}")


# ------------------------------------------------------------------- the model

def escaped(body: bytes) -> bytes:
    "Byte by byte: a backslash before each `|` that ends a run of `<` and backslashes"
    out, in_run = bytearray(), False
    for byte in body:
        if in_run and byte == ord("|"):
            out += b"\\"
        out.append(byte)
        in_run = byte == ord("<") or (in_run and byte == ord("\\"))
    return bytes(out)


def unescaped(body: bytes) -> bytes:
    "The same in the other direction"
    out, in_run = bytearray(), False
    for byte in body:
        if in_run and byte == ord("|"):
            del out[-1:]
        out.append(byte)
        in_run = byte == ord("<") or (in_run and byte == ord("\\"))
    return bytes(out)


BODY = rb"(?:(?!<\|)[\x00-\xff])*"
MESSAGE = re.compile(rb"<\|im_start\|>(system|user|assistant|tool)\n(" + BODY + rb")<\|im_end\|>\n")
TURN = re.compile(rb"(" + BODY + rb")((?:<\|im_end\|>\n?)?)")


@dataclass(frozen=True)
class Id:
    "One id and all that is known of it"
    token: int
    kind: str
    message: int | None
    logprob: float = math.nan
    version: int | None = None


@cache
def what_each_spells(tokenizer: BpeTokenizer) -> dict[int, bytes]:
    "Id -> its bytes"
    return {token: tokenizer.decode([token]) for token in [*range(tokenizer.table.size), *tokenizer.control.values()]}


class Model:
    "A list of ids with tags; every answer is worked out anew from the whole list"

    def __init__(self, tokenizer: BpeTokenizer):
        self.tokenizer, self.ids_mode = tokenizer, START in tokenizer.control
        self.ids: list[Id] = []
        self.messages: list[tuple[str, bytes]] = []
        self.starts: list[int | None] = []
        self.turn: int | None = None  # where the open turn begins
        self.finished: list[list[Id]] = []
        self.asked: list[int] | None = None  # the last prompt and what was sampled for it
        self.no_end: list[bool] = []  # of each message: did its turn stop, and no end of turn was sampled?

    def decode(self, ids) -> bytes:
        spelled = what_each_spells(self.tokenizer)
        return b"".join([spelled[token] for token in ids])

    def copy(self) -> "Model":
        other = type(self)(self.tokenizer)
        for name, value in vars(self).items():
            setattr(other, name, value[:] if isinstance(value, list) else value)
        return other

    # what things look like

    def spelled(self, role: str, content: bytes) -> bytes:
        "The bytes of a message in the buffer"
        return START + role.encode() + NEWLINE + (content if self.ids_mode else escaped(content)) + END + NEWLINE

    def written(self, role: str, content: bytes) -> list[int]:
        "The ids of an appended message"
        encode, control = self.tokenizer.encode, self.tokenizer.control
        if not self.ids_mode:
            return encode(self.spelled(role, content))
        return [control[START], *encode(role.encode() + NEWLINE + content), control[END], *encode(NEWLINE)]

    def header(self) -> list[int]:
        encode = self.tokenizer.encode
        return [self.tokenizer.control[START], *encode(b"assistant\n")] if self.ids_mode else encode(START + b"assistant\n")

    def tail(self, missing: bytes) -> list[int]:
        if self.ids_mode and missing.startswith(END):
            return [self.tokenizer.control[END], *self.tokenizer.encode(missing.removeprefix(END))]
        return self.tokenizer.encode(missing)

    # what happens

    def add(self, kind: str, ids, message: int | None, logprobs=None, version=None) -> None:
        self.ids += [Id(token, kind, message, p, version) for token, p in zip(ids, logprobs or [math.nan] * len(ids), strict=True)]

    def append(self, role: str, content: bytes, kind: str = "rendered") -> None:
        self.starts.append(len(self.ids))
        self.add(kind, self.written(role, content), len(self.messages))
        self.messages.append((role, content))
        self.no_end.append(False)

    def append_all(self, messages, kind: str = "rendered") -> None:
        for message in messages:
            self.append(*message, kind=kind)

    def joins(self, messages) -> bool:
        "Would the first of `messages` have to go into a turn that is there already?"
        return False

    def spelled_all(self, messages, starts=None) -> bytes:
        "The bytes of whole messages; `starts` says which of them begin a turn"
        return b"".join(self.spelled(*m) for m in messages)

    def controls(self) -> list[int]:
        "The control ids of the closed messages"
        return [self.tokenizer.control[START], self.tokenizer.control[END]] * len(self.messages)

    def open(self) -> None:
        self.turn = len(self.ids)
        self.add("prompt", self.header(), len(self.messages))

    def said(self) -> list[int]:
        "What was sampled in the open turn, without what was kept after its end"
        return [i.token for i in self.ids[self.turn :] if i.kind == "sampled" and i.message is not None]

    def kept(self) -> list[int]:
        return [i.token for i in self.ids[self.turn :] if i.kind == "sampled" and i.message is None]

    def after_end(self, ids: list[int]) -> bytes | None:
        "What follows the end of the turn, None if it has not ended"
        if self.ids_mode:
            end = self.tokenizer.control[END]
            return self.decode(ids[ids.index(end) + 1 :]) if end in ids else None
        _, end, after = self.decode(ids).partition(END)
        return after if end else None

    def how_many(self, new: list[int]) -> int:
        "How many of `new` can be part of the open turn"
        if self.kept():
            return 0
        for n in range(len(new)):
            before = self.said() + new[:n]
            if self.after_end(before) is not None and self.after_end(before + [new[n]]) not in (b"", NEWLINE):
                return n
        return len(new)

    def sample(self, new: list[int], logprobs, version=None) -> None:
        n, message = self.how_many(new), len(self.messages)
        self.add("sampled", new[:n], message, logprobs and logprobs[:n], version)
        self.add("sampled", new[n:], None, logprobs and logprobs[n:], version)

    def judged(self) -> tuple[bytes, bytes] | int:
        "Content and missing bytes of the open turn, or the offset of a forgery"
        said, decode = self.said(), self.decode
        if self.ids_mode:
            end = self.tokenizer.control[END]
            body = said[: said.index(end)] if end in said else said
            for n, token in enumerate(body):
                if token in self.tokenizer.control.values():
                    return len(decode(body[:n]))
            return decode(body), (END + NEWLINE)[len(decode(said[len(body) :])) :]
        found = TURN.fullmatch(decode(said))
        if found is None:
            return decode(said).index(b"<|")
        return unescaped(found[1]), (END + NEWLINE)[len(found[2]) :]

    def stopped(self) -> list[int]:
        "Where another stop token than the end delimiter ended a turn"
        return []

    def close(self, finish_reason: str | None) -> bytes:
        content, missing = self.judged()
        self.no_end.append(finish_reason == "stop" and self.after_end(self.said()) is None)
        self.asked = [i.token for i in self.ids]
        self.add("closed", self.tail(missing), len(self.messages))
        self.starts.append(self.turn)
        self.messages.append(("assistant", content))
        self.turn = None
        return content

    def discard(self) -> None:
        del self.ids[self.turn :]
        self.turn = None

    def edit(self, index: int, taken: int, put: list[tuple[str, bytes]]) -> "Model":
        "A branch with the messages `put` in place of `taken` messages from `index` on; `InsideToken`"
        edges = [*self.starts, len(self.ids)]
        start, stop = edges[index], edges[index + taken]
        if start is None or stop is None:
            raise InsideToken("inside a token")
        new, other = [i for m in put for i in self.written(*m)], self.copy()
        by, count = len(new) - (stop - start), len(put) - taken
        right = [
            Id(i.token, "replayed" if i.kind == "sampled" else i.kind, None if i.message is None else i.message + count, math.nan, i.version)
            for i in self.ids[stop:]
        ]
        other.ids = self.ids[:start] + [Id(token, "rendered", index) for token in new] + right
        other.messages[index : index + taken] = put
        other.starts[index:] = [start] * len(put) + [None if s is None else s + by for s in self.starts[index + taken :]]
        other.no_end[index : index + taken] = [False] * len(put)
        other.asked = None
        return other

    def restart(self, messages: list[tuple[str, bytes]]) -> None:
        if any(i.kind in ("sampled", "replayed") for i in self.ids):
            self.finished.append(self.ids)
        self.ids, self.messages, self.starts, self.no_end, self.asked = [], [], [], [], None
        self.append_all(messages, kind="context")

    def adopt(self, ids: list[int]) -> bool:
        "Take ids from elsewhere; False if they are no conversation"
        read = self.read_ids(ids) if self.ids_mode else self.read_bytes(ids)
        if read is None:
            return False
        self.add("context", ids, None)
        self.messages, self.starts = read
        self.no_end = [False] * len(self.messages)
        return True

    def adoptable(self, messages, cut) -> list[int]:
        "Ids of whole messages, their texts cut by `cut`"
        start, end = self.tokenizer.control[START], self.tokenizer.control[END]
        return [i for role, body in messages for i in (start, *cut(role.encode() + NEWLINE + body), end, *cut(NEWLINE))]

    def read_bytes(self, ids: list[int]):
        data, at, messages, offsets = self.decode(ids), 0, [], []
        while at < len(data):
            found = MESSAGE.match(data, at)
            if found is None:
                return None
            messages.append((found[1].decode(), unescaped(found[2])))
            offsets.append(at)
            at = found.end()
        edges = [*accumulate((len(self.decode([token])) for token in ids), initial=0)]
        return messages, [edges.index(offset) if offset in edges else None for offset in offsets]

    def read_ids(self, ids: list[int]):
        decode, start, end = self.decode, self.tokenizer.control[START], self.tokenizer.control[END]
        starts = [n for n, token in enumerate(ids) if token == start]
        if ids[:1] != [start] and ids:
            return None
        messages = []
        for n, stop in zip(starts, [*starts[1:], len(ids)]):
            inside = ids[n + 1 : stop]
            if [token for token in inside if token in self.tokenizer.control.values()] != [end]:
                return None
            body, after = inside[: inside.index(end)], inside[inside.index(end) + 1 :]
            found = re.fullmatch(rb"(system|user|assistant|tool)\n([\x00-\xff]*)", decode(body))
            if found is None or decode(after) != NEWLINE:
                return None
            messages.append((found[1].decode(), found[2]))
        return messages, starts


# --------------------------------------------------------------- the comparison

def same_numbers(found, wanted) -> bool:
    return len(found) == len(wanted) and all(f == w or (f != f and w != w) for f, w in zip(found, wanted))


def check_example(example, ids: list[Id]) -> None:
    "D2: tokens, mask, labels and log-probabilities of one training example"
    assert example.tokens.tolist() == [i.token for i in ids]
    assert list(example.loss_mask) == [i.kind == "sampled" for i in ids]
    assert list(example.labels) == [i.token if i.kind == "sampled" else -100 for i in ids]
    assert same_numbers(example.logprobs, [i.logprob if i.kind == "sampled" else math.nan for i in ids])
    assert list(example.score_mask) == [i.kind == "replayed" for i in ids]
    assert list(example.versions) == [-1 if i.kind != "sampled" or i.version is None else i.version for i in ids]


def check_spans(delta: DeltaTokenizer, model: Model) -> None:
    "D2: spans lie end to end, and say of each id what the model says"
    spans, edge = delta.spans, 0
    for span in spans:
        assert span.start == edge < span.end
        edge = span.end
        assert {(i.kind, i.message, i.version) for i in model.ids[span.start : span.end]} == {(span.kind, span.message, span.version)}
    assert edge == len(delta) == len(model.ids)
    end = len(delta) if model.turn is None else model.turn
    closed = [(s.kind, s.message, s.version) for s in spans if s.start < end]
    assert not any(one == other and one[0] == "sampled" for one, other in pairwise(closed)), "one span for what one version sampled in a turn"


def check(delta: DeltaTokenizer, model: Model) -> None:
    "Every property of a delta tokenizer, against the model"
    decode, ids = model.decode, [i.token for i in model.ids]
    assert delta.tokens.tolist() == ids and delta.data == decode(ids)
    check_spans(delta, model)
    examples = delta.training_examples()
    assert len(examples) == len(model.finished) + 1
    for example, wanted in zip(examples, [*model.finished, model.ids]):
        check_example(example, wanted)
    assert delta.loss_mask == examples[-1].loss_mask and delta.score_mask == examples[-1].score_mask
    assert delta.labels == examples[-1].labels and same_numbers(delta.logprobs, examples[-1].logprobs)
    end = len(ids) if model.turn is None else model.turn
    outside = [i.token for i in model.ids[:end] if i.message is None and i.kind in ("sampled", "replayed")]
    closed = [i.token for i in model.ids[:end] if not (i.message is None and i.kind in ("sampled", "replayed"))]
    assert delta.messages == [Message(*m) for m in model.messages]
    assert decode(closed) == model.spelled_all(model.messages, model.starts)  # D4
    if not model.ids_mode and model.turn is None and not outside:
        assert [(m.role, m.content) for m in parse(delta.data)] == model.messages
    if model.ids_mode:  # D9
        assert [token for token in closed if token in model.tokenizer.control.values()] == model.controls()
    assert list(delta._buffer.borders) == model.starts
    report = delta.audit()
    assert report.ok and report.first_broken is None and all(report.facts.values()), report
    check_notes(report.notes, model)


def check_notes(notes: tuple[str, ...], model: Model) -> None:
    "Each id that was kept after an end, and each message that stopped without one, is named; nothing else is"
    kept, messages, stopped = [], [], []
    for note in notes:
        if found := re.fullmatch(r"id (\d+) ended a turn and is not its end delimiter", note):
            stopped.append(int(found[1]))
        elif found := re.fullmatch(r"ids (\d+) to (\d+) were sampled after the end of a turn and kept", note):
            kept += range(int(found[1]), int(found[2]) + 1)
        else:
            found = re.fullmatch(r"message (\d+): the finish reason is 'stop', and no end-of-turn token was sampled", note)
            messages.append(int(found[1]))
    assert sorted(kept + stopped) == [n for n, i in enumerate(model.ids) if i.message is None and i.kind in ("sampled", "replayed")]
    assert stopped == model.stopped()
    assert messages == [n for n, no_end in enumerate(model.no_end) if no_end]


# ------------------------------------------------------------------ tokenizers

CONTROLS = (START, END, b"<think>")
TEXTS = ["list the files", 'calculator: {"a": "<b|c>"}', "a.txt b.txt <\\|", "done\n", "<think>2+2</think>"]


@cache
def spellings(tokenizer: BpeTokenizer) -> dict[bytes, list[int]]:
    "Bytes -> every id of the table that spells them"
    found: dict[bytes, list[int]] = {}
    for token, text in what_each_spells(tokenizer).items():
        if token < tokenizer.table.size:
            found.setdefault(text, []).append(token)
    return found


def segment(tokenizer: BpeTokenizer, data: bytes, rng: random.Random) -> list[int]:
    "Ids for `data` that no encoder needs to give"
    found, ids, at = spellings(tokenizer), [], 0
    while at < len(data):
        fits = [n for n in range(1, 24) if data[at : at + n] in found and at + n <= len(data)]
        n = rng.choice(fits[-rng.randint(1, 3) :])
        ids.append(rng.choice(found[data[at : at + n]]))
        at += n
    return ids


@cache
def trained(n: int):
    "A table whose tokens go across delimiters"
    lines = b"".join(START + role.encode() + NEWLINE + text.encode() + END + NEWLINE for role in ROLES for text in TEXTS)
    return train([lines], n)


@cache
def small_tokenizer(seed: int, ids_mode: bool) -> BpeTokenizer:
    "A trained or a random table, with the bytes' ids in some order; the delimiters are control tokens in ids mode alone"
    rng = random.Random(seed)
    table = trained(rng.choice([0, 30, 90])) if seed % 2 else random_table(rng, b"<|im_end>\n\\a", 40)
    byte_ids = rng.sample(range(256), 256) if rng.random() < 0.5 else None
    texts = CONTROLS if ids_mode else CONTROLS[2:]
    return BpeTokenizer(table, None, {text: table.size + rng.randrange(3) + 3 * i for i, text in enumerate(texts)}, byte_ids)


@cache
def recorded_tokenizer(ids_mode: bool) -> BpeTokenizer:
    "The tokenizer of the recorded rollouts, in bytes mode without its control tokens"
    tokenizer = load_rollouts().tokenizer
    return tokenizer if ids_mode else BpeTokenizer(tokenizer.table, tokenizer.pretokenize)


# ------------------------------------------------------------------ strategies

PIECES = [
    START, END, END + NEWLINE, b"<|", b"<\\|", b"<\\\\|", b"<", b"|", b"\\", b"\n", b"user\n", b"a", b"ls -la", b' {"a": 1}', b"<think>",
    b"\x80", b"\xff\xfe", "é😀".encode(), "😀".encode()[:3], b"im_end|>", b"<|im_e",
]
bodies = st.one_of(st.lists(st.sampled_from(PIECES), max_size=5).map(b"".join), st.binary(max_size=6))
messages = st.tuples(st.sampled_from(ROLES), bodies)
seeds = st.integers(0, 2**32)

def completion(rng: random.Random) -> list[tuple[str, bytes]]:
    "What a policy may say: text that is mostly plain, then mostly an end, then sometimes more"
    tame = [b"a", b"ls", b"done \n", b' {"a": 1}', b"<", b"<\\", b"\xff", "é😀".encode(), "😀".encode()[:3]]
    said = [("text", rng.choice(PIECES)) if rng.random() < 0.3 else ("plain", rng.choice(tame)) for _ in range(rng.choice([0, 1, 2, 3, 5]))]
    if rng.random() < 0.05:
        said.append((rng.choice(["start", "control"]), b""))
    if rng.random() < 0.3:
        return said
    said += [("spelled", END)] * (rng.random() < 0.1) + [("end", b"")] + [("plain", NEWLINE)] * (rng.random() < 0.4)
    more = [("plain", b"x"), ("plain", NEWLINE), ("end", b""), ("start", b""), ("control", b""), ("text", END)]
    return said + rng.choices(more, k=rng.choice([0, 0, 1, 2]))


def completion_ids(tokenizer: BpeTokenizer, atoms: list[tuple[str, bytes]], rng: random.Random) -> list[int]:
    "Ids of a completion; text next to text is cut as one"
    ids_mode, control, ids, data = START in tokenizer.control, tokenizer.control, [], b""

    def flush() -> list[int]:
        return tokenizer.encode(data) if rng.random() < 0.3 else segment(tokenizer, data, rng)

    for kind, text in atoms:
        delimiter = {"end": END, "start": START, "control": b"<think>"}.get(kind)
        if delimiter is None or delimiter not in control:
            escape = kind == "text" and not ids_mode and rng.random() < 0.8
            data += escaped(text) if escape else text if delimiter is None else delimiter
        else:
            ids, data = [*ids, *flush(), control[delimiter]], b""
    return ids + flush()


def cut_up(items: list, rng: random.Random) -> list[list]:
    "The same in up to four pieces, some of them empty"
    edges = [0, *sorted(rng.randint(0, len(items)) for _ in range(rng.choice([0, 0, 1, 3]))), len(items)]
    return [items[a:b] for a, b in zip(edges, edges[1:])]


def as_any_iterable(ids: list[int], rng: random.Random):
    "What an engine may hand over"
    return rng.choice([list, tuple, iter, lambda ids: array("q", ids), lambda ids: (i for i in ids)])(ids)


BAD_MESSAGES = [
    None, 3, "hi", b"hi", [], ("user", "hi"), {}, {"role": "user"}, {"role": "user", "content": None}, {"role": "user", "content": ["hi"]},
    {"role": "user", "content": {"text": "x"}}, {"role": "nobody", "content": ""}, {"role": None, "content": ""},
    {"role": "user", "content": "a\ud800"}, {"role": "user", "content": "", "tool_calls": []}, Message("nobody", "hi"),
    [Message("user", "hi")],
]
BAD_IDS = [None, "a", b"a", True, -1, 2**32, 2**64, 10**30, 1.0, math.nan, [97], (97,), "97", 97 + 0j]
BAD_LOGPROBS = [None, "-1", True, False, math.nan, math.inf, -math.inf, [-1.0], -1 + 0j]
BAD_PLACES = [None, "0", 1.0, True, -1, 10**6, [0], slice(0)]


def closed(machine: "Machine") -> bool:
    return machine.model.turn is None


def is_open(machine: "Machine") -> bool:
    return machine.model.turn is not None


class Machine(RuleBasedStateMachine):
    "Several branches at once, each with its model; a step acts on one of them"

    ids_mode, small, model_class, chat_format = True, True, Model, CHATML

    def __init__(self):
        super().__init__()
        self.branches: list[tuple[DeltaTokenizer, Model]] = []  # the current one is the last
        self.seen: list[Any] = []  # the state of each when it was last compared

    @property
    def delta(self) -> DeltaTokenizer:
        return self.branches[-1][0]

    @property
    def model(self) -> Model:
        return self.branches[-1][1]

    def enter(self, delta: DeltaTokenizer, model: Model) -> None:
        "Another branch, which is now the current one; with three there already, in place of the oldest"
        self.branches, self.seen = [*self.branches, (delta, model)][-3:], [*self.seen, None][-3:]

    @initialize(seed=seeds, new=st.lists(messages, max_size=4), turns=st.integers(0, 2))
    def begin(self, seed, new, turns):
        rng = random.Random(seed)
        self.tokenizer = self.a_tokenizer(rng)
        self.enter(DeltaTokenizer(self.tokenizer, self.chat_format), self.model_class(self.tokenizer))
        assert self.delta.mode == ("ids" if self.ids_mode else "bytes")
        if rng.random() < 0.5:
            self.adopt(new, rng)
        else:
            self.append(new, False)
        for _ in range(turns):
            self.whole_turn(rng.randrange(2**32), "stop")

    def a_tokenizer(self, rng):
        return small_tokenizer(rng.randrange(24), self.ids_mode) if self.small else recorded_tokenizer(self.ids_mode)

    @invariant()
    def all_hold(self):
        "The current branch is what its model says; no other has changed by a bit"
        for n, (delta, model) in enumerate(self.branches):
            now, current = state(delta), n == len(self.branches) - 1
            assert current or self.seen[n] in (None, now), "a branch changed that nobody touched"
            if self.seen[n] != now:
                check(delta, model)
                assert state(delta) == now, "looking changed something"
            self.seen[n] = now

    # growing

    @precondition(closed)
    @rule(new=st.lists(messages, max_size=3), plain=st.booleans())
    def append(self, new, plain):
        delta, model, old = self.delta, self.model, self.delta.tokens
        made = [{"role": m[0], "content": m[1]} if plain and len(m) == 2 else Message(*m) for m in new]
        if model.joins(new):
            assert refused(delta, lambda: delta.append(*made), InvalidMessage).index == len(model.messages)
            return
        delta.append(*made)
        model.append_all(new)
        assert delta.tokens[: len(old)] == old  # D1
        assert self.tokenizer.decode(delta.tokens[len(old) :]) == model.spelled_all(new)

    @precondition(closed)
    @rule()
    def open_turn(self):
        prompt = self.delta.open_turn()
        self.model.open()
        assert prompt == self.delta.tokens
        if self.model.asked is not None:  # D3
            assert prompt[: len(self.model.asked)].tolist() == self.model.asked
        prompt.append(0)  # a copy: the engine may do what it likes with it

    @precondition(is_open)
    @rule(seed=seeds)
    def sample(self, seed):
        delta, model, rng = self.delta, self.model, random.Random(seed)
        keep, with_logprobs = rng.random() < 0.6, rng.random() < 0.7
        for new in cut_up(completion_ids(self.tokenizer, completion(rng), rng), rng):
            logprobs = [rng.choice([-0.0, rng.uniform(-9, 0), -1]) for _ in new] if with_logprobs and rng.random() < 0.8 else None
            old, n = delta.tokens, model.how_many(new)
            version, after_stop = rng.choice([None, None, 0, 7]), "keep" if keep else "refuse"
            call = lambda: delta.sample(as_any_iterable(new, rng), logprobs and iter(logprobs), version=version, after_stop=after_stop)
            if n < len(new) and not keep:
                assert refused(delta, call, BadSample).index == n
                continue
            call()
            model.sample(new, logprobs, version)
            assert delta.tokens[len(old) :].tolist() == new and delta.tokens[: len(old)] == old  # D2
        self.peek()

    def peek(self):
        "What the open turn says, compared with what was sampled"
        peeked, said = self.delta.peek(), self.model.said()
        after, data = self.model.after_end(said), self.model.decode(said)
        content = data if after is None else data[: len(data) - len(END + after)]
        assert peeked.ended == (after is not None)
        assert peeked.content == (content if self.ids_mode or b"<|" in content else unescaped(content))
        assert peeked.text == peeked.content.decode("utf-8", "backslashreplace")
        return peeked

    @precondition(is_open)
    @rule(finish_reason=st.sampled_from([None, "stop", "length"]))
    def close_turn(self, finish_reason):
        delta, model, old = self.delta, self.model, self.delta.tokens
        peeked, judged = self.peek(), model.judged()
        if isinstance(judged, int):
            assert refused(delta, lambda: delta.close_turn(finish_reason), ForgedTurn).offset == judged
            return
        message = delta.close_turn(finish_reason)
        assert message == Message("assistant", model.close(finish_reason)) and peeked.content == message.content
        assert delta.tokens[: len(old)] == old and not any(delta.loss_mask[len(old) :])  # D5
        assert self.tokenizer.decode(delta.tokens[len(old) :]) in (b"", NEWLINE, END + NEWLINE)

    @precondition(is_open)
    @rule()
    def discard_turn(self):
        self.delta.discard_turn()
        self.model.discard()

    @precondition(closed)
    @rule(seed=seeds, finish_reason=st.sampled_from([None, "stop", "length"]))
    def whole_turn(self, seed, finish_reason):
        before, n = state(self.delta), len(self.model.messages)
        self.open_turn()
        self.sample(seed)
        check(self.delta, self.model)
        self.close_turn(finish_reason)
        if is_open(self):
            self.discard_turn()
            assert state(self.delta) == before
        else:
            assert len(self.model.messages) == n + 1

    # branches

    @precondition(closed)
    @rule(place=st.integers(0, 6), new=messages, stay=st.booleans())
    def insert(self, place, new, stay):
        delta, model, message, before = self.delta, self.model, Message(*new), state(self.delta)
        index = min(place, len(model.messages))
        try:
            wanted = model.edit(index, 0, [new])
        except (InsideToken, InsideGroup) as error:
            refused(delta, lambda: delta.insert(index, message), type(error))
            return
        branch = delta.insert(index, message)
        check(branch, wanted)  # D6
        assert branch.remove(index).tokens == delta.tokens  # D7
        if index == len(model.messages) and not model.joins([new]):
            appended = delta.fork()
            appended.append(message)
            assert state(appended) == state(branch)
        assert state(delta) == before
        if not stay:
            self.enter(branch, wanted)

    @precondition(lambda self: closed(self) and self.model.messages)
    @rule(place=st.integers(0, 6), stay=st.booleans())
    def remove(self, place, stay):
        delta, model, before = self.delta, self.model, state(self.delta)
        index = min(place, len(model.messages) - 1)
        try:
            wanted = model.edit(index, 1, [])
        except (InsideToken, InsideGroup) as error:
            refused(delta, lambda: delta.remove(index), type(error))
            return
        branch = delta.remove(index)
        check(branch, wanted)
        assert state(delta) == before
        if not stay:
            self.enter(branch, wanted)

    @rule(stay=st.booleans())
    def fork(self, stay):
        branch, model = self.delta.fork(), self.model.copy()
        assert state(branch) == state(self.delta)
        self.enter(branch, model)
        if stay:
            self.switch()

    @rule()
    def switch(self):
        "On with another branch"
        self.branches, self.seen = [self.branches[-1], *self.branches[:-1]], [self.seen[-1], *self.seen[:-1]]

    @precondition(closed)
    @rule(new=st.lists(messages, max_size=2))
    def restart(self, new):
        self.delta.restart([Message(*m) for m in new])
        self.model.restart(new)

    @rule(new=st.lists(messages, max_size=4), seed=seeds)
    def from_tokens(self, new, seed):
        self.adopt(new, random.Random(seed))

    def adopt(self, new, rng):
        "Ids of whole messages, sometimes damaged"
        model = self.model_class(self.tokenizer)
        if self.ids_mode:
            ids = model.adoptable(new, lambda data: segment(self.tokenizer, data, rng))
        else:
            data = b"".join(model.spelled(*m) for m in new)
            ids = self.tokenizer.encode(data) if rng.random() < 0.5 else segment(self.tokenizer, data, rng)
        if ids and rng.random() < 0.3:
            at, other = rng.randrange(len(ids)), rng.choice([*self.tokenizer.control.values(), rng.randrange(self.tokenizer.table.size)])
            ids = rng.choice([ids[:at] + ids[at + 1 :], ids[:at], [*ids[:at], other, *ids[at:]], [*ids[:at], other, *ids[at + 1 :]]])
        if model.adopt(ids):
            self.enter(DeltaTokenizer.from_tokens(self.tokenizer, as_any_iterable(ids, rng), self.chat_format), model)
            return
        try:
            DeltaTokenizer.from_tokens(self.tokenizer, ids, self.chat_format)
        except (TokenParseError if self.ids_mode else ParseError):
            return
        raise AssertionError(f"adopted {ids}")

    # misuse: in any state, with an error that fits, and without a change

    def refuse(self, call, error, open_error=None, index: int | None = None) -> None:
        "The call fails with `error`, and with `open_error` while a turn is open; `index` is that of the error, if one is to be named"
        wanted = error if closed(self) or open_error is None else open_error
        found = refused(self.delta, call, wanted)
        assert wanted is WrongOrder or index is None or found.index == index

    @rule(kind=st.sampled_from(["order", "message", "sample", "place", "rest"]), seed=seeds, new=messages)
    def misuse(self, kind, seed, new):
        getattr(self, f"bad_{kind}")(random.Random(seed), Message(*new))

    def bad_order(self, rng, message):
        delta = self.delta
        if closed(self):
            calls = [lambda: delta.sample([97]), delta.close_turn, delta.discard_turn, delta.peek]
        else:
            calls = [
                lambda: delta.append(message), delta.append, delta.open_turn, lambda: delta.insert(0, message), lambda: delta.remove(0),
                lambda: delta.restart([message]), lambda: delta.restart([]),
            ]
        for call in calls:
            refused(delta, call, WrongOrder)

    def bad_message(self, rng, message):
        delta, n, bad, before = self.delta, len(self.model.messages), rng.choice(BAD_MESSAGES), [message] * rng.randint(0, 2)
        self.refuse(lambda: delta.append(*before, bad), InvalidMessage, WrongOrder, n + len(before))
        self.refuse(lambda: delta.restart([*before, bad]), InvalidMessage, WrongOrder, len(before))
        self.refuse(lambda: delta.insert(n, bad), InvalidMessage, WrongOrder, n)

    def bad_sample(self, rng, message):
        delta, ids, logprobs, place = self.delta, [0, 1, 2], [-1.0, -1.0, -1.0], rng.randint(0, 2)
        bad_ids = [*ids[:place], rng.choice(BAD_IDS), *ids[place:]]
        bad_logprobs = [*logprobs[:place], rng.choice(BAD_LOGPROBS), *logprobs[place + 1 :]]
        wrong, after_stop = WrongOrder if closed(self) else BadSample, rng.choice(["keep", "refuse"])
        self.refuse(lambda: delta.sample(bad_ids, after_stop=after_stop), WrongOrder, UnknownToken, place)
        self.refuse(lambda: delta.sample(ids, bad_logprobs, after_stop="keep"), wrong, None, place)
        for few_or_many in ([], [-1.0], [-1.0] * 4):
            self.refuse(lambda: delta.sample(ids, few_or_many, after_stop="keep"), wrong)

    def bad_place(self, rng, message):
        delta, n, bad = self.delta, len(self.model.messages), rng.choice(BAD_PLACES)
        for call in (
            lambda: delta.insert(bad, message), lambda: delta.remove(bad), lambda: delta.insert(n + 1, message), lambda: delta.remove(n),
        ):
            self.refuse(call, IndexError, WrongOrder)

    def bad_rest(self, rng, message):
        delta, tokenizer = self.delta, self.tokenizer
        for call in (
            lambda: delta.sample(None), lambda: delta.sample(97), lambda: delta.sample([97], -1.0),
            lambda: delta.sample([97], after_stop="drop"), lambda: delta.sample([97], after_stop=None),
            lambda: delta.close_turn(3), lambda: delta.restart(None), lambda: delta.restart(3),
            lambda: delta.restart("hi"), lambda: delta.restart({"role": "user", "content": "hi"}), lambda: delta.insert(0, "hi"),
            lambda: DeltaTokenizer.from_tokens(tokenizer, None), lambda: DeltaTokenizer.from_tokens(tokenizer, [2**32]),
        ):
            self.refuse(call, TYPED)


def machine(name: str, ids_mode: bool, small: bool, examples: int, steps: int, base: type = Machine):
    "A test case of the machine for one kind of tokenizer"
    case = type(name, (base,), {"ids_mode": ids_mode, "small": small}).TestCase
    case.settings = settings(max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True, database=None)
    return case
