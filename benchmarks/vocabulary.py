"""A real vocabulary as a merge table: cl100k_base, whose file has ranks of spellings and no pairs."""
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tito_nb.bpe import BpeTokenizer
from tito_nb.engines import pair_rules
from tito_nb.merge_tree import MergeTable

CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
# the same chunks in the dialect of Oniguruma, which tokenizers uses: there {1,3}+ is no possessive count but a repeated group
CL100K_ONIGURUMA = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]|\s+(?!\S)|\s"""
)


@dataclass(frozen=True, repr=False, eq=False)
class Vocabulary:
    "Ranks of spellings, and the same as rules of pairs"
    ranks: Mapping[bytes, int]  # spelling -> id
    merges: Mapping[tuple[int, int], int]  # pair of ids -> id
    byte_ids: tuple[int, ...]  # the id of each byte
    rules: tuple[tuple[int, int], ...]  # pairs of tokens of a `MergeTable`, in which byte b is token b

    def ids(self, tokens: list[int]) -> list[int]:
        "Tokens of the table as ids"
        return [self.byte_ids[token] if token < 256 else token for token in tokens]

    def tokenizer(self, pretokenize: Callable[[bytes], list[bytes]] | None) -> BpeTokenizer:
        "A new tokenizer on a new table: nothing is remembered"
        return BpeTokenizer(MergeTable(self.rules), pretokenize, byte_ids=self.byte_ids)


def vocabulary(ranks: Mapping[bytes, int]) -> Vocabulary:
    "Both forms of `ranks`; `ValueError` as for `pair_rules`, or if the ids of the bytes are not 0 to 255"
    byte_ids = tuple(ranks[bytes((byte,))] for byte in range(256))
    if sorted(byte_ids) != list(range(256)) or sorted(ranks.values()) != list(range(len(ranks))):
        raise ValueError("the ids must be 0 to the size of the vocabulary, those of the 256 bytes first")
    pairs, tokens = pair_rules(ranks), {token: byte for byte, token in enumerate(byte_ids)}
    rules = tuple((tokens.get(left, left), tokens.get(right, right)) for left, right in pairs)
    return Vocabulary(ranks, {pair: 256 + rank for rank, pair in enumerate(pairs)}, byte_ids, rules)


def splitter(pattern: Any) -> Callable[[bytes], list[bytes]]:
    "A pre-tokenizer for UTF-8 out of a compiled pattern that matches everywhere"
    return lambda data: [piece.encode() for piece in pattern.findall(data.decode())]
