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
    Row,
    TrainedTurn,
)
from packer.model.model import CONFIG_FILE, TOKENIZER_FILE
from packer.recipe.named_options import as_option
from packer.render.common_prefix import common_length
from packer.render.reasoning import opened_by
from packer.tokenize import ReferenceEncoder

_LAST = "supervision.history_rewrite=last"
_AS_RENDERED = "supervision.history_rewrite=as_rendered"


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


def find_rewriting(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Compare the first answer of a plain chat, as it is trained, with its rendering when a second turn follows."""
    outcome = probed.outcome(CHAT, EXACT)
    if outcome.num_documents < 2:
        return
    own, later = outcome.turns[0], outcome.turns[-1]
    end = probed.turn_end
    stop = None if end is None else probed.stopping(end)
    if end is not None and stop is not None and probed.outcome(CHAT, EXACT, stop).num_documents == 1:
        runs_to = max((stop for stop in probed.model.stops if own.text.endswith(stop)), key=len, default="")
        yield finding(
            "turn_end_is_no_stop",
            f"'{end}' ends every turn in history but is not a stop token, so the model is trained to "
            f"run on to '{runs_to}', and history is rewritten",
            examples=(_trained(own, (own.text.rfind(end), len(own.text)), "trained"), _later(own, later)),
            hint=f"{as_option(stop)} ends the trained answer there and nothing is rewritten; generation has to stop at "
            "it too (generation_config.json)",
        )
        return
    place = common_length(own.text, later.text)
    resumes = own.text.find(later.text[place : place + 8], place + 1)
    mark = (place, resumes if resumes > place else len(own.text))
    message = "an earlier answer changes when the conversation continues"
    yield _rewritten(probed, CHAT, "chat_rewritten", message, (_trained(own, mark), _later(own, later)))


def find_forgotten_reasoning(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Look for reasoning of a first answer that is trained, but missing once a second turn follows."""
    turns = probed.outcome(REASONED_CHAT, EXACT).turns
    if len(turns) != 2 or REASONING not in turns[0].text or REASONING in turns[1].text:
        return
    own, later = turns
    place = own.text.find(REASONING)
    shown = _trained(own, (place, place + len(REASONING)), "only while it is the last"), _later(own, later)
    message = "the reasoning of earlier answers is gone when the conversation continues"
    yield _rewritten(probed, REASONED_CHAT, "reasoning_forgotten", message, shown)


def _rewritten(probed: ProbedTemplate, row: Row, code: str, message: str, shown: tuple[Example, ...]) -> CodedFinding:
    supervision = probed.recipe.supervision
    chosen = supervision.history_rewrite
    decided = None if chosen is None else f"supervision.history_rewrite={chosen}"
    switch = probed.keeps_history(row)
    ways = []
    if switch is not None:
        ways = [f"{as_option(switch)} keeps earlier turns as they are, right where inference is run with it too"]
    if decided is None:
        message += "; each answer is trained as it was given, in a document of its own, which costs tokens"
        if probed.outcome(row, _AS_RENDERED).num_documents == 1:
            shows = "trains this chat in one document, earlier answers as history shows them"
            ways.append(f"{as_option(_AS_RENDERED)} {shows}")
        ways.append(f"{as_option(EXACT)} trains every answer as it was given, a document for each")
        ways.append(f"{as_option(_LAST)} trains only the last document of each conversation")
    else:
        message += f"; the recipe says what is trained ({decided})"
    level: Severity = "note" if decided else "warning"
    return finding(code, message, examples=shown, hint="; or ".join(ways) or None, level=level)


def _trained(turn: TrainedTurn, mark: tuple[int, int], note: str = "") -> Example:
    return Example(label="turn 1, trained", text=turn.text, mark=mark, note=note)


def _later(own: TrainedTurn, later: TrainedTurn) -> Example:
    place = common_length(own.text, later.text)
    end = later.text.find(NEXT_QUESTION)
    text = later.text[: end + len(NEXT_QUESTION)] if end >= 0 else later.text
    return Example(label="turn 1, later", text=text, mark=(place, place), note="differs from here")


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
