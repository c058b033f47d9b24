"""A baseline: the algorithm of minbpe's `RegexTokenizer`, written anew.

Source: Andrej Karpathy, *minbpe* (https://github.com/karpathy/minbpe, MIT). It is in no package registry, so its published
algorithm stands here in its own words: per chunk, as long as there are two tokens, count all pairs, take the one of the lowest
merge index, replace it in a pass over the list; in training count all pairs of all chunks in every round, take the most frequent,
replace it in every chunk. Nothing is remembered between chunks. Two things differ: training ends where no pair is left
instead of failing, and `best` can be given, to break ties otherwise than by which pair came first.
"""
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Pair = tuple[int, int]


def count_pairs(ids: Sequence[int], counts: dict[Pair, int] | None = None) -> dict[Pair, int]:
    "How often each pair stands side by side, added to `counts`"
    counts = {} if counts is None else counts
    for pair in zip(ids, ids[1:]):
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def replace_pair(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    "`ids` with every occurrence of `pair`, from left to right, replaced by `new`"
    replaced = []
    i = 0
    while i < len(ids):
        if ids[i] == pair[0] and i < len(ids) - 1 and ids[i + 1] == pair[1]:
            replaced.append(new)
            i += 2
        else:
            replaced.append(ids[i])
            i += 1
    return replaced


def most_frequent(counts: dict[Pair, int]) -> Pair:
    "The pair of the highest count; of equal ones that which was counted first"
    return max(counts, key=counts.__getitem__)


class MinBpe:
    "Merges behind a pattern; `byte_ids` permutes bytes first, as minbpe's GPT-4 tokenizer does"

    def __init__(
        self,
        pattern: Any,  # compiled; its `findall` gives the chunks
        merges: Mapping[Pair, int] | None = None,  # pair of ids -> the id that it becomes, which is also its merge index
        byte_ids: Sequence[int] = range(256),  # the id of each byte
    ):
        self.pattern, self.merges, self.byte_ids = pattern, dict(merges or {}), bytes(byte_ids)

    def train(self, text: str, n_merges: int, best: Callable[[dict[Pair, int]], Pair] = most_frequent) -> None:
        "Learn up to `n_merges` merges"
        chunks = [list(chunk.encode()) for chunk in self.pattern.findall(text)]
        self.merges = {}
        while len(self.merges) < n_merges:
            counts: dict[Pair, int] = {}
            for ids in chunks:
                count_pairs(ids, counts)
            if not counts:
                return
            pair, new = best(counts), 256 + len(self.merges)
            chunks = [replace_pair(ids, pair, new) for ids in chunks]
            self.merges[pair] = new

    def encode_chunk(self, data: bytes) -> list[int]:
        "The ids of one chunk"
        ids = list(data.translate(self.byte_ids))
        while len(ids) >= 2:
            counts = count_pairs(ids)
            pair = min(counts, key=lambda p: self.merges.get(p, float("inf")))
            if pair not in self.merges:
                break
            ids = replace_pair(ids, pair, self.merges[pair])
        return ids

    def encode(self, text: str) -> list[int]:
        "The ids of `text`, chunk by chunk"
        ids: list[int] = []
        for chunk in self.pattern.findall(text):
            ids.extend(self.encode_chunk(chunk.encode()))
        return ids
