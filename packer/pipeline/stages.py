"""Run all stages for one model and recipe: from rows to verified documents."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from packer.batches import DocumentBatch, Int32, Rejection, RowBatch, TurnBatch
from packer.errors import TemplateError
from packer.host.watchdog import TemplateOverrunError
from packer.literals import longest_of
from packer.media.images import Image
from packer.media.processor import processor_of
from packer.model.model import TOKENIZER_FILE, Model
from packer.pipeline.images import RowImages
from packer.recipe.recipe import Recipe
from packer.render.environment import ChatTemplate, RenderError
from packer.render.renderer import Renderer, compiled
from packer.render.wrappers import role_markers, written_markers
from packer.source.partition import Partition
from packer.supervise.preference import join_sides, row_of_side, split_sides
from packer.supervise.supervisor import PretokenizedSupervisor, Supervisor
from packer.tokenize.fast import Check, FastEncoder
from packer.tokenize.reference_encoder import Encoder, ReferenceEncoder
from packer.tokenize.tokenizing import TurnTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedRows:
    """The result for a batch of rows: every row has documents or a rejection."""

    documents: DocumentBatch
    rejections: tuple[Rejection, ...]
    """In row order."""

    num_merged: int
    num_skipped: int
    images: tuple[Image, ...] = ()
    """The images of the documents, as often as they show them."""


def encoder_of(engine: str, tokenizer_json: bytes, check: Check | None = None) -> Encoder:
    """Return the encoder for a recipe's engine; an ``auto`` that is not resolved yet gets the reference."""
    return FastEncoder(tokenizer_json, check=check) if engine == "fast" else ReferenceEncoder(tokenizer_json)


class Stages:
    """Render, tokenize and supervise for one model and recipe; make one per process and use it for every batch.

    The recipe names its engine. The encoder loads in a background thread, so that rows can be rendered meanwhile; its
    first use waits for it. `check` receives the texts that the reference is to encode, too; by default, it does so at
    once.
    """

    def __init__(self, recipe: Recipe, model: Model, *, check: Check | None = None) -> None:
        self._model = model
        # In a thread, as loading the fast encoder takes up to a second.
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="packer-loading")
        self._loading = self._loader.submit(encoder_of, recipe.engine, model.files[TOKENIZER_FILE], check)
        self._images = RowImages(recipe, model) if recipe.reads_images else None
        self.renderer = Renderer(
            model, recipe, processor=(lambda: processor_of(model.files)) if recipe.reads_images else None
        )
        self._supervisor = Supervisor(model, whole=recipe.supervision.turns == "conversation")
        self._pretokenized = PretokenizedSupervisor(model)

    @cached_property
    def tokenizing(self) -> TurnTokenizer:
        """The tokenization stage, loaded on first use; EngineDiffersError if the fast encoder cannot be used."""
        return TurnTokenizer(self._model, self._encoder)

    @cached_property
    def _encoder(self) -> Encoder:
        encoder = self._loading.result()
        self._loader.shutdown()
        return encoder

    def render(self, rows: RowBatch) -> TurnBatch:
        """Run the first stage alone, on each side of pairs (:func:`~packer.supervise.preference.split_sides`).

        Pretokenized rows have no texts, so nothing is rendered for them.
        """
        if _are_tokens(rows):
            return self.renderer.render(RowBatch(samples=(), rejections=(), num_rows=0))
        sides = split_sides(rows) if rows.has_sides else rows
        unusable: tuple[Rejection, ...] = ()
        try:
            if self._images is not None:
                sides, unusable = self._images.opened(sides)
            turns = self.renderer.render(sides)
        except TemplateOverrunError as error:
            error.row = row_of_side(error.row) if rows.has_sides else error.row
            raise
        return replace(turns, rejections=(*turns.rejections, *unusable))

    def run(self, rows: RowBatch, turns: TurnBatch | None = None) -> SupervisedRows:
        """Run all stages on a batch; `turns` is the result of :meth:`render`, if the caller has it already."""
        turns = self.render(rows) if turns is None else turns
        if _are_tokens(rows):
            documents, rejections = self._pretokenized.supervise(rows.samples)
            return _supervised(documents, (*self._unread(rows), *rejections))
        tokens = self.tokenizing.tokenize(turns)
        if self._images is not None:
            tokens = self._images.repeated(tokens, turns)
            self._images.check(tokens, turns)
        sides = split_sides(rows) if rows.has_sides else rows
        sample_ids = {sample.row: sample.sample_id for sample in sides.samples}
        done = self._supervisor.supervise(turns, tokens, sample_ids)
        self._confirm(turns, done.rejections)
        documents, rejections = done.documents, (*turns.rejections, *done.rejections)
        images: tuple[Image, ...] = ()
        if self._images is not None and turns.images:
            media, images = self._images.column(documents, done.texts, turns)
            documents = replace(documents, media=media)
        merged, skipped = done.merged, done.skipped
        if rows.has_sides:
            documents, rejections = join_sides(rows, turns, documents, rejections)
            merged, skipped = row_of_side(merged), row_of_side(skipped)
        return _supervised(documents, (*self._unread(rows), *rejections), merged, skipped, images)

    def _unread(self, rows: RowBatch) -> Iterator[Rejection]:
        """Yield why rows could not be read; without images, it does not matter what is wrong with theirs."""
        for rejection in rows.rejections:
            of_images = self._images is None and rejection.code in {"media_count", "media_option"}
            yield msgspec.structs.replace(rejection, code="multimodal") if of_images else rejection

    def _confirm(self, turns: TurnBatch, rejections: Sequence[Rejection]) -> None:
        """Before rows are rejected for their ids, check these ids against the reference engine.

        An EngineDiffersError says that the fast engine is at fault, and not the tokenizer.
        """
        if not isinstance(self._encoder, FastEncoder):
            return
        rows = [each.row for each in rejections if each.code == "proof_failed"]
        texts, bounds = np.flatnonzero(np.isin(turns.sample, rows)).tolist(), turns.text_offsets
        self._encoder.confirm([turns.text[bounds[text] : bounds[text + 1]].decode() for text in texts])


