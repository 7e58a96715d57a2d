"""Chats without calls, tools and reasoning: the texts of a conversation are filled into the rendering of another.

Images are marks between texts (:mod:`packer.render.drawn`), which are part of the rendering.

What a template writes does not depend on what texts say (:mod:`packer.render.clear.watch`). So the rendering of
placeholder words, `Zq000W.`, `Zq001W.` and so on, serves for all conversations with the same roles and flags: each
word is replaced by the text. What remains to be known:

- What the template looks for in texts. It is noted while the words are rendered. A text that contains any of it is not
  filled in, and neither is one that is not clear (:mod:`packer.render.clear.rows`).
- How white space around a text is cut. Each slot takes the cut that explains what is left of that around other words.
- That a text cannot form a token or a tag together with what the template writes beside it. This is checked for all
  texts at once.

The definition renders such words once, with white space around them and a hard text behind. If what is filled in with
them differs from that, nothing is filled in.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from packer.batches import Message, Sample
from packer.literals import finder
from packer.media.carried import OPEN, PIECE
from packer.render.clear.rows import ClearRows
from packer.render.reasoning import has_tag, may_make_tag
from packer.render.rewritten_history import EncodedText, EncodedTurn, RenderedRow

WORTH_FILLING = 4
"""Number of conversations of one form that take about as long to render as it takes to prepare filling."""

_MOST_MESSAGES = 64
_MOST_FORMS = 4096
_SPACE = "\n \n"
"""White space around a word, of which each way to cut it leaves something else."""

Cut = Callable[[str], str]

_CUTS: tuple[Cut, ...] = (
    *(str, str.strip, str.lstrip, str.rstrip),
    *(lambda text: text.strip("\n"), lambda text: text.lstrip("\n"), lambda text: text.rstrip("\n")),
)
"""How templates cut white space around a text."""

_WORD = re.compile(rb"Zq(\d{3})W\.")
_HARD = " b\tc\n\nd Ünd ß \u2028 “x”\t{{ 3 }} %s \\n '\"<b>None</b>\r\n"
"""What stands behind the words that are rendered by the definition, unless the template looks for something of it."""


_Slot = tuple[int, Cut]
"""The number of a text, and how white space is cut."""

Form = tuple[object, ...]
"""What conversations have in common whose texts go into one rendering: roles, flags, where images are."""


@dataclass(frozen=True, slots=True)
class _Outline:
    """One document: fixed texts and slots."""

    parts: tuple[bytes, ...]
    slots: tuple[tuple[int, int], ...]
    """For each slot its place among the parts, and its number in `_Known.slots`."""

    turns: tuple[EncodedTurn, ...]
    """Turns, whose positions are numbers of parts."""

    def filled(self, texts: Sequence[bytes]) -> EncodedText:
        parts = list(self.parts)
        for place, slot in self.slots:
            parts[place] = texts[slot]
        ends = list(itertools.accumulate(map(len, parts), initial=0))
        return EncodedText(b"".join(parts), tuple([(k, ends[a], ends[b]) for k, a, b in self.turns]))


class _Known(NamedTuple):
    """The documents of a form."""

    outlines: Sequence[_Outline]
    slots: Sequence[_Slot]
    """In several documents, a text is nearly always cut in the same way."""

    is_odd: Callable[[str], bool]
    """Whether texts contain what none that is filled in may contain."""


class Filling:
    """Fills in chats under one template and one recipe."""

    def __init__(
        self,
        rows: ClearRows,
        render: Callable[[Sample], tuple[RenderedRow | None, set[str]]],
        define: Callable[[Sample], RenderedRow | None],
    ) -> None:
        """`render`: also returns what the template looks for in texts; `define`: the definition."""
        self._rows = rows
        self._render = render
        self._define = define
        self._made: dict[Form, _Known | None] = {}
        self._num_seen: dict[Form, int] = {}

    def filled(self, sample: Sample) -> RenderedRow | None:
        """Return a row without tools and variables as the definition renders it; None if it cannot be filled in."""
        if len(sample.messages) > _MOST_MESSAGES:
            return None
        form: list[object] = []
        texts: list[str] = []
        for message in sample.messages:
            fields = message.fields
            text = fields.get("content")
            if len(fields) != 2 or type(text) is not str or not text or message.spans is not None:
                return None
            form += (fields["role"], message.trained)
            if sample.images is None:
                texts.append(text)
            else:
                pieces = PIECE.findall(text)
                form.append(tuple([piece[0] == OPEN for piece in pieces]))
                texts += [piece for piece in pieces if piece[0] != OPEN]
        if any(map(str.isspace, texts)):
            return None
        known = self._known(tuple(form), sample, len(texts))
        return None if known is None else self._fill(known, texts)

    def _known(self, form: Form, sample: Sample, num_texts: int) -> _Known | None:
        if form not in self._made:
            num_seen = self._num_seen[form] = self._num_seen.get(form, 0) + 1
            if num_seen < WORTH_FILLING:
                return None
            if len(self._made) >= _MOST_FORMS:
                self._made.clear()
            self._made[form] = self._make(sample, num_texts)
        return self._made[form]

    def _fill(self, known: _Known, texts: Sequence[str]) -> RenderedRow | None:
        said = "\0".join(texts)
        if known.is_odd(said) or self._rows.includes_constant(said):
            return None
        try:
            encoded = [cut(texts[number]).encode() for number, cut in known.slots]
            documents = tuple([outline.filled(encoded) for outline in known.outlines])
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
        if sum([len(each.content) for each in documents]) > self._rows.rules.max_bytes // 2:
            return None  # the renderings may be larger, by the headers of prompts
        # A turn is trained in the last document that begins with it.
        for number, document in enumerate(documents[:-1], 1):
            _, _, completion_end = document.turns[0]
            first = document.content[:completion_end]
            if any(later.content.startswith(first) for later in documents[number:]):
                return None
        return RenderedRow(documents, 0)

    def _make(self, sample: Sample, num_texts: int) -> _Known | None:
        words = [f"Zq{number:03d}W." for number in range(num_texts)]
        rendered, sought = self._render(_with_texts(sample, words))
        if rendered is None or "" in sought or any("Zq" in each for each in sought):
            return None  # texts, or what is put together of them, are compared with something
        contains_odd = finder([*self._rows.odd, *sought, "&", "\ufffd"])

        def is_odd(text: str) -> bool:
            return contains_odd(text) or has_tag(text)

        hard = [f"{_SPACE}{word}{'' if is_odd(_HARD) else _HARD}{_SPACE}" for word in words]
        defined = self._define(_with_texts(sample, hard))
        if defined is None or len(defined.texts) != len(rendered.texts):
            return None
        outlines, slots = [], dict[_Slot, int]()
        for text, other in zip(rendered.texts, defined.texts, strict=True):
            cuts = _cuts(text.content, other.content, hard)
            if cuts is None:
                return None
            outlines.append(_outline(text, cuts, slots))
        if any(_touches(outline, self._rows.odd) for outline in outlines):
            return None
        known = _Known(outlines, list(slots), is_odd)
        return known if self._fill(known, hard) == defined else None


def _with_texts(sample: Sample, texts: Sequence[str]) -> Sample:
    """Return a sample with other texts in place of those between its images."""
    remaining, messages = iter(texts), []
    for message in sample.messages:
        pieces = PIECE.findall(message.fields["content"]) if sample.images else [""]
        content = "".join([piece if piece[:1] == OPEN else next(remaining) for piece in pieces])
        messages.append(Message(fields={"role": message.role, "content": content}, trained=message.trained))
    return Sample(kind="chat", row=sample.row, messages=tuple(messages), images=sample.images)


def _cuts(content: bytes, other: bytes, texts: Sequence[str]) -> list[Cut] | None:
    """Return how white space is cut in each slot: the one way that explains a document of other texts."""
    first, *rest = _WORD.split(content)  # text, number, text, number, …, text
    at, cuts = len(first), []
    for number, behind in zip(rest[::2], rest[1::2], strict=True):
        text = texts[int(number)]
        fitting = {cut(text): cut for cut in _CUTS if other.startswith(cut(text).encode() + behind, at)}
        if len(fitting) != 1:
            return None
        ((left, cut),) = fitting.items()
        cuts.append(cut)
        at += len(left.encode()) + len(behind)
    return cuts


def _outline(text: EncodedText, cuts: Sequence[Cut], known: dict[_Slot, int]) -> _Outline:
    """Return the outline of a document of words; new slots are numbered in `known`."""
    words = [match.span() for match in _WORD.finditer(text.content)]
    slots = [(int(text.content[a + 2 : b - 2]), cut) for (a, b), cut in zip(words, cuts, strict=True)]
    positions = {place for _, *places in text.turns for place in places}
    bounds = sorted({0, len(text.content), *positions, *(place for word in words for place in word)})
    parts = [text.content[a:b] for a, b in itertools.pairwise(bounds)]
    number_of = {place: number for number, place in enumerate(bounds)}
    places = [number_of[a] for a, _ in words]
    return _Outline(
        tuple(parts),
        tuple([(place, known.setdefault(slot, len(known))) for place, slot in zip(places, slots, strict=True)]),
        tuple([(message, number_of[a], number_of[b]) for message, a, b in text.turns]),
    )


def _touches(outline: _Outline, odd: Iterable[str]) -> bool:
    """Whether a text may form a token, a tag or an escape with what stands beside it, or with the next text."""
    slots = {place for place, *_ in outline.slots}
    fixed = "".join("\0" if place in slots else part.decode() for place, part in enumerate(outline.parts)).split("\0")
    if "" in fixed[1:-1] or any("&" in before[-8:] for before in fixed[:-1]):
        return True
    if any(may_make_tag(*around) for around in {*itertools.pairwise(fixed)}):
        return True
    beginnings = tuple({token[:size] for token in odd for size in range(1, len(token))})
    ends = tuple({token[size:] for token in odd for size in range(1, len(token))})
    return any(text.endswith(beginnings) for text in set(fixed[:-1])) or any(
        text.startswith(ends) or any(end.startswith(text) for end in ends) for text in set(fixed[1:]) if text
    )
