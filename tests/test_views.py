"Figures: frames by property, drawings as XML, captions, palettes, pictures."
import dataclasses, hashlib, itertools, json, re, struct, subprocess, sys, zlib
from pathlib import Path
from xml.dom import minidom

import pytest
from hypothesis import given, settings, strategies as st

from tito_nb.merge_tree import MergeTable
from tito_nb.rollouts import load_rollouts
from tito_nb.spec import derivation, optimal, selected
from tito_nb.views import merge, opening, theme
from tito_nb.views.merge import candidate_table, merge_html, merge_picture, merge_steps_html, merge_steps_picture, merge_svg, telling_step
from tito_nb.views.merge_frames import LIMIT, ROWS, TextTooLong, merge_frames

ALL = bytes(range(256))
NASTY = "‹a›>]]>&\"'<|im_end|> ‹ é😀\t\r\n".encode() + b"\x00\xc3\xf0\x9f\x98"


@st.composite
def tables(draw, letters=b"a\x00"):
    "Valid merge tables over a few letters"
    rules: list[tuple[int, int]] = []
    for rank in range(draw(st.integers(0, 8))):
        tokens = st.sampled_from([*letters, *range(256, 256 + rank)])
        pair = draw(st.tuples(tokens, tokens))
        if pair in rules:
            break
        rules.append(pair)
    return MergeTable(tuple(rules))


texts = st.lists(st.sampled_from(b"a\x00"), max_size=20).map(bytes) | st.binary(max_size=20)


def xml(markup: str) -> minidom.Document:
    return minidom.parseString(f"<r>{markup}</r>".encode())


# ---------------------------------------------------------------- theme


def test_palette():
    assert theme.check_palette() == []
    assert set(theme.LIGHT) == set(theme.DARK)


@pytest.mark.parametrize("name", ["ink", "soft", "loss", "drift"])
def test_a_weak_colour_is_found(name):
    assert any(fault.startswith(f"dark: {name} on") for fault in theme.check_palette(dark=theme.DARK | {name: theme.DARK["panel"]}))


def test_every_variable_is_in_the_palette_and_every_colour_is_a_name():
    css = theme.theme_css() + merge.MERGE_CSS + merge.steps_css(3) + opening.OPENING_CSS
    frames = merge_frames(load_rollouts().table, b"tokenizer")
    markup = css + opening.opening_html() + "".join(merge_html(frame) for frame in frames)
    fixed = {"sans", "mono", *(f"{name}-size" for name in theme.TYPE)}
    assert set(re.findall(r"var\(--tn-([\w-]+)\)", markup)) <= set(theme.LIGHT) | fixed
    assert not re.findall(r"#[0-9A-Fa-f]{3,6}\b", opening.opening_html() + merge.MERGE_CSS + opening.OPENING_CSS)


def test_no_rule_reaches_out_of_the_figures():
    css = re.sub(r"@(media|container|supports)[^{]*\{", "", theme.theme_css() + theme.squeeze(merge.MERGE_CSS + merge.steps_css(2) + opening.OPENING_CSS))
    selectors = [part for rule in re.findall(r"([^{}]+)\{", css) for part in re.split(r",(?![^(]*\))", rule)]
    assert len(selectors) > 80 and not [s for s in selectors if ".tn" not in s]


def test_squeeze_keeps_what_a_selector_means():
    assert theme.squeeze("a :is(b, c) { d: e }\n\n.f:hover {\n g: h; i: j }") == "a :is(b, c){d: e}.f:hover{g: h;i: j}"


@given(st.binary(max_size=12))
def test_every_byte_is_shown_once(data):
    back = b""
    for text, kind in theme.runs(data):
        spaces = {glyph: bytes([byte]) for byte, glyph in theme.SPACES.items()}
        back += spaces[text] if kind == "space" else bytes.fromhex(text) if kind == "hex" else text.encode()
    assert back == data
    assert theme.visible(data).isprintable() and "\n" not in theme.visible(data)


def test_glyphs():
    assert theme.visible(b"a \r\n\t\x00\xc3") == r"a␣↵⏎⇥\x00\xC3"
    assert theme.visible("é😀".encode()) == "é😀" and theme.visible("\u200b".encode()) == r"\xE2\x80\x8B"
    assert theme.glyph_svg(b"\xf0\x9f<") == '<tspan class="hex">F0 9F</tspan>&lt;'
    assert theme.glyph_html(b" <\xff") == '<span class="tn-space">␣</span>&lt;<span class="tn-hex">FF</span>'


