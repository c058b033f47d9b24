"The merge table: validity, spelling, trees, files."
import json, pickle, random

import pytest
from hypothesis import given, settings, strategies as st

from tables import random_table, tables
from tito_nb.merge_tree import InvalidMergeTable, InvalidTableFile, MergeTable, UnknownToken, check_bytes, find_violations

HELLO = [(104, 101), (108, 108), (257, 111), (256, 258)]


@pytest.mark.parametrize(
    ("rules", "clause", "rank"),
    [
        ([(97, 98), (258, 97), (97, 97)], "order", 1),
        ([(97, 256)], "self", 0),
        ([(97, 98), (97, 257)], "self", 1),
        ([(97, 98), (97, 300)], "range", 1),
        ([(-1, 98)], "range", 0),
        ([(97, 97), (98, 98), (97, 97)], "unique", 2),
        ([(97, 98, 99)], "shape", 0),
        ([(97,)], "shape", 0),
        ([97], "shape", 0),
        ([None], "shape", 0),
        (["ab"], "shape", 0),
        ([{97, 98}], "shape", 0),
        ([(97, 98), (97, "b")], "shape", 1),
        ([(97, 98.0)], "shape", 0),
        ([(True, 98)], "shape", 0),
    ],
)
def test_each_clause_is_named_with_its_rank(rules, clause, rank):
    assert [(v.clause, v.rank) for v in find_violations(rules)] == [(clause, rank)]
    with pytest.raises(InvalidMergeTable, match=f"^{clause}: rule {rank} ") as caught:
        MergeTable(rules)
    assert caught.value.violations == tuple(find_violations(rules))


def test_all_violations_are_reported():
    rules = [(97, 256), (258, 999), (97, 97), (97, 97)]
    assert [(v.clause, v.rank) for v in find_violations(rules)] == [("self", 0), ("order", 1), ("range", 1), ("unique", 3)]


@given(st.lists(st.tuples(st.integers(95, 262), st.integers(95, 262)), max_size=5))
def test_violations_say_what_validity_says(rules):
    valid = all(token < 256 + rank for rank, pair in enumerate(rules) for token in pair) and len(set(rules)) == len(rules)
    assert (find_violations(rules) == []) == valid


def test_rules_are_taken_as_any_iterable_of_pairs():
    numpy_like = type("Int", (), {"__index__": lambda self: 104})()
    for rules in (HELLO, tuple(HELLO), iter(HELLO), [list(rule) for rule in HELLO], [(numpy_like, 101), *HELLO[1:]]):
        assert MergeTable(rules).rules == tuple(HELLO)
    with pytest.raises(TypeError):
        MergeTable(None)


def test_a_table_cannot_be_changed_and_compares_by_its_rules():
    table, rules = MergeTable(HELLO), [list(rule) for rule in HELLO]
    other = MergeTable(rules)
    rules[0][0] = 0
    assert other == table and hash(other) == hash(table) and pickle.loads(pickle.dumps(table)) == table
    assert table != MergeTable(HELLO[:3])
    with pytest.raises(AttributeError):
        table.rules = ()


@given(tables(), st.data())
def test_decode_distributes_over_concatenation(table, data):
    ids = st.lists(st.integers(0, table.size - 1), max_size=8)
    a, b = data.draw(ids), data.draw(ids)
    assert table.decode(a + b) == table.decode(a) + table.decode(b)
    assert table.decode(a) == b"".join(leaves(table, token) for token in a)


def leaves(table, token):
    if token < 256:
        return bytes([token])
    left, right = table.rules[token - 256]
    return leaves(table, left) + leaves(table, right)


@given(tables())
def test_tree_has_the_rules_inside_and_the_bytes_below(table):
    for token in range(250, table.size):
        tree = table.tree(token)
        assert tree.data == leaves(table, token) == table.token_bytes(token)
        if token < 256:
            assert (tree.rank, tree.left, tree.right) == (None, None, None)
        else:
            assert tree.rank == token - 256 and (tree.left.token, tree.right.token) == table.rules[tree.rank]
            assert tree.left == table.tree(tree.left.token) and tree.right == table.tree(tree.right.token)


