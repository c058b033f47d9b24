"Figures of edits: frames by property, drawings as XML, the page in Chromium."
import json
from dataclasses import asdict
from xml.dom import minidom

import pytest
from hypothesis import given, settings, strategies as st
from tables import tables
from test_views import FAULTS, PAGE, WIDTHS, browser, page, sized  # noqa: F401

from tito_nb.bpe import encode
from tito_nb.merge_tree import MergeTable
from tito_nb.views import theme
from tito_nb.views.edits import EDITS_CSS, LIMIT, EditTooLong, NothingChanged, changed_part, edit_frame, edit_svg, edits_html, edits_picture, spliced_tokens

LETTERS = b"bcdefgh"
CHAIN = MergeTable([(LETTERS[i], LETTERS[i + 1]) for i in range(len(LETTERS) - 2, -1, -1)])
texts = st.lists(st.sampled_from(b"abc"), max_size=9).map(bytes) | st.binary(max_size=9)


@given(texts, texts)
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


@given(tables(b"abc", 12), texts, texts, st.data())
@settings(max_examples=300)
def test_rows_are_the_tokens_on_one_grid(table, before, after, data):
    if before == after:
        return
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
    old = {(token.token, token.start, token.end) for token in frame.before}
    for token in (*frame.anew, *frame.spliced):
        holds = came > 0 and token.start < start + came and token.end > start
        assert token.state == ("edited" if holds else "kept" if (token.token, token.start, token.end) in old else "changed")
    new = [column for token in frame.anew if token.state != "kept" for column in range(token.start, token.end)]
    assert frame.left == max([start - column for column in new if column < start], default=0)
    assert frame.right == max([column - start - wide + 1 for column in new if column >= start + wide], default=0)
    assert json.loads(json.dumps(asdict(frame)))["at"] == start


@given(tables(b"abc", 12), texts, texts)
def test_a_splice_keeps_what_the_edit_does_not_touch(table, before, after):
    if before == after:
        return
    start, gone, came = changed_part(before, after)
    spliced, offset, kept = spliced_tokens(table, before, after), 0, []
    assert table.decode(spliced) == after
    for token in encode(table, before):
        end = offset + len(table.token_bytes(token))
        kept += [token] if end <= start or offset >= start + gone else []
        offset = end
    left = sum(1 for n in range(len(kept) + 1) if spliced[:n] == kept[:n]) - 1
    assert spliced[:left] + spliced[len(spliced) - (len(kept) - left) :] == kept


FAMILIES = [
    (MergeTable([(98, 99), (97, 98)]), b"ab", b"abc", None, 2, 0, "‹c› is put in at byte 2: 1 of 1 old token is gone, as far as 2 bytes to the left."),
    (MergeTable([(120, 97), (97, 98)]), b"ab", b"xab", None, 0, 2, "‹x› is put in at byte 0: 1 of 1 old token is gone, as far as 2 bytes to the right."),
    (MergeTable([(97, 97), (97, 99)]), b"aaaaaac", b"aaaaaaac", 0, 0, 7, "‹a› is put in at byte 0: 4 of 4 old tokens are gone, as far as 7 bytes to the right."),
    (CHAIN, LETTERS[:-1], LETTERS, None, 6, 0, "‹h› is put in at byte 6: 3 of 3 old tokens are gone, as far as 6 bytes to the left."),
    (MergeTable([]), b"ab", b"b", None, 0, 0, "‹a› at byte 0 is taken out: 1 of 2 old tokens is gone, and nothing beside it changes."),
    (MergeTable([]), b"a<b", b"a>b", None, 0, 0, "‹<› at byte 1 becomes ‹>›: 1 of 3 old tokens is gone, and nothing beside it changes."),
    (MergeTable([]), b"", b"b", None, 0, 0, "‹b› is put in at byte 0: there was no token before, and nothing beside it changes."),
]


@pytest.mark.parametrize(("table", "before", "after", "at", "left", "right", "caption"), FAMILIES)
def test_families(table, before, after, at, left, right, caption):
    frame = edit_frame(table, before, after, at)
    assert (frame.left, frame.right, frame.caption) == (left, right, caption)


@pytest.mark.parametrize("n", range(1, 8))
def test_with_a_fixed_table_an_edit_reaches_to_the_right_at_any_distance(n):
    frame = edit_frame(MergeTable([(97, 97), (97, 99)]), b"a" * 2 * n + b"c", b"a" * (2 * n + 1) + b"c", 0)
    assert frame.right == 2 * n + 1


@given(st.binary(min_size=1, max_size=8), st.binary(max_size=8))
def test_pictures_are_xml_whatever_the_bytes(before, after):
    if before == after:
        return
    frame = edit_frame(MergeTable([(60, 124), (0xF0, 0x9F)]), before, after)
    assert minidom.parseString(edit_svg(frame).encode())
    assert minidom.parseString(edits_html([frame, frame]).replace("&nbsp;", " ").encode())


def test_the_picture_is_the_same_each_time_and_says_its_sentences():
    frames = [edit_frame(*family[:4]) for family in FAMILIES]
    picture = edits_picture(*frames)
    assert picture.markup == edits_picture(*frames).markup and repr(picture) == " ".join(frame.caption for frame in frames)
    ids = [part.split('"')[0] for part in picture.markup.split(' id="')[1:]]
    assert len(ids) == len(set(ids)) == 2 * len(frames)
    for state, word in (("kept", "kept"), ("changed", "another token"), ("edited", "holds what came")):
        assert (f">{word}<" in edits_html(frames[:1])) == any(t.state == state for t in (*frames[0].anew, *frames[0].spliced))
    assert ">another token<" not in edits_html(frames[-1:]) and "kept" not in edits_html(frames[-1:])


def test_limits():
    edit_frame(MergeTable([]), b"a" * LIMIT, b"a" * (LIMIT - 1))
    with pytest.raises(EditTooLong, match=f"{LIMIT + 1} bytes are too many to draw, the limit is {LIMIT}"):
        edit_frame(MergeTable([]), b"a" * LIMIT, b"a" * (LIMIT + 1))
    with pytest.raises(EditTooLong):
        edit_frame(MergeTable([]), b"ab" * 6, b"cd" * 13)
    for bad in ((None, b"a", b"b"), (MergeTable([]), "a", b"b"), (MergeTable([]), b"a", None)):
        with pytest.raises(TypeError):
            edit_frame(*bad)
    with pytest.raises(NothingChanged):
        edit_frame(MergeTable([]), b"a", bytearray(b"a"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shown", ["light", "dark"])
def test_nothing_sticks_out(page, width, shown):  # noqa: F811
    wide = edit_frame(MergeTable([]), bytes(range(200, 200 + LIMIT - 1)), bytes(range(200, 200 + LIMIT - 2)) + b"\xff\0")
    frames = [edit_frame(*family[:4]) for family in FAMILIES] + [wide]
    sized(page, width).set_content(PAGE.format(f"<style>{theme.theme_css()}{theme.squeeze(EDITS_CSS)}</style>" + edits_html(frames, shown)))
    assert page.evaluate(FAULTS) == []
    boxes = page.evaluate("""() => [...document.querySelectorAll('.tn-edits g')].filter(g => g.querySelector('rect')).flatMap(g => {
      const box = g.querySelector('rect').getBoundingClientRect();
      return [...g.querySelectorAll('text')].filter(t => { const r = t.getBoundingClientRect(); return r.left < box.left - .5 || r.right > box.right + .5 }).map(t => t.textContent) })""")
    assert boxes == []
