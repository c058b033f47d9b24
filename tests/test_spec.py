"The specification: its definitions, its bounded universes, exactly one answer."
import itertools, random

import pytest
from hypothesis import given, strategies as st

from tables import random_table, tables
from tito_nb.merge_tree import MergeTable, UnknownToken, find_violations
from tito_nb.spec import all_strings, all_tables, all_token_sequences, bpe_spec, derivation, merge_at, optimal, pair_at, ranked_bpe, selected

THE = [(104, 101), (116, 104), (257, 101)]


def test_pair_at_looks_only_inside():
    tokens = [97, 98, 97]
    assert [pair_at(tokens, i, (97, 98)) for i in range(-2, 4)] == [False, False, True, False, False, False]
    assert [pair_at(tokens, i, [98, 97]) for i in range(-3, 3)] == [False, False, False, False, True, False]
    assert not pair_at([], 0, (97, 98)) and not pair_at([97], 0, (97, 97))


def test_selected_and_optimal():
    assert selected(THE, b"thethe") == [(0, 1), (0, 4), (1, 0), (1, 3)] and optimal(THE, b"thethe") == (0, 1)
    assert selected(THE, b"") == selected([], b"the") == [] and optimal(THE, b"xyz") is None
    assert selected([(97, 97), (97, 97)], b"aa") == [(0, 0), (1, 0)]  # the specification also runs on lists that are no valid table


def test_merge_at():
    assert merge_at([1, 2, 3], 0, 9) == (9, 3) and merge_at([1, 2, 3], 1, 9) == (1, 9)
    for tokens, i in (([1, 2, 3], 2), ([1, 2, 3], -1), ([1], 0), ([], 0)):
        with pytest.raises(IndexError, match=f"position {i}"):
            merge_at(tokens, i, 9)


@pytest.mark.parametrize(
    ("rules", "data", "tokens"),
    [
        (THE, b"the", (116, 256)),
        ([(97, 97)], b"aaa", (256, 97)),
        ([(97, 97)], b"aaaaa", (256, 256, 97)),
        ([(98, 99), (97, 98)], b"abc", (97, 256)),
        ([(120, 97), (97, 98)], b"xab", (256, 98)),
        ([(104, 101), (108, 108), (257, 111), (256, 258)], b"hello", (259,)),
        ([(97, 98), (98, 99), (256, 99)], b"abc", (258,)),
        ([], b"\x00\xff", (0, 255)),
        (THE, b"", ()),
        ([(97, 257), (97, 98)], b"aab", (256,)),  # forward reference: not a valid table
        ([(97, 97), (97, 97)], b"aa", (256,)),  # repeated pair: the lower rank
        ([(97, 256)], b"aab", (97, 97, 98)),  # self reference: no harm to the relation
    ],
)
def test_answers_worked_out_by_hand(rules, data, tokens):
    assert ranked_bpe(rules, data) == [tokens] and derivation(rules, data)[-1] == tokens
    assert bpe_spec(rules, data, tokens) and bpe_spec(rules, data, list(tokens))
    assert not bpe_spec(rules, data, (*tokens, 97)) and not bpe_spec(rules, data + b"z", tokens)


def test_there_is_exactly_one_answer_in_a_bounded_universe():
    for rules in all_tables(b"abc", 2):
        table = MergeTable(rules)
        for data in all_strings(b"abc", 4):
            [end] = ranked_bpe(rules, data)
            states = derivation(rules, data)
            assert states[0] == tuple(data) and states[-1] == end and len(states) == len(data) - len(end) + 1
            assert table.decode(end) == data


@given(st.lists(st.tuples(st.integers(97, 99), st.integers(97, 260)), max_size=5), st.text("abc", max_size=8))
def test_there_is_exactly_one_answer_for_any_list_of_rules(rules, text):
    [end] = ranked_bpe(rules, text.encode())
    assert derivation(rules, text.encode())[-1] == end and optimal(rules, end) is None


@given(tables(), st.binary(max_size=12))
def test_no_other_sequence_of_the_same_bytes_is_an_answer(table, data):
    [end] = ranked_bpe(table.rules, data)
    assert bpe_spec(table.rules, data, end)
    for i in range(len(end)):
        if end[i] >= 256:
            other = (*end[:i], *table.rules[end[i] - 256], *end[i + 1 :])
            assert table.decode(other) == data and not bpe_spec(table.rules, data, other)


def test_a_long_input_needs_no_deep_stack():
    assert len(ranked_bpe([(97, 97)], b"a" * 3000)[0]) == 1500