@given(st.lists(st.binary(max_size=6) | st.sampled_from(["‹".encode(), "›".encode(), b"&<"]), max_size=3))
def test_quoted_data_can_be_read_back_from_a_sentence(parts):
    sentence = " and ".join(theme.quoted(part) for part in parts)
    found = xml(theme.sentence_html(sentence)).getElementsByTagName("code")
    assert ["".join(node.data for node in one.childNodes) for one in found] == [theme.quoted(part)[1:-1] for part in parts]


@given(st.binary(max_size=8), st.binary(max_size=8))
def test_quoting_does_not_mark_more_than_the_data(one, other):
    text = theme.quoted(one)
    assert text.count("‹") == text.count("›") == 1 and theme.lead(text, [theme.quoted(other)]).count("<code>") == 2


def test_contrast_is_that_of_wcag():
    assert theme.contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.005)  # the grey that WCAG's own understanding document names
    assert theme.contrast("#000000", "#FFFFFF") == pytest.approx(21)


def test_standalone_is_a_file_with_its_own_style():
    frame = merge_frames(MergeTable(((97, 97),)), b"aa&")[0]
    for text, css in ((merge_svg(frame), merge.TREE_CSS), (opening.opening_svg(), "")):
        for name, palette in (("light", theme.LIGHT), ("dark", theme.DARK)):
            file = theme.standalone(text, css, name)
            root = minidom.parseString(file.encode()).documentElement
            assert root.tagName == "svg" and palette["ink"] in file and root.getElementsByTagName("style")
    with pytest.raises(ValueError):
        theme.standalone("<svg></svg>")


# ---------------------------------------------------------------- frames


@settings(deadline=None)
@given(tables(), texts)
def test_frames_are_the_derivation(table, data):
    frames = merge_frames(table, data)
    assert [tuple(frame.tokens) for frame in frames] == derivation(table.rules, data)
    assert [frame.step for frame in frames] == list(range(len(frames))) and {frame.last for frame in frames} == {len(frames) - 1}
    for frame in frames:
        ends = [0, *(node.end for node in frame.nodes)]
        assert [node.start for node in frame.nodes] == ends[:-1] and ends[-1] == len(data)
        assert all(table.token_bytes(node.token) == data[node.start : node.end] for node in frame.nodes)
        assert sorted((pair.rank, pair.at) for pair in frame.pairs if pair.rank is not None) == selected(table.rules, frame.tokens)
        chosen = [(pair.rank, pair.at) for pair in frame.pairs if pair.chosen]
        assert chosen == ([] if frame is frames[-1] else [optimal(table.rules, frame.tokens)])
        lowest = [pair for pair in frame.pairs if chosen and pair.rank == chosen[0][0]]
        assert [pair.tied for pair in frame.pairs] == [len(lowest) > 1 and pair in lowest for pair in frame.pairs]


@settings(deadline=None)
@given(tables(), texts)
def test_each_step_adds_the_newest_token_inside_a_final_one(table, data):
    frames = merge_frames(table, data)
    assert frames[0].newest is None
    for before, after in itertools.pairwise(frames):
        (new,) = set(after.nodes) - set(before.nodes)
        assert new.start == after.newest and new.left in before.nodes and new.right in before.nodes
        assert new.height == 1 + max(new.left.height, new.right.height)
        assert any(piece.start <= new.start and new.end <= piece.end for piece in after.plan.pieces)


@settings(deadline=None)
@given(tables(), texts)
def test_captions_agree_with_the_frames(table, data):
    for frame in merge_frames(table, data):
        pair = next((pair for pair in frame.pairs if pair.chosen), None)
        if pair is None:
            assert frame.caption.startswith("No neighbouring pair has a rule" if data else "There are no bytes")
            if data:
                assert [int(number) for number in re.findall(r"\d+", frame.caption)] == [len(data), len(frame.nodes)]
            continue
        parts = re.fullmatch(
            r"Rank (\d+) is the lowest, (?:so|and (\d+) pairs have it, so the leftmost goes first:) (‹.*›) and (‹.*›) at tokens (\d+) and (\d+) "
            r"become (‹.*›), id (\d+)\.", frame.caption,
        )
        left, right = frame.nodes[pair.at : pair.at + 2]
        ties = sum(other.rank == pair.rank for other in frame.pairs)
        assert parts and parts.groups() == (
            str(pair.rank), str(ties) if ties > 1 else None, theme.quoted(data[left.start : left.end]), theme.quoted(data[right.start : right.end]),
            str(pair.at), str(pair.at + 1), theme.quoted(data[left.start : right.end]), str(256 + pair.rank),
        )
        assert frame.caption.count(". ") == 0 or b"." in data  # one sentence


