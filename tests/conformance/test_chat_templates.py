"""packer's template environment against transformers' on every real template, and against published renderings."""

import datetime as dt
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from supervision_stages import aliased, assistant, call, result, system, user
from transformers.utils import chat_template_utils

from packer.render import ChatTemplate, RenderError

pytestmark = pytest.mark.real

DAY = "2026-01-01"
NAMED = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "current_weather",
        "description": "Wetter für <b>einen</b> Ort",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"messages": [user(" Hi {{ there }}\n"), assistant("Hello & <welcome>"), user("é 你好 👍")]},
    "system": {"messages": [system("Be kind"), user("Hi"), assistant("Hello"), user("Bye"), assistant("Ok")]},
    "tools": {
        "messages": [
            user("Weather in Köln?"),
            assistant(None, tool_calls=[{"id": "call00001", **call("current_weather", {"city": "Köln", "n": 1.5})}]),
            {"tool_call_id": "call00001", "name": "current_weather", **result('{"rain": true}')},
            assistant("It rains."),
        ],
        "tools": [WEATHER],
    },
    "text arguments": {
        "messages": [
            system("Be kind"),
            user("Weather in Köln?"),
            assistant("", tool_calls=[{"id": "call00001", **call("current_weather", '{"city": "Köln"}')}]),
            {"tool_call_id": "call00001", "name": "current_weather", **result("rain")},
        ],
        "tools": [WEATHER, WEATHER],
    },
    "reasoning": {
        "messages": [
            user("1 + 1?"),
            assistant("2", reasoning_content="one and one"),
            user("and 1?"),
            assistant("<think>\nthree\n</think>\n\n3"),
        ],
        "enable_thinking": False,
        "thinking": True,
    },
    "in a row": {"messages": [assistant("Welcome"), user("a"), user("b"), assistant("c"), assistant("d"), user("e")]},
}


class January(dt.datetime):
    """The clock of transformers, stopped on the recipe's day."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> "January":
        return cls.fromisoformat(DAY)


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template_utils, "datetime", January)


def by_transformers(source: str, arguments: dict[str, Any], *, prompt: bool) -> str | None:
    arguments = {**NAMED, **arguments}
    try:
        (text,), _ = chat_template_utils.render_jinja_template(
            conversations=[arguments.pop("messages")],
            tools=arguments.pop("tools", None),
            chat_template=source,
            add_generation_prompt=prompt,
            **arguments,
        )
    except Exception:  # noqa: BLE001 - a template may raise anything; that is its answer
        return None
    assert isinstance(text, str)
    return text


def by_packer(template: ChatTemplate, arguments: dict[str, Any], *, prompt: bool) -> str | None:
    kwargs = {name: value for name, value in arguments.items() if name not in ("messages", "tools")}
    messages = [aliased(message) for message in arguments["messages"]]
    try:
        return template.render(messages, tools=arguments.get("tools"), add_generation_prompt=prompt, kwargs=kwargs)
    except RenderError:
        return None


@pytest.mark.parametrize("part", range(2))
def test_every_real_template_renders_as_in_transformers(part: int, real: Path) -> None:
    seen: Counter[str] = Counter()
    paths = sorted((real / "templates").glob("*.jinja"))[part::2]
    for path in paths:
        source = path.read_text("utf-8")
        template = ChatTemplate(source, date=DAY, variables=NAMED, max_bytes=2**26)
        for shape, arguments in SHAPES.items():
            for prompt in (False, True):
                theirs = by_transformers(source, arguments, prompt=prompt)
                assert by_packer(template, arguments, prompt=prompt) == theirs, (path.name, shape)
                seen[f"{shape}: {'raised' if theirs is None else 'rendered'}"] += 1
    print(dict(seen))
    assert seen.total() == 2 * len(SHAPES) * 69
    assert all(seen[f"{shape}: rendered"] > 60 for shape in SHAPES)


def test_published_renderings_come_out_equal(real: Path) -> None:
    cases = [json.loads(line) for line in (real / "expected" / "render_cases.jsonl").read_text("utf-8").splitlines()]
    for case in cases:
        variables = dict(case["variables"])
        messages, tools = variables.pop("messages", []), variables.pop("tools", None)
        prompt = variables.pop("add_generation_prompt", False)
        template = ChatTemplate(case["template"], date=DAY, variables={}, max_bytes=2**26)
        text = template.render(messages, tools=tools, add_generation_prompt=prompt, kwargs=variables)
        assert text == case["expected"], case["name"]
    assert len(cases) == 32
