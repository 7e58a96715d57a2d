"""What rendering a row costs with all checks, beside doing it by the letter of the definition.

By the letter each prompt and turn is rendered from the first message. Made-up rows: in a dialogue, every other message is a
question, and a tool is called in every fourth turn, with arguments of other keys each time; a trace has one question, and
calls up to its answer. Real rows: corpora of PACKER_REAL, in batches, so that one row in 128 and what is new in a batch is
rendered by the letter, too.
"""

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.table import Table
from timing import best

from packer.batches import Message, RowBatch, Sample
from packer.pipeline.plan.build_plan import load_recipe_model
from packer.pipeline.stages import Stages
from packer.recipe.recipe import make_recipe
from packer.render.renderer import Renderer
from packer.source.chat import read
from packer.source.decode import Refused

_REAL = Path(os.environ.get("PACKER_REAL", Path(__file__).parents[3] / "shared" / "real"))
_TEMPLATES = {
    "Llama 3": ("llama-3", None),
    "Qwen2.5": ("qwen3", "llamacpp__Qwen-Qwen2.5-7B-Instruct.jinja"),
    "Qwen3": ("qwen3", None),
    "Qwen3.5": ("qwen3", "llamacpp__Qwen3.5-4B.jinja"),
}
"""Tokenizers, and templates in place of their own."""

_LENGTHS = (4, 8, 24, 100, 400)
_ROWS = 8
_CORPORA = {
    "sgd_train_chat_1800": 1000,
    "hh_harmless_test_messages": 1000,
    "sgd_train_tools_600": 300,
    "taubench_airline_gpt4o": 120,
}
_TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}


def rendering_tables() -> Iterator[Table]:
    """Times of one row, by messages or corpus and template; ratios are to those by the letter."""
    made = Table("messages", "of", "template", "by the letter", "clear", "ratio", box=None, pad_edge=False)
    real = Table("rows", "of", "template", "by the letter", "with all checks", "ratio", box=None, pad_edge=False)
    for name, (tokenizer, template) in _TEMPLATES.items():
        if not (_REAL / "tokenizers" / tokenizer).exists():
            made.add_row("", "", name, "no PACKER_REAL: skipped", "", "")
            continue
        renderer = _renderer(tokenizer, template)
        letter = renderer.by_reference()
        for length, (kind, make) in product(_LENGTHS, _KINDS.items()):
            rows = RowBatch(samples=tuple(make(length) for _ in range(_ROWS)), rejections=(), num_rows=_ROWS)
            assert renderer.render(rows).text == letter.render(rows).text
            slow = best(partial(letter.render, rows)) / _ROWS
            fast = best(partial(_cut, renderer, rows)) / _ROWS
            made.add_row(
                f"{length}", kind, name, f"{slow * 1e3:.2f} ms", f"{fast * 1e3:.2f} ms", f"1/{slow / fast:.1f}"
            )
        for corpus, number in _CORPORA.items():
            rows = _corpus(corpus, number)
            slow, fast = (best(partial(each.render, rows)) / number for each in (letter, renderer))
            real.add_row(
                f"{number}", corpus, name, f"{slow * 1e6:.0f} µs", f"{fast * 1e6:.0f} µs", f"1/{slow / fast:.1f}"
            )
    yield made
    yield real


def _cut(renderer: Renderer, rows: RowBatch) -> None:
    for row in rows.samples:
        renderer._cut(row)


def _renderer(tokenizer: str, template: str | None) -> Renderer:
    recipe = make_recipe(
        {
            "sources": [{"path": "none.jsonl"}],
            "tokenizer": str(_REAL / "tokenizers" / tokenizer),
            "template": {"file": str(_REAL / "templates" / template)} if template else {},
        }
    )
    return Stages(recipe, load_recipe_model(recipe)).renderer


def _corpus(name: str, number: int) -> RowBatch:
    samples = []
    with (_REAL / "corpora" / f"{name}.jsonl").open(encoding="utf-8") as lines:
        for row, line in enumerate(itertools.islice(lines, number)):
            with suppress(Refused):  # of which a build rejects some
                samples.append(read(json.loads(line), row))
    return RowBatch(samples=tuple(samples), rejections=(), num_rows=number)


def _dialogue(length: int) -> Sample:
    messages: list[dict[str, Any]] = []
    while len(messages) < length:
        number = len(messages)
        messages.append({"role": "user", "content": f"What of number {number}, and of the one after it?"})
        if number % 8 == 0:
            called = {"type": "function", "function": {"name": "look", "arguments": {f"at_{number}": "the number"}}}
            messages.append({"role": "assistant", "content": "", "tool_calls": [called]})
            messages.append({"role": "tool", "name": "look", "content": f"It was found to be {number * number}."})
        messages.append(
            {"role": "assistant", "content": f"Number {number} has a square of {number * number}, I looked."}
        )
    return _sample(messages)


def _trace(length: int) -> Sample:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find the number that is looked for."}]
    while len(messages) + 2 < length:
        number = len(messages)
        called = {"type": "function", "function": {"name": "look", "arguments": {"at": f"place {number}"}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [called]})
        messages.append({"role": "tool", "name": "look", "content": f"It is not {number * number}."})
    messages.append({"role": "assistant", "content": f"It is none of {len(messages)}."})
    return _sample(messages)


def _sample(messages: list[dict[str, Any]]) -> Sample:
    said = tuple(Message(fields=each) for each in messages)
    return Sample(kind="chat", messages=said, tools=[_TOOL], row=0)


_KINDS = {"a dialogue": _dialogue, "a trace": _trace}