@settings(deadline=None)
@given(tables(), texts)
def test_frames_are_plain_data(table, data):
    for frame in merge_frames(table, data):
        back = json.loads(json.dumps(dataclasses.asdict(frame)))
        assert bytes(back["data"]) == data and back["caption"] == frame.caption
        hash(frame)
        with pytest.raises(dataclasses.FrozenInstanceError):
            frame.step = 0


@settings(deadline=None)
@given(tables(), texts)
def test_room_is_at_least_as_wide_word_by_word(table, data):
    frames = merge_frames(table, data)
    room = frames[0].plan.room
    assert room[-1] == frames[-1].caption
    for frame in frames[:-1]:
        words, wide = ([theme.cells(word) for word in sentence.split()] for sentence in (frame.caption, room[0]))
        places = iter(wide)  # words of the caption, in order, among those of the room
        assert all(any(word <= place for place in places) for word in words)
    assert max(candidate_table(frame).count("<tr") - 1 for frame in frames) == frames[0].plan.rows


@pytest.mark.parametrize("bad", [None, "text", 3, [97, 98], True])
def test_only_bytes_are_drawn(bad):
    with pytest.raises(TypeError):
        merge_frames(MergeTable(()), bad)


def test_the_limit():
    table = MergeTable(((97, 97),))
    assert len(merge_frames(table, b"a" * LIMIT)) == LIMIT // 2 + 1
    with pytest.raises(TextTooLong) as error:
        merge_frames(table, b"a" * (LIMIT + 1))
    assert error.value.length == LIMIT + 1
    picture = merge_picture(table, b"a" * (LIMIT + 1))
    assert picture.text == "65 bytes are too many to draw, the limit is 64." and picture.text in picture.html and "<svg" not in picture.html


def test_steps_count_from_both_ends():
    table = MergeTable(((97, 97), (256, 256)))
    assert merge_picture(table, b"aaaa", 3).html == merge_picture(table, b"aaaa").html != merge_picture(table, b"aaaa", 0).html
    for step in (4, -5):
        with pytest.raises(IndexError, match="0 to 3"):
            merge_picture(table, b"aaaa", step)


# ---------------------------------------------------------------- drawings


def drawn(frame) -> tuple[list[str], list[str]]:
    "Classes of the outlines, and what is written under the tokens, in the picture of a frame"
    root = xml(merge_html(frame))
    classes = [node.getAttribute("class") for node in root.getElementsByTagName("rect")]
    texts = ["".join(child.data for child in node.childNodes if child.nodeType == child.TEXT_NODE) for node in root.getElementsByTagName("text")]
    return classes, texts


@settings(deadline=None, max_examples=60)
@given(tables(), texts)
def test_pictures_are_xml_and_show_what_the_frame_says(table, data):
    for frame in merge_frames(table, data):
        minidom.parseString(merge_svg(frame).encode())
        classes, texts_ = drawn(frame)
        chosen = any(pair.chosen for pair in frame.pairs)
        assert classes.count("picked") == classes.count("pick") == 2 * chosen
        assert classes.count("newest") == (frame.newest is not None and not _picked(frame))
        for token in frame.tokens:
            assert str(token) in texts_
        root = xml(merge_html(frame))
        images = [node for node in root.getElementsByTagName("div") if node.getAttribute("role") == "img"]
        assert [image.getAttribute("aria-label") for image in images] == [frame.caption]


def _picked(frame) -> bool:
    "Is the newest token one of the pair that is merged next?"
    pair = next((pair for pair in frame.pairs if pair.chosen), None)
    return pair is not None and frame.newest in {node.start for node in frame.nodes[pair.at : pair.at + 2]}


