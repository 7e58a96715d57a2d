"""What a template does under its tokenizer that people act on, found by rendering plain chats as a build does.

What a template refuses or loses, the rows at hand show, or the plain chat that `preview` takes where there are none.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from packer.audit.findings import CodedFinding, Example
from packer.batches import RowBatch, TurnBatch
from packer.model.model import CONFIG_FILE, TOKENIZER_FILE, Model
from packer.pipeline.stages import named_template, overruns_at
from packer.recipe.recipe import Recipe
from packer.render import Renderer
from packer.render.reasoning import opened_by
from packer.source.schema import read_row
from packer.tokenize import ReferenceEncoder

_ANSWER = "first answer"


def _chat() -> RowBatch:
    said = ("first question", _ANSWER, "second question", "second answer")
    row = {"messages": [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]}
    return RowBatch(samples=(read_row(row, number=0, schema="messages", columns={}),), rejections=(), num_rows=1)


CHAT = _chat()


def template_findings(recipe: Recipe, model: Model) -> Iterator[CodedFinding]:
    """Yield what a template does to a plain chat, rendered as a server would prompt it; nothing if it refuses it."""
    if model.template is None:
        return
    rules = msgspec.structs.replace(recipe.supervision, turns="all", parts=None, history_rewrite="exact")
    with overruns_at(lambda _: named_template(recipe)):
        turns = Renderer(model, msgspec.structs.replace(recipe, supervision=rules)).by_reference().render(CHAT)
    trained = [_trained(turns, number) for number in np.argsort(turns.turn_message, kind="stable").tolist()]
    if trained:
        yield from _find_opening(*trained[0])
        yield from _find_tokenizer_difference("".join(trained[-1]), model)


def _trained(turns: TurnBatch, number: int) -> tuple[str, str]:
    """Return the prompt of a turn, and what is trained of it, up to and including its terminator."""
    text = turns.text[int(turns.text_offsets[turns.turn_text[number]]) :]
    start, end = int(turns.prompt_end[number]), int(turns.completion_end[number])
    return text[:start].decode(), text[start:end].decode()


def _find_opening(prompt: str, turn: str) -> Iterator[CodedFinding]:
    """Look for template text at the beginning of an answer that is trained with it."""
    opening = turn.partition(_ANSWER)[0] if _ANSWER in turn else ""
    if not opening.strip():
        return
    message = "every answer begins with text of the template, which the model learns to write"
    hint = "a template that writes it into the prompt, if add_generation_prompt=True, leaves it to the prompt"
    if (opened := opened_by(prompt + opening)) is not None and opened.closed:
        message = (
            "an answer without reasoning is trained after an empty reasoning block that the model has to write: "
            "it learns to skip its reasoning"
        )
        hint = "right if the model should answer at once under this prompt; if not, keep to rows with reasoning"
    mark = (len(prompt), len(prompt + opening))
    shown = Example(label="turn", text=prompt + turn, mark=mark, note="trained before the answer")
    yield CodedFinding(code="opening_learned", level="warning", message=message, examples=(shown,), hint=hint)


_REPLACED = ("LlamaTokenizer", "LlamaTokenizerFast")


def _find_tokenizer_difference(text: str, model: Model) -> Iterator[CodedFinding]:
    """Check whether transformers 5, and the servers built on it, encode a chat differently than tokenizer.json."""
    files = model.files
    config = json.loads(files.get(CONFIG_FILE, b"{}"))
    if config.get("tokenizer_class") not in _REPLACED:  # a vocabulary takes a while to parse
        return
    other = as_llama_tokenizer(json.loads(files[TOKENIZER_FILE]), config)
    if other is None:
        return
    mine, theirs = (
        [int(token) for token in ReferenceEncoder(definition).encode([text])[0]]
        for definition in (files[TOKENIZER_FILE], json.dumps(other).encode())
    )
    if mine == theirs:
        return
    place = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    name = config["tokenizer_class"]
    yield CodedFinding(
        code="tokenizer_read_otherwise",
        level="warning",
        message="transformers 5 does not use this tokenizer.json as it is: for tokenizer_class "
        f"'{name}' it replaces the pre-tokenizer. The ids of a chat then differ from token {place} on: {mine[place]} "
        f"here, {theirs[place]} there; a model served that way gets other ids than it was trained on",
        examples=(Example(label="rendered", text=text),),
        hint="if the model is served by transformers 5, save the tokenizer with it "
        "(AutoTokenizer.from_pretrained(…).save_pretrained(DIR)) and build with DIR; if not, set tokenizer_class to "
        "TokenizersBackend, and transformers uses the file as it is",
    )


def as_llama_tokenizer(definition: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the tokenizer.json as transformers 5's LlamaTokenizer modifies it; None if it uses the file unchanged.

    Source: `LlamaTokenizer.__init__` of transformers 5, which takes vocabulary and merges from the file and replaces
    normalizer and pre-tokenizer; a byte-level file is used unchanged.
    """
    if config.get("tokenizer_class") not in _REPLACED:
        return None
    if "ByteLevel" in json.dumps([definition.get("pre_tokenizer"), definition.get("decoder")]):
        return None
    spaced = "always" if config.get("legacy") else "first"
    scheme = "never" if config.get("add_prefix_space") is False else spaced
    pre_tokenizer = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    return {**definition, "normalizer": None, "pre_tokenizer": pre_tokenizer}
