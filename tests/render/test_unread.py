"""Calls, tools and reasoning under keys of messages that a template does not read: refused, and never lost silently."""

from pathlib import Path
from typing import Any

import pytest
import twins
from supervision_stages import Stages, chat

USER, ANSWER = {"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}
KEYS: dict[str, tuple[Any, str]] = {
    "function_calls": ('f(x="1")', "dropped_tool_call"),
    "functions": ('[{"name": "f"}]', "dropped_tools"),
    "tools": ([{"name": "f"}], "dropped_tools"),
    "thought": ("I should think.", "dropped_reasoning"),
    "reasoning_details": ([{"type": "reasoning.text", "text": "I should think."}], "dropped_reasoning"),
}


@pytest.mark.parametrize("key", KEYS)
def test_content_under_a_key_that_the_template_does_not_read_is_not_lost(tmp_path: Path, key: str) -> None:
    value, code = KEYS[key]
    row = chat(USER, ANSWER | {key: value})
    stages = Stages.load(twins.byte_level(tmp_path / "without"))
    ((found, reason),) = stages.reasons([row])
    assert found == code
    assert reason.startswith(f"messages[1] has `{key}`, which the template does not read")
    rule = f"supervision.allow_dropped=[{code.removeprefix('dropped_')}]"
    allowed = Stages.load(twins.byte_level(tmp_path / "allowed"), rule)
    assert allowed.reasons([row]) == []
    template = "{% for m in messages %}{{ m." + key + " or '' }}{% endfor %}" + twins.CHATML
    many = [chat(USER, ANSWER, row=0), *(chat(USER, ANSWER | {key: value}, row=row) for row in range(1, 9))]
    assert [each for each, _ in stages.reasons(many)] == [code] * 8  # as frequent as what skeletons are made for
    reads = Stages.load(twins.byte_level(tmp_path / "with", template=template))
    assert reads.reasons([chat(USER | {key: value}, ANSWER)]) == []


def test_what_a_message_says_elsewhere_or_what_is_no_text_is_not_lost(tmp_path: Path) -> None:
    """As of logs of SWE-agent, whose thought is the beginning of the content, and of OpenRouter."""
    stages = Stages.load(twins.byte_level(tmp_path))
    thought = "I should think."
    for fields in (
        {"content": f"{thought} answer", "thought": f" {thought}\n"},
        {"function_calls": None, "functions": "", "tools": []},
        {"thought": True, "reasoning_details": [{"type": "reasoning.encrypted", "data": "QUJD"}]},
    ):
        assert stages.reasons([chat(USER, ANSWER | fields)]) == []


@pytest.mark.parametrize(
    ("role", "fields"),
    [
        ("user", {"thought": "I should think."}),
        ("user", {"function_calls": "f()"}),
        ("user", {"tools": ["search"]}),
        ("assistant", {"functions": "[]"}),
        ("assistant", {"function_calls": "null"}),
        ("assistant", {"functions": "{}"}),
    ],
)
def test_what_others_say_and_what_is_empty_is_not_lost(tmp_path: Path, role: str, fields: dict[str, Any]) -> None:
    """A user has no reasoning and no calls, and names alone are no definitions."""
    row = [USER, ANSWER]
    row = [message | fields if message["role"] == role else message for message in row]
    assert Stages.load(twins.byte_level(tmp_path)).reasons([chat(*row)]) == []


@pytest.mark.parametrize("all_keys", ["{% for k, v in m.items() %}{{ v }} {% endfor %}", "{{ m | tojson }}"])
def test_a_template_that_writes_all_keys_writes_this_one(tmp_path: Path, all_keys: str) -> None:
    body = "<|im_start|>{{ m.role }}\n" + all_keys + "<|im_end|>\n"
    template = (
        "{% for m in messages %}"
        + body
        + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    stages = Stages.load(twins.byte_level(tmp_path, template=template))
    codes = [code for code, _ in stages.reasons([chat(USER, ANSWER | {"thought": "I should think."})])]
    assert "dropped_reasoning" not in codes
