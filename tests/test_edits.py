"Figures of edits: frames by property, drawings as XML, the page in Chromium."
import json, re
from dataclasses import FrozenInstanceError, asdict
from itertools import pairwise
from xml.dom import minidom

import pytest
from hypothesis import assume, example, given, settings, strategies as st
from tables import tables
from test_views import FAULTS, NASTY, PAGE, WIDTHS, browser, page, sized  # noqa: F401

from tito_nb.bpe import encode
from tito_nb.merge_tree import MergeTable
from tito_nb.views import edits, theme
from tito_nb.views.edits import EDITS_CSS, LIMIT, EditTooLong, NothingChanged, changed_part, edit_frame, edit_svg, edits_html, edits_picture, spliced_tokens

LETTERS = b"bcdefgh"
CHAIN = MergeTable([(LETTERS[i], LETTERS[i + 1]) for i in range(len(LETTERS) - 2, -1, -1)])
BYTES = MergeTable([])
SHADES = """() => [...document.querySelectorAll('.tn-edits text')].map(e => { const box = e.parentElement.querySelector(':scope > rect'),
  ground = box ? getComputedStyle(box).fill : 'none'; return [getComputedStyle(e).fill, ground == 'none' ? getComputedStyle(e.closest('.tn')).backgroundColor : ground] })"""
texts = st.lists(st.sampled_from(b"abc"), max_size=9).map(bytes) | st.binary(max_size=9)
words = st.lists(st.sampled_from(b"abc"), max_size=5).map(bytes)


@st.composite
def changes(draw):
    "A text before and after an edit, mostly one that leaves much as it was"
    if draw(st.integers(0, 9)) == 0:
        before, after = draw(texts), draw(texts)
    else:
        head, tail, old, new = (draw(words) for _ in range(4))
        before, after = head + old[:2] + tail, head + new[:2] + tail
    assume(before != after)
    return before, after


@given(texts | words, texts | words)
def test_what_changed_is_between_what_is_the_same(before, after):
    if before == after:
        with pytest.raises(NothingChanged):
            changed_part(before, after)
        return
    start, gone, came = changed_part(before, after)
    assert before[:start] == after[:start] and before[start + gone :] == after[start + came :] and gone + came > 0
    assert len(before) - gone == len(after) - came  # all the rest is the same
    for at in range(start + 1):
        other, less, more = changed_part(before, after, at)
        assert other == at and before[:at] == after[:at] and before[at + less :] == after[at + more :]
        assert at + less == len(before) or at + more == len(after) or before[at + less - 1 : at + less] != after[at + more - 1 : at + more] or 0 in (less, more)


@pytest.mark.parametrize("at", [-1, 3, 7])
def test_an_edit_begins_where_the_texts_are_still_the_same(at):
    with pytest.raises(ValueError, match="between 0 and 2"):
        changed_part(b"abc", b"abx", at)


@given(tables(b"abc", 12), changes(), st.data())
@settings(max_examples=300)
def test_rows_are_the_tokens_on_one_grid(table, change, data):
    before, after = change
    at = data.draw(st.none() | st.integers(0, changed_part(before, after)[0]))
    start, gone, came = changed_part(before, after, at)
    frame, wide = edit_frame(table, before, after, at), max(gone, came)
    columns = {"before": [*range(start + gone), *range(start + wide, frame.columns)], "after": [*range(start + came), *range(start + wide, frame.columns)]}
    rows = [(frame.before, before, "before", encode(table, before)), (frame.anew, after, "after", encode(table, after)), (frame.spliced, after, "after", spliced_tokens(table, before, after, at))]
    for row, text, side, tokens in rows:
        assert [token.token for token in row] == tokens and b"".join(bytes(token.data) for token in row) == text
        offset = 0
        for token in row:
            assert (token.start, token.end - 1) == (columns[side][offset], columns[side][offset + len(token.data) - 1])
            offset += len(token.data)
    assert all(a.end <= b.start for row, *_ in rows for a, b in pairwise(row)) and all(token.state == "old" for token in frame.before)
    assert json.loads(json.dumps(asdict(frame)))["at"] == start
    with pytest.raises(FrozenInstanceError):
        frame.at = 0


