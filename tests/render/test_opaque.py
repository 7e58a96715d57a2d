"""A trace of calls and tools is right or there is none, whatever a template does with their values."""

import random

import pytest
from supervised import assistant, call, user
from tool_rows import KEYS, NUMBERS, TEXTS, arguments

from packer.render import ChatTemplate, RenderError
from packer.render.forms import Form, FormlessError, read_message, read_tools
from packer.render.opaque import _HARMLESS, Opaque
from packer.render.sandbox import environment_of
from packer.render.slots import UntraceableError, Words
from packer.render.tracing import Tracer
from packer.render.trial import Trial, traced

DATE = "2026-01-01"
PLACES = {
    "arguments": "{% set v = messages[1].tool_calls[0].function.arguments %}",
    "function": "{% set v = messages[1].tool_calls[0].function %}",
    "call": "{% set v = messages[1].tool_calls[0] %}",
    "calls": "{% set v = messages[1].tool_calls %}",
    "message": "{% set v = messages[1] %}",
    "tool": "{% set v = tools[0] %}",
    "described": "{% set v = tools[0].function %}",
    "parameters": "{% set v = tools[0].function.parameters %}",
    "required": "{% set v = tools[0].function.required %}",
    "tools": "{% set v = tools %}",
    "made": "{% set v = {'a': messages[1].tool_calls[0].function.arguments, 'b': [messages[0].content]} %}",
    "name": "{% set v = messages[1].tool_calls[0].function.name %}",
    "as JSON": "{% set v = messages[1].tool_calls[0].function.arguments | tojson %}",
}
METHODS = sorted(name for kind in (dict, list, str) for name in dir(kind))
OPERATORS = ("<", "==", "!=", "in", "not in", "+", "~", "%", "-", "*", "//", ">=")
DOES = (
    *(f"{{{{ v | {name} }}}}" for name in sorted(environment_of(DATE, 2**20).filters) if name.isidentifier()),
    *(f"{{{{ [v] | {name} }}}}" for name in sorted(environment_of(DATE, 2**20).filters) if name.isidentifier()),
    *(f"{{{{ {{'k': v}} | {name} }}}}" for name in sorted(environment_of(DATE, 2**20).filters) if name.isidentifier()),
    *(
        f"{{{{ 'y' if v is {name} else 'n' }}}}"
        for name in sorted(environment_of(DATE, 2**20).tests)
        if name.isidentifier()
    ),
    *(f"{{{{ v.{name}({given}) }}}}" for name in METHODS for given in ("", "'city'", "v")),
    *(f"{{{{ v.{name} }}}}" for name in METHODS),
    *(
        f"{{{{ {left} {op} {right} }}}}"
        for op in OPERATORS
        for left, right in (("v", "'ab'"), ("'ab'", "v"), ("v", "v"), ("v", "none"), ("v", "{}"), ("2", "v"))
    ),
    *(
        "{{ v }}",
        "{{ v.city }}",
        "{{ v['city'] }}",
        "{{ v[0] }}",
        "{{ v[:1] }}",
        "{{ v.number is defined }}",
        "{{ v._number }}",
    ),
    *(
        "{{ v._slot }}",
        "{{ v.is_list }}",
        "{{ v._noted is defined }}",
        "{{ 'y' if v else 'n' }}",
        "{{ not v }}",
        "{{ -v }}",
    ),
    *("{% for k in v %}{{ k }}{% endfor %}", "{% for k, w in v.items() %}{{ k }}{{ w }}{% endfor %}", "{{ {v: 1} }}"),
    *(
        "{% for k, w in v | items %}{{ k }}{% endfor %}",
        "{% for k in v | dictsort %}{{ k }}{% endfor %}",
        "{{ v | length }}",
    ),
    *("{{ v | tojson(indent=2) }}", "{{ v | tojson(sort_keys=true) }}", "{{ v | tojson(ensure_ascii=true) }}"),
    *("{{ v | tojson(separators=(',', ':')) }}", "{{ [v, v] | tojson(indent=1) }}", "{{ v | tojson(indent='  ') }}"),
    *(
        "{{ {'z': v, 'a': 1} | tojson(sort_keys=true) }}",
        "{{ (v | tojson) | tojson }}",
        "{{ {'t': v | tojson} | tojson }}",
    ),
    *(
        "{{ (v | tojson).startswith('{') }}",
        "{{ 'a' in (v | tojson) }}",
        "{{ v | tojson | trim }}",
        "{{ v | tojson | length }}",
    ),
    *(
        "{{ (v | tojson)[1:-1] }}",
        "{{ (v | tojson) == '{}' }}",
        "{{ v | tojson(indent=900) | length }}",
        "{{ v | tojson | safe }}",
    ),
    *(
        "{{ v | string | length }}",
        "{{ '%s' % v }}",
        "{{ v is string or v is mapping }}",
        "{{ v is sequence }}",
        "{{ v == {} }}",
    ),
    *(
        "{{ v is sameas none }}",
        "{{ v is not none }}",
        "{{ v | default('d') | tojson }}",
        "{{ dict(v) | tojson }}",
        "{{ dict(a=v).a | tojson }}",
    ),
    *(
        "{{ v.copy() | tojson }}",
        "{{ namespace(a=v).a | tojson }}",
        "{{ [v][0] | tojson }}",
        "{{ v | list | tojson }}",
        "{{ v.get('name') }}",
    ),
    *(
        "{{ (v if v is mapping else {}) | tojson }}",
        "{{ v in [1, v] }}",
        "{{ [1, v].index(v) }}",
        "{{ v | attr('city') }}",
        "{{ v | first }}",
    ),
    *(
        "{{ [v] | map('tojson') | join(',') }}",
        "{{ [v] | map(attribute='city') | list }}",
        "{{ [v] | selectattr('city') | list | length }}",
    ),
    *(
        "{{ [v] | select('mapping') | list | length }}",
        "{{ v.keys() | list }}",
        "{{ v.values() | list | tojson }}",
        "{{ messages | tojson }}",
    ),
    *(
        "{{ [v] | unique | list | length }}",
        "{{ [v] | groupby('city') | length }}",
        "{{ v.name ~ v.description }}",
        "{{ {'k': v}.k | tojson }}",
    ),
    *(
        "{{ raise_exception(v) }}",
        "{{ cycler(v, 'b').next() | tojson }}",
        "{{ v() }}",
        "{{ strftime_now(v) }}",
        "{{ range(v) | list }}",
    ),
)


