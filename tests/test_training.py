"The trainer against its definition and a compiled trainer, and seeded faults against these tests."
import inspect, random, re
from collections import Counter
from types import MappingProxyType

import pytest
from hypothesis import given, settings, strategies as st

from tito_nb import training
from tito_nb.merge_tree import MergeTable
from tito_nb.spec import all_strings
from tito_nb.training import train


def recount(chunks):
    "How often each pair stands side by side in a list of (tokens, times), every position counted"
    counts: Counter = Counter()
    for tokens, times in chunks:
        for i in range(len(tokens) - 1):
            counts[tokens[i], tokens[i + 1]] += times
    return {pair: count for pair, count in counts.items() if count}


def definition(counted, n_merges):
    "The rules that training should give: everything counted anew after each merge"
    chunks, rules = [(list(chunk), times) for chunk, times in counted.items()], []
    while len(rules) < n_merges and (counts := recount(chunks)):
        best = sorted(counts, key=lambda pair: (-counts[pair], pair))[0]
        for tokens, _ in chunks:
            i = 0
            while i < len(tokens) - 1:
                if (tokens[i], tokens[i + 1]) == best:
                    tokens[i : i + 2] = [256 + len(rules)]
                i += 1
        rules.append(best)
    return tuple(rules)


texts = st.dictionaries(
    st.text("ab", max_size=12).map(str.encode) | st.text("abc", max_size=9).map(str.encode) | st.binary(max_size=6), st.integers(0, 4), max_size=6
)


@given(texts, st.integers(0, 16))
@settings(max_examples=600, deadline=None, derandomize=True)
def test_equals_the_definition(counted, n_merges):
    table = train(counted, n_merges)
    assert isinstance(table, MergeTable) and table.rules == definition(counted, n_merges)


def bounded():
    "Small texts: each chunk over two letters up to 7 bytes alone, and each two chunks up to 3 bytes, the first of them twice"
    yield from ({chunk: 1} for chunk in all_strings(b"ab", 7))
    short = list(all_strings(b"ab", 3))
    yield from ({one: 2, other: 1} for one in short for other in short if one != other)


def right(counted, names):
    "Does `train` in `names` learn the rules of the definition, and are the counts right after each merge?"
    rules = definition(counted, 5)
    corpus = names["_corpus"](counted)
    for rank, pair in enumerate(rules):
        names["_merge_corpus"](corpus, pair, 256 + rank)
        if +corpus.counts != recount(zip(corpus.chunks, corpus.times)):
            return False
    return names["train"](counted, 5).rules == rules


def first_wrong(names):
    "How many small texts there were, and the first that is not right; an error is not right"
    count = 0
    for counted in bounded():
        count += 1
        try:
            if not right(counted, names):
                return count, counted
        except Exception:
            return count, counted
    return count, None


def test_every_small_text():
    assert first_wrong(vars(training)) == (465, None)


