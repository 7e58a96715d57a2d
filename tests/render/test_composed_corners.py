"""Composed renderings under templates that look composable, or not, where they are the other: each is what the template writes."""

import contextlib
import itertools
import random
from typing import Any

import jinja2.nodes
import pytest
import twins
from conversation_shapes import OTHER_TOOL, TOOL
from conversations import conversations
from hypothesis import given
from hypothesis import strategies as st
from rendered_twice import assert_same, batch, literal
from search_effort import percent_of_examples
from search_templates import SEARCHES
from supervision_stages import ALLOW_ALL, Stages, assistant, call, chat, result, system, user

from packer.render import ChatTemplate, RenderError
from packer.render.composed import Composition
from packer.render.composed_template import ComposedTemplate
from packer.render.sandbox import environment_of
from packer.render.search_loops import reduce_queries
from packer.render.symbolic import OpaqueError

TOOLS = [TOOL, OTHER_TOOL]
QWEN3_IDLE = """{% set ns = namespace(searching=true, last=messages|length - 1) %}{% for m in messages[::-1] %}
{% set index = (messages|length - 1) - loop.index0 %}
{% if ns.searching and m.role == 'user' %}{% set ns.searching = false %}{% set ns.last = index %}{% endif %}{% endfor %}
{{ ns.last }}{% for m in messages %}{{ m.content }}{{ loop.index0 > ns.last }}{% endfor %}"""

_BEFORE = "{% set ns = namespace(on=true, at=9) %}"
_WHOLE = "{% set ns.n = messages | length %}"
"""What keeps a loop from going on, so that it is only asked whether it runs idle."""

_FOUND = f"{_WHOLE}{{% set ns.on = false %}}{{% set ns.at = loop.index0 %}}"
IDLE: dict[str, tuple[bool, str]] = {
    "a flag": (
        True,
        f"{{% for m in messages %}}{{% if ns.on and m.role == 'tool' %}}{_FOUND}{{% endif %}}{{% endfor %}}",
    ),
    "from the end, and counting": (
        True,
        (
            "{% for m in messages[::-1] %}{% set index = messages | length - loop.index %}"
            f"{{% if ns.on and m.content %}}{{{{ index }}}}{_FOUND}{{% endif %}}{{% endfor %}}"
        ),
    ),
    "two statements": (
        True,
        (
            f"{{% for m in messages %}}{{% if ns.on and m.role == 'tool' %}}{_FOUND}{{% endif %}}"
            "{% if ns.on and loop.last %}{{ loop.index }}{% endif %}{% endfor %}"
        ),
    ),
    "an item of its name": (
        False,
        "{% for ns in messages %}{% if ns.content and ns.role %}{{ ns.role }}{{ messages | length }}{% endif %}{% endfor %}",
    ),
    "a name set within": (
        False,
        "{% for m in messages %}{% set ns = loop.index0 %}{% if ns.real and m %}{{ m.role }}{{ messages | length }}{% endif %}{% endfor %}",
    ),
    "two flags": (
        False,
        (
            f"{{% for m in messages %}}{{% if ns.on and m.role == 'tool' %}}{_FOUND}{{% endif %}}"
            "{% if ns.at and loop.last %}{{ loop.index }}{% endif %}{% endfor %}"
        ),
    ),
    "a flag set again": (
        False,
        f"{{% for m in messages %}}{{% set ns.on = loop.last %}}{{% if ns.on and m %}}{{{{ m.role }}}}{_WHOLE}{{% endif %}}{{% endfor %}}",
    ),
    "what is written anyway": (
        False,
        f"{{% for m in messages %}}.{{% if ns.on and m.role == 'user' %}}{_FOUND}{{% endif %}}{{% endfor %}}",
    ),
    "another branch": (
        False,
        f"{{% for m in messages %}}{{% if ns.on and m.role == 'user' %}}{_FOUND}{{% else %}}{{{{ m.role }}}}{{% endif %}}{{% endfor %}}",
    ),
    "another condition": (
        False,
        f"{{% for m in messages %}}{{% if ns.on and m.role == 'user' %}}{_FOUND}{{% elif m.content %}}x{{% endif %}}{{% endfor %}}",
    ),
    "an end of its own": (
        False,
        f"{{% for m in messages %}}{{% if ns.on and m.role == 'user' %}}{_FOUND}{{% endif %}}{{% else %}}none{{% endfor %}}",
    ),
    "either": (
        False,
        f"{{% for m in messages %}}{{% if ns.on or m.role == 'user' %}}{_FOUND}{{{{ m.role }}}}{{% endif %}}{{% endfor %}}",
    ),
    "something else to set": (
        False,
        f"{{% for m in messages %}}{{% set x = m.content.x.y %}}{{% if ns.on and m.role %}}{_FOUND}{{% endif %}}{{% endfor %}}",
    ),
}
"""First loops that stop when they have found what they look for, and such as only look like it."""

