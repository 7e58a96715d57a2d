"""packer's template environment against transformers' on every real template, and against published renderings."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conformance.conversations import DAY, SHAPES
from supervision_stages import aliased
from transformers.utils import chat_template_utils

from packer.render.environment import ChatTemplate, RenderError

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("stopped_clock")]

NAMED = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


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


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_every_real_template_renders_as_in_transformers(every: int, real: Path) -> None:
    """In `make test` every twelfth one."""
    seen: Counter[str] = Counter()
    paths = sorted((real / "templates").glob("*.jinja"))
    assert len(paths) == 138
    paths = paths[::every]
    for path in paths:
        source = path.read_text("utf-8")
        template = ChatTemplate(source, date=DAY, variables=NAMED, max_bytes=2**26)
        for shape, arguments in SHAPES.items():
            for prompt in (False, True):
                theirs = by_transformers(source, arguments, prompt=prompt)
                assert by_packer(template, arguments, prompt=prompt) == theirs, (path.name, shape)
                seen[f"{shape}: {'raised' if theirs is None else 'rendered'}"] += 1
    print(dict(seen))
    assert seen.total() == 2 * len(SHAPES) * len(paths)
    assert all(seen[f"{shape}: rendered"] > 120 // every for shape in SHAPES)


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
