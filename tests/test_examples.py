"Training examples: six sequences that agree, exports that lose nothing, and a shift that is made once."
import math, random
from array import array
from dataclasses import fields
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import QWEN_TOY, attempt_error

from tito_nb.delta import DeltaTokenizer
from tito_nb.examples import (
    LOSS_OFF, NO_VERSION, InvalidExample, TrainingExample, causal_loss, first_wrong, log_softmax, prompt_length, response_logprobs, to_trl, to_verl,
)
from tito_nb.renderer import QWEN3, Message

END = QWEN_TOY.control[b"<|im_end|>"]


def rollout(seed: int, logprobs: bool = True) -> DeltaTokenizer:
    "Some turns, sampled in pieces of several versions, some cut off, with results between them"
    rng, delta = random.Random(seed), DeltaTokenizer(QWEN_TOY, QWEN3)
    delta.append(Message("user", "go"))
    for _ in range(rng.randint(1, 3)):
        delta.open_turn()
        for _ in range(rng.randint(0, 3)):
            ids = QWEN_TOY.encode(rng.choice([b"a", b"user\n", b" call", b"\n\n"]))
            delta.sample(ids, [-rng.random() for _ in ids] if logprobs else None, version=rng.choice([None, 0, 5]))
        delta.sample([END], [-0.5] if logprobs else None)
        delta.close_turn("stop")
        delta.append(Message("tool", "ok"), Message("tool", "<|im_end|>"))
    return delta


@given(st.integers(0, 2**32), st.booleans())
def test_what_a_delta_tokenizer_makes_has_no_contradiction(seed, logprobs):
    delta = rollout(seed, logprobs)
    delta.restart([Message("user", "again")])
    examples = [*delta.training_examples(), *delta.insert(0, Message("system", "x")).training_examples()]
    assert len(examples) == 4 and all(first_wrong(example) is None for example in examples)
    assert not any(examples[1].loss_mask) and sum(examples[0].loss_mask) > 0


@given(st.integers(0, 2**32))
def test_exports_lose_nothing(seed):
    "Prompt and response are the ids, the mask is the mask, the log-probabilities are those of the sampled ids"
    [example] = rollout(seed).training_examples()
    verl, trl = to_verl(example), to_trl(example)
    assert verl["prompt_ids"] + verl["response_ids"] == example.tokens.tolist() == trl["prompt_ids"] + trl["completion_ids"] == trl["input_ids"]
    start = len(verl["prompt_ids"])
    assert start == prompt_length(example) and not any(example.loss_mask[:start]) and verl["response_mask"][0] == 1
    assert [0] * start + verl["response_mask"] == list(example.loss_mask) and trl["env_mask"] == verl["response_mask"]
    assert len(verl["response_logprobs"]) == len(verl["response_ids"]) and trl["logprobs"] == verl["response_logprobs"]
    for i, (on, logprob) in enumerate(zip(verl["response_mask"], verl["response_logprobs"]), start):
        assert logprob == (example.logprobs[i] if on else 0.0) and not math.isnan(logprob)
    assert trl["labels"] == [t if on else -100 for t, on in zip(example.tokens, example.loss_mask)]
    assert all(type(value) is list for value in verl.values()) and all(type(x) is int for x in verl["prompt_ids"] + verl["response_mask"])


def test_log_probabilities_are_all_or_none():
    [example] = rollout(1, logprobs=False).training_examples()
    assert to_verl(example)["response_logprobs"] is None is to_trl(example)["logprobs"]
    [example] = rollout(4).training_examples()
    places = [i for i, on in enumerate(example.loss_mask) if on]
    assert len(places) > 1
    example.logprobs[places[-1]] = math.nan
    assert attempt_error(InvalidExample, lambda: response_logprobs(example)).index == places[-1]


def test_without_loss_there_is_no_response():
    delta = DeltaTokenizer(QWEN_TOY, QWEN3)
    for example in (delta.training_examples()[0], rollout(3).insert(0, Message("system", "x")).training_examples()[0]):
        for call in (prompt_length, response_logprobs, to_verl, to_trl):
            assert "no id has loss" in str(attempt_error(InvalidExample, lambda: call(example)))


@given(st.integers(0, 2**32))
def test_the_two_conventions_agree(seed):
    "A random model over few ids: unshifted labels with the shift in the loss, and gathered log-probabilities of the response"
    rng = random.Random(seed)
    table = [[rng.uniform(-3, 3) for _ in range(6)] for _ in range(6)]
    ids = [rng.randrange(6) for _ in range(rng.randint(2, 12))]
    mask = [0, *(rng.randint(0, 1) for _ in ids[1:-1]), 1]
    labels = [token if on else LOSS_OFF for token, on in zip(ids, mask)]
    made = TrainingExample(
        array("I", ids), bytearray(mask), array("q", labels), array("d", [-1.0 if on else math.nan for on in mask]), bytearray(len(ids)), array("q", [NO_VERSION] * len(ids)))
    verl = to_verl(made)
    whole, start = verl["prompt_ids"] + verl["response_ids"], len(verl["prompt_ids"])
    their = [log_softmax(table[before])[token] for before, token in pairwise(whole[start - 1 :])]
    masked = [-logprob for logprob, on in zip(their, verl["response_mask"]) if on]
    assert math.isclose(causal_loss([table[token] for token in ids], to_trl(made)["labels"]), sum(masked) / len(masked))
    assert first_wrong(made) is None


def test_causal_loss_by_hand():
    scores = [[0.0, math.log(3)], [math.log(7), 0.0], [5.0, 5.0]]
    assert math.isclose(causal_loss(scores, [0, 1, 0]), (math.log(4 / 3) + math.log(8 / 7)) / 2)
    assert math.isclose(causal_loss(scores, [1, 1, LOSS_OFF]), math.log(4 / 3)) and math.isclose(sum(map(math.exp, log_softmax([1e3, 1e3 - 1]))), 1)


GOOD = {"tokens": array("I", [5, 6]), "loss_mask": bytearray([0, 1]), "labels": array("q", [-100, 6]), "logprobs": array("d", [math.nan, -1]), "score_mask": bytearray(2), "versions": array("q", [-1, 0])}


@pytest.mark.parametrize("name", [field.name for field in fields(TrainingExample)])
def test_lengths_are_checked(name):
    assert first_wrong(TrainingExample(**GOOD)) is None
    error = attempt_error(InvalidExample, lambda: TrainingExample(**{**GOOD, name: GOOD[name][:1]}))
    assert f"{name} 1" in str(error) and error.index is None


@pytest.mark.parametrize("name, index, value", [
    ("loss_mask", 0, 1), ("loss_mask", 1, 0), ("loss_mask", 1, 2), ("labels", 0, 5), ("labels", 1, 5), ("labels", 1, -100), ("logprobs", 0, -1.0),
    ("score_mask", 1, 1), ("score_mask", 0, 2), ("versions", 0, 0), ("versions", 1, -2), ("tokens", 1, 7),
])
def test_contradictions_are_found(name, index, value):
    parts = {key: part[:] for key, part in GOOD.items()}
    parts[name][index] = value
    assert first_wrong(TrainingExample(**parts)) == index
