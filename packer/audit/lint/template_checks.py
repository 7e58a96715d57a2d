"""Checks of a template that builds plain chats: what opens an answer, what ends it, whether history changes, ids."""

import json
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
    TrainedTurn,
)
from packer.model.model import CONFIG_FILE, TOKENIZER_FILE
from packer.pipeline.messages.rewrite_cost import LIMIT, choices_hint
from packer.recipe.named_options import as_option
from packer.render.common_prefix import common_length
from packer.render.reasoning import opened_by
from packer.tokenize import ReferenceEncoder


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
    decided = probed.recipe.supervision.history_rewrite or probed.recipe.supervision.source == "generation_tags"
    if not decided:
        message += "; each answer is trained as it was given, in a document of its own"
        message += f"; above {LIMIT:g} times, a build stops until you choose" * (price is not None and price > LIMIT)
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