@given(texts, st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_counts_stay_what_counting_gives(counted, rng):
    corpus = training._corpus(counted)
    for new in range(256, 262):
        if pairs := sorted(+corpus.counts):
            pair = rng.choice(pairs)
            training._merge_corpus(corpus, pair, new)
            assert corpus.counts[pair] == 0 and pair not in corpus.places
        assert dict(+corpus.counts) == recount(zip(corpus.chunks, corpus.times)) and min(corpus.counts.values(), default=0) >= 0
        for k, tokens in enumerate(corpus.chunks):
            assert all(k in corpus.places[pair] for pair in zip(tokens, tokens[1:]))


# what goes in, and what it does not depend on

@given(st.lists(st.text("abc", max_size=6).map(str.encode), max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_only_the_chunks_and_their_counts_matter(chunks, rng):
    expected = train(Counter(chunks), 8)
    shuffled = rng.sample(chunks, len(chunks))
    assert train(chunks, 8) == train(iter(shuffled), 8) == train([bytearray(c) for c in chunks], 8) == train(map(memoryview, chunks), 8) == expected


@given(texts, st.integers(0, 10))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_one_merge_more_adds_one_rule(counted, n_merges):
    fewer, more = train(counted, n_merges).rules, train(counted, n_merges + 1).rules
    assert more[: len(fewer)] == fewer and len(more) <= n_merges + 1


@given(texts)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_no_token_crosses_a_border(counted):
    table = train(counted, 20)
    for token in range(256, table.size):
        assert any(table.token_bytes(token) in chunk for chunk, times in counted.items() if times)


def test_borders_and_counts():
    assert train([b"ab", b"cd"], 9).rules == ((97, 98), (99, 100))  # b and c never meet
    assert train({b"ab": 0, b"cd": 1}, 9).rules == ((99, 100),)
    assert train({b"ab": 1, b"cd": 10**30}, 1).rules == ((99, 100),)
    assert train(MappingProxyType({b"ab": 1, b"cd": 2}), 1).rules == ((99, 100),)
    assert train([b"aaa", b"bc"], 1).rules == ((97, 97),)  # two positions against one


def test_by_hand():
    assert train({b"the": 3, b"then": 2, b"hen": 2}, 10).rules == ((104, 101), (116, 256), (256, 110), (257, 110))
    assert train([b"abab"], 2).rules == ((97, 98), (256, 256)) and train([b"aaa"], 2).rules == ((97, 97), (256, 97))


@pytest.mark.parametrize("chunks", [[], {}, iter(()), [b""], [b"a", b"b"], {b"": 3}, {b"ab": 0}], ids=repr)
def test_no_pair(chunks):
    assert train(chunks, 5) == MergeTable(())


def test_number_of_merges():
    class Index:
        def __index__(self):
            return 2

    assert train([b"abcd"], 0) == MergeTable(()) and len(train([b"abcd"], Index()).rules) == 2
    assert len(train([b"abcd"], 3).rules) == len(train([b"abcd"], 10**9).rules) == 3


@pytest.mark.parametrize("n_merges, error, message", [
    (-1, ValueError, "n_merges must not be negative: -1"),
    (True, TypeError, "n_merges must be an integer, not bool"),
    (2.0, TypeError, "n_merges must be an integer, not float"),
    ("2", TypeError, "n_merges must be an integer, not str"),
    (None, TypeError, "n_merges must be an integer, not NoneType"),
])
def test_other_numbers_are_refused(n_merges, error, message):
    untouched = iter([b"ab"])
    with pytest.raises(error, match=message):
        train(untouched, n_merges)
    assert next(untouched) == b"ab"  # refused before anything was read


@pytest.mark.parametrize("chunks, error, message", [
    (b"ab", TypeError, "not one bytes; for a single chunk, put it into a list"),
    ("ab", TypeError, "not one str; for a single chunk"),
    (bytearray(b"ab"), TypeError, "not one bytearray; for a single chunk"),
    (memoryview(b"ab"), TypeError, "not one memoryview; for a single chunk"),
    (b"", TypeError, "not one bytes"),
    (None, TypeError, "chunks must be an iterable of bytes, not NoneType"),
    (3, TypeError, "chunks must be an iterable of bytes, not int"),
    ([b"ab", "ab"], TypeError, "chunk 1: data must be bytes, not str; encode text first"),
    ([b"ab", b"", 97], TypeError, "chunk 2: data must be bytes, not int"),
    ([None], TypeError, "chunk 0: data must be bytes, not NoneType"),
    ([[97, 98]], TypeError, "chunk 0: data must be bytes, not list"),
    ({"ab": 1}, TypeError, "chunk 0: data must be bytes, not str"),
    ({b"ab": 1, b"b": True}, TypeError, "chunk 1: its count must be an integer, not bool"),
    ({b"ab": 1.0}, TypeError, "chunk 0: its count must be an integer, not float"),
    ({b"ab": None}, TypeError, "chunk 0: its count must be an integer, not NoneType"),
    ({b"ab": 1, b"b": -1}, ValueError, "chunk 1: its count must not be negative: -1"),
], ids=repr)
def test_other_chunks_are_refused(chunks, error, message):
    with pytest.raises(error, match=message):
        train(chunks, 1)


def test_a_chunk_that_cannot_be_read():
    def chunks():
        yield b"ab"
        raise TypeError("of its own")

    with pytest.raises(TypeError, match="^of its own$"):
        train(chunks(), 1)


def test_progress():
    calls = []
    table = train([b"abab"], 5, progress=lambda done, wanted: calls.append((done, wanted)))
    assert table == train([b"abab"], 5) and calls == [(1, 5), (2, 5)]
    assert train([b"abab"], 5, lambda *_: True) == table  # what it returns does not matter

    def stop(done, wanted):
        raise KeyboardInterrupt(done)

    with pytest.raises(KeyboardInterrupt, match="1"):
        train([b"abab"], 5, progress=stop)
    train([b"a"], 5, progress=stop)  # no merge, no call
    with pytest.raises(TypeError, match="progress must be callable or None, not bool"):
        train([b"ab"], 1, progress=True)


# another trainer

def by_rustbpe(text, n_merges, pattern):
    rustbpe = pytest.importorskip("rustbpe", reason="rustbpe is not installed: pip install rustbpe")
    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator([text], vocab_size=256 + n_merges, pattern=pattern)
    return [bytes(spelled) for spelled, _ in tokenizer.get_mergeable_ranks()[256:]]


def spellings(text, n_merges, pattern):
    table = train([chunk.encode() for chunk in re.findall(pattern, text)], n_merges)
    return [table.token_bytes(token) for token in range(256, table.size)]


@pytest.mark.parametrize("seed", range(60))
def test_equals_rustbpe_on_random_text(seed):
    rng = random.Random(seed)
    letters = rng.choice(["ab ", "abc ", "aaab ", "aé中 ", "abcdefgh  "])
    text = "".join(rng.choices(letters, k=rng.randrange(400)))
    pattern = rng.choice([r"[^ ]+", r" ?[^ ]+| +", r"[^ ]{1,5}| +"])
    assert spellings(text, 40, pattern) == by_rustbpe(text, 40, pattern)


def test_equals_rustbpe_on_python_source():
    text, pattern = inspect.getsource(inspect), r" ?[A-Za-z]+|[0-9]+|[^A-Za-z0-9 ]+| +"
    assert spellings(text, 600, pattern) == by_rustbpe(text, 600, pattern)


# seeded faults: would the small texts see them?

NAMES = ["_merge_chunk", "_merge_corpus", "_best", "train"]
FAULTS = {
    "no change to the left": ("_merge_chunk", "if merged:", "if False:"),
    "no change to the right": ("_merge_chunk", "        if i < end:", "        if False:"),
    "the old token to the left": ("_merge_chunk", "((merged[-1], left), -1)", "((tokens[i - 1], left), -1)"),
    "the pair itself stays": ("_merge_chunk", "changes.append((pair, -1))", "pass"),
    "the right half is used twice": ("_merge_chunk", "i += 2", "i += 1"),
    "a chunk counts once": ("_merge_corpus", "by * corpus.times[k]", "by"),
    "new pairs have no place": ("_merge_corpus", "corpus.places[changed].add(k)", "pass"),
    "new pairs are not told": ("_merge_corpus", "came.add(changed)", "pass"),
    "old counts are believed": ("_best", "count == -negative and count > 0", "count > 0"),
    "an old count is thrown away": ("_best", "heappush(heap, (-count, pair))", "pass"),
    "pairs that are gone are merged": ("_best", "count == -negative and count > 0", "count == -negative"),
    "of equal counts the largest pair": ("_best", "heappop(heap)", "heap.pop(heap.index(min(heap, key=lambda e: (e[0], -e[1][0], -e[1][1]))))"),
    "lowest count first": ("train", "heap = [(-count, pair)", "heap = [(count, pair)"),
    "new pairs never wait": ("train", "heappush(heap, (-corpus.counts[pair], pair))", "pass"),
    "one merge too many": ("train", "len(rules) < wanted", "len(rules) <= wanted"),
    "one token number for all": ("train", "256 + len(rules)", "256"),
}


def changed(name, old, new):
    "The names of the module after `old` was replaced by `new` in the source of one function"
    source = inspect.getsource(getattr(training, name))
    assert source.count(old) == 1, (name, old)
    namespace = dict(vars(training))
    for each in NAMES:
        exec(source.replace(old, new) if each == name else inspect.getsource(getattr(training, each)), namespace)
    return namespace


@pytest.mark.parametrize("fault", FAULTS)
def test_the_small_texts_see(fault):
    assert first_wrong(changed(*FAULTS[fault]))[1] is not None, "this fault goes unnoticed"


def test_the_small_texts_see_nothing_where_nothing_was_changed():
    assert first_wrong(changed("train", "heapify(heap)", "heapify(heap)"))[1] is None
