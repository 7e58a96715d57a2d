"""Rows with tools and calls that are filled into a skeleton are those that are rendered, byte for byte."""

import random

import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from rendered_twice import assert_same, batch, count_filled, renderers
from searching import percent_of_examples
from supervised import assistant, call, chat, result, user
from tool_rows import ODD, TEXTS, row

from packer.render import filling as filling_module
from packer.render import skeleton

HEAD = (
    "{% if tools %}{{ '<|im_start|>system\n' }}{% for tool in tools %}TOOL{% endfor %}{{ '<|im_end|>\n' }}{% endif %}"
)
LOOP = """{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' }}CONTENT{% if m.tool_calls %}{% for call in m.tool_calls %}
{{- '<call>' }}CALL{{ '</call>' }}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
NAMED = "{{ call.function.name ~ ' ' }}{{ call.function.arguments | tojson }}"
TEXT = "{{ m.content or '' }}"


def template(tool="{{ tool | tojson }}", content=TEXT, call=NAMED):
    return HEAD.replace("TOOL", tool) + LOOP.replace("CONTENT", content).replace("CALL", call)


TEMPLATES = {
    "plain": template(),
    "raises on null": template(content="{{ m.content + '' }}"),
    "prints null": template(content="{{ m.content }}"),
    "prints null between": template(content="{{ 'N' ~ m.content ~ 'e' }}"),
    "indents": template(tool="{{ tool | tojson(indent=4) }}", call=NAMED.replace("tojson", "tojson(indent=2)")),
    "sorts": template(call=NAMED.replace("tojson", "tojson(ensure_ascii=true, sort_keys=true)")),
    "separates": template(call=NAMED.replace("tojson", "tojson(separators=(',', ':'))")),
    "whole calls": template(call="{{ call | tojson }}"),
    "whole function": template(tool="{{ tool.function | tojson }}", call="{{ call.function | tojson | trim }}"),
    "made objects": template(call="{{ {'tool': call.function.name, 'with': call.function.arguments} | tojson }}"),
    "made results": template(
        content="{% if m.role == 'tool' %}{{ {'output': m.content} | tojson }}{% else %}" + TEXT + "{% endif %}"
    ),
    "contents as JSON": template(content="{{ m.content | tojson if m.role == 'tool' else m.content }}"),
    "text arguments": template(call="{{ call.function.name + ': ' + call.function.arguments }}"),
    "either arguments": template(
        call="{{ call.function.name }}{% if call.function.arguments is string %}{{ call.function.arguments }}{% elif call.function.arguments is mapping %}{{ call.function.arguments | tojson }}{% endif %}"
    ),
    "describes": template(tool="{{ tool.function.name ~ ': ' ~ tool.function.description | default('') | trim }}"),
    "asks": template(
        tool="{% if tool.function.name == 'function' %}{{ 'X ' }}{% endif %}{{ tool | tojson }}",
        call="{% if 'secret' in call.function.name or call.id == 'c2' %}{{ '!' }}{% endif %}" + NAMED,
    ),
    "ids": template(
        content="{% if m.role == 'tool' %}{{ (m.tool_call_id or '') ~ (m.name or '') }}{% endif %}" + TEXT,
        call="{{ call.id or '' }}" + NAMED,
    ),
    "list of tools": template().replace(
        "{% for tool in tools %}{{ tool | tojson }}{% endfor %}", "{{ tools | tojson }}"
    ),
    "walks arguments": template(
        call="{{ call.function.name }}{% for k, v in call.function.arguments.items() %}{{ k ~ '=' ~ v }}{% endfor %}"
    ),
    "walks tools": template(
        tool="{% for k, v in tool.function.parameters.properties.items() %}{{ k }}{% endfor %}{{ tool.function.name }}"
    ),
    "drops constants": template(call="{{ call.function.name }}")
    + "{% if not add_generation_prompt %}{{ messages[-1].tool_calls | tojson if messages[-1].tool_calls else '' }}{% endif %}",
    "drops tools": template(tool=""),
    "counts": template(call="{% if call.function.arguments | length > 1 %}{{ 'many' }}{% endif %}" + NAMED),
    "prints objects": template(call="{{ call.function.name ~ call.function.arguments }}"),
    "safe": template(call="{{ call.function.name }}{{ call.function.arguments | tojson | safe }}"),
    "first call only": template(call="{% if loop.first %}" + NAMED + "{% endif %}"),
    "thinks": template().replace(
        "{{ '<|im_start|>assistant\n' }}",
        "{{ '<|im_start|>assistant\n' }}{% if enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}",
    ),
}
FILLED = set(TEMPLATES) - {
    *("prints null between", "walks arguments", "walks tools", "drops constants", "drops tools", "counts"),
    *("prints objects", "safe", "first call only", "thinks"),
}
"""Those whose skeletons must be used."""

RULES = (
    *("", "rewritten=as_rendered", "divergent=continue", "divergent=common_prefix", "turns=last"),
    *("control_tokens=reject", "no_terminator=append", "reasoning=field", "allow_dropped=[tool_call,tools]"),
)


@pytest.fixture
def _at_once(monkeypatch):
    for module in (skeleton, filling_module):
        monkeypatch.setattr(module, "_FEW", 0)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        *((name, RULES[number % len(RULES)]) for number, name in enumerate(TEMPLATES)),
        *(pytest.param(name, rule, marks=pytest.mark.slow) for name in TEMPLATES for rule in RULES),
    ],
)
@pytest.mark.usefixtures("_at_once")
def test_what_is_filled_of_rows_with_tools_is_what_is_rendered(name, rule, tmp_path):
    source = TEMPLATES[name]
    overrides = [f"supervision.{rule}"] if rule else []
    filling, rendering = renderers(True, twins.byte_level(tmp_path, template=source), source, *overrides)
    rng = random.Random(f"{name} {rule}")
    rows = [row(rng, number) for number in range(40)]
    rendered = rendering.render(batch(rows))
    assert_same(filling.render(batch(rows)), rendered)
    num_filled = count_filled(filling, rows)
    filling._skeletons = None
    assert_same(filling.render(batch(rows)), rendered)
    assert num_filled > 2 if name in FILLED else num_filled < 36, num_filled


TEXT_OF_ANY = st.text(max_size=8) | st.sampled_from([*TEXTS, *ODD])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT_OF_ANY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT_OF_ANY, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT_OF_ANY, VALUES, max_size=4)
TRIED = ("plain", "indents", "sorts", "made objects", "text arguments", "drops constants")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Renderers with and without skeletons."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (skeleton, filling_module):
            patch.setattr(module, "_FEW", 0)
        folders = {name: tmp_path_factory.mktemp("twin") for name in TRIED}
        yield {
            name: renderers(True, twins.byte_level(folder, template=TEMPLATES[name]), TEMPLATES[name])
            for name, folder in folders.items()
        }


@percent_of_examples(33)
@given(
    name=st.sampled_from(TRIED),
    given_=OBJECTS,
    parameters=OBJECTS,
    called=TEXT_OF_ANY,
    described=TEXT_OF_ANY,
    said=TEXT_OF_ANY,
)
def test_any_values_are_filled_as_they_are_rendered(name, given_, parameters, called, described, said, made):
    filling, rendering = made[name]
    function = {"name": called, "description": described, "parameters": parameters}
    messages = [user(said), assistant(None, tool_calls=[call(called, given_)]), result(said), assistant(said)]
    rows = [
        chat(*messages[:number], row=number, tools=[{"type": "function", "function": function}]) for number in (2, 2, 4)
    ]
    assert_same(filling.render(batch(rows)), rendering.render(batch(rows)))
