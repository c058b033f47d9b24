"""Mixed text for benchmarks, made of what every Python installation has: the same installation gives the same text.

Of 20 blocks of up to 1,000 bytes, 8 are English prose (the help topics of Python), 6 source code (the standard library),
2 JSON, 3 words in eight scripts and 1 emoji. Prose and code are read from the installation, so another version of Python has
another text: its size and SHA-256 belong to a result. The words are drawn so that, as in a language, few of them are frequent.
"""
import json, os, random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

BLOCK = 1000  # bytes
ORDER = ("prose", "code", "prose", "script", "code", "prose", "json", "prose", "code", "script") * 2
SCRIPTS = {  # first and last letter; no letter between them is unassigned
    "Cyrillic": ("а", "я"), "Greek": ("α", "ω"), "Hebrew": ("א", "ת"), "Arabic": ("ف", "ي"),
    "Devanagari": ("क", "ह"), "Hiragana": ("ぁ", "ゖ"), "Han": ("一", "龥"), "Hangul": ("가", "힣"),
}
EMOJI = [chr(c) for c in range(0x1F600, 0x1F645)] + ["👩🏽‍🚀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷", "👍🏿", "❤️", "1️⃣"]


def prose() -> str:
    "English: the help topics"
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def code() -> str:
    "Python: the modules of the standard library in alphabetical order"
    paths = sorted(Path(os.__file__).parent.glob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths if path.stat().st_size < 50_000)


def script(rng: random.Random, size: int) -> str:
    "At least `size` bytes of words; of the 800 words of a script the n-th is drawn with weight 1 / n"
    words = {
        name: ["".join(chr(rng.randint(ord(first), ord(last))) for _ in range(rng.randint(1, 7))) for _ in range(800)]
        for name, (first, last) in SCRIPTS.items()
    }
    weights, lines, length = [1 / n for n in range(1, 801)], [], 0
    while length < size:
        name = rng.choice(list(words))
        between = "" if name in ("Hiragana", "Han") else " "
        lines.append(between.join(rng.choices(words[name], weights, k=rng.randint(4, 20))) + rng.choice([".", "。", "!", ", "]) + "\n")
        length += len(lines[-1].encode())
    return "".join(lines)


def records(rng: random.Random, size: int) -> str:
    "At least `size` bytes of JSON, compact and indented in turn"
    names = ["id", "name", "path", "score", "tags", "ok", "created_at", "arguments"]
    parts: list[str] = []
    length = 0
    while length < size:
        record = {name: rng.choice([rng.randrange(10**6), rng.random(), True, None, f"item-{rng.randrange(999)}", ["a", "b"]]) for name in names}
        parts.append(json.dumps(record, indent=2 if len(parts) % 2 else None))
        length += len(parts[-1]) + 1
    return "\n".join(parts)


def emoji(rng: random.Random, size: int) -> str:
    "At least `size` bytes of emoji, some with skin tones, joiners and flags"
    return "".join(rng.choice(EMOJI) + rng.choice(["", "", " "]) for _ in range(size // 4 + 1))


def blocks(text: str) -> Iterator[str]:
    "Blocks of up to 1,000 bytes; a character that a cut would tear is dropped"
    data = text.encode()
    for start in range(0, len(data), BLOCK):
        yield data[start : start + BLOCK].decode(errors="ignore")


@lru_cache(1)
def mixed_text(
    size: int,  # bytes of UTF-8
    seed: int = 0,  # of what is drawn
) -> str:
    "Up to 3 bytes less than `size` bytes of mixed text; `ValueError` if the installation has too little to make it of"
    rng = random.Random(seed)
    order = [*ORDER[:-1], "emoji"]
    share = size // len(order) + BLOCK
    made = {"prose": prose(), "code": code(), "script": script(rng, 4 * share), "json": records(rng, 3 * share), "emoji": emoji(rng, 2 * share)}
    streams = {name: blocks(text) for name, text in made.items()}
    parts: list[str] = []
    length = 0
    while length < size:
        name = order[len(parts) % len(order)]
        block = next(streams[name], None)
        if block is None:
            raise ValueError(f"this installation has too little {name} for {size:,} bytes: {length:,} were made")
        parts.append(block)
        length += len(block.encode())
    return "".join(parts).encode()[:size].decode(errors="ignore")
