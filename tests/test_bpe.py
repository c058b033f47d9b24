"Encoding, canonical sequences, concatenation, tokenizers."
import pickle, random, re

import numpy
import pytest
from hypothesis import given, settings, strategies as st

from tables import random_table, tables
from tito_nb import bpe
from tito_nb.bpe import BpeTokenizer, PretokenizerError, encode, first_noncanonical, inner_pairs, is_canonical, segmentations, splits_safely
from tito_nb.merge_tree import MergeTable, UnknownToken
from tito_nb.spec import all_strings, all_tables, all_token_sequences, derivation

HELLO = MergeTable([(104, 101), (108, 108), (257, 111), (256, 258)])
texts = st.text("abc", max_size=24).map(str.encode)


def words(data):
    return re.findall(rb" ?[^ ]+| ", data)


@given(tables(b"abc", 30), texts)
def test_encode_is_the_specification_on_random_tables(table, data):
    assert tuple(encode(table, data)) == derivation(table.rules, data)[-1]


@pytest.mark.parametrize("length", [0, 1, bpe.SHORT - 1, bpe.SHORT, bpe.SHORT + 1, 2 * bpe.SHORT])
def test_both_sides_of_the_switch_agree(length):
    rng = random.Random(length)
    for _ in range(20):
        table, data = random_table(rng, b"ab", 20), bytes(rng.choice(b"ab") for _ in range(length))
        assert encode(table, data) == bpe.encode_short(table, data) == bpe.encode_long(table, data)


@given(tables(), st.binary(max_size=60))
def test_bytes_come_back(table, data):
    tokens = encode(table, data)
    assert table.decode(tokens) == data and encode(table, table.decode(tokens)) == tokens
    assert encode(table, bytearray(data)) == encode(table, memoryview(data)) == tokens


def test_tokens_need_not_come_back():
    assert encode(HELLO, HELLO.decode([256, 258])) == [259]
    assert encode(MergeTable([(98, 98)]), b"bb") == [256]


@pytest.mark.parametrize("bad", ["hello", None, 5, [104]])
def test_encode_refuses_what_is_not_bytes(bad):
    for ask in (lambda: encode(HELLO, bad), lambda: list(segmentations(HELLO, bad)), lambda: splits_safely(HELLO, bad, b""), lambda: splits_safely(HELLO, b"", bad)):
        with pytest.raises(TypeError, match="data must be bytes"):
            ask()
    with pytest.raises(TypeError, match="table must be a MergeTable.* not list"):
        encode([(104, 101)], b"hello")


@pytest.mark.parametrize(("max_rules", "max_len"), [(3, 3), (2, 5)])
def test_canonical_is_exact_on_every_small_case(max_rules, max_len):
    for rules in all_tables(b"ab", max_rules):
        table, comes_back = MergeTable(rules), {}
        for tokens in all_token_sequences(b"ab", len(rules), max_len):  # prefixes come before the whole
            comes_back[tokens] = encode(table, table.decode(tokens)) == list(tokens)
            first = next((n for n in range(len(tokens)) if not comes_back[tokens[: n + 1]]), None)
            assert first_noncanonical(table, tokens) == first and is_canonical(table, tokens) == comes_back[tokens], (rules, tokens)


@given(tables(b"abc", 30), st.data())
@settings(max_examples=300)
def test_canonical_is_exact_on_random_tables(table, data):
    tokens = data.draw(st.lists(st.integers(97, table.size - 1).filter(lambda t: t < 100 or t > 255), max_size=6))
    assert is_canonical(table, tokens) == (encode(table, table.decode(tokens)) == tokens)


@given(tables(b"abc", 30), texts, st.data())
def test_slices_of_a_canonical_sequence_are_canonical(table, text, data):
    tokens = encode(table, text)
    i, j = sorted((data.draw(st.integers(0, len(tokens))), data.draw(st.integers(0, len(tokens)))))
    assert is_canonical(table, tokens[i:j]) and encode(table, table.decode(tokens[i:j])) == tokens[i:j]


