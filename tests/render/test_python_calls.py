"""Calls that templates write as Python: kept if Python's own parser reads the row's arguments from them, and only then."""

from pathlib import Path
from typing import Any

import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from oracle import compiled
from python_reader import HARD, OTHERS, read
from supervision_stages import Stages, assistant, call, chat, user

from packer.render.readback import read_as_python

TEMPLATE = """\
{% macro written(value) %}VALUE{% endmacro %}
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
{{- message.content or '' }}
{%- if message.tool_calls %}[
{%- for call in message.tool_calls %}
{{- call.function.name }}(
{%- for name, value in call.function.arguments.items() %}
{{- name }}={{ written(value) }}{{ ', ' if not loop.last }}
{%- endfor %}){{ ', ' if not loop.last }}
{%- endfor %}]{% endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

ESCAPED = r"""{{ value | replace('\\', '\\\\') | replace("'", "\\'") | replace('\n', '\\n') | replace('\r', '\\r') }}"""
STYLES = {
    "between quotation marks, objects as JSON": """{% if value is string %}'{{ value }}'{% elif value is mapping %}"""
    """{{ value | tojson }}{% else %}{{ value }}{% endif %}""",
    "escaped": f"""{{% if value is string %}}'{ESCAPED}'{{% elif value is iterable %}}"""
    """{{ value | tojson }}{% else %}{{ value }}{% endif %}""",
    "JSON": "{{ value | tojson }}",
    "bare": "{{ '%s' | format(value) }}",
    "everything between quotation marks": """"{{ '%s' | format(value) }}\"""",
}
"""How published templates write the value of an argument: of LFM2.5 (two), OLMo 3, ToolACE and Llama 4."""

FAITHFUL = [TEMPLATE.replace("VALUE", STYLES[style]) for style in ("escaped", "JSON")]
"""Templates whose calls all read back."""


@pytest.fixture(scope="module", params=STYLES)
def stages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stages:
    template = TEMPLATE.replace("VALUE", STYLES[request.param])
    return Stages.load(twins.byte_level(tmp_path_factory.mktemp("python"), template=template))


def codes(stages: Stages, *calls: Any, **fields: Any) -> list[str]:
    turn = assistant(fields.pop("content", None), tool_calls=[*calls], **fields)
    return [found.code for found in stages.render([chat(user("What is the weather?"), turn)]).rejections]


def written(stages: Stages, *calls: Any) -> str:
    """What the template writes for calls, as transformers renders it."""
    assert stages.model.template is not None
    turn = {"role": "assistant", "content": "", "tool_calls": [*calls]}
    text = compiled(stages.model.template).render(messages=[turn], add_generation_prompt=False)
    return text.removeprefix("<|im_start|>assistant\n").removesuffix("<|im_end|>\n")


def calls_of(calls: list[Any]) -> list[tuple[str, Any]]:
    return [(each["function"]["name"], each["function"]["arguments"]) for each in calls]


def check(stages: Stages, *calls: Any, **fields: Any) -> bool:
    """Assert that a row is kept if and only if its calls read back, and return whether it is."""
    text = written(stages, *calls)
    found = repr(read(text)) == repr(calls_of([*calls]))  # equal, and of the same types within
    assert codes(stages, *calls, **fields) == ([] if found else ["mangled_call"]), text
    return found


@pytest.mark.filterwarnings("ignore:.*invalid escape:SyntaxWarning", "ignore:.*invalid escape:DeprecationWarning")
def test_a_call_is_kept_if_and_only_if_python_reads_its_arguments_from_it(stages: Stages) -> None:
    outcomes = [check(stages, call("current_weather", {"city": value})) for value in (*HARD, *OTHERS)]
    outcomes += [
        check(stages, call("current_weather", {"city": value, "days": 2}), call("current_weather", {}))
        for value in (*HARD, *OTHERS)[::3]
    ]
    assert True in outcomes
    assert (False in outcomes) == (stages.model.template not in FAITHFUL)


texts = st.lists(st.sampled_from(HARD), min_size=1, max_size=3).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.filterwarnings("ignore:.*invalid escape:SyntaxWarning", "ignore:.*invalid escape:DeprecationWarning")
@given(
    calls=st.lists(
        st.builds(call, st.sampled_from(["look", "ask"]), st.dictionaries(st.sampled_from("abc"), values)),
        min_size=1,
        max_size=3,
    )
)
def test_any_arguments_read_back_or_are_rejected(stages: Stages, calls: list[Any]) -> None:
    check(stages, *calls)


def test_names_that_python_does_not_read_reject_the_row(stages: Stages) -> None:
    for name, key in (("look", "from"), ("look", "a-b"), ("look", "a b"), ("get-weather", "city"), ("import", "city")):
        assert not check(stages, call(name, {key: 7}))
    dotted = call("weather.look", {"days": "seven"})
    assert check(stages, dotted) == (stages.model.template != BARE), "names may have dots"


BARE = TEMPLATE.replace("VALUE", STYLES["bare"])
SAID = ("I use look(city='it\\'s').", "[look(city='it\\'s')]", "look(city=x)", "look()", "look(")


@pytest.mark.parametrize("said", SAID)
def test_a_call_that_the_texts_of_the_message_quote_is_neither_proof_nor_fault(stages: Stages, said: str) -> None:
    by_letter = stages.by_reference()
    for value in ("it's", said, "look(city=1)"):
        check(by_letter, call("look", {"city": value}), content=said)
        check(by_letter, call("look", {"city": value}), reasoning_content=said, content="So I look.")


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize(
    "form",
    [
        "<call>{{ call.function.name }}{{ call.function.arguments | tojson(indent=2) }}</call>",
        "<call>{{ call.function.name }}{% for k, v in call.function.arguments.items() %}<{{ k }}>{{ v }}</{{ k }}>{% endfor %}</call>",
    ],
)
def test_texts_with_python_are_no_calls_of_a_template_that_writes_json_or_xml(
    tmp_path: Path, form: str, said: str
) -> None:
    start, end = TEMPLATE.index("{%- if message.tool_calls %}"), TEMPLATE.index("{{- '<|im_end|>")
    template = f"{TEMPLATE[:start]}{{%- for call in message.tool_calls %}}{form}{{%- endfor %}}{TEMPLATE[end:]}"
    stages = Stages.load(twins.byte_level(tmp_path, template=template))
    for value in (said, "city=1", "Paris"):
        assert codes(stages, call("look", {"city": value}), content=said) == []
        assert codes(stages, call("look", {"city": value, "code": said}), content=None) == []


def test_a_call_is_found_as_python_only_if_the_template_has_written_it() -> None:
    own = call("look", {"city": "Köln"})
    assert read_as_python([own], "[look(city='Köln')]") == [True]
    assert read_as_python([own], "[look(city='Bonn')]") == [False]
    assert read_as_python([own], "[look(city='Köln'") == [False]
    assert read_as_python([own], '{"name": "look", "arguments": {"city": "Köln"}}') == [None]
    assert read_as_python([own], "I look(city='Köln').", ["I look(city='Köln')."]) == [None]
    assert read_as_python([own], "overlook(city='Köln')") == [None]


def test_many_calls_of_one_name_are_each_parsed_once() -> None:
    """To parse all calls before it for each of 400 would take half a minute."""
    calls = [call("look", {"city": f"Köln {number}", "deep": [number] * 20}) for number in range(400)]
    written = [f"look(city='Köln {number}', deep={[number] * 20})" for number in range(400)]
    assert read_as_python(calls, f"[{', '.join(written[1:])}]") == [False] + [True] * 399
