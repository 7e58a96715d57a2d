"""Beginnings of texts that `roles` names: a block of reasoning goes to its field, a speaker's name is taken off.

:mod:`packer.questions` finds what may be such a beginning. Whether it is one, only who made the rows knows, and says
it in `roles`: ``{"<plan>...</plan>": reasoning}``, or ``assistant`` if users see it; ``{"Claude:": assistant}``.
"""

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from packer.batches import Message, Sample
from packer.source.chat import with_reasoning_fields
from packer.source.decode import Refused
from packer.source.file_bytes import quoted

BETWEEN = "..."
"""What stands between the two marks in the name of a block."""

_ATTRIBUTES = r"(?:\s[^<>\[\]\n]{0,80})?"
TAG = re.compile(rf"([<\[{{(|◁｜]{{1,3}})([^\W\d_][\w.:-]{{0,40}}){_ATTRIBUTES}([>\]}})|▷｜]{{1,3}})")

NAME = r"[^\W\d_][\w '-]{0,40}"
HEADINGS = (rf"(#{{1,6}} ){NAME}:?(?=\n)", rf"(\*\*){NAME}(?::\*\*|\*\*:?)", rf"(){NAME}:")

_COLONS = (":", "：")


def is_label(closing: str) -> bool:
    """Whether a closing mark is a heading, such as `Action:`, of what follows it."""
    return any(re.match(form, f"{closing}\n") for form in HEADINGS)


def with_beginnings_read(sample: Sample, roles: Mapping[str, str]) -> Sample:
    """Return a sample without the beginnings of texts that `roles` names.

    No text begins with a label that is its speaker's name, and answers have blocks of reasoning in their fields for it.

    Example:
        >>> said = Message(fields={"role": "assistant", "content": "Claude: At six."})
        >>> sample = Sample(kind="chat", row=0, messages=(said,))
        >>> with_beginnings_read(sample, {"Claude:": "assistant"}).messages[0].fields["content"]
        'At six.'
    """
    labels = [(name, role) for name, role in roles.items() if name.rstrip("*_]】").endswith(_COLONS)]
    marks = [name.split(BETWEEN, 1) for name, role in roles.items() if role == "reasoning" and BETWEEN in name]
    if sample.kind != "chat" or not (labels or marks):
        return sample

    def changed(side: Sample) -> Sample:
        messages = []
        for number, message in enumerate(side.messages):
            where = f"$.messages[{number}]"
            messages.append(_with_reasoning_moved(_without_label(message, labels, where=where), marks, where=where))
        return msgspec.structs.replace(side, messages=tuple(messages))

    return sample.with_sides(changed)


def _with_reasoning_moved(message: Message, marks: Sequence[Sequence[str]], *, where: str) -> Message:
    """Return an answer with the blocks with which its text begins in the field for reasoning."""
    text = message.fields.get("content")
    if message.role != "assistant" or not isinstance(text, str):
        return message
    found: list[str] = []
    while (cut := _cut(text, marks)) is not None:
        inside, text = cut
        found.append(inside)
    for opening, closing in marks:
        if opening and _opened(text, opening):
            raise Refused("cut_off", f"{quoted(opening)} begins reasoning at {where}, and no {quoted(closing)} ends it")
    if not found:
        return message
    reasoning = "\n\n".join(found)
    if message.spans or message.fields.get("reasoning_content") not in (None, "", reasoning):
        raise Refused("wrong_type", f"a block of reasoning beside a field or spans that say something else at {where}")
    fields = with_reasoning_fields(message.fields | {"content": text}, reasoning)
    return msgspec.structs.replace(message, fields=fields)


def _cut(text: str, marks: Sequence[Sequence[str]]) -> tuple[str, str] | None:
    """Return what is in the block with which a text begins, and the text after it; None if it begins with none."""
    for opening, closing in marks:
        begun = _opened(text, opening)
        before = r"(?<!\S)" if closing[:1].isalnum() or closing[:1] in "#*`~" else ""  # `### Answer` is no `## Answer`
        end = re.compile(before + re.escape(closing)).search(text, begun.end()) if begun else None
        if begun and end:
            rest = text[end.start() if is_label(closing) else end.end() :].lstrip()
            return text[begun.end() : end.start()].strip(), rest
    return None


def _opened(text: str, opening: str) -> re.Match[str] | None:
    """Return what opens a block at the beginning of a text; a tag may have attributes."""
    tag = TAG.fullmatch(opening)
    pieces = [tag[1] + tag[2], tag[3]] if tag else [opening]
    return re.compile(r"\s*" + _ATTRIBUTES.join(map(re.escape, pieces))).match(text)


def _without_label(message: Message, labels: Collection[tuple[str, str]], *, where: str) -> Message:
    """Return a message without its speaker's name at the beginning of its text."""
    text = message.fields.get("content")
    if not isinstance(text, str):
        return message
    begun = text.lstrip()
    name = next((name for name, role in labels if role == message.role and begun.startswith(name)), None)
    if name is None:
        return message
    if message.spans:
        raise Refused(
            "wrong_type", f"spans of a text that begins with {quoted(name)}, the name of who speaks, at {where}"
        )
    return msgspec.structs.replace(message, fields=message.fields | {"content": begun.removeprefix(name).lstrip()})