@pytest.mark.parametrize("data", [ALL[i : i + 64] for i in range(0, 256, 64)] + [NASTY, b""], ids=["0", "64", "128", "192", "nasty", "empty"])
def test_all_bytes_can_be_drawn(data):
    table = MergeTable(tuple((byte, (byte + 1) % 256) for byte in range(0, 256, 2)))
    frames = merge_frames(table, data)
    xml(merge_steps_picture(merge_frames(table, data[:12])).markup)
    for frame in {frames[0], *frames[::8], frames[-1]}:
        minidom.parseString(merge_svg(frame).encode())
        xml(merge_html(frame, steady=True, live=True))
        xml(candidate_table(frame))


@settings(deadline=None, max_examples=40)
@given(tables(), texts)
def test_the_table_is_the_order_in_which_bpe_takes_pairs(table, data):
    for frame in merge_frames(table, data):
        rows = xml(candidate_table(frame)).getElementsByTagName("tbody")[0].getElementsByTagName("tr")
        cells = [[_text(cell) for cell in row.getElementsByTagName("td")] for row in rows]
        order = selected(table.rules, frame.tokens)
        assert [(row[0], row[2]) for row in cells[: min(len(order), ROWS)]] == [(str(rank), str(at)) for rank, at in order[:ROWS]]
        assert [row.getAttribute("class") for row in rows] == ["now" if place == 0 and order else "" for place in range(len(rows))]
        rest = sum(int(row[1].split()[0]) for row in cells if row[0] in "…–")
        assert min(len(order), ROWS) + rest == len(frame.pairs)


def _text(node) -> str:
    return node.data if node.nodeType == node.TEXT_NODE else "".join(_text(child) for child in node.childNodes)


def test_a_long_table_is_cut_and_counted():
    frame = merge_frames(load_rollouts().table, b'{"name": "search", "query": "weather in Reykjavi"}')[0]
    rows = [[_text(cell) for cell in row.getElementsByTagName("td")] for row in xml(candidate_table(frame)).getElementsByTagName("tr")[1:]]
    known = sum(pair.rank is not None for pair in frame.pairs)
    assert len(rows) == frame.plan.rows == ROWS + 2 and known > ROWS + 1
    assert rows[-2:] == [["…", f"{known - ROWS} more pairs", "", "", "wait"], ["–", f"{len(frame.pairs) - known} other pairs", "", "", "no rule"]]


def test_what_scrolls_can_be_reached_and_has_a_name():
    frames = merge_frames(MergeTable(((97, 97),)), b"aaa")
    boxes = [node for node in xml(merge_steps_html(frames) + opening.opening_html()).getElementsByTagName("div") if "tn-scroll" in node.getAttribute("class")]
    assert len(boxes) == 3 * len(frames) + 1
    for box in boxes:
        assert box.getAttribute("tabindex") == "0" and box.getAttribute("role") == "group" and box.getAttribute("aria-label")
        assert box.getAttribute("data-lm-suppress-shortcuts") == "true"


def test_sizes_of_what_a_step_sends():
    "The bar is 32 KB a step, for the tallest trees and the most pieces that 64 bytes can have"
    high = bytes(range(128, 192))
    chain = MergeTable(((128, 129), *((256 + i, 130 + i) for i in range(62))))
    pairs = MergeTable(tuple((a, b) for a in high for b in high))
    for table, data in ((chain, high), (pairs, high), (load_rollouts().table, bytes(64)), (load_rollouts().table, b'{"name": "search", "query": "' * 2)):
        for frame in merge_frames(table, data[:64]):
            assert len(json.dumps(merge_html(frame, steady=True, live=True), ensure_ascii=False).encode()) <= 32 * 1024


def test_a_page_has_every_id_once_and_the_same_on_every_run():
    frames = merge_frames(MergeTable(((97, 97),)), b"aaa")
    page = opening.opening_html() + opening.opening_html(salt="2") + "".join(merge_svg(frame) for frame in frames) + merge_svg(frames[0], salt="2")
    page += merge_steps_html(frames) + merge_steps_html(frames, salt="2")
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids)) == 2 * page.count("<title") == 2 * (3 + 3 + len(frames) + 1)  # a title and a description each
    groups = set(re.findall(r' name="([^"]*)"', page))
    assert len(groups) == 2
    code = (
        "from tito_nb.views.opening import opening_picture; from tito_nb.views.merge import *; import hashlib;"
        "from tito_nb.merge_tree import MergeTable; from tito_nb.views.merge_frames import merge_frames;"
        "f = merge_frames(MergeTable(((97, 97),)), b'aaa'); print(hashlib.sha256((opening_picture().markup + merge_steps_picture(f).markup).encode()).hexdigest())"
    )
    here = hashlib.sha256((opening.opening_picture().markup + merge_steps_picture(frames).markup).encode()).hexdigest()
    for seed in ("1", "2"):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(theme.__file__).parents[2])}
        assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.strip() == here


