"The three encoders and the derivations against the specification. Faults planted against these tests: test_mutants.py."
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tito_nb.merge_tree import MergeTable
from tito_nb.merging import Derivation, check_derivation, check_linear, derive, encode_long, encode_short, encode_textbook
from tito_nb.spec import all_strings, all_tables, derivation, merge_at, ranked_bpe, selected

ENCODERS = [encode_textbook, encode_short, encode_long]
CHECKERS = [check_derivation, check_linear]


def cases(letters, max_rules, max_len):
    "Every (table, data, what the specification says) up to the bounds, fewer rules and shorter strings first"
    found = []
    for rules in all_tables(letters, max_rules):
        table = MergeTable(rules)
        for data in all_strings(letters, max_len):
            [right] = ranked_bpe(rules, data)
            found.append((table, data, list(right)))
    return found


@pytest.fixture(scope="module")
def universe():
    return cases(b"ab", 3, 5)


@st.composite
def tables(draw, letters=b"abcd"):
    "Valid tables: with ties, tokens that nothing reaches, and chains as deep as the table is long"
    tokens = list(letters[: draw(st.integers(2, len(letters)))])
    rules: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(0, 14))):
        recent = tokens if draw(st.booleans()) else tokens[-3:]
        pair = (draw(st.sampled_from(recent)), draw(st.sampled_from(tokens)))
        pair = pair[::-1] if draw(st.booleans()) else pair
        if pair not in rules:
            tokens.append(256 + len(rules))
            rules.append(pair)
    return MergeTable(tuple(rules))


@st.composite
def inputs(draw):
    "A table and bytes made of its letters and of what its tokens spell"
    table = draw(tables())
    parts = [table.token_bytes(token) for token in (*b"abcd", *range(256, table.size))]
    parts = [part for part in parts if len(part) <= 40]
    return table, b"".join(draw(st.lists(st.sampled_from(parts), max_size=20)))


# the encoders

def test_universe(universe):
    assert len({table.rules for table, _, _ in universe}) == 485 and len(universe) == 30_555
    for encoder in ENCODERS:
        wrong = [(table.rules, data) for table, data, right in universe if encoder(table, data) != right]
        assert not wrong, (encoder.__name__, wrong[0])


def test_three_letters():
    small = cases(b"abc", 2, 4)
    assert len({table.rules for table, _, _ in small}) == 145 and len(small) == 17_545
    for encoder in ENCODERS:
        assert all(encoder(table, data) == right for table, data, right in small), encoder.__name__


@given(inputs())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_textbook_is_the_specification(case):
    table, data = case
    assert tuple(encode_textbook(table, data)) == derivation(table.rules, data)[-1]


@pytest.mark.parametrize("encoder", [encode_short, encode_long])
@given(case=inputs())
@settings(max_examples=250, deadline=None, derandomize=True)
def test_quick_encoders(encoder, case):
    table, data = case
    tokens = encoder(table, data)
    assert tokens == encode_textbook(table, data)
    assert table.decode(tokens) == data


@pytest.mark.parametrize("encoder", [encode_short, encode_long])
@pytest.mark.parametrize("data", [b"a" * 700, b"ab" * 350, b"aab" * 200], ids=["a", "ab", "aab"])
@pytest.mark.parametrize(
    "rules",
    [
        [(97, 97), *((256 + r, 256 + r) for r in range(8))],  # doubling
        [(97, 97), *((256 + r, 97) for r in range(120))],  # a deep chain to the left
        [(97, 98), *((97, 256 + r) if r % 2 else (256 + r, 97) for r in range(60))],
        [(97, 97), (97, 98), (98, 97), (256, 257), (258, 256), (259, 259)],
    ],
    ids=["doubling", "chain", "both sides", "ties"],
)
def test_long_runs(encoder, data, rules):
    table = MergeTable(tuple(rules))
    assert encoder(table, data) == encode_textbook(table, data)


