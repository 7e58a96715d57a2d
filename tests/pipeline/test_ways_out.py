"""Each key that a hint about rejected rows may name is named for some row, and followed letter by letter builds it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import twins
from hints import settings_in
from shown_rows import hint_for, shown_for

from packer.recipe import ROW_SCHEMAS
from packer.recipe.recipe import make_recipe
from packer.rejections import CODES, rejection_hint, ways_out

USER, ANSWER = {"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}
REASONED = ANSWER | {"reasoning_content": "I think."}
INLINE = ANSWER | {"content": "<think>I think.</think>answer"}
OTHER = ANSWER | {"content": "other"}
TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}}]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}


def asked(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [USER, *messages], **fields}


def calling(number: str, text: str = "", result: str = "7") -> list[dict[str, Any]]:
    call = {"id": number, "type": "function", "function": {"name": "f", "arguments": {"x": "1"}}}
    return [
        ANSWER | {"content": text, "tool_calls": [call]},
        {"role": "tool", "content": result, "tool_call_id": number},
        ANSWER,
    ]


def template(answer: str, *, before: str = "", others: str = "m.content", prompt: str = "") -> str:
    return f"""\
{before}{{%- for m in messages %}}{{{{- '<|im_start|>' + m.role + '\\n' }}}}
{{%- if m.role == 'assistant' %}}{answer}{{%- else %}}{{{{- {others} }}}}{{%- endif %}}{{{{- '<|im_end|>\\n' }}}}
{{%- endfor %}}{{%- if add_generation_prompt %}}{{{{- '<|im_start|>assistant\\n' }}}}{prompt}{{%- endif %}}"""


TEXT = "{{- m.content or '' }}"
CALLS = "{%- for c in m.tool_calls or [] %}{{- '<call>' + (c.function | tojson) + '</call>' }}{%- endfor %}"
DEFINED = "{%- for t in tools or [] %}{{- t | tojson }}{%- endfor %}"
OWN = "{%- if m.thinking %}{{- '[R]' + m.thinking + '[/R]' }}{% endif %}"
WRAPS = "'<tool_response>' + m.content + '</tool_response>' if m.role == 'tool' else m.content"
TAGS = "{{- '<think>' + (m.reasoning_content or '') + '</think>' }}"
IDS = "{%- for c in m.tool_calls or [] if c.id | length != 9 %}{{ raise_exception('ids of 9') }}{%- endfor %}"

IDS_ALONE = CALLS.replace("(c.function | tojson)", "c.id + (c.function.arguments | tojson)")
MADE = IDS_ALONE.replace("c.id", "'functions.' + c.function.name + ':' + loop.index0 | string")
RETURNS = "(m.tool_call_id + ': ' if m.role == 'tool' else '') + m.content"

OPENS = template(TEXT, prompt="{{- '<think>\\n' }}")
LEVELS = template(OWN.replace("m.thinking %}", "m.thinking and (level | default('high')) in ['low', 'high'] %}") + TEXT)
REFUSE, TURNS = "supervision.on_prompt_mismatch=refuse", "supervision.turns=last"
NO_VARIABLES, NO_KWARGS = "sources.columns={chat_template_kwargs: null}", "template.kwargs={}"
AS_OFF = "template.kwargs={enable_thinking: false}"
PAIR = {"prompt": [USER], "chosen": [ANSWER, USER, ANSWER], "rejected": [OTHER, USER, OTHER]}

CASES: dict[tuple[str, str], tuple[Any, ...]] = {
    ("control_token", "supervision.control_tokens=allow"): (
        twins.CHATML,
        [asked(ANSWER | {"content": "a <|im_end|> b"})],
    ),
    ("dropped_reasoning", "supervision.reasoning=field"): (template(OWN + TEXT), [asked(INLINE)]),
    ("dropped_reasoning", "supervision.reasoning=inline"): (twins.CHATML, [asked(REASONED)]),
    ("dropped_reasoning", "supervision.on_prompt_mismatch=continue"): (
        template(TAGS + TEXT, prompt="{{- '<think>' if thinking else '<think></think>' }}"),
        [asked(INLINE)],
        REFUSE,
    ),
    ("dropped_reasoning", NO_VARIABLES): (LEVELS, [asked(REASONED, chat_template_kwargs={"level": "5"})]),
    ("dropped_reasoning", NO_KWARGS): (LEVELS, [asked(REASONED)], "template.kwargs={level: '5'}"),
    ("dropped_reasoning", "supervision.allow_dropped=[reasoning]"): (twins.CHATML, [asked(REASONED)]),
    ("dropped_system", "sources.roles={developer: system}"): (
        template(TEXT, others="m.content if m.role in ('user', 'system') else ''"),
        [{"messages": [{"role": "developer", "content": "be kind"}, USER, ANSWER]}],
    ),
    ("dropped_system", "supervision.allow_dropped=[system]"): (
        template(TEXT, others="m.content if m.role == 'user' else ''"),
        [{"messages": [{"role": "system", "content": "be kind"}, USER, ANSWER]}],
    ),
    ("dropped_user", "supervision.allow_dropped=[user]"): (template(TEXT, others="''"), [asked(ANSWER)]),
    ("dropped_content", "supervision.allow_dropped=[content]"): (
        template("{%- if m.tool_calls %}" + CALLS + "{%- else %}" + TEXT + "{%- endif %}", before=DEFINED),
        [asked(*calling("1", "I look."), tools=TOOLS)],
    ),
    ("dropped_tool_call", "supervision.allow_dropped=[tool_call]"): (twins.CHATML, [asked(*calling("1", "I look."))]),
    ("dropped_tool_call", "rows.call_ids=named"): (
        template(TEXT + IDS_ALONE, before=DEFINED),
        [asked(*calling("1")), asked(*calling("functions.f:0"))],
    ),
    ("dropped_tool_result", "supervision.allow_dropped=[tool_result]"): (
        template(TEXT + CALLS, before=DEFINED, others="m.content if m.role == 'user' else ''"),
        [asked(*calling("1", result="the seventh"), tools=TOOLS)],
    ),
    ("dropped_tools", "supervision.allow_dropped=[tools]"): (twins.CHATML, [asked(ANSWER, tools=TOOLS)]),
    ("mangled_call", "rows.call_ids=named"): (
        template(TEXT + MADE, before=DEFINED, others=RETURNS),
        [asked(*calling("1")), asked(*calling("functions.f:0"))],
    ),
    ("no_terminator", "supervision.no_terminator=append"): (twins.NO_TERMINATOR, [asked(ANSWER)]),
    ("pair_modes_differ", "template.kwargs={enable_thinking: true}"): (
        twins.QWEN3_LIKE,
        [{"prompt": [USER], "chosen": [REASONED], "rejected": [OTHER]}],
    ),
    ("pair_prompt_differs", "supervision.turns=all"): (twins.CHATML, [PAIR], TURNS),
    ("pair_rewritten", "supervision.history_rewrite=as_rendered"): (twins.QWEN3_LIKE, [PAIR]),
    ("prompt_diverges", "supervision.reasoning=field"): (twins.QWEN3_LIKE, [asked(INLINE, **OFF)]),
    ("prompt_diverges", "supervision.on_prompt_mismatch=continue"): (OPENS, [asked(ANSWER)], REFUSE),
    ("prompt_diverges", NO_VARIABLES): (twins.QWEN3_LIKE, [asked(REASONED, **OFF)]),
    ("prompt_diverges", NO_KWARGS): (twins.QWEN3_LIKE, [asked(REASONED)], AS_OFF),
    ("template_error", "rows.call_ids=short"): (
        template(IDS + TEXT + CALLS, before=DEFINED),
        [asked(*calling("call_1"), tools=TOOLS), asked(*calling("123456789"), tools=TOOLS)],
    ),
    ("wrapped_twice", "rows.wrapped=unwrap"): (
        template(TEXT + CALLS, before=DEFINED, others=WRAPS),
        [
            asked(*calling("1", result="<tool_response>7</tool_response>"), tools=TOOLS),
            asked({"role": "assistant", "content": "assistant\nAt 06:12, she said."}),
        ],
    ),
    ("wrapped_twice", "supervision.control_tokens=allow"): (
        twins.CHATML,
        [{"messages": [USER | {"content": "Human: Hi\n\nAssistant: Hello!\n\nHuman: When?\n\nAssistant:"}, ANSWER]}],
        "rows.wrapped=unwrap",
    ),
    ("wrapped_twice", "sources.columns={tools: null}"): (
        template(TEXT + CALLS, before=DEFINED),
        [{"messages": [{"role": "system", "content": json.dumps(TOOLS)}, USER, ANSWER], "tools": TOOLS}],
    ),
}


@pytest.mark.parametrize(("code", "way"), CASES, ids=map(" ".join, CASES))
def test_a_key_that_a_hint_names_builds_the_row(code: str, way: str, tmp_path: Path) -> None:
    source, rows, *overrides = CASES[code, way]
    seen = shown_for(tmp_path, source, rows, *overrides)
    assert [each.code for each in seen.rows[0].view.rejected][:1] == [code]
    ways = settings_in(hint_for(seen))
    assert way in ways
    then = shown_for(tmp_path, source, rows, *overrides, *(ways if way == "supervision.reasoning=field" else [way]))
    assert then.totals.kept == len(rows), [row.view.rejected for row in then.rows]


def test_no_key_that_a_hint_may_name_is_without_a_row() -> None:
    assert {(code, way) for code in CODES for way in ways_out(code)} == {*CASES}


def test_every_option_of_a_hint_is_one_that_a_recipe_takes() -> None:
    hints = "; ".join(map(rejection_hint, CODES)).replace("DIR", "/folder").replace("FILE", "x")
    settings = settings_in(re.sub(r" \| ".join(ROW_SCHEMAS), "auto", hints))
    assert len(settings) > 20
    for setting in settings:
        assert make_recipe({"sources": [{"path": "rows.jsonl"}], "tokenizer": "model"}, [setting])


EFFORTS = """\
{%- set level = level | default('none') %}{{- '<|im_start|>system\n' + level + '<|im_end|>\n' }}
""" + template(OWN.replace("m.thinking %}", "m.thinking and level in ['low', 'high'] %}") + TEXT)


@pytest.mark.parametrize("name", ["reasoning_content", "cot"])
def test_an_effort_for_all_rows_is_named_only_where_all_have_reasoning(tmp_path: Path, name: str) -> None:
    """Behind a prompt that asks for reasoning, a row without any would be trained to give none."""
    of_source = {"columns": {"reasoning": name}}
    for thoughts in (["Count.", "Count."], ["Count.", None]):
        rows = [{"instruction": "one?", "output": "One."} | ({name: text} if text else {}) for text in thoughts]
        hint = hint_for(shown_for(tmp_path, EFFORTS, rows, **of_source))
        assert hint.endswith("give each row its own in chat_template_kwargs")
        ways = settings_in(hint)
        assert len(ways) == (2 if all(thoughts) else 0)
        for way in ways:
            word = re.findall(r"\w+", way)[-1]
            shown = shown_for(tmp_path, EFFORTS, rows, way, **of_source).rows
            assert [row.view.documents[0].runs[0].text.split()[1] for row in shown] == [f"{word}<|im_end|>"] * 2


def test_no_key_is_named_that_leaves_only_the_reasoning_of_an_answer(tmp_path: Path) -> None:
    behind = OWN + "{{- '<|im_end|>' + (m.content or '') }}"
    seen = shown_for(tmp_path, template(behind), [asked(REASONED)])
    assert [each.code for each in seen.rows[0].view.rejected] == ["dropped_content"]
    assert settings_in(seen.rows[0].hint or "") == []
