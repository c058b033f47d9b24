"Faults planted in the encoders and the checkers: which tests see them, and which do not. The lesson 'Three encoders' holds the first dozen."
import pytest
from notebooks import ROOT, read, text
from test_merging import BESIDE, CHECKERS, NONE, STEPS, TOKENS, TWO, misjudged

from tito_nb import merging
from tito_nb.merge_tree import MergeTable
from tito_nb.merging import Derivation, check_linear, encode_textbook

CELLS = {cell["id"]: text(cell["source"]) for cell in read(ROOT / "nbs" / "deeper" / "merging.ipynb")["cells"]}


def run(*ids):
    "The names of the module, and those that these cells of the lesson add"
    names = dict(vars(merging))
    for each in ids:
        exec(CELLS[each], names)
    return names


CODE = ("merging-by-hand-imports", "merging-faults-code")
TAUGHT, planted = (run(*CODE)[name] for name in ("FAULTS", "planted"))
MORE = {
    "textbook: leftmost whatever its rank": ("encode_textbook", "min(found)", "found[0]"),
    "textbook: the last pair is not seen": ("encode_textbook", "pairwise(tokens)", "pairwise(tokens[:-1])"),
    "short: rightmost of equal ranks": ("encode_short", "gaps.index(rank)", "len(gaps) - 1 - gaps[::-1].index(rank)"),
    "short: no repair of the first gap": ("encode_short", "if i > 0:", "if i > 1:"),
    "short: no repair of the last gap": ("encode_short", "if i < len(gaps):", "if i < len(gaps) - 1:"),
    "short: the wrong gap goes": ("encode_short", "del gaps[i]", "del gaps[-1]"),
    "long: used-up tokens stay": ("_sweep", "256 + rank, -1", "256 + rank, tokens[j]"),
    "long: the first token has no right to join": ("_sweep", "if before >= 0:", "if before > 0:"),
    "long: right neighbour not noted": ("_sweep", "waiting.note(ranks.get((tokens[i], tokens[after])), i)", "pass"),
    "long: right neighbour noted at its own place": ("_sweep", "tokens[after])), i)", "tokens[after])), after)"),
    "long: rank noted last goes first": ("_Waiting", "heappop(self.ranks)", "self.ranks.pop()"),
    "long: one place for each rank": ("_Waiting", "self.places[rank].append(position)", "self.places[rank] = [position]"),
    "long: nothing comes out": ("encode_long", "if token >= 0]", "if token < -1]"),
}
FAULTS = TAUGHT | MORE


@pytest.fixture(scope="module")
def lesson():
    return run(*CODE, "merging-faults-run")


@pytest.fixture(scope="module")
def seen(lesson):
    "What each test of the lesson says of each fault: the number of the case that shows it, or a dot"
    return lesson["seen"] | {fault: lesson["seen_by"](*change) for fault, change in MORE.items()}


def missed(seen, test):
    "The faults that a test lets pass"
    return {fault for fault, said in seen.items() if said[test] == "."}


# the encoders

def test_the_lesson_shows_all_that_it_plants(lesson):
    assert list(lesson["seen"]) == list(TAUGHT) and len(TAUGHT) == 12 and len(FAULTS) == 25
    assert {name: len(cases) for name, cases in lesson["universes"].items()} == {"2, 2, 4": 37 * 31, "2, 3, 5": 30_555, "3, 2, 4": 17_545}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_universe_of_three_rules_sees(fault, seen):
    assert isinstance(seen[fault]["2, 3, 5"], int), "this fault goes unnoticed"


def test_what_the_smaller_universes_miss(seen):
    assert missed(seen, "2, 3, 5") == set()
    assert missed(seen, "2, 2, 4") == missed(seen, "3, 2, 4") == {"long: rank noted first goes first"}


def test_what_a_round_trip_finds(seen):
    assert set(seen) - missed(seen, "round trip") == {
        "textbook: the token before", "short: no repair to the left", "short: no repair to the right", "short: no repair of the first gap",
        "short: no repair of the last gap", "short: the wrong gap goes", "long: stale places used", "long: used-up tokens stay",
        "long: nothing comes out"}