def test_131072_bytes():
    doubling = MergeTable(((97, 97), *((256 + rank, 256 + rank) for rank in range(16))))
    assert encode_long(doubling, b"a" * 131_072) == [272]
    assert encode_long(doubling, b"a" * 131_071) == [*range(271, 255, -1), 97]


@pytest.mark.parametrize("encoder", [encode_short, encode_long])
def test_look_ups_grow_with_the_length(encoder):
    class Counting(dict):
        asked = 0

        def get(self, pair, default=None):
            self.asked += 1
            return super().get(pair, default)

    for n in (64, 1024):
        table = MergeTable(((97, 97), (256, 256), (257, 257)))
        object.__setattr__(table, "ranks", Counting(table.ranks))
        encoder(table, b"a" * n)
        assert 0 < table.ranks.asked < 3 * n


@pytest.mark.parametrize("encoder", ENCODERS)
def test_bytes_like_data(encoder):
    table, data = MergeTable(((97, 98), (256, 97))), bytearray(b"aab")
    assert encoder(table, data) == encoder(table, memoryview(data)) == encoder(table, b"aab") == [97, 256]
    assert data == b"aab"
    assert encoder(table, memoryview(b"a-a-b-")[::2]) == [97, 256]
    tokens = encoder(table, bytes(range(256)))
    assert type(tokens) is list and {type(token) for token in tokens} == {int} and len(tokens) == 255


@pytest.mark.parametrize("encoder", ENCODERS)
def test_nothing_to_merge(encoder):
    table = MergeTable(((97, 98),))
    assert encoder(table, b"") == [] and encoder(table, b"a") == [97] and encoder(MergeTable(()), b"ab") == [97, 98]


@pytest.mark.parametrize("function", [*ENCODERS, derive])
@pytest.mark.parametrize("data", ["ab", None, [97, 98], (97,), 97, True])
def test_other_data_is_refused(function, data):
    with pytest.raises(TypeError, match=f"data must be bytes, not {type(data).__name__}"):
        function(MergeTable(((97, 98),)), data)


@pytest.mark.parametrize("table", [None, [(97, 98)], ((97, 98),), {(97, 98): 0}, "table", MergeTable], ids=repr)
@pytest.mark.parametrize("function", [*ENCODERS, derive, *CHECKERS])
def test_other_tables_are_refused(function, table):
    for last in (b"ab", b"", Derivation(b"ab", ((0, 0),), (256,))):
        with pytest.raises(TypeError, match=f"table must be a MergeTable.* not {type(table).__name__}"):
            function(table, last)


# derivations

def test_derivations_of_the_universe(universe):
    merges = 0
    for table, data, right in universe:
        made = derive(table, data)
        assert list(made.tokens) == right and made.data == data
        assert len(made.steps) == len(data) - len(right)
        assert list(made.steps) == sorted(set(made.steps))  # strictly ascending
        assert check_derivation(table, made) and check_linear(table, made)
        merges += len(made.steps)
    assert merges > 30_000


def every_order(rules, data):
    "Every way to make merges one after the other, in any order, stopping anywhere: (steps, tokens)"
    todo = [(tuple(data), tuple(range(len(data))), ())]
    while todo:
        tokens, offsets, steps = todo.pop()
        yield steps, tokens
        for rank, i in selected(rules, tokens):
            todo.append((merge_at(tokens, i, 256 + rank), offsets[: i + 1] + offsets[i + 2 :], (*steps, (rank, offsets[i]))))


def misjudged(check, max_rules=2, max_len=5, letters=b"ab"):
    "How many derivations were offered, and the first that `check` judges otherwise than the specification"
    offered = 0
    for rules in all_tables(letters, max_rules):
        table = MergeTable(rules)
        for data in all_strings(letters, max_len):
            states, made = derivation(rules, data), derive(table, data).steps
            for steps, tokens in every_order(rules, data):
                claims = [(steps, end) for end in sorted({tokens, tuple(data), states[-1]})] + [((*steps, (0, 0)), tokens)]
                for steps, end in claims:
                    right = end == states[-1] and steps == made
                    offered += 1
                    try:
                        judged = check(table, Derivation(data, steps, end))
                    except Exception as error:
                        judged = error
                    if judged is not right:
                        return offered, (rules, data, steps, end)
    return offered, None