def test_tree_as_text():
    assert str(MergeTable(HELLO).tree(258)) == "258 'llo'  rank 2\n├─ 257 'll'  rank 1\n│  ├─ 108 'l'\n│  └─ 108 'l'\n└─ 111 'o'"


def test_deep_and_wide_tokens():
    deep = MergeTable([(97, 97)] + [(255 + rank, 97) for rank in range(1, 5000)])
    assert deep.token_bytes(5255) == b"a" * 5001 and deep.tree(5255).data == b"a" * 5001 and repr(deep.tree(5255))
    wide = MergeTable([(97, 97)] + [(255 + rank, 255 + rank) for rank in range(1, 60)])  # the last token has 2**60 bytes
    assert wide.token_bytes(260) == b"a" * 32 and wide.rank(314, 314) == 59


@pytest.mark.parametrize("bad", [260, -1, True, "a", None, 97.0, b"a"])
def test_unknown_tokens_are_refused_with_their_index(bad):
    table = MergeTable(HELLO)
    with pytest.raises(UnknownToken) as caught:
        table.decode([256, 258, bad])
    assert caught.value.index == 2 and caught.value.token is bad and str(caught.value).startswith("index 2: ")
    for ask in (table.token_bytes, table.tree, lambda token: table.rank(token, 97), lambda token: table.rank(97, token)):
        with pytest.raises(UnknownToken):
            ask(bad)


def test_check_bytes():
    assert check_bytes(bytearray(b"a")) == check_bytes(memoryview(b"a")) == b"a"
    for bad in ("a", None, 3, [97], (97,)):
        with pytest.raises(TypeError, match="data must be bytes, not " + type(bad).__name__):
            check_bytes(bad)


def test_reprs():
    assert repr(MergeTable([])) == "MergeTable([])" and repr(MergeTable(HELLO[:2])) == "MergeTable([(104, 101), (108, 108)])"
    assert repr(MergeTable([(97, 97 + i) for i in range(9)])) == "MergeTable([(97, 97), (97, 98), (97, 99), (97, 100), ...], 9 rules)"
    assert "<td>256</td>" in MergeTable([(ord("<"), ord("&"))])._repr_html_() and "&lt;&amp;" in MergeTable([(60, 38)])._repr_html_()


def test_saved_tables_come_back(tmp_path):
    rng = random.Random(0)
    for table in (MergeTable([]), MergeTable(HELLO), random_table(rng, b"abc", 40)):
        table.save(tmp_path / "table.json")
        assert MergeTable.load(str(tmp_path / "table.json")) == table
    assert [path.name for path in tmp_path.iterdir()] == ["table.json"]


def test_every_changed_or_missing_byte_of_a_file_is_found(tmp_path):
    path, table = tmp_path / "table.json", MergeTable(HELLO)
    table.save(path)
    whole = path.read_bytes()
    for i in range(len(whole)):
        for damaged in (whole[:i], whole[:i] + whole[i + 1 :], *(whole[:i] + bytes([byte]) + whole[i + 1 :] for byte in b"0 9\"\xff{")):
            path.write_bytes(damaged)
            try:
                loaded = MergeTable.load(path)
            except InvalidTableFile as error:
                assert str(path) in str(error)
            else:  # white space may go or come; a table is never another one
                assert loaded == table and json.loads(damaged) == json.loads(whole)


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "table.json"
    content = {"format": "tito_nb.MergeTable", "version": 1, "rules": [[97, 98]]}
    foreign = ["[]", "3", "{}", json.dumps({**content, "format": "other"}), json.dumps({**content, "version": 2}), json.dumps({**content, "version": True}), json.dumps(content),
               json.dumps({**content, "rules": [[97, 256]]}), json.dumps({**content, "rules": 3}), json.dumps({**content, "rules": None})]
    for text in foreign:
        path.write_text(text)
        with pytest.raises(InvalidTableFile):
            MergeTable.load(path)
    with pytest.raises(FileNotFoundError):
        MergeTable.load(tmp_path / "none.json")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    MergeTable(HELLO).save(path)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        MergeTable([]).save(path)
    assert MergeTable.load(path) == MergeTable(HELLO) and [p.name for p in tmp_path.iterdir()] == ["table.json"]
