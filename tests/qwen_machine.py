"The second delta tokenizer for Qwen3's format: tags, tool results that share a turn, another stop token, and thinking that is closed."
import random
from functools import cache

from delta_machine import END, NEWLINE, PIECES, START, Machine, Model, closed, cut_up, is_open, refused, segment, small_tokenizer, trained
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tito_nb.bpe import BpeTokenizer
from tito_nb.delta import DeltaTokenizer, ForgedTurn, InsideGroup
from tito_nb.renderer import QWEN3, Message

THINK, THOUGHT, CALL, CALLED, RESULT, RESULTED = TAGS = (b"<think>", b"</think>", b"<tool_call>", b"</tool_call>", b"<tool_response>", b"</tool_response>")
STOP, OTHER = b"<|endoftext|>", b"<|other|>"


def places(content: bytes) -> list[int]:
    "Where tags are spelled"
    return [at for at in range(len(content)) if any(content.startswith(tag, at) for tag in TAGS)]


class QwenModel(Model):
    "Messages are (role, content, offsets of tags)"

    # what things look like

    def cut(self, content: bytes, tags) -> list:
        "Texts, and control ids as numbers, in turn"
        parts, at = [], 0
        for offset in tags:
            tag = next(tag for tag in TAGS if content.startswith(tag, offset))
            parts += [content[at:offset], self.tokenizer.control[tag]]
            at = offset + len(tag)
        return [*parts, content[at:]]

    def turn_parts(self, messages) -> list:
        "Texts and control ids of one turn: a message that is no result, or results"
        control = self.tokenizer.control
        if messages[0][0] != "tool":
            role, content, tags = messages[0]
            first, *rest = self.cut(content, tags)
            return [control[START], role.encode() + NEWLINE + first, *rest, control[END], NEWLINE]
        parts: list = [control[START], b"user"]
        for _, content, _ in messages:
            parts[-1:] = [parts[-1] + NEWLINE] if isinstance(parts[-1], bytes) else [parts[-1], NEWLINE]
            parts += [control[RESULT], NEWLINE + content + NEWLINE, control[RESULTED]]
        return [*parts, control[END], NEWLINE]

    def turns_of(self, messages, starts=None) -> list[list]:
        "Messages by turn; without `starts`, results that follow each other share one"
        turns: list[list] = []
        for n, message in enumerate(messages):
            alone = not turns or message[0] != "tool" or turns[-1][-1][0] != "tool"
            (turns.append([message]) if (alone if starts is None else starts[n] is not None) else turns[-1].append(message))
        return turns

    def encoded(self, parts, encode) -> list[int]:
        return [i for part in parts for i in ([part] if isinstance(part, int) else encode(part))]

    def spelled_all(self, messages, starts=None) -> bytes:
        spell = lambda part: self.decode([part]) if isinstance(part, int) else part
        return b"".join(spell(part) for turn in self.turns_of(messages, starts) for part in self.turn_parts(turn))

    def controls(self) -> list[int]:
        return [part for turn in self.turns_of(self.messages, self.starts) for part in self.turn_parts(turn) if isinstance(part, int)]

    # what happens

    def joins(self, messages) -> bool:
        return bool(messages) and bool(self.messages) and messages[0][0] == "tool" == self.messages[-1][0]

    def append_all(self, messages, kind: str = "rendered") -> None:
        for turn in self.turns_of(messages):
            self.starts += [len(self.ids), *[None] * (len(turn) - 1)]
            self.add(kind, self.encoded(self.turn_parts(turn), self.tokenizer.encode), len(self.messages))
            self.messages += turn
            self.no_end += [False] * len(turn)

    def adoptable(self, messages, cut) -> list[int]:
        return [i for turn in self.turns_of(messages) for i in self.encoded(self.turn_parts(turn), cut)]

    def stop_at(self, ids: list[int]) -> int | None:
        "Where the first stop token stands"
        stops = (self.tokenizer.control[END], self.tokenizer.control[STOP])
        return next((n for n, token in enumerate(ids) if token in stops), None)

    def whole_turn_ids(self) -> list[int]:
        return [i.token for i in self.ids[self.turn :] if i.kind == "sampled"]

    def after_end(self, ids: list[int]) -> bytes | None:
        at = self.stop_at(ids)
        return None if at is None else self.decode(ids[at + 1 :])

    def how_many(self, new: list[int]) -> int:
        "A stop that is not the end lets nothing follow, the end lets a newline follow"
        said = self.whole_turn_ids()
        for n in range(len(new) + 1):
            before = said + new[:n]
            at = self.stop_at(before)
            if at is not None:
                rest, end = self.decode(before[at + 1 :]), before[at] == self.tokenizer.control[END]
                plain = not any(token in self.tokenizer.control.values() for token in before[at + 1 :])
                if not (rest == b"" and not before[at + 1 :] or end and plain and rest == NEWLINE[: len(rest)]):
                    return n - 1 if n else 0
        return len(new)

    def sample(self, new: list[int], logprobs, version=None) -> None:
        said, message = self.whole_turn_ids(), len(self.messages)
        n = self.how_many(new)
        fits = [k for k in range(n) if not (new[k] == self.tokenizer.control[STOP] and self.stop_at(said + new[: k + 1]) == len(said) + k)]
        for k, token in enumerate(new):
            inside = message if k in fits else None
            self.add("sampled", [token], inside, logprobs and [logprobs[k]], version)

    def judged(self):
        "Content, tags and missing bytes of the open turn, or the offset of a forgery"
        said, control = self.whole_turn_ids(), self.tokenizer.control
        at = self.stop_at(said)
        body, data, tags = said if at is None else said[:at], b"", []
        names = {control[tag]: tag for tag in TAGS}
        for token in body:
            if token in names:
                tags.append(len(data))
            elif token in control.values():
                return len(data)
            data += self.decode([token])
        ended = at is not None and said[at] == control[END]
        newline = ended and self.decode(said[at + 1 : at + 2]) == NEWLINE and said[at + 1] not in control.values() and self.message_of(at + 1) is not None
        return data, tags, b"" if newline else NEWLINE if ended else END + NEWLINE

    def message_of(self, n: int):
        "The message of the n-th id sampled in the open turn"
        return [i.message for i in self.ids[self.turn :] if i.kind == "sampled"][n]

    def close(self, finish_reason: str | None, thinking: str = "keep"):
        content, tags, missing = self.judged()
        control, asked = self.tokenizer.control, [i.token for i in self.ids]
        spelled = [next(tag for tag in TAGS if content.startswith(tag, at)) for at in tags]
        last = [tag for tag in spelled if tag in (THINK, THOUGHT)][-1:]
        added: list = []
        if thinking == "close" and missing == END + NEWLINE and last == [THINK]:
            before = b"" if content.endswith(NEWLINE) else NEWLINE
            added = [before, control[THOUGHT], NEWLINE * 2]
            tags, content = [*tags, len(content + before)], content + before + THOUGHT + NEWLINE * 2
        if missing.startswith(END):
            added += [control[END]]
        if missing:
            added += [NEWLINE]
        said = self.whole_turn_ids()
        self.no_end.append(finish_reason == "stop" and control[END] not in said[: (self.stop_at(said) or 0) + 1])
        self.asked = asked
        self.add("closed", self.encoded(added, self.tokenizer.encode), len(self.messages))
        self.starts.append(self.turn)
        self.messages.append(("assistant", content, tags))
        self.turn = None
        return content, tags

    def stopped(self) -> list[int]:
        stop, end, found = self.tokenizer.control[STOP], self.tokenizer.control[END], []
        for n, i in enumerate(self.ids):
            outside = i.message is None and i.kind in ("sampled", "replayed")
            first = n == 0 or self.ids[n - 1].message is not None or self.ids[n - 1].kind not in ("sampled", "replayed")
            if outside and first and i.token == stop:
                back = n
                while back and self.ids[back - 1].kind in ("sampled", "replayed"):
                    back -= 1
                found += [n] if end not in [j.token for j in self.ids[back:n]] else []
        return found

    def edit(self, index: int, taken: int, put) -> "QwenModel":
        edges = [*self.starts, len(self.ids)]
        if edges[index] is None or edges[index + taken] is None:
            raise InsideGroup("inside a group")
        left = self.messages[:index][-1:]
        row = [*left, *put, *self.messages[index + taken :][:1]]
        if any(one[0] == "tool" == other[0] for one, other in zip(row, row[1:])):
            raise InsideGroup("side by side")
        return super().edit(index, taken, put)

    def written(self, role: str, content: bytes, tags=()) -> list[int]:
        return self.encoded(self.turn_parts([(role, content, tags)]), self.tokenizer.encode)

    def read_ids(self, ids: list[int]):
        "By hand: turns between delimiters, tags inside, results where a group has them"
        control = self.tokenizer.control
        names, messages, starts, at = {control[tag]: tag for tag in TAGS}, [], [], 0
        while at < len(ids):
            ends = [n for n in range(at + 1, len(ids)) if ids[n] in control.values() and ids[n] not in names]
            if ids[at] != control[START] or not ends or ids[ends[0]] != control[END]:
                return None
            stop = ends[0]
            following = next((n for n in range(stop + 1, len(ids)) if ids[n] in control.values()), len(ids))
            if self.decode(ids[stop + 1 : following]) != NEWLINE:
                return None
            data, tags = b"", []
            for token in ids[at + 1 : stop]:
                tags += [len(data)] if token in names else []
                data += self.decode([token])
            role, newline, content = data.partition(NEWLINE)
            head = len(role) + 1
            if not newline or role not in (b"system", b"user", b"assistant") or tags and tags[0] < head:
                return None
            if role == b"user" and tags:
                found = self.read_group(content, [tag - head for tag in tags])
                if found is None:
                    return None
            else:
                found = [(role.decode(), content, [tag - head for tag in tags])]
            starts += [at, *[None] * (len(found) - 1)]
            messages += found
            at = following
        return messages, starts

    def read_group(self, content: bytes, tags: list[int]):
        "The results of a group, or None"
        found, expected = [], 0
        for opening, closing in zip(tags[::2], [*tags, -1][1::2]):
            body = opening + len(RESULT + NEWLINE)
            fits = opening == expected and content.startswith(RESULT + NEWLINE, opening) and closing >= body + 1 and content.startswith(RESULTED, closing)
            if not fits or not content[body:closing].endswith(NEWLINE):
                return None
            found.append(("tool", content[body : closing - 1], []))
            expected = closing + len(RESULTED + NEWLINE)
        return found if content.endswith(RESULTED) and expected == len(content) + 1 and content[: expected - 1] == content and self.between(content, tags) else None

    def between(self, content: bytes, tags: list[int]) -> bool:
        "A newline between two results"
        return all(content[opening - 1 : opening] == NEWLINE for opening in tags[2::2])