def test_canonical_refuses_unknown_tokens():
    for bad in (260, -1, True, "a", None):
        with pytest.raises(UnknownToken, match="^index 1: "):
            is_canonical(HELLO, [97, bad])
        with pytest.raises(UnknownToken, match="^index 1: "):
            first_noncanonical(HELLO, iter([259, bad, 256, 258]))


def test_deep_tokens_need_no_deep_stack():
    deep = MergeTable([(97, 97)] + [(255 + rank, 97) for rank in range(1, 3000)])
    assert is_canonical(deep, [256]) and not is_canonical(deep, [3255, 97]) and first_noncanonical(deep, [257]) == None


@given(tables(b"ab", 10), st.text("ab", max_size=8).map(str.encode))
def test_segmentations_are_all_and_each_once(table, data):
    found = list(segmentations(table, data))
    assert len(found) == len(set(found)) and all(table.decode(tokens) == data for tokens in found)
    ways = [1] + [0] * len(data)  # counted from left to right, without listing
    for end in range(1, len(data) + 1):
        ways[end] = sum(ways[end - len(table.token_bytes(t))] for t in range(table.size) if data[:end].endswith(table.token_bytes(t)))
    assert len(found) == ways[-1] and [t for t in found if is_canonical(table, t)] == [tuple(encode(table, data))]


def test_segmentations_are_lazy_in_order_and_skip_long_tokens():
    wide = MergeTable([(97, 97)] + [(255 + rank, 255 + rank) for rank in range(1, 60)])
    first = next(segmentations(wide, b"a" * 200))
    assert first == (97,) * 200
    assert list(segmentations(HELLO, b"hell")) == [(104, 101, 108, 108), (104, 101, 257), (256, 108, 108), (256, 257)]
    assert list(segmentations(MergeTable([(97, 97), (256, 97), (97, 256)]), b"aaa"))[-2:] == [(257,), (258,)]


def test_splits_are_exact_on_every_small_case():
    for rules in all_tables(b"ab", 2):
        table = MergeTable(rules)
        for a in all_strings(b"ab", 4):
            for b in all_strings(b"ab", 4):
                whole = encode(table, a + b)
                borders = {len(table.decode(whole[:i])) for i in range(len(whole) + 1)}
                assert splits_safely(table, a, b) == (encode(table, a) + encode(table, b) == whole) == (len(a) in borders)


@given(tables(b"abc", 20), texts, texts)
def test_between_bytes_that_are_no_inner_pair_texts_may_be_cut(table, a, b):
    inside = {tuple(table.token_bytes(t)[i : i + 2]) for t in range(table.size) for i in range(len(table.token_bytes(t)) - 1)}
    assert inner_pairs(table) == inside == inner_pairs(MergeTable(table.rules))
    if a and b and (a[-1], b[0]) not in inside:
        assert encode(table, a + b) == encode(table, a) + encode(table, b) and splits_safely(table, a, b)


def test_inner_pairs_by_hand():
    assert inner_pairs(HELLO) == {(104, 101), (108, 108), (108, 111), (101, 108)} and inner_pairs(MergeTable([])) == frozenset()
    with pytest.raises(TypeError, match="table must be a MergeTable.* not list"):
        inner_pairs([(104, 101)])


def test_what_is_noted_with_a_table_changes_no_answer():
    "Answers for one sequence are kept; those for another, asked before or after, are the same"
    sequences = [(259,), (256, 258), (104, 256), (108, 108), (256, 257, 111)]
    fresh = [first_noncanonical(MergeTable(HELLO.rules), tokens) for tokens in sequences]
    for order in (sequences, sequences[::-1]):
        table = MergeTable(HELLO.rules)
        assert {tokens: first_noncanonical(table, tokens) for tokens in order} == dict(zip(sequences, fresh))
        assert table == HELLO and hash(table) == hash(HELLO)
    assert fresh == [None, 1, None, 1, 2]


# ---- tokenizers

TOY = BpeTokenizer(HELLO, words, {b"<|im_start|>": 260, b"<|im_end|>": 270}, range(255, -1, -1))


