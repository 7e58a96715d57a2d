"""The tokenizer beside its template: BOS, borders that merge, white space that goes, settings of its files."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.probes import CHAT, QUESTION, Row, assistant, user
from packer.audit.lint.subject import LearnedTurn, Subject
from packer.errors import InputError
from packer.model import CONFIG_FILE, TOKENIZER_FILE
from packer.tokenize import ReferenceEncoder

_REPLIES = ("\nfirst answer", "\n\nfirst answer", " first answer", "  first answer", "\tfirst answer", "first answer",
            "1. first answer", "```\nfirst answer", "- first answer", "“first answer”")  # fmt: skip
"""Replies as they begin in real rows; white space is where merges cross the border."""


def find_bos(subject: Subject) -> Iterator[LintFinding]:
    """BOS tokens of a rendered chat, and the one the tokenizer itself would put before it."""
    text = subject.ask(CHAT).turns[-1].text
    ids = subject.ids(text)
    own = _own_bos(subject)
    if own is not None:
        name = subject.model.content(own)
        if ids[:1] == [own]:
            yield LintFinding(
                code="bos_doubled",
                message=f"the template writes '{name}' and the tokenizer adds one too: encoding its text with special "
                "tokens gives two; packer and apply_chat_template give one",
                examples=(Example(label="rendered", text=text, mark=(0, len(name)), note="written"),),
                hint="tokenizer(text) doubles it; tokenizer(text, add_special_tokens=False) does not",
            )
        else:
            yield _bos_missing(text, name)
    yield from _repeated(subject, text, ids)


def _bos_missing(text: str, name: str) -> LintFinding:
    if text.lstrip().startswith(name):
        space = len(text) - len(text.lstrip())
        return LintFinding(
            code="bos_missing",
            message=f"the template writes white space before its '{name}', so that chats do not open with it, as the "
            "tokenizer's texts do",
            examples=(Example(label="rendered", text=text, mark=(0, space), note="before the BOS"),),
            hint="begin the template with {{- bos_token }}, or take the line ends before it out",
        )
    return LintFinding(
        code="bos_missing",
        message=f"the tokenizer opens texts with '{name}', and the template does not write it: chats are learned "
        "without a BOS, as apply_chat_template and chat servers give them",
        examples=(Example(label="rendered", text=text, mark=(0, 0), note="no BOS"),),
        hint="if the model was trained with one, begin the template with {{ bos_token }}",
    )


def _own_bos(subject: Subject) -> int | None:
    try:
        before, _ = subject.encoder.own_special_tokens()
    except InputError:
        return None
    return int(before[0]) if len(before) else None


def _repeated(subject: Subject, text: str, ids: list[int]) -> Iterator[LintFinding]:
    name = subject.model.named_tokens.get("bos_token")
    bos = next((token.id for token in subject.model.added_tokens if token.content == name), None)
    count = ids.count(bos) if bos is not None else 0
    # A "BOS" before every message (<|im_start|> in some folders), or one that is a stop token too, opens no text.
    if count < 2 or count >= len(CHAT["messages"]) or bos in subject.model.stop_ids:
        return
    second = text.find(str(name), text.find(str(name)) + 1)
    yield LintFinding(
        code="bos_repeated",
        message=f"the template writes '{name}' {count} times in a chat of two turns",
        examples=(Example(label="rendered", text=text, mark=(second, second + len(str(name))), note="again"),),
    )


def find_merges(subject: Subject) -> Iterator[LintFinding]:
    """Replies whose beginning makes one token with the end of the prompt."""
    merging: list[tuple[str, Row]] = []
    asked = 0
    for reply in _REPLIES:
        row: Row = {"messages": [user(QUESTION), assistant(reply)]}
        outcome = subject.ask(row)
        asked += bool(outcome.turns)
        if any(turn.merged for turn in outcome.turns):
            merging.append((reply, row))
    if not merging:
        return
    reply, row = merging[0]
    turn = subject.ask(row).turns[-1]
    alone, together = subject.ids(turn.prompt), subject.ids(turn.text)
    same = next(i for i, (a, b) in enumerate(zip(alone, together, strict=False)) if a != b)
    kinds = list(dict.fromkeys(_beginning(reply) for reply, _ in merging))
    which = "all answers" if len(merging) == asked else f"answers that begin with {', '.join(kinds)}"
    yield LintFinding(
        code="border_merges",
        message=f"{which} would make one token with the end of the prompt ({len(merging)} of {asked} replies tried): "
        f"id {_ids(alone[same:])} of the prompt becomes {together[same]}; packer encodes them apart, as inference does",
        examples=(Example(label="turn", text=turn.text, mark=_border(turn), note="one token, if encoded together"),),
    )


def _beginning(reply: str) -> str:
    space = reply[: len(reply) - len(reply.lstrip())]
    names = {"\n": "a newline", "\n\n": "two newlines", " ": "a space", "  ": "two spaces", "\t": "a tab"}
    return names.get(space, f"'{reply[:1]}'")


def _ids(ids: list[int]) -> str:
    return " ".join(map(str, ids))


def _border(turn: LearnedTurn) -> tuple[int, int]:
    """The white space on both sides of the border, and the character before it where there is none."""
    before, after = turn.prompt.rstrip(), turn.completion.lstrip()
    start = min(len(before), turn.prompt_end - 1)
    return start, max(len(turn.text) - len(after), turn.prompt_end + 1)


def find_swallowed(subject: Subject) -> Iterator[LintFinding]:
    """Tokens of the template after which white space leaves no id."""
    text = subject.ask(CHAT).turns[-1].text
    swallowing: list[tuple[str, int, int]] = []
    for token in subject.model.added_tokens:
        at = text.find(token.content)
        end = at + len(token.content)
        rest = text[end:]
        space = len(rest) - len(rest.lstrip())
        if not token.rstrip or at < 0 or not space:
            continue
        if subject.ids(text) == subject.ids(text[:end] + rest[space:]):
            swallowing.append((token.content, end, end + space))
    if not swallowing:
        return
    names = ", ".join(f"'{content}'" for content, _, _ in swallowing)
    verb = "takes" if len(swallowing) == 1 else "take"
    yield LintFinding(
        code="space_swallowed",
        message=f"{names} {verb} the white space that follows: it is in no id, and an answer that begins with white "
        "space right after such a token loses it",
        examples=(Example(label="rendered", text=text, mark=swallowing[0][1:], note="in no id"),),
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
    start = len(subject.spelled(mine[:place]))
    name = config["tokenizer_class"]
    yield LintFinding(
        code="tokenizer_read_otherwise",
        message=f"transformers 5 does not read this tokenizer.json as it is: for tokenizer_class '{name}' it puts a "
        f"pre-tokenizer of its own in its place. A chat then begins to differ at token {place}: id {mine[place]} here, "
        f"{theirs[place]} there; a model served so sees other ids than it was taught",
        examples=(Example(label="rendered", text=text, mark=(start, start), note="other ids from here"),),
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


def find_settings(subject: Subject) -> Iterator[LintFinding]:
    """Settings of the tokenizer's files that other tools obey."""
    model = subject.model
    if "truncation" in model.neutralised:
        yield LintFinding(
            code="tokenizer_truncates",
            message="tokenizer.json cuts every text at a fixed length; packer switches that off, other tools obey it",
            hint="set truncation to null in tokenizer.json",
        )
    if "padding" in model.neutralised:
        yield LintFinding(
            code="tokenizer_pads",
            message="tokenizer.json pads every text; packer switches that off, other tools obey it",
            hint="set padding to null in tokenizer.json",
        )
    if model.pad_id in model.stop_ids:
        named = "pad_token" in model.named_tokens
        yield LintFinding(
            code="pad_is_stop",
            message=f"padding is '{model.content(model.pad_id)}' (id {model.pad_id}), a stop token"
            + ("" if named else ", since the tokenizer names no pad token")
            + ": packer masks by place, but tools that mask by id mask the end of every answer",
            hint="pack.pad_id takes another id" if not named else None,
        )
    if model.tool_template is not None:
        yield LintFinding(
            code="tool_template",
            message="rows with tool definitions go through a template of their own; this report asks both",
        )
