"""Whether anything can be built: the errors of a report, and the way out of each that was found to work."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.override import Override
from packer.audit.lint.probes import CHAT, INLINE, PLAIN, REASONED, TOOLS, Row
from packer.audit.lint.subject import Subject
from packer.batches import Rejection
from packer.build.plan import load_bare_model, load_recipe_model
from packer.build.stages import compile_template, split_markers
from packer.errors import TemplateError
from packer.model import Model
from packer.recipe import Recipe
from packer.render.chat import Conversation
from packer.render.parting import common_length
from packer.render.reasoning import opened_by

_UNDEFINED = re.compile(r"'(\w+)' is undefined")
_VALUES: tuple[Any, ...] = ([], "", {}, False)
"""What a template may take for a variable it misses."""

_MOST_STEPS = 4
"""Failures to get past, one after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """What the rest of a report can be found with."""

    findings: tuple[LintFinding, ...]
    subject: Subject | None
    """None where a plain chat cannot be built, whatever the recipe."""

    assumed: tuple[Override, ...]
    """Keys that `built` has beside the user's own."""

    built: tuple[Recipe, Model] | None
    """What rows can be taken through the stages with; None where there is no template that compiles."""


def find_usable(recipe: Recipe) -> Usable:
    """Look for errors; go on under a recipe that has none, where some keys make one.

    Raises:
        RecipeError: no tokenizer.
        InputError: the tokenizer cannot be read, or is of a kind whose ids cannot be proved.

    """
    model = load_bare_model(recipe)
    if model.template is None:
        return Usable(findings=(_no_template(),), subject=None, assumed=(), built=(recipe, model))
    try:
        findings = [*_no_marks(model, recipe), *_split_markers(model, recipe)]
    except TemplateError as error:
        invalid = LintFinding(code="bad_template", message=error.message, hint=error.hint)
        return Usable(findings=(invalid,), subject=None, assumed=(), built=None)
    assumed = [_WITHOUT[finding.code] for finding in findings]
    for override in assumed:
        recipe = override.apply(recipe)
    built = Subject(recipe, load_recipe_model(recipe))
    subject: Subject | None = built
    failures: list[_Failure] = []
    while subject is not None and (failure := _failure(subject)) is not None:
        way = _way_out(failure) if len(failures) < _MOST_STEPS else None
        failures.append(replace(failure, way=way))
        subject = way.subject if way is not None else None
        if way is not None:
            built = way.subject
            assumed.append(way.override)
    firsts = {failure.rejection.code: failure for failure in reversed(failures)}
    helping = {override.key: override for override in assumed}
    told = [_failure_finding(failure, helping) for failure in firsts.values()]
    by_marks = recipe.supervision.source == "generation_tags" and failures and failures[0].subject.kept_by_marks(PLAIN)
    findings += [replace(each, level="note") for each in told] if by_marks else told
    return Usable(
        findings=tuple(findings),
        subject=subject,
        assumed=tuple(helping.values()),
        built=(built.recipe_given, built.model),
    )


def _no_template() -> LintFinding:
    return LintFinding(
        code="no_template",
        message="this tokenizer has no chat template, so rows of messages cannot be built",
        hint="give one with --template FILE; rows of text, of prompt and completion, or of tokens need none",
    )


_WITHOUT = {
    "no_marks": Override("supervision.source", "equivalence"),
    "split_marker": Override("supervision.markers", "text"),
}
"""Code of an error → what a build begins with in spite of it."""


def _no_marks(model: Model, recipe: Recipe) -> Iterator[LintFinding]:
    if recipe.supervision.source != "generation_tags":
        return
    named = {"the template": model.template, "the template for rows with tools": model.tool_template}
    templates = {name: compile_template(source, model, recipe) for name, source in named.items() if source is not None}
    without = [name for name, template in templates.items() if not template.has_marks]
    if without:
        yield LintFinding(
            code="no_marks",
            message=f"supervision.source is generation_tags, and {' and '.join(without)} has no "
            "{% generation %} block",
            hint=f"{_WITHOUT['no_marks']} needs no marks: what is learned is what inference asks for",
        )


