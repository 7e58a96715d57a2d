"""Hints about what a template loses are followed letter by letter: the next build trains what the row says."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import twins
from hints import settings_in
from shown_rows import hint_for, learned, shown_for, whole

USER, ANSWER = {"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}
F = [{"name": "f", "parameters": {"type": "object", "properties": {}}}]
DEFINED = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
OWN_MARKERS = twins.CHATML.replace(
    "(message.content or '')",
    "('[R]' ~ message.reasoning_content ~ '[/R]' if message.reasoning_content and not tools else '')"
    " + (message.content or '')",
)
REASONED = ANSWER | {"reasoning_content": "I should think about it."}


@pytest.mark.parametrize(("template", "is_inline_proposed"), [(twins.CHATML, True), (OWN_MARKERS, False)])
def test_hints_about_reasoning_were_tried_and_never_put_tags_beside_markers_of_the_template(
    tmp_path: Path, template: str, is_inline_proposed: bool
) -> None:
    rows = [{"messages": [USER, REASONED], "tools": F}]
    seen = shown_for(tmp_path, DEFINED + template, rows)
    assert [each.code for each in seen.rows[0].view.rejected] == ["dropped_reasoning"]
    ways = [shlex.split(way)[1] for way in hint_for(seen).split("; ")]
    assert ("supervision.reasoning=inline" in ways) == is_inline_proposed
    assert ways[-1] == "supervision.allow_dropped=[reasoning]"
    for way in ways:
        assert shown_for(tmp_path, DEFINED + template, rows, way).totals.kept == 1


ONLY_INLINE = twins.CHATML.replace("assistant\\n' }}", "assistant\\n' }}{% set known = '<think></think>' %}")
"""As SmolLM3, which knows tags of reasoning in texts, and no field."""


@pytest.mark.parametrize("asked", ["Write <|begin_of_thought|> {thought} <|end_of_thought|>.", "Think first."])
def test_the_ways_out_for_tags_of_another_family_go_in_no_circle(tmp_path: Path, asked: str) -> None:
    """As OpenThoughts, whose system message asks for its tags; where none does, their letters are not learned."""
    block = "<|begin_of_thought|>\n\nI should think.\n\n<|end_of_thought|>\n\n"
    said = block + "<|begin_of_solution|>At six.<|end_of_solution|>"
    talk = [{"from": "user", "value": "When?"}, {"from": "assistant", "value": said}]

    def shown(*ways: str) -> Any:
        return shown_for(tmp_path, ONLY_INLINE, [{"system": asked, "conversations": talk}], *ways)

    one, other = hint_for(shown()).split("; ")
    without, kept = (other, one) if asked.startswith("Write") else (one, other)
    assert learned(shown(*settings_in(without))) == ["At six.<|im_end|>"]
    if not asked.startswith("Write"):
        assert kept.startswith("give reasoning under `reasoning_content`, without tags")
        talk[1] |= {"value": "At six.", "reasoning_content": "I should think."}
        kept = hint_for(shown()).split("; ")[0]
        said = "<think>\nI should think.\n</think>\n\nAt six."
    assert learned(shown(*settings_in(kept))) == [f"{said}<|im_end|>"]


CHANNELS = """\
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.thinking %}{{ '[R]' + m.thinking + '[/R]' }}{% endif %}
{{- m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
SWITCHED = CHANNELS.replace(
    "'<|im_start|>assistant\\n' }}",
    "'<|im_start|>assistant\\n' + ('[R][/R]' if enable_thinking is defined and not enable_thinking else '') }}",
)
EFFORTS = (
    """\
{%- if reasoning_effort is not defined %}{% set reasoning_effort = 'none' %}{% endif %}
{{- {'none': 'no', 'low': 'some', 'high': 'much'}[reasoning_effort] if reasoning_effort in ['none', 'low', 'high'] }}
"""
    + CHANNELS
)
INLINE = "<reasoning>I should think.</reasoning>\n4"
INLINE_ROW = [USER, ANSWER | {"content": INLINE}]


DEEP = CHANNELS.replace("{%- if m.thinking %}", "{%- if m.thinking and deep == 'yes' %}").replace(
    "assistant\\n' }}", "assistant\\n' + ('[R]' if deep == 'yes' else '') }}"
)
"""Writes its markers in one mode alone."""

NAMED = CHANNELS.replace("m.content + '", "m.content + '<|endoftext|>response<|im_end|>").replace("[R]", "[THOUGHT]")
"""As Kimi K3: `<|close|>response<|sep|>` stands behind an answer."""

THINKS = "<think>\nI should think.\n</think>\n\n4"


@pytest.mark.parametrize(
    ("template", "answer", "shown"),
    [
        (CHANNELS, INLINE, "[R]I should think.[/R]4"),
        (DEEP, THINKS, "[R]I should think.[/R]4"),
        (NAMED, INLINE, "[THOUGHT]I should think.[/R]4"),
    ],
)
def test_the_hint_for_reasoning_in_other_tags_moves_it_to_where_the_template_has_it(
    tmp_path: Path, template: str, answer: str, shown: str
) -> None:
    rows = [{"messages": [USER, ANSWER | {"content": answer}]}]
    way = settings_in(hint_for(shown_for(tmp_path, template, rows)).split("; ")[0])
    assert way == ["supervision.reasoning=field"]
    assert shown in whole(shown_for(tmp_path, template, rows, *way))


def test_tags_are_not_proposed_to_a_template_that_has_others_before_calls(tmp_path: Path) -> None:
    """As Command R7B, which shows reasoning only before calls, and answers in a channel."""
    before_calls = CHANNELS.replace("m.thinking %}", "m.thinking and m.tool_calls %}")
    before_calls = before_calls.replace("[R]", "<|START_THINKING|>").replace("[/R]", "<|END_THINKING|>")
    for messages in (INLINE_ROW, [USER, REASONED]):
        hint = hint_for(shown_for(tmp_path, before_calls, [{"messages": messages}]))
        assert "supervision.reasoning=inline" not in hint
        assert shown_for(tmp_path, before_calls, [{"messages": messages}], *settings_in(hint)).totals.kept == 1


def test_the_hint_for_tags_that_the_template_alone_has_names_the_field_of_reasoning(tmp_path: Path) -> None:
    rows = [{"messages": [USER, ANSWER | {"content": "4, for: [R]I should think.[/R]"}]}]
    (way,) = hint_for(shown_for(tmp_path, CHANNELS, rows)).split("; ")
    assert way.startswith("give reasoning under `reasoning_content`, without tags")
    rows = [{"messages": [USER, ANSWER | {"content": "4", "reasoning_content": "I should think."}]}]
    assert learned(shown_for(tmp_path, CHANNELS, rows)) == ["[R]I should think.[/R]4<|im_end|>"]


def test_the_hint_for_variables_of_a_row_that_contradict_it_is_followed(tmp_path: Path) -> None:
    template = SWITCHED.replace("[R]", "<think>").replace("[/R]", "</think>")
    for answer in (REASONED, ANSWER | {"content": "<think>I should.</think>4"}):
        rows = [{"messages": [USER, answer], "chat_template_kwargs": {"enable_thinking": False}}]
        hint = hint_for(shown_for(tmp_path, template, rows))
        assert settings_in(hint) == ["sources.columns={chat_template_kwargs: null}"]
        assert hint.split("; ")[1].startswith("leave out the reasoning of such rows")
        assert shown_for(tmp_path, template, rows, *settings_in(hint)).totals.kept == 1


def test_the_hints_for_a_template_with_several_efforts_are_followed(tmp_path: Path) -> None:
    rows = [{"messages": [USER, REASONED]}]
    *ways, last = hint_for(shown_for(tmp_path, EFFORTS, rows)).split("; ")
    settings = [shlex.split(way)[1] for way in ways]
    assert settings == ['template.kwargs.reasoning_effort="low"', 'template.kwargs.reasoning_effort="high"']
    assert last == "give each row its own in chat_template_kwargs"
    for setting in settings:
        assert shown_for(tmp_path, EFFORTS, rows, setting).totals.kept == 1
    rows[0]["chat_template_kwargs"] = {"reasoning_effort": "low"}
    assert shown_for(tmp_path, EFFORTS, rows).totals.kept == 1


def test_the_hint_for_a_word_that_means_none_by_default_names_the_variable(tmp_path: Path) -> None:
    only_none = "{{ 'think' if reasoning_effort is defined and reasoning_effort != 'none' }}" + CHANNELS
    rows = [{"messages": [USER, REASONED]}]
    seen = shown_for(tmp_path, only_none, rows)
    assert hint_for(seen).endswith("or set the variable to what asks for it")
    assert "contradicts reasoning_effort" in seen.rows[0].view.rejected[0].reason
    assert shown_for(tmp_path, only_none, rows, "template.kwargs.reasoning_effort=high").totals.kept == 1


def test_the_hints_for_inline_reasoning_and_an_effort_are_one_stop(tmp_path: Path) -> None:
    """As Hunyuan 3: reasoning in markers of its own, and only under an effort."""
    rows = [{"messages": INLINE_ROW}]
    way, *_ = hint_for(shown_for(tmp_path, EFFORTS, rows)).split("; ")
    _, setting, _, form, *_ = shlex.split(way)
    assert (setting, form) == ('template.kwargs.reasoning_effort="low"', "supervision.reasoning=field")
    assert shown_for(tmp_path, EFFORTS, rows, setting, form).totals.kept == 1


def test_the_hint_for_inline_reasoning_and_a_variable_of_the_row_is_one_stop(tmp_path: Path) -> None:
    rows = [{"messages": INLINE_ROW, "chat_template_kwargs": {"reasoning_effort": "none"}}]
    asking = EFFORTS.replace("'none' %}{% endif", "'high' %}{% endif")
    way, *_ = hint_for(shown_for(tmp_path, asking, rows)).split("; ")
    columns, form = settings_in(way)
    assert form == "supervision.reasoning=field"
    assert shown_for(tmp_path, asking, rows, columns, form).totals.kept == 1


ENDS_CALLS = """\
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
{%- for call in m.tool_calls or [] %}{{ call.function.name ~ (call.function.arguments | tojson) ~ '<|endoftext|>' }}{% endfor %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""Ends each call with a token, and no turn with any."""

CALLS = [{"type": "function", "function": {"name": name, "arguments": {"x": "1"}}} for name in ("look", "listen")]


@pytest.mark.parametrize(
    ("answer", "said"), [(ANSWER, ["answer"]), (ANSWER | {"tool_calls": CALLS}, ["answer", "look", "listen"])]
)
def test_the_token_that_ends_a_call_is_no_stop_token_of_an_answer(
    tmp_path: Path, answer: dict[str, Any], said: list[str]
) -> None:
    """Behind it, other calls of the turn would be lost."""
    rows = [{"messages": [USER, answer]}]
    hint = hint_for(shown_for(tmp_path, ENDS_CALLS, rows))
    ways = [shlex.split(way)[1] for way in hint.split("; ") if way.startswith("--set")]
    assert ways == ["supervision.no_terminator=append"]
    (text,) = learned(shown_for(tmp_path, ENDS_CALLS, rows, *ways))
    assert text.endswith("<|im_end|>") and all(word in text for word in said)
    stopped = shown_for(tmp_path, ENDS_CALLS, rows, 'supervision.stop=["<|endoftext|>"]')
    assert "allow_dropped" not in hint_for(stopped)


@pytest.mark.parametrize("content", ["", "Let me look."])
def test_a_lost_call_is_allowed_only_where_another_answer_is_trained(tmp_path: Path, content: str) -> None:
    """What is said before the call is not: it would be learned to stop where the call follows."""
    called = [USER, {"role": "assistant", "content": content, "tool_calls": CALLS[:1]}]
    assert "allow_dropped" not in hint_for(shown_for(tmp_path, twins.CHATML, [{"messages": called}]))
    rows = [{"messages": [*called, USER, ANSWER]}]
    hint = hint_for(shown_for(tmp_path, twins.CHATML, rows))
    assert "builds without it, and does not train turns with calls" in hint
    assert learned(shown_for(tmp_path, twins.CHATML, rows, *settings_in(hint))) == ["answer<|im_end|>"]


PROPERTIES = (
    "{% for t in tools or [] %}{{ t.function.name ~ ' ' ~ t.function.parameters.properties | list }}{% endfor %}"
)
ONE_CALL = twins.CHATML.replace(
    "(message.content or '')",
    "(message.tool_calls[0].function | tojson if message.tool_calls else message.content or '')",
)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("form", ["bare", "wrapped", "text"])
def test_parameters_without_properties_get_them_by_the_command_of_the_page(tmp_path: Path, form: str) -> None:
    defined: Any = [{"name": "look", "parameters": {"place": {"type": "str"}}}]
    defined = [{"type": "function", "function": each} for each in defined] if form == "wrapped" else defined
    row = {"messages": [USER, ANSWER], "tools": json.dumps(defined) if form == "text" else defined}
    hint = hint_for(shown_for(tmp_path, PROPERTIES + twins.CHATML, [row]))
    assert "#parameters-of-tools has the command" in hint
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/exports.md").read_text("utf-8")
    command = re.search(r"## Parameters of tools\n.*?```sh\n(.*?)```", page, re.DOTALL)[1]  # type: ignore[index]
    (tmp_path / "rows.json").write_text(json.dumps(row), "utf-8")
    subprocess.run(["bash", "-euc", command], check=True, cwd=tmp_path)
    made = json.loads((tmp_path / "rows.jsonl").read_text("utf-8"))
    (text,) = shown_for(tmp_path, PROPERTIES + twins.CHATML, [made]).rows[0].view.documents[0].runs[:1]
    assert text.text.startswith("look ['place']")


@pytest.mark.parametrize("template", [ONE_CALL, twins.CHATML])
def test_a_call_that_a_template_does_not_write_is_refused_also_where_it_writes_another(
    template: str, tmp_path: Path
) -> None:
    called = {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": CALLS}
    hint = hint_for(shown_for(tmp_path, template, [{"messages": [USER, called]}]))
    assert "no place for this" in hint and "write each call as a message of its own" in hint


def test_calls_at_once_are_written_in_turn_for_a_template_of_one_call(tmp_path: Path) -> None:
    refuses = "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one call at once') }}{% endif %}"
    template = f"{{% for m in messages %}}{refuses}{{% endfor %}}{ONE_CALL}"
    called = [ANSWER | {"content": "", "tool_calls": [call | {"id": call["function"]["name"]}]} for call in CALLS]
    results = [{"role": "tool", "tool_call_id": name, "content": f"{name} is fine"} for name in ("look", "listen")]
    both = called[0] | {"tool_calls": [each["tool_calls"][0] for each in called]}
    hint = hint_for(shown_for(tmp_path, template, [{"messages": [USER, both, *results, ANSWER]}]))
    assert "allows one call per message" in hint and "followed by its result" in hint
    in_turn = [USER, called[0], results[0], called[1], results[1], ANSWER]
    assert shown_for(tmp_path, template, [{"messages": in_turn}]).totals.kept == 1


WRAPS = twins.CHATML.replace(
    "(message.content or '')",
    "('<tool_response>' + message.content + '</tool_response>' if message.role == 'tool' else message.content or '')",
)
RESULT = {"role": "tool", "content": "<tool_response>06:12</tool_response>"}


@pytest.mark.parametrize(
    ("call", "is_offered"),
    [("Let me look.", True), ("[f(x=1)]", False), ("I call f, see below.", True)],
)
def test_tags_are_taken_off_only_where_no_call_is_left_as_text(tmp_path: Path, call: str, is_offered: bool) -> None:
    rows = [{"messages": [USER, ANSWER | {"content": call}, RESULT, ANSWER], "tools": F}]
    seen = shown_for(tmp_path, DEFINED + WRAPS, rows)
    assert [each.code for each in seen.rows[0].view.rejected] == ["wrapped_twice"]
    assert ("rows.wrapped=unwrap" in hint_for(seen)) == is_offered


def test_two_keys_that_help_only_together_are_named_together(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": F[0]}]
    defines = {"role": "system", "content": json.dumps(tools)}
    rows = [{"messages": [defines, USER, ANSWER | {"content": "Let me look."}, RESULT, ANSWER], "tools": tools}]
    assert "--columns tools=null --set rows.wrapped=unwrap" in hint_for(shown_for(tmp_path, DEFINED + WRAPS, rows))
    ways = ("sources.columns={tools: null}", "rows.wrapped=unwrap")
    assert shown_for(tmp_path, DEFINED + WRAPS, rows, *ways).totals.kept == 1


def test_all_that_a_template_drops_of_a_row_is_allowed_in_one_step(tmp_path: Path) -> None:
    rows = [{"messages": [USER, REASONED], "tools": F}]
    (said,) = settings_in(hint_for(shown_for(tmp_path, twins.CHATML, rows)))
    assert said == "supervision.allow_dropped=[reasoning,tools]"
    assert shown_for(tmp_path, twins.CHATML, rows, said).totals.kept == 1


def test_what_trains_two_answers_in_a_row_is_not_offered(tmp_path: Path) -> None:
    opens = CHANNELS.replace("'<|im_start|>assistant\\n' }}", "'<|im_start|>assistant\\n<think>\\n' }}")
    for messages, is_offered in (([USER, ANSWER], True), ([USER, ANSWER, ANSWER], False)):
        rows = [{"messages": messages}]
        hint = hint_for(shown_for(tmp_path, opens, rows, "supervision.on_prompt_mismatch=refuse"))
        assert ("on_prompt_mismatch=continue" in hint) == is_offered