# ---------------------------------------------------------------- the stepper without a program


def test_stepper_has_one_button_and_one_frame_a_step_and_no_script():
    frames = merge_frames(load_rollouts().table, b" tokenizer")
    root = xml(merge_steps_html(frames))
    radios = root.getElementsByTagName("input")
    assert len(radios) == len(frames) and len({radio.getAttribute("name") for radio in radios}) == 1
    assert [radio.getAttribute("aria-label") for radio in radios] == [f"step {frame.step}: {frame.caption}" for frame in frames]
    assert [frame.step for frame, radio in zip(frames, radios) if radio.hasAttribute("checked")] == [telling_step(frames)]
    assert all(radio.getAttribute("data-lm-suppress-shortcuts") for radio in radios)
    markup = merge_steps_picture(frames).markup
    assert not re.search(r"<script|\son\w+=|https?://(?!www\.w3\.org/2000/svg)|url\(|@import", markup)
    for number in range(1, len(frames) + 1):
        assert f"label:nth-of-type({number}) > :checked) + .tn-frames > :nth-child({number})" in markup


def test_the_telling_step_has_a_choice():
    choice = merge_frames(MergeTable(((97, 97),)), b"aaaaa")
    assert telling_step(choice) == 1 and sum(pair.rank is not None for pair in choice[1].pairs) == 2
    assert telling_step(merge_frames(MergeTable(((97, 98),)), b"ab")) == 0
    assert telling_step(merge_frames(MergeTable(((97, 98), (256, 99))), b"abc")) == 1
    assert telling_step(merge_frames(MergeTable(()), b"abc")) == 0


# ---------------------------------------------------------------- the opening


def test_the_opening_is_what_was_recorded():
    rollouts, example = load_rollouts(), opening.EXAMPLE
    rollout = rollouts[example.rollout]
    tokens = [token for token in rollout.tokens if token != rollouts.end_of_turn]
    spell = rollouts.table.token_bytes
    tail = [*example.before, *(text for text, _ in example.sampled)]
    assert [spell(token).decode() for token in tokens[-len(tail) :]] == tail
    assert tokens[-len(example.sampled) :] == [token for _, token in example.sampled]
    assert [spell(token).decode() for _, token in example.encoded] == [text for text, _ in example.encoded]
    again = rollouts.tokenizer.encode(rollouts.tokenizer.decode(tokens))
    assert again[-len(example.encoded) :] == [token for _, token in example.encoded]
    assert again[: -len(example.encoded)] == tokens[: -len(example.sampled)]  # only the end differs
    assert rollout.tokens[-1] == rollouts.end_of_turn and rollout.finish_reason == "stop"  # so the end-of-turn token is S
    assert str(rollouts.about["model"]).startswith(example.source.split(",")[0]) and example.source.endswith(f"temperature {rollouts.about['temperature']}")


def test_the_end_of_turn_token_is_sampled_with_loss_and_the_newline_closed():
    for layout in (opening.WIDE, opening.MIDDLE, opening.NARROW):
        cells = opening.placed((opening.locked(opening.EXAMPLE), opening.APPENDED), layout.width)
        assert [(cell.letter, cell.text) for cell in cells if cell.text == opening.END] == [("S", opening.END), ("T", opening.END)]
        assert [cell.text for cell in cells if cell.letter == "C"] == ["\n"]
        bars = opening.opening_svg(layout).count("fill:var(--tn-loss)")
        assert bars == sum(cell.letter == "S" for cell in cells) + len(opening.EXAMPLE.sampled) + len(opening.EXAMPLE.encoded)
        minidom.parseString(opening.opening_svg(layout).encode())


# ---------------------------------------------------------------- pictures