def held(table, tokens):
    "The token over each byte of a text: its id and the byte at which it begins"
    return [(token, i) for token, i in placed(table, tokens) for _ in table.token_bytes(token)]


def placed(table, tokens):
    "Tokens, each with the byte at which it begins"
    ends = [0]
    for token in tokens:
        ends.append(ends[-1] + len(table.token_bytes(token)))
    return [*zip(tokens, ends)]


@given(tables(b"abc", 12), changes(), st.data())
@settings(max_examples=500)
def test_kept_tokens_and_the_reach_are_right_byte_by_byte(table, change, data):
    before, after = change
    at = data.draw(st.none() | st.integers(0, changed_part(before, after)[0]))
    start, gone, came = changed_part(before, after, at)
    frame, old = edit_frame(table, before, after, at), placed(table, encode(table, before))
    beside = [(i, i) for i in range(start)] + [(start + gone + i, start + came + i) for i in range(len(before) - start - gone)]  # a byte then and now
    for row, tokens in ((frame.anew, encode(table, after)), (frame.spliced, spliced_tokens(table, before, after, at))):
        states = []
        for token, first in placed(table, tokens):
            last = first + len(table.token_bytes(token))
            moved = [(token, first)] if last <= start else [(token, first - came + gone)] if first >= start + came else []
            holds = any(start <= i < start + came for i in range(first, last))
            states.append("edited" if holds else "kept" if set(moved) & set(old) else "changed")
        assert [token.state for token in row] == states
    was, now = held(table, encode(table, before)), held(table, encode(table, after))
    whole = lambda token, first: first >= start + came or first + len(table.token_bytes(token)) <= start  # all of it on one side of the edit
    kept = lambda i, j: was[i][0] == now[j][0] and i - was[i][1] == j - now[j][1] and whole(*now[j])
    lost = [i for i, j in beside if not kept(i, j)]
    assert frame.left == max((start - i for i in lost if i < start), default=0)
    assert frame.right == max((i - start - gone + 1 for i in lost if i >= start + gone), default=0)
    assert frame.left_tokens == len({was[i] for i in range(start - frame.left, start)})
    assert frame.right_tokens == len({was[i] for i in range(start + gone, start + gone + frame.right)})


@given(tables(b"abc", 12), changes())
@example(BYTES, (b"", b"b"))
def test_captions_agree_with_the_frames(table, change):
    before, after = change
    frame = edit_frame(table, before, after)
    start, gone, came = changed_part(before, after)
    said = re.sub("‹[^›]*›", "‹›", frame.caption)
    assert said.count("‹›") == (gone > 0) + (came > 0) and said.endswith(".") and said.count(".") == 1
    numbers = [int(number) for number in re.findall(r"\d+", said)]
    lost = len(frame.before) - sum(token.state == "kept" for token in frame.anew)
    sides = [n for pair in ((frame.left, frame.left_tokens), (frame.right, frame.right_tokens)) if pair[0] for n in pair]
    assert numbers == [start, *([lost, len(frame.before)] if before else []), *sides]
    assert ("to the left" in said, "to the right" in said) == (frame.left > 0, frame.right > 0) and ("nothing beside" in said) == (sides == [])
    assert not re.search(r"\b1 (bytes|tokens|old tokens)|\b([02-9]|1\d) (byte|token|old token)\b(?!s)", said)
    for name, row in edits._rows(frame)[1:]:
        assert re.findall(r"\d+", name) == [str(sum(token.state == "kept" for token in row)), str(len(frame.before))]
    xml = minidom.parseString(edit_svg(frame))
    assert xml.getElementsByTagName("desc")[0].firstChild.data == frame.caption
    shown = [text.firstChild.data for text in xml.getElementsByTagName("text") if text.firstChild.nodeType == text.TEXT_NODE]
    far = [f"{n} byte{'s' * (n != 1)} to the {side}" for n, side in ((frame.left, "left"), (frame.right, "right")) if n]
    assert [text for text in shown if text.startswith("reaches")] == (["reaches " + ", ".join(far)] if sides else [])


