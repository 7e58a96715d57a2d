"""What the fast way reads off a rendering: nothing is taken for shown that the definition finds lost or garbled."""

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from conversation_shapes import TOOL
from rendered_twice import batch, hold
from search_effort import IS_DEEP, each_with_a_kind
from supervision_stages import assistant, call, chat, result, system, user

from packer.render.renderer import Renderer

Under = Callable[..., Renderer]


def source(body: str) -> str:
    ending = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    return f"{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n{body}<|im_end|>\n{{% endfor %}}{ending}"


CALLS = "{% for c in m.tool_calls or [] %}{% set c = c.function %}{% set A = c.arguments %}{{ c.name }}: "


def called(arguments: Any, text: str = "and so it is") -> list[dict[str, Any]]:
    return [user("what is this"), assistant("", tool_calls=[call("look", arguments)]), result("r"), assistant(text)]


class Case(NamedTuple):
    template: str
    messages: list[Mapping[str, Any]]


CASES = {
    "a text of some kind is written, others are not": Case(
        source("{{ m.content if m.role == 'assistant' or '<' in m.content else '' }}"),
        [user("a<b"), assistant("and so it is")],
    ),
    "a text is written if another is of some kind": Case(
        source(
            "{% if m.role != 'tool' or '<' in messages[0].content %}{{ m.content }}{% endif %}" + CALLS + "{% endfor %}"
        ),
        [user("a<b"), *called({})[1:]],
    ),
    "a part of a text is written several times": Case(
        source("{{ m.content }}: {{ (m.content.split('|')[0] ~ '.') ~ m.content.split('|')[0] }}"),
        [user("&amp;| and more of it"), assistant("and so it is")],
    ),
    "empty arguments are not written": Case(
        source("{{ m.content }}" + CALLS + "{% if A is mapping %}{{ A | tojson }}{% endif %}{% endfor %}"), called("")
    ),
    "a zero is not written": Case(
        source("{{ m.content }}" + CALLS + "{% if A is mapping %}{{ A | tojson }}{% endif %}{% endfor %}"), called(0)
    ),
    "quotation marks of the template": Case(
        source("{{ m.content }}" + CALLS + '{\\"a\\": {{ A | tojson(indent=1) }}}' + "{% endfor %}"), called({"q": "a"})
    ),
    "arguments that look like another call of the message": Case(
        source("{{ m.content }}" + CALLS + "{{ A | tojson }} {{ A | tojson }}, {% endfor %}"),
        [
            user("what is this"),
            assistant("", tool_calls=[call("look", {"q": 'look(a="b")'}), call("look", {"a": 2})]),
            result("r"),
            assistant("and so it is"),
        ],
    ),
    "texts that become an escape side by side": Case(
        "{% for m in messages %}{{ m.content }}{{ '<|im_end|>' if m.role == 'assistant' }}{% endfor %}",
        [user("this and &"), user("amp; all of that"), assistant("and so it is")],
    ),
    "a text before the loop that becomes an escape": Case(
        "{{ messages[0].content }}{% for m in messages[1:] %}{{ m.content }}{{ '<|im_end|>' if m.role == 'assistant' }}"
        "{% endfor %}",
        [user("this and &"), user("amp; all of that"), assistant("and so it is")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_losses_are_found_as_by_the_letter(name: str, under: Under) -> None:
    template, messages = CASES[name]
    hold(under(template), [chat(*messages)])


GARBLED = {
    "a text that is left out where another message has it": "{{ '' if m.role == 'user' else m.content }}",
    "a text that is written in the place of another": "{{ messages[loop.index0 - 1].content }}",
    "a result that is left out": "{{ m.content if m.role != 'tool' }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}",
    "a call that is left out": "{{ m.content }}",
    "a call without its arguments": "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}",
    "a call as a string within JSON": (
        '{{ m.content }}{% for c in m.tool_calls or [] %}{"name": "{{ c.function.name }}", '
        '"arguments": {{ c.function.arguments | tojson | tojson }}}{% endfor %}'
    ),
    "a call as Python writes a dict": "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function }}{% endfor %}",
    "a call escaped for HTML": "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson | e }}{% endfor %}",
    "a call without quotation marks": (
        "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}({% for k, v in c.function.arguments.items() %}"
        "{{ k }}={{ v }}{{ ', ' if not loop.last }}{% endfor %}){% endfor %}"
    ),
    "a call as elements": (
        "{{ m.content }}{% for c in m.tool_calls or [] %}<f={{ c.function.name }}>{% for k, v in c.function.arguments.items() %}"
        "<p={{ k }}>{{ v }}</p>{% endfor %}</f>{% endfor %}"
    ),
    "one argument of a call": (
        "{{ m.content }}{% for c in m.tool_calls or [] %}<f={{ c.function.name }}>{% for k, v in c.function.arguments.items() %}"
        "{% if loop.first %}<p={{ k }}>{{ v }}</p>{% endif %}{% endfor %}</f>{% endfor %}"
    ),
    "a call behind the stop token": (
        "{{ m.content }}{% if m.tool_calls %}<|im_end|>\n{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}{% endif %}"
    ),
    "reasoning that is left out": "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}",
    "reasoning behind a closed block": (
        "{% if m.role == 'assistant' %}<think></think>{% endif %}{{ m.reasoning_content }}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}"
    ),
    "all there is": "{{ m.reasoning_content }}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}",
}
"""Ways to write messages, most of which lose something."""

ARGUMENTS: tuple[Any, ...] = (
    {"q": "Paris, as ever"},
    {"q": "a"},
    {"q": 'he said "no"', "n": 7},
    {"a": 1, "b": 1},
    {"a": "a", "b": "b"},
    {"where": {"city": "Oslo", "days": [1, 2.0, None, True]}},
    {},
    {"q": "x=y, z"},
    {"q": "<b> & so on"},
    {"text": "line\nline\ttab \\ é"},
)
TOLD = [*itertools.product(ARGUMENTS, ("", "a", "I look it up."), ({}, {"reasoning_content": "It may be so."}))]
"""Arguments, the text beside them and reasoning."""


@pytest.mark.parametrize(("name", "tools"), each_with_a_kind(GARBLED, [False, True]))
def test_what_a_template_loses_is_never_taken_the_fast_way(name: str, tools: bool, under: Under) -> None:
    opening = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    template = opening + source(GARBLED[name])
    renderer = under(template)
    rows = []
    some = TOLD if IS_DEEP else TOLD[[*GARBLED].index(name) :: 17]  # others of each template
    for number, (arguments, text, reasoning) in enumerate(some):
        told = assistant(text, tool_calls=[call("look", arguments)], **reasoning)
        talk = [user("Where is it?"), told, result("It is Paris, as ever."), assistant("It is so.", **reasoning)]
        if number // 2 % 2:
            talk += [user("I look it up."), *talk[1:]]
        rows.append(chat(*talk, row=number, tools=[TOOL] if tools else None))
    found = hold(renderer, rows)
    assert found.cut > len(some) // 2 or name != "all there is"


def test_tools_that_only_a_text_names_are_lost(under: Under) -> None:
    template = source("{{ m.content }}")
    renderer = under(template)
    said = json.dumps(TOOL, ensure_ascii=False)
    rows = [chat(user(f"This is a tool: {said}"), assistant("and so it is"), tools=[TOOL])]
    found = hold(renderer, rows * 2)
    assert found.cut == 0


@pytest.mark.parametrize(
    ("written", "cut"),
    [
        ("{{ t | tojson }}", True),
        ("{{ t.function | tojson(indent=4) }}", True),
        ("{{ t.function.name }}: {{ t.function.parameters.properties.keys() | list }}", True),
        ("{{ t.function.name }}", False),
        ("{{ t.function.parameters.properties.keys() | list }}", False),
    ],
)
def test_tools_are_shown_or_their_row_is_refused(written: str, cut: bool, under: Under) -> None:
    template = f"{{% for t in tools or [] %}}{written}{{% endfor %}}" + source("{{ m.content }}")
    renderer = under(template)
    rows = [chat(user("what is this"), assistant("and so it is"), tools=[TOOL])] * 2
    found = hold(renderer, rows)
    assert found.cut == (2 if cut else 0)


def test_a_row_with_a_blank_text_tells_nothing_of_one_with_a_short_text(under: Under) -> None:
    template = source("{{ m.content if m.role != 'system' }}")
    renderer = under(template)
    rows = [[system(text), user("what"), assistant("and so it is")] for text in (" ", "so")]
    samples = [chat(*row, row=number) for number, row in enumerate(rows)]
    hold(renderer, samples)
    rejections = renderer.render(batch(samples)).rejections
    assert [(each.row, each.code) for each in rejections] == [(1, "dropped_system")]


LOST = {
    "a question": ("{{ m.content if m.role != 'user' }}", "dropped_user"),
    "an instruction": ("{{ m.content if m.role != 'system' }}", "dropped_system"),
    "a result": ("{{ m.content if m.role != 'tool' }}", "dropped_tool_result"),
    "a text beside calls": ("{{ m.content if not m.tool_calls }}", "dropped_content"),
    "reasoning": ("{{ m.content }}", "dropped_reasoning"),
}
ALL_SAID = [
    system("Be brief, at least in part."),
    user("Where may that be?"),
    assistant("I look it up.", tool_calls=[call("look", {"q": "Paris"})], reasoning_content="It may be there."),
    result("It is Paris, as ever."),
    assistant("So it is there."),
]


@pytest.mark.parametrize("name", LOST)
def test_what_is_lost_is_found_by_place(name: str, under: Under) -> None:
    written, code = LOST[name]
    template = source(
        ("{{ m.reasoning_content }}" if name != "reasoning" else "") + written + CALLS + "{{ A | tojson }}{% endfor %}"
    )
    renderer = under(template)
    found = hold(renderer, [chat(*ALL_SAID), chat(*ALL_SAID)])
    assert found.cut == 0
    assert [each.code for each in renderer.render(batch([chat(*ALL_SAID)])).rejections] == [code]
    allowing = under(template, f"supervision.allow_dropped=[{code.removeprefix('dropped_')}]")
    assert hold(allowing, [chat(*ALL_SAID), chat(*ALL_SAID)]).kept == 2


@pytest.mark.parametrize(
    ("written", "talk"),
    [
        ("{{ m.content | upper if m.role == 'user' else m.content }}", ALL_SAID[:2] + ALL_SAID[-1:]),
        ("{{ m.content if m.role != 'user' }}", [user("It is so."), assistant("It is so.")]),
        ("{{ m.content | e if m.role == 'user' else m.content }}", [user("Is a < b?"), assistant("It is so.")]),
        ("{{ m.content if not m.tool_calls }}" + "{{ m.tool_calls | string if m.tool_calls }}", ALL_SAID),
    ],
)
def test_what_may_be_written_otherwise_is_not_refused_by_place(
    written: str, talk: list[dict[str, Any]], under: Under
) -> None:
    assert hold(under(source(written)), [chat(*talk), chat(*talk)])