def test_what_canonical_tokens_and_certificates_miss(seen):
    assert missed(seen, "canonical") == {"long: link to the left not mended", "long: nothing comes out"}
    assert missed(seen, "certificate") == {"long: link to the left not mended"}
    assert all((said["certificate"] == "") == FAULTS[fault][0].startswith("encode_") for fault, said in seen.items())


@pytest.mark.parametrize("fault", FAULTS)
def test_round_trip_and_canonical_are_together_as_good_as_the_specification(fault, lesson, seen):
    name, old, new = FAULTS[fault]
    encode = planted(name, old, new)[name if name.startswith("encode") else "encode_long"]
    first = lesson["until_seen"](lesson["texts"], lambda data: encode(lesson["six"], data) == encode_textbook(lesson["six"], data))
    assert first == min((n for n in (seen[fault]["round trip"], seen[fault]["canonical"]) if n != "."), default=".")


def test_another_table_shows_the_link_that_six_rules_cannot_show(lesson):
    names = planted(*FAULTS["long: link to the left not mended"])
    for rules, shown in ((lesson["six"].rules, False), ((*lesson["six"].rules, (256, 257)), True)):
        table = MergeTable(rules)
        assert shown == any(names["encode_long"](table, data) != encode_textbook(table, data) for data, in lesson["texts"])
        assert shown == any(not check_linear(table, names["derive"](table, data)) for data, in lesson["texts"])


def test_nothing_planted_nothing_seen(lesson):
    for name in ("encode_textbook", "encode_short", "_sweep", "encode_long"):
        whole = f"def {name}("
        assert set(lesson["seen_by"](name, whole, whole).values()) <= {".", ""}
    assert all(case[1] == [] or encode_textbook(*case[:2]) == case[2] for cases in lesson["universes"].values() for case in cases)


@pytest.mark.parametrize(("old", "times"), [("no such piece", 0), ("", "many"), ("tokens", "many")])
def test_a_fault_that_fits_no_single_place_is_an_error(old, times):
    with pytest.raises(ValueError, match="occurs 0 times in _sweep" if times == 0 else r"occurs \d+ times in _sweep"):
        planted("_sweep", old, "pass")


def test_planting_leaves_the_module_alone():
    before = dict(vars(merging))
    names = planted("_sweep", "in places:", "in reversed(places):")
    assert dict(vars(merging)) == before and names["_sweep"] is not merging._sweep
    assert names["encode_long"](MergeTable(((97, 97),)), b"aaa") == [97, 256] and names["Derivation"] is Derivation


def test_the_answer_to_an_exercise(lesson):
    encode = planted(*FAULTS["long: used-up tokens stay"])["encode_long"]
    table, data, _ = next(case for case in lesson["universes"]["2, 3, 5"] if encode(*case[:2]) != case[2])
    assert (table.rules, data, encode(table, data)) == (((97, 97),), b"aa", [256, 97])


# the checkers

