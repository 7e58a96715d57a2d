"""The tokenizer beside its template: BOS, and what transformers makes of its files."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from packer.audit.lint.lint_report import Example, LintFinding
from packer.audit.lint.probes import CHAT
from packer.audit.lint.subject import Subject
from packer.errors import InputError
from packer.model import CONFIG_FILE, TOKENIZER_FILE
from packer.tokenize import ReferenceEncoder


def find_bos(subject: Subject) -> Iterator[LintFinding]:
    """Whether a rendered chat opens with the BOS that the tokenizer itself opens texts with."""
    text = subject.ask(CHAT).turns[-1].text
    try:
        before, _ = subject.encoder.own_special_tokens()
    except InputError:
        return
    if not len(before):
        return
    own = int(before[0])
    if subject.ids(text)[:1] == [own]:
        return
    name = subject.model.content(own)
    space = len(text) - len(text.lstrip()) if text.lstrip().startswith(name) else 0
    yield LintFinding(
        code="bos_missing",
        message=f"the tokenizer opens texts with '{name}', and the template writes white space before it"
        if space
        else f"the tokenizer opens texts with '{name}', and the template does not write it: chats are learned without "
        "a BOS, as apply_chat_template and chat servers give them",
        examples=(Example(label="rendered", text=text, mark=(0, space), note="before the BOS" if space else "no BOS"),),
        hint="if the model was trained with one, begin the template with {{- bos_token }}",
    )


def find_other_reading(subject: Subject) -> Iterator[LintFinding]:
    """Whether transformers 5, and the servers built on it, encode a chat otherwise than tokenizer.json says."""
    files = subject.model.files
    config = json.loads(files.get(CONFIG_FILE, b"{}"))
    other = as_llama_class(json.loads(files[TOKENIZER_FILE]), config)
    if other is None:
        return
    text = subject.ask(CHAT).turns[-1].text
    mine, theirs = subject.ids(text), [int(i) for i in ReferenceEncoder(json.dumps(other).encode()).encode([text])[0]]
    if mine == theirs:
        return
    place = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    name = config["tokenizer_class"]
    yield LintFinding(
        code="tokenizer_read_otherwise",
        message=f"transformers 5 does not read this tokenizer.json as it is: for tokenizer_class '{name}' it puts a "
        f"pre-tokenizer of its own in its place. A chat then begins to differ at token {place}: id {mine[place]} here, "
        f"{theirs[place]} there; a model served so sees other ids than it was taught",
        examples=(Example(label="rendered", text=text),),
        hint="if the model is served by transformers 5, save the tokenizer with it "
        "(AutoTokenizer.from_pretrained(…).save_pretrained(DIR)) and build with DIR; if not, set tokenizer_class to "
        "TokenizersBackend, and transformers reads the file as it is",
    )


def as_llama_class(definition: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The tokenizer.json as the LlamaTokenizer of transformers 5 takes it; None where it leaves a file alone.

    Source: `LlamaTokenizer.__init__` of transformers 5, which takes vocabulary and merges from the file and makes
    normalizer and pre-tokenizer anew; a byte-level file is left alone.
    """
    if config.get("tokenizer_class") not in ("LlamaTokenizer", "LlamaTokenizerFast"):
        return None
    if "ByteLevel" in json.dumps([definition.get("pre_tokenizer"), definition.get("decoder")]):
        return None
    spaced = "always" if config.get("legacy") else "first"
    scheme = "never" if config.get("add_prefix_space") is False else spaced
    pre_tokenizer = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    return {**definition, "normalizer": None, "pre_tokenizer": pre_tokenizer}