def _split_markers(model: Model, recipe: Recipe) -> Iterator[LintFinding]:
    sources = [source for source in (model.template, model.tool_template) if source is not None]
    templates = [compile_template(source, model, recipe) for source in sources]
    if recipe.supervision.markers == "text":
        return
    split: dict[str, int] = {}
    for template in templates:
        split |= split_markers(template, model)
    if split:
        those = "a marker" if len(split) == 1 else f"{len(split)} markers"
        does = "is not" if len(split) == 1 else "are not"
        yield LintFinding(
            code="split_marker",
            message=f"this template belongs to another tokenizer: it writes {those} that {does} one token of this one",
            examples=tuple(Example(label=f"{number} tokens", text=marker) for marker, number in split.items()),
            hint="use the tokenizer this template was made for, or add the tokens to it; "
            f"{_WITHOUT['split_marker']} takes such markers as plain text, as some models were trained",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A key of the recipe that gets past a failure."""

    override: Override
    subject: Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """A plain row that cannot be built."""

    subject: Subject
    row: Row
    rejection: Rejection
    way: _Way | None = None


def _failure(subject: Subject) -> _Failure | None:
    """The first of a plain turn and a plain chat that cannot be built."""
    for row in (PLAIN, CHAT):
        rejection = subject.ask(row).rejection
        if rejection is not None:
            return _Failure(subject=subject, row=row, rejection=rejection)
    return None


def _way_out(failure: _Failure) -> _Way | None:
    """The first key that makes a plain chat possible; else the first that leaves it another failure to get past."""
    partial: _Way | None = None
    for override in ways_out(failure.subject, failure.rejection):
        subject = with_override(failure.subject, override)
        left = _failure(subject)
        way = _Way(override=override, subject=subject)
        if left is None:
            return way
        if partial is None and _goes_on(failure.rejection, left.rejection):
            partial = way
    return partial


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


def ways_out(subject: Subject, rejection: Rejection) -> Iterator[Override]:
    """Keys that may get past a rejection."""
    if rejection.code == "prompt_diverges":
        yield Override("supervision.divergent", "continue")
        yield Override("supervision.divergent", "common_prefix")
    if rejection.code == "no_terminator":
        if subject.turn_end is not None:
            yield Override.stopping(subject.recipe_given, subject.turn_end)
        yield Override("supervision.no_terminator", "append")
    undefined = _UNDEFINED.search(rejection.reason)
    if rejection.code == "template_error" and undefined is not None:
        for value in _VALUES:
            yield Override.variable(undefined[1], value)


def _failure_finding(failure: _Failure, helping: Mapping[str, Override]) -> LintFinding:
    """`helping`: the keys that were found to help, by their names."""
    if failure.rejection.code == "prompt_diverges":
        return _diverging(failure)
    if failure.rejection.code == "no_terminator":
        return _unterminated(failure)
    chat = "a plain chat of two turns" if failure.row is CHAT else "a plain chat"
    if failure.rejection.code == "template_error":
        message = f"the template raises on {chat}: {failure.rejection.reason}"
    else:
        message = f"{chat} is rejected as {failure.rejection.code}: {failure.rejection.reason}"
    variables = [override for key, override in helping.items() if key.startswith("template.kwargs.")]
    return LintFinding(code="plain_chat_refused", message=message, hint=_refused_hint(failure, variables))


def _refused_hint(failure: _Failure, variables: Sequence[Override]) -> str:
    undefined = _UNDEFINED.search(failure.rejection.reason)
    if undefined is not None and variables:
        give = "gives" if len(variables) == 1 else "give"
        return f"{' '.join(map(str, variables))} {give} the template what it misses, with nothing in it"
    if undefined is not None:
        return f"give the template a {undefined[1]} in template.kwargs, or in a row's chat_template_kwargs"
    if failure.subject.ask(TOOLS).rejection is None:
        return "the template takes rows that have tool definitions"
    return "these are the template's own words; use another template, or correct this one"


def _diverging(failure: _Failure) -> LintFinding:
    subject = failure.subject
    field, tags = (subject.ask(row).rejection is None for row in (REASONED, INLINE))
    where = "" if field and tags else " in a field" if field else " in <think> tags"
    examples = parting(subject.conversation(subject.ask(failure.row)))
    hints = [_divergent_hint(failure)]
    for row, works, form in ((REASONED, field, "inline"), (INLINE, tags, "field")):
        moved = Override("supervision.reasoning", form)
        if (field or tags) and not works and subject.tried(row, moved).rejection is None:
            hints.append(f"{moved} lets rows with reasoning be learned wherever they have it")
    return LintFinding(
        code="prompt_diverges",
        message="the template begins a plain answer in another way than it prompts for one"
        + (f"; answers with reasoning{where} can be learned" if field or tags else ""),
        examples=examples,
        hint="; ".join(hints),
    )


def _divergent_hint(failure: _Failure) -> str:
    """What the key that helps does to a plain answer."""
    if failure.way is None:
        return "use another template, or correct this one"
    override = failure.way.override
    if override.value == "common_prefix":
        return f"{override} takes what both have in common as the prompt; the rest of the turn is learned"
    turns = failure.way.subject.ask(PLAIN).turns
    opened = opened_by(turns[-1].prompt) if turns else None
    how = (
        "the answer, since the prompt has closed the reasoning already"
        if opened is not None and opened.closed
        else "the reasoning it opens is closed at once, then comes the answer"
    )
    return f"{override} learns what follows the prompt: {how}"


def parting(conversation: Conversation) -> tuple[Example, ...]:
    """Prompt and rendering of the first answer that continues no prompt, and where they part."""
    prompt, whole = _divergence(conversation)
    place = common_length(prompt, whole)
    return (
        Example(label="prompt", text=prompt, mark=(place, len(prompt)), note="only in the prompt"),
        Example(label="turn", text=whole, mark=(place, place), note="differs from here"),
    )


def _divergence(conversation: Conversation) -> tuple[str, str]:
    """The default prompt of the first answer that continues no prompt, and the rendering of the answer."""
    for k in (k for k, message in enumerate(conversation.messages) if message["role"] == "assistant"):
        upto = conversation.messages[: k + 1]
        pairs = [(prompt, conversation.render(upto, mode), mode) for prompt, mode in conversation.prompts(k)]
        if not any(whole.startswith(prompt) for prompt, whole, _ in pairs):
            prompt, whole, _ = next((pair for pair in pairs if not pair[2]), pairs[-1])
            return prompt, whole
    raise AssertionError("a row that was rejected as prompt_diverges has an answer that diverges")


def _unterminated(failure: _Failure) -> LintFinding:
    subject = failure.subject
    conversation = subject.conversation(subject.ask(failure.row))
    text = conversation.render(conversation.messages, {})
    stops = subject.model.stops
    known = f"stop tokens: {', '.join(stops)}" if stops else "the tokenizer names no stop token"
    name_it = "name the token that ends a turn in supervision.stop"
    if failure.way is None:
        hint = name_it
    elif failure.way.override.key == "supervision.stop":
        hint = (
            f"{failure.way.override} makes the token that ends a turn a stop token; generation has to stop at it too "
            "(generation_config.json)"
        )
    else:
        hint = f"{failure.way.override} closes every answer with the EOS; or {name_it}"
    return LintFinding(
        code="no_terminator",
        message=f"the template writes no stop token of this tokenizer after an answer ({known})",
        examples=(Example(label="rendered", text=text, mark=(len(text), len(text)), note="no stop token"),),
        hint=hint,
    )