BODIES = {
    "its item": "{{ m.role }}: {{ m.content }}\n",
    "its number": "{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.depth }}{{ m.content }}",
    "the item before": "{{ loop.previtem.role if not loop.first }}|{{ m.content }}",
    "the next item": "{{ loop.nextitem.role if not loop.last }}|{{ m.content }}{{ ' last' if loop.last }}",
    "the next item, if any": "{{ loop.nextitem is defined }}",
    "messages by number": "{{ messages[0].role }}{{ messages[loop.index0 - 1].role if not loop.first }}{{ messages[loop.index0 + 1] is defined }}",
    "the last message": "{{ messages[loop.index0 - 1].content }}",
    "no message": "{{ messages['x'] }}{{ messages[1.0] }}{{ messages[99] is defined }}",
    "a text from outside": "{{ opening }}{{ m.content }}",
    "a number from outside": "{{ number }}{{ m.content }}",
    "a bound": "{{ loop.index0 > number }}{{ number >= loop.index }}{{ loop.index == number }}{{ m.content }}",
    "a bound of a namespace": "{{ loop.index0 <= ns.number }}{{ ns.number != loop.index0 }}{{ m.content }}",
    "a bound that is read too": "{{ loop.index0 < ns.number }}{{ ns.number }}",
    "a namespace": "{{ ns.said }}{% if m.role == 'user' %}{% set ns.said = m.content %}{% endif %}",
    "a namespace that grows": "{% set ns.seen = ns.seen + [m.role] %}{{ ns.seen | join(',') }};",
    "a macro": "{{ shown(m) }}{{ ns.said }}",
    "the generation prompt": "{{ m.content if add_generation_prompt }}{{ loop.index }}",
    "tools": "{{ (tools or []) | length }}{% for t in tools or [] %}{{ loop.last }}{{ t | tojson }}{% endfor %}",
    "a loop within": "{% for c in m.content %}{{ loop.index0 }}{{ loop.last }}{{ c }}{% endfor %}{{ loop.index0 }}",
    "a block": "{% set text %}{{ m.content }}{{ loop.index }}{% endset %}{{ text | upper }}",
    "an early end": "{% if m.content == 'a' %}{% break %}{% endif %}{{ m.content }}",
    "a step over": "{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.content }}{{ loop.last }}",
    "marks": "{% generation %}{{ m.content }}{{ loop.last }}{% endgeneration %}",
    "what is not there": "{{ nothing }}{{ nothing is defined }}{{ ns.nothing }}",
    "a mistake": "{% if m.content == ' a' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}",
    "its number of items": "{{ loop.length }}{{ loop.revindex }}{{ m.content }}",
    "all messages": "{{ messages | length }}{{ m.content }}",
    "a namespace as a whole": "{{ shown(ns) }}{{ m.content }}",
}
"""Bodies of a loop, by what they ask for."""