def rows(rng):
    """Rows of one form whose values give away what a template does with them."""
    given = [arguments(rng) or {"a": 1} for _ in range(4)]
    given += [{rng.choice(KEYS): rng.choice([*NUMBERS, *TEXTS, True, None, [], {}])} for _ in range(4)]
    for number, each in enumerate(given):
        function = {"name": TEXTS[number], "description": TEXTS[-number], "parameters": each, "required": [*each]}
        tools = [{"type": "function", "function": function}]
        yield tools, [user(TEXTS[number]), assistant(None, tool_calls=[call(TEXTS[number + 1], each)])]


def read(tools, messages):
    words = []
    return Form(read_tools(tools, words), tuple(read_message(message, words) for message in messages)), words


def written(template, tools, messages):
    try:
        return template.render(messages, tools=tools)
    except RenderError as error:
        return repr(error)


@pytest.mark.parametrize(
    ("place", "every"),
    [*((place, 16) for place in PLACES), *(pytest.param(place, 1, marks=pytest.mark.slow) for place in PLACES)],
)
def test_whatever_a_template_does_with_a_value_a_trace_is_right_or_there_is_none(place, every):
    """In `make test` of each place another sixteenth."""
    spoken_for = num_traces = 0
    made = [
        row
        for row in rows(random.Random(place))
        if all(text.strip() for text in read(*row)[1] if isinstance(text, str))
    ]
    form, _ = read(*made[0])
    for does in DOES[list(PLACES).index(place) % every :: every]:
        source = PLACES[place] + does
        try:
            template = ChatTemplate(source, date=DATE, variables={}, max_bytes=2**20)
            tracer = Tracer(source, date=DATE, variables={}, max_bytes=2**20)
            rendering = traced(template, tracer, Trial(form, 2**20), {})
        except (UntraceableError, RenderError):
            continue
        num_traces += 1
        for tools, messages in made:
            own, words = read(tools, messages)
            assert own == form
            text = rendering.fill(Words(words))
            spoken_for += text is not None
            assert text is None or text == written(template, tools, messages), (does, tools, messages)
    assert num_traces > 12 // every, "only what is refused was tried"
    assert spoken_for > 5 * num_traces


def test_an_opaque_value_has_no_method_of_a_value_that_it_does_not_answer_for_itself():
    own = {"__bool__", "__eq__", "__ne__", "__hash__", "__radd__"}
    inherited = {name for kind in (dict, list, str, int) for name in dir(kind)} - own
    value, refused = Opaque(0, []), 0
    for name in inherited:
        method = getattr(Opaque, name, None)
        if method is None or method is getattr(object, name, None) or name in _HARMLESS:
            continue
        with pytest.raises(UntraceableError):
            method(value, "a")
        refused += 1
    assert refused > 80


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": " \n"},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": "a", "reasoning_content": "b"},
        {"role": "assistant", "content": "a", "number": 1},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"type": "custom", "function": {"name": "f"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": None}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": [1]}}],
        },
    ],
)
def test_what_is_out_of_the_ordinary_has_no_form(message):
    with pytest.raises(FormlessError):
        read_message(message, [])


def test_values_nested_deeper_than_a_template_may_get_are_not_filled_in():
    template, words = "{{ messages[1].tool_calls[0].function.arguments | tojson }}", {}
    for depth in (10, 63, 64, 65, 400):
        value = {"a": 1}
        for _ in range(depth - 1):
            value = {"a": value}
        words[depth] = read(None, [user("q"), assistant(None, tool_calls=[call("f", value)])])
    form = words[10][0]
    made = ChatTemplate(template, date=DATE, variables={}, max_bytes=2**20)
    tracer = Tracer(template, date=DATE, variables={}, max_bytes=2**20)
    rendering = traced(made, tracer, Trial(form, 2**20), {})
    filled = {depth: rendering.fill(Words(own)) is not None for depth, (_, own) in words.items()}
    assert filled == {10: True, 63: True, 64: True, 65: False, 400: False}