def _are_tokens(rows: RowBatch) -> bool:
    return bool(rows.samples) and rows.samples[0].kind == "tokens"


def _supervised(
    documents: DocumentBatch,
    rejections: Iterable[Rejection],
    merged: Int32 | tuple[int, ...] = (),
    skipped: Int32 | tuple[int, ...] = (),
    images: tuple[Image, ...] = (),
) -> SupervisedRows:
    """Return the result of a batch; `merged` and `skipped` are the rows of such turns, rejected ones included."""
    return SupervisedRows(
        documents=documents,
        rejections=tuple(sorted(rejections, key=lambda rejection: rejection.row)),
        num_merged=int(np.count_nonzero(np.isin(merged, documents.sample))),
        num_skipped=int(np.count_nonzero(np.isin(skipped, documents.sample))),
        images=images,
    )


@contextmanager
def overruns_at(recipe: Recipe, place: Partition | str | None = None) -> Iterator[None]:
    """Name the recipe's template, and the place or the row of a partition, where rendering takes too long."""
    try:
        yield
    except TemplateOverrunError as error:
        template = f"template {recipe.template.name or recipe.template.file or f'of {recipe.tokenizer}'}"
        if isinstance(place, Partition):
            place = f"{place.path} (row {place.first_row + error.row})" if error.row >= 0 else None
        raise error.at(f"{place}, {template}" if place else template) from error


def with_role_markers(model: Model, recipe: Recipe) -> Model:
    """Return the model with the role markers that its templates write added to its control tokens.

    A template that takes too long to render is a TemplateOverrunError.
    """
    markers: dict[str, int] = {}
    with overruns_at(recipe):
        for source in (each for each in (model.template, model.tool_template) if each is not None):
            template = compile_template(source, model, recipe)
            markers |= role_markers(template, model.added_tokens, recipe.template.kwargs)
            split = split_markers(template, model, recipe) if recipe.supervision.markers == "refuse" else {}
            for marker, number in split.items():
                raise TemplateError(
                    f"the chat template writes '{marker}', which this tokenizer splits into {number} tokens",
                    hint="use the tokenizer this template was made for, or --template plain, which needs no such "
                    f"tokens. --set supervision.markers=text {LETTERS}",
                )
    return model.with_control(markers)


LETTERS = (
    "trains such markers letter by letter, as some models were trained: generation cannot stop at one, and one that is "
    "typed in a message makes the same tokens"
)
"""What it means that a marker is split into several tokens."""


def split_markers(template: ChatTemplate, model: Model, recipe: Recipe) -> dict[str, int]:
    """Return the markers a template writes that are not a single token, with the number of tokens of each."""
    encoder = ReferenceEncoder(model.files[TOKENIZER_FILE])
    numbers = {marker: len(encoder.encode([marker])[0]) for marker in written_markers(template, recipe.template.kwargs)}
    return {marker: number for marker, number in numbers.items() if marker not in model.control and number != 1}


_ANSWER = "pong"
"""What a probe answers, or gives to a call."""


def turn_end_marker(model: Model, recipe: Recipe, *, of_calls: bool = False) -> str | None:
    """Return the added token that ends every answer, or every turn of calls, but is no stop token; None if none does.

    It is the first one behind the text that the turn contains only once. Kimi K3 closes a text, its channel and the
    message with `<|close|>`, and only then writes `<|end_of_msg|>`.
    """
    if model.template is None:
        return None
    template = compile_template(model.template, model, recipe)
    asked = [{"role": "user", "content": "ping"}]
    for turn in _calling_turns() if of_calls else [{"role": "assistant", "content": _ANSWER}]:
        try:
            prompt = template.render(asked, add_generation_prompt=True, kwargs=recipe.template.kwargs)
            text = template.render([*asked, turn], kwargs=recipe.template.kwargs)
        except RenderError:
            continue
        before, _, behind = text.rpartition(_ANSWER)
        # All that the template writes of the turn, if it continues its prompt; else at least what is behind the answer.
        written = text[len(prompt) :] if text.startswith(prompt) and len(prompt) <= len(before) else behind
        markers = (token.content for token in model.added_tokens if not token.is_text)
        found = re.findall(longest_of(markers), behind) if before and model.added_tokens else []
        closing = next((marker for marker in found if written.count(marker) == 1), None)
        if closing is not None:
            return closing if closing not in model.stops else None
    return None


def _calling_turns() -> Iterator[dict[str, Any]]:
    """Yield turns of calls in the forms that templates accept: two calls before one, objects before JSON text."""
    for arguments in ([_ANSWER, _ANSWER], [_ANSWER]):
        for form in (dict, json.dumps):
            functions = [{"name": "f", "arguments": form({"x": text})} for text in arguments]
            calls = [{"type": "function", "id": f"call0000{i}", "function": each} for i, each in enumerate(functions)]
            yield {"role": "assistant", "content": "", "tool_calls": calls}


def compile_template(source: str, model: Model, recipe: Recipe) -> ChatTemplate:
    """Compile a template as rendering does; a TemplateError says that it cannot be."""
    try:
        return compiled(source, model, recipe)
    except RenderError as error:
        raise TemplateError(
            f"chat template: {error}",
            hint="it has to be one for Hugging Face's apply_chat_template; --template FILE gives another",
        ) from error