CHECKER_FAULTS = {  # seen where every order of merges is offered
    "stopping early is allowed": ("check_derivation", "optimal(table.rules, tokens) is None and ", ""),
    "the end is not compared": ("check_derivation", " and tokens == given.tokens", ""),
    "a step is not compared": ("check_derivation", "choice is None or step != (choice[0], offsets[choice[1]])", "choice is None"),
    "positions for offsets": ("check_derivation", "offsets[choice[1]]", "choice[1]"),
    "the left offset goes": ("check_derivation", "del offsets[i + 1]", "del offsets[i]"),
    "steps beyond the end": ("check_derivation", "if choice is None or", "if choice is not None and"),
    "linear: any order": ("check_linear", "step <= last or ", ""),
    "linear: the first step is the last": ("check_linear", "        last = step\n", ""),
    "linear: no look at the pair to the left": ("check_linear", "key(left[i]) < step or ", ""),
    "linear: no look at the pair to the right": ("check_linear", " or key(j) < step", ""),
    "linear: the pair to the right is above": ("check_linear", "key(j) < step", "key(j)[0] <= rank"),
    "linear: stopping early is allowed": ("check_linear", "all(key(i) == (inf, i) for i in rest) and ", ""),
    "linear: the end is not compared": ("check_linear", " and given.tokens == tuple(tokens[i] for i in rest)", ""),
    "linear: link to the left not mended": ("check_linear", "left[right[j]] = i", "pass"),
    "linear: link to the right not mended": ("check_linear", ", right[j]\n", ", right[i]\n"),
    "linear: used-up tokens stay": ("check_linear", "256 + rank, -1,", "256 + rank, tokens[j],"),
    "linear: the last position has no end": ("check_linear", " and right[i] < end", ""),
}
FORM_FAULTS = {  # seen only where something malformed is offered
    "linear: any rule will do": ("check_linear", "key(i) != step", "key(i) == (inf, i)"),
    "linear: offsets below 0": ("check_linear", "0 <= i < end", "i < end"),
    "linear: offsets above the end": ("check_linear", "0 <= i < end", "0 <= i"),
    "sequences of any kind": ("_ints", "not isinstance(value, (tuple, list))", "not hasattr(value, '__len__')"),
    "what is no integer is passed over": ("_ints", "ints if len(ints) == len(value) else None", "ints"),
    "steps of any kind": ("_plain", "not isinstance(derivation.steps, (tuple, list))", "False"),
    "steps of any length": ("_plain", " and len(pair) == 2", ""),
    "steps that are no pairs are passed over": ("_plain", " or len(pairs) < len(derivation.steps)", ""),
    "True is 1": ("_ints", "token_id(part)", "(int(part) if isinstance(part, bool) else token_id(part))"),
    "any kind of derivation": ("_plain", "not isinstance(derivation, Derivation)", "False"),
}
AB = MergeTable(((97, 98),))
MALFORMED = [(AB, Derivation(b"ab", steps, (256,))) for steps in BESIDE] + [(TWO, Derivation(b"ab", steps, (257,))) for steps in STEPS]
MALFORMED += [(TWO, Derivation(b"ab", ((0, 0),), (256,)))]  # the rule of another rank
MALFORMED += [(NONE, Derivation(b"\x01", (), tokens)) for tokens in TOKENS]


def agrees(check, table, other):
    "Does `check` refuse, as it should, and in the same way?"
    try:
        return check(table, other) is False and isinstance(other, Derivation)
    except TypeError as error:
        return not isinstance(other, Derivation) and str(error).startswith("derivation must be a Derivation")
    except Exception:
        return False


@pytest.mark.parametrize("fault", CHECKER_FAULTS)
def test_every_order_of_merges_sees(fault):
    check = planted(*CHECKER_FAULTS[fault])[CHECKER_FAULTS[fault][0]]
    assert misjudged(check)[1] is not None or misjudged(check, 3, 4)[1] is not None, "this fault goes unnoticed"


@pytest.mark.parametrize("fault", FORM_FAULTS)
def test_what_is_malformed_sees(fault):
    name, old, new = FORM_FAULTS[fault]
    names = planted(name, old, new)
    for check in CHECKERS if name != "check_linear" else [check_linear]:
        offered = [*MALFORMED, (TWO, (b"ab", ((1, 0),), (257,)))]
        assert all(agrees(check, *each) for each in offered)
        assert not all(agrees(names[check.__name__], *each) for each in offered), "this fault goes unnoticed"


def test_tokens_of_another_form_are_not_plain():
    names = planted("_plain", "tokens is None or ", "")
    assert merging._plain(Derivation(b"", (), None)) is None is not names["_plain"](Derivation(b"", (), None))


def test_checkers_made_anew_judge_as_before():
    names = planted("check_linear", "def check_linear(", "def check_linear(")
    assert misjudged(names["check_derivation"])[1] is misjudged(names["check_linear"])[1] is None
