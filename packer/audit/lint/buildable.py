"""Checks of which conversations can be built.

If a plain chat cannot be built, that is an error, reported with a key that was found to help. Problems with other
shapes are warnings: the template drops part of them, or they cannot be built.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packer.audit.findings import CodedFinding, Example
from packer.audit.lint.codes import CODES, finding
from packer.audit.lint.probed_template import (
    ANSWER,
    CHAT,
    FIELD,
    INLINE,
    PLAIN,
    REASONED,
    REASONING,
    SHAPES,
    TAGS,
    TOOLS,
    USUAL,
    Outcome,
    Override,
    ProbedTemplate,
    Row,
    listed,
)
from packer.batches import Rejection
from packer.errors import TemplateError
from packer.model import Model
from packer.pipeline.messages.suggestions import templates_hint
from packer.pipeline.plan.build_plan import load_bare_model, load_recipe_model
from packer.pipeline.stages import LETTERS, compile_template, split_markers
from packer.recipe import Recipe
from packer.rejections import rejection_hint
from packer.render import ChatTemplate, RenderError
from packer.render.common_prefix import common_length
from packer.render.conversation import Conversation
from packer.render.dropped import AS_TEXT

_UNDEFINED = re.compile(r"'(\w+)' is undefined")
_VALUES: tuple[Any, ...] = ([], "", {}, False)
"""Values to try for an undefined variable of a template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSetup:
    """Errors that end a report early, or the template to run the other checks on."""

    findings: tuple[CodedFinding, ...] = ()
    probed: ProbedTemplate | None = None
    """None if a plain chat cannot be built."""

    model: Model | None = None
    """The model with which rows can be run through the stages; None if a build would refuse the template."""


def prepare_probes(recipe: Recipe) -> ProbeSetup:
    """Look for problems that prevent a plain chat from being built."""
    model = load_bare_model(recipe)
    if model.template is None:
        return ProbeSetup(findings=(_no_template(model, recipe),), model=model)
    sources = {"the template": model.template, "the template of rows with tools": model.tool_template}
    try:
        templates = {
            name: compile_template(source, model, recipe) for name, source in sources.items() if source is not None
        }
    except TemplateError as error:
        return ProbeSetup(findings=(finding("bad_template", error.message, hint=error.hint),))
    split = [] if recipe.supervision.markers == "text" else [*_split_markers([*templates.values()], model, recipe)]
    if split:  # with the wrong tokenizer, further findings would be meaningless
        return ProbeSetup(findings=tuple(split))
    by_marks = recipe.supervision.source == "generation_tags"
    without = [name for name, template in templates.items() if not template.has_marks]
    if by_marks and without:
        return ProbeSetup(findings=(_no_marks(without),))
    model = load_recipe_model(recipe)
    probed = ProbedTemplate(recipe, model)
    failed = _failed(probed)
    if failed is None:
        return ProbeSetup(probed=probed, model=model)
    failure = _failure_finding(probed, *failed)
    if by_marks and probed.kept_by_marks(PLAIN):
        failure = replace(failure, level="note")
    return ProbeSetup(findings=(failure,), model=model)


def _no_template(model: Model, recipe: Recipe) -> CodedFinding:
    return finding(
        "no_template",
        "this tokenizer has no chat template, so rows of messages cannot be built",
        hint=f"{templates_hint(model, recipe)}; rows of text, of prompt and completion, or of tokens need none",
    )


def _no_marks(without: Sequence[str]) -> CodedFinding:
    return finding(
        "no_marks",
        f"supervision.source is generation_tags, but {' and '.join(without)} has no {{% generation %}} block",
        hint=f"{Override('supervision.source', 'chat_server')} needs no marks: what is trained is what inference asks "
        "for",
    )


def _split_markers(templates: Sequence[ChatTemplate], model: Model, recipe: Recipe) -> Iterator[CodedFinding]:
    split: dict[str, int] = {}
    for template in templates:
        split |= split_markers(template, model, recipe)
    if split:
        what = "a marker that is not" if len(split) == 1 else f"{len(split)} markers that are not"
        yield finding(
            "split_marker",
            f"this template belongs to another tokenizer: it writes {what} one token of this one",
            examples=tuple(Example(label=f"{number} tokens", text=marker) for marker, number in split.items()),
            hint=f"use the tokenizer this template was made for, or --template plain, which needs no such tokens; "
            f"{Override('supervision.markers', 'text')} {LETTERS}",
        )


def _failed(probed: ProbedTemplate) -> tuple[Row, Rejection] | None:
    """Return the first of a plain turn and a plain chat that cannot be built, with its rejection."""
    pairs = ((row, probed.outcome(row).rejection) for row in (PLAIN, CHAT))
    return next(((row, rejection) for row, rejection in pairs if rejection is not None), None)


