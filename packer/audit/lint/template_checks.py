"""Checks of a template: whether plain chats can be built; if so, what opens an answer, whether history changes, ids.

What a template loses of other conversations, the rows at hand show.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from packer.audit.findings import CodedFinding, Example, Severity
from packer.audit.lint.codes import finding
from packer.audit.lint.probed_template import (
    ANSWER,
    CHAT,
    EXACT,
    NEXT_QUESTION,
    PLAIN,
    REASONED_CHAT,
    REASONING,
    ProbedTemplate,
    Row,
    TrainedTurn,
    rows_of,
)
from packer.batches import Rejection
from packer.errors import TemplateError
from packer.literals import common_length
from packer.model.model import CONFIG_FILE, TOKENIZER_FILE, Model
from packer.pipeline.messages.losses import MOST_TIMES, choices_hint
from packer.pipeline.messages.suggestions import templates_hint, tried_hint
from packer.pipeline.plan.build_plan import load_recipe_model
from packer.recipe.named_options import as_option
from packer.recipe.recipe import Recipe
from packer.render.reasoning import opened_by
from packer.tokenize import ReferenceEncoder

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
            failure = _refused(probed, row, rejection)
            return [failure], None, model
    return [], probed, model


def _refused(probed: ProbedTemplate, row: Row, rejection: Rejection) -> CodedFinding:
    """Report why a plain chat is rejected, with what a build would say and, as it does, has tried."""
    code, reason, advice = rejection.code, rejection.reason, "use another template, or correct this one"
    hint = tried_hint(code, reason, [rows_of(row)], probed.recipe, probed.model, advice=advice)
    if (undefined := _UNDEFINED.search(reason)) is not None:
        hint = f"give the template a {undefined[1]} in template.kwargs, or in a row's chat_template_kwargs"
    chat = "a plain chat of two turns" if row is CHAT else "a plain chat"
    message = f"{chat} is rejected as {code}: {reason}"
    examples = tuple(each for each in probed.excerpts(row, rejection) if each.mark is not None)
    return finding("plain_chat_refused", message, examples=examples, hint=hint)


def find_openings(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Look for template text at the beginning of an answer that is trained with it."""
    turn = probed.outcome(PLAIN, EXACT).turns[-1]
    at = turn.text.find(ANSWER, turn.prompt_end)
    if not turn.text[turn.prompt_end : max(at, 0)].strip():
        return
    message = "every answer begins with text of the template, which the model learns to write"
    hint = "a template that writes it into the prompt, if add_generation_prompt=True, leaves it to the prompt"
    if (opened := opened_by(turn.text[:at])) is not None and opened.closed:
        message = (
            "an answer without reasoning is trained after an empty reasoning block that the model has to write: "
            "it learns to skip its reasoning"
        )
        hint = "right if the model should answer at once under this prompt; if not, keep to rows with reasoning"
    shown = Example(label="turn", text=turn.text, mark=(turn.prompt_end, at), note="trained before the answer")
    yield finding("opening_learned", message, examples=(shown,), hint=hint)


def find_rewriting(probed: ProbedTemplate, price: float | None) -> Iterator[CodedFinding]:
    """Compare the first answer of a chat, as it is trained, with its rendering when a second turn follows.

    `price` is what that costs the rows at hand, None if there are none.
    """
    chat = next((row for row in (CHAT, REASONED_CHAT) if probed.outcome(row, EXACT).num_documents > 1), None)
    if chat is None and price is None:
        return
    examples: tuple[Example, ...] = ()
    ways, reasoned = list[str](), probed.outcome(REASONED_CHAT, EXACT).turns
    message = "the template changes earlier answers once a conversation continues"
    if len(reasoned) == 2 and REASONING in reasoned[0].text and REASONING not in reasoned[1].text:
        message += ", and leaves out their reasoning"
    if chat is not None:
        examples = _rewritten(*probed.outcome(chat, EXACT).turns)
        if (switch := probed.keeps_history(chat)) is not None:
            ways = [f"{as_option(switch)} keeps them as they are, right where inference is run with it too"]
    if price is not None:
        message += f"; the rows examined take {price:.2f} times the tokens of each row's last document"
    decided = probed.recipe.supervision.history_rewrite
    if not decided:
        message += "; each answer is trained as it was given, in a document of its own"
        message += f"; above {MOST_TIMES:g} times, a build stops until you choose" * (
            price is not None and price > MOST_TIMES
        )
        ways.append(choices_hint(probed.model, probed.recipe))
    level: Severity = "note" if decided else "warning"
    yield finding("history_rewritten", message, examples=examples, hint="; or ".join(ways) or None, level=level)


def _rewritten(own: TrainedTurn, later: TrainedTurn) -> tuple[Example, Example]:
    """Show an answer as it is trained, and as the history of the next one has it."""
    place = common_length(own.text, later.text)
    resumes = own.text.find(later.text[place : place + 8], place + 1)
    mark = (place, resumes if resumes > place else len(own.text))
    text = later.text.partition(NEXT_QUESTION)
    return (
        Example(label="turn 1, trained", text=own.text, mark=mark),
        Example(label="turn 1, later", text=text[0] + text[1], mark=(place, place), note="differs from here"),
    )


def find_tokenizer_difference(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Check whether transformers 5, and the servers built on it, encode a chat differently than tokenizer.json."""
    files = probed.model.files
    config = json.loads(files.get(CONFIG_FILE, b"{}"))
    other = as_llama_tokenizer(json.loads(files[TOKENIZER_FILE]), config)
    if other is None:
        return
    text = probed.outcome(CHAT, EXACT).turns[-1].text
    mine, theirs = (
        [int(token) for token in ReferenceEncoder(definition).encode([text])[0]]
        for definition in (files[TOKENIZER_FILE], json.dumps(other).encode())
    )
    if mine == theirs:
        return
    place = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    name = config["tokenizer_class"]
    yield finding(
        "tokenizer_read_otherwise",
        f"transformers 5 does not use this tokenizer.json as it is: for tokenizer_class '{name}' it replaces the "
        f"pre-tokenizer. The ids of a chat then differ from token {place} on: {mine[place]} here, {theirs[place]} "
        "there; a model served that way gets other ids than it was trained on",
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
    if config.get("tokenizer_class") not in ("LlamaTokenizer", "LlamaTokenizerFast"):
        return None
    if "ByteLevel" in json.dumps([definition.get("pre_tokenizer"), definition.get("decoder")]):
        return None
    spaced = "always" if config.get("legacy") else "first"
    scheme = "never" if config.get("add_prefix_space") is False else spaced
    pre_tokenizer = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    return {**definition, "normalizer": None, "pre_tokenizer": pre_tokenizer}
