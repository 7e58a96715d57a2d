"""Finds names of speakers with which texts begin, such as `Claude:`, and takes them off where `roles` names them.

Texts of transcripts have the name of who speaks before what is said. Under a template, whose headers say it already,
it would be learned as the beginning of answers. No list of names is needed: a label that nearly all answers of a source
have in common is a name if nearly all that users say has one, too, and it is another. One that only answers have may be
what they say, as in `Answer: 42`.
"""

import operator
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from packer.batches import Message, Sample
from packer.source.decode import Refused
from packer.source.file_bytes import quoted
from packer.source.read_places import UnreadField

_WORD = r"[\w'’.-]{1,24}"
_NAME = (
    rf"(?:[#*_\[<(【>|]{{1,6}}\s?)?(?=[^\W\d_]){_WORD}(?: {_WORD}){{0,2}}"
    r"[\])>】*_|]{0,4}\s?[:：][*_\]】]{0,3}"
)
_LABEL = re.compile(rf"\s*(?P<label>{_NAME})(?!//)(?=\s*\S)")
"""Matches a label of one to three words with a colon, also in bold, in brackets or in a heading, that text follows."""

_OF_LINE = re.compile(rf"(?P<label>{_NAME}(?!//)|\#{{1,6}} ?{_WORD}(?: {_WORD}){{0,2}}(?=\s*\Z))")
"""Matches a label at the beginning of a line, or a heading without a colon."""

_MOST_LINES = 1000
"""Of a text, and characters of a line, which are searched for labels."""

_COLONS = (":", "：")
_FEWEST_ANSWERS = 2
_MOST_WITHOUT = 10
"""One in this many texts may begin otherwise."""

_OF = ("assistant", "user")


@dataclass(slots=True)
class _Texts:
    """The texts of one side in some rows."""

    num: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    """A text for each label."""

    def add(self, label: str, text: str) -> None:
        self.labels[label] += 1
        self.first.setdefault(label, text)

    def shared(self) -> str | None:
        """Return the label with which nearly all texts begin."""
        label, count = next(iter(self.labels.most_common(1)), ("", 0))
        return label if count and (self.num - count) * _MOST_WITHOUT <= self.num else None


class Labels:
    """Counts the labels with which texts of some rows begin."""

    def __init__(self) -> None:
        self._of = {role: _Texts() for role in _OF}
        self._num_rows: Counter[str] = Counter()
        """How many rows have an answer with a label."""

    def add(self, sample: Sample) -> None:
        names: set[str] = set()
        for message in sample.messages:
            role, text = message.fields["role"], message.fields.get("content")
            if role not in self._of or type(text) is not str or message.weight == 0 or not text or text.isspace():
                continue
            self._of[role].num += 1
            if (found := _LABEL.match(text)) is not None:
                self._of[role].add(label := found["label"], text)
                names |= {label} if role == "assistant" else set()
        self._num_rows.update(names)

    def found(self) -> Iterator[UnreadField]:
        """Yield the label that nearly all answers have; it is a name if what users say has one of theirs."""
        answers, name = self._of["assistant"], self._of["user"].shared()
        label = answers.shared() if answers.num >= _FEWEST_ANSWERS else None
        if label is not None:
            yield UnreadField(
                path=label,
                kind="label",
                num_rows=self._num_rows[label],
                example=" ".join(answers.first[label].split()),
                roles=((label, "assistant"), (name, "user")) if name not in (None, label) else (),
            )


def speakers_in(texts: Sequence[str]) -> tuple[str, str] | None:
    r"""Return the two labels that lines of most texts begin with in turn; None if there are none, or more are usual.

    Example:
        >>> speakers_in(["Q: Six?\nA: Yes.\nQ: Ten?\nA: No.", "Q: Seven?\nA: No."])
        ('Q:', 'A:')
        >>> speakers_in(["Title: Six\nBy: Ann\nYear: 7\nText: Ho.", "Title: Ten\nBy: Bo\nYear: 8\nText: Ha."])
    """
    lines = [text[: _MOST_LINES * _MOST_LINES].splitlines()[:_MOST_LINES] for text in texts]
    matches = [[_OF_LINE.match(line[:_MOST_LINES].lstrip()) for line in each] for each in lines]
    found = [[label["label"] for label in each if label] for each in matches]
    first = Counter(labels[0] for labels in found if labels)
    others = Counter(label for labels in found for label in {*labels} - {*labels[:1]})
    if len(texts) < _FEWEST_ANSWERS or not others:
        return None
    asked, answered = pair = first.most_common(1)[0][0], others.most_common(1)[0][0]
    turns = [[label for label in labels if label in pair] for labels in found]
    in_turn = [each[:1] == [asked] and len(each) > 1 and all(map(operator.ne, each, each[1:])) for each in turns]
    are_all = 2 * sum(map(len, turns)) > sum(map(len, found))
    return (asked, answered) if asked != answered and are_all and 2 * sum(in_turn) > len(texts) else None


def with_labels_off(sample: Sample, roles: Mapping[str, str]) -> Sample:
    """Return a sample of whose texts none begins with a label that `roles` says to be its speaker's name.

    Example:
        >>> said = Message(fields={"role": "assistant", "content": "Claude: At six."})
        >>> sample = Sample(kind="chat", row=0, messages=(said,))
        >>> with_labels_off(sample, {"Claude:": "assistant"}).messages[0].fields["content"]
        'At six.'
    """
    labels = [(name, role) for name, role in roles.items() if name.rstrip("*_]】").endswith(_COLONS)]
    if not labels or sample.kind != "chat":
        return sample

    def without(side: Sample) -> Sample:
        messages = tuple(_off(message, labels, f"$.messages[{k}]") for k, message in enumerate(side.messages))
        return msgspec.structs.replace(side, messages=messages)

    return sample.with_sides(without)


def _off(message: Message, labels: Collection[tuple[str, str]], where: str) -> Message:
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