def _key_that_helps(probed: ProbedTemplate, rejection: Rejection) -> Override | None:
    """Return the first key with which a plain chat can be built, or fails for a different reason."""
    for override in _suggestions(probed, rejection):
        recipe = override.apply(probed.recipe_given)
        failed = _failed(ProbedTemplate(recipe, load_recipe_model(recipe)))
        if failed is None or failed[1].code != rejection.code:
            return override
    return None


def _suggestions(probed: ProbedTemplate, rejection: Rejection) -> Iterator[Override]:
    """Yield keys that may resolve a rejection."""
    if rejection.code == "prompt_diverges":
        yield Override("supervision.on_prompt_mismatch", "continue")
        yield Override("supervision.on_prompt_mismatch", "common_prefix")
    if rejection.code == "no_terminator":
        if probed.turn_end is not None:
            yield Override.stopping(probed.recipe_given, probed.turn_end)
        yield Override("supervision.no_terminator", "append")
    undefined = _UNDEFINED.search(rejection.reason)
    if rejection.code == "template_error" and undefined is not None:
        for value in _VALUES:
            yield Override.variable(undefined[1], value)


def _failure_finding(probed: ProbedTemplate, row: Row, rejection: Rejection) -> CodedFinding:
    override = _key_that_helps(probed, rejection)
    if rejection.code == "prompt_diverges":
        assert rejection.message is not None
        return _diverging(probed, row, override, rejection.message)
    if rejection.code == "no_terminator":
        return _unterminated(probed, row, override)
    chat = "a plain chat of two turns" if row is CHAT else "a plain chat"
    undefined = _UNDEFINED.search(rejection.reason)
    if override is not None:
        hint = f"{override} gives the template the variable that it misses, empty"
    elif undefined is not None:
        hint = f"give the template a {undefined[1]} in template.kwargs, or in a row's chat_template_kwargs"
    elif row is PLAIN and probed.outcome(TOOLS).rejection is None:  # the same messages, with tools
        hint = "the template takes rows that have tool definitions"
    else:
        hint = "the message is the template's own; use another template, or correct this one"
    is_raised = rejection.code == "template_error"
    message = f"the template raises on {chat}" if is_raised else f"{chat} is rejected as {rejection.code}"
    return finding("plain_chat_refused", f"{message}: {rejection.reason}", hint=hint)


def _diverging(probed: ProbedTemplate, row: Row, override: Override | None, k: int) -> CodedFinding:
    field, tags = (probed.outcome(row).rejection is None for row in (REASONED, INLINE))
    where = "" if field and tags else " in a field" if field else " in <think> tags"
    hint = "use another template, or correct this one"
    if override is not None and override.value == "common_prefix":
        hint = f"{override} takes what both have in common as the prompt; the rest of the turn is trained"
    elif override is not None:
        hint = f"{override} trains what follows the prompt; reasoning that it opens is closed at once"
    return finding(
        "prompt_diverges",
        "the template begins a plain answer differently from its own prompt for one"
        + (f"; answers with reasoning{where} can be trained on" if field or tags else ""),
        examples=_divergence(probed.conversation(probed.outcome(row)), k),
        hint=hint,
    )


def _divergence(conversation: Conversation, k: int) -> tuple[Example, ...]:
    """Show answer k, which starts with no prompt that is its own, beside its default prompt."""
    pairs = [
        (prompt, conversation.render(conversation.messages[: k + 1], mode), mode)
        for prompt, mode in conversation.prompts(k)
    ]
    prompt, whole, _ = next((pair for pair in pairs if not pair[2]), pairs[-1])
    place = common_length(prompt, whole)
    return (
        Example(label="prompt", text=prompt, mark=(place, len(prompt)), note="only in the prompt"),
        Example(label="turn", text=whole, mark=(place, place), note="differs from here"),
    )


def _unterminated(probed: ProbedTemplate, row: Row, override: Override | None) -> CodedFinding:
    conversation = probed.conversation(probed.outcome(row))
    text = conversation.render(conversation.messages, {})
    stops = probed.model.stops
    known = f"stop tokens: {', '.join(stops)}" if stops else "the tokenizer names no stop token"
    hint = "name the token that ends a turn in supervision.stop"
    if override is not None and override.key == "supervision.stop":
        hint = (
            f"{override} makes the token that ends a turn a stop token; generation has to stop at it too "
            "(generation_config.json)"
        )
    elif override is not None:
        hint = f"{override} closes every answer with the EOS; or {hint}"
    return finding(
        "no_terminator",
        f"the template writes no stop token of this tokenizer after an answer ({known})",
        examples=(Example(label="rendered", text=text, mark=(len(text), len(text)), note="no stop token"),),
        hint=hint,
    )


