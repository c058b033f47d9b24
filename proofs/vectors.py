"""What the Python package answers, as goals for the Coq kernel and as requests for the extracted model.

    python3 vectors.py                        writes Vectors.v, the fixed set
    python3 vectors.py --diff PROGRAM [N]     asks the extracted program N rounds of fresh questions

A case is a function of the model, its arguments and the answer of the package.  Its values have one
form for Coq and one for a line of text, the one that driver.ml reads and writes.
"""
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))

from tito_nb import bpe, delta, merging, renderer
from tito_nb.merge_tree import MergeTable
from tito_nb.renderer import CHATML, Message, render
from tito_nb.training import train

FIXED_SEED, FIXED_ROUNDS = 3, 5
ROLES = ("System", "User", "Assistant", "Tool")
START, END, NEWLINE = CHATML.start, CHATML.end, CHATML.newline


# ------------------------------------------------------------------ values: for Coq, and as text
def several(inside: str, values: Iterable[str]) -> str:
    return inside.join(values)


def coq_list(values: Iterable[str]) -> str:
    return "[" + ";".join(values) + "]"


def coq_message(message: Message) -> str:
    return f"Msg {ROLES[CHATML.roles.index(message.role)]} {coq_list(map(str, message.content))}"


def line_message(message: Message) -> str:
    return f"{CHATML.roles.index(message.role)}:{several(' ', map(str, message.content))}"


def coq_event(event: tuple) -> str:
    what, *rest = event
    said = {"append": "Append", "sample": "Sample", "insert": "Insert", "remove": "Remove"}.get(what)
    if what == "restart":
        return f"Restart {coq_list(map(coq_message, rest[0]))}"
    if what in ("open", "close", "discard"):
        return {"open": "On (OpenTurn Assistant)", "close": "On CloseTurn", "discard": "On Discard"}[what]
    return f"On ({said} {several(' ', (f'({COQ[kind_of(value)](value)})' for value in rest))})"


def line_event(event: tuple) -> str:
    what, *rest = event
    letter = {"append": "A", "open": "O", "sample": "S", "close": "C", "discard": "D", "insert": "I", "remove": "R", "restart": "X"}[what]
    return letter + several(" ", (LINE[kind_of(value)](value) for value in rest))


def kind_of(value: Any) -> str:
    if isinstance(value, Message):
        return "message"
    if isinstance(value, int):
        return "nat"
    return "messages" if value and isinstance(value[0], Message) else "ids"


def coq_spans(spans: list[tuple]) -> str:
    return coq_list(f"({kind.capitalize()},{start},{end})" for kind, start, end in spans)