def count(letters, rules):
    return sum(__import__("math").prod(((letters + r) ** 2 - r) for r in range(k)) for k in range(rules + 1))


@pytest.mark.parametrize(("letters", "rules", "length", "n_tables", "cases"), [(b"ab", 3, 5, 485, 30_555), (b"abc", 2, 6, 145, 158_485), (b"ab", 2, 8, 37, 18_907)])
def test_universes_are_complete(letters, rules, length, n_tables, cases):
    found, strings = list(all_tables(letters, rules)), list(all_strings(letters, length))
    assert len(found) == len(set(found)) == n_tables == count(len(letters), rules) and len(strings) == len(set(strings))
    assert len(found) * len(strings) == cases and not any(find_violations(table) for table in found)
    assert [len(table) for table in found] == sorted(len(table) for table in found)
    assert strings == [bytes(letter) for n in range(length + 1) for letter in itertools.product(letters, repeat=n)]


def test_universes_are_lazy_and_bounds_are_up_to():
    assert next(all_tables(bytes(range(256)), 10**6)) == () and next(all_strings(b"ab", 10**9)) == b""
    assert list(all_tables(b"a", 0)) == [()] and list(all_tables(b"", 3)) == [()] and list(all_strings(b"", 3)) == [b""]
    assert list(all_token_sequences(b"a", 1, 2)) == [(), (97,), (256,), (97, 97), (97, 256), (256, 97), (256, 256)]


@pytest.mark.parametrize("bad", [-1, True, None, 1.0, "1"])
def test_bounds_and_letters_are_checked(bad):
    for universe in (all_tables, all_strings, lambda *a: all_token_sequences(*a, 1), lambda letters, bound: all_token_sequences(letters, 1, bound)):
        with pytest.raises(ValueError, match="a bound is an integer from 0 up"):
            universe(b"ab", bad)
    for letters, error in ((b"aa", ValueError), ("ab", TypeError), (None, TypeError)):
        with pytest.raises(error):
            all_tables(letters, 1)


@pytest.mark.parametrize("bad", ["the", None, 5, [116, 104]])
def test_data_must_be_bytes(bad):
    for ask in (lambda: bpe_spec(THE, bad, (116, 256)), lambda: derivation(THE, bad)):
        with pytest.raises(TypeError, match="data must be bytes"):
            ask()


@pytest.mark.parametrize(("tokens", "index"), [("ab", 0), ([97, None], 1), ([97, -1], 1), ([97, True], 1), ([97, 98.0], 1)])
def test_tokens_must_be_ids(tokens, index):
    for ask in (lambda: bpe_spec(THE, b"ab", tokens), lambda: ranked_bpe(THE, tokens)):
        with pytest.raises(UnknownToken, match=f"^index {index}: ") as caught:
            ask()
        assert caught.value.index == index


def test_random_tables_have_one_answer_too():
    rng = random.Random(1)
    for _ in range(200):
        table = random_table(rng, b"abcd", 25)
        data = bytes(rng.choice(b"abcd") for _ in range(rng.randint(0, 30)))
        [end] = ranked_bpe(table.rules, data)
        assert table.decode(end) == data


def rank_by_rank(rules, data):
    "Each rule in turn, wherever it fits, from left to right"
    tokens = list(data)
    for rank, pair in enumerate(rules):
        i = 0
        while i < len(tokens) - 1:
            if (tokens[i], tokens[i + 1]) == pair:
                tokens[i : i + 2] = [256 + rank]
            i += 1
    return tokens


def test_what_breaks_without_each_clause_of_validity():
    "The smallest witnesses: rules that a clause forbids, and a program that relies on it"
    order = ((97, 257), (97, 98))
    assert [v.clause for v in find_violations(order)] == ["order"]
    assert ranked_bpe(order, b"aab") == [(256,)] and rank_by_rank(order, b"aab") == [97, 257]
    unique = ((97, 97), (97, 97))
    assert [v.clause for v in find_violations(unique)] == ["unique"]
    assert ranked_bpe(unique, b"aa") == [(256,)] and {pair: 256 + rank for rank, pair in enumerate(unique)}[97, 97] == 257
    itself = ((97, 256),)
    assert [v.clause for v in find_violations(itself)] == ["self"]
    token, spelled = 256, []  # a decoder that trusts the table: what is left to spell never ends
    for _ in range(1000):
        spelled, token = spelled + [itself[token - 256][0]], itself[token - 256][1]
    assert token == 256 and len(spelled) == 1000
    assert [v.clause for v in find_violations(((97, 300),))] == ["range"] and [v.clause for v in find_violations(((97,),))] == ["shape"]
