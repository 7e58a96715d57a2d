"""The first rows of the inputs as a build would process them: rendered, tokenized, masked, or rejected. Writes nothing.

Rows are shown in the form in which :func:`~packer.audit.view.view_row` shows built ones. For a rejected row, excerpts
of the row and of its rendering show why.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from packer.audit.token_texts import TokenTexts
from packer.audit.view import DocumentView, RowView, find_inputs, make_document_view
from packer.batches import DocumentBatch, Rejection, Sample, has_content
from packer.errors import UsageError
from packer.model.model import Model
from packer.pipeline.messages.suggestions import remedy
from packer.pipeline.plan.build_plan import load_recipe_model, refuse_untemplated
from packer.pipeline.plan.input_resolution import pin_recipe, resolve_sources
from packer.pipeline.plan.inputs import note_first_rows, note_labels, open_inputs
from packer.pipeline.plan.open_keys import settled
from packer.pipeline.plan.unread_fields import Questions
from packer.pipeline.stages import Stages, named_template, overruns_at
from packer.progress import Progress, Silent
from packer.recipe.recipe import Recipe
from packer.render import Renderer, RenderError
from packer.render.message_form import renderable
from packer.source.rows import InputFile, RawRow
from packer.store.rejected import Rejected
from packer.store.writing import rows_of

_SHORT, _LONG = 300, 1000
"""Maximum characters of an excerpt, and of an excerpt of a whole rendering."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A piece of text that helps to understand a rejection."""

    what: str
    text: str
    """`[...]` marks omitted text."""

    blamed: bool
    """Whether this text is the cause of the rejection; otherwise it is context."""


def excerpts_of(
    rejection: Rejection, *, sample: Sample | None, content: bytes | None, renderer: Renderer
) -> tuple[Excerpt, ...]:
    """Return excerpts that explain a rejection; empty if nothing would help."""
    if sample is None:
        text = (content or b"").decode("utf-8", "backslashreplace")
        return (_blamed("the row", _head(text)),) if text else ()
    if sample.kind != "chat":
        return ()
    try:
        return _of_chat(rejection.code, sample, rejection.message, renderer)
    except RenderError:
        return ()  # it cannot be rendered even for display


def _of_chat(code: str, sample: Sample, message: int | None, renderer: Renderer) -> tuple[Excerpt, ...]:
    """Return the roles of a chat, or the start or end of its rendering up to the first turn from `message` on."""
    if code in ("template_error", "nothing_trained"):
        roles = ", ".join(each.role for each in sample.messages)
        return (Excerpt(what="its messages are from", text=_head(roles), blamed=False),)
    if not code.startswith(("dropped_", "mangled_")) and code not in (
        "no_terminator",
        "prompt_diverges",
        "part_not_found",
    ):
        return ()
    conversation = renderer.conversation(sample)
    messages = conversation.messages
    first = message or 0
    turns = (k for k in range(first, len(messages)) if messages[k]["role"] == "assistant")
    last = next((k for k in turns if has_content(messages[k])), len(messages) - 1)
    rendered = renderable(conversation, last if message is None else message).render(messages[: last + 1], {})
    is_start = code in ("dropped_system", "dropped_tools")
    text, verb = (_head(rendered, _LONG), "begins") if is_start else (_tail(rendered, _LONG), "ends")
    what = f"the rendering up to messages[{last}]" + (f" {verb}" if text != rendered else "")
    if code == "prompt_diverges":
        prompt = next(prompt for prompt, _ in conversation.prompts(last))
        return (Excerpt(what="the prompt ends", text=_tail(prompt), blamed=False), _blamed(what, text))
    return (_blamed(what, text),)


def _blamed(what: str, text: str) -> Excerpt:
    return Excerpt(what=what, text=text, blamed=True)


def _head(text: str, length: int = _SHORT) -> str:
    return text if len(text) <= length else f"{text[:length]} [...]"


def _tail(text: str, length: int = _SHORT) -> str:
    return text if len(text) <= length else f"[...] {text[-length:]}"


