"""Turns a RowBatch into a TurnBatch: renders each sample, checks it for losses, and assigns its turns to texts."""

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from packer.batches import Rejection, RowBatch, Sample, TurnBatch, has_content
from packer.host.watchdog import RENDERING
from packer.literals import longest_of
from packer.media.carried import has_marks, in_parts
from packer.media.processor import Processor
from packer.model.model import Model
from packer.recipe.groups import PARTS
from packer.recipe.recipe import Recipe
from packer.render.call_ids import CallIds
from packer.render.clear.extension import NotClearError
from packer.render.clear.filling import Filling
from packer.render.clear.rows import ClearRows, ComparedRows, DifferenceError
from packer.render.control import TypedControl, revealed
from packer.render.conversation import (
    Conversation,
    refusal_of_flags,
    refuse_empty_question,
    refuse_unread_variables,
    renderable,
    too_many,
    trained_turns,
)
from packer.render.drawn import Drawing
from packer.render.dropped import ConversationLosses, refusal, says_nothing
from packer.render.environment import ChatTemplate, RenderError
from packer.render.frames import unframed
from packer.render.placeholders import text_of
from packer.render.plain_rows import PlainRows
from packer.render.readback import strings
from packer.render.reasoning import cut_off, has_two_reasonings, with_reasoning_as
from packer.render.rewritten_history import (
    Document,
    EncodedText,
    Mask,
    RenderedRow,
    TurnAssigner,
    encoded,
    turn_batch,
)
from packer.render.trained_parts import TrainedParts, having_parts, marked
from packer.render.turns import TurnRules, turn_of
from packer.render.wrappers import Wrappers


def compiled(source: str, model: Model, recipe: Recipe) -> ChatTemplate:
    """Compile a template with the model's variables and the recipe's date."""
    given, max_bytes = recipe.template, recipe.rows.max_render_bytes
    return ChatTemplate(source, date=given.date, variables=model.named_tokens, max_bytes=max_bytes, kwargs=given.kwargs)


