"The loop over messages, regions and their causes, what a trainer loses, other samplers, and every number of lesson 04."
import itertools, json, pickle, random, re
from collections import Counter
from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings, strategies as st

from tables import Plain, tables
from tito_nb import drift
from tito_nb.bpe import BpeTokenizer
from tito_nb.drift import Cause, MixedDelimiters, InvalidInput, mode_of, explain_drift, load_rollouts, mito_tokens, resegment
from tito_nb.merge_tree import MergeTable
from tito_nb.renderer import CHATML, ChatFormat, InvalidMessage, Message, render
from tito_nb.training import train

ROLLOUTS = load_rollouts()
TOKENIZER = ROLLOUTS.tokenizer

# a toy with control tokens and a token for two newlines
RULES = [(104, 101), (108, 108), (257, 111), (256, 258), (10, 10), (116, 114), (117, 101), (261, 262), (84, 114), (264, 262)]
HE, LLO, HELLO, TWO, TRUE, PYTHON_TRUE = 256, 258, 259, 260, 263, 265
START, END, THINK, UNTHINK, UNTOOL, IMAGE, EOS = range(1000, 1007)
CONTROL = {b"<|im_start|>": START, b"<|im_end|>": END, b"<think>": THINK, b"</think>": UNTHINK, b"</tool_response>": UNTOOL, b"<image>": IMAGE, b"<|endoftext|>": EOS}
TOY = BpeTokenizer(MergeTable(RULES), control=CONTROL)
BARE = BpeTokenizer(MergeTable(RULES))


def ids(*parts):
    "Ids as they are, text encoded"
    return [token for part in parts for token in ([part] if isinstance(part, int) else TOY.encode(part))]


HEAD = ids(START, "assistant\n")  # 11 ids
ASK = ids(START, "user\nhi", END, "\n")  # 10 ids


def turn(*parts, close=(END, 10)):
    return [*HEAD, *ids(*parts), *close]


def content(rollout):
    return list(rollout.tokens[:-1] if rollout.finish_reason == "stop" else rollout.tokens)


def encoded(data):
    return TOKENIZER.encode(data)


# ---------------------------------------------------------------- the loop


def test_ids_mode_encodes_the_texts_between_control_tokens():
    messages = [Message("user", "hello"), {"role": "assistant", "content": "\nhe"}]
    assert mode_of(TOY) == "ids" and mode_of(BARE) == "bytes"
    assert mito_tokens(TOY, messages) == ids(START, "user\nhello", END, "\n", START, "assistant\n\nhe", END, "\n")
    assert TWO in mito_tokens(TOY, messages) and TOY.decode(mito_tokens(TOY, messages)) == render(messages)
    assert mito_tokens(TOY, []) == mito_tokens(BARE, []) == []


@given(st.lists(st.builds(Message, st.sampled_from(CHATML.roles), st.binary(max_size=12) | st.sampled_from([b"<|im_end|>", b"<think>hello", b"<\\|"])), max_size=4))
def test_both_modes_on_random_messages(messages):
    assert mito_tokens(BARE, messages) == BARE.encode(render(messages))
    tokens = mito_tokens(TOY, messages)
    assert [t for t in tokens if t >= 1000] == [START, END] * len(messages)  # content yields no control id and is not escaped
    assert TOY.decode(tokens) == b"".join(b"<|im_start|>" + m.role.encode() + b"\n" + m.content + b"<|im_end|>\n" for m in messages)


def test_some_delimiters_only():
    half = BpeTokenizer(MergeTable([]), control={b"<|im_end|>": 256})
    for ask in (lambda: mode_of(half), lambda: mito_tokens(half, [])):
        with pytest.raises(MixedDelimiters, match=r"ChatML: b'<\|im_start\|>' is no control token") as error:
            ask()
        assert error.value.missing == (b"<|im_start|>",)
    assert mode_of(half, ChatFormat("other", b"<|a|>", b"<|b|>", ("user",))) == "bytes"
    assert mito_tokens(half, [], ChatFormat("other", b"<|a|>", b"<|b|>", ("user",))) == []


def test_other_formats_bring_their_delimiters():
    other = ChatFormat("other", b"<|endoftext|>", b"<|im_start|>", ("user",))
    assert mito_tokens(TOY, [Message("user", "he")], other) == ids(EOS, "user\nhe", START, "\n")


@pytest.mark.parametrize("content", [{"text": "x"}, ["x"], None, 5])  # a content of another type is never rendered as empty
def test_content_of_another_type_is_refused_with_its_index(content):
    for tokenizer in (TOY, BARE):
        with pytest.raises(InvalidMessage, match="^message 1: content: str or bytes-like") as error:
            mito_tokens(tokenizer, [Message("user", "hi"), {"role": "user", "content": content}])
        assert error.value.index == 1


def test_a_lone_surrogate_is_refused_with_index_and_position():
    with pytest.raises(InvalidMessage, match="message 0: content has the lone surrogate") as error:
        mito_tokens(TOY, [{"role": "user", "content": "he\ud800"}])
    assert (error.value.index, error.value.position) == (0, 2)
    with pytest.raises(UnicodeEncodeError):
        resegment(TOY, "he\ud800", 0.5, random.Random(0))
    with pytest.raises(InvalidMessage, match="message 0: unknown role 'critic'"):
        mito_tokens(TOY, [Message("critic", "hi")])


def test_any_tokenizer_of_the_protocol_will_do():
    assert mito_tokens(Plain(), [Message("user", "hi")]) == list(render([Message("user", "hi")]))
    found = explain_drift(Plain(), list(b"hi"), list(b"ho"))
    assert (found.first, found.same_bytes, found.causes) == (1, False, {Cause.UNKNOWN})
    with pytest.raises(InvalidInput, match="sampled, index 1: the tokenizer has no token 300"):
        explain_drift(Plain(), [1, 300], [])


def test_a_decode_that_is_not_id_by_id_is_refused():
    class Cleaning(Plain):
        def decode(self, tokens):
            return bytes(tokens).replace(b" .", b".")

    class Text(Plain):
        def decode(self, tokens):
            return bytes(tokens).decode()

    for tokenizer in (Cleaning(), Text()):
        with pytest.raises(TypeError, match="decode must return bytes"):
            explain_drift(tokenizer, list(b"a ."), list(b"a."))


@pytest.mark.parametrize("bad", [None, 5, "text", MergeTable(RULES), object()])
def test_what_is_no_tokenizer_is_refused(bad):
    for ask in (lambda: mito_tokens(bad, []), lambda: explain_drift(bad, [], []), lambda: mode_of(bad)):
        with pytest.raises(TypeError, match="a tokenizer with encode, decode and control needed"):
            ask()


# ---------------------------------------------------------------- cases made by hand

S, SP, TR, BN = Cause.SEGMENTATION, Cause.SPELLING, Cause.TEMPLATE_REWRITE, Cause.BOUNDARY_NEWLINE
NO, TC, CT, UN = Cause.NORMALISATION, Cause.TRUNCATION, Cause.CONTROL_TEXT, Cause.UNKNOWN
OBJECT, ORDER = '{"n": 1, "arg": 2}', '{"arg": 2, "n": 1}'

