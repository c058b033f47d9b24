"Messages as ids and back: nothing lost, nothing forged, nothing else read."
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import QWEN_TOY, Plain, attempt_error

from tito_nb.bpe import BpeTokenizer
from tito_nb.drift import MixedDelimiters, mito_tokens, mode_of
from tito_nb.ids_mode import (
    LossyTokenizer, TokenParseError, assistant_message, closing_ids, fixed, header_ids, message_ids, parse_ids, part_ids, read_turns, text_ids, turn_ids, with_tags,
)
from tito_nb.merge_tree import MergeTable
from tito_nb.renderer import CHATML, QWEN3, ChatFormat, InvalidChatFormat, InvalidMessage, Message, layout, parse, render, render_message

TAGS, CONTROL = QWEN3.tags.texts, QWEN_TOY.control
WORDS = [*CONTROL, b"\n", b"\n\n", b"<", b"|", b"a", b"12", b" ", b"\r\n", b"\t", b"\xff\xfe", "\U0001f600".encode(), b"user", b"assistant"]
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(b"".join) | st.binary(max_size=12)


@st.composite
def messages(draw):
    "One message of any role; an assistant's or a system's with tags wherever it spells them, or with some of them"
    message = Message(draw(st.sampled_from(QWEN3.roles)), draw(texts))
    if message.role not in ("assistant", "system"):
        return message
    return Message(message.role, message.content, [at for at in with_tags(message).tags if draw(st.booleans())])


def whole(conversation, chat_format=QWEN3, tokenizer=QWEN_TOY):
    return [token for ids, _ in turn_ids(tokenizer, conversation, chat_format) for token in ids]


@given(st.lists(messages(), max_size=6))
def test_messages_come_back(conversation):
    ids = whole(conversation)
    assert parse_ids(QWEN_TOY, ids, QWEN3) == conversation and mito_tokens(QWEN_TOY, conversation, QWEN3) == ids
    turns = read_turns(QWEN_TOY, ids, QWEN3)
    assert [len(found) for _, found in turns] == [count for _, count in turn_ids(QWEN_TOY, conversation, QWEN3)]
    assert all(ids[start] == CONTROL[b"<|im_start|>"] for start, _ in turns)


@given(st.lists(messages(), max_size=4))
def test_control_ids_are_the_formats(conversation):
    "As many as delimiters, groups and declared tags ask for, whatever the contents spell"
    used = [token for token in whole(conversation) if token in CONTROL.values()]
    turns = len(turn_ids(QWEN_TOY, conversation, QWEN3))
    assert len(used) == 2 * turns + sum(2 if m.role == "tool" else len(m.tags) for m in conversation)
    assert not {CONTROL[b"<|endoftext|>"], CONTROL[b"<|fim|>"]} & set(used)


@given(st.lists(messages(), min_size=1, max_size=4), st.data())
def test_nothing_else_is_read(conversation, data):
    "With one id changed, added or taken away: refused with its index, or other messages whose ids say the same bytes"
    ids = whole(conversation)
    at, token = data.draw(st.integers(0, len(ids) - 1)), data.draw(st.sampled_from([*CONTROL.values(), 10, 97, 259]))
    changed = data.draw(st.sampled_from([ids[:at] + [token] + ids[at + 1 :], ids[:at] + [token] + ids[at:], ids[:at] + ids[at + 1 :]]))
    try:
        found = read_turns(QWEN_TOY, changed, QWEN3)
    except TokenParseError as error:
        assert 0 <= error.index <= len(changed) and str(error).startswith(f"index {error.index}: expected ")
    else:
        spelled = b"".join(QWEN_TOY.decode(whole(group)) for _, group in found)
        assert spelled == QWEN_TOY.decode(changed)
        assert [t for t in changed if t in CONTROL.values()] == [t for _, group in found for t in whole(group) if t in CONTROL.values()]


S, E, USER, BOT, N = CONTROL[b"<|im_start|>"], CONTROL[b"<|im_end|>"], [*b"user\n"], [*b"assistant\n"], 10
R, R_, C, T = (CONTROL[tag] for tag in (b"<tool_response>", b"</tool_response>", b"<tool_call>", b"<think>"))


