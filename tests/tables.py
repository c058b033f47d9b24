"For tests: random merge tables, valid, dense over few letters, with ties and with tokens that no encoder returns; and the plainest tokenizer."
import random

from hypothesis import strategies as st

from tito_nb.merge_tree import MergeTable


def random_table(rng: random.Random, letters: bytes, n_rules: int) -> MergeTable:
    "A valid table of up to `n_rules` rules whose pairs are drawn from the letters and the tokens made so far"
    rules: dict[tuple[int, int], None] = {}
    for _ in range(n_rules):
        tokens = [*letters, *range(256, 256 + len(rules))]
        rules.setdefault((rng.choice(tokens), rng.choice(tokens)))
    return MergeTable(tuple(rules))


def tables(letters: bytes = b"abc", max_rules: int = 12) -> st.SearchStrategy[MergeTable]:
    "A strategy for such tables"
    return st.builds(lambda seed, n: random_table(random.Random(seed), letters, n), st.integers(0, 2**32), st.integers(0, max_rules))


class Plain:
    "A tokenizer of another make: one id per byte. Its `decode` takes for bytes whatever looks like bytes"
    control: dict[bytes, int] = {}

    def encode(self, data):
        return list(data.encode() if isinstance(data, str) else data)

    def decode(self, tokens):
        return bytes(tokens)
