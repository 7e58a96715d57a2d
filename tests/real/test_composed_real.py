"""Real conversations under every real template: composed renderings, held to what the template writes by itself."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from fitted_tokenizers import compiled

from packer.render import ChatTemplate, RenderError, environment
from packer.render.symbolic import OpaqueError

pytestmark = pytest.mark.real

CORPORA = ("sgd_train_tools_600", "taubench_airline_gpt4o", "reason_tool_use_openai_50", "sgd_train_chat_1800")
MOST_MESSAGES = 24


def conversations(real: Path, number: int) -> list[tuple[list[dict[str, Any]], Any]]:
    """Messages and tools, with arguments as objects, and without nulls, which few templates take."""
    found = []
    for name in CORPORA:
        with (real / "corpora" / f"{name}.jsonl").open(encoding="utf-8") as lines:
            for row in map(json.loads, itertools.islice(lines, number)):
                messages = [{**message, "content": message.get("content") or ""} for message in row["messages"]]
                for call in (call for message in messages for call in message.get("tool_calls") or ()):
                    if isinstance(call["function"]["arguments"], str):
                        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
                found.append((messages[:MOST_MESSAGES], row.get("tools")))
    return found


def rendered(template: ChatTemplate, **rendering: Any) -> str | None:
    try:
        return template.render(**rendering)
    except RenderError:
        return None


@pytest.mark.parametrize(("number", "every"), [(1, 48), pytest.param(20, 1, marks=pytest.mark.slow)])
def test_every_real_template_is_composed_as_it_renders(
    number: int, every: int, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts in every mode, turns, and the same with other words; recordings serve for all conversations."""
    monkeypatch.setattr(environment, "WORTH_COMPILING", 0)
    num_composed, mostly = 0, []
    asked = dict(list(compiled(real).items())[::every])
    for name, template in asked.items():
        num_asked = num_own = 0
        for messages, tools in conversations(real, number):
            composition = template.new_composition(len(messages))
            worded = [{**message, "content": f"Zq{k}xW"} for k, message in enumerate(messages)]
            modes = [{}, *({switch: value} for switch, value in template.modes)]
            for k in range(1, len(messages) + 1):
                each = [(worded[:k], False, {}), (messages[:k], False, {})]
                each += [(messages[:k], True, mode) for mode in modes]
                for begun, prompt, kwargs in each:
                    rendering = {"messages": begun, "add_generation_prompt": prompt, "kwargs": kwargs}
                    expected = rendered(template, tools=tools, **rendering)
                    num_asked += expected is not None
                    if composition is None:
                        continue
                    try:
                        text = composition.text(begun, tools, kwargs, add_generation_prompt=prompt)
                    except OpaqueError:
                        continue
                    assert text == expected, (name, k)
                    num_own += 1
        num_composed += num_own
        mostly += [name] if num_own > num_asked / 2 else []
    print(
        f"\n{num_composed:,} composed renderings are the same; more than half under {len(mostly)} of {len(asked)} real "
        f"templates; not: {sorted(set(asked) - set(mostly))}"
    )
    assert len(mostly) >= 85 // every
    assert num_composed > 12_000 * number // every


USUAL = (
    *("Qwen-Qwen2.5-7B", "llamacpp__meta-llama-Llama-3.1", "trl__qwen3.jinja", "hermes.jinja", "DeepSeek-V3.1"),
    *("GLM-4.6", "Qwen3-Coder", "pythonic.jinja"),
)


@pytest.mark.parametrize("usual", USUAL)
def test_tool_dialogues_under_usual_templates_are_composed_to_the_last_turn(
    usual: str, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "WORTH_COMPILING", 0)
    template = next(template for name, template in compiled(real).items() if usual in name)
    for messages, tools in conversations(real, 2)[:2]:
        composition = template.new_composition(len(messages))
        assert composition is not None
        for k in range(1, len(messages) + 1):
            text = composition.text(messages[:k], tools, {}, add_generation_prompt=False)
            assert text == template.render(messages[:k], tools=tools)