class Renderer:
    """Renders samples with one model's templates under one recipe's rules.

    `processor`: loads the model's processor for samples with images, which must have been opened; without it, they
    are rejected.
    """

    def __init__(self, model: Model, recipe: Recipe, *, processor: Callable[[], Processor] | None = None) -> None:
        self._recipe = recipe
        self._model = model
        self._processor = None if processor is None else functools.cache(processor)
        rules, kwargs = recipe.supervision, recipe.template.kwargs
        self._rules = rules
        self._template, self._tool_template = (
            None if source is None else compiled(source, model, recipe)
            for source in (model.template, model.tool_template)
        )
        self._call_ids = CallIds(recipe.rows.call_ids, kwargs)
        self._wrappers_of = functools.cache(functools.partial(Wrappers.of, kwargs=kwargs))
        self._control = TypedControl(model.control, rules.control_tokens)
        self._eos = model.content(model.eos_id) if model.eos_id is not None else next(iter(model.stops), None)
        self._turn_rules = TurnRules(
            stops=re.compile(longest_of(model.stops)) if model.stops else None,
            append=self._eos if rules.no_terminator == "append" else None,
            may_drop=frozenset(rules.allow_dropped),
            on_prompt_mismatch=rules.on_prompt_mismatch or "refuse",
            history_rewrite=rules.history_rewrite or "exact",
            max_bytes=recipe.rows.max_render_bytes,
            marks=f"{model.template}{model.tool_template}",
            tags_are_text=rules.reasoning == "inline",
        )
        self._clear_rows_of = functools.cache(self._clear_rows)
        """Called with the first row: templates are tried, which may take too long."""

        self._is_reference = False
        self._write: Callable[..., str] | None = None
        """Renders in place of the template; None if that does."""

    @functools.cached_property
    def _plain(self) -> PlainRows:
        return PlainRows(self._control, self._eos, self._recipe)

    def _clear_rows(self, template: ChatTemplate) -> ClearRows:
        return ClearRows(
            template,
            rules=self._turn_rules,
            control=[
                *(*self._model.control, *self._model.stops),
                *(*self._wrappers_of(template).openings, *template.reasoning.own_tags),
            ],
        )

    @functools.cached_property
    def _filling(self) -> Filling | None:
        rows = None if self._template is None else self._clear_rows_of(self._template)
        if rows is None or rows.marked.constants is None or self._turn_rules.stops is None:
            return None
        return Filling(rows, self._worded, self._defined)

    def by_reference(self) -> "Renderer":
        """Return a copy that renders everything by reference: every prompt and turn from the first message."""
        other = copy.copy(self)
        other._is_reference = True  # noqa: SLF001 - a copy of self
        return other

    def render(self, rows: RowBatch) -> TurnBatch:
        """Render every sample; a sample that cannot be rendered correctly becomes a rejection.

        Raises:
            TemplateOverrunError: a rendering takes too long or too much memory; the error knows the row.
        """
        if "chat" not in {sample.kind for sample in rows.samples}:
            return self._plain.batch(rows.samples)
        if not self._is_reference:
            fast = ComparedRows(self._fill, self._cut, self._rendered)
            with contextlib.suppress(DifferenceError):
                return self._render(rows, fast.rendered)
        return self._render(rows, lambda _, sample: self._rendered(sample))

    def _render(self, rows: RowBatch, render: Callable[[int, Sample], RenderedRow | Rejection]) -> TurnBatch:
        texts: list[EncodedText] = []
        owners: list[int] = []
        skipped: list[int] = []
        rejections: list[Rejection] = []
        for number, sample in enumerate(rows.samples):
            RENDERING.row = sample.row
            plain = refusal_of_flags(sample, self._rules.turns) or unframed(sample, self._recipe)
            rendered = plain if isinstance(plain, Rejection) else render(number, plain)
            if isinstance(rendered, Rejection):
                rejections.append(rendered)
                continue
            texts += rendered.texts
            owners += [sample.row] * len(rendered.texts)
            skipped += [sample.row] * rendered.num_skipped
        RENDERING.row = -1
        return turn_batch(texts, owners, skipped, rejections)

    def _fill(self, sample: Sample) -> RenderedRow | None:
        if sample.tools or sample.template_kwargs or self._rules.parts is not None or self._filling is None:
            return None
        if sample.images is None:
            return self._filling.filled(sample)
        if self._processor is None or not self._processor().is_alone:
            return None  # what is written for an image may be another in each prompt
        row, drawing = self._filling.filled(sample), self._drawing(sample, self._template)
        return None if row is None or drawing is None else drawing.filled(row)

    def _cut(self, sample: Sample) -> RenderedRow | None:
        """Render a sample by the fast way; None if it is not clear, or if the template does not write all of it.

        Why a row is rejected is for the definition to say: another fault may stand before the loss that is found here.
        """
        template = self._template_of(sample)
        if (
            template is None
            or sample.images is not None
            or (sample.tools and self._twice(sample, template) is not None)
            or strings(list(sample.template_kwargs.values()))
        ):
            return None
        trained = self._trained(sample)
        if not trained or not all(has_content(sample.messages[k].fields) for k in trained):
            return None
        if too_many(sample, trained):
            return None
        try:
            mask, conversation = self._masking(sample, trained[-1]), self.conversation(sample)
        except RenderError:
            return None
        if self._call_ids.refusal(conversation.messages[: trained[-1]], template) is not None:
            return None
        return self._clear_rows_of(template).rendered(conversation, trained, mask=mask)

    def _worded(self, sample: Sample) -> tuple[RenderedRow | None, set[str]]:
        """Render a sample of words for filling, and return what the template looked for in them."""
        assert self._template is not None
        marked, sought, refused = self._clear_rows_of(self._template).marked, set[str](), list[NotClearError]()

        def write(
            messages: Sequence[Mapping[str, Any]], *, tools: Any, kwargs: Mapping[str, Any], add_generation_prompt: bool
        ) -> str:
            try:
                pieces = marked.pieces(messages, tools, kwargs, prompt=add_generation_prompt)
            except NotClearError as error:  # which the definition takes for the template's own
                refused.append(error)
                raise
            sought.update(pieces.notes.sought)
            return pieces.text

        other = copy.copy(self)
        other._write = write  # noqa: SLF001 - a copy of self
        rendered = other._defined(sample)  # noqa: SLF001 - as above
        return None if refused else rendered, sought

    def _defined(self, sample: Sample) -> RenderedRow | None:
        rendered = self._rendered(sample, draw=False)
        return None if isinstance(rendered, Rejection) else rendered

    def _trained(self, sample: Sample) -> list[int]:
        trained, parts = trained_turns(sample, self._rules.turns), self._rules.parts
        return trained if parts is None else having_parts(trained, sample, parts)

    def _masking(self, sample: Sample, last: int, drawing: Drawing | None = None) -> Mask | None:
        """Return what masks the parts of turns that are not trained; None if all are."""
        if self._rules.parts is None and all(message.spans is None for message in sample.messages):
            return None
        template = self._template_of(sample)
        shown = sample if template is None else marked(sample, template.source)
        _, conversation = self._control.hide(self.conversation(shown), sample.template_kwargs)
        conversation = replace(renderable(conversation, last), write=drawing.render if drawing else None)
        parts, rules = self._rules.parts or PARTS, self._turn_rules
        return TrainedParts(sample=sample, marked=conversation, rules=rules, last=last, trained=parts).mask

    def conversation(self, sample: Sample) -> Conversation:
        """Return the sample's messages with the template that suits the sample."""
        template = self._template_of(sample)
        if template is None:
            raise RenderError("the tokenizer has no chat template; pass one with --template FILE")
        messages = self._messages(sample, template)
        return Conversation(
            template,
            messages if sample.images is None else in_parts(messages)[0],
            tools=sample.tools,
            kwargs={**self._recipe.template.kwargs, **sample.template_kwargs},
        )

    def _messages(self, sample: Sample, template: ChatTemplate) -> list[dict[str, Any]]:
        """Return the messages in the form that suits the template; images are marks in texts."""
        is_marked = self._rules.reasoning == "inline" and template.reasoning.marks_otherwise
        form = "as_given" if is_marked else self._rules.reasoning
        unwraps = self._recipe.rows.wrapped == "unwrap"
        plain = self._wrappers_of(template).unwrapped(sample.messages) if unwraps else {}
        messages = [
            with_reasoning_as({**each.fields, "content": plain[k]} if k in plain else each.fields, form)
            for k, each in enumerate(sample.messages)
        ]
        return self._call_ids.given(messages, template)

    def _twice(self, sample: Sample, template: ChatTemplate) -> RenderError | None:
        """Return the rejection of a sample with texts that the template would wrap once more."""
        return self._wrappers_of(template).refusal(sample, unwrap=self._recipe.rows.wrapped == "unwrap")

    def _template_of(self, sample: Sample) -> ChatTemplate | None:
        return (self._tool_template if sample.tools else None) or self._template

    def _rendered(self, sample: Sample, *, draw: bool = True) -> RenderedRow | Rejection:
        """Render a sample by the definition; `draw`: with what is written for its images in place of their marks."""
        try:
            if sample.kind == "chat":
                return self._render_chat(sample, draw=draw)
            return RenderedRow((self._plain.rendered(sample),), 0)
        except RenderError as error:
            return Rejection(row=sample.row, code=error.code, reason=str(error), message=error.message)

    def _refuse(self, sample: Sample) -> None:
        """Refuse a sample for what it says, before anything of it is rendered."""
        if sample.images is not None and (self._processor is None or self._rules.turns == "conversation"):
            raise RenderError(sample.images.refusal, code="multimodal")
        template = self._template_of(sample)
        if template is not None:
            refuse_unread_variables(sample, template)
        if self._recipe.rows.empty_user == "reject":
            refuse_empty_question(sample)
        if template is not None and (twice := self._twice(sample, template)) is not None:
            raise twice

    def _render_chat(self, sample: Sample, *, draw: bool) -> RenderedRow:
        self._refuse(sample)
        wanted = self._trained(sample)
        trained = [k for k in wanted if has_content(sample.messages[k].fields)]
        if not trained:
            raise RenderError("no assistant turn to train on", code="nothing_trained")
        last = trained[-1]
        if (reason := too_many(sample, trained)) is not None:
            raise RenderError(reason, code="too_many_turns")
        _refuse_reasoning(sample, trained)
        if self._rules.turns == "conversation":
            self._control.refuse_all(sample.messages[: last + 1], sample.tools)
        original = self.conversation(sample)
        if (foreign := self._call_ids.refusal(original.messages[:last], original.template)) is not None:
            raise foreign
        stand_ins, conversation = self._control.hide(original, sample.template_kwargs)
        if at := [k for k in trained if sample.images and has_marks(sample.messages[k].fields.get("content"))]:
            raise RenderError(f"messages[{at[0]}]: an image in a trained turn", code="media_in_turn", message=at[0])
        conversation = renderable(conversation, last)
        drawing = self._drawing(sample, conversation.template)
        shown = replace(conversation, write=drawing.render if drawing else self._write)
        mask = self._masking(sample, last, drawing)
        documents, num_trained = self._assigned(shown, trained, mask)
        if not documents:
            raise RenderError("no assistant turn that the template can prompt for", code="nothing_trained")
        num_skipped = len(wanted) - num_trained
        if stand_ins is None:
            texts = [encoded(each.text, each.turns, masked=each.masked) for each in documents]
        else:
            form = renderable(original, last)
            texts = [revealed(each, stand_ins, conversation, form) for each in documents]
        rendered = RenderedRow(tuple(texts), num_skipped)
        return drawing.drawn(rendered) if drawing and draw else rendered

    def _drawing(self, sample: Sample, template: ChatTemplate | None) -> Drawing | None:
        if sample.images is None or self._processor is None or template is None:
            return None
        _, order = in_parts(self._messages(sample, template))
        images = [sample.images.sources[number] for number in order]
        return Drawing(self._write or template.render, self._processor(), images)

    def _assigned(
        self,
        conversation: Conversation,
        trained: Sequence[int],
        mask: Mask | None,
    ) -> tuple[tuple[Document, ...], int]:
        """Render turn after turn, and assign each to a text; also return the number of trained turns.

        Every message must show in the rendering of the first trained turn after it.
        """
        num_trained, losses = 0, ConversationLosses(self._turn_rules, conversation)
        assigner = TurnAssigner(self._turn_rules)
        for message in trained:
            turn = turn_of(conversation, message, self._turn_rules)
            if turn is None:
                continue
            lost = losses.find(turn)
            if lost is not None:
                raise refusal(lost)
            said, k = text_of(conversation.messages[turn.message]), turn.message
            self._control.refuse_foreign(said, f"messages[{k}]", trained=turn.text[turn.prompt_end :], message=k)
            if not says_nothing(conversation, turn, self._turn_rules):
                assigner.add(mask(turn) if mask else turn)
                num_trained += 1
        return assigner.documents(), num_trained


def _refuse_reasoning(sample: Sample, trained: Iterable[int]) -> None:
    """Refuse trained answers whose generation was cut off within their reasoning, or that have two."""
    for k in trained:
        if (how := cut_off(sample.messages[k].fields)) is not None:
            raise RenderError(f"messages[{k}]: {how}", code="open_reasoning", message=k)
        if has_two_reasonings(sample.messages[k].fields):
            reason = f"messages[{k}]: its text opens with other reasoning than its field has"
            raise RenderError(reason, code="wrong_type", message=k)
