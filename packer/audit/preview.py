"""The first rows of the inputs as a build would process them: rendered, tokenized, masked, or rejected. Writes nothing.

Where there are no inputs, a plain chat shows what the template does, and what rows do not show of it is found by
rendering that chat. Rows are shown in the form in which :func:`~packer.audit.view.view_row` shows built ones.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from packer.audit import CodedFinding, Example
from packer.audit.excerpts import excerpts_of
from packer.audit.token_texts import TokenTexts
from packer.audit.view import RowView, find_inputs, make_document_view
from packer.batches import RowBatch, TurnBatch
from packer.display import Progress, Silent
from packer.errors import UsageError
from packer.model.model import CONFIG_FILE, TOKENIZER_FILE, Model
from packer.pipeline.messages.left_out import RewrittenError, refuse_cost
from packer.pipeline.messages.suggestions import remedy
from packer.pipeline.plan.build_plan import load_recipe_model, refuse_untemplated
from packer.pipeline.plan.input_resolution import pin_recipe, resolve_sources
from packer.pipeline.plan.inputs import open_inputs
from packer.pipeline.plan.open_keys import settled
from packer.pipeline.plan.unread_fields import Questions
from packer.pipeline.stages import Stages, overruns_at
from packer.recipe.recipe import Recipe, Source
from packer.render.reasoning import opened_by
from packer.render.renderer import Renderer
from packer.source.rows import InputFile, RawRow
from packer.source.schema import SCHEMAS, read_row
from packer.store.row_tables import Rejected
from packer.store.writing import rows_of
from packer.tokenize.reference_encoder import ReferenceEncoder

PREVIEWED = 1000
"""Number of rows of each input that are searched for rejected ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedRow:
    """What a build would make of one row."""

    view: RowView
    split: str
    excerpts: tuple[Example, ...]
    """Of a rejected row."""

    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewTotals:
    """Sums over the rows that were read, shown or not; they do not cover the rows after them."""

    rows: int
    kept: int
    rejected: dict[str, int]
    documents: int
    tokens: int
    trained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Some rows of the inputs, and sums over all rows that were read."""

    inputs: tuple[InputFile, ...]
    rows: tuple[PreviewedRow, ...]
    totals: PreviewTotals
    findings: tuple[CodedFinding, ...]
    """What the template does that rows do not show by themselves; of a single row that was asked for, nothing."""

    hint: str | None = None
    """What answers the question that a build would ask first, about text that nothing reads; None if it asks none."""


def preview(
    recipe: Recipe,
    *,
    rows: int = 3,
    row: tuple[str, int] | None = None,
    rejected_only: bool = False,
    progress: Progress | None = None,
) -> Preview:
    """Show what a build of the recipe would make of some rows; of a recipe without sources, of a plain chat.

    Only the beginning of a large file is read, and a few other places if its schema must be inferred.

    Args:
        recipe: the recipe to preview.
        rows: rows of each input.
        row: one row instead: the input, or an unambiguous suffix of its path, and the row from 0.
        rejected_only: show the first `rows` rejected ones among the first `PREVIEWED` rows of each input.
        progress: receives notes.

    Raises:
        RecipeError: no tokenizer, or a file that is named twice.
        InputError: a source or the tokenizer cannot be read.
        TemplateError: the template cannot be used.
        TemplateOverrunError: the template exceeds its limits.
        UsageError: no such row.
    """
    note = (progress or Silent()).note
    recipe = pin_recipe(recipe, note)
    files = resolve_sources(recipe) if recipe.sources else []
    if row is not None:
        numbers = find_inputs([file.name for file in files], row[0], missing=f"no source is '{row[0]}'")
        files = [files[number] for number in numbers]
    model = load_recipe_model(recipe)
    seen: list[PreviewedRow] = []
    shown: list[PreviewedRow] = []
    questions = Questions(recipe, model)
    opened = [(recipe.sources[file.source], file) for file in open_inputs(files, recipe, note, questions)]
    opened = opened or [(Source(path=PLAIN_CHAT.name), PLAIN_CHAT)]
    for _, entry in opened:
        refuse_untemplated(entry, model, recipe)
    with overruns_at(recipe):
        recipe, settled_keys = settled(recipe, model, opened)
    for each in settled_keys:
        note(each)
    stages, texts = Stages(recipe, model), TokenTexts(model)
    stages.renderer = stages.renderer.by_reference()  # of a single row, each is compared with it anyway
    for _, entry in opened:
        left = rows
        for raw in _chosen(entry, rows, row, rejected_only=rejected_only):
            made = _previewed(entry, raw, stages, texts, recipe=recipe, model=model)
            seen.append(made)
            if made.view.rejected or not rejected_only:
                shown.append(made)
                left -= 1
            if rejected_only and not left:
                break
    for each in questions.notes():
        note(each)
    asked = questions.questions
    hint = questions.hint(asked) if asked else None
    if hint is not None:
        note(f"`packer build` would stop: {'; '.join(map(str, asked))}")
        note(hint)
    _note_cost(recipe, model, seen, note)
    is_templated = row is None and any(SCHEMAS[entry.schema].is_templated for _, entry in opened)
    return Preview(
        inputs=tuple(entry for _, entry in opened if files),
        rows=tuple(shown),
        totals=_totals(seen),
        findings=tuple(template_findings(recipe, model)) if is_templated else (),
        hint=hint,
    )


def _note_cost(recipe: Recipe, model: Model, rows: Sequence[PreviewedRow], note: Callable[[str], None]) -> None:
    """Note that a build asks what to do about rewritten history, if it costs too much in rows that are no pairs."""
    made = [row.view.documents for row in rows if row.view.documents and row.view.documents[0].side is None]
    try:
        refuse_cost(recipe, model, [(sum(each.length for each in own), own[-1].length) for own in made])
    except RewrittenError as error:
        note(f"`packer build` would stop, if other rows are like these: {error.message}")
        note(error.hint or "")


class _PlainChat(InputFile):
    """Stands for an input where a recipe has none."""

    __slots__ = ()

    def rows(self, start: int = 0) -> Iterator[RawRow]:
        yield from [RawRow(number=0, line=None, content=None, batch=CHAT)][start:]


PLAIN_CHAT = _PlainChat(
    name="a plain chat",
    path=Path(),
    split="",
    format="jsonl",
    schema="messages",
    columns={},
    limit=None,
    max_row_bytes=0,
)


def _chosen(entry: InputFile, rows: int, row: tuple[str, int] | None, *, rejected_only: bool) -> Iterator[RawRow]:
    if row is None:
        yield from islice(entry.rows(), PREVIEWED if rejected_only else rows)
        return
    found = next(entry.rows(row[1]), None)
    if found is None:
        limited = "" if entry.limit is None else f", of which the recipe takes {entry.limit}"
        raise UsageError(
            f"no row {row[1]} in {entry.name}", hint=f"rows are counted from 0, without blank lines{limited}"
        )
    yield found


def _previewed(
    entry: InputFile, raw: RawRow, stages: Stages, texts: TokenTexts, *, recipe: Recipe, model: Model
) -> PreviewedRow:
    """Run a row through the stages."""
    source, row = entry.name, raw.number
    with overruns_at(recipe, f"{source} (row {row})"):
        done = stages.run(raw.batch)
        made = rows_of(done.documents)
        view = partial(make_document_view, texts, made, split=entry.split, source=source, row=row, schema=entry.schema)
        documents = tuple(map(view, range(done.documents.num_documents)))
        rejected: tuple[Rejected, ...] = ()
        excerpts: tuple[Example, ...] = ()
        hint = None
        for each in done.rejections:  # at most one, of a single row
            rejected = (Rejected(source=source, row=row, line=raw.line, code=each.code, reason=each.reason),)
            sample = next(iter(raw.batch.samples), None)
            excerpts = excerpts_of(each, sample=sample, content=raw.content, renderer=stages.renderer)
            hint = remedy(each.code, each.reason, entry, recipe, model)
    found = RowView(source=source, row=row, documents=documents, rejected=rejected)
    return PreviewedRow(view=found, split=entry.split, excerpts=excerpts, hint=hint)


def _totals(rows: Sequence[PreviewedRow]) -> PreviewTotals:
    documents = [document for row in rows for document in row.view.documents]
    return PreviewTotals(
        rows=len(rows),
        kept=sum(bool(row.view.documents) for row in rows),
        rejected=dict(sorted(Counter(line.code for row in rows for line in row.view.rejected).items())),
        documents=len(documents),
        tokens=sum(document.length for document in documents),
        trained=sum(document.num_trained for document in documents),
    )


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
    with overruns_at(recipe):
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
