"""Parts of real answers under real templates, read back by a reader that knows the row and the trained ids alone."""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fitted_tokenizers import Fitted
from search_effort import IS_DEEP
from supervision_stages import Stages

from packer.batches import Sample
from packer.source.chat import read

pytestmark = pytest.mark.real

PARTS = ("reasoning", "text", "calls")
REASONED = "reason_tool_use_openai_50"
"""The largest corpus with reasoning and calls; two of its rows have a tag of reasoning in their text."""

TEMPLATES = {
    "trl__qwen3.jinja": REASONED,
    "llamacpp__Qwen3.5-4B.jinja": REASONED,
    "llamacpp__GLM-4.6.jinja": REASONED,
    "llamacpp__deepseek-ai-DeepSeek-V3.2.jinja": REASONED,
    "mistralcommon__v13_think.jinja": REASONED,
    "llamacpp__Cohere2MoE.jinja": REASONED,
    "llamacpp__deepseek-ai-DeepSeek-V3.1.jinja": "taubench_airline_gpt4o",
    "llamacpp__meta-llama-Llama-3.1-8B-Instruct.jinja": "sgd_train_tools_600",
    "trl__gemma3.jinja": "hh_harmless_test_messages",
}
LIMITS = {REASONED: 12, "taubench_airline_gpt4o": 4, "sgd_train_tools_600": 6, "hh_harmless_test_messages": 20}
"""Rows in `make deep`; `make test` takes a third of them, but four at least."""
SLOW = ("llamacpp__Qwen3.5-4B.jinja", "llamacpp__GLM-4.6.jinja", "llamacpp__deepseek-ai-DeepSeek-V3.2.jinja", "mistralcommon__v13_think.jinja",
        "llamacpp__Cohere2MoE.jinja")  # fmt: skip
"""In `make deep` only."""

TAG = re.compile(r"</?think>|\[/?THINK\]")


def rows(real: Path, template: str) -> list[Sample]:
    """Rows of the corpus that belongs to a template; of the first one, in `make deep`, all."""
    corpus = TEMPLATES[template]
    limit = LIMITS[corpus] if IS_DEEP else max(4, LIMITS[corpus] // 3)
    limit = None if IS_DEEP and template == next(iter(TEMPLATES)) else limit
    with (real / "corpora" / f"{corpus}.jsonl").open(encoding="utf-8") as lines:
        made = [json.loads(line) for line in itertools.islice(lines, limit)]
    made = [row for row in made if "think>" not in json.dumps([each.get("content") for each in row["messages"]])]
    return [read(row, number) for number, row in enumerate(made)]


def said(row: Sample, part: str) -> Iterator[Any]:
    """What the answers of a row say in a part, in order."""
    names = {"reasoning": "reasoning_content", "text": "content", "calls": "tool_calls"}
    for message in row.messages:
        value = message.fields.get(names[part]) if message.role == "assistant" else None
        if value and (part == "calls" or value.strip()):
            yield value if part == "calls" else value.strip()


def segments(stages: Stages, outcome: Any, marks: Sequence[str]) -> list[str]:
    """The trained texts of a row, one after the other, without the tokens of any template."""
    found = []
    for _, labels in outcome:
        for is_trained, run in itertools.groupby(labels, lambda label: label >= 0):
            text = stages.round_trip.decode([*run]).decode() if is_trained else ""
            for mark in marks:
                text = text.replace(mark, "")
            found += [TAG.sub("", text).strip()] if is_trained else []
    return found


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    elif isinstance(value, str):
        yield value


def is_of_calls(text: str, calls: Sequence[Any]) -> bool:
    """Whether a text has every name and argument of some calls."""
    found = [(each["function"]["name"], each["function"]["arguments"]) for each in calls]
    return all(
        name in text
        and all(leaf in text or json.dumps(leaf, ensure_ascii=False)[1:-1] in text for leaf in leaves(values))
        for name, values in found
    )


@pytest.mark.parametrize(
    "template", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in TEMPLATES]
)
def test_of_each_part_exactly_what_rows_say_is_trained(template: str, real: Path, fitted: Fitted) -> None:
    samples = rows(real, template)
    rules = ("supervision.on_prompt_mismatch=continue",)
    marks = sorted((mark for mark in fitted.markers if len(mark) > 3), key=len, reverse=True)
    every = fitted.stages(template, *rules)
    whole, kept = every.outcomes(samples), 0
    narrowed = {part: fitted.stages(template, *rules, f"supervision.parts=[{part}]") for part in PARTS}
    found = {part: stages.outcomes(samples) for part, stages in narrowed.items()}
    for number, (row, outcome) in enumerate(zip(samples, whole, strict=True)):
        if isinstance(outcome, str):
            continue
        kept += 1
        own = {part: [] if isinstance(each[number], str) else segments(every, each[number], marks)
               for part, each in found.items()}  # fmt: skip
        assert {each[number] for each in found.values() if isinstance(each[number], str)} <= {"nothing_trained"}
        shown = [*said(row, "text")]
        assert [text for text in own["text"] if text] == shown, number
        assert own["reasoning"] == [*said(row, "reasoning")], number
        calls = [*said(row, "calls")]
        assert len(own["calls"]) == len(calls), number
        for text, made in zip(own["calls"], calls, strict=True):
            assert is_of_calls(text, made)
            assert not any(len(each) > 20 and each in text for each in (*shown, *said(row, "reasoning")))
    assert kept >= len(samples) // 4 and kept > 2
    reasons = {part: [each for each in outcomes if each == "part_not_found"] for part, outcomes in found.items()}
    assert not any(reasons.values())