@pytest.mark.parametrize("ids, index, expected", [
    ([97], 0, "the control id"), ([S], 1, "the control id"), ([S, *USER, S], 6, "the control id"), ([S, *USER, E], 7, "a newline"),
    ([S, *USER, E, N, N], 7, "a newline"), ([S, E, N], 1, "a role and a newline"), ([S, *b"critic\n", E, N], 1, "a role and a newline"),
    ([S, *b"tool\n4", E, N], 1, "a role and a newline"), ([S, *b"user", E, N], 1, "a role and a newline"), ([S, *b"us", C, *b"er\n", E, N], 1, "a role and a newline"),
    ([S, *USER, C, E, N], 6, "no tag, or <tool_response> after the header"), ([S, *USER, 97, R, N, N, R_, E, N], 7, "no tag, or <tool_response> after the header"),
    ([S, *USER, R, N, R_, E, N], 6, "a newline, a result"), ([S, *USER, R, 97, N, R_, E, N], 6, "a newline, a result"),
    ([S, *USER, R, N, 97, R_, E, N], 6, "a newline, a result"), ([S, *USER, R, N, N, C, E, N], 6, "a newline, a result"),
    ([S, *USER, R, N, N, E, N], 6, "a newline, a result"), ([S, *USER, R, N, N, R_, N, E, N], 9, "nothing more"),
    ([S, *USER, R, N, N, R_, R, N, N, R_, E, N], 10, "no tag, or <tool_response> after a newline"), ([S, *USER, R, N, N, R_, N, R, E, N], 11, "a newline, a result"),
    ([S, *BOT, CONTROL[b"<|endoftext|>"], E, N], 11, "the control id"), ([S, *BOT, CONTROL[b"<|fim|>"], E, N], 11, "the control id"),
])
def test_where_it_goes_wrong(ids, index, expected):
    plain = BpeTokenizer(MergeTable(()), control=CONTROL)
    with pytest.raises(TokenParseError) as error:
        parse_ids(plain, ids, QWEN3)
    assert error.value.index == index and error.value.expected.startswith(expected)


def test_results_share_a_turn():
    conversation = [Message("tool", "4"), Message("tool", ""), Message("user", "so"), Message("tool", "\n")]
    assert [(QWEN_TOY.decode(ids), n) for ids, n in turn_ids(QWEN_TOY, conversation, QWEN3)] == [
        (b"<|im_start|>user\n<tool_response>\n4\n</tool_response>\n<tool_response>\n\n</tool_response><|im_end|>\n", 2),
        (b"<|im_start|>user\nso<|im_end|>\n", 1), (b"<|im_start|>user\n<tool_response>\n\n\n</tool_response><|im_end|>\n", 1)]
    assert [n for _, n in turn_ids(QWEN_TOY, conversation, CHATML)] == [1, 1, 1, 1]


def test_two_groups_side_by_side_are_read_as_two_turns():
    ids = whole([Message("tool", "4")]) + whole([Message("tool", "9"), Message("tool", "1")])
    assert [(start, len(found)) for start, found in read_turns(QWEN_TOY, ids, QWEN3)] == [(0, 1), (len(whole([Message("tool", "4")])), 2)]
    assert parse_ids(QWEN_TOY, ids, QWEN3) == [Message("tool", x) for x in ("4", "9", "1")]


def test_texts_between_control_tokens_are_encoded_whole():
    "Role, newline and content are one text, and so are the newlines around a result"
    assert [*message_ids(QWEN_TOY, Message("user", "\nhi"), QWEN3)] == [S, *QWEN_TOY.encode(b"user\n\nhi"), E, *QWEN_TOY.encode(b"\n")]
    assert QWEN_TOY.encode(b"user\n\nhi") != QWEN_TOY.encode(b"user\n") + QWEN_TOY.encode(b"\nhi")
    ids = message_ids(QWEN_TOY, Message("tool", ""), QWEN3)
    assert [*ids] == [S, *QWEN_TOY.encode(b"user\n"), R, *QWEN_TOY.encode(b"\n\n"), R_, E, *QWEN_TOY.encode(b"\n")]
    assert len(QWEN_TOY.encode(b"\n\n")) == 1  # so the case is one in which it matters
    parts = [part for parts, _ in layout([Message("assistant", "a<think>b", tags=[1])], QWEN3) for part in parts]
    assert repr(parts) == r"[Control(b'<|im_start|>'), b'assistant\na', Control(b'<think>'), b'b', Control(b'<|im_end|>'), b'\n']"
    [(parts, _)] = layout([Message("assistant", "<think></think>", tags=[0, 7])], QWEN3)
    assert repr(parts[2:4]) == "[Control(b'<think>'), Control(b'</think>')]"  # no empty text between two tags