def test_a_tokenizer_has_its_parts():
    assert TOY.encode("hello hello") == [259, 255 - 32, 259] and TOY.encode("hell") == [256, 257]
    assert TOY.decode([270, 259, 255 - 0]) == b"<|im_end|>hello\x00" and dict(TOY.control) == {b"<|im_start|>": 260, b"<|im_end|>": 270}
    assert BpeTokenizer(HELLO, None, None, None).encode(b"hello") == [259]
    assert repr(TOY).startswith("BpeTokenizer(MergeTable([(104, 101), ")


@given(st.binary(max_size=40) | st.text("hello <|im_end|>", max_size=30).map(str.encode))
def test_a_tokenizer_loses_nothing_and_yields_no_control_id(data):
    tokens = TOY.encode(data)
    assert TOY.decode(tokens) == data and not {260, 270} & set(tokens) and TOY.is_canonical(tokens)


def test_control_text_stays_text():
    tokens = TOY.encode("<|im_end|>")
    assert 270 not in tokens and TOY.decode(tokens) == TOY.decode([270]) and TOY.first_noncanonical([259, 270]) == 1


@pytest.mark.parametrize(
    ("control", "error", "match"),
    [
        ({b"<|x|>": 259}, ValueError, "from 260 up, got 259"),
        ({b"<|x|>": -1}, ValueError, "from 260 up"),
        ({b"<|x|>": True}, ValueError, "from 260 up"),
        ({b"<|x|>": "260"}, ValueError, "from 260 up"),
        ({b"<|x|>": 300, b"<|y|>": 300}, ValueError, "control id 300"),
        ({"<|x|>": 300}, TypeError, "control text must be bytes"),
        ({b"": 300}, TypeError, "not empty"),
    ],
)
def test_control_is_checked(control, error, match):
    with pytest.raises(error, match=match):
        BpeTokenizer(HELLO, control=control)


@pytest.mark.parametrize("byte_ids", [range(255), range(1, 257), [0] * 256, ["a"] * 256, [*range(255), -1], [*range(256), 0], [0, True, *range(2, 256)]])
def test_byte_ids_are_checked(byte_ids):
    with pytest.raises(ValueError, match="byte_ids"):
        BpeTokenizer(HELLO, byte_ids=byte_ids)


def test_table_and_pretokenizer_are_checked():
    with pytest.raises(TypeError, match="table must be a MergeTable.* not list"):
        BpeTokenizer([(104, 101)])
    with pytest.raises(TypeError, match="pretokenize must be a function, not str"):
        BpeTokenizer(HELLO, "words")


@pytest.mark.parametrize(
    ("pretokenize", "offset"),
    [
        (lambda data: [data[:2], data[3:]], 3),
        (lambda data: [data[:3]], 3),
        (lambda data: [data, b"x"], 5),
        (lambda data: [], 0),
        (lambda data: [data.decode()], 0),
        (lambda data: [data[:1], None], 1),
        (lambda data: [data.upper()], 0),
    ],
)
def test_pieces_must_make_up_the_data(pretokenize, offset):
    with pytest.raises(PretokenizerError, match=f"^byte {offset}: ") as caught:
        BpeTokenizer(HELLO, pretokenize).encode(b"hello")
    assert caught.value.offset == offset


def test_pieces_may_be_empty_and_of_a_kind_of_bytes():
    kind = type("Kind", (bytes,), {})
    for cut in (lambda data: [b"", data, b""], lambda data: iter([kind(data[:2]), data[2:]]), lambda data: ()):
        assert BpeTokenizer(HELLO, cut).decode(BpeTokenizer(HELLO, cut).encode(b"hello" if cut(b"hello") else b"")) in (b"hello", b"")
    with pytest.raises(PretokenizerError, match="^byte 2: a piece must be bytes, not bytearray"):
        BpeTokenizer(HELLO, lambda data: [data[:2], bytearray(data[2:])]).encode(b"hello")