EVERY_ORDER = [(b"ab", 2, 5, 19_338), (b"ab", 3, 4, 99_584), (b"abc", 2, 4, 68_582)]  # letters, rules, bytes, derivations offered
DEEP = [pytest.param(*bound, marks=pytest.mark.deep) for bound in ((b"ab", 3, 6, 1_085_470), (b"abc", 2, 6, 1_016_195))]


@pytest.mark.parametrize("check", CHECKERS)
@pytest.mark.parametrize(("letters", "max_rules", "max_len", "count"), EVERY_ORDER + DEEP)
def test_accepted_if_and_only_if_the_specifications(check, letters, max_rules, max_len, count):
    offered, wrong = misjudged(check, max_rules, max_len, letters)
    assert wrong is None and offered == count


@given(inputs())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_random_derivations(case):
    table, data = case
    made = derive(table, data)
    assert check_derivation(table, made) and check_linear(table, made) and made.tokens == tuple(encode_textbook(table, data))


@given(inputs(), st.data())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_changed_derivation_is_not_the_specifications(case, data):
    table, text = case
    made = derive(table, text)
    numbers = [n for step in made.steps for n in step] + list(made.tokens)
    if not numbers:
        return
    at = data.draw(st.integers(0, len(numbers) - 1))
    numbers[at] += data.draw(st.sampled_from([-256, -1, 1, 2, 10**30]))
    steps = tuple(zip(numbers[: 2 * len(made.steps) : 2], numbers[1 : 2 * len(made.steps) : 2]))
    other = Derivation(text, steps, tuple(numbers[2 * len(steps) :]))
    assert check_derivation(table, other) is check_linear(table, other) is False


@given(inputs(), st.data())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_merges_in_any_order_are_judged_alike(case, data):
    "Merges chosen at random, often the optimal one, stopped anywhere, with the tokens that they lead to"
    table, text = case
    tokens, offsets, steps = tuple(text), list(range(len(text))), []
    while choices := selected(table.rules, tokens):
        if data.draw(st.integers(0, 9)) == 0:
            break
        rank, i = data.draw(st.sampled_from(choices[:2] if data.draw(st.booleans()) else choices[:1]))
        steps.append((rank, offsets[i]))
        tokens = merge_at(tokens, i, 256 + rank)
        del offsets[i + 1]
    offered = Derivation(text, tuple(steps), tokens)
    assert check_linear(table, offered) is check_derivation(table, offered) is (offered == derive(table, text))


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | st.floats() | st.text(max_size=2) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.integers(), inner, max_size=2),
    max_leaves=8,
)


@pytest.mark.parametrize("check", CHECKERS)
@given(steps=junk, tokens=junk)
@settings(max_examples=400, deadline=None, derandomize=True)
def test_junk_is_not_the_specifications(check, steps, tokens):
    assert check(MergeTable(((97, 98), (256, 98))), Derivation(b"abb", steps, tokens)) is False


BESIDE = [((0, -1),), ((0, -2),), ((0, 2),), ((0, 10**30),), ((0, -(10**30)),), ((-1, 0),), ((1, 0),), ((10**400, 0),), ((0, 1),), ((0, 0), (0, 0)), ((0, 0), (0, 1))]


@pytest.mark.parametrize("check", CHECKERS)
@pytest.mark.parametrize("steps", BESIDE)
def test_steps_beside_the_text_are_not_the_specifications(check, steps):
    for tokens in ((256,), (97, 98), (256, 256), ()):
        assert check(MergeTable(((97, 98),)), Derivation(b"ab", steps, tokens)) is False


