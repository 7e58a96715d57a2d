"""Reasoning before an answer: its tags, where a message stores it, and prompts that open a block of it.

Templates disagree about reasoning. Some take it from a field of the message, some expect it inline in `<think>` tags,
some drop it. Some write the opening tag into the prompt, so that the model continues inside the block.
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
    ("<|channel>thought", "<channel|>"),
    ("<mm:think>", "</mm:think>"),
    ("<seed:think>", "</seed:think>"),
)
"""Opening and closing tags that templates delimit reasoning with."""

_CLOSING = dict(TAGS)
_PAIRS = [(re.escape(opening), re.escape(closing)) for opening, closing in TAGS]
_OPENINGS, _CLOSINGS = map("|".join, zip(*_PAIRS, strict=True))

OPENING = frozenset(_CLOSING)

ANY_TAG = re.compile(f"{_OPENINGS}|{_CLOSINGS}")
"""Matches any opening or closing tag."""

EMPTY_BLOCK = re.compile("(?:" + "|".join(rf"{opening}\s*{closing}" for opening, closing in _PAIRS) + r")\s*")
"""Matches an empty block of reasoning and the white space after it."""

_INLINE = re.compile(
    r"\s*(?:" + "|".join(f"{opening}(.*?){closing}" for opening, closing in _PAIRS) + r")\s*", re.DOTALL
)

_ALL_OPENING, _ALL_CLOSING = zip(*TAGS, strict=True)
_ALL = (*_ALL_OPENING, *_ALL_CLOSING)

Message = Mapping[str, Any]


class ReasoningOpening(NamedTuple):
    """The ending of a prompt that opens the reasoning, such as `<think>⏎`, or also closes it: `<think></think>`."""

    start: int
    """Position of the opening tag in the prompt."""

    open_tag: str
    space: str
    """White space after the opening tag."""

    closed: bool


def opened_by(prompt: str) -> ReasoningOpening | None:
    """Return the block of reasoning that a prompt ends with, open or empty; None if there is none."""
    bare = prompt.rstrip()  # no search: prompts are long
    if not bare.endswith(_ALL):  # nearly always
        return None
    close = next((tag for tag in _CLOSING.values() if bare.endswith(tag)), "")
    before = bare.removesuffix(close)
    inner = before.rstrip() if close else bare
    open_tag = next((tag for tag in _CLOSING if inner.endswith(tag)), None)
    if open_tag is None or close not in ("", _CLOSING[open_tag]):
        return None
    space = (before if close else prompt)[len(inner) :]
    return ReasoningOpening(len(inner) - len(open_tag), open_tag, space, bool(close))


def without_ending(prompt: str) -> str:
    """Return a prompt without the tags and the white space at its end, in which its modes may differ."""
    bare = prompt.rstrip()
    while bare.endswith(_ALL):
        bare = bare.removesuffix(next(tag for tag in _ALL if bare.endswith(tag))).rstrip()
    return bare


def closes_reasoning(prompt: str) -> bool:
    """Whether a prompt ends with a closing tag, so that the model is to answer without reasoning."""
    return prompt.rstrip().endswith(_ALL_CLOSING)


def goes_on(prompt: str, completion: str) -> bool:
    """Whether a completion closes the block of reasoning that its prompt opens, and does not open it once more.

    Nemotron Nano's template writes the prompt and then the text of the last answer as it stands.
    """
    opened = opened_by(prompt)
    if opened is None or opened.closed:
        return True
    return _CLOSING[opened.open_tag] in completion and not completion.lstrip().startswith(opened.open_tag)


def shows_as_reasoning(reasoning: str, prompt: str, completion: str) -> bool:
    """Whether a completion shows a reasoning, and not behind a block of reasoning that is closed already.

    Some templates know reasoning in a field only. They write the block that a text starts with as part of the answer:
    after a prompt that ends in `</think>`, or after an empty block of their own.
    """
    place = completion.find(reasoning)
    if place < 0:
        return False
    before = (prompt + completion[:place]).rstrip()  # no search: prompts are long
    if before.endswith(_ALL_OPENING):
        before = before.removesuffix(next(tag for tag in _ALL_OPENING if before.endswith(tag))).rstrip()
    return not before.endswith(_ALL_CLOSING)


def continuation(opened: ReasoningOpening, reasoning: str, answer: str) -> str:
    """Return what a model writes after such a prompt: the reasoning, its closing tag, and the answer.

    The closing tag mirrors the opening one: if white space after that includes a newline, the closing tag is on a line
    of its own and followed by an empty line; otherwise there is no white space. `answer` is what the template writes
    for the turn; a block of reasoning at its start is not repeated.

    Worked example: after a prompt that ends in `<think>⏎`, reasoning `r` and answer `a` yield `r⏎</think>⏎⏎a`; without
    reasoning they yield `⏎</think>⏎⏎a`.
    """
    close_tag = _CLOSING[opened.open_tag]
    inline = split_inline(answer)
    if inline is not None:
        _, written, answer = inline
        reasoning = written if written.strip() else reasoning
    answer = re.sub(rf"\A\s*{re.escape(close_tag)}", "", answer)
    if opened.closed:
        return answer
    before, after = ("\n", "\n\n") if "\n" in opened.space else ("", "")
    return f"{reasoning.strip()}{before}{close_tag}{after}{answer}"


def split_inline(content: Any) -> tuple[str, str, str] | None:
    """Split off the block of reasoning that a text starts with: return the block, its content, and the text after it.

    None if there is no such block, or if the text after it contains another closing tag: then it is ambiguous where the
    block ends.
    """
    match = _INLINE.match(content) if isinstance(content, str) else None
    if match is None or any(closing in match.string[match.end() :] for _, closing in TAGS):
        return None
    inside = next(group for group in match.groups() if group is not None)
    return match[0].strip(), inside, match.string[match.end() :]


def cut_off(message: Message) -> str | None:
    """Return how an answer shows that its generation was cut off within its reasoning, or None."""
    content = message.get("content")
    text = content.lstrip() if isinstance(content, str) else ""
    if any(text.startswith(opening) and closing not in text for opening, closing in TAGS):
        return "its text opens a block of reasoning and does not close it"
    inline = split_inline(content)
    answer = inline[2] if inline else text
    if reasoning_of(message) and not answer.strip() and not message.get("tool_calls"):
        return "its reasoning is followed by no text and no call"
    return None


def has_two_reasonings(message: Message) -> bool:
    """Whether an assistant message has different reasoning in a field and inline: templates would write both."""
    inline = split_inline(message.get("content"))
    said = inline[1].strip() if inline else ""
    return bool(said) and said != reasoning_of(message)


def reasoning_fields(message: Message) -> list[str]:
    """Return the names of the fields in which a message has reasoning."""
    return [name for name in REASONING_FIELDS if isinstance(message.get(name), str) and message[name].strip()]


def reasoning_of(message: Message) -> str:
    """Return the reasoning of an assistant message, from its field or else inline; empty if there is none."""
    for name in reasoning_fields(message):
        return str(message[name]).strip()
    inline = split_inline(message.get("content"))
    return inline[1].strip() if inline else ""


def with_reasoning_as(message: Message, form: Reasoning) -> dict[str, Any]:
    """Return the message; an assistant's has its reasoning where `supervision.reasoning` wants it."""
    changed = dict(message)
    content = changed.get("content")
    if changed.get("role") != "assistant":
        return changed
    fields = reasoning_fields(changed)
    twice = split_inline(content) if fields else None
    if twice is not None and twice[1].strip() == changed[fields[0]].strip():
        changed["content"] = content = twice[2]  # most templates would write both
    if form == "as_given":
        return changed
    if form == "inline" and fields and split_inline(content) is None:
        text = changed[fields[0]].strip()
        changed["content"] = f"<think>\n{text}\n</think>\n\n{content or ''}"
        return {name: value for name, value in changed.items() if name not in REASONING_FIELDS}
    inline = split_inline(content) if form == "field" and not fields else None
    if inline is not None:
        _, reasoning, text = inline
        changed |= {"content": text, "reasoning_content": reasoning.strip(), "thinking": reasoning.strip()}
    return changed
