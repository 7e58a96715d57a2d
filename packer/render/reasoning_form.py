"""Learns by trial how a template shows reasoning: in which form a message has to have it, and what stands around it.

Messages have reasoning in the fields `reasoning_content` and `thinking`, where transformers puts it. Some templates
read another key (`reasoning`, as Solar; `thoughts`), or parts of the content (Ministral). So each key that a template
names and that has *think*, *thought* or *reason* in it is tried with made-up words, and parts are, too. The first form
in which the template shows them is the one in which it gets all reasoning.

What the template writes around the words are its own markers. A row that has its reasoning inline, in tags that are no
markers of this template (`<think>` under gpt-oss), would have it trained as letters of the answer.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from packer.batches import REASONING_FIELDS
from packer.render.reasoning import (
    ANY_TAG,
    CLOSING,
    OPENING,
    closes_reasoning,
    closing_of,
    has_tag,
    opened_by,
    reasoning_fields,
    tag_at_end,
    without_tags,
)

Message: TypeAlias = Mapping[str, Any]

WORD, ANSWER, KEY = "Zq0W", "Zq1W", "Zq2W"

_OF_REASONING = re.compile("think|thought|reason")

_OWN_CLOSING = re.compile(r"[<\[{(|]{1,3}/[^\s<>\[\]{}()/]{1,60}[>\]})|]{1,3}")


class Form(NamedTuple):
    """Where a message may have its reasoning."""

    change: Callable[[Message], Message] | None
    made_up: Message
    """An answer that has it there."""


@dataclass(frozen=True, slots=True)
class ReasoningForm:
    """How a template shows reasoning."""

    change: Callable[[Message], Message] | None = None
    """Puts the reasoning of a message where the template looks for it; None if that is where messages have it."""

    around: frozenset[tuple[str, str]] = frozenset()
    """What it writes in front of reasoning and behind it; nothing if it shows none."""

    @property
    def own_tags(self) -> frozenset[str]:
        """Tags that only this template has around reasoning: `</plan>`, which closes what a `<plan>` opens."""
        return frozenset(_closing_at(after) for before, after in self.around if _own_opening(before, after))

    def apply(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages with their reasoning where the template looks for it."""
        change = self.change
        if change is None:
            return messages
        return [change(message) if reasoning_fields(message) else message for message in messages]

    def tag_in_answer(self, prompt: str, completion: str, marks: str) -> str | None:
        """Return a tag of reasoning in what is trained, but for the template's own around one block at the beginning.

        Other tags within that block are text of the reasoning, unless it begins with one. `marks` is the source of the
        template. If it knows no tags, they are text of the answer, too, but for one that closes what nothing opens; so
        are tags in code that it does not know.
        """
        begin, end = self._block(prompt, completion, marks)
        twice = OPENING.match(completion[begin:end].lstrip())
        rest = completion[end:]
        found = twice or ANY_TAG.search(without_tags(rest, marks, in_code=True))
        if found is None or self.around or has_tag(marks) or CLOSING.fullmatch(found[0]):
            return found[0] if found else next((tag for tag in sorted(self.own_tags) if tag in rest), None)
        return None

    def _block(self, prompt: str, completion: str, marks: str) -> tuple[int, int]:
        """Return where the reasoning begins that a turn opens with, and where the template's markers close it."""
        opened, begun = opened_by(prompt), OPENING.match(completion.lstrip())
        if closes_reasoning(prompt):
            return 0, 0
        known = opened.open_tag if opened else begun[0] if begun and begun[0] in marks else ""
        for before, after in self.around or ([(known, closing_of(known))] if known else []):
            opening, closing = tag_at_end(before.rstrip()) or _own_opening(before, after), after.strip()
            skipped, is_written, _ = completion.partition(opening or closing)
            is_first = is_written and before.rstrip().endswith(f"{skipped.lstrip()}{opening}")
            is_open = is_first and not prompt.rstrip().endswith(closing)
            if closing in completion and (is_open or not opening or prompt.rstrip().endswith(opening)):
                begin = len(skipped + opening) if is_first and opening else 0
                return begin, completion.index(closing) + len(closing)
        return 0, 0

    @property
    def marks_otherwise(self) -> bool:
        """Whether the template marks reasoning, and not with the tags that `inline` would put around it."""
        return bool(self.around) and not any(before.rstrip().endswith("<think>") for before, _ in self.around)


def _closing_at(after: str) -> str:
    found = _OWN_CLOSING.match(after.lstrip())
    return found[0] if found and not ANY_TAG.fullmatch(found[0]) else ""


def _own_opening(before: str, after: str) -> str:
    """Return the tag before reasoning that the one behind it closes; nothing if there is none, or it is a usual one."""
    opening = _closing_at(after).replace("/", "", 1)
    return opening if before.rstrip().endswith(opening) else ""


def learned(written: Iterable[Sequence[str | None]], forms: Sequence[Form]) -> ReasoningForm:
    """Choose the first form that shows; `written` has what the template made of each in each mode."""
    for form, texts in zip(forms, zip(*written, strict=True), strict=False):
        around = [found for text in texts if text is not None and (found := _around(text)) is not None]
        if around:
            return ReasoningForm(form.change, frozenset(around))
    return ReasoningForm()


def _around(text: str) -> tuple[str, str] | None:
    """Return what stands in front of the word and behind it, if that marks it off from the answer."""
    before, found, rest = text.partition(WORD)
    after, answered, _ = rest.partition(ANSWER)
    is_marked = found and answered and after.strip() and KEY not in text  # with it, the list is printed as it is
    return (before, after) if is_marked else None


def _under(key: str, message: Message) -> Message:
    return {**message, key: message[reasoning_fields(message)[0]]}


def _as_part(message: Message) -> Message:
    """Return a message with its reasoning as the first part of its content, as Mistral's API has it."""
    content = message.get("content")
    fields = reasoning_fields(message)
    part = {"type": "thinking", "thinking": message[fields[0]]}
    texts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    return {**{name: value for name, value in message.items() if name not in fields}, "content": [part, *texts]}


_FIELDS = {"role": "assistant", "content": ANSWER, **dict.fromkeys(REASONING_FIELDS[:2], WORD)}
_PARTS = _as_part(_FIELDS)
_IN_PARTS = {**_PARTS, "content": [{**_PARTS["content"][0], KEY: ""}, *_PARTS["content"][1:]]}
"""Its part of reasoning has a key that no template asks for."""


def forms_of(keys: Iterable[str]) -> tuple[Form, ...]:
    """Return the forms to try with a template that names some keys, in order."""
    named = [key for key in sorted(keys) if _OF_REASONING.search(key) and key not in REASONING_FIELDS[:2]]
    under = [functools.partial(_under, key) for key in named]
    return (Form(None, _FIELDS), *(Form(change, change(_FIELDS)) for change in under), Form(_as_part, _IN_PARTS))