@given(tables(b"abc", 12), changes())
@settings(max_examples=300)
@example(CHAIN, (LETTERS[:-1], LETTERS))
def test_a_splice_keeps_what_the_edit_does_not_touch(table, change):
    before, after = change
    start, gone, came = changed_part(before, after)
    spliced, offset, kept, ends = spliced_tokens(table, before, after), 0, [], []
    assert table.decode(spliced) == after
    for token in encode(table, before):
        end = offset + len(table.token_bytes(token))
        kept += [token] if end <= start or offset >= start + gone else []
        ends.append(end)
        offset = end
    left = sum(end <= start for end in ends)
    assert spliced[:left] == kept[:left] and spliced[len(spliced) - (len(kept) - left) :] == kept[left:]
    assert spliced[left : len(spliced) - (len(kept) - left)] == encode(table, after[max([0, *ends[:left]]) : len(after) - len(table.decode(kept[left:]))])


FAMILIES = [
    (MergeTable([(98, 99), (97, 98)]), b"ab", b"abc", None, 2, 0, "‹c› is put in at byte 2: 1 of 1 old token is gone, as far as 2 bytes (1 token) to the left."),
    (MergeTable([(120, 97), (97, 98)]), b"ab", b"xab", None, 0, 2, "‹x› is put in at byte 0: 1 of 1 old token is gone, as far as 2 bytes (1 token) to the right."),
    (MergeTable([(97, 97), (97, 99)]), b"aaaaaac", b"aaaaaaac", 0, 0, 7, "‹a› is put in at byte 0: 4 of 4 old tokens are gone, as far as 7 bytes (4 tokens) to the right."),
    (CHAIN, LETTERS[:-1], LETTERS, None, 6, 0, "‹h› is put in at byte 6: 3 of 3 old tokens are gone, as far as 6 bytes (3 tokens) to the left."),
    (BYTES, b"ab", b"b", None, 0, 0, "‹a› at byte 0 is taken out: 1 of 2 old tokens is gone, and nothing beside it changes."),
    (BYTES, b"a<b", b"a>b", None, 0, 0, "‹<› at byte 1 becomes ‹>›: 1 of 3 old tokens is gone, and nothing beside it changes."),
    (BYTES, b"", b"b", None, 0, 0, "‹b› is put in at byte 0: there was no token before, and nothing beside it changes."),
]


@pytest.mark.parametrize(("table", "before", "after", "at", "left", "right", "caption"), FAMILIES)
def test_families(table, before, after, at, left, right, caption):
    frame = edit_frame(table, before, after, at)
    assert (frame.left, frame.right, frame.caption) == (left, right, caption)


@pytest.mark.parametrize("n", range(1, 8))
def test_with_a_fixed_table_an_edit_reaches_to_the_right_at_any_distance(n):
    frame = edit_frame(MergeTable([(97, 97), (97, 99)]), b"a" * 2 * n + b"c", b"a" * (2 * n + 1) + b"c", 0)
    assert (frame.right, frame.right_tokens) == (2 * n + 1, n + 1)


