"""What rendering the prompts and turns of a conversation costs, beside doing it by the letter of the definition.

By the letter each of them is rendered from the first message. In a dialogue, every other message is a question, and a tool is
called in every fourth turn, with arguments of other keys each time. A trace has one question, and calls up to its answer. As
there are tools, nothing is filled in. One row in 128 is rendered by the letter too; here none is.
"""

import os
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.table import Table
from timing import best

from packer.batches import Message, RowBatch, Sample
from packer.pipeline.plan import load_recipe_model
from packer.pipeline.stages import Stages
from packer.recipe import make_recipe
from packer.render import environment

_REAL = Path(os.environ.get("PACKER_REAL", Path(__file__).parents[3] / "shared" / "real"))
_TEMPLATES = {
    "Llama 3": ("llama-3", None),
    "Qwen3": ("qwen3", None),
    "Qwen3.5": ("qwen3", "llamacpp__Qwen3.5-4B.jinja"),
}
"""Tokenizers, and templates in place of their own."""

_LENGTHS = (4, 8, 24, 100, 400)
_TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}


def rendering_table() -> Table:
    """Seconds of one row, by messages and template; ratios are to those by the letter."""
    environment.WORTH_COMPILING = 0  # as if much had been rendered before
    table = Table("messages", "of", "template", "by the letter", "composed", "ratio", box=None, pad_edge=False)
    for name, (tokenizer, template) in _TEMPLATES.items():
        if not (_REAL / "tokenizers" / tokenizer).exists():
            table.add_row("", "", name, "no PACKER_REAL: skipped", "", "")
            continue
        recipe = make_recipe(
            {
                "sources": [{"path": "none.jsonl"}],
                "tokenizer": str(_REAL / "tokenizers" / tokenizer),
                "template": {"file": str(_REAL / "templates" / template)} if template else {},
                "supervision": {"history_rewrite": "as_rendered"},
            }
        )
        composed = Stages(recipe, load_recipe_model(recipe)).renderer
        letter = composed.by_reference()
        for length, (kind, make) in product(_LENGTHS, _KINDS.items()):
            row = RowBatch(samples=(make(length),), rejections=(), num_rows=1)
            assert composed.render(row).text == letter.render(row).text
            slow, fast = best(partial(letter.render, row)), best(partial(composed._render, row, ()))
            table.add_row(
                f"{length}", kind, name, f"{slow * 1e3:.1f} ms", f"{fast * 1e3:.1f} ms", f"1/{slow / fast:.1f}"
            )
    return table


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
