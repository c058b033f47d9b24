"The cases of the field: each has a test, and those about templates are here."
import re
from itertools import product

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from notebooks import ROOT

from tito_nb.renderer import Message, render

LAST_THINKING = "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}{{ m.content }}[end]{% endfor %}"
LAST_SEQUENCE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}{% if messages and messages[-1].role == 'assistant' %}<eos>{% endif %}"
LAST_TOKEN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ '[eot]' if loop.last else '[end]' }}{% endfor %}"
STEADY = "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}"


def witness(render_all, longest: int = 3):
    "The smallest conversation whose rendering does not begin with that of its beginning, and the length of that beginning; None if none is found"
    roles = ("user", "assistant", "tool")
    for n in range(longest + 1):
        for chosen in product(roles, repeat=n):
            messages = [{"role": role, "content": "x"} for role in chosen]
            for k in range(n):
                if not render_all(messages).startswith(render_all(messages[:k])):
                    return list(chosen), k
    return None


@pytest.mark.parametrize("source, found", [
    (LAST_THINKING, (["assistant", "user"], 1)),  # case 3
    (LAST_SEQUENCE, (["assistant", "user"], 1)),  # case 4
    (LAST_TOKEN, (["user", "user"], 1)),  # case 5
    (STEADY, None),
], ids=["3", "4", "5", "none"])
def test_cases_3_4_and_5_templates_that_do_not_keep_their_prefix(source, found):
    template = ImmutableSandboxedEnvironment().from_string(source)
    assert witness(lambda messages: template.render(messages=messages)) == found


def test_the_renderer_keeps_its_prefix():
    assert witness(lambda messages: render([Message(**message) for message in messages])) is None


def test_every_case_has_a_test():
    "Cases 1 to 24 by the names of tests"
    found = [part for path in (ROOT / "tests").glob("test_*.py") for part in re.findall(r"def test_cases?_((?:\d+_|and_)+)", path.read_text(encoding="utf-8"))]
    assert {int(number) for part in found for number in re.findall(r"\d+", part)} == set(range(1, 25))
