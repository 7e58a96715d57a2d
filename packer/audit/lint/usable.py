"""Whether anything can be built: the errors of a report, and the way out of each that was found to work."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.probes import CHAT, INLINE, PLAIN, REASONED, TOOLS, Row
from packer.audit.lint.subject import Subject
from packer.batches import Rejection
from packer.build.plan import load_bare_model, load_recipe_model
from packer.build.stages import compile_template, split_markers
from packer.errors import TemplateError
from packer.model import Model
from packer.recipe import Recipe
from packer.render.chat import Conversation

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

    assumed: tuple[str, ...]
    """Values of `--set` that `built` has beside the user's own."""

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
        findings = list(_split_markers(model, recipe))
    except TemplateError as error:
        invalid = LintFinding(code="bad_template", message=error.message, hint=error.hint)
        return Usable(findings=(invalid,), subject=None, assumed=(), built=None)
    assumed: dict[str, str] = {}
    if findings:
        assumed["supervision.markers"] = "text"
        recipe = _with(recipe, markers="text")
    built = Subject(recipe, load_recipe_model(recipe))
    subject: Subject | None = built
    failures: list[_Failure] = []
    while subject is not None and (failure := _failure(subject)) is not None:
        failures.append(failure)
        way = _way_out(failure) if len(failures) <= _MOST_STEPS else None
        subject = way.subject if way is not None else None
        if way is not None and subject is not None:
            built = subject
            assumed[way.key] = way.value
    firsts = {failure.rejection.code: failure for failure in reversed(failures)}
    findings += [_failure_finding(failure, assumed) for failure in firsts.values()]
    return Usable(
        findings=tuple(findings),
        subject=subject,
        assumed=tuple(f"{key}={value}" for key, value in assumed.items()),
        built=(built.recipe_given, built.model),
    )


def _no_template() -> LintFinding:
    return LintFinding(
        code="no_template",
        message="this tokenizer has no chat template, so rows of messages cannot be built",
        hint="give one with --template FILE; rows of text, or of prompt and completion, need none",
    )