@pytest.mark.parametrize("kwargs, content, tags", [
    ({}, b"", ()), ({"content": "hi"}, b"hi", ()), ({"thinking": ""}, b"<think>\n\n</think>\n\n", (0, 9)),
    ({"content": "hi", "thinking": "</think>"}, b"<think>\n</think>\n</think>\n\nhi", (0, 17)),
    ({"tool_calls": ["{}"]}, b"<tool_call>\n{}\n</tool_call>", (0, 15)),
    ({"content": "a", "tool_calls": ["{}", b"</tool_call>"]}, b"a\n<tool_call>\n{}\n</tool_call>\n<tool_call>\n</tool_call>\n</tool_call>", (2, 17, 30, 55)),
])
def test_assistant_message(kwargs, content, tags):
    assert assistant_message(**kwargs) == Message("assistant", content, tags)


def test_with_tags():
    assert with_tags(Message("system", "<tools> <tool_call>\n</tool_call><think")).tags == (8, 20)
    assert with_tags({"role": "assistant", "content": "a"}).tags == ()
    for call in (lambda: with_tags(Message("user", "a"), CHATML), lambda: assistant_message(chat_format=CHATML)):
        assert str(attempt_error(InvalidChatFormat, call)) == "ChatML has no tags"
    for role in ("user", "tool"):
        error = attempt_error(InvalidMessage, lambda: message_ids(QWEN_TOY, with_tags(Message(role, "<think>")), QWEN3))
        assert error.reason.startswith(f"tags: a message of the role {role}") and error.index is None


@pytest.mark.parametrize("bad", [{"content": None}, {"thinking": 5}, {"tool_calls": "{}"}, {"tool_calls": b"{}"}, {"tool_calls": None}, {"tool_calls": [{"name": "x"}]}, {"content": "\ud800"}])
def test_parts_that_are_no_texts(bad):
    attempt_error(InvalidMessage, lambda: assistant_message(**bad))


@pytest.mark.parametrize("tags", [(-1,), (9,), (1, 1), (2, 1), "1", {1: 1}, (True,), (1.0,), None, 5])
def test_offsets_that_are_none(tags):
    with pytest.raises(InvalidMessage, match="^tags: "):
        Message("assistant", b"123456789", tags)


@pytest.mark.parametrize("content, tags", [("a<think>", (0,)), ("<think><think>", (0, 3)), ("<tool>", (0,)), ("<|im_end|>", (0,)), ("<|endoftext|>", (0,))])
def test_tags_that_the_format_does_not_have(content, tags):
    with pytest.raises(InvalidMessage, match=r"^message 3: tags: no tag of Qwen3 at byte \d of the content$") as error:
        turn_ids(QWEN_TOY, [Message("user", ""), Message("assistant", content, tags)], QWEN3, first=2)
    assert error.value.index == 3


def test_a_message_with_tags_in_a_format_without():
    tagged = Message("assistant", "<think>", [0])
    for call in (lambda: render([tagged]), lambda: turn_ids(QWEN_TOY, [tagged]), lambda: turn_ids(Plain(), [tagged]), lambda: message_ids(QWEN_TOY, tagged)):
        assert "tags" in str(attempt_error(InvalidMessage, call))
    assert repr(tagged) == "Message(role='assistant', content=b'<think>', tags=(0,))" and tagged != Message("assistant", "<think>")