def png(width: int, height: int) -> bytes:
    "A black PNG"
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = zlib.compress((b"\0" + bytes(width)) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_picture_shows_its_own_photograph_in_natural_size(tmp_path, monkeypatch):
    picture = theme.Picture("<p>never photographed</p>", "A sentence.")
    bundle, metadata = picture._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"} and not metadata and bundle["text/plain"] == repr(picture) == "A sentence."
    monkeypatch.setattr(theme.resources, "files", lambda name: tmp_path)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / f"{hashlib.sha256(bundle['text/html'].encode()).hexdigest()[:16]}.png").write_bytes(png(300, 200))
    bundle, metadata = picture._repr_mimebundle_()
    assert metadata == {"image/png": {"width": 150, "height": 100}} and bundle["image/png"].startswith("iVBOR")
    assert "image/png" not in theme.Picture("<p>other</p>", "A sentence.")._repr_mimebundle_()[0]


def test_the_markup_is_one_element_with_its_style():
    picture = merge_picture(MergeTable(()), b"a & b")
    root = xml(picture.markup).documentElement
    assert [child.getAttribute("class").split()[0] for child in root.childNodes] == ["tn-picture"]
    assert picture.markup.startswith('<div class="tn-picture ') and "tex2jax_ignore" in picture.markup[:80]
    assert [child.tagName for child in root.firstChild.childNodes] == ["style", "div"]


def test_photographs_are_taken_once(tmp_path, chromium):
    photograph = pytest.importorskip("photograph")
    html = merge_picture(MergeTable(((97, 97),)), b"aa", 0).markup
    name = theme.digest(html)
    (path,) = photograph.photograph({name: html}, tmp_path)
    assert path == tmp_path / f"{name}.png" and struct.unpack(">II", path.read_bytes()[16:24])[0] == 1800
    assert photograph.photograph({name: html}, tmp_path) == [] and photograph.stale({name: html}, tmp_path) == []
    assert photograph.stale({}, tmp_path) == [path]
    with pytest.raises(ValueError):
        photograph.photograph({"0" * 16: html}, tmp_path)
    outputs = [{"data": {"text/html": html.splitlines(keepends=True)}}, {"data": {"text/html": "<table></table>"}}, {"text": "a"}]
    assert photograph.figures(outputs) == {name: html}


# ---------------------------------------------------------------- in a browser

PAGE = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Figures</title></head><body style="margin:0"><main>{}</main></body></html>'
FAULTS = """() => { const bad = [], seen = e => { const r = e.getBoundingClientRect(); return r.width && getComputedStyle(e).visibility != 'hidden' };
  if (document.documentElement.scrollWidth > innerWidth) bad.push('the page scrolls sideways');
  for (const figure of document.querySelectorAll('.tn')) { const box = figure.getBoundingClientRect();
    for (const e of figure.querySelectorAll('text, p, td, th, span, code, rect, label')) {
      const r = e.getBoundingClientRect(), scroll = e.closest('.tn-scroll'), name = e.textContent.slice(0, 30);
      if (!seen(e) || e.closest('.tn-hidden')) continue;
      if (!(scroll && scroll.scrollWidth > scroll.clientWidth) && (r.left < box.left - .5 || r.right > box.right + .5)) bad.push('outside: ' + name);
      const drawing = e.closest('svg'), scale = drawing ? drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width : 1;
      if (name.trim() && parseFloat(getComputedStyle(e).fontSize) * scale < 12.9) bad.push('small: ' + name); } }
  return bad.slice(0, 5) }"""
HEIGHT = "document.querySelector('.tn').getBoundingClientRect().height"
WIDTHS = (900, 600, 450)


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 900, "height": 600})
    page.set_default_timeout(10_000)
    yield page
    page.close()


def sized(page, width: int):
    page.set_viewport_size({"width": width, "height": 600})
    return page


def example_frames(name: str):
    doubled = MergeTable(((97, 97), *((256 + i, 256 + i) for i in range(5))))
    torn = MergeTable(((0xF0, 0x9F), (256, 0x98), (257, 0x80), (0, 0)))
    return {
        "words": lambda: merge_frames(load_rollouts().table, b" tokenizer lowest"), "ties": lambda: merge_frames(MergeTable(((97, 97),)), b"aaaa"),
        "wide": lambda: merge_frames(doubled, b"a" * 32 + b"bca")[::6], "torn": lambda: merge_frames(torn, "😀<|&".encode() + b"\xf0\x9f\x98\0\0\0"),
    }[name]()


