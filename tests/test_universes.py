"Every encoder, certificate and answer of `is_canonical` against the specification, on every table and string up to a bound."
import pytest

from tito_nb.bpe import encode, inner_pairs, is_canonical, segmentations, splits_safely
from tito_nb.merge_tree import MergeTable
from tito_nb.merging import check_derivation, check_linear, derive, encode_long, encode_short, encode_textbook
from tito_nb.spec import all_strings, all_tables, bpe_spec, ranked_bpe

EACH_RUN = [(b"ab", 3, 5, 30_555), (b"abc", 2, 4, 17_545)]  # letters, rules, bytes, cases
DEEP = [(b"ab", 2, 8, 18_907), (b"abc", 2, 6, 158_485), (b"ab", 4, 6, 1_313_307)]
BOUNDS = EACH_RUN + [pytest.param(*bound, marks=pytest.mark.deep) for bound in DEEP]


@pytest.mark.parametrize(("letters", "max_rules", "max_len", "count"), BOUNDS)
def test_all_agree_with_the_relation(letters, max_rules, max_len, count):
    cases = 0
    for rules in all_tables(letters, max_rules):
        table, inner = MergeTable(rules), inner_pairs(MergeTable(rules))
        for data in all_strings(letters, max_len):
            [right] = ranked_bpe(rules, data)
            made, at = derive(table, data), (rules, data)
            assert right == tuple(encode(table, data)) == made.tokens, at
            assert list(right) == encode_textbook(table, data) == encode_short(table, data) == encode_long(table, data), at
            assert bpe_spec(rules, data, right) and check_derivation(table, made) and check_linear(table, made), at
            assert len(made.steps) == len(data) - len(right) and table.decode(right) == data, at
            assert [tokens for tokens in segmentations(table, data) if is_canonical(table, tokens)] == [right], at
            borders = {len(table.decode(right[:i])) for i in range(len(right) + 1)}
            for i in range(1, len(data)):
                assert splits_safely(table, data[:i], data[i:]) == (i in borders), (*at, i)
                assert (data[i - 1], data[i]) in inner or i in borders, (*at, i)
            cases += 1
    assert cases == count
