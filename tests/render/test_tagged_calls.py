"""Calls written between tags: kept if a server, which cuts at the first closing tag, reads the row's arguments."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from supervision_stages import Stages, assistant, call, chat, user

TEMPLATE = """\
{% set own = '|DSML|' %}
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
WRITTEN
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

STYLES = {
    "one tag per parameter": (
        (
            "{{- '<tool_call>\\n<function=' + call.function.name + '>\\n' }}"
            "{%- for name, value in call.function.arguments.items() %}"
            "{{- '<parameter=' + name + '>\\n' + (value if value is string else value | tojson) + '\\n</parameter>\\n' }}"
            "{%- endfor %}{{- '</function>\\n</tool_call>' }}"
        ),
        (
            r"<tool_call>(.*?)</tool_call>",
            r"<function=look>(.*?)</function>",
            r"<parameter=(\w+)>\n(.*?)\n</parameter>",
        ),
    ),
    "key and value in tags": (
        (
            "{{- '<tool_call>' + call.function.name + '\\n' }}"
            "{%- for name, value in call.function.arguments.items() %}"
            "{{- '<arg_key>' + name + '</arg_key>\\n<arg_value>' + (value if value is string else value | tojson) }}"
            "{{- '</arg_value>\\n' }}{%- endfor %}{{- '</tool_call>' }}"
        ),
        (r"<tool_call>(.*?)</tool_call>", r"(.*)", r"<arg_key>(\w+)</arg_key>\n<arg_value>(.*?)</arg_value>"),
    ),
    "tags made of parts": (
        (
            "{{- '<' + own + 'invoke name=\"' + call.function.name + '\">' }}"
            "{%- for name, value in call.function.arguments.items() %}"
            "{{- '<' + own + 'parameter name=\"' + name + '\">' + (value if value is string else value | tojson) }}"
            "{{- '</' + own + 'parameter>' }}{%- endfor %}{{- '</' + own + 'invoke>' }}"
        ),
        (
            r"<\|DSML\|invoke name=\"look\">(.*?)</\|DSML\|invoke>",
            r"(.*)",
            r"<\|DSML\|parameter name=\"(\w+)\">(.*?)</\|DSML\|parameter>",
        ),
    ),
    "tags named as the parameters": (
        (
            "{{- '<tool_call>' + call.function.name }}{%- for name, value in call.function.arguments.items() %}"
            "{{- '<' + name + '>' + (value if value is string else value | tojson) + '</' + name + '>' }}"
            "{%- endfor %}{{- '</tool_call>' }}"
        ),
        (r"<tool_call>(.*?)</tool_call>", r"(.*)", r"<(at|why)>(.*?)</\1>"),
    ),
    "JSON in tags": (
        "{{- '<tool_call>' + call.function | tojson + '</tool_call>' }}",
        (r"<tool_call>(.*?)</tool_call>",),
    ),
}
TAGS = (
    "</parameter>",
    "</function>",
    "</tool_call>",
    "</arg_value>",
    "</|DSML|parameter>",
    "</|DSML|invoke>",
    "</why>",
)
HARD = (*TAGS, "</p>", "</", "<b>", "parameter", "x", "\n", " ", "</parameter", "a<b")
texts = st.lists(st.sampled_from(HARD), min_size=1, max_size=4).map("".join).filter(lambda text: text == text.strip())
values = texts | st.integers(0, 9) | st.lists(texts, max_size=2)
arguments = st.dictionaries(st.sampled_from(["at", "why"]), values, min_size=1)


def served(style: str, completion: str) -> Any:
    """The arguments of the one call in a completion, as a server reads them: cut at the first closing tag."""
    patterns = STYLES[style][1]
    for pattern in patterns[:2] if len(patterns) > 1 else patterns:
        found = re.search(pattern, completion, re.DOTALL)
        completion = found[1] if found else ""
    if len(patterns) == 1:
        try:
            return json.loads(completion)["arguments"]
        except ValueError:
            return None
    return dict(re.findall(patterns[2], completion, re.DOTALL))


def as_texts(arguments: dict[str, Any]) -> dict[str, str]:
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in arguments.items()
    }


@pytest.fixture(scope="module", params=STYLES)
def styled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Stages]:
    return request.param, of_style(tmp_path_factory.mktemp("tokenizer"), request.param)