AROUND = (
    "{%% macro shown(m) %%}{%% set ns.said = opening %%}<{{ m.role }} {{ number }}>{%% endmacro %%}"
    "{%% set ns = namespace(said='', seen=[], number=0) %%}{%% set opening = messages[0].content %%}{%% set number = 1 %%}"
    "{%% for m in messages %%}{%% if m.role == 'user' %%}{%% set ns.number = loop.index0 %%}{%% endif %%}{%% endfor %%}"
    "{%% if enable_thinking is defined %%}{%% set number = 2 %%}{%% endif %%}"
    "{%% for m in messages %%}%s{%% endfor %%}{{ ns.said }}{{ 'A:' if add_generation_prompt }}"
)
TWINS = (twins.CHATML, twins.LLAMA2_LIKE, twins.PHI_LIKE, twins.QWEN3_LIKE, twins.GLM_LIKE, QWEN3_IDLE)
ALL = {
    **{name: AROUND % body for name, body in BODIES.items()},
    **{
        f"idle: {name}": f"{_BEFORE}{body}{{{{ ns.at }}}}{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}"
        for name, (_, body) in IDLE.items()
    },
    **{f"twin {i}": each for i, each in enumerate(TWINS)},
    **{f"search: {name}": each for name, each in SEARCHES.items()},
}
STAYS = {"its number of items", "all messages", "a namespace as a whole"}
"""What leaves a loop as it is."""


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, date="2026-01-01", variables={"bos_token": "<s>", "eos_token": "</s>"}, max_bytes=2**20)