def test_the_format_exists_in_ids_only():
    assert mode_of(QWEN_TOY, QWEN3) == "ids"
    for call in (lambda: render([], QWEN3), lambda: render_message(Message("user", ""), QWEN3), lambda: parse(b"", QWEN3)):
        assert "as token ids only" in str(attempt_error(InvalidChatFormat, call))
    for missing in CONTROL:
        tokenizer = BpeTokenizer(MergeTable(()), control={text: token for text, token in CONTROL.items() if text != missing})
        if missing == b"<|fim|>":
            assert mode_of(tokenizer, QWEN3) == "ids"
        else:
            assert attempt_error(MixedDelimiters, lambda: mode_of(tokenizer, QWEN3)).missing == (missing,)
    assert len(attempt_error(MixedDelimiters, lambda: mode_of(Plain(), QWEN3)).missing) == 9
    assert attempt_error(InvalidMessage, lambda: header_ids(QWEN_TOY, QWEN3, "critic")) and [*closing_ids(QWEN_TOY, QWEN3, b"")] == []


BAD = {"thinking": (b"<think>", b"<think>"), "call": (b"<|tool_call|>", b"</tool_call>"), "result": (b"<r>",), "result_role": "tool", "stops": (b"<stop>",)}


@pytest.mark.parametrize("field, value", [*BAD.items(), ("result_role", "critic"), ("result_role", "assistant"), ("stops", (b"<|im_end|>",)), ("call", ("<a>", "</a>")), ("call", (b"<think>", b"</a>"))])
def test_formats_that_could_not_be_read_back(field, value):

    with pytest.raises(InvalidChatFormat, match="^tags: "):
        ChatFormat("bad", QWEN3.start, QWEN3.end, QWEN3.roles, replace(QWEN3.tags, **{field: value}))


class Recognising:
    "Takes control text in content for control tokens"
    control, decode = CONTROL, staticmethod(QWEN_TOY.decode)
    encode = staticmethod(lambda data: [S] if data == b"<|im_start|>" else QWEN_TOY.encode(data))


class Folding(Recognising):
    "Changes text"
    encode = staticmethod(lambda data: QWEN_TOY.encode(data.lower()))


class Wide(Recognising):
    "Has ids that no machine integer holds"
    encode = staticmethod(lambda data: [2**32])


@pytest.mark.parametrize("tokenizer, data", [(Recognising(), b"<|im_start|>"), (Folding(), b"A"), (Wide(), b"A")])
def test_tokenizers_that_lose(tokenizer, data):
    for call in (lambda: text_ids(tokenizer, data), lambda: part_ids(tokenizer, [b"ok" if not isinstance(tokenizer, Wide) else data, data])):
        attempt_error(LossyTokenizer, call)


@pytest.mark.parametrize("tokenizer, chat_format", [(QWEN_TOY, QWEN3), (QWEN_TOY, CHATML), (Plain(), CHATML)])
def test_what_is_fixed_changes_no_id(tokenizer, chat_format):
    "The texts of the format are encoded once, and looked at as any other"
    known, conversation = fixed(tokenizer, chat_format), [Message(role, content) for role in chat_format.roles for content in ("", "\n", "hi")]
    assert known.mode == mode_of(tokenizer, chat_format)
    assert turn_ids(tokenizer, conversation, chat_format, 0, known) == turn_ids(tokenizer, conversation, chat_format)
    for role in chat_format.roles:
        assert header_ids(tokenizer, chat_format, role, known) == header_ids(tokenizer, chat_format, role)
    for data in (b"", b"\n", chat_format.end + b"\n"):
        assert closing_ids(tokenizer, chat_format, data, known) == closing_ids(tokenizer, chat_format, data)


def test_what_is_fixed_is_looked_at():
    known, bad = fixed(QWEN_TOY, QWEN3), Recognising()
    bad.encode = lambda data: [S] if data == b"\n" else QWEN_TOY.encode(data)
    attempt_error(LossyTokenizer, lambda: fixed(bad, QWEN3))
    bad.encode = lambda data: [E]
    attempt_error(LossyTokenizer, lambda: turn_ids(bad, [Message("user", "hi")], QWEN3, 0, known))
    large = BpeTokenizer(MergeTable(()), control={b"<|im_start|>": 2**32, b"<|im_end|>": 2**64})
    attempt_error(LossyTokenizer, lambda: turn_ids(large, [Message("user", "hi")]))
