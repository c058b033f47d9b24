"The recorded rollouts and the tokenizer that belongs to them."
import unicodedata

from hypothesis import given, settings, strategies as st

from tito_nb.bpe import is_canonical
from tito_nb.rollouts import load_rollouts, smollm2_pieces

ROLLOUTS = load_rollouts()


def content(rollout):
    return rollout.tokens[:-1] if rollout.finish_reason == "stop" else rollout.tokens


def comes_back(tokens):
    return ROLLOUTS.tokenizer.encode(ROLLOUTS.tokenizer.decode(tokens)) == list(tokens)


def test_what_is_recorded():
    assert len(ROLLOUTS) == 256 and sum(len(content(r)) for r in ROLLOUTS) == 18_539 and len(ROLLOUTS.table.rules) == 8_417
    assert ROLLOUTS.about["model"].startswith("SmolLM2-135M-Instruct") and "Apache-2.0" in ROLLOUTS.about["model"] and ROLLOUTS.about["temperature"] == 1.0
    assert {len(r.tokens) - len(r.logprobs) for r in ROLLOUTS} == {0} and all(lp <= 0 for r in ROLLOUTS for lp in r.logprobs)
    assert sum(r.finish_reason == "stop" for r in ROLLOUTS) == 150 and len({r.prompt for r in ROLLOUTS}) == 8
    assert {r.messages[-1].role for r in ROLLOUTS} == {"user", "tool"}


def test_the_sampled_end_of_turn_is_the_last_id():
    assert dict(ROLLOUTS.tokenizer.control) == {b"<|im_start|>": 8673, b"<|im_end|>": 8674} and ROLLOUTS.end_of_turn == 8674
    for r in ROLLOUTS:
        assert (r.tokens[-1] == 8674) == (r.finish_reason == "stop") and 8674 not in r.tokens[:-1] and 8673 not in r.tokens


def test_how_many_drift():
    drifted = [r for r in ROLLOUTS if not comes_back(content(r))]
    assert len(drifted) == 84 and sum(r.finish_reason == "stop" for r in drifted) == 29
    same_length = [r for r in drifted if len(ROLLOUTS.tokenizer.encode(ROLLOUTS.tokenizer.decode(content(r)))) == len(content(r))]
    assert len(same_length) == 31
    assert sum(not is_canonical(ROLLOUTS.table, content(r)) for r in ROLLOUTS) == 138


def test_canonical_agrees_with_the_round_trip_on_each_rollout():
    for r in ROLLOUTS:
        assert ROLLOUTS.tokenizer.is_canonical(content(r)) == comes_back(content(r))


def test_bytes_of_each_prompt_come_back():
    for messages in {r.prompt: r.messages for r in ROLLOUTS}.values():
        for message in messages:
            assert ROLLOUTS.tokenizer.decode(ROLLOUTS.tokenizer.encode(message.content)) == message.content


def slow_pieces(text: str) -> list[str]:
    "The published pattern, spelled out with Unicode categories and without a regular expression"
    kind = lambda c: unicodedata.category(c)[0]
    space = lambda c: c in "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" or "\u2000" <= c <= "\u200a"
    letter, number = lambda c: kind(c) == "L", lambda c: kind(c) == "N"
    other = lambda c: not (space(c) or letter(c) or number(c))
    stretches, start = [], 0
    for i, c in enumerate(text):
        if number(c):
            stretches += [text[start:i], c]
            start = i + 1
    pieces = []
    for stretch in [*stretches, text[start:]]:
        i = 0
        while i < len(stretch):
            rest = stretch[i:]
            suffix = next((s for s in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d") if rest.startswith(s)), None)
            n = len(suffix) if suffix else 0
            for belongs in (letter, other):
                k = 1 if rest.startswith(" ") else 0
                if not n and k < len(rest) and belongs(rest[k]):
                    n = k
                    while n < len(rest) and belongs(rest[n]):
                        n += 1
            if not n and space(rest[0]):
                while n < len(rest) and space(rest[n]):
                    n += 1
                if n < len(rest) and n > 1:
                    n -= 1
            n = n or 1  # a number, alone in its stretch
            pieces.append(rest[:n])
            i += n
    return pieces


@given(st.text(st.sampled_from("ab'sdlevrtm1½²Ⅷ٣ \t\n\x0b\x1c\x85\xa0\u2003\u3000_-.é漢😀\u0301\x00")) | st.text())
@settings(max_examples=500)
def test_pieces_are_those_of_the_published_pattern(text):
    assert [piece.decode() for piece in smollm2_pieces(text.encode())] == slow_pieces(text)


@given(st.binary())
def test_pieces_lose_nothing(data):
    assert b"".join(smollm2_pieces(data)) == data and ROLLOUTS.tokenizer.decode(ROLLOUTS.tokenizer.encode(data)) == data