def asked(messages: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """Renderings of a conversation: it grows and shrinks, its words change and change back, and so does all else."""
    others = [{**message, "content": f"{message['content']}!"} for message in messages]
    ends = [*range(1, len(messages) + 1), *chance.choices(range(len(messages) + 1), k=6)]
    return [
        {
            "messages": (others if chance.random() < 0.25 else messages)[:end],
            "tools": TOOLS if chance.random() < 0.9 else None,
            "add_generation_prompt": chance.random() < 0.5,
            "kwargs": {"enable_thinking": False} if chance.random() < 0.2 else {},
        }
        for end in ends
        for _ in range(chance.randint(1, 3))
    ]


def test_what_one_rendering_keeps_is_not_told_to_another() -> None:
    """Of two that could be extended, one is. The other still has its own last question."""
    chat_template = template(twins.QWEN3_LIKE)
    composition = composition_of(chat_template)
    messages = [user("Hello"), assistant("a"), user("b"), assistant("c")]
    for end in (2, 1, 4, 2):
        rendering = {"messages": messages[:end], "tools": None, "add_generation_prompt": False, "kwargs": {}}
        assert composed(composition, **rendering) == rendered(chat_template, **rendering)


def composition_of(chat_template: ChatTemplate) -> Composition:
    assert chat_template.recordings is not None
    return Composition(chat_template.recordings, chat_template.variables)


def composed(
    composition: Composition,
    messages: list[dict[str, Any]],
    *,
    tools: Any = None,
    add_generation_prompt: bool = False,
    kwargs: dict[str, Any] | None = None,
) -> str:
    return composition.text(messages, tools, kwargs or {}, add_generation_prompt=add_generation_prompt)


def rendered(chat_template: ChatTemplate, **rendering: Any) -> str | None:
    try:
        return chat_template.render(**rendering)
    except RenderError:
        return None


@percent_of_examples(400)
@given(name=st.sampled_from(sorted(ALL)), messages=conversations(), seed=st.integers(0, 2**32))
def test_what_is_composed_is_the_rendering(name: str, messages: list[dict[str, Any]], seed: int) -> None:
    chat_template = template(ALL[name])
    composition = composition_of(chat_template)
    for rendering in asked(messages, random.Random(seed)):
        if not rendering["messages"]:
            continue
        try:
            text = composed(composition, **rendering)
        except OpaqueError:
            composition = composition_of(chat_template)
            continue
        assert text == rendered(chat_template, **rendering), rendering


PROMPT, PLAIN = {"add_generation_prompt": True}, {}
_OFF = (
    "{% for q in messages %}{{ q.role }}{% endfor %}|{% set ns = namespace(on=true) %}"
    "{% macro off() %}{% set ns.on = false %}{% endmacro %}"
)
LOOSER: dict[str, tuple[str, tuple[tuple[int, dict[str, Any]], ...]]] = {
    "loop in the test of a loop within is the outer one": (
        "{% for m in messages %}{% for x in [1, 2, 3] if x <= loop.index %}{{ x }}{% endfor %};{% endfor %}",
        ((1, PLAIN), (2, PLAIN), (4, PLAIN)),
    ),
    "loop.last in the test of a loop within": (
        "{% for m in messages %}{% for x in [1, 2] if loop.last %}{{ x }}{% endfor %};{% endfor %}",
        ((1, PLAIN), (2, PLAIN), (3, PLAIN)),
    ),
    "what can be read once": (
        "{% set ns = namespace(g=[]) %}{% for m in messages %}{% set ns.g = [m.role] | map('upper') %}{% endfor %}{{ ns.g | join }}",
        ((4, PLAIN), (4, PROMPT)),
    ),
    "a namespace in a namespace": (
        (
            "{% set ns = namespace(i=none) %}{% for m in messages %}{% if loop.first %}{% set ns.i = namespace(c=0) %}{% endif %}"
            "{% set t = ns.i %}{% set t.c = t.c + 1 %}{% endfor %}{{ ns.i.c }}"
        ),
        ((4, PLAIN), (2, PLAIN), (4, PLAIN)),
    ),
    "a macro in a namespace": (
        (
            "{% macro f() %}{{ z }}{% endmacro %}{% set ns = namespace(f=none) %}{% for m in messages %}{% set ns.f = f %}{% endfor %}"
            "{% set z = add_generation_prompt %}{{ ns.f() }}"
        ),
        ((4, PLAIN), (4, PROMPT)),
    ),
    "two names of one namespace": (
        (
            "{% set ns = namespace(x=0) %}{% set b = namespace(x=0) %}{% if add_generation_prompt %}{% set b = ns %}{% endif %}"
            "{% for m in messages %}{% set ns.x = ns.x + 1 %}{{ b.x }}{% endfor %}"
        ),
        ((4, PLAIN), (4, PROMPT)),
    ),
    "a name that is set later": (
        "{% for m in messages %}{{ tools is none }}{{ m.role }}{% endfor %}{% set tools = 1 %}",
        ((2, PLAIN), (3, PLAIN)),
    ),
    "a name that is set later, in a macro": (
        "{% macro f() %}{{ x }}{% endmacro %}{% for m in messages %}{{ f() }}{% endfor %}{% set x = 1 %}",
        ((2, {"kwargs": {"x": "K"}}), (3, {"kwargs": {"x": "L"}})),
    ),
    "a name that is set within, after it is read further within": (
        "{% for m in messages %}{% for y in [1] %}{{ tools is defined }}{% endfor %}{% set tools = 1 %}{% endfor %}",
        ((2, PLAIN), (3, PLAIN)),
    ),
    "a variable that is also set within": (
        "{% for m in messages %}{% if m.role == 'user' %}{% set x = m.content %}{% endif %}{{ x }}{% endfor %}",
        ((3, {"kwargs": {"x": "K"}}), (4, {"kwargs": {"x": "L"}}), (4, PLAIN)),
    ),
    "equal values that are not the same": (
        (
            "{% set x = [1] %}{% if add_generation_prompt %}{% set y = x %}{% else %}{% set y = [1] %}{% endif %}"
            "{% for m in messages %}{{ x is sameas y }}{% endfor %}"
        ),
        ((2, PLAIN), (2, PROMPT)),
    ),
    "a variable named loop, in a macro": (
        "{% macro f() %}{{ loop }}{% endmacro %}{% for m in messages %}{{ f() }}{% endfor %}",
        ((2, {"kwargs": {"loop": "A"}}), (2, {"kwargs": {"loop": "B"}})),
    ),
    "the item's name in a macro": (
        "{% macro f() %}{{ m }}{% endmacro %}{% for m in messages %}{{ f() }}{% endfor %}",
        ((2, {"kwargs": {"m": "K"}}), (3, {"kwargs": {"m": "L"}})),
    ),
    "a number of a loop in a macro": (
        "{% macro f() %}{{ loop.index0 > 1 }}{% endmacro %}{% for m in messages %}{{ f() }}{% endfor %}",
        ((2, {"kwargs": {"loop": {"index0": 0}}}), (3, {"kwargs": {"loop": {"index0": 2}}})),
    ),
    "what counts by itself": (
        "{% set c = cycler('a', 'b', 'c') %}{% for m in messages %}{{ c.next() }}{% endfor %}{{ c.next() }}",
        ((2, PLAIN), (3, PLAIN)),
    ),
    "what joins by itself": (
        "{% set j = joiner(', ') %}{% for m in messages %}{{ j() }}{{ m.role }}{% endfor %}{{ j() }}",
        ((2, PLAIN), (3, PLAIN)),
    ),
    "a macro of two bodies": (
        (
            "{% macro f() %}a{% endmacro %}{% if add_generation_prompt %}{% macro f() %}b{% endmacro %}{% endif %}"
            "{% for m in messages %}{{ f() }}{% endfor %}"
        ),
        ((2, PLAIN), (2, PROMPT), (3, PLAIN)),
    ),
    "a macro that is set": (
        (
            "{% macro f() %}a{% endmacro %}{% macro g() %}b{% endmacro %}{% if add_generation_prompt %}{% set f = g %}{% endif %}"
            "{% for m in messages %}{{ f() }}{% endfor %}"
        ),
        ((2, PLAIN), (2, PROMPT), (3, PLAIN)),
    ),
    "two zeros": (
        "{% for m in messages %}{{ zero }}{% endfor %}",
        ((2, {"kwargs": {"zero": 0.0}}), (3, {"kwargs": {"zero": -0.0}})),
    ),
    "one, and true": (
        "{% for m in messages %}{{ one }}{% endfor %}",
        ((2, {"kwargs": {"one": 1}}), (3, {"kwargs": {"one": True}}), (3, {"kwargs": {"one": 1.0}})),
    ),
    "blocks": (
        "{% block b %}{% for m in messages %}{{ loop.index }}{{ k }}{% endfor %}{% endblock %}",
        ((2, PLAIN), (3, PLAIN)),
    ),
    "items that fail after the search is over": (
        _OFF
        + "{% for c in (messages + [{'content': 5}]) | map(attribute='content') | map('length') %}{% if ns.on %}{{ off() }}"
        "{{ messages | length }}{% endif %}{% endfor %}",
        ((3, PLAIN),),
    ),
    "items that cannot be taken apart": (
        _OFF + "{% for a, b in [(1, 2), (3, 4), (5,)] %}{% if ns.on %}{{ off() }}{{ a }}{% endif %}{% endfor %}",
        ((2, PLAIN),),
    ),
    "items that are read on after it": (
        _OFF
        + "{% set it = messages | map(attribute='role') %}{% for c in it %}{% if ns.on %}{{ off() }}{{ messages | length }}{% endif %}"
        "{% endfor %}{{ it | join }}",
        ((4, PLAIN),),
    ),
    "an object that is made anew each time": (
        (
            "{% set last = {'role': messages[-1].role} %}"
            "{% for m in messages %}{{ m.content }}{{ last.role }}{% endfor %}"
        ),
        tuple((number, PLAIN) for number in (1, 2, 3, 4)),
    ),
    "messages behind another list": (
        "{% set n = ([1] + messages) | length %}{% for m in messages %}{{ n }}{{ ([m] + messages) | length }}{% endfor %}",
        ((1, PLAIN), (2, PLAIN), (4, PLAIN)),
    ),
    "what can be read once, in a list": (
        (
            "{% set ns = namespace(g=[]) %}{% for m in messages %}{% set ns.g = [[m.role] | map('upper')] %}{% endfor %}"
            "{{ ns.g[0] | join }}"
        ),
        ((4, PLAIN), (4, PROMPT)),
    ),
    "a namespace in a dict": (
        (
            "{% set ns = namespace(d={}) %}{% for m in messages %}{% if loop.first %}{% set ns.d = {'x': namespace(c=0)} %}{% endif %}"
            "{% set t = ns.d.x %}{% set t.c = t.c + 1 %}{{ '.' if loop.last }}{% endfor %}{{ ns.d.x.c }}"
        ),
        ((2, PLAIN), (3, PLAIN), (4, PLAIN)),
    ),
    "what counts by itself, in a list": (
        (
            "{% set ns = namespace(c=[]) %}{% for m in messages %}{% if loop.first %}{% set ns.c = [cycler('a', 'b', 'c')] %}"
            "{% endif %}{{ ns.c[0].next() }}{{ '.' if loop.last }}{% endfor %}"
        ),
        ((2, PLAIN), (3, PLAIN), (4, PLAIN)),
    ),
    "another variable named loop, beside a bound": (
        (
            "{% set ns = namespace(a=0) %}{% for q in messages %}{% if q.role == 'user' %}{% set ns.a = loop.index0 %}{% endif %}"
            "{% endfor %}{% for m in messages %}{% with loop = {'index0': 1} %}{{ loop.index0 > ns.a }}{% endwith %}{% endfor %}"
        ),
        ((2, PLAIN), (3, PLAIN), (4, PLAIN)),
    ),
    "a parameter named loop, beside a bound": (
        (
            "{% set ns = namespace(a=0) %}{% for q in messages %}{% if q.role == 'user' %}{% set ns.a = loop.index0 %}{% endif %}"
            "{% endfor %}{% for m in messages %}{% macro f(loop) %}{{ loop.index0 > ns.a }}{% endmacro %}{{ f({'index0': 1}) }}"
            "{% endfor %}"
        ),
        ((2, PLAIN), (3, PLAIN), (4, PLAIN)),
    ),
    "the last message itself, not one that is equal to it": (
        "{% set last = messages[-1] %}{% for m in messages %}{{ m is sameas last }}{% endfor %}",
        ((1, PLAIN), (5, PLAIN)),
    ),
    "lists of messages that are printed in lines": (
        "{% for m in messages %}{{ messages | pprint }}{% endfor %}",
        ((4, PLAIN),),
    ),
    "an accumulation of messages that ends in one without data": (
        (
            "{% set ns = namespace(seen=[]) %}{% for m in messages %}{% set ns.seen = ns.seen + [m] %}"
            "{% if loop.index == 3 %}{% set ns.seen = [namespace()] %}{% endif %}{% endfor %}{{ ns.seen | length }}"
        ),
        ((2, PLAIN), (3, PLAIN), (2, PLAIN), (4, PLAIN), (2, PROMPT)),
    ),
}
"""Templates that a looser rule would render otherwise, and renderings of a conversation: how many messages, and what else."""


@pytest.mark.parametrize("name", LOOSER)
def test_what_a_loop_cannot_know_beforehand_is_not_taken_for_known(name: str) -> None:
    source, steps = LOOSER[name]
    chat_template, messages = template(source), [user("a"), assistant("b"), user("c"), assistant("d"), user("a")]
    composition = composition_of(chat_template) if chat_template.recordings else None
    for number, rest in steps if composition else ():
        rendering = {"messages": messages[:number], **rest}
        with contextlib.suppress(OpaqueError):
            assert composed(composition, **rendering) == rendered(chat_template, **rendering)


NOT_COMPOSED = {
    *("its number", "the generation prompt", "a block", "a bound that is read too"),  # a number is written
    *(
        "its number of items",
        "all messages",
        "the last message",
        "no message",
    ),  # as is one, or the first has none before
    *("a namespace", "a namespace that grows", "a namespace as a whole", "a loop within"),
}
"""Bodies that write numbers, keep texts or lists, or look into a text."""


@pytest.mark.parametrize("name", BODIES)
def test_which_loops_are_composed(name: str) -> None:
    conversation = [user(f"{i}") if i % 2 == 0 else assistant(f"{i}") for i in range(8)]
    chat_template = template(ALL[name])
    try:
        text = composed(composition_of(chat_template), conversation)
    except OpaqueError:
        text = None
    assert text == (None if name in NOT_COMPOSED else chat_template.render(conversation))


@pytest.mark.parametrize("name", IDLE)
def test_only_loops_that_do_nothing_more_are_ended(name: str) -> None:
    ends, body = IDLE[name]
    parsed = environment_of("2026-01-01").parse(_BEFORE + body)
    reduce_queries(parsed.body)
    assert (parsed.find(jinja2.nodes.Break) is not None) == ends


MAY_BE_OPAQUE = {
    *(
        "what may raise while it counts",
        "what may be no list",
        "a flag of another namespace",
        "a namespace within another",
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_what_a_search_passes_over_makes_no_difference(name: str) -> None:
    """Each beginning of a conversation, longer and longer and shorter and shorter, and another with the same words."""
    chat_template = template(SEARCHES[name])
    said = [
        system("a"),
        user("b"),
        assistant("c"),
        user("a"),
        assistant("d"),
        result("a"),
        assistant("b"),
        assistant("a"),
    ]
    said += [user("c"), {**assistant("d"), "tool_calls": [call("f", {})]}, result("b"), {**result("c"), "name": "f"}]
    composition = composition_of(chat_template)
    for messages in (
        said,
        said[1:],
        [said[3], said[2]],
        [said[3]],
        [{**message} for message in said[::-1]],
        [{**said[0], "content": "d"}, *said[1:]],
    ):
        sizes = [*range(1, len(messages) + 1), *range(len(messages), 0, -1), 5, 9, 3, 12, 7]
        for size, tools in itertools.product(sizes, (None, TOOLS)):
            rendering = {"messages": messages[:size], "tools": tools, "add_generation_prompt": False, "kwargs": {}}
            expected = rendered(chat_template, **rendering)
            with contextlib.suppress(OpaqueError) if name in MAY_BE_OPAQUE else contextlib.nullcontext():
                assert composed(composition, **rendering) == expected, (size, tools)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages | map(attribute='content') %}{{ m }}{% endfor %}", "abcd"),
        ("{% set c = cycler(1, 2) %}{% for m in messages %}{{ c.next() }}{% endfor %}", "1212"),
        (
            "{% set ns = namespace(x=0) %}{% for m in messages %}{% set ns.x = namespace() %}{{ '.' if ns.x }}{% endfor %}",
            "....",
        ),
        ("{% for m in messages %}{{ m.content }}{% if loop.index == 4 %}{% break %}{% endif %}{% endfor %}", "abcd"),
    ],
)
def test_what_cannot_be_composed_is_rendered_as_it_is(source: str, text: str) -> None:
    """Other items than messages, a variable or a namespace that holds what has a state, a loop that ends by itself."""
    chat_template = template(source)
    conversation = [user("a"), assistant("b"), user("c"), assistant("d")]
    with pytest.raises(OpaqueError):
        composed(composition_of(chat_template), conversation)
    either = ComposedTemplate(chat_template, 2**10)
    assert [either.render(conversation) for _ in range(4)] == [text] * 4