def test_a_call_is_kept_if_a_server_reads_it_and_only_then(styled: tuple[str, Stages]) -> None:
    style, stages = styled
    outcomes = {True: 0, False: 0}

    @given(st.lists(arguments, min_size=1, max_size=6))
    def agree(several: list[dict[str, Any]]) -> None:
        rows = [
            chat(user("a"), assistant("Let me see.", tool_calls=[call("look", each)]), row=row)
            for row, each in enumerate(several)
        ]
        for renderer in (stages.renderer, stages.renderer.by_reference()):
            own = Stages.with_engine(stages, "auto")
            own.renderer = renderer
            refused = {rejection.row: rejection.code for rejection in own.render(rows).rejections}
            for row, each in enumerate(several):
                if row in refused:
                    assert refused[row] == "mangled_call"
                    assert any(tag in json.dumps(each) for tag in TAGS), each
                else:
                    ((_, completion),) = own.turns(rows[row])
                    assert served(style, completion) == (each if style == "JSON in tags" else as_texts(each))
                outcomes[row not in refused] += 1

    agree()
    assert min(outcomes.values()) > 2


def of_style(folder: Path, style: str, *overrides: str, old: str = "", new: str = "") -> Stages:
    """Stages whose template writes calls in a style, or in one in which something is written otherwise."""
    template = TEMPLATE.replace("WRITTEN", STYLES[style][0].replace(old, new) if old else STYLES[style][0])
    return Stages.load(twins.byte_level(folder, template=template), *overrides)


@pytest.mark.parametrize("tag", ["</parameter>", "</function>", "</tool_call>"])
def test_the_reason_names_the_tag(tmp_path: Path, tag: str) -> None:
    said = assistant("", tool_calls=[call("look", {"at": "x"}), call("look", {"at": f"a {tag} b"})])
    ((code, reason),) = of_style(tmp_path, "one tag per parameter").reasons([chat(user("a"), said)])
    assert (code, tag in reason) == ("mangled_call", True)


def test_a_tag_that_others_say_or_that_names_an_argument_is_no_fault_of_the_call(tmp_path: Path) -> None:
    said = assistant("It ends with </parameter>.", tool_calls=[call("look", {"at": "</b>"})])
    assert not of_style(tmp_path / "a", "one tag per parameter").reasons([chat(user("What is </function>?"), said)])
    named = {"</call>": "It ends with </call>.", "at": {"</call>": "a"}}
    said = assistant("", tool_calls=[call("look", named)])
    assert not of_style(tmp_path / "b", "JSON in tags").reasons([chat(user("a"), said)])


@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize(
    ("written", "is_kept"),
    [("value | string", False), ("value | tojson", True), ("(value | string if value else 'null')", True)],
)
def test_a_null_that_is_written_as_the_text_none_would_be_is_no_null(
    tmp_path: Path, engine: str, written: str, is_kept: bool
) -> None:
    stages = of_style(tmp_path, "one tag per parameter", f"engine={engine}", old="value | tojson", new=written)
    kept = chat(user("a"), assistant("", tool_calls=[call("look", {"at": "None", "why": "x"})]))
    said = [call("look", {"at": "x", "why": "y"}), call("look", {"at": "x", "why": None, "how": {"by": None}})]
    rows = [chat(user("a"), assistant("", tool_calls=said), row=row) for row in range(1, 9)]
    assert [code for code, _ in stages.reasons([kept, *rows])] == ([] if is_kept else ["mangled_call"] * 8)


CODE = "    return a\n"


@pytest.mark.parametrize(("written", "is_kept"), [("value", True), ("value.strip()", False), ("value.lstrip()", False)])
def test_an_argument_keeps_the_white_space_around_it(tmp_path: Path, written: str, is_kept: bool) -> None:
    stages = of_style(tmp_path, "key and value in tags", old="(value if value", new=f"({written} if value")
    rows = [
        chat(user("a"), assistant("", tool_calls=[call("look", {"at": "x", "why": each})]), row=row)
        for row, each in enumerate(["return a", *[CODE] * 8])
    ]
    assert [code for code, _ in stages.reasons(rows)] == ([] if is_kept else ["mangled_call"] * 8)
    context = [user("a"), assistant("", tool_calls=[call("look", {"at": CODE})]) | {"train": False}, user("b")]
    last = chat(*context, assistant("c"), flags={1: False})
    assert stages.turns(last)[-1][1] == "c<|im_end|>", "what a server would send is the context"