def coq_option(coq: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "None" if value is None else f"(Some {coq(value)})"


def line_option(line: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "none" if value is None else line(value)


def bits(mask: Iterable[int]) -> str:
    return "".join(map(str, mask))


def coq_bits(mask: Iterable[int]) -> str:
    return coq_list("true" if on else "false" for on in mask)


def coq_run(run: tuple) -> str:
    "The short form: numbers of ids and spans after each event, the ids and masks of all examples at the end"
    seen, last = run
    short = (None if view is None else f"(Some ({len(view[0])},{coq_spans(view[3])}))" for view in seen)
    marks = (f"({COQ['ids'](ids)},{coq_bits(mask)},{coq_bits(score)})" for ids, mask, score in last)
    return f"({coq_list(each or 'None' for each in short)}, {coq_list(marks)})"


def line_run(run: tuple) -> str:
    def line_view(view: tuple) -> str:
        ids, mask, score, spans, messages = view
        told = several(";", (f"{kind} {start} {end}" for kind, start, end in spans))
        return several(" & ", (LINE["ids"](ids), bits(mask), bits(score), told, line_option(LINE["messages"])(messages)))

    seen, last = run
    marks = (several(" & ", (LINE["ids"](ids), bits(mask), bits(score))) for ids, mask, score in last)
    return several(" / ", map(line_option(line_view), seen)) + " // " + several(" / ", marks)


COQ: dict[str, Callable[[Any], str]] = {
    "ids": lambda ids: coq_list(map(str, ids)),
    "pairs": lambda pairs: coq_list(f"({a},{b})" for a, b in pairs),
    "pair": lambda pair: f"({pair[0]},{pair[1]})",
    "nat": str,
    "bool": lambda value: "true" if value else "false",
    "message": lambda message: f"({coq_message(message)})",
    "messages": lambda messages: coq_list(map(coq_message, messages)),
    "events": lambda events: coq_list(map(coq_event, events)),
    "steps and ids": lambda both: f"({COQ['pairs'](both[0])}, {COQ['ids'](both[1])})",
    "run": coq_run,
}
LINE: dict[str, Callable[[Any], str]] = {
    "ids": lambda ids: several(" ", map(str, ids)),
    "pairs": lambda pairs: several(";", (f"{a},{b}" for a, b in pairs)),
    "pair": lambda pair: f"{pair[0]},{pair[1]}",
    "nat": str,
    "bool": lambda value: "true" if value else "false",
    "message": line_message,
    "messages": lambda messages: several(";", map(line_message, messages)),
    "events": lambda events: several("/", map(line_event, events)),
    "steps and ids": lambda both: LINE["pairs"](both[0]) + " & " + LINE["ids"](both[1]),
    "run": line_run,
}
for name in ("ids", "nat", "messages"):
    COQ[f"{name} or none"], LINE[f"{name} or none"] = coq_option(COQ[name]), line_option(LINE[name])

# function -> kinds of its arguments, kind of its answer, how it is written in Coq
FUNCTIONS = {
    "encode": (("nat", "pairs", "ids"), "ids", "encode_by_length {} {} {}"),
    "encode_textbook": (("pairs", "ids"), "ids", "encode_textbook {} {}"),
    "encode_short": (("pairs", "ids"), "ids", "encode_short {} {}"),
    "encode_long": (("pairs", "ids"), "ids", "encode_long {} {}"),
    "derive": (("pairs", "ids"), "steps and ids", "derive {} {}"),
    "decode": (("pairs", "ids"), "ids", "decode {} {}"),
    "check_replay": (("pairs", "ids", "pairs", "ids"), "bool", "check_replay {} {} {} {}"),
    "check_linear": (("pairs", "ids", "pairs", "ids"), "bool", "check_linear {} {} {} {}"),
    "is_canonical": (("pairs", "ids"), "bool", "is_canonical {} {}"),
    "first_noncanonical": (("pairs", "ids"), "nat or none", "first_noncanonical {} {}"),
    "first_noncanonical_once": (("pairs", "ids"), "nat or none", "first_noncanonical_once {} {}"),
    "inner": (("pairs", "pair"), "bool", "(fun rs p => has p (inner_pairs rs)) {} {}"),
    "splits_safely": (("pairs", "ids", "ids"), "bool", "splits_safely {} {} {}"),
    "escape": (("ids",), "ids", "escape {}"),
    "unescape": (("ids",), "ids or none", "unescape {}"),
    "render": (("messages",), "ids", "render {}"),
    "parse": (("ids",), "messages or none", "parse {}"),
    "render_ids": (("pairs", "messages"), "ids", "table_render_ids {} {}"),
    "parse_ids": (("pairs", "ids"), "messages or none", "table_parse_ids {} {}"),
    "insert_flat": (("pairs", "ids", "messages", "nat", "message"), "ids or none", "insert_flat {} {} {} {} {}"),
    "rollout": (("pairs", "events"), "run", "run_rollout_short {} {}"),
}


@dataclass(frozen=True)
class Case:
    function: str
    arguments: tuple
    answer: Any

    def goal(self) -> str:
        kinds, kind, form = FUNCTIONS[self.function]
        said = form.format(*(COQ[kind](value) for kind, value in zip(kinds, self.arguments)))
        return f"Goal {said}\n  = {COQ[kind](self.answer)}. Proof. vm_compute. reflexivity. Qed."

    def request(self) -> str:
        kinds, _, _ = FUNCTIONS[self.function]
        return several("|", (self.function, *(LINE[kind](value) for kind, value in zip(kinds, self.arguments))))

    def expected(self) -> str:
        return LINE[FUNCTIONS[self.function][1]](self.answer)


# --------------------------------------------------------------------- what to ask the package
def or_none(function: Callable[..., Any], *arguments: Any) -> Any:
    "The answer, None if the arguments are refused"
    try:
        return function(*arguments)
    except (ValueError, LookupError):
        return None


def random_table(rng: random.Random, letters: bytes, size: int) -> MergeTable:
    rules: list[tuple[int, int]] = []
    while len(rules) < size:
        known = [*letters, *range(256, 256 + len(rules))]
        pair = rng.choice(known), rng.choice(known)
        if pair not in rules:
            rules.append(pair)
    return MergeTable(rules)


def random_bytes(rng: random.Random, letters: bytes, longest: int) -> bytes:
    return bytes(rng.choice(letters) for _ in range(rng.randint(0, longest)))


def table_cases(rng: random.Random) -> Iterator[Case]:
    "One table: encoders, decoder, derivations, canonicality, cuts"
    letters = rng.choice((b"ab", b"abc", b"abcdef"))
    if rng.random() < 0.5:
        table = random_table(rng, letters, rng.randint(0, 10))
    else:
        table = train([random_bytes(rng, letters, 60) + letters], rng.randint(0, 10))
    rules, data = table.rules, random_bytes(rng, letters, rng.choice((12, 24, 24, 2 * bpe.SHORT)))
    known = [*letters, *range(256, table.size)]
    tokens = bpe.encode(table, data)
    yield Case("encode", (bpe.SHORT, rules, data), tokens)
    for encoder in ("encode_textbook", "encode_short", "encode_long"):
        yield Case(encoder, (rules, data), getattr(merging, encoder)(table, data))
    made = merging.derive(table, data)
    yield Case("derive", (rules, data), (made.steps, made.tokens))
    yield Case("decode", (rules, tokens), table.decode(tokens))
    for steps, ids in certificates(rng, rules, data, list(made.steps), list(made.tokens)):
        claim = merging.Derivation(data, tuple(steps), tuple(ids))
        yield Case("check_replay", (rules, data, steps, ids), merging.check_derivation(table, claim))
        yield Case("check_linear", (rules, data, steps, ids), merging.check_linear(table, claim))
    for ids in sequences(rng, tokens, known):
        yield Case("decode", (rules, ids), table.decode(ids))
        yield Case("is_canonical", (rules, ids), bpe.is_canonical(table, ids))
        yield Case("first_noncanonical", (rules, ids), bpe.first_noncanonical(table, ids))
        yield Case("first_noncanonical_once", (rules, ids), bpe.first_noncanonical(table, ids))
    for _ in range(3):
        pair = rng.choice(letters), rng.choice(letters)
        yield Case("inner", (rules, pair), pair in bpe.inner_pairs(table))
    at = rng.randint(0, len(data))
    yield Case("splits_safely", (rules, data[:at], data[at:]), bpe.splits_safely(table, data[:at], data[at:]))


def certificates(rng: random.Random, rules: tuple, data: bytes, steps: list, ids: list) -> Iterator[tuple[list, list]]:
    "The right derivation, three that follow the table and no order, a beginning, and one that is changed somewhere"
    yield steps, ids
    for _ in range(3):
        yield wild_derivation(rng, rules, data)
    yield replayed(data, steps[: rng.randint(0, len(steps))])
    some, other, how = list(steps), list(ids), rng.randrange(5)
    if how == 0 and len(some) > 1:
        i = rng.randrange(len(some) - 1)
        some[i], some[i + 1] = some[i + 1], some[i]
    elif how == 1 and some:
        some.pop(rng.randrange(len(some)))
    elif how == 2 and some and data:
        some[rng.randrange(len(some))] = rng.randrange(len(rules)), rng.randrange(len(data))
    elif how == 3 and other:
        other[rng.randrange(len(other))] = 97
    elif some:
        some.insert(rng.randrange(len(some)), rng.choice(some))
    yield some, other


def replayed(data: bytes, steps: list) -> tuple[list, list]:
    "Steps and the tokens to which they lead"
    nodes = dict(enumerate(data))
    for rank, offset in steps:
        del nodes[next(at for at in nodes if at > offset)]
        nodes[offset] = 256 + rank
    return steps, list(nodes.values())


def wild_derivation(rng: random.Random, rules: tuple, data: bytes) -> tuple[list, list]:
    "Merges of pairs that have a rule, in ascending order, but not always the first that could be made"
    nodes, steps = dict(enumerate(data)), [(-1, -1)]
    while True:
        places = list(nodes)
        able = [(rules.index((nodes[i], nodes[j])), i, j) for i, j in zip(places, places[1:]) if (nodes[i], nodes[j]) in rules]
        able = sorted(each for each in able if each[:2] > steps[-1])
        if not able:
            return steps[1:], list(nodes.values())
        rank, i, j = able[0] if rng.random() < 0.6 else rng.choice(able[:3])
        nodes[i] = 256 + rank
        del nodes[j]
        steps.append((rank, i))


def sequences(rng: random.Random, tokens: list[int], known: list[int]) -> Iterator[list[int]]:
    "Any ids, and a slice of canonical ones with at most one changed"
    yield [rng.choice(known) for _ in range(rng.randint(0, 6))]
    at = rng.randrange(len(tokens) + 1)
    part = tokens[at : at + 6]
    if part and rng.random() < 0.7:
        part[rng.randrange(len(part))] = rng.choice(known)
    yield part


TEXT = b"<<\\\\||\na" + bytes([255])
PARTS = (b"<|", b"<\\|", b"<\\\\|", b"<", b"\\", b"|", b"a", b"\n", bytes([255]))


def random_message(rng: random.Random) -> Message:
    return Message(rng.choice(CHATML.roles), random_bytes(rng, TEXT, 7))


def format_cases(rng: random.Random) -> Iterator[Case]:
    "Escape, render, parse"
    body = b"".join(rng.choice(PARTS) for _ in range(rng.randint(0, 5)))
    yield Case("escape", (body,), renderer.escape(body))
    for data in (body, renderer.escape(body)):
        yield Case("unescape", (data,), or_none(renderer.unescape, data))
    messages = [random_message(rng) for _ in range(rng.randint(0, 3))]
    data = renderer.render(messages)
    yield Case("render", (messages,), data)
    yield Case("parse", (data,), or_none(renderer.parse, data))
    if data:
        broken = bytearray(data)
        broken[rng.randrange(len(broken))] = rng.choice(TEXT)
        for other in (bytes(broken), data[: rng.randrange(len(data))]):
            yield Case("parse", (other,), or_none(renderer.parse, other))


def text_table(rng: random.Random) -> MergeTable:
    "A table with tokens that cross the borders of messages"
    return train([render([random_message(rng) for _ in range(6)])], rng.randint(0, 24))


def ids_cases(rng: random.Random) -> Iterator[Case]:
    "Ids mode: delimiters are control ids"
    table = text_table(rng)
    tokenizer = bpe.BpeTokenizer(table, control={START: table.size, END: table.size + 1})
    history = delta.DeltaTokenizer(tokenizer)
    messages = [random_message(rng) for _ in range(rng.randint(0, 3))]
    history.append(*messages)
    ids = list(history.tokens)
    yield Case("render_ids", (table.rules, messages), tuple(ids))
    if ids and rng.random() < 0.7:
        place = rng.randrange(len(ids))
        ids[place : place + rng.randint(0, 1)] = [rng.choice([*ids, 10, table.size, table.size + 1])] * rng.randint(0, 1)
    yield Case("parse_ids", (table.rules, ids), or_none(delta.parse_ids, tokenizer, ids))


def adopted_cases(rng: random.Random) -> Iterator[Case]:
    "A recorded buffer, encoded as one text, and a message put into it"
    table = text_table(rng)
    messages = [random_message(rng) for _ in range(rng.randint(0, 3))]
    ids, index, message = bpe.encode(table, render(messages)), rng.randint(0, len(messages)), random_message(rng)
    branch = or_none(lambda: delta.DeltaTokenizer.from_tokens(bpe.BpeTokenizer(table), ids).insert(index, message))
    yield Case("insert_flat", (table.rules, ids, messages, index, message), None if branch is None else list(branch.tokens))


def sampled_ids(rng: random.Random, table: MergeTable) -> Iterator[list[int]]:
    "What a policy may sample in one turn, in chunks: the end of the turn or not, canonical or not"
    body = random_bytes(rng, TEXT, 6)
    body = renderer.escape(body) if rng.random() < 0.8 else body
    tail = rng.choice((b"", END, END, END, END + NEWLINE, END + NEWLINE, END + NEWLINE * 2, b"<|im_", START, b"<"))
    ids = bpe.encode(table, body + tail) if rng.random() < 0.6 else [*bpe.encode(table, body), *tail]
    cuts = sorted(rng.randint(0, len(ids)) for _ in range(rng.randint(0, 2)))
    for start, end in zip([0, *cuts], [*cuts, len(ids)]):
        yield ids[start:end]


def next_events(rng: random.Random, table: MergeTable, is_open: bool, count: int) -> Iterator[tuple]:
    "What may be done next; now and then what must not be done"
    if is_open != (rng.random() < 0.1):
        yield from (("sample", ids) for ids in sampled_ids(rng, table))
        yield rng.choice((("close",), ("close",), ("close",), ("discard",)))
        return
    yield rng.choice((
        ("append", random_message(rng)), ("append", random_message(rng)), ("open",), ("open",), ("open",),
        ("insert", rng.randint(0, count + 1), random_message(rng)), ("remove", rng.randint(0, count)),
        ("restart", [random_message(rng) for _ in range(rng.randint(0, 2))]),
    ))


def first_turn(rng: random.Random, table: MergeTable) -> Iterator[tuple]:
    "A turn that can be closed, so that there is something to edit and to file"
    yield "append", random_message(rng)
    yield ("open",)
    yield "sample", bpe.encode(table, renderer.escape(random_bytes(rng, TEXT, 6)) + END)
    yield ("close",)


def happens(history: delta.DeltaTokenizer, event: tuple) -> delta.DeltaTokenizer:
    "The history after the event; edits return a branch"
    what, *rest = event
    if what in ("insert", "remove"):
        return getattr(history, what)(*rest)
    method = {"open": "open_turn", "close": "close_turn", "discard": "discard_turn"}.get(what, what)
    getattr(history, method)(*rest)
    return history


def seen(history: delta.DeltaTokenizer, is_open: bool) -> tuple:
    "Ids, masks, spans, and the messages if no turn is open; the chunks of an open turn are one span in the model"
    spans: list[tuple[str, int, int]] = []
    for span in history.spans:
        if spans and spans[-1][0] == span.kind == "sampled" and spans[-1][2] == span.start:
            spans[-1] = ("sampled", spans[-1][1], span.end)
        else:
            spans.append((span.kind, span.start, span.end))
    messages = None if is_open else or_none(lambda: history.messages)
    return list(history.tokens), list(history.loss_mask), list(history.score_mask), spans, messages


def rollout_cases(rng: random.Random, longest: int = 12) -> Iterator[Case]:
    "A run of a delta tokenizer in bytes mode"
    table = text_table(rng)
    history, events, views, is_open = delta.DeltaTokenizer(bpe.BpeTokenizer(table)), [], [], False
    while len(events) < longest:
        count = len(views[-1][4] or ()) if views and views[-1] else 1
        begin = not events and rng.random() < 0.8
        for event in first_turn(rng, table) if begin else next_events(rng, table, is_open, count):
            after = or_none(happens, history, event)
            events.append(event)
            if after is None:
                views.append(None)
                continue
            history, is_open = after, {"open": True, "close": False, "discard": False}.get(event[0], is_open)
            views.append(seen(history, is_open))
    examples = [(list(each.tokens), list(each.loss_mask), list(each.score_mask)) for each in history.training_examples()]
    yield Case("rollout", (table.rules, events), (views, examples))


def cases(seed: int, rounds: int) -> list[Case]:
    "Every kind of question in each round; rollouts in every second, for they are long"
    rng, made = random.Random(seed), []
    for number in range(rounds):
        for kind in (table_cases, format_cases, ids_cases, adopted_cases, *([rollout_cases] if number % 2 == 0 else [])):
            made += kind(rng)
    return made


# ------------------------------------------------------------------------------- to ask the model
HEAD = """(* Written by vectors.py: what the Python package answers, computed again by the kernel. *)
From Coq Require Import List.
From TitoNb Require Import Spec Textbook Short Certificate Buckets Border Canonical InnerPairs Render Delta
  Restart Adopted Trace.
Import ListNotations.
"""


def as_coq(made: Iterable[Case]) -> str:
    return HEAD + "".join(case.goal() + "\n" for case in made)


def differences(program: Path, made: list[Case]) -> list[tuple[Case, str]]:
    "The cases in which the extracted program answers something else, with its answer"
    asked = "".join(case.request() + "\n" for case in made)
    run = subprocess.run([program], input=asked, capture_output=True, text=True, check=True)
    answers = run.stdout.split("\n")[:-1]
    if len(answers) != len(made):
        raise RuntimeError(f"{len(made)} requests, {len(answers)} answers")
    same = lambda text: " ".join(text.split())
    return [(case, answer) for case, answer in zip(made, answers) if same(case.expected()) != same(answer)]


def main() -> None:
    if "--diff" in sys.argv:
        program, *rounds = sys.argv[sys.argv.index("--diff") + 1 :]
        seed = random.randrange(10**6)
        made = cases(seed, int(rounds[0]) if rounds else 300)
        wrong = differences(Path(program).resolve(), made)
        print(f"seed {seed}: {len(made)} requests, {len(wrong)} differences")
        for case, answer in wrong[:3]:
            print(case.request(), case.expected(), answer, sep="\n")
        sys.exit(bool(wrong))
    (HERE / "Vectors.v").write_text(as_coq(cases(FIXED_SEED, FIXED_ROUNDS)), encoding="utf-8")


if __name__ == "__main__":
    main()
