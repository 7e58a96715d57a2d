"""Settles keys of a recipe that were left open, where the first rows of a source leave one way to build them.

Some templates have no way from their own prompt to a plain answer: the prompt opens the reasoning, and the finished
chat has none. Others take only ids of nine letters, or with names. A first build would end with nothing, and its hint
name the one key that trains what a server asks for. So that key is tried before the build: if every row of a source is
refused for want of it, and with it each becomes what the row says, it is set. The recipe of the cache has it, as if it
had been given.

What the row says is tested of the trained text itself (:func:`says_its_rows`), for hints too. So no way out trains half
of an answer, reasoning as letters, a call as text, or two turns where one was said. No row that is kept without such a
key changes by it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise, tee
from typing import Any

from msgspec import structs

from packer.batches import Message, Rejection, RowBatch, Sample, TurnBatch
from packer.errors import InputError
from packer.model.model import Model
from packer.recipe.recipe import Recipe, Source, make_recipe, to_json
from packer.render.control import control_pattern
from packer.render.dropped import AS_TEXT
from packer.render.readback import function_of
from packer.render.reasoning import ANY_TAG, goes_on, opened_by, reasoning_of, split_inline, with_reasoning_as
from packer.render.renderer import Renderer
from packer.source.rows import InputFile
from packer.supervise.preference import split_sides

_TRIED_ROWS = 32
_SEARCHED_ROWS = 256

ABOUT_IDS = re.compile(
    r"\b(?:ids?|call_id)\b.*\b(?:9|nine)\b|\b(?:9|nine)\b.*\bids?\b|no attribute '(?:id|tool_call_id)'",
    re.IGNORECASE | re.DOTALL,
)
"""Messages by which templates complain about the ids of tool calls."""


SKIP = "; answers without reasoning learn to skip the reasoning that their prompts open"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """A key that may be settled, and the rows that are refused for want of it."""

    name: str
    value: str
    what: str
    rows: str
    concerns: Callable[[Sample], bool]
    refuses: Callable[[Rejection], bool]

    def is_open(self, recipe: Recipe) -> bool:
        """Whether the recipe has no value for it, and no rows that lose their reasoning, which would keep it."""
        group, name = self.name.split(".")
        return getattr(getattr(recipe, group), name) is None and "reasoning" not in recipe.supervision.allow_dropped


_KEYS = (
    _Key(
        name="rows.call_ids",
        value="short",
        what="gives calls ids that this template takes (=as_given leaves such rows out)",
        rows="row with calls",
        concerns=lambda sample: any(message.fields.get("tool_calls") for message in sample.messages),
        refuses=lambda rejection: rejection.code == "template_error" and ABOUT_IDS.search(rejection.reason) is not None,
    ),
    _Key(
        name="rows.call_ids",
        value="named",
        what="gives calls ids with their names, as this template writes them (=as_given leaves such rows out)",
        rows="row with results of calls",
        concerns=lambda sample: any(message.role == "tool" for message in sample.messages),
        refuses=lambda rejection: rejection.code in ("mangled_call", "dropped_tool_call"),
    ),
    _Key(
        name="supervision.on_prompt_mismatch",
        value="continue",
        what="trains answers after the prompts that this template makes (=refuse leaves such rows out)",
        rows="row",
        concerns=lambda _: True,
        refuses=lambda rejection: (
            rejection.code == "prompt_diverges"
            or (rejection.code == "dropped_reasoning" and AS_TEXT not in rejection.reason)
        ),
    ),
)


def settled(recipe: Recipe, model: Model, inputs: Iterable[tuple[Source, InputFile]]) -> tuple[Recipe, tuple[str, ...]]:
    """Return the recipe with all its keys, and a sentence about each that was set for the rows of a source."""
    said: list[str] = []
    renderer: Renderer | None = None  # what it learns of the template serves all keys and sources
    for source, files in groupby(inputs, key=lambda each: each[0]) if model.template is not None else ():
        rows: Iterator[RowBatch] = (row.batch for _, file in files for row in file.rows())  # read once for all keys
        for number, key in enumerate(_KEYS):
            if not key.is_open(recipe):
                continue
            rows, first = tee(rows)
            renderer = renderer or Renderer(model, recipe)
            refused = _refused(key, first, renderer)
            if not refused:
                continue
            then = make_recipe(to_json(recipe), [f"{key.name}={key.value}"])
            with_it = Renderer(model, then)
            built = [with_it.render(batch) for batch in refused]
            later = _KEYS[number + 1 :]
            if all(_is_right(batch, turns, model, later) for batch, turns in zip(refused, built, strict=True)):
                recipe, renderer = then, with_it
                what = f"{key.what}{SKIP}" if any(map(_skips_reasoning, built)) else key.what
                said.append(f"{source.path}: {key.name}={key.value} was set, as every {key.rows} needs it: it {what}")
    if recipe.supervision.on_prompt_mismatch is None:  # as recipes of caches have it
        rules = structs.replace(recipe.supervision, on_prompt_mismatch="refuse")
        recipe = structs.replace(recipe, supervision=rules)
    return recipe, tuple(said)


def _skips_reasoning(turns: TurnBatch) -> bool:
    """Whether an answer closes, before it says anything, the block of reasoning that its prompt opens."""
    for number, start, end in zip(turns.turn_text, turns.prompt_end, turns.completion_end, strict=True):
        text = turns.text[turns.text_offsets[number] : turns.text_offsets[number + 1]]
        prompt, completion = text[:start].decode(), text[start:end].decode()
        opened = opened_by(prompt)
        if opened is not None and not opened.closed and goes_on(prompt, completion, is_reasoned=False):
            return True
    return False


def _refused(key: _Key, rows: Iterable[RowBatch], renderer: Renderer) -> list[RowBatch]:
    """Return the first rows that a key concerns, if all are refused for want of it."""
    refused: list[RowBatch] = []
    try:
        for batch in islice(_batches(key, rows), _TRIED_ROWS):
            rejections = renderer.render(batch).rejections
            if not rejections or not all(map(key.refuses, rejections)):
                return []
            refused.append(batch)
    except InputError:
        return []  # reading the whole file will report it
    return refused


def _batches(key: _Key, rows: Iterable[RowBatch]) -> Iterator[RowBatch]:
    """Yield the first rows that a key concerns, each side of a pair as a row."""
    for batch in islice(rows, _SEARCHED_ROWS):
        if any(sample.kind != "chat" for sample in batch.samples):
            return  # a file has rows of one schema
        batch = split_sides(batch) if batch.has_sides else batch  # noqa: PLW2901 - the same rows
        if any(sample.images is not None for sample in batch.samples):
            continue
        if batch.samples and all(map(key.concerns, batch.samples)):
            yield batch


def _is_right(batch: RowBatch, turns: TurnBatch, model: Model, later: Sequence[_Key]) -> bool:
    """Whether what is trained of a row is what it says, or whether a later key decides that."""
    if turns.rejections:
        return all(any(key.refuses(each) for key in later) for each in turns.rejections)
    return says_its_rows(batch, turns, model)


_LONGEST_LABEL = 32
"""Characters that a template may write around an answer, or before its reasoning, such as the name of a channel."""

_MARK = "\0"
"""Stands for a control token."""

_TAGGED = re.compile(r"(<(\w+)>).*?</\2>", re.DOTALL)


def says_its_rows(
    batch: RowBatch, turns: TurnBatch, model: Model, *, dropped: Collection[str] = (), letters: Collection[str] = ()
) -> bool:
    """Whether each turn that is trained of rows of chats is all that its message says.

    Args:
        batch: with the sides of pairs as rows of their own.
        turns: rendered of it.
        model: with the control tokens, which say nothing.
        dropped: kinds of content that may be missing.
        letters: markers of the template that are no tokens, where the recipe allows them; they say nothing, either.
    """
    samples = {sample.row: sample for sample in batch.samples}
    markers = control_pattern({**model.control, **dict.fromkeys((*model.stops, *letters), 0)})

    def bare(text: str) -> str:
        return "".join(ANY_TAG.sub("", markers.sub(_MARK, text) if markers else text).split())

    for number, text in enumerate(turns.turn_text.tolist()):
        sample = samples[int(turns.sample[text])]
        if sample.kind != "chat":
            continue
        start = int(turns.text_offsets[text])
        trained = turns.text[start + int(turns.prompt_end[number]) : start + int(turns.completion_end[number])].decode()
        message = sample.messages[int(turns.turn_message[number])]
        calls = [] if "tool_call" in dropped else message.fields.get("tool_calls") or []
        said = [{kind: bare(text) for kind, text in texts.items()} for texts in _texts_of(message)]
        if not any(_says(bare(trained), texts, calls, dropped) for texts in said):
            return False
        if not calls and _calls_as_text(message.fields.get("content") or "", sample.tools or (), model.template or ""):
            return False
    pairs = (pair for sample in batch.samples for pair in pairwise(sample.messages))  # which a server makes one turn
    return bool(len(turns.turn_text)) and not any(one.role == other.role == "assistant" for one, other in pairs)


def _texts_of(message: Message) -> Iterator[dict[str, str]]:
    """Yield the texts of a message, as it has them and without the marks that its own family has around them."""
    for fields in (message.fields, with_reasoning_as(message.fields, "field")):
        content = fields.get("content") or ""
        inline = split_inline(content)
        yield {"reasoning": reasoning_of(fields), "content": inline[2] if inline else content}


def _says(trained: str, texts: Mapping[str, str], calls: Collection[Any], dropped: Collection[str]) -> bool:
    """Whether a text is some others, one after another, and then calls."""
    rest = trained
    for kind, text in texts.items():
        before, found, after = rest.partition(text) if text else ("", "", rest)
        if found and _is_label(before):
            rest = after
        elif text and (kind not in dropped or (kind == "content" and not calls)):  # of which only reasoning is left
            return False
    if calls:
        return all(str(function_of(call).get("name")) in rest for call in calls)
    return trained.strip(_MARK) != "" and (not rest or (rest.startswith(_MARK) and _is_label(rest)))


def _is_label(text: str) -> bool:
    return len(text.replace(_MARK, "")) <= _LONGEST_LABEL


def _calls_as_text(text: str, tools: Collection[Any], template: str) -> bool:
    """Whether a text calls one of the tools, but for calls in tags that the template writes, too."""
    names = "|".join(re.escape(str(function_of(tool).get("name"))) for tool in tools)
    bare = _TAGGED.sub(lambda found: "" if found[1] in template else found[0], text)
    return bool(names) and re.search(rf"\b(?:{names})[\"'(>]", bare) is not None