def test_a_template_of_another_form_is_not_taken_apart() -> None:
    sources = (
        "{{ messages[0].content }}",
        "{% if tools %}{% for m in messages %}{{ m.content }}{% endfor %}{% endif %}",
        "{% for m in messages %}{% set x = 1 %}{% endfor %}{{ x }}",
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ m }}",
        "{% for m in messages %}{{ x }}{% endfor %}{% set x = 1 %}",
        "{% for m in messages if m.content %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{% else %}none{% endfor %}",
        "{% for a, b in messages %}{{ a }}{% endfor %}",
        "{% block b %}{% endblock %}{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% if tools %}{% macro f() %}{% endmacro %}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% macro f(x) %}{% macro g() %}{{ x }}{% endmacro %}{% endmacro %}{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for q in messages %}{% macro f() %}{{ q }}{% endmacro %}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}",
    )
    assert [template(source).recordings for source in sources] == [None] * len(sources)


def test_an_error_is_the_templates_own() -> None:
    source = "{% for m in messages %}{{ m.content }}{{ raise_exception('at ' ~ loop.index) if m.role == 'tool' }}{% endfor %}"
    either = ComposedTemplate(template(source), 2**10)
    conversation = [user("a"), assistant("b"), user("c"), assistant("d"), result("e")]
    assert either.render(conversation[:4]) == "abcd"
    for _ in range(4):
        with pytest.raises(RenderError, match=r"^at 5$"):
            either.render(conversation)
    assert either.render(conversation[:4]) == "abcd"