PREVIEWED = 1000
"""Number of rows of each input that are searched for rejected ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedRow:
    """What a build would make of one row."""

    view: RowView
    split: str
    excerpts: tuple[Excerpt, ...]
    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedInput:
    """How an input is read."""

    path: str
    split: str
    format: str
    schema: str


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

    inputs: tuple[PreviewedInput, ...]
    rows: tuple[PreviewedRow, ...]
    totals: PreviewTotals
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
    """Show what a build of the recipe would make of some rows.

    Only the beginning of a large file is read, and a few other places if its schema must be inferred.

    Args:
        recipe: the recipe to preview.
        rows: rows of each input.
        row: one row instead: the input, or an unambiguous suffix of its path, and the row from 0.
        rejected_only: show the first `rows` rejected ones among the first `PREVIEWED` rows of each input.
        progress: receives notes.

    Raises:
        RecipeError: no sources, no tokenizer, or a file that is named twice.
        InputError: a source or the tokenizer cannot be read.
        TemplateError: the template cannot be used.
        TemplateOverrunError: the template exceeds its limits.
        UsageError: no such row.
    """
    note = (progress or Silent()).note
    recipe = pin_recipe(recipe, note)
    files = resolve_sources(recipe)
    if row is not None:
        numbers = find_inputs([file.name for file in files], row[0], missing=f"no source is '{row[0]}'")
        files = [files[number] for number in numbers]
    model = load_recipe_model(recipe)
    seen: list[PreviewedRow] = []
    inputs: list[InputFile] = []
    shown: list[PreviewedRow] = []
    noted = None
    questions = Questions(recipe, model)
    opened = [*open_inputs(files, recipe, note, questions=questions)]
    for _, entry in opened:
        refuse_untemplated(entry, model, recipe)
    with overruns_at(lambda _: named_template(recipe)):
        recipe, settled_keys = settled(recipe, model, [(file.source, entry) for file, entry in opened])
    for each in settled_keys:
        note(each)
    maker = _Maker(recipe, model)
    for file, entry in opened:
        if file.source is not noted:
            note_labels(entry, questions.asked(file.source), questions.unread_keys(file.source), note)
            note_first_rows(entry, model.template, note)
        noted = file.source
        inputs.append(entry)
        left = rows
        for raw in _chosen(entry, rows, row, rejected_only=rejected_only):
            made = maker.row(entry, raw)
            seen.append(made)
            if made.view.rejected or not rejected_only:
                shown.append(made)
                left -= 1
            if rejected_only and not left:
                break
    questions.note_rare(note)
    asked = questions.questions
    hint = questions.hint(asked) if asked else None
    if hint is not None:
        note(f"`packer build` would stop: {'; '.join(map(str, asked))}")
        note(hint)
    return Preview(
        inputs=tuple(
            PreviewedInput(path=entry.name, split=entry.split, format=entry.format, schema=entry.schema)
            for entry in inputs
        ),
        rows=tuple(shown),
        totals=_totals(seen),
        hint=hint,
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


class _Maker:
    """Runs single rows through the stages of a build."""

    def __init__(self, recipe: Recipe, model: Model) -> None:
        self._recipe = recipe
        self._model = model
        self._stages = Stages(recipe, model)
        self._stages.renderer = self._stages.renderer.by_reference()  # of a single row, each is compared with it anyway
        self._texts = TokenTexts(model)

    def row(self, entry: InputFile, raw: RawRow) -> PreviewedRow:
        """Run a row through the stages."""
        with overruns_at(lambda _: f"{entry.name} (row {raw.number}), {named_template(self._recipe)}"):
            return self._row(entry, raw)

    def _row(self, entry: InputFile, raw: RawRow) -> PreviewedRow:
        done = self._stages.run(raw.batch)
        views = tuple(self._documents(entry, raw.number, done.documents))
        source, sample = entry.name, next(iter(raw.batch.samples), None)
        lines = tuple(
            Rejected(source=source, row=raw.number, line=raw.line, code=each.code, reason=each.reason)
            for each in done.rejections
        )
        excerpts = [
            excerpt
            for each in done.rejections
            for excerpt in excerpts_of(each, sample=sample, content=raw.content, renderer=self._stages.renderer)
        ]
        return PreviewedRow(
            view=RowView(source=source, row=raw.number, documents=views, rejected=lines),
            split=entry.split,
            excerpts=tuple(excerpts),
            hint=next(
                (remedy(each.code, each.reason, entry, self._recipe, self._model) for each in done.rejections), None
            ),
        )

    def _documents(self, entry: InputFile, row: int, documents: DocumentBatch) -> Iterator[DocumentView]:
        made = rows_of(documents, weighted=True)
        for number in range(documents.num_documents):
            yield make_document_view(
                self._texts,
                made,
                number,
                split=entry.split,
                source=entry.name,
                row=row,
                schema=entry.schema,
            )


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