@given(st.lists(st.sampled_from([b"hello", b"hell", b"he", b"\xff", b"", b"hello" * 7, b"l" * bpe.WORD, b"l" * (bpe.WORD + 1)]), max_size=12))
def test_what_a_tokenizer_remembers_changes_no_answer(found):
    one = BpeTokenizer(HELLO, lambda data: found, byte_ids=range(255, -1, -1))
    once = [255 - token if token < 256 else token for piece in found for token in encode(HELLO, piece)]
    assert one.encode(b"".join(found)) == once == one.encode(b"".join(found))


def test_a_tokenizer_remembers_short_pieces_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(bpe, "REMEMBERED", 3)
    one, other = (BpeTokenizer(HELLO, lambda data: re.findall(rb"[^ ]+| ", data), byte_ids=ids) for ids in (range(256), range(255, -1, -1)))
    long = b"l" * (bpe.WORD + 1)
    assert one.encode(b"a b c d " + long) != other.encode(b"a b c d " + long)  # each has a memory of its own
    assert len(one._known) <= 3 and long not in one._known and {b"d", b" "} <= set(one._known) and len(other._known) <= 3
    calls = []
    monkeypatch.setattr(bpe, "encode", lambda table, piece: calls.append(piece) or encode(table, piece))
    assert one.encode(b"d d d " + long) == [100, 32, 100, 32, 100, 32, *encode(HELLO, long)] and calls == [long]


@pytest.mark.parametrize("bad", [None, 5, [104], object()])
def test_a_tokenizer_refuses_what_is_no_text(bad):
    with pytest.raises(TypeError, match="data must be bytes"):
        TOY.encode(bad)


def test_a_lone_surrogate_is_refused_with_its_position():
    with pytest.raises(UnicodeEncodeError) as caught:
        TOY.encode("he\ud800llo")
    assert caught.value.start == 2


@pytest.mark.parametrize("bad", [261, 269, 271, -1, True, "a", None, 1.5, [3]])
def test_a_tokenizer_refuses_unknown_ids_with_their_index(bad):
    for ask in (TOY.decode, TOY.first_noncanonical, TOY.is_canonical):
        with pytest.raises(UnknownToken, match="^index 1: ") as caught:
            ask([259, bad])
        assert caught.value.index == 1


def lines(data):
    return re.findall(rb"\n+(?!\w)|\n|\w+|[^\n\w]", data)


@given(st.lists(st.sampled_from([10, 97, 98, 32, 256, 257, 258, 300]), max_size=7))
@settings(max_examples=500)
def test_canonical_for_a_tokenizer_is_exact(tokens):
    tokenizer = BpeTokenizer(MergeTable([(10, 10), (97, 98), (257, 97)]), lines, {b"<|end|>": 300})
    assert tokenizer.is_canonical(tokens) == (tokenizer.encode(tokenizer.decode(tokens)) == tokens)


def test_first_noncanonical_names_the_token():
    tokenizer = BpeTokenizer(MergeTable([(10, 10), (97, 98), (257, 97)]), lines, {b"<|end|>": 300})
    assert tokenizer.encode("\n\nab") == [10, 10, 257]  # two pieces of one newline each
    cases = {(256, 97): 0, (10, 10, 257): None, (10, 10): 1, (97, 98): 1, (97, 98, 300): 1, (97, 300): 1, (32, 97, 98, 97): 2, (32, 257, 97): 2, (32, 258): None, (): None}
    assert {tokens: tokenizer.first_noncanonical(tokens) for tokens in cases} == cases
    the = BpeTokenizer(MergeTable([(104, 101), (116, 104), (257, 101)]), lines)  # 258 spells `the`, and `the` becomes t, he
    assert the.first_noncanonical([32, 258]) == 1 and the.first_noncanonical([32, 116, 256]) is None


def test_numpy_ids_are_ids():
    ids = numpy.array([270, 259, 255])
    assert TOY.decode(ids) == b"<|im_end|>hello\x00" and HELLO.decode(ids[1:2]) == b"hello" and TOY.is_canonical(ids[1:])


def test_a_tokenizer_can_be_sent_to_another_process():
    again = pickle.loads(pickle.dumps(TOY))
    assert again.encode("hello hello") == TOY.encode("hello hello") and again.decode([270]) == b"<|im_end|>"