@pytest.mark.parametrize("n", range(2, LIMIT, 2))
def test_with_a_table_that_grows_no_token_survives(n):
    letters = bytes(range(60, 60 + n + 1))
    table = MergeTable([(letters[i], letters[i + 1]) for i in range(n - 1, -1, -1)])
    frame = edit_frame(table, letters[:n], letters)
    assert (frame.left, frame.left_tokens, frame.right) == (n, n // 2, 0)
    assert not {token.token for token in frame.before} & {token.token for token in frame.anew}
    assert [token.state for token in frame.spliced] == ["kept"] * (n // 2) + ["edited"]


nasty = st.binary(max_size=9) | st.integers(0, len(NASTY) - 1).map(lambda i: NASTY[i : i + 9])


@given(nasty, nasty)
@example(b"", b"\0")
@example(b"<|\"&'>", b"<|\"\xf0\x9f'>")
def test_pictures_are_xml_whatever_the_bytes(before, after):
    assume(before != after)
    frame = edit_frame(MergeTable([(60, 124), (0xF0, 0x9F)]), before, after)
    xml = minidom.parseString(edits_html([frame, frame]).encode())
    rows = [*frame.before, *frame.anew, *frame.spliced]
    for drawing in xml.getElementsByTagName("svg"):
        boxes = [group for group in drawing.getElementsByTagName("g") if group.getAttribute("class") in edits.SIGNS]
        ids = [group.getElementsByTagName("text")[1].lastChild for group in boxes]
        assert [group.getAttribute("class") for group in boxes] == [token.state for token in rows]
        assert [node.data for node in ids] == [str(token.token) for token in rows]
    cells = [cell for cell in xml.getElementsByTagName("td")]
    assert [len(cell.getElementsByTagName("code")) for cell in cells[1:6:2]] == [len(row) for row in (frame.before, frame.anew, frame.spliced)]


def test_only_colours_of_the_palette_and_all_can_be_read():
    used = set(re.findall(r"var\(--tn-(\w+)\)", EDITS_CSS))
    assert used <= {*theme.LIGHT} and used <= {*theme.DARK} and not re.search(r"#[0-9a-fA-F]{3}|rgb|opacity", EDITS_CSS)
    assert theme.check_palette() == []
    assert {("ink", "paper"), ("ink", "wash"), ("ink", "pick"), ("soft", "paper"), ("driftink", "paper")} <= set(theme.TEXT_PAIRS)
    assert {("drift", "paper"), ("line", "paper"), ("pickink", "paper")} <= set(theme.MARK_PAIRS)


def test_the_picture_is_the_same_each_time_and_says_its_sentences():
    frames = [edit_frame(*family[:4]) for family in FAMILIES] * 2  # the same twice is no matter
    picture = edits_picture(*frames)
    assert picture.markup == edits_picture(*frames).markup and repr(picture) == " ".join(frame.caption for frame in frames)
    ids = [part.split('"')[0] for part in picture.markup.split(' id="')[1:]]
    again = edits_picture(*frames, salt="2").markup
    assert len(ids) == len(set(ids)) == 2 * len(frames) and not set(ids) & {part.split('"')[0] for part in again.split(' id="')[1:]}
    with pytest.raises(ValueError, match="no edit"):
        edits_picture()


@pytest.mark.parametrize(("table", "before", "after", "marks"), [
    (CHAIN, LETTERS[:-1], LETTERS, ["the edit", "kept", "another token", "holds what came", "no byte here"]),
    (BYTES, b"", b"b", ["the edit", "holds what came", "no byte here"]), (BYTES, b"abc", b"axc", ["the edit", "kept", "holds what came"]),
    (MergeTable([(97, 98)]), b"ab", b"a", ["the edit", "another token", "no byte here"]), (MergeTable([(97, 98)]), b"ab", b"axb", ["the edit", "another token", "holds what came"]),
])
def test_the_key_has_the_marks_that_occur(table, before, after, marks):
    xml = minidom.parseString(edits_html([edit_frame(table, before, after)]))
    (legend,) = [part for part in xml.getElementsByTagName("div") if part.getAttribute("class") == "tn-legend"]
    assert [entry.lastChild.data for entry in legend.childNodes] == marks
    (box,) = [part for part in xml.getElementsByTagName("div") if "tn-ripple" in part.getAttribute("class")]
    assert box.getAttribute("tabindex") == "0" and box.getAttribute("aria-label")


def test_limits():
    edit_frame(BYTES, b"a" * LIMIT, b"a" * (LIMIT - 1))
    with pytest.raises(EditTooLong, match=f"{LIMIT + 1} bytes are too many to draw, the limit is {LIMIT}"):
        edit_frame(BYTES, b"a" * LIMIT, b"a" * (LIMIT + 1))
    for before, after in ((b"a" * (LIMIT + 1), b"a" * LIMIT), (b"a" * (LIMIT + 1), b"b"), (b"ab" * 6, b"cd" * 13)):
        with pytest.raises(EditTooLong) as caught:
            edit_frame(BYTES, before, after)
        assert caught.value.length == max(len(before), len(after))
    for bad in ((None, b"a", b"b"), (BYTES, "a", b"b"), (BYTES, b"a", None)):
        with pytest.raises(TypeError):
            edit_frame(*bad)
    for bad in ((BYTES, "a", b"b"), (BYTES, b"a", None), (None, b"a", b"b")):
        with pytest.raises(TypeError):
            spliced_tokens(*bad)
    for bad in (("a", "ab"), (b"a", "ab"), (b"ab", b"abc", True), (b"ab", b"abc", 1.0), (b"ab", b"abc", "1")):
        with pytest.raises(TypeError):
            changed_part(*bad)
    with pytest.raises(NothingChanged):
        edit_frame(BYTES, b"a", bytearray(b"a"))
    assert edit_frame(BYTES, bytearray(b"a"), memoryview(b"ab")) == edit_frame(BYTES, b"a", b"ab")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shown", ["light", "dark"])
def test_nothing_sticks_out(page, width, shown):  # noqa: F811
    wide = edit_frame(BYTES, bytes(range(200, 200 + LIMIT - 1)), bytes(range(200, 200 + LIMIT - 2)) + b"\xff\0")
    ends = [edit_frame(MergeTable([(97, 98)]), b"\xff" * (LIMIT - 2) + b"a", b"\xff" * (LIMIT - 2) + b"ab"), edit_frame(MergeTable([(97, 98), (120, 97)]), b"c" * 19 + b"ab", b"c" * 19 + b"xab")]
    frames = [edit_frame(*family[:4]) for family in FAMILIES] + [wide, *ends, edit_frame(MergeTable([(97, 98)]), b"c" * 19 + b"ab", b"c" * 19 + b"axb")]
    sized(page, width).set_content(PAGE.format(f"<style>{theme.theme_css()}{theme.squeeze(EDITS_CSS)}</style>" + edits_html(frames, shown)))
    assert page.evaluate(FAULTS) == []
    boxes = page.evaluate("""() => [...document.querySelectorAll('.tn-edits g')].filter(g => g.querySelector('rect')).flatMap(g => {
      const box = g.querySelector('rect').getBoundingClientRect();
      return [...g.querySelectorAll('text')].filter(t => { const r = t.getBoundingClientRect(); return r.left < box.left - .5 || r.right > box.right + .5 }).map(t => t.textContent) })""")
    assert boxes == []
    outside = """() => [...document.querySelectorAll('.tn-edits text, .tn-edits rect, .tn-edits path')].filter(e => { const r = e.getBoundingClientRect(), box = e.closest('svg').getBoundingClientRect();
      return r.left < box.left - .5 || r.right > box.right + .5 || r.top < box.top - .5 || r.bottom > box.bottom + .5 }).map(e => e.textContent)"""
    assert page.evaluate(outside) == []
    shades = {tuple("#" + "".join(f"{int(n):02X}" for n in re.findall(r"\d+", colour)) for colour in pair) for pair in map(tuple, page.evaluate(SHADES))}
    assert len(shades) >= 5 and [pair for pair in shades if theme.contrast(*pair) < 4.5] == []
    scrolls = page.evaluate("[...document.querySelectorAll('.tn-ripple')].map(e => e.scrollWidth > e.clientWidth)")
    assert scrolls == [False] * len(FAMILIES) + [width < 900] * 4


@pytest.mark.parametrize("shown", ["light", "dark"])
def test_accessibility(page, shown):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.emulate_media(color_scheme=shown)
    page.set_content(PAGE.format(edits_picture(*(edit_frame(*family[:4]) for family in FAMILIES)).markup))
    page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true })")
    found = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "best-practice"]}).response["violations"]
    assert [one["id"] for one in found if one["id"] != "page-has-heading-one"] == []