def find_dropped_reasoning(probed: ProbedTemplate, shapes: Mapping[str, Outcome]) -> Iterator[CodedFinding]:
    """Report shapes whose reasoning is not rendered, with what was found to help."""
    labels = [label for label, outcome in shapes.items() if _loses_reasoning(outcome)]
    if labels:
        where = " as reasoning, but as part of the answer" if _is_written_as_text(shapes[labels[0]]) else ""
        yield finding(
            "dropped_reasoning",
            f"{CODES['dropped_reasoning'].meaning}{where} ({listed(labels)}); such rows are rejected",
            examples=tuple(_example(probed, shapes[labels[0]])),
            hint=_hint(probed, labels),
        )


def _loses_reasoning(outcome: Outcome) -> bool:
    return outcome.rejection is not None and outcome.rejection.code == "dropped_reasoning"


def _example(probed: ProbedTemplate, outcome: Outcome) -> Iterator[Example]:
    conversation = probed.conversation(outcome)
    try:
        text = conversation.render(conversation.messages, {})
    except RenderError:
        return
    place, note = text.find(ANSWER), "nothing of it"
    end = place = place if place >= 0 else len(text)
    if _is_written_as_text(outcome) and REASONING in text:
        place, note = text.find(REASONING), "as part of the answer"
        end = place + len(REASONING)
    yield Example(label="rendered", text=text, mark=(place, end), note=note)


def _is_written_as_text(outcome: Outcome) -> bool:
    """Whether a row is rejected because its reasoning is written as part of the answer."""
    return outcome.rejection is not None and AS_TEXT in outcome.rejection.reason


def _hint(probed: ProbedTemplate, labels: Sequence[str]) -> str:
    """Suggest the other form of reasoning, if that one is rendered, and to allow the loss."""
    ways = []
    for form, label, what in (("inline", FIELD, "<think> tags"), ("field", TAGS, "a field")):
        override, row = Override("supervision.reasoning", form), SHAPES[label]
        if _loses_reasoning(probed.outcome(row)) and probed.render(row, override).rejection is None:
            ways.append(f"{override} gives it to the template in {what}")
    continues = Override("supervision.on_prompt_mismatch", "continue")
    if all(probed.render(SHAPES[label], continues).rejection is None for label in labels):
        ways.append(f"{continues} writes it after a prompt that opens the reasoning")
    if _is_written_as_text(probed.outcome(SHAPES[labels[0]])):  # which nothing can allow
        return "; or ".join(ways) or "take the reasoning out of such rows, or use another template"
    override = Override.allowing(probed.recipe_given, ["reasoning"])
    return "; or ".join([*ways, f"{override} trains such rows without the reasoning"])


def find_rejected_shapes(probed: ProbedTemplate, shapes: Mapping[str, Outcome]) -> Iterator[CodedFinding]:
    """Report shapes that cannot be built, or not without losing something."""
    rejected: dict[tuple[str, str], list[str]] = {}
    for label, outcome in shapes.items():
        rejection = outcome.rejection
        if rejection is not None and not _loses_reasoning(outcome):
            reason = re.sub(r"^messages\[[0-9]+\]: ", "", rejection.reason)
            rejected.setdefault((rejection.code, reason), []).append(label)
    labels = [label for group in rejected.values() for label in group]
    if labels:
        codes = list(dict.fromkeys(code for code, _ in rejected))
        count = "a shape" if len(labels) == 1 else f"{len(labels)} shapes"
        yield finding(
            "shapes_rejected",
            f"{count} of conversation cannot be built: such rows are rejected as {listed(codes)}",
            examples=tuple(
                Example(label=listed(group), text=f"{code}: {reason}") for (code, reason), group in rejected.items()
            ),
            hint=_shapes_hint(probed, rejected),
            level="warning" if USUAL.intersection(labels) else "note",
        )


def _shapes_hint(probed: ProbedTemplate, rejected: Mapping[tuple[str, str], Sequence[str]]) -> str | None:
    continues = Override("supervision.on_prompt_mismatch", "continue")
    for (code, _), labels in rejected.items():
        if code.startswith(("mangled_", "dropped_")):
            return rejection_hint(code, allowed=probed.recipe_given.supervision.allow_dropped)
        if code == "prompt_diverges":
            helped = [label for label in labels if probed.render(SHAPES[label], continues).rejection is None]
            if helped:
                return f"{continues} trains the answer after its own prompt in rows with {listed(helped)}"
    return None
