"For tests: random merge tables, valid, dense over few letters, with ties and with tokens that no encoder returns; and the plainest tokenizer."
import random

from hypothesis import strategies as st

from tito_nb.bpe import BpeTokenizer
from tito_nb.merge_tree import MergeTable
from tito_nb.training import train


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


QWEN_IDS = {  # the control ids of Qwen3 that its chat format uses, and one that no format uses
    b"<|endoftext|>": 151643, b"<|im_start|>": 151644, b"<|im_end|>": 151645, b"<tool_call>": 151657, b"</tool_call>": 151658, b"<|fim|>": 151659,
    b"<tool_response>": 151665, b"</tool_response>": 151666, b"<think>": 151667, b"</think>": 151668,
}
QWEN_TOY = BpeTokenizer(train([b"user\n", b"assistant\n", b"\n\n" * 9], 9), control=QWEN_IDS)


def attempt_error(error, call):
    "The error of a call that has to raise it"
    try:
        found = call()
    except error as raised:
        return raised
    raise AssertionError(f"no {error}, but {found!r}")
