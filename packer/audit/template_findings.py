"""What a template does under its tokenizer that people act on, found by rendering plain chats as a build does.

What a template refuses or loses, the rows at hand show, or the plain chat that `preview` takes where there are none.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from packer.audit.findings import CodedFinding, Example
from packer.batches import RowBatch
from packer.literals import common_length
from packer.model.model import CONFIG_FILE, TOKENIZER_FILE, Model
from packer.pipeline.messages.losses import MOST_TIMES, choices_hint
from packer.pipeline.stages import compile_template
from packer.recipe.named_options import as_option
from packer.recipe.recipe import Recipe, make_recipe, to_json
from packer.render.reasoning import opened_by
from packer.render.renderer import Renderer
from packer.source.schema import read_row
from packer.tokenize.reference_encoder import ReferenceEncoder

_QUESTION, _ANSWER = "first question", "first answer"
_NEXT_QUESTION, _NEXT_ANSWER = "second question", "second answer"
_REASONING, _NEXT_REASONING = "first thoughts", "second thoughts"


def _chat(*answers: Mapping[str, Any]) -> RowBatch:
    asked = ({"role": "user", "content": text} for text in (_QUESTION, _NEXT_QUESTION))
    said = ({"role": "assistant", **answer} for answer in answers)
    row = {"messages": [message for turn in zip(asked, said, strict=True) for message in turn]}
    return RowBatch(samples=(read_row(row, number=0, schema="messages", columns={}),), rejections=(), num_rows=1)


CHAT = _chat({"content": _ANSWER}, {"content": _NEXT_ANSWER})
_REASONED_CHAT = _chat(
    {"content": _ANSWER, "reasoning_content": _REASONING},
    {"content": _NEXT_ANSWER, "reasoning_content": _NEXT_REASONING},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """An answer as it is trained."""

    text: str
    """The text it is trained in, up to and including its terminator."""

    prompt_end: int
    """Characters of `text` that are the prompt."""

    document: int
    """Index of the document it is trained in."""


def template_findings(recipe: Recipe, model: Model, price: float | None) -> Iterator[CodedFinding]:
    """Yield what a template does to plain chats; nothing if it refuses them.

    `price` is what rewritten history costs the rows at hand, as a multiple of the tokens of each row's last document;
    None if there are none. A recipe that says what to do about it is told nothing.
    """
    chat = _turns(CHAT, recipe, model) if model.template is not None else ()
    if chat:
        yield from _find_opening(chat[0])
        if recipe.supervision.history_rewrite is None and (price is None or price > 1):
            yield from _find_rewriting(chat, recipe, model, price)
        yield from _find_tokenizer_difference(chat[-1], model)


def _turns(row: RowBatch, recipe: Recipe, model: Model, *settings: str) -> Sequence[_Turn]:
    """Render a row as a server would prompt each of its turns; return them in order, none if it is rejected.

    `settings` are further ones of the recipe, `KEY=VALUE`.
    """
    rules = msgspec.structs.replace(recipe.supervision, turns="all", parts=None, history_rewrite="exact")
    asked = make_recipe(to_json(msgspec.structs.replace(recipe, supervision=rules)), settings)
    turns = Renderer(model, asked).by_reference().render(row)
    texts = [turns.text[start:stop] for start, stop in pairwise(turns.text_offsets.tolist())]
    found = []
    for t in np.argsort(turns.turn_message, kind="stable").tolist():
        document = int(turns.turn_text[t])
        text = texts[document][: int(turns.completion_end[t])]
        prompt_end = len(text[: int(turns.prompt_end[t])].decode())
        found.append(_Turn(text=text.decode(), prompt_end=prompt_end, document=document))
    return found


def _is_rewritten(turns: Sequence[_Turn]) -> bool:
    return len({turn.document for turn in turns}) > 1


def _find_opening(turn: _Turn) -> Iterator[CodedFinding]:
    """Look for template text at the beginning of an answer that is trained with it."""
    at = turn.text.find(_ANSWER, turn.prompt_end)
    if not turn.text[turn.prompt_end : max(at, 0)].strip():
        return
    message = "every answer begins with text of the template, which the model learns to write"
    hint = "a template that writes it into the prompt, if add_generation_prompt=True, leaves it to the prompt"
    if (opened := opened_by(turn.text[:at])) is not None and opened.closed:
        message = (
            "an answer without reasoning is trained after an empty reasoning block that the model has to write: "
            "it learns to skip its reasoning"
        )
        hint = "right if the model should answer at once under this prompt; if not, keep to rows with reasoning"
    shown = Example(label="turn", text=turn.text, mark=(turn.prompt_end, at), note="trained before the answer")
    yield CodedFinding(code="opening_learned", level="warning", message=message, examples=(shown,), hint=hint)


def _find_rewriting(chat: Sequence[_Turn], recipe: Recipe, model: Model, price: float | None) -> Iterator[CodedFinding]:
    """Compare the first answer of a chat, as it is trained, with its rendering when a second turn follows."""
    row, reasoned = CHAT, _turns(_REASONED_CHAT, recipe, model)
    if not _is_rewritten(chat):
        row, chat = _REASONED_CHAT, reasoned
    is_rewritten = _is_rewritten(chat)
    if not is_rewritten and price is None:
        return
    message = "the template changes earlier answers once a conversation continues"
    if len(reasoned) == 2 and _REASONING in reasoned[0].text and _REASONING not in reasoned[1].text:
        message += ", and leaves out their reasoning"
    if price is not None:
        message += f"; the rows examined take {price:.2f} times the tokens of each row's last document"
    message += "; each answer is trained as it was given, in a document of its own"
    message += f"; above {MOST_TIMES:g} times, a build stops until you choose" * ((price or 0) > MOST_TIMES)
    ways = [choices_hint(model, recipe)]
    if is_rewritten and (switch := _keeping(row, recipe, model)) is not None:
        ways.insert(0, f"{as_option(switch)} keeps them as they are, right where inference is run with it too")
    examples = _rewritten(*chat) if is_rewritten else ()
    hint = "; or ".join(ways)
    yield CodedFinding(code="history_rewritten", level="warning", message=message, examples=examples, hint=hint)


def _keeping(row: RowBatch, recipe: Recipe, model: Model) -> str | None:
    """Return the setting of a template variable that keeps the template from changing earlier turns, or None."""
    assert model.template is not None, "it has rendered"
    template = compile_template(model.template, model, recipe)
    names = [name for name in template.undeclared if name not in template.switches.names]
    tried = (f"template.kwargs.{name}={value}" for name in names for value in ("false", "true"))
    turns = ((switch, _turns(row, recipe, model, switch)) for switch in tried)
    return next((switch for switch, found in turns if found and not _is_rewritten(found)), None)


def _rewritten(own: _Turn, later: _Turn) -> tuple[Example, ...]:
    """Show an answer as it is trained, and as the history of the next one has it."""
    place = common_length(own.text, later.text)
    resumes = own.text.find(later.text[place : place + 8], place + 1)
    mark = (place, resumes if resumes > place else len(own.text))
    text = later.text.partition(_NEXT_QUESTION)
    return (
        Example(label="turn 1, trained", text=own.text, mark=mark),
        Example(label="turn 1, later", text=text[0] + text[1], mark=(place, place), note="differs from here"),
    )


_REPLACED = ("LlamaTokenizer", "LlamaTokenizerFast")


def _find_tokenizer_difference(turn: _Turn, model: Model) -> Iterator[CodedFinding]:
    """Check whether transformers 5, and the servers built on it, encode a chat differently than tokenizer.json."""
    files = model.files
    config = json.loads(files.get(CONFIG_FILE, b"{}"))
    if config.get("tokenizer_class") not in _REPLACED:  # a vocabulary takes a while to parse
        return
    other = as_llama_tokenizer(json.loads(files[TOKENIZER_FILE]), config)
    if other is None:
        return
    mine, theirs = (
        [int(token) for token in ReferenceEncoder(definition).encode([turn.text])[0]]
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
        examples=(Example(label="rendered", text=turn.text),),
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