INSIDE = [((True, 0),), ((1, False),), ((1, np.False_),), ((1.0, 0),), ((np.float64(1), 0),), (("1", 0),), ((1, None),), ((1, (0,)),), ((1, [[[]]]),)]
STEPS = [*INSIDE, ((1,),), ((1, 0, 0),), ((1, 0), ()), ((1, 0), None), ({1: 0},), (range(1, -1, -1),), {(1, 0)}, {(1, 0): 0}, np.array([[1, 0]]), "ab", 1, None]
TOKENS = [(True,), (np.True_,), (1.0,), ("1",), ((1,),), b"\x01", "\x01", np.array([1]), range(1, 2), None, 1, (1, 1), (1, None), (), {1}, {1: 1}]
TWO, NONE = MergeTable(((98, 98), (97, 98))), MergeTable(())


@pytest.mark.parametrize("check", CHECKERS)
@pytest.mark.parametrize("steps", STEPS, ids=repr)
def test_steps_of_another_form(check, steps):
    assert check(TWO, Derivation(b"ab", ((1, 0),), (257,)))
    assert check(TWO, Derivation(b"ab", steps, (257,))) is False


@pytest.mark.parametrize("check", CHECKERS)
@pytest.mark.parametrize("tokens", [*TOKENS, iter([1])], ids=lambda tokens: repr(tokens).partition(" object at")[0])
def test_tokens_of_another_form(check, tokens):
    assert check(NONE, Derivation(b"\x01", (), (1,)))
    assert check(NONE, Derivation(b"\x01", (), tokens)) is False


@pytest.mark.parametrize("check", CHECKERS)
def test_a_rule_that_does_not_fit_its_place(check):
    assert check(TWO, Derivation(b"ab", ((0, 0),), (256,))) is False  # rule 1 does
    assert check(TWO, Derivation(b"abb", ((1, 0), (0, 1)), (257, 256))) is False  # the place went with the step before


@pytest.mark.parametrize("check", CHECKERS)
def test_integers_of_numpy(check):
    one, zero = np.int64(1), np.uint8(0)
    assert check(TWO, Derivation(b"ab", ((one, zero),), (np.int32(257),)))
    assert check(TWO, Derivation(b"ab", [tuple(np.array([1, 0]))], list(np.array([257]))))
    assert check(TWO, Derivation(b"ab", ((one, one),), (257,))) is False


@pytest.mark.parametrize("check", CHECKERS)
def test_a_list_that_holds_itself(check):
    itself: list = [1]
    itself.append(itself)
    assert check(TWO, Derivation(b"ab", itself, (257,))) is False  # type: ignore[arg-type]
    assert check(TWO, Derivation(b"ab", (itself,), itself)) is False  # type: ignore[arg-type]


@pytest.mark.parametrize("check", CHECKERS)
def test_lists_say_the_same_as_tuples(check):
    table = MergeTable(((97, 98),))
    assert check(table, Derivation(b"ab", [[0, 0]], [256]))  # type: ignore[arg-type]  # as JSON gives it


@pytest.mark.parametrize("check", CHECKERS)
@pytest.mark.parametrize("other", [None, (b"ab", ((0, 0),), (256,)), {"data": b"ab"}, Derivation])
def test_what_is_no_derivation(check, other):
    with pytest.raises(TypeError, match=f"derivation must be a Derivation, not {type(other).__name__}"):
        check(MergeTable(((97, 98),)), other)


def test_a_derivation_is_a_value():
    table, data = MergeTable(((97, 98),)), bytearray(b"ab")
    made = derive(table, data)
    data[0] = 0
    assert made == Derivation(b"ab", ((0, 0),), (256,)) and hash(made) == hash(derive(table, b"ab"))
    with pytest.raises(AttributeError):
        made.steps = ()  # type: ignore[misc]
    with pytest.raises(TypeError, match="data must be bytes, not str"):
        Derivation("ab", (), ())  # type: ignore[arg-type]
    assert derive(table, b"") == Derivation(b"", (), ()) and check_derivation(table, derive(table, b""))