def _with(recipe: Recipe, **supervision: Any) -> Recipe:
    return msgspec.structs.replace(recipe, supervision=msgspec.structs.replace(recipe.supervision, **supervision))


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
        yield LintFinding(
            code="split_marker",
            message=f"the template writes {those} that this tokenizer does not know as one token",
            examples=tuple(Example(label=f"{number} tokens", text=marker) for marker, number in split.items()),
            hint="use the tokenizer this template was made for, or add the tokens to it; "
            "--set supervision.markers=text takes such markers as plain text, as some models were trained",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """A plain row that cannot be built."""

    subject: Subject
    row: Row
    rejection: Rejection


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A key of the recipe that gets past a failure."""

    key: str
    value: str
    """As `--set` takes it."""

    subject: Subject


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
    for key, value, recipe in ways_out(failure.subject, failure.rejection):
        subject = Subject(recipe, load_recipe_model(recipe))
        left = _failure(subject)
        way = _Way(key=key, value=value, subject=subject)
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


def ways_out(subject: Subject, rejection: Rejection) -> Iterator[tuple[str, str, Recipe]]:
    """Keys that may get past a rejection: key, value as `--set` writes it, and the recipe that has it."""
    recipe = subject.recipe_given
    if rejection.code == "prompt_diverges":
        yield "supervision.divergent", "continue", _with(recipe, divergent="continue")
        yield "supervision.divergent", "common_prefix", _with(recipe, divergent="common_prefix")
    if rejection.code == "no_terminator":
        closing = subject.turn_end
        if closing is not None:
            stop = (*recipe.supervision.stop, closing)
            yield "supervision.stop", json.dumps(stop, ensure_ascii=False), _with(recipe, stop=stop)
        yield "supervision.no_terminator", "append", _with(recipe, no_terminator="append")
    undefined = _UNDEFINED.search(rejection.reason)
    if rejection.code == "template_error" and undefined is not None:
        for value in _VALUES:
            kwargs = {**recipe.template.kwargs, undefined[1]: value}
            template = msgspec.structs.replace(recipe.template, kwargs=kwargs)
            changed = msgspec.structs.replace(recipe, template=template)
            yield "template.kwargs", json.dumps(kwargs, ensure_ascii=False), changed


def _failure_finding(failure: _Failure, assumed: Mapping[str, str]) -> LintFinding:
    """`assumed`: the keys that were found to help, with their values."""
    if failure.rejection.code == "prompt_diverges":
        return _diverging(failure, assumed.get("supervision.divergent"))
    if failure.rejection.code == "no_terminator":
        return _unterminated(failure, assumed)
    chat = "a plain chat of two turns" if failure.row is CHAT else "a plain chat"
    if failure.rejection.code == "template_error":
        message = f"the template raises on {chat}: {failure.rejection.reason}"
    else:
        message = f"{chat} is rejected as {failure.rejection.code}: {failure.rejection.reason}"
    return LintFinding(
        code="plain_chat_refused", message=message, hint=_refused_hint(failure, assumed.get("template.kwargs"))
    )


def _refused_hint(failure: _Failure, kwargs: str | None) -> str:
    undefined = _UNDEFINED.search(failure.rejection.reason)
    if kwargs is not None:
        return f"--set 'template.kwargs={kwargs}' gives the template what it misses, with nothing in it"
    if undefined is not None:
        return f"--set 'template.kwargs={{{undefined[1]}: VALUE}}' gives the template what it misses"
    if failure.subject.ask(TOOLS).rejection is None:
        return "the template takes rows that have tool definitions"
    return "these are the template's own words; use another template, or correct this one"


_DIVERGENT = {
    None: "use another template, or correct this one",
    "continue": "--set supervision.divergent=continue learns what follows the prompt: the reasoning it opens is closed "
    "at once, then comes the answer",
    "common_prefix": "--set supervision.divergent=common_prefix takes what both have in common as the prompt; the rest "
    "of the turn is learned",
}


def _diverging(failure: _Failure, value: str | None) -> LintFinding:
    subject = failure.subject
    reasoned = any(subject.ask(row).rejection is None for row in (REASONED, INLINE))
    return LintFinding(
        code="prompt_diverges",
        message="the template begins a plain answer in another way than it prompts for one"
        + ("; answers with reasoning can be learned" if reasoned else ""),
        examples=parting(subject.conversation(subject.ask(failure.row))),
        hint=_DIVERGENT[value],
    )


def parting(conversation: Conversation) -> tuple[Example, ...]:
    """Prompt and rendering of the first answer that continues no prompt, and where they part."""
    prompt, whole = _divergence(conversation)
    place = next((i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), len(whole))
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


def _unterminated(failure: _Failure, assumed: Mapping[str, str]) -> LintFinding:
    subject = failure.subject
    conversation = subject.conversation(subject.ask(failure.row))
    text = conversation.render(conversation.messages, {})
    stops = subject.model.stops
    known = f"stop tokens: {', '.join(stops)}" if stops else "the tokenizer names no stop token"
    if "supervision.stop" in assumed:
        hint = (
            f"--set 'supervision.stop={assumed['supervision.stop']}' makes the token that ends a turn a stop token; "
            "generation has to stop at it too (generation_config.json)"
        )
    elif "supervision.no_terminator" in assumed:
        hint = (
            "--set supervision.no_terminator=append closes every answer with the EOS; or name the token that ends a "
            "turn in supervision.stop"
        )
    else:
        hint = "name the token that ends a turn in supervision.stop"
    return LintFinding(
        code="no_terminator",
        message=f"the template writes no stop token after an answer ({known})",
        examples=(Example(label="rendered", text=text, mark=(len(text), len(text)), note="no stop token"),),
        hint=hint,
    )
