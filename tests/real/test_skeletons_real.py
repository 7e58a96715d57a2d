"""Real conversations under every real template: filled into skeletons and rendered, the same bytes."""

import copy
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fitted import ALLOW_ALL, Fitted, templates
from rendered_twice import literal
from supervised import chat

from packer.batches import REASONING_FIELDS, RowBatch, Sample
from packer.render import filling as filling_module
from packer.render import skeleton
from packer.source import messages as messages_schema

pytestmark = pytest.mark.real

CORPORA = ("sgd_train_chat_1800", "hh_harmless_test_messages")
TOOL_CORPORA = ("sgd_train_tools_600", "reason_tool_use_openai_50", "taubench_airline_gpt4o")
WITH_CALLS = (
    *("trl__qwen3.jinja", "llamacpp__meta-llama-Llama-3.1-8B-Instruct.jinja", "axolotl__deepseek_v3.jinja"),
    *("llamacpp__CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "llamacpp__Qwen-Qwen2.5-7B-Instruct.jinja"),
)
"""Templates whose rows with calls must be filled in."""

AWKWARD = ("</think> so", "<think>\nhm\n</think>\n\nso", " \n", "<|im_end|>", "a [INST] b", "{{ bos_token }}", " x ")
FORMS = (
    ("user", "assistant"),
    ("system", "user", "assistant"),
    ("user", "assistant", "user", "assistant"),
    ("user", "assistant") * 4,
)


def said(real: Path) -> Iterator[str]:
    """What people and assistants say in the corpora, turn after turn, with awkward words among it."""
    awkward = itertools.cycle(AWKWARD)
    number = 0
    for name in CORPORA:
        with (real / "corpora" / f"{name}.jsonl").open(encoding="utf-8") as lines:
            for line in itertools.islice(lines, 200):
                for message in json.loads(line)["messages"]:
                    number += 1
                    yield message["content"] if number % 11 else next(awkward)


def conversations(real: Path, number: int) -> list[Sample]:
    words = said(real)
    rows: list[Sample] = []
    for form in itertools.islice(itertools.cycle(FORMS), number):
        messages: list[dict[str, Any]] = [{"role": role, "content": next(words)} for role in form]
        rows.append(chat(*messages, row=len(rows)))
    return rows


def with_tools(real: Path, number: int) -> list[Sample]:
    """Rows with tools: a question and a call, and on to the answer; some with words that no corpus has."""
    rows: list[Sample] = []
    awkward = itertools.cycle(AWKWARD)
    for corpus in TOOL_CORPORA:
        with (real / "corpora" / f"{corpus}.jsonl").open(encoding="utf-8") as lines:
            samples = [messages_schema.read(json.loads(line), 0) for line in itertools.islice(lines, 4 * number)]
        rows += [row for place, sample in enumerate(samples) for row in _cut(sample, to_answer=place % 2 == 1)][:number]
    for row, word in zip(rows[::7], awkward, strict=False):
        last = row.messages[-1].fields
        if last.get("tool_calls"):
            last["tool_calls"][0]["function"]["arguments"] = {"word": word, "none": None, "number": 1e20, "list": []}
    return [msgspec.structs.replace(row, row=k) for k, row in enumerate(rows)]


def _cut(sample: Sample, *, to_answer: bool) -> list[Sample]:
    calls = [k for k, message in enumerate(sample.messages) if message.fields.get("tool_calls")]
    if not calls:
        return []
    asked = max((k for k in range(calls[0]) if sample.messages[k].role == "user"), default=0)
    head = sample.messages[: sample.messages[0].role == "system"]
    end = calls[0] + (3 if to_answer else 1)
    messages = tuple(
        msgspec.structs.replace(message, fields=_unreasoned(message.fields)) for message in sample.messages[asked:end]
    )
    return [msgspec.structs.replace(sample, messages=(*head, *messages))]


def _unreasoned(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in REASONING_FIELDS}


def hold(names: Sequence[str], rows: Sequence[Sample], fitted: Fitted) -> dict[str, int]:
    """How many rows are filled in under each template, each of them rightly."""
    batch = RowBatch(samples=tuple(rows), rejections=(), num_rows=len(rows))
    num_filled = dict.fromkeys(names, 0)
    for name in names:
        filling = copy.copy(fitted.stages(name, ALLOW_ALL).renderer)
        rendered = literal(filling).render(batch)
        by_renderings = copy.copy(filling)
        by_renderings._skeletons = None
        assert by_renderings.render(batch).text == rendered.text, name
        by_skeletons = filling.render(batch)
        assert by_skeletons.text == rendered.text, name
        for column in ("text_offsets", "sample", "turn_text", "turn_message", "prompt_end", "completion_end", "weight"):
            assert getattr(by_skeletons, column).tolist() == getattr(rendered, column).tolist(), (name, column)
        assert by_skeletons.rejections == rendered.rejections, name
        if filling._skeletons is not None:
            num_filled[name] = sum(filling._skeletons.fill(row) is not None for row in rows)
    return num_filled


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (skeleton, filling_module):
        monkeypatch.setattr(module, "_FEW", 0)


@pytest.mark.parametrize("number", [16, pytest.param(240, marks=pytest.mark.slow)])
def test_every_real_template_writes_the_same_by_skeletons(number: int, real: Path, fitted: Fitted) -> None:
    num_filled = hold([*templates(real)], conversations(real, number), fitted)
    used = [name for name, filled in num_filled.items() if filled > number // 8]
    print(
        f"\n{len(used)} of {len(num_filled)} real templates are filled in; not: {sorted(set(num_filled) - set(used))}"
    )
    assert len(used) >= 70


@pytest.mark.parametrize(("number", "every"), [(4, 8), pytest.param(40, 1, marks=pytest.mark.slow)])
def test_every_real_template_writes_the_same_of_rows_with_tools_by_skeletons(
    number: int, every: int, real: Path, fitted: Fitted
) -> None:
    """Of the templates that know calls; in `make test` every eighth."""
    names = [name for name, source in templates(real).items() if "tool_calls" in source][::every]
    names += [name for name in WITH_CALLS if name not in names]
    rows = with_tools(real, number)
    assert len(rows) > number * (len(TOOL_CORPORA) - 1)
    num_filled = hold(names, rows, fitted)
    used = [name for name, filled in num_filled.items() if filled > len(rows) // 8]
    print(f"\n{len(used)} of {len(names)} real templates are filled in; not: {sorted(set(names) - set(used))}")
    assert set(used) >= set(WITH_CALLS)
