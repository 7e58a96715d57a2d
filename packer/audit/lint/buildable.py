"""Whether plain chats can be built: if not, that is an error, with the keys that were found to help.

What a template loses of other conversations, the rows at hand show.
"""

import re

from packer.audit.findings import CodedFinding, Example
from packer.audit.lint.codes import finding
from packer.audit.lint.probed_template import CHAT, EXACT, PLAIN, ProbedTemplate, Row, rows_of
from packer.batches import Rejection
from packer.errors import TemplateError
from packer.model.model import Model
from packer.pipeline.messages.suggestions import templates_hint, tried_hint
from packer.pipeline.plan.build_plan import load_recipe_model
from packer.recipe.recipe import Recipe
from packer.render.common_prefix import common_length

_UNDEFINED = re.compile(r"'(\w+)' is undefined")


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
        message = "this tokenizer has no chat template, so rows of messages cannot be built"
        hint = f"{templates_hint(model, recipe)}; rows of text, of prompt and completion, or of tokens need none"
        return [finding("no_template", message, hint=hint)], None, model
    probed = ProbedTemplate(recipe, model)
    for row in (PLAIN, CHAT):
        rejection = probed.outcome(row, EXACT).rejection
        if rejection is not None:
            return [_refused(probed, row, rejection)], None, model
    return [], probed, model


def _refused(probed: ProbedTemplate, row: Row, rejection: Rejection) -> CodedFinding:
    """Report why a plain chat is rejected, with what a build would say and, as it does, has tried."""
    code, reason, advice = rejection.code, rejection.reason, "use another template, or correct this one"
    hint = tried_hint(code, reason, [rows_of(row)], probed.recipe, probed.model, advice=advice)
    if code == "prompt_diverges":
        message = "the template begins a plain answer differently from its own prompt for one"
        return finding("prompt_diverges", message, examples=_divergence(probed, row, rejection.message or 0), hint=hint)
    if code == "no_terminator":
        conversation, stops = probed.conversation(row), probed.model.stops
        text = conversation.render(conversation.messages, {})
        known = f"stop tokens: {', '.join(stops)}" if stops else "the tokenizer names no stop token"
        shown = Example(label="rendered", text=text, mark=(len(text), len(text)), note="no stop token")
        message = f"the template writes no stop token of this tokenizer after an answer ({known})"
        return finding("no_terminator", message, examples=(shown,), hint=hint)
    chat = "a plain chat of two turns" if row is CHAT else "a plain chat"
    undefined = _UNDEFINED.search(reason)
    if undefined is not None:
        hint = f"give the template a {undefined[1]} in template.kwargs, or in a row's chat_template_kwargs"
    message = f"the template raises on {chat}" if code == "template_error" else f"{chat} is rejected as {code}"
    return finding("plain_chat_refused", f"{message}: {reason}", hint=hint)


def _divergence(probed: ProbedTemplate, row: Row, k: int) -> tuple[Example, ...]:
    """Show answer k, which starts with no prompt that is its own, beside its default prompt."""
    conversation = probed.conversation(row)
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
