"""Whether anything can be built: the errors of a report, and for each the key that was found to help."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packer.audit.lint.lint_report import Example, LintFinding
from packer.audit.lint.override import Override
from packer.audit.lint.probes import CHAT, INLINE, PLAIN, REASONED, TOOLS, Row
from packer.audit.lint.subject import Subject
from packer.batches import Rejection
from packer.errors import TemplateError
from packer.model import Model
from packer.pipeline.plan import load_bare_model, load_recipe_model
from packer.pipeline.stages import compile_template, split_markers
from packer.recipe import Recipe
from packer.render import ChatTemplate
from packer.render.common_prefix import common_length
from packer.render.conversation import Conversation
from packer.render.reasoning import opened_by

_UNDEFINED = re.compile(r"'(\w+)' is undefined")
_VALUES: tuple[Any, ...] = ([], "", {}, False)
"""What a template may take for a variable it misses."""

_MOST_STEPS = 4
"""Failures to get past, one after another."""

_NO_MARKS = Override("supervision.source", "chat_server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """What the rest of a report can be found with."""

    findings: tuple[LintFinding, ...]
    subject: Subject | None
    """None where a plain chat cannot be built, whatever the recipe."""

    assumed: tuple[Override, ...]
    """Keys that `built` has beside the user's own."""

    built: tuple[Recipe, Model] | None
    """What rows can be taken through the stages with; None where there is no template for this tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """A plain row that cannot be built, and what gets past it."""

    subject: Subject
    row: Row
    rejection: Rejection
    override: Override | None
    helped: Subject | None
    """The same under that key."""


def find_usable(recipe: Recipe) -> Usable:
    """Look for errors; go on under a recipe that has none, where some keys make one.

    Raises:
        RecipeError: no tokenizer.
        InputError: the tokenizer cannot be read, or is of a kind whose ids cannot be proved.

    """
    model = load_bare_model(recipe)
    if model.template is None:
        return Usable(findings=(_no_template(),), subject=None, assumed=(), built=(recipe, model))
    sources = {"the template": model.template, "the template of rows with tools": model.tool_template}
    try:
        templates = {
            name: compile_template(source, model, recipe) for name, source in sources.items() if source is not None
        }
    except TemplateError as error:
        invalid = LintFinding(code="bad_template", message=error.message, hint=error.hint)
        return Usable(findings=(invalid,), subject=None, assumed=(), built=None)
    split = [] if recipe.supervision.markers == "text" else [*_split_markers([*templates.values()], model)]
    if split:  # what else there is to say of the template depends on its tokenizer
        return Usable(findings=tuple(split), subject=None, assumed=(), built=None)
    assumed, findings = [], []
    without = [name for name, template in templates.items() if not template.has_marks]
    by_marks = recipe.supervision.source == "generation_tags"
    if by_marks and without:
        findings.append(_no_marks(without))
        assumed.append(_NO_MARKS)
        recipe = _NO_MARKS.apply(recipe)
    built = Subject(recipe, load_recipe_model(recipe))
    subject: Subject | None = built
    failures: list[_Failure] = []
    while subject is not None and (failed := _failed(subject)) is not None:
        failure = (
            _past(subject, *failed)
            if len(failures) < _MOST_STEPS
            else _Failure(subject=subject, row=failed[0], rejection=failed[1], override=None, helped=None)
        )
        failures.append(failure)
        subject = failure.helped
        if subject is not None and failure.override is not None:
            built = subject
            assumed.append(failure.override)
    firsts = {failure.rejection.code: failure for failure in reversed(failures)}
    reported = [_failure_finding(failure, assumed) for failure in firsts.values()]
    if by_marks and not without and failures and failures[0].subject.kept_by_marks(PLAIN):
        reported = [replace(each, level="note") for each in reported]
    return Usable(
        findings=(*findings, *reported),
        subject=subject,
        assumed=tuple(assumed),
        built=(built.recipe_given, built.model),
    )


def _no_template() -> LintFinding:
    return LintFinding(
        code="no_template",
        message="this tokenizer has no chat template, so rows of messages cannot be built",
        hint="give one with --template FILE; rows of text, of prompt and completion, or of tokens need none",
    )


def _no_marks(without: Sequence[str]) -> LintFinding:
    return LintFinding(
        code="no_marks",
        message=f"supervision.source is generation_tags, and {' and '.join(without)} has no {{% generation %}} block",
        hint=f"{_NO_MARKS} needs no marks: what is learned is what inference asks for",
    )


def _split_markers(templates: Sequence[ChatTemplate], model: Model) -> Iterator[LintFinding]:
    split: dict[str, int] = {}
    for template in templates:
        split |= split_markers(template, model)
    if split:
        what = "a marker that is not" if len(split) == 1 else f"{len(split)} markers that are not"
        yield LintFinding(
            code="split_marker",
            message=f"this template belongs to another tokenizer: it writes {what} one token of this one",
            examples=tuple(Example(label=f"{number} tokens", text=marker) for marker, number in split.items()),
            hint="use the tokenizer this template was made for, or add the tokens to it; "
            f"{Override('supervision.markers', 'text')} takes such markers as plain text, as some models were trained",
        )


def _failed(subject: Subject) -> tuple[Row, Rejection] | None:
    """The first of a plain turn and a plain chat that cannot be built."""
    pairs = ((row, subject.ask(row).rejection) for row in (PLAIN, CHAT))
    return next(((row, rejection) for row, rejection in pairs if rejection is not None), None)


def _past(subject: Subject, row: Row, rejection: Rejection) -> _Failure:
    """With the first key that makes a plain chat possible; else the first that leaves it another failure."""
    past: tuple[Override | None, Subject | None] = (None, None)
    for override in suggestions(subject, rejection):
        other = with_override(subject, override)
        left = _failed(other)
        if left is None or (past[0] is None and _goes_on(rejection, left[1])):
            past = override, other
        if left is None:
            break
    return _Failure(subject=subject, row=row, rejection=rejection, override=past[0], helped=past[1])


def _goes_on(before: Rejection, after: Rejection) -> bool:
    """Whether what is left is another failure that a key may get past."""
    if after.code == "template_error":
        missing = [_UNDEFINED.search(rejection.reason) for rejection in (before, after)]
        return missing[1] is not None and (missing[0] is None or missing[0][1] != missing[1][1])
    return before.code != after.code


def with_override(subject: Subject, override: Override) -> Subject:
    """The same under one key more."""
    recipe = override.apply(subject.recipe_given)
    return Subject(recipe, load_recipe_model(recipe))


def suggestions(subject: Subject, rejection: Rejection) -> Iterator[Override]:
    """Keys that may get past a rejection."""
    if rejection.code == "prompt_diverges":
        yield Override("supervision.on_prompt_mismatch", "continue")
        yield Override("supervision.on_prompt_mismatch", "common_prefix")
    if rejection.code == "no_terminator":
        if subject.turn_end is not None:
            yield Override.stopping(subject.recipe_given, subject.turn_end)
        yield Override("supervision.no_terminator", "append")
    undefined = _UNDEFINED.search(rejection.reason)
    if rejection.code == "template_error" and undefined is not None:
        for value in _VALUES:
            yield Override.variable(undefined[1], value)


def _failure_finding(failure: _Failure, assumed: Sequence[Override]) -> LintFinding:
    """`assumed`: all keys that were found to help."""
    if failure.rejection.code == "prompt_diverges":
        return _diverging(failure)
    if failure.rejection.code == "no_terminator":
        return _unterminated(failure)
    chat = "a plain chat of two turns" if failure.row is CHAT else "a plain chat"
    if failure.rejection.code == "template_error":
        message = f"the template raises on {chat}: {failure.rejection.reason}"
    else:
        message = f"{chat} is rejected as {failure.rejection.code}: {failure.rejection.reason}"
    variables = [str(override) for override in assumed if override.key.startswith("template.kwargs.")]
    undefined = _UNDEFINED.search(failure.rejection.reason)
    if undefined is not None and variables:
        hint = f"{' '.join(variables)} gives the template what it misses, with nothing in it"
    elif undefined is not None:
        hint = f"give the template a {undefined[1]} in template.kwargs, or in a row's chat_template_kwargs"
    elif failure.subject.ask(TOOLS).rejection is None:
        hint = "the template takes rows that have tool definitions"
    else:
        hint = "these are the template's own words; use another template, or correct this one"
    return LintFinding(code="plain_chat_refused", message=message, hint=hint)


def _diverging(failure: _Failure) -> LintFinding:
    subject = failure.subject
    field, tags = (subject.ask(row).rejection is None for row in (REASONED, INLINE))
    where = "" if field and tags else " in a field" if field else " in <think> tags"
    hint = "use another template, or correct this one"
    if failure.helped is not None and failure.override is not None:
        turns = failure.helped.ask(PLAIN).turns
        opened = opened_by(turns[-1].prompt) if turns else None
        hint = f"{failure.override} learns what follows the prompt"
        if failure.override.value == "common_prefix":
            hint = f"{failure.override} takes what both have in common as the prompt; the rest of the turn is learned"
        elif opened is not None and not opened.closed:
            hint += ": the reasoning it opens is closed at once, then comes the answer"
    return LintFinding(
        code="prompt_diverges",
        message="the template begins a plain answer in another way than it prompts for one"
        + (f"; answers with reasoning{where} can be learned" if field or tags else ""),
        examples=_divergence(subject.conversation(subject.ask(failure.row))),
        hint=hint,
    )


def _divergence(conversation: Conversation) -> tuple[Example, ...]:
    """The default prompt of the first answer that continues no prompt, the rendering of the answer, where they part."""
    for k in (k for k, message in enumerate(conversation.messages) if message["role"] == "assistant"):
        upto = conversation.messages[: k + 1]
        pairs = [(prompt, conversation.render(upto, mode), mode) for prompt, mode in conversation.prompts(k)]
        if not any(whole.startswith(prompt) for prompt, whole, _ in pairs):
            prompt, whole, _ = next((pair for pair in pairs if not pair[2]), pairs[-1])
            place = common_length(prompt, whole)
            return (
                Example(label="prompt", text=prompt, mark=(place, len(prompt)), note="only in the prompt"),
                Example(label="turn", text=whole, mark=(place, place), note="differs from here"),
            )
    raise AssertionError("a row that was rejected as prompt_diverges has an answer that diverges")


def _unterminated(failure: _Failure) -> LintFinding:
    subject = failure.subject
    conversation = subject.conversation(subject.ask(failure.row))
    text = conversation.render(conversation.messages, {})
    stops = subject.model.stops
    known = f"stop tokens: {', '.join(stops)}" if stops else "the tokenizer names no stop token"
    hint = "name the token that ends a turn in supervision.stop"
    if failure.override is not None and failure.override.key == "supervision.stop":
        hint = (
            f"{failure.override} makes the token that ends a turn a stop token; generation has to stop at it too "
            "(generation_config.json)"
        )
    elif failure.override is not None:
        hint = f"{failure.override} closes every answer with the EOS; or {hint}"
    return LintFinding(
        code="no_terminator",
        message=f"the template writes no stop token of this tokenizer after an answer ({known})",
        examples=(Example(label="rendered", text=text, mark=(len(text), len(text)), note="no stop token"),),
        hint=hint,
    )