@pytest.mark.parametrize("name", ["words", "ties", "wide", "torn"])
def test_stepping_changes_no_height_and_nothing_sticks_out(page, name):
    frames = example_frames(name)
    style = f"<style>{theme.theme_css()}{theme.squeeze(merge.MERGE_CSS)}</style>"
    page.set_content(PAGE.format(f'{style}<div id="here"></div>'))
    for width in WIDTHS:
        heights, faults = set(), []
        for frame in frames:
            page.evaluate("html => { document.querySelector('#here').innerHTML = html }", merge_html(frame, steady=True, live=True))
            heights.add(sized(page, width).evaluate(HEIGHT))
            faults += page.evaluate(FAULTS)
        assert len(heights) == 1 and not faults, (width, heights, faults)


def test_the_stepper_works_from_the_keyboard_without_script_or_network(browser):
    frames = example_frames("words")
    context = browser.new_context(java_script_enabled=False, offline=True, viewport={"width": 600, "height": 900})
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.set_content(PAGE.format(merge_steps_picture(frames, first=3).markup))
    shown = page.locator(".tn-frames > div:visible")
    box = page.locator(".tn").bounding_box()
    page.locator("input:checked").focus()
    for step, press in ((4, "ArrowRight"), (5, "ArrowRight"), (4, "ArrowLeft")):
        page.keyboard.press(press)
        assert shown.count() == 1 and shown.locator(".tn-head").inner_text() == f"step {step} of {frames[-1].step}"
    for step, x in ((5, 140), (6, 140), (5, 50)):  # Next, Next, Back
        page.mouse.click(box["x"] + x, box["y"] + 60)
        assert shown.locator("p").first.inner_text() == re.sub("[‹›]", "", frames[step].caption)
    assert page.locator(".tn").bounding_box() == box
    page.emulate_media(media="print")
    assert not page.locator(".tn-steps").is_visible() and shown.count() == 1
    context.close()


def test_no_text_of_the_opening_shrinks_or_sticks_out(page):
    page.set_content(PAGE.format(opening.opening_picture().markup))
    for width in (1200, *WIDTHS, 700):
        assert sized(page, width).evaluate(FAULTS) == [] and page.locator(".opening > svg:visible").count() == 1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_accessibility(page, dark):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.emulate_media(color_scheme="dark" if dark else "light")
    figures = [opening.opening_picture().markup, merge_steps_picture(example_frames("words")).markup, merge_picture(MergeTable(((97, 97),)), b"aaaa", 0).markup]

    def violations(markup: str) -> list[str]:
        page.set_content(PAGE.format(markup))
        found = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "best-practice"]}).response["violations"]
        return [one["id"] for one in found if one["id"] != "page-has-heading-one"]

    assert violations("".join(figures)) == []
    assert "color-contrast" in violations(figures[2].replace('class="tn-lead"', 'class="tn-lead" style="opacity:.4"'))


def test_a_figure_follows_its_host_before_the_system(page):
    ground = "getComputedStyle(document.querySelector('.tn')).backgroundColor"
    paper = {name: "rgb({}, {}, {})".format(*(int(palette["paper"][i : i + 2], 16) for i in (1, 3, 5))) for name, palette in (("light", theme.LIGHT), ("dark", theme.DARK))}
    for system, body, own, expected in (
        ("light", "", "", "light"), ("dark", "", "", "dark"), ("dark", 'data-jp-theme-light="true"', "", "light"), ("light", 'data-jp-theme-light="false"', "", "dark"),
        ("light", 'class="vscode-dark"', "", "dark"), ("dark", 'class="quarto-light"', "", "light"), ("light", "", "dark", "dark"), ("dark", 'class="vscode-dark"', "light", "light"),
    ):
        page.emulate_media(color_scheme=system)
        figure = merge_html(merge_frames(MergeTable(()), b"a")[0], theme=own)
        page.set_content(f"<html><body {body}><style>{theme.theme_css()}</style>{figure}</body></html>")
        assert page.evaluate(ground) == paper[expected], (system, body, own)


def test_the_stepper_begins_at_a_step_that_exists():
    frames = merge_frames(MergeTable([(97, 97)]), b"aaaa")
    assert merge_steps_html(frames, -1) == merge_steps_html(frames, 2)
    for first in (3, -4):
        with pytest.raises(IndexError):
            merge_steps_html(frames, first)
