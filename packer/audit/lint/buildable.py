"""Checks of which conversations can be built.

If a plain chat cannot be built, that is an error, reported with a key that was found to help. What a template loses of
other conversations, the rows at hand show.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from packer.audit.findings import CodedFinding, Example
from packer.audit.lint.codes import finding
from packer.audit.lint.probed_template import (
    CHAT,
    INLINE,
    PLAIN,
    REASONED,
    TOOLS,
    Override,
    ProbedTemplate,
    Row,
)
from packer.batches import Rejection
from packer.errors import TemplateError
from packer.model.model import Model
from packer.pipeline.messages.suggestions import templates_hint
from packer.pipeline.plan.build_plan import load_recipe_model
from packer.recipe.recipe import Recipe
from packer.render.common_prefix import common_length
from packer.render.conversation import Conversation

_UNDEFINED = re.compile(r"'(\w+)' is undefined")
_VALUES: tuple[Any, ...] = ([], "", {}, False)
"""Values to try for an undefined variable of a template."""


def prepare_probes(recipe: Recipe) -> tuple[list[CodedFinding], ProbedTemplate | None, Model | None]:
    """Look for problems that prevent a plain chat from being built.

    Returns:
        errors that end a report early; the template to run the other checks on, None if a plain chat cannot be built;
        the model with which rows can be run through the stages, None if a build would refuse the template
    """
    try:
        model = load_recipe_model(recipe)
    except TemplateError as error:  # with the wrong tokenizer, further findings would be meaningless
        return [finding("template_refused", error.message, hint=error.hint)], None, None
    if model.template is None:
        return [_no_template(model, recipe)], None, model
    probed = ProbedTemplate(recipe, model)
    failed = _failed(probed)
    if failed is None:
        return [], probed, model
    failure = _failure_finding(probed, *failed)
    if recipe.supervision.source == "generation_tags" and probed.kept_by_marks(PLAIN):
        failure = replace(failure, level="note")
    return [failure], None, model


def _no_template(model: Model, recipe: Recipe) -> CodedFinding:
    return finding(
        "no_template",
        "this tokenizer has no chat template, so rows of messages cannot be built",
        hint=f"{templates_hint(model, recipe)}; rows of text, of prompt and completion, or of tokens need none",
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
