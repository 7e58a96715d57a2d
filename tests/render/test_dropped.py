"""Silent loss: what a row says and a template leaves out rejects the row, unless the recipe allows it."""

from pathlib import Path
from typing import Any

import pytest
import twins
from supervised import Stages, assistant, call, chat, result, system, user

SHOWS_ALL = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{{- '<call>' + call.function.name + call.function.arguments | tojson + '</call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

SKIPS = {
    "system": SHOWS_ALL.replace("in messages %}", "in messages if message.role != 'system' %}"),
    "user": SHOWS_ALL.replace("message.content or ''", "message.content if message.role != 'user' else '?'"),
    "tool_result": SHOWS_ALL.replace("in messages %}", "in messages if message.role != 'tool' %}"),
    "reasoning": SHOWS_ALL.replace("if message.reasoning_content", "if false"),
    "tool_call": SHOWS_ALL.replace("message.tool_calls or []", "[]"),
    "content": SHOWS_ALL.replace("message.content or ''", "'' if message.tool_calls else message.content"),
}

LONG = (
    system("You are an assistant for travellers."),
    user("What is the weather in Paris today?"),
    assistant(
        "Let me look that up for you.",
        reasoning_content="The weather is behind a tool.",
        tool_calls=[call("current_weather", {"city": "Paris in France"})],
    ),
    result("It is raining cats and dogs."),
    assistant("It rains a great deal in Paris."),
)
SHORT = (
    system("Be"),
    user("a"),
    assistant("b", reasoning_content="c", tool_calls=[call("f", {"x": "d"})]),
    result("e"),
    assistant("g"),
)
"""Every text stands in the rendering by chance, so only a word made for the purpose can tell."""


def outcome(folder: Path, template: str, messages: tuple[dict[str, Any], ...], *overrides: str) -> Any:
    stages = Stages.load(twins.byte_level(folder, template=template), *overrides)
    batch = stages.render([chat(*messages)])
    return [rejection.code for rejection in batch.rejections] or batch.turn_message.tolist()


@pytest.mark.parametrize("messages", [LONG, SHORT], ids=["long", "short"])
def test_a_template_that_shows_everything_passes(tmp_path: Path, messages: Any) -> None:
    assert outcome(tmp_path, SHOWS_ALL, messages) == [2, 4]


@pytest.mark.parametrize("messages", [LONG, SHORT], ids=["long", "short"])
@pytest.mark.parametrize("kind", SKIPS)
def test_what_a_template_drops_rejects_the_row(tmp_path: Path, kind: str, messages: Any) -> None:
    assert outcome(tmp_path, SKIPS[kind], messages) == [f"dropped_{kind}"]


@pytest.mark.parametrize("kind", SKIPS)
def test_allow_dropped_lets_exactly_that_kind_through(tmp_path: Path, kind: str) -> None:
    others = [other for other in SKIPS if other != kind]
    assert outcome(tmp_path, SKIPS[kind], LONG, f"supervision.allow_dropped=[{kind}]") == [2, 4]
    assert outcome(tmp_path, SKIPS[kind], LONG, f"supervision.allow_dropped=[{','.join(others)}]") == [
        f"dropped_{kind}"
    ]


def test_the_reason_names_the_message(tmp_path: Path) -> None:
    stages = Stages.load(twins.byte_level(tmp_path, template=SKIPS["tool_result"]))
    assert stages.reasons([chat(*LONG)]) == [
        ("dropped_tool_result", "messages[3]: the template does not render its tool result")
    ]


def test_reasoning_that_later_turns_drop_is_rewriting_and_not_loss(tmp_path: Path) -> None:
    talk = (
        user("What is the weather?"),
        assistant("It is raining.", reasoning_content="Look out of the window."),
        user("And tomorrow, what about that?"),
        assistant("I do not know that."),
    )
    assert outcome(tmp_path, twins.QWEN3_LIKE, talk) == [1, 3]


def test_a_tool_result_that_later_turns_drop_is_rewriting_and_not_loss(tmp_path: Path) -> None:
    """Shown to the turn that answers it, gone after the next question."""
    asked_again = "messages | selectattr('role', 'equalto', 'user') | list | length > 1"
    forgets = SHOWS_ALL.replace("in messages %}", f"in messages if not (message.role == 'tool' and {asked_again}) %}}")
    talk = (*LONG, user("Thank you very much!"), assistant("Nothing more."))
    assert sorted(outcome(tmp_path, forgets, talk)) == [2, 4, 6]


def test_inline_reasoning_that_a_template_strips_rejects_the_row(tmp_path: Path) -> None:
    strips = SHOWS_ALL.replace("message.content or ''", "message.content.split('</think>')[-1]")
    talk = (user("What is the weather?"), assistant("<think>Out of the window.</think>It is raining."))
    assert outcome(tmp_path, strips, talk) == ["dropped_reasoning"]


def test_text_a_template_trims_at_its_ends_is_not_lost(tmp_path: Path) -> None:
    trims = SHOWS_ALL.replace("message.content or ''", "message.content | trim")
    talk = (user("  What is the weather? \n"), assistant("\n It is raining. "))
    assert outcome(tmp_path, trims, talk) == [1]


def test_arguments_written_as_escaped_json_are_not_lost(tmp_path: Path) -> None:
    escaped = SHOWS_ALL.replace("tojson", "tojson(ensure_ascii=true) | tojson")
    turn = assistant(None, tool_calls=[call("current_weather", {"city": 'Köln "am Rhein"'})])
    assert outcome(tmp_path, escaped, (user("What is the weather?"), turn)) == [1]


def test_a_message_after_the_last_turn_may_be_dropped(tmp_path: Path) -> None:
    assert outcome(tmp_path, SKIPS["tool_result"], (*LONG[:3], result("It is raining cats and dogs."))) == [2]
