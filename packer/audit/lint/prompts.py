"""Checks of what precedes an answer (prompts, openings that the model must write), and of the ids of a chat."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from packer.audit.findings import CodedFinding, Example
from packer.audit.lint.codes import finding
from packer.audit.lint.probed_template import (
    ANSWER,
    CHAT,
    ProbedTemplate,
)
from packer.model.model import CONFIG_FILE, TOKENIZER_FILE
from packer.render.reasoning import opened_by
from packer.tokenize import ReferenceEncoder


def find_openings(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Look for template text at the beginning of an answer that is trained with it."""
    turn = probed.plain
    at = turn.completion.find(ANSWER)
    opening = turn.completion[: max(at, 0)]
    if not opening.strip():
        return
    trained = Example(
        label="turn", text=turn.text, mark=(turn.prompt_end, turn.prompt_end + at), note="trained before the answer"
    )
    before = turn.prompt + opening
    if (opened := opened_by(before)) is not None and opened.closed:
        yield finding(
            "opening_learned",
            "an answer without reasoning is trained after an empty reasoning block that the model has to write: "
            "it learns to skip its reasoning",
            examples=(trained,),
            hint="right if the model should answer at once under this prompt; if not, keep to rows with reasoning",
        )
        return
    yield finding(
        "opening_learned",
        "every answer begins with text of the template, which the model learns to write",
        examples=(trained,),
        hint="a template that writes it into the prompt, if add_generation_prompt=True, leaves it to the prompt",
    )


def find_tokenizer_difference(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Check whether transformers 5, and the servers built on it, encode a chat differently than tokenizer.json."""
    files = probed.model.files
    config = json.loads(files.get(CONFIG_FILE, b"{}"))
    other = as_llama_tokenizer(json.loads(files[TOKENIZER_FILE]), config)
    if other is None:
        return
    text = probed.outcome(CHAT).turns[-1].text
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
