"Errors, tables and tokenizers survive a trip to another process; nothing that is frozen can be changed from outside."
import copy, inspect, pickle, pkgutil
from importlib import import_module

import numpy
import pytest

import tito_nb
from tito_nb.bpe import BpeTokenizer, encode, first_noncanonical, is_canonical, segmentations
from tito_nb.merge_tree import InvalidMergeTable, MergeTable, UnknownToken, find_violations
from tito_nb.rollouts import load_rollouts
from tito_nb.spec import bpe_spec, derivation, ranked_bpe

HE = MergeTable([(104, 101)])
TOKENIZER = BpeTokenizer(HE, control={b"<e>": 300})
ARGUMENTS = {"violations": tuple(find_violations([(97, 256)])), "offset": 3, "index": 2, "position": 1, "token": 999, "size": 257, "length": 70, "byte": 128}


def errors():
    modules = [import_module(module.name) for module in pkgutil.walk_packages(tito_nb.__path__, "tito_nb.") if not module.name.endswith(("cli", "_modidx"))]
    found = {value for module in modules for value in vars(module).values() if inspect.isclass(value) and issubclass(value, Exception) and value.__module__.startswith("tito_nb")}
    return sorted(found, key=lambda error: error.__name__)


@pytest.mark.parametrize("kind", errors(), ids=lambda kind: kind.__name__)
def test_errors_survive_pickling(kind):
    own = inspect.signature(kind).parameters if kind.__init__ not in (ValueError.__init__, ImportError.__init__) else {}
    error = kind(*(ARGUMENTS.get(name, "words") for name in own if name not in ("args", "kwargs")))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error) and vars(again) == vars(error)


def test_tables_and_tokenizers_are_copied_without_what_they_remember():
    long = MergeTable([(97, 97)] + [(255 + rank, 97) for rank in range(1, 3000)])
    long.token_bytes(3255)
    assert len(pickle.dumps(long)) < 60_000 and copy.deepcopy(long) == pickle.loads(pickle.dumps(long)) == long
    again = copy.deepcopy(TOKENIZER)
    assert again.decode([300, 256]) == b"<e>he" and again.control == TOKENIZER.control


def test_what_is_frozen_cannot_be_changed_from_outside():
    for change in (lambda: HE.ranks.clear(), lambda: HE.ranks.update({}), lambda: TOKENIZER.control.update({b"<f>": 301}), lambda: load_rollouts().about.update({})):
        with pytest.raises(AttributeError):
            change()


@pytest.mark.parametrize("rules", [{(97, 98), (98, 99)}, {(97, 98): 0}, "", b"", "ab", 3, None])
def test_rules_need_an_order(rules):
    for ask in (MergeTable, find_violations, lambda rules: ranked_bpe(rules, b"ab"), lambda rules: derivation(rules, b"ab"), lambda rules: bpe_spec(rules, b"ab", [97, 98])):
        with pytest.raises(TypeError, match="rules must be a list"):
            ask(rules)


def test_rules_may_be_read_once():
    lines = ["97 98", "256 99"]
    table = MergeTable(map(int, line.split()) for line in lines)
    assert table.rules == ((97, 98), (256, 99))
    with pytest.raises(InvalidMergeTable, match="^self: rule 1 "):
        MergeTable(map(int, line.split()) for line in ["97 98", "257 99"])
    assert bpe_spec(iter(table.rules), b"abc", [257]) and not bpe_spec(iter(table.rules), b"abc", [256, 99])
    assert derivation(iter(table.rules), b"abc") == [(97, 98, 99), (256, 99), (257,)]


@pytest.mark.parametrize("tokens", [{256}, {256: 1}, {97, 98}, 5, None])
def test_tokens_need_an_order(tokens):
    with pytest.raises(TypeError, match="tokens must be a list"):
        bpe_spec(HE.rules, b"he", tokens)


def test_integers_of_other_kinds_are_ids():
    number = type("Number", (), {"__index__": lambda self: 300, "__hash__": None, "__eq__": lambda self, other: False})()
    assert TOKENIZER.decode([number, numpy.int64(300), numpy.array(300), 256]) == b"<e><e><e>he"
    assert TOKENIZER.first_noncanonical([256, number]) == 1
    ids = BpeTokenizer(HE, byte_ids=numpy.arange(255, -1, -1, dtype=numpy.uint8)).encode("!he")
    assert ids == [222, 256] and {type(token) for token in ids} == {int}
    for bad in ({byte: 255 - byte for byte in range(256)}, set(range(256)), bytes(range(256))):
        with pytest.raises(TypeError, match="byte_ids must be a list"):
            BpeTokenizer(HE, byte_ids=bad)


@pytest.mark.parametrize("control", [[(b"x", 300)], 0, "", False])
def test_control_must_be_a_mapping(control):
    with pytest.raises(TypeError, match="control must map control text to ids"):
        BpeTokenizer(HE, control=control)


def test_what_is_no_table_is_refused_by_name():
    for ask in (lambda: is_canonical([(104, 101)], [97]), lambda: first_noncanonical([(104, 101)], [97]), lambda: segmentations([(104, 101)], b"he"), lambda: encode([(104, 101)], b"he")):
        with pytest.raises(TypeError, match="table must be a MergeTable"):
            ask()
    with pytest.raises(TypeError, match="data must be bytes"):
        segmentations(HE, "he")  # at once, not at the first answer


def test_numbers_with_too_many_digits_keep_their_error():
    huge = 10**5000
    with pytest.raises(UnknownToken, match="^index 1: token <int of too many digits> is outside"):
        HE.decode([97, huge])
    with pytest.raises(InvalidMergeTable, match="range: rule 0 uses token <int of too many digits>"):
        MergeTable([(huge, 1)])
    with pytest.raises(UnknownToken, match="index 0"):
        bpe_spec(HE.rules, b"a", [-huge])
    with pytest.raises(ValueError, match="too many digits"):
        BpeTokenizer(HE, control={b"x": -huge})


def test_items_of_several_bytes_are_not_taken_for_bytes():
    with pytest.raises(TypeError, match="not a memoryview of 4 bytes an item"):
        encode(HE, memoryview(numpy.array([104, 101], dtype=numpy.int32)))


def test_trees_compare_and_hash_without_a_deep_stack():
    deep = MergeTable([(97, 97)] + [(255 + rank, 97) for rank in range(1, 3000)])
    wide = MergeTable([(97, 97)] + [(255 + rank, 255 + rank) for rank in range(1, 18)])
    for table in (deep, wide):
        last = table.size - 1
        assert table.tree(last) == table.tree(last) and hash(table.tree(last)) == hash(table.tree(last)) and table.tree(last) != table.tree(last - 1)
    assert MergeTable([(97, 97), (256, 97), (97, 256)]).tree(257) != MergeTable([(97, 97), (97, 256)]).tree(257)
