"""Reasoning before an answer: the tags it stands in, where a message keeps it, and prompts that open it.

Templates disagree about reasoning. Some take it from a field of the message, some find it inline in `<think>` tags,
some drop it; and some write the opening tag into the prompt, so that the model goes on from inside it.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from packer.batches import REASONING_FIELDS

Reasoning = Literal["as_given", "field", "inline"]

TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
)
"""Opening and closing tags templates set reasoning apart with."""

_INLINE = re.compile(r"\s*<(think(?:ing)?)>(.*?)</\1>\s*", re.DOTALL)
_CLOSING = dict(TAGS)
_OPENED = re.compile(
    r"(?P<open>" + "|".join(re.escape(open_) for open_, _ in TAGS) + r")(?P<space>\s*)"
    r"(?:(?P<close>" + "|".join(re.escape(close) for _, close in TAGS) + r")\s*)?\Z"
)

Message = Mapping[str, Any]


class Opened(NamedTuple):
    """How a prompt ends that opens the reasoning: `<think>⏎`, or closes it at once: `<think></think>`."""

    start: int
    """Where the opening tag stands in the prompt."""

    open_tag: str
    space: str
    """White space after the opening tag."""

    closed: bool


def opened_by(prompt: str) -> Opened | None:
    """The reasoning a prompt ends inside of, or right behind."""
    match = _OPENED.search(prompt)
    if match is None:
        return None
    close = match["close"]
    if close is not None and close != _CLOSING[match["open"]]:
        return None
    return Opened(match.start(), match["open"], match["space"], close is not None)


def continuation(opened: Opened, reasoning: str, answer: str) -> str:
    """What a model writes after such a prompt: the reasoning, its closing tag, and the answer.

    The tag is closed as it was opened: on a line of its own, and followed by an empty one, if the opening tag was; else
    without white space. `answer` is what the template writes of the turn; an inline block at its start is not doubled.

    Worked example: after a prompt that ends in `<think>⏎`, reasoning `r` and answer `a` give `r⏎</think>⏎⏎a`; without
    reasoning they give `⏎</think>⏎⏎a`.
    """
    close_tag = _CLOSING[opened.open_tag]
    if answer.startswith(opened.open_tag) and close_tag in answer:
        written, _, answer = answer.removeprefix(opened.open_tag).partition(close_tag)
        reasoning = written if written.strip() else reasoning
    answer = answer.removeprefix(close_tag)
    if opened.closed:
        return answer.lstrip("\n")
    own_line = "\n" in opened.space
    before, after = ("\n", "\n\n") if own_line else ("", "")
    return f"{reasoning.strip()}{before}{close_tag}{after}{answer.lstrip(chr(10)) if own_line else answer}"


def reasoning_of(message: Message, *, beside: str = "") -> str:
    """The reasoning of an assistant message: of its field, else inline before its text; empty where there is none.

    `beside`: what will be written beside it. Inline reasoning that stands there is no reasoning but part of the text.
    """
    for name in REASONING_FIELDS:
        if isinstance(message.get(name), str) and message[name].strip():
            return str(message[name])
    content = message.get("content")
    match = _INLINE.match(content) if isinstance(content, str) else None
    return match[2] if match and match[0].strip() not in beside else ""


def given_as(message: Message, form: Reasoning) -> dict[str, Any]:
    """An assistant message with its reasoning where `supervision.reasoning` wants it; others as they are."""
    changed = dict(message)
    content = changed.get("content")
    if changed.get("role") != "assistant" or form == "as_given":
        return changed
    fields = [name for name in REASONING_FIELDS if isinstance(changed.get(name), str) and changed[name].strip()]
    if form == "inline" and fields:
        text = changed[fields[0]].strip()
        changed["content"] = f"<think>\n{text}\n</think>\n\n{content or ''}"
        return {name: value for name, value in changed.items() if name not in REASONING_FIELDS}
    match = _INLINE.match(content) if form == "field" and not fields and isinstance(content, str) else None
    if match is not None and isinstance(content, str):
        changed |= {"content": content[match.end() :], "reasoning_content": match[2].strip()}
        changed["thinking"] = changed["reasoning_content"]
    return changed
