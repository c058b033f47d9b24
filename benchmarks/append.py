"""What one more tool message costs, early and late in a rollout: `python benchmarks/append.py`.

Three ways to go on after the same history, whose ids are compared first:

delta   `DeltaTokenizer.append`
bare    the three lines it comes down to: encode the message, add its ids to a list
MITO    render and encode all messages anew

CPU time, best of several, all in one run; the unit is `append` after one turn, so only ratios are shown.
"""
import time
from collections.abc import Callable

from tito_nb.delta import DeltaTokenizer
from tito_nb.renderer import Message
from tito_nb.rollouts import load_rollouts

TURNS = (1, 8, 64, 512)
TOKENIZER = load_rollouts().tokenizer
START, END = TOKENIZER.control[b"<|im_start|>"], TOKENIZER.control[b"<|im_end|>"]
CALL = b'{"name": "read", "arguments": {"path": "notes.txt"}}'
RESULT = Message("tool", "\n".join(f"{n:02d} the quick brown fox jumps over the lazy dog" for n in range(15)))


def after(turns: int) -> DeltaTokenizer:
    "A history of a question and `turns` calls with their results, but for the last result"
    delta = DeltaTokenizer(TOKENIZER)
    delta.append(Message("user", "Read my notes."))
    for n in range(turns):
        if n:
            delta.append(RESULT)
        delta.open_turn()
        delta.sample([*TOKENIZER.encode(CALL), END])
        delta.close_turn("stop")
    return delta


def bare(ids: list[int], message: Message) -> None:
    "The delta without anything around it"
    ids += [START, *TOKENIZER.encode(message.role.encode() + b"\n" + message.content)]
    ids += [END, *TOKENIZER.encode(b"\n")]


def mito(messages: list[Message]) -> list[int]:
    "Everything anew"
    ids: list[int] = []
    for message in messages:
        bare(ids, message)
    return ids


def compare(turns: int) -> None:
    "All three ways give the same ids"
    delta, ids = after(turns), after(turns).tokens.tolist()
    messages = delta.messages
    delta.append(RESULT)
    bare(ids, RESULT)
    assert delta.tokens.tolist() == ids == mito([*messages, RESULT]) and len(messages) == 2 * turns


def room(copy, add: Callable):
    "A fresh copy has no room behind its last id: `add` once, so that moving all ids to a larger place is not counted"
    add(copy)
    return copy


def best(prepare: Callable, run: Callable, repeats: int) -> float:
    "Least CPU seconds of `run` on what `prepare` makes; the preparation is not counted"
    times = []
    for _ in range(repeats):
        prepared = prepare()
        begin = time.process_time()
        run(prepared)
        times.append(time.process_time() - begin)
    return min(times)


def main() -> None:
    rows = []
    add = lambda branch: branch.append(RESULT)
    for turns in TURNS:
        compare(turns)
        delta = after(turns)
        ids, messages = delta.tokens.tolist(), delta.messages
        rows.append((turns, len(ids), (
            best(lambda: room(delta.fork(), add), add, 60),
            best(lambda: room(delta.fork(), add), lambda branch: (add(branch), branch.open_turn()), 60),
            best(lambda: room(ids[:], lambda copy: bare(copy, RESULT)), lambda copy: bare(copy, RESULT), 60),
            best(lambda: [*messages, RESULT], mito, 3),
        )))
    unit = rows[0][2][0]
    print(f"a tool message of {len(TOKENIZER.encode(RESULT.content))} tokens; ids are equal; 1.00 is append after one turn")
    print(f"{'turns':>6} {'tokens':>8} {'append':>8} {'and open':>9} {'bare':>8} {'MITO':>8}")
    for turns, size, times in rows:
        append, opened, alone, anew = (t / unit for t in times)
        print(f"{turns:>6} {size:>8,} {append:>8.2f} {opened:>9.2f} {alone:>8.2f} {anew:>8.1f}")


if __name__ == "__main__":
    main()