texts = st.lists(st.sampled_from([*PIECES, *TAGS, STOP, b"\n\n"]), max_size=4).map(b"".join)


@st.composite
def messages(draw):
    role, content = draw(st.sampled_from(["system", "user", "assistant", "tool", "tool"])), draw(texts)
    return role, content, [at for at in places(content) if draw(st.booleans())] if role in ("assistant", "system") else []


@cache
def qwen_tokenizer(seed: int) -> BpeTokenizer:
    "A small table, and the format's control tokens besides one that it does not know"
    table = small_tokenizer(seed, False).table if seed % 2 else trained(30 * seed)
    return BpeTokenizer(table, None, {text: table.size + 3 + 2 * i for i, text in enumerate((START, END, STOP, OTHER, *TAGS))})


@cache
def real_tokenizer():
    "The vocabulary of Qwen3"
    from tito_nb.engines import qwen3
    return qwen3(readable=True)


class QwenMachine(Machine):
    "The machine of the other format"
    ids_mode, model_class, chat_format = True, QwenModel, QWEN3

    def a_tokenizer(self, rng):
        return qwen_tokenizer(rng.randrange(6)) if self.small else real_tokenizer()

    @initialize(seed=st.integers(0, 2**32), new=st.lists(messages(), max_size=4), turns=st.integers(0, 2))
    def begin(self, seed, new, turns):
        rng = random.Random(seed)
        self.tokenizer = self.a_tokenizer(rng)
        self.enter(DeltaTokenizer(self.tokenizer, QWEN3), QwenModel(self.tokenizer))
        self.adopt(new, rng) if rng.random() < 0.5 else self.append(new, False)
        for _ in range(turns):
            self.whole_turn(rng.randrange(2**32), "stop")

    @precondition(closed)
    @rule(new=st.lists(messages(), max_size=3), plain=st.just(False))
    def append(self, new, plain):
        Machine.append(self, new, plain)

    @precondition(is_open)
    @rule(seed=st.integers(0, 2**32))
    def sample(self, seed):
        delta, model, rng = self.delta, self.model, random.Random(seed)
        control, keep = self.tokenizer.control, rng.random() < 0.6
        text = lambda: segment(self.tokenizer, rng.choice([b"a", b"ls\n", b"\n", b"<think>", b"<|im_e", "😀".encode()[:3]]), rng) if isinstance(self.tokenizer, BpeTokenizer) else [10]
        tags = lambda: [control[rng.choice(TAGS)]]
        ids = [i for _ in range(rng.randint(0, 4)) for i in rng.choice([text, text, tags])()]
        newline = self.tokenizer.encode(NEWLINE)
        ids += rng.choice([[], [control[THINK]], [control[THINK], *newline], [control[STOP], *newline], [control[END]], [control[END], *newline], [control[STOP]], [control[STOP], *text()], [control[rng.choice([START, *control])]], [control[END], *text()]])
        for new in cut_up(ids, rng):
            logprobs = [-rng.random() for _ in new] if rng.random() < 0.5 else None
            version, n = rng.choice([None, 0, 4]), model.how_many(new)
            call = lambda: delta.sample(new, logprobs, version=version, after_stop="keep" if keep else "refuse")
            if n < len(new) and not keep:
                assert refused(delta, call, ValueError).index == n
                continue
            call()
            model.sample(new, logprobs, version)
        self.peek()

    def peek(self):
        said = self.model.whole_turn_ids()
        at = self.model.stop_at(said)
        peeked = self.delta.peek()
        assert peeked.ended == (at is not None) and peeked.content == self.model.decode(said if at is None else said[:at])
        return peeked

    @precondition(is_open)
    @rule(finish_reason=st.sampled_from([None, "stop", "length"]), thinking=st.sampled_from(["keep", "close"]))
    def close_turn(self, finish_reason, thinking="keep"):
        delta, model, old = self.delta, self.model, self.delta.tokens
        judged = model.judged()
        if isinstance(judged, int):
            assert refused(delta, lambda: delta.close_turn(finish_reason, thinking=thinking), ForgedTurn).offset == judged
            return
        message = delta.close_turn(finish_reason, thinking=thinking)
        assert message == Message("assistant", *model.close(finish_reason, thinking))
        assert delta.tokens[: len(old)] == old and not any(delta.loss_mask[len(old) :])

    @precondition(closed)
    @rule(place=st.integers(0, 6), new=messages(), stay=st.booleans())
    def insert(self, place, new, stay):
        Machine.insert(self, place, new, stay)

    @precondition(closed)
    @rule(new=st.lists(messages(), max_size=3))
    def restart(self, new):
        Machine.restart(self, new)

    @rule(new=st.lists(messages(), max_size=4), seed=st.integers(0, 2**32))
    def from_tokens(self, new, seed):
        self.adopt(new, random.Random(seed))

    @rule(kind=st.sampled_from(["order", "message", "sample", "place", "rest"]), seed=st.integers(0, 2**32), new=messages())
    def misuse(self, kind, seed, new):
        if kind != "message" or new[0] != "tool":
            getattr(self, f"bad_{kind}")(random.Random(seed), Message(*new))