# name: sampled, retokenized, spans, regions with their causes, (never sampled, lost, mask wrong, log-probabilities misaligned)
CASES = {
    "one string, two segmentations": ([HE, LLO], [HELLO], None, [(0, 2, 0, 1, {S})], (1, 2, 1, 2)),
    "the same, in a turn": (turn(HE, LLO), turn(HELLO), [(11, 14)], [(11, 13, 11, 12, {S})], (1, 2, 1, 3)),
    "the same length": (ids("x", HE, 108, 108), ids("x", 104, 101, 257), None, [(1, 2, 1, 3, {S}), (2, 4, 3, 4, {S})], (3, 3, 0, 3)),
    "newline after the end lost": (turn("hello") + ASK, turn("hello", close=(END,)) + ASK, [(11, 13)], [(13, 14, 13, 13, {BN})], (0, 0, 0, 0)),
    "newline after the end doubled": (turn("hello") + ASK, turn("hello", close=(END, TWO)) + ASK, [(11, 13)], [(13, 14, 13, 14, {BN})], (0, 0, 0, 0)),
    "newline before the end lost": (turn("hello\n"), turn("hello"), [(11, 14)], [(12, 13, 12, 12, {BN})], (0, 1, 1, 2)),
    "newlines at the header merge": (turn("\nhello"), ids(START, "assistant\n\nhello", END, "\n"), [(11, 14)], [(10, 12, 10, 11, {S, BN})], (1, 1, 2, 3)),
    "a newline within a completion lost": (ids("hello", 10, 10, "x"), ids("hello", 10, "x"), None, [(2, 3, 2, 2, {UN})], (0, 1, 1, 2)),
    "newlines within a message merge": (turn("a", 10, 10, "b"), turn("a\n\nb"), [(11, 16)], [(12, 14, 12, 13, {S})], (1, 2, 1, 4)),
    "closed by another token": (turn("hello"), turn("hello", close=(EOS, 10)), [(11, 13)], [(12, 13, 12, 13, {CT})], (1, 1, 0, 1)),
    "delimiter spelled before the end": (turn("<|im_end|>"), turn(END), [(11, 22)], [(11, 21, 11, 12, {CT})], (1, 10, 9, 11)),
    "generation prompt missing": (ASK + turn("hello"), [*ASK, HELLO, END, 10], [(21, 23)], [(10, 21, 10, 10, {TR})], (0, 0, 4, 2)),
    "control text in content": (ids(START, "tool\n{type<image>|bold}", END), ids(START, "tool\n{type", IMAGE, "|bold}", END), [], [(11, 18, 11, 12, {CT})], (0, 0, 0, 0)),
    "a thinking tag in content": (turn("<think>"), turn(THINK), [(11, 19)], [(11, 18, 11, 12, {CT})], (1, 7, 6, 8)),
    "a closing tag sampled, then spelled": (turn(UNTOOL), turn("</tool_response>"), [(11, 13)], [(11, 12, 11, 27, {CT})], (16, 1, 15, 2)),
    "spelled as Python": (turn('{"a": true}'), turn('{"a":True}'), [(11, 20)], [(16, 18, 16, 17, {SP})], (1, 2, 1, 4)),
    "arguments before name": (turn(OBJECT), turn(ORDER), [(11, 30)], [(13, 13, 13, 23, {SP}), (18, 28, 28, 28, {SP})], (10, 10, 0, 15)),
    "content of another type left out": (ids(START, 'tool\n{"x": 1}', END, "\n"), ids(START, "tool\n", END, "\n"), [], [(6, 14, 6, 6, {TC, TR})], (0, 0, 0, 0)),
    "thinking dropped": (turn(THINK, "so", UNTHINK, "\n\nhello"), turn("hello"), [(11, 18)], [(11, 16, 11, 11, {TR})], (0, 5, 5, 7)),
    "thinking dropped, as text": (turn("<think>so</think>hello"), turn("hello"), [(11, 30)], [(11, 28, 11, 11, {TR})], (0, 17, 17, 19)),
    "thinking dropped and another answer": (turn(THINK, "so", UNTHINK, "x 4"), turn("x 5"), [(11, 19)], [(11, 15, 11, 11, {TR}), (17, 18, 13, 14, {UN})], (1, 5, 4, 8)),
    "newline after thinking lost": (turn(THINK, "so", UNTHINK, "\nhello"), turn(THINK, "so", UNTHINK, "hello"), [(11, 18)], [(15, 16, 15, 15, {UN})], (0, 1, 1, 3)),
    "an empty thinking block added": (turn("hello"), turn(THINK, "\n\n", UNTHINK, "\n\nhello"), [(11, 13)], [(11, 11, 11, 15, {TR})], (4, 0, 4, 2)),
    "another role": (ids(START, "tool\n4", END, 10) + turn("4"), ids(START, "user\n4", END, 10) + turn("4"), [(20, 22)], [(1, 5, 1, 5, {TR})], (0, 0, 0, 0)),
    "never ended, closed by the template": (turn("hello", close=()), turn("hello"), [(11, 12)], [(12, 12, 12, 14, {TC, CT})], (2, 0, 2, 0)),
    "end of turn dropped": (turn("hello"), turn("hello", close=(10,)), [(11, 13)], [(12, 13, 12, 12, {CT, TC})], (0, 1, 1, 1)),
    "a tag at the end dropped": (turn("a", UNTHINK, close=()), turn("a", close=()), [(11, 13)], [(12, 13, 12, 12, {TC})], (0, 1, 1, 1)),
    "ids after the end": (turn("hello", close=(END, 120)), turn("hello", close=()), [(11, 14)], [(12, 14, 12, 12, {TC})], (0, 2, 2, 2)),
    "an end in the middle dropped": (turn("hello", END, "there"), turn("hello", "there"), [(11, 18)], [(12, 13, 12, 12, {UN})], (0, 1, 1, 6)),
    "text cut": (turn("hello there"), turn("hello"), [(11, 18)], [(12, 17, 12, 12, {TC})], (0, 5, 5, 6)),
    "torn character replaced": ([*HEAD, *"😀".encode()[:3]], turn("\ufffd", close=()), [(11, 14)], [(11, 14, 11, 14, {TC})], (3, 3, 0, 3)),
    "character cut in two": (turn("a😀b"), turn("a\ufffd\ufffdb"), [(11, 18)], [(12, 16, 12, 18, {TC})], (6, 4, 2, 6)),
    "composed": (turn("e\u0301!"), turn("é!"), [(11, 16)], [(11, 14, 11, 13, {NO})], (2, 3, 1, 5)),
    "compatibility": (turn("ﬁ!"), turn("fi!"), [(11, 16)], [(11, 14, 11, 13, {NO})], (2, 3, 1, 5)),
    "leading space stripped": (turn(" hello"), turn("hello"), [(11, 14)], [(11, 12, 11, 11, {NO})], (0, 1, 1, 3)),
    "trailing space stripped": (turn("hello \n"), turn("hello"), [(11, 15)], [(12, 14, 12, 12, {NO})], (0, 2, 2, 3)),
    "spaces cleaned up": (turn("a , b"), turn("a, b"), [(11, 17)], [(12, 13, 12, 12, {NO})], (0, 1, 1, 5)),
    "another answer": (turn("4"), turn("5"), [(11, 13)], [(11, 12, 11, 12, {UN})], (1, 1, 0, 1)),
    "another value": (turn('{"a": 1}'), turn('{"a": true}'), None, [(17, 18, 17, 18, {UN})], (1, 1, 0, 1)),
    "more than what was there": ([], [HELLO], None, [(0, 0, 0, 1, {TC})], (1, 0, 1, 0)),
    "nothing differs": (turn("hello"), turn("hello"), [(11, 13)], [], (0, 0, 0, 0)),
    "nothing at all": ([], [], None, [], (0, 0, 0, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    sampled, retokenized, spans, regions, counts = CASES[name]
    found = explain_drift(TOY, sampled, retokenized, spans)
    assert [(r.start, r.end, r.other_start, r.other_end, set(r.causes)) for r in found.regions] == regions
    assert (found.never_sampled, found.lost, found.mask_wrong, found.logprobs_misaligned) == counts
    assert found.first == (regions[0][0] if regions else None)
    assert found.same_length == (len(sampled) == len(retokenized)) and found.same_bytes == (TOY.decode(sampled) == TOY.decode(retokenized))
    assert found.causes == {cause for region in regions for cause in region[4]}
    assert found.sampled == tuple(sampled) and found.retokenized == tuple(retokenized)
    assert found.sampled_in_spans == sum(end - start for start, end in found.spans)
    for region in found.regions:
        assert b"".join(region.sampled) == TOY.decode(sampled[region.start : region.end])
        assert b"".join(region.retokenized) == TOY.decode(retokenized[region.other_start : region.other_end])
        assert [cause for cause, _ in region.evidence] == [cause for cause in Cause if cause in region.causes] and all(text for _, text in region.evidence)


EVIDENCE = {
    "one string, two segmentations": "2 and 1 ids spell 'hello'",
    "newline after the end doubled": "1 and 2 newlines at a message border",
    "newlines at the header merge": "2 newlines at a message border, cut otherwise",
    "closed by another token": "<|im_end|> stands at the end of the turn on the sampled side only; <|endoftext|> stands at the end of the turn on the retokenized side only",
    "a thinking tag in content": "<think> is control id 1002 on the retokenized side, and spelled on the other",
    "spelled as Python": 'both sides spell the value {"a": true}',
    "thinking dropped": "a thinking block of 17 bytes on the sampled side only",
    "another role": "text outside the sampled spans differs",
    "text cut": "the sampled side goes on with ' there'",
    "character cut in two": "2 U+FFFD on the retokenized side only",
    "composed": "equal after NFC",
    "compatibility": "equal after NFKC",
    "leading space stripped": "equal after strip",
    "spaces cleaned up": "equal after clean-up of spaces",
    "another answer": "no other cause fits",
}


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence(name):
    sampled, retokenized, spans, _, _ = CASES[name]
    assert EVIDENCE[name] in [text for _, text in explain_drift(TOY, sampled, retokenized, spans).regions[0].evidence]


def test_the_evidence_of_a_long_value_is_cut():
    for size, evidence in ((50, '["' + "x" * 50 + '"]'), (70, '["' + "x" * 58 + "…")):
        [region] = explain_drift(BARE, turn_text('["%s"]' % ("x" * size)), turn_text('[ "%s"]' % ("x" * size))).regions
        assert region.evidence[0] == (SP, f"both sides spell the value {evidence}")


DEEP = "[" * 100_000
SPELLINGS = [  # the same JSON
    ('{"a": 1.50}', '{"a":1.5}'), ('{"a": 1}', '{"a": 1.0}'), ('{"a": 100}', '{"a": 1e2}'), (r'{"a": "\u00e9\/"}', '{"a": "é/"}'), ('{"a": 1, "a": 2}', '{"a": 2}'),
    ('[1, 2]', '[1,2]'), ('{"a": null}', "{'a': None}"), ('{"a": "it\'s"}', """{'a': 'it\\'s'}"""), ('{"a": "\\"x\\""}', """{'a': '"x"'}"""),
    ("true", "True"), ('say {"a": [true]} now', 'say {"a": [True]} now'), ("It's {'a': 1}", 'It\'s {"a": 1}'), ('{"a": NaN}', '{"a":NaN}'), ('{"a": "\x7f"}', "{'a': '\\x7f'}"),
    ('say {"n": 1, "x": {"a": 2}} now', 'say {"x": {"a": 2}, "n": 1} now'), ('[{"a": 1}, {"a": 1, "b": 2}]', '[{"a": 1}, {"b": 2, "a": 1}]'), ("<tool_call>\n{\"a\": 1}\n</tool_call>", "<tool_call>\n{\"a\":1}\n</tool_call>"),
]
OTHERS = [  # not
    ('{"a": 1}', '{"a": true}'), ('{"a": 1}', '{"a": "1"}'), ('{"a": 0}', '{"a": false}'), ('{"a": []}', '{"a": {}}'), ('{"a": 1}', '{"b": 1}'), ("[1, 2]", "[2, 1]"),
    ('{"a": "True"}', '{"a": "true"}'), ('{"a": NaN}', '{"a": "NaN"}'), ('{"a": 1', '{"a":1'), ("so true", "so True"), ("{a: 1}", "{a:1}"), ('{"a": 1} {"a": 1}', '{"a": 1}'), ('{"a": 1}{"a":1}', '{"a": 1}'), ('x {"a": 1} {"a":1}', 'y {"a": 1} {"a":1}'),
    ('{"a": 1}', '{"a": 2}'), (DEEP + "1" + DEEP[::-1].replace("[", "]"), DEEP + "2" + DEEP[::-1].replace("[", "]")), ('{"a": 1e9999999999999999999}', '{"a":1e9999999999999999999}'),
]


@pytest.mark.parametrize("one, other", SPELLINGS + OTHERS, ids=lambda text: text[:30])
def test_spelling_is_about_the_same_json(one, other):
    found = explain_drift(BARE, turn_text(one), turn_text(other))
    assert found.regions and all((SP in region.causes) == ((one, other) in SPELLINGS) for region in found.regions), found.regions


def turn_text(text):
    return BARE.encode(render([Message("assistant", text)]))


def test_python_spelling_is_json_with_its_words_and_strings():
    "Against Python's own reader, on what Python prints"
    values = [True, None, {"a": [False, "it's", 'say "x"', "\\", "\x00é", "\n"]}, {"True": "None"}, [], {"k": {"l": [1.5, -2]}}]
    for value in values:
        assert drift._value(repr(value).encode()) == drift._value(json.dumps(value).encode()) is not None
    for text in ("{1, 2}", "(1, 2)", "b'x'", "nope", "'", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), ""):
        assert drift._value(text.encode("latin-1")) is None


@pytest.mark.parametrize("one, other, causes", [
    ("e\u0301", "é", {NO}), ("Ⅷ", "VIII", {NO}), ("a  b", "a b", {NO}), ("do n't", "don't", {NO}), ("it 's", "it's", {NO}), ("Hello !", "Hello!", {NO}), ("a : b", "a: b", {UN}),
    ("\u00a0a", "a", {NO}), ("a\tb", "a b", {NO}), ("ab", "a b", {UN}), ("\u1e69x", "\u1e63\u0307x", {NO}), ("a \n", "a", {NO}), ("a\n\n", "a", {BN}), ("\n\na", "a", {BN}),
    ("a\nb", "ab", {UN}), ("a b", "a", {TC}), ("a", "a b", {TC}), ("a ", "a", {NO}), ("ab", "cd", {UN}), ("a😀", "a\ufffd\ufffd", {TC}), ("a😀", "a\ufffd", {UN}), ("é", "\ufffd", {UN}), ("a😀b", "a\ufffdc", {UN}),
    ("<think>x</think>", "", {TC, TR}), ("<think>x</think>a", "<think>y</think>a", {UN}), ("<think>x", "", {TC, TR}),
])
def test_causes_of_a_changed_text(one, other, causes):
    found = explain_drift(TOY, turn(one), turn(other))
    assert found.causes == causes, found.regions
    assert explain_drift(TOY, turn(other), turn(one)).causes == causes
    assert explain_drift(BARE, turn_text(one), turn_text(other)).causes == causes


def test_the_end_of_a_turn_is_not_the_end_of_a_message_in_between():
    history = [Message("user", "he"), Message("assistant", "llo"), Message("tool", "4")]
    gone = explain_drift(TOY, mito_tokens(TOY, history), mito_tokens(TOY, history[:1] + history[2:]))
    assert len(gone.regions) == 1 and gone.causes == {UN}  # a message is missing, no turn was cut
    assert explain_drift(TOY, mito_tokens(TOY, history), mito_tokens(TOY, history[:2])).causes == {UN}
    spans = [(len(mito_tokens(TOY, history[:1])), len(mito_tokens(TOY, history[:2])))]
    assert explain_drift(TOY, mito_tokens(TOY, history), mito_tokens(TOY, history[:2]), spans).causes == {TR}


def test_tokens_across_spelled_delimiters():
    "In bytes mode a token may begin or end inside a delimiter, or hold several"
    history = [Message("user", "hi"), Message("assistant", "hello"), Message("tool", "4")]
    whole = render(history)
    across = BpeTokenizer(MergeTable([(62, 10), (256, 60)]))  # >\n and >\n<
    trained = BpeTokenizer(train([whole, whole], 60))  # everything in one token
    text = b"i<|im_end|>\n<|im_start|>a"
    chained = BpeTokenizer(MergeTable([(text[0], text[1]), *[(256 + i, byte) for i, byte in enumerate(text[2:])]]))  # all of it in one token
    for tokenizer in (BARE, across, chained, trained):
        for other, causes in (
            (whole.replace(b"<|im_end|>\n", b"<|im_end|>"), {BN}), (whole.replace(b"<|im_end|>\n", b"<|im_end|>\n\n", 1), {BN}), (whole[:-1], {BN}),
            (whole.replace(b"\nhello<", b"\n\nhello<"), {BN}), (whole.replace(b"hello<", b"hello\n<"), {BN}), (whole.replace(b"hello", b"help!"), {UN}), (whole.replace(b"hi", b"h\ni"), {UN}),
        ):
            if (tokenizer is trained and b"\n\nhello" in other):
                continue  # the header's newline, in a region of several messages
            for a, b in ((whole, other), (other, whole)):
                found = explain_drift(tokenizer, tokenizer.encode(a), tokenizer.encode(b))
                assert found.causes == causes, (other, found.regions)
    dropped = render([Message("assistant", "<think>x</think>4")]), render([Message("assistant", "4")])
    assert explain_drift(across, *map(across.encode, dropped)).causes == {TR}
    again = [list(whole), across.encode(whole)]
    found = explain_drift(across, *again)
    assert [(b"".join(r.sampled), r.causes) for r in found.regions] == [(b">\n<", {S}), (b">\n<", {S}), (b">\n", {S})]
    assert [r.evidence[0][1] for r in found.regions] == [r"3 and 1 ids spell '>\n<'"] * 2 + [r"2 and 1 ids spell '>\n'"]


# ---------------------------------------------------------------- properties


@st.composite
def changed_pairs(draw):
    "Two sequences of the toy: random text, segmented twice, or with some ids left out, put in or exchanged; control ids among them"
    rng = random.Random(draw(st.integers(0, 2**32)))
    words = ["he", "llo", "hello", "\n", "\n\n", " ", "true", '{"a": 1}', "True", "é", "<", "|", "<|im_end|>"]
    tokens = []
    for _ in range(rng.randrange(12)):
        tokens += [rng.choice([START, END, THINK, UNTHINK])] if rng.random() < 0.2 else resegment(TOY, rng.choice(words), rng.choice((0, 0.5, 1)), rng)
    kind = rng.choice(("same bytes", "edits"))
    other = []
    for token in tokens:
        if kind == "same bytes":
            other += [token] if rng.random() < 0.5 else resegment(TOY, TOY.decode([token]), rng.random(), rng)
        else:
            other += rng.choice([[token]] * 6 + [[], [token, rng.choice((END, 10, HELLO, 32))], [rng.choice((HE, LLO, 32))]])
    ends = sorted(rng.sample(range(len(tokens) + 1), min(len(tokens) + 1, rng.choice((0, 2, 4))) // 2 * 2))
    return tokens, other, rng.choice((None, list(zip(ends[::2], ends[1::2]))))


def check_regions(a, b, found):
    "Between regions the ids are the same, and a region begins and ends with ids that are not"
    at = other = 0
    for r in found.regions:
        assert r.start >= at and a[at : r.start] == b[other : r.other_start] and r.start - at == r.other_start - other
        x, y = a[r.start : r.end], b[r.other_start : r.other_end]
        assert x != y and (not x or not y or (x[0] != y[0] and x[-1] != y[-1]))
        at, other = r.end, r.other_end
    assert a[at:] == b[other:]
    differing = [i for i, (x, y) in enumerate(itertools.zip_longest(a, b)) if x != y]
    assert found.first == (differing[0] if differing else None) and bool(found.regions) == bool(differing)
    assert not found.regions or found.regions[0].start == found.regions[0].other_start == found.first


def counted(a, b, found):
    "The four counts, position by position"
    spans, same, taken = found.spans, {}, set()
    at = other = 0
    for r in [*found.regions, None]:
        end = r.start if r else len(a)
        same |= {i: other + i - at for i in range(at, end)}
        if r and any(low < r.end and r.start < high if r.start < r.end else low <= r.start <= high for low, high in spans):
            taken |= set(range(r.other_start, r.other_end))
        at, other = (r.end, r.other_end) if r else (0, 0)
    inside = {i for low, high in spans for i in range(low, high)}
    trained = taken | {same[i] for i in inside if i in same}
    wrong = sum((i in inside) != (i in trained) for i in range(max(len(a), len(b))))
    return len(inside), len(trained), len(taken), len(inside - set(same)), wrong, sum(same.get(i) != i for i in inside)


@given(changed_pairs())
@settings(max_examples=400)
def test_regions_and_counts(pair):
    a, b, spans = pair
    found = explain_drift(TOY, a, b, spans)
    check_regions(a, b, found)
    numbers = found.sampled_in_spans, found.trained, found.never_sampled, found.lost, found.mask_wrong, found.logprobs_misaligned
    assert numbers == counted(a, b, found)
    for r in found.regions:
        same = b"".join(r.sampled) == b"".join(r.retokenized)
        control = [t for t in a[r.start : r.end] + b[r.other_start : r.other_end] if t >= 1000]
        assert (S in r.causes) == (same and not control) and r.causes and (UN not in r.causes or len(r.causes) == 1)
        assert not found.same_bytes or same


@given(changed_pairs())
@settings(max_examples=200)
def test_the_sides_can_be_exchanged(pair):
    a, b, _ = pair
    one, other = explain_drift(TOY, a, b), explain_drift(TOY, b, a)
    assert [(r.start, r.end, r.other_start, r.other_end, r.causes) for r in one.regions] == [(r.other_start, r.other_end, r.start, r.end, r.causes) for r in other.regions]
    assert (one.never_sampled, one.lost, one.mask_wrong, one.first) == (other.lost, other.never_sampled, other.mask_wrong, other.first)
    assert (one.sampled_in_spans, one.trained) == (len(a), len(b)) == (other.trained, other.sampled_in_spans)
    assert len(a) - one.logprobs_misaligned == len(b) - other.logprobs_misaligned


@given(tables(b"ab", 8), st.text("ab", max_size=20), st.integers(0, 2**32))
def test_regions_of_equal_bytes_are_cut_at_every_common_border(table, text, seed):
    tokenizer, rng = BpeTokenizer(table), random.Random(seed)
    a, b = resegment(tokenizer, text, rng.random(), rng), resegment(tokenizer, text, rng.random(), rng)
    found = explain_drift(tokenizer, a, b)
    check_regions(a, b, found)
    borders = [set(itertools.accumulate((len(table.token_bytes(t)) for t in tokens), initial=0)) for tokens in (a, b)]
    common = sorted(borders[0] & borders[1])
    spelled = lambda tokens: {(p, p + len(table.token_bytes(t)), t) for p, t in zip(itertools.accumulate((len(table.token_bytes(t)) for t in tokens), initial=0), tokens)}
    kept = spelled(a) & spelled(b)
    assert (found.lost, found.never_sampled) == (len(a) - len(kept), len(b) - len(kept)) and found.causes <= {S}
    lengths = [len(b"".join(r.sampled)) for r in found.regions]
    assert all(length in {high - low for low, high in itertools.pairwise(common)} for length in lengths)


def test_ids_that_spell_nothing():
    class Silent(Plain):
        def decode(self, tokens):
            return bytes(token for token in tokens if token < 256)

    for a, b in (([300], []), ([97, 300], [97]), ([300, 97], [97]), ([97, 300, 98], [97, 98]), ([300, 301], [301, 300])):
        for one, other in ((a, b), (b, a)):
            found = explain_drift(Silent(), one, other)
            check_regions(one, other, found)
            assert found.same_bytes and found.causes == {S}


def test_twins_are_told_apart():
    twins = BpeTokenizer(MergeTable([(97, 97), (256, 97), (97, 256)]))  # two tokens spell aaa
    found = explain_drift(twins, [98, 257, 98], [98, 258, 98])
    assert [(r.start, r.end, r.causes) for r in found.regions] == [(1, 2, {S})] and found.same_bytes and found.same_length


# ---------------------------------------------------------------- long input


def long_ids():
    "100,000 ids of the recorded texts"
    pool = [token for r in ROLLOUTS for token in content(r)]
    return (pool * 6)[:100_000]


def test_equal_bytes_need_no_comparison(monkeypatch):
    monkeypatch.setattr(drift, "SequenceMatcher", None)
    monkeypatch.setattr(drift, "_anchors", None)
    tokens = long_ids()
    again = encoded(TOKENIZER.decode(tokens))
    found = explain_drift(TOKENIZER, tokens, again)
    assert found.same_bytes and found.lost > 1000 and found.causes == {S}


@pytest.fixture
def compared(monkeypatch):
    "How many pairs of units each comparison has, by difflib or in search of anchors: never more than `PATIENCE`"
    asked, matcher, anchors = [], drift.SequenceMatcher, drift._anchors

    def compare(isjunk, a, b, autojunk):
        assert isjunk is None and not autojunk
        asked.append(len(a) * len(b))
        assert asked[-1] <= drift.PATIENCE
        return matcher(isjunk, a, b, autojunk)

    def search(a, b, units):
        in_b = Counter(b)
        found = sum(n * in_b[unit] for unit, n in Counter(a).items() if unit in units)
        assert found <= max(drift.PATIENCE, len(a))  # as many as there are units, if each occurs once
        asked.append(found)
        return anchors(a, b, units)

    monkeypatch.setattr(drift, "SequenceMatcher", compare)
    monkeypatch.setattr(drift, "_anchors", search)
    return asked


def test_one_change_in_many_ids(compared):
    tokens = encoded(TOKENIZER.decode(long_ids()))
    other = [*tokens[:50_000], 10, 10, *tokens[50_001:]]
    found = explain_drift(TOKENIZER, tokens, other)
    assert [(r.start, r.end, r.other_start, r.other_end) for r in found.regions] == [(50_000, 50_001, 50_000, 50_002)]
    assert (found.lost, found.never_sampled, found.logprobs_misaligned) == (1, 2, len(tokens) - 50_000)
    assert sum(compared) < 100


def test_changes_far_apart_in_many_ids(compared):
    tokens = encoded(TOKENIZER.decode(long_ids()))
    places = range(5_000, len(tokens), 10_000)
    other = list(tokens)
    for i in places:
        other[i] = 35 if tokens[i] != 35 else 36
    found = explain_drift(TOKENIZER, tokens, other)
    assert [(r.start, r.end, r.other_start, r.other_end) for r in found.regions] == [(i, i + 1, i, i + 1) for i in places]
    assert sum(compared) < 4 * len(tokens)


def test_only_long_repetitive_text_is_one_region(compared):
    limit = int(drift.PATIENCE**0.5)
    for size, regions in ((limit // 3, 2), (limit * 2, 1)):
        found = explain_drift(Plain(), list(b"x" + b"ab " * size + b"y"), list(b"z" + b"ab " * size + b"w"))
        assert len(found.regions) == regions


def test_unrelated_texts_of_equally_frequent_words_are_bounded(compared):
    rng, words = random.Random(0), [f"w{i} " for i in range(150)]
    one, other = ("".join(rng.choices(words, k=6_000)) for _ in range(2))
    found = explain_drift(Plain(), list(one.encode()), list(other.encode()))
    assert len(found.regions) > 1000 and sum(compared) < 10 * drift.PATIENCE


@pytest.mark.parametrize("value, spaces", [([[i, {"a": [i]}] for i in range(3000)], 8999), ([{"name": f"n{i % 50}", "v": i % 7} for i in range(1000)], 3999)], ids=["nested", "records"])
def test_values_that_occur_many_times_cost_no_square(compared, value, spaces):
    "No unit occurs once here, and each white space is still a region of its own"
    found = explain_drift(Plain(), list(json.dumps(value).encode()), list(json.dumps(value, separators=(",", ":")).encode()))
    assert len(found.regions) == spaces and found.causes == {SP}
    assert sum(compared) < 2 * drift.PATIENCE


def test_long_runs_and_many_regions_cost_no_square():
    "Each of these took minutes when a run of blanks, an unclosed string or a message was gone through once for each of its parts"
    n = 50_000
    blank = explain_drift(Plain(), list(b"a" + b"\n" * n), list(b"a"))
    assert [region.causes for region in blank.regions] == [{Cause.BOUNDARY_NEWLINE}]
    inside = explain_drift(Plain(), list(b"a" + b"\n" * n + b"c"), list(b"abc"))
    assert [region.causes for region in inside.regions] == [{Cause.UNKNOWN}]
    spaces = explain_drift(Plain(), list(b"a" + b" " * n), list(b"a"))
    assert [region.causes for region in spaces.regions] == [{Cause.NORMALISATION}]
    quotes = explain_drift(Plain(), list(b"x" + b'\\"' * n), list(b"y" + b'\\"' * n))
    assert [region.causes for region in quotes.regions] == [{Cause.UNKNOWN}]
    numbers = list(range(10_000))
    dumped = explain_drift(Plain(), list(json.dumps(numbers).encode()), list(json.dumps(numbers, separators=(",", ":")).encode()))
    assert len(dumped.regions) == 9_999 and dumped.causes == {SP}
    thoughts = [b"".join(b"<think>%d a</think>%d%sx" % (i, i, space) for i in range(1_000)) for space in (b" ", b"")]
    assert len(explain_drift(Plain(), list(thoughts[0]), list(thoughts[1][7:])).regions) == 1_001


def test_a_long_object_dumped_anew():
    value = {f"k{i}": [i, f"v{i}", True] for i in range(300)}
    found = explain_drift(TOKENIZER, encoded(json.dumps(value)), encoded(json.dumps(value, separators=(",", ":"))))
    assert found.causes == {SP} and len(found.regions) == 1199  # a region for each white space


# ---------------------------------------------------------------- claims that must not be made


BYTES = BpeTokenizer(MergeTable([(10, 10)]))


@pytest.mark.parametrize("one, other", [
    ('{"a": 0}', '{"a":{"a":0}}'), ("[[1, 2]]", "[1,2]"), ('["x"]', '[["x" ]]'), ('{"arguments": {"q": 1}}', '{"arguments":{"arguments":{"q":1}}}'), ('[{"a": 1}]', '{"a":1}'),
])
def test_a_value_that_was_wrapped_is_another_value(one, other):
    for a, b in ((one, other), (other, one)):
        assert Cause.SPELLING not in explain_drift(BYTES, list(a.encode()), list(b.encode())).causes
        assert Cause.SPELLING not in explain_drift(TOY, turn(a), turn(b)).causes


@pytest.mark.parametrize("one, other, same", [
    ("5", "5.0", True), ("5", "5", None), ("5", "6.0", False), ('{"a": 1} ', '{"a":1} ', True), ("3.14159265358979323846", "3.141592653589793", True),
    ('{"a": 12345678901234567890}', '{"a":12345678901234567891}', False), ('{"a": 1e400}', '{"a":1e401}', False), ('{"a": 1e400}', '{"a":10e399}', True),
])
def test_numbers_are_compared_as_a_program_reads_them(one, other, same):
    regions = explain_drift(BYTES, list(one.encode()), list(other.encode())).regions
    assert {Cause.SPELLING in region.causes for region in regions} == ({same} - {None})


def test_equal_bytes_are_never_spelled_otherwise():
    pretty = explain_drift(BYTES, list(b'{\n\n"a": 1}'), [123, 256, *b'"a":1}'])
    assert [region.causes for region in pretty.regions] == [{Cause.SEGMENTATION}, {Cause.SPELLING}]


def test_a_control_id_inside_a_message_is_content():
    image = lambda *parts: turn(*parts)
    for one, other, causes in (
        (image("hello world", IMAGE, "4"), image("hello", IMAGE, "4"), {Cause.UNKNOWN}),
        (image("hello ", IMAGE, "4"), image("hello", IMAGE, "4"), {Cause.UNKNOWN}),
        (image(IMAGE, "ok\n\nb"), image(IMAGE, "ok\nb"), {Cause.UNKNOWN}),
        (image("4", IMAGE), image("4"), {Cause.TRUNCATION}),
    ):
        assert explain_drift(TOY, one, other).causes == explain_drift(TOY, other, one).causes == causes, (one, other)


def test_message_borders_are_those_of_the_format():
    tokenizer = BpeTokenizer(MergeTable(RULES), control=CONTROL | {b"<|a|>": 2000, b"<|b|>": 2001})
    own = ChatFormat("own", b"<|a|>", b"<|b|>", ("user",))
    one, two = (mito_tokens(tokenizer, [Message("user", text)], own) for text in ("he ", "he"))
    assert 2001 in one and explain_drift(tokenizer, one, two, chat_format=own).causes == {Cause.NORMALISATION}
    assert explain_drift(tokenizer, one, two).causes == {Cause.UNKNOWN}
    spelled = ChatFormat("spelled", b"<|a|>", b"<|b|>", ("user",))
    one, two = (mito_tokens(TOY, [Message("user", text)], spelled) for text in ("he ", "he"))
    assert explain_drift(TOY, one, two, chat_format=spelled).causes == {Cause.NORMALISATION} and explain_drift(TOY, one, two).causes == {Cause.UNKNOWN}


def test_a_start_that_is_left_over_ends_nothing():
    [region] = explain_drift(TOY, turn("4", close=(START,)), turn("4", close=())).regions
    assert region.evidence[-1] == (Cause.CONTROL_TEXT, "<|im_start|> stands at the end of the turn on the sampled side only")


def test_an_empty_span_touches_no_region_that_is_not_empty():
    for span, trained in (((0, 0), 0), ((1, 1), 0), ((3, 3), 0), ((1, 2), 1)):
        found = explain_drift(BYTES, [97, 98, 99], [100], [span])
        assert (found.trained, found.never_sampled, found.mask_wrong == 0) == (trained, trained, trained == 0 or found.mask_wrong == 0)
    assert explain_drift(BYTES, [97], [97, 98], [(1, 1)]).trained == 1  # an empty region is reached by a span that ends there


@pytest.mark.parametrize("one, other, rewritten", [
    ("<think>a</think>4", "<thinking>a</thinking>4", False), ("Use the <think> tag, ok. Yes", "Use the tag, ok. No", False),
    ("<think>a</think>The <think> tag", "The <think> tag", True), ("<think>one</think><think>two</think>4", "<think>two</think>4", True),
    ("<think></think>4", "4", True), ("so <think>a b</think> 4", "so 4", True),
])
def test_a_thinking_block_is_a_block(one, other, rewritten):
    for a, b in ((one, other), (other, one)):
        found = explain_drift(BYTES, list(a.encode()), list(b.encode()))
        assert any(Cause.TEMPLATE_REWRITE in region.causes for region in found.regions) == rewritten, found.regions


@given(st.lists(st.sampled_from([97, 10, 32, 256, HE, LLO, START, END, IMAGE, THINK, EOS, 0xE2]), max_size=8), st.lists(st.sampled_from([97, 10, 32, HELLO, TWO, START, END, IMAGE, EOS, 0x82]), max_size=8))
@settings(max_examples=400)
def test_causes_do_not_depend_on_which_side_is_called_sampled(one, other):
    assert [r.causes for r in explain_drift(TOY, one, other).regions] == [r.causes for r in explain_drift(TOY, other, one).regions]


def test_newlines_inside_a_message_on_one_side_are_no_border():
    assert explain_drift(BYTES, [256, 98], [97, 10, 10, 98]).regions[-1].causes == {Cause.SEGMENTATION}
    assert explain_drift(BYTES, [97, 10, 10, 98], [256, 98]).regions[-1].causes == {Cause.SEGMENTATION}


# ---------------------------------------------------------------- input that is refused


@pytest.mark.parametrize("bad", ["text", b"bytes", bytearray(b"x"), memoryview(b"x"), None, 5, {1: 2}, {1}])
def test_what_is_no_sequence_of_ids(bad):
    for a, b, name in ((bad, [1], "sampled"), ([1], bad, "retokenized")):
        with pytest.raises(TypeError, match=f"^{name} must be a list or another ordered iterable, not {type(bad).__name__}$"):
            explain_drift(TOY, a, b)


@pytest.mark.parametrize("bad", [True, "1", 1.0, None, [1]])
def test_what_is_no_id(bad):
    for a, b, name in (([1, bad], [1], "sampled"), ([1], [1, bad], "retokenized")):
        with pytest.raises(InvalidInput, match=rf"^{name}, index 1: .* is not a token id$") as error:
            explain_drift(TOY, a, b)
        assert (error.value.argument, error.value.index) == (name, 1)


@pytest.mark.parametrize("bad", [-1, 266, 999, 1007, 2**70])
def test_unknown_ids(bad):
    for a, b, name in (([1, 2, bad], [1], "sampled"), ([1], [1, 2, bad], "retokenized")):
        with pytest.raises(InvalidInput, match=f"^{name}, index 2: the tokenizer has no token {bad}$") as error:
            explain_drift(TOY, a, b)
        assert (error.value.argument, error.value.index) == (name, 2)


@pytest.mark.parametrize("spans, index", [
    ([(0, 4)], 0), ([(-1, 2)], 0), ([(2, 1)], 0), ([(0, 2), (1, 3)], 1), ([(2, 3), (0, 1)], 1), ([(0, 1), (1, 2, 3)], 1), ([(0,)], 0), ([5], 0), ([(0, 1), None], 1),
    ([(False, 1)], 0), ([(0, 1.0)], 0), (["01"], 0),
])
def test_spans_that_do_not_fit(spans, index):
    with pytest.raises(InvalidInput, match=f"^spans, index {index}: ") as error:
        explain_drift(TOY, [1, 2, 3], [1, 2, 3], spans)
    assert (error.value.argument, error.value.index) == ("spans", index)


@pytest.mark.parametrize("bad", ["01", b"01", 5, {0: 1}, {(0, 1)}])
def test_spans_of_another_type(bad):
    with pytest.raises(TypeError, match=f"^spans must be a list or another ordered iterable, not {type(bad).__name__}$"):
        explain_drift(TOY, [1], [1], bad)


def test_what_is_accepted():
    plain = explain_drift(TOY, [HE, LLO], [HELLO], [(0, 2)])
    for a in ((HE, LLO), iter([HE, LLO]), numpy.array([HE, LLO]), range(256, 259)[::2]):
        assert explain_drift(TOY, a, numpy.array([HELLO]), ([0, numpy.int64(2)],)) == plain
    assert {type(token) for token in explain_drift(TOY, numpy.array([HE]), [HE]).sampled} == {int}
    assert explain_drift(TOY, [HE, LLO], [HELLO]) == plain
    assert explain_drift(TOY, [1, 2], [1, 2], [(0, 0), (0, 1), (1, 1), (1, 2)]).sampled_in_spans == 2


def test_errors_and_values_can_be_sent():
    for error in (MixedDelimiters(CHATML.name, [b"<|im_end|>"]), InvalidInput("sampled", 3, "wrong")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
    found = explain_drift(TOY, [HE, LLO], [HELLO])
    assert pickle.loads(pickle.dumps(found)) == found


def test_reprs():
    assert repr(explain_drift(TOY, [HE, LLO, 97, END], [HELLO, 98, END])) == "Drift(first 0, 2 regions, SEGMENTATION, UNKNOWN, 2 of 3 trained ids never sampled)"
    assert repr(explain_drift(TOY, [HE, LLO], [HELLO])) == "Drift(first 0, 1 region, SEGMENTATION, 1 of 1 trained ids never sampled)"
    assert repr(explain_drift(TOY, [HE], [HE])) == "Drift(none in 1 ids)"
    assert repr(explain_drift(TOY, [HE, 10, 10], [HE, TWO]).regions[0]) == r"Region(1:3 -> 1:2, '\n' '\n' -> '\n\n', SEGMENTATION, BOUNDARY_NEWLINE)"
    assert repr(explain_drift(TOY, [], [HE]).regions) == "(Region(0:0 -> 0:1, nothing -> 'he', TRUNCATION),)"


# ---------------------------------------------------------------- other samplers

chances = st.sampled_from((0, 1, 0.5, Fraction(1, 3))) | st.floats(0, 1)


@given(tables(b"abc", 12), st.text("abc", max_size=40) | st.binary(max_size=40), chances, st.integers(0, 2**32))
def test_resegment_decodes_to_its_data(table, data, p, seed):
    tokenizer = BpeTokenizer(table, lambda d: re.findall(rb"c?[^c]*", d)[:-1] or [d], {b"<|x|>": 5000}, range(255, -1, -1))
    raw = data.encode() if isinstance(data, str) else data
    tokens = resegment(tokenizer, data, p, random.Random(seed))
    assert tokenizer.decode(tokens) == raw and tokens == resegment(tokenizer, data, p, random.Random(seed))
    assert p != 0 or tokens == tokenizer.encode(data)
    assert p != 1 or tokens == [255 - byte for byte in raw]
    assert 5000 not in tokens


def test_resegment_leaves_out_single_merges():
    rng, aa = random.Random(0), BpeTokenizer(MergeTable([(97, 97)]))
    drawn = Counter(tuple(resegment(aa, "aaa", 0.5, rng)) for _ in range(2000))
    shares = {(256, 97): 1 / 2, (97, 256): 1 / 4, (97, 97, 97): 1 / 4}  # left pair kept; left out and right kept; both left out
    assert set(drawn) == set(shares) and all(abs(drawn[tokens] / 2000 - share) < 0.04 for tokens, share in shares.items())
    class Zero:
        def random(self):
            return 0.0

    assert resegment(TOY, "hello", 0, Zero()) == [HELLO] and resegment(TOY, "hello", 1e-9, Zero()) == list(b"hello")
    assert tuple(resegment(TOY, "hello", 0, rng)) == (HELLO,) and TOY.table.ranks[(104, 101)] == 0  # the table is as it was


@pytest.mark.parametrize("p, error", [(-0.1, ValueError), (1.1, ValueError), (float("nan"), ValueError), (True, TypeError), ("0", TypeError), (None, TypeError), (1j, TypeError)])
def test_p_is_a_probability(p, error):
    with pytest.raises(error, match="^p: a (probability|number)"):
        resegment(TOY, "hello", p, random.Random(0))


def test_resegment_needs_a_bpe_tokenizer_a_source_of_chance_and_data():
    for bad in (Plain(), MergeTable(RULES), None):
        with pytest.raises(TypeError, match="a BpeTokenizer needed"):
            resegment(bad, "hello", 0.5, random.Random(0))
    for bad in (None, 5, "rng"):
        with pytest.raises(TypeError, match="rng: a random.Random needed"):
            resegment(TOY, "hello", 0.5, bad)
    for bad in (None, 5, [104]):
        with pytest.raises(TypeError, match="data must be bytes"):
            resegment(TOY, bad, 0.5, random.Random(0))


# ---------------------------------------------------------------- the numbers of the lesson


def borders_and_ids(tokens):
    "(start, end, id) of each token, in bytes"
    at = list(itertools.accumulate((len(TOKENIZER.decode([t])) for t in tokens), initial=0))
    return set(zip(at, at[1:], tokens))


def test_recorded_rollouts():
    pairs = [(r, content(r), encoded(TOKENIZER.decode(content(r)))) for r in ROLLOUTS]
    changed = [(r, a, b) for r, a, b in pairs if a != b]
    assert len(pairs) == 256 and len(changed) == 84 and sum(len(a) == len(b) for _, a, b in changed) == 31
    assert sum(r.finish_reason == "stop" for r, _, _ in changed) == 29 and sum(r.finish_reason == "stop" for r, _, _ in pairs) == 150
    assert sum(len(a) for _, a, _ in pairs) == 18_539
    kept = [(len(a), len(borders_and_ids(a) & borders_and_ids(b))) for _, a, b in pairs]
    assert sum(n - k for n, k in kept) == 297
    found = [explain_drift(TOKENIZER, a, b) for _, a, b in pairs]
    assert [d.lost for d in found] == [n - k for n, k in kept]
    for (_, a, b), d in zip(pairs, found):
        check_regions(a, b, d)
        assert bool(d.regions) == (a != b) and d.causes <= {S} and d.same_bytes
    frequent = Counter((r.sampled, r.retokenized) for d in found for r in d.regions).most_common(2)
    assert frequent[0] == (((b'"}', b"}"), (b'"', b"}}")), 11) and frequent[1][1] == 2 and sum(len(d.regions) for d in found) == 138
    matcher = drift.SequenceMatcher
    assert sum(len(a) - sum(m.size for m in matcher(None, a, b, autojunk=False).get_matching_blocks()) for _, a, b in changed) == 285
    by_prompt = Counter(r.prompt for r, _, _ in changed)
    assert by_prompt == {"json_search": 20, "bash_cmd": 14, "python_code": 14, "answer_after_tool": 11, "json_sql": 10, "json_weather": 8, "json_email": 5, "reason_math": 2}
    assert set(Counter(r.prompt for r in ROLLOUTS).values()) == {32}
    assert sum(BpeTokenizer(ROLLOUTS.table).encode(TOKENIZER.decode(a)) != a for _, a, _ in pairs) == 138


def test_text_first_never_changes():
    for r in ROLLOUTS:
        tokens = encoded(TOKENIZER.decode(content(r)))
        assert encoded(TOKENIZER.decode(tokens)) == tokens


def test_completions_that_are_json_objects():
    objects = []
    for r in ROLLOUTS:
        try:
            value = json.loads(TOKENIZER.decode(content(r)))
        except ValueError:
            continue
        objects += [(content(r), value)] if isinstance(value, dict) else []
    assert len(objects) == 28
    raw = [(a, encoded(TOKENIZER.decode(a))) for a, _ in objects]
    dumped = [(a, encoded(json.dumps(value))) for a, value in objects]
    compact = [(a, encoded(json.dumps(value, separators=(",", ":")))) for a, value in objects]
    assert [sum(a != b for a, b in pairs) for pairs in (raw, dumped, compact)] == [15, 18, 26]
    other_text = [sum(TOKENIZER.decode(a) != TOKENIZER.decode(b) for a, b in pairs) for pairs in (raw, dumped, compact)]
    assert other_text == [0, 7, 26] == [sum(SP in explain_drift(TOKENIZER, a, b).causes for a, b in pairs) for pairs in (raw, dumped, compact)]


def test_the_two_faults_on_rollout_13():
    rollout = ROLLOUTS[13]
    header = [8673, *encoded("assistant\n")]
    reply = Message("assistant", TOKENIZER.decode(content(rollout)))
    tool = Message("tool", '{"error": "no tool goito"}')
    first = mito_tokens(TOKENIZER, rollout.messages) + header
    held = [*first, *rollout.tokens, 10, *mito_tokens(TOKENIZER, [tool]), *header]
    sent = mito_tokens(TOKENIZER, [*rollout.messages, reply, tool]) + header
    found = explain_drift(TOKENIZER, held, sent, [(len(first), len(first) + len(rollout.tokens))])
    assert (len(first), found.first, len(held), len(sent)) == (186, 202, 224, 224)
    assert [(r.sampled, r.retokenized) for r in found.regions] == [((b'"}', b"}"), (b'"', b"}}"))] and (found.lost, found.never_sampled) == (2, 2)
    short = explain_drift(TOKENIZER, ROLLOUTS[15].tokens, [*encoded(TOKENIZER.decode(content(ROLLOUTS[15]))), 8674])
    assert (short.first, short.lost, short.never_sampled, short.trained, short.mask_wrong, short.logprobs_misaligned) == (4, 4, 3, 24, 1, 21)


def test_two_replies_whose_lengths_cancel_out():
    header, ask = [8673, *encoded("assistant\n")], mito_tokens(TOKENIZER, [Message("user", "And now?")])
    a, b = ([*ROLLOUTS[i].tokens] for i in (6, 8))
    again = [[*encoded(TOKENIZER.decode(tokens[:-1])), 8674] for tokens in (a, b)]
    assert [len(x) - len(y) for x, y in zip((a, b), again)] == [1, -1]
    join = lambda x, y: [*header, *x, 10, *ask, *header, *y, 10]
    start = len(header) + len(a) + 1 + len(ask) + len(header)
    found = explain_drift(TOKENIZER, join(a, b), join(*again), [(len(header), len(header) + len(a)), (start, start + len(b))])
    assert found.same_length and found.same_bytes and (found.mask_wrong, found.logprobs_misaligned, found.sampled_in_spans) == (2, 30, 45)


def test_simulated_samplers():
    texts, rng = [TOKENIZER.decode(content(r)) for r in ROLLOUTS], random.Random(0)
    changed = {p: sum(encoded(text) != resegment(TOKENIZER, text, p, rng) for text in texts) for p in (0, 0.001, 0.01, 0.1, 1)}
    assert changed == {0: 0, 0.001: 30, 0.01: 167, 0.1: 240, 1: 252}


def test_the_gradient_in_closed_form():
    "d J / d logit of a token = its probability times (what it earns minus J); MITO credits `a` with its failures alone"
    a, ab, b = Fraction(2, 4), Fraction(1, 4), Fraction(3, 4)
    expected = a * b + ab
    assert expected == Fraction(5, 8)
    tito = [a * (b - expected), ab * (1 - expected), (1 - a - ab) * -expected, a * b * (1 - b), -a * b * (1 - b)]
    assert tito == [Fraction(1, 16), Fraction(3, 32), Fraction(-5, 32), Fraction(3, 32), Fraction(-3, 32)]
    failed = a * (1 - b)  # the only paths that MITO still sees begin with `a`
    mito = [-failed * expected, expected * (1 - expected), (1 - a - ab) * -expected, failed * expected * b, -failed * expected * b]
    assert mito == [Fraction(-5, 64), Fraction(15, 64), Fraction(-5, 32), Fraction(15, 256), Fraction(-15, 256)]
    assert sum(tito[:3]) == sum(mito[:3]) == 0 and ab / (a * b) == Fraction(2, 3)
    assert a * (Fraction(1, 3) - (a * Fraction(1, 3) + ab)) < 0  # the answer to exercise 2: weights 1 and 2


def test_what_is_no_tokenizer():
    for ask in (lambda: mode_of(BpeTokenizer), lambda: explain_drift(Plain, [], []), lambda: mito_tokens(None, [])):
        with pytest.raises(TypeError, match="a tokenizer with encode, decode and control needed"):
            ask()
    for control in ({b"": 97}, {"text": 5}, {b"a": True}, {b"a": None}):
        odd = Plain()
        odd.control = control
        with pytest.raises(TypeError, match="tokenizer: control must map bytes, not empty, to integers"):
            explain_drift(odd, [97], [97])


def test_numbers_of_too_many_digits_are_refused_by_name():
    with pytest.raises(InvalidInput, match="^spans, index 0: "):
        explain_drift(BYTES, [97], [97], [(0, 10**5000)])
    with pytest.raises(ValueError, match="^p: a probability from 0 to 1 needed"):
        resegment(BYTES, b"a", 10**5000, random.Random(0))
    with pytest.raises(TypeError, match="^sampled: "):
        explain_drift(BYTES, numpy.array(5), [97])