def test_few_messages_are_rendered_before_a_template_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.render.environment.WORTH_COMPILING", 50)
    chat_template = template(twins.CHATML)
    assert [chat_template.new_composition(4) is not None for _ in range(5)] == [False, False, False, True, True]
    assert chat_template.new_composition(1) is None


def test_a_batch_in_which_composing_makes_a_difference_is_rendered_as_it_is(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packer.render.environment.WORTH_COMPILING", 0)
    renderer = Stages.load(twins.byte_level(tmp_path / "twin", template=twins.CHATML), ALLOW_ALL).renderer
    rows = batch([chat(*LONG[: 8 + row], row=row, tools=[TOOL]) for row in range(0, 20, 2)])
    expected = renderer.by_reference().render(rows)
    num_wrong = 0

    def wrong(self: Composition, messages: Any, tools: Any, kwargs: Any, *, add_generation_prompt: bool) -> str:
        nonlocal num_wrong
        num_wrong += 1
        rendering = {"messages": messages, "tools": tools, "kwargs": kwargs}
        return chat_template.render(**rendering, add_generation_prompt=add_generation_prompt).replace("Ask", "Beg")

    chat_template = renderer._template
    monkeypatch.setattr(Composition, "text", wrong)
    assert_same(renderer.render(rows), expected)
    assert num_wrong > 0


LONG = [system("Be brief."), *itertools.chain(*((user(f"Ask {i}?"), assistant(f"Say {i}.")) for i in range(40)))]


@pytest.mark.parametrize("source", [twins.CHATML, twins.QWEN3_LIKE])
def test_a_long_conversation_is_learned_as_by_the_letter(source: str, tmp_path: Any) -> None:
    folder = twins.byte_level(tmp_path / "twin", template=source)
    renderer = Stages.load(folder, "supervision.history_rewrite=as_rendered").renderer
    by_the_letter = literal(renderer)
    rows = batch([chat(*LONG, row=0), chat(*LONG[:-1], row=1), chat(*LONG[1:], result("x"), assistant("y"), row=2)])
    one, other = renderer.render(rows), by_the_letter.render(rows)
    assert one.text == other.text
    assert len(one.turn_text) > 100
    assert one.prompt_end.tolist() == other.prompt_end.tolist()
    assert one.completion_end.tolist() == other.completion_end.tolist()
