"""Chats without calls, tools and reasoning: the texts of a conversation are filled into the rendering of another.

What a template writes does not depend on what texts say (:mod:`packer.render.clear.questions`). So the rendering of
placeholder words, `Zq000W.`, `Zq001W.` and so on, serves for all conversations with the same roles and weights: each
word is replaced by the text. What remains to be known:

- What the template looks for in texts. It is noted while the words are rendered. A text that contains any of it is not
  filled in, and neither is one that is not clear (:mod:`packer.render.clear.rows`).
- How white space around a text is cut. The words are rendered once more with white space around them, and each slot
  takes the cut that explains what is left.
- That a text cannot form a token or a tag together with what the template writes beside it. This is checked for all
  texts at once.

The words are rendered by the definition, too, and hard texts both ways: if anything differs, nothing is filled in.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from packer.batches import Message, Sample
from packer.literals import longest_of
from packer.render.clear.rows import ClearRows
from packer.render.reasoning import ANY_TAG, may_make_tag
from packer.render.rewritten_history import EncodedText, EncodedTurn, RenderedRow

WORTH_FILLING = 4
"""Number of conversations of one form that take about as long to render as it takes to prepare filling."""

_MOST_MESSAGES = 64
_MOST_FORMS = 4096
_SPACE = "\n \n"
Cut = Callable[[str], str]

_CUTS: tuple[Cut, ...] = (
    *(str, str.strip, str.lstrip, str.rstrip),
    *(lambda text: text.strip("\n"), lambda text: text.lstrip("\n"), lambda text: text.rstrip("\n")),
)
"""How templates cut white space around a text."""

_WORD = re.compile(rb"Zq(\d{3})W\.")
_HARD = ("\n  A {k} b\tc\n\nd  ", "Ünd ß {k} \u2028 “x”\t{{{{ {k} }}}} %s \\n '\"<b>None</b>" + "x" * 2000 + "\r\n")

Form = tuple[object, ...]
Render = Callable[[Sample], RenderedRow | None]


@dataclass(frozen=True, slots=True)
class _Outline:
    """One document: fixed texts and slots."""

    parts: tuple[bytes, ...]
    slots: tuple[tuple[int, int, Cut], ...]
    """For each slot its place among the parts, the number of its message, and how it cuts white space."""

    turns: tuple[EncodedTurn, ...]
    """Turns, whose positions are numbers of parts."""

    def filled(self, texts: Sequence[str]) -> EncodedText:
        parts = list(self.parts)
        for place, number, cut in self.slots:
            parts[place] = cut(texts[number]).encode()
        ends, end = [0], 0
        for part in parts:
            end += len(part)
            ends.append(end)
        return EncodedText(b"".join(parts), tuple([(k, ends[a], ends[b], weight) for k, a, b, weight in self.turns]))


_Known = tuple[tuple[_Outline, ...], re.Pattern[str]]
"""The documents of a form, and what no text that is filled in may contain."""


class Filling:
    """Fills in chats under one template and one recipe."""

    def __init__(self, rows: ClearRows, render: Render, define: Render) -> None:
        """`render`: the fast way; `define`: the definition."""
        self._rows = rows
        self._render = render
        self._define = define
        self._made: dict[Form, _Known | None] = {}
        self._num_seen: dict[Form, int] = {}

    def filled(self, sample: Sample) -> RenderedRow | None:
        """Return a row as the definition renders it; None if it cannot be filled in."""
        if sample.tools or sample.template_kwargs or len(sample.messages) > _MOST_MESSAGES:
            return None
        form: list[object] = []
        texts: list[str] = []
        for message in sample.messages:
            fields = message.fields
            text = fields.get("content")
            if len(fields) != 2 or type(text) is not str or not text or text.isspace():
                return None
            form += (fields["role"], message.weight)
            texts.append(text)
        known = self._known(tuple(form), sample)
        return None if known is None else self._fill(*known, texts)

    def _known(self, form: Form, sample: Sample) -> _Known | None:
        if form not in self._made:
            num_seen = self._num_seen[form] = self._num_seen.get(form, 0) + 1
            if num_seen < WORTH_FILLING:
                return None
            if len(self._made) >= _MOST_FORMS:
                self._made.clear()
            self._made[form] = self._make(sample)
        return self._made[form]

    def _fill(self, outlines: Sequence[_Outline], odd: re.Pattern[str], texts: Sequence[str]) -> RenderedRow | None:
        said = "\0".join(texts)
        if "&" in said or "\ufffd" in said or odd.search(said):
            return None
        if not all(self._rows.is_own(text.strip()) for text in texts):
            return None
        try:
            documents = tuple([outline.filled(texts) for outline in outlines])
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
        if sum([len(each.content) for each in documents]) > self._rows.max_bytes // 2:
            return None  # the renderings may be larger, by the headers of prompts
        # A turn is trained in the last document that begins with it.
        for one, later in itertools.combinations(documents, 2):
            if later.content.startswith(one.content[: one.turns[0][2]]):
                return None
        return RenderedRow(documents, 0)

    def _make(self, sample: Sample) -> _Known | None:
        words = [f"Zq{number:03d}W." for number in range(len(sample.messages))]
        plain = _with_texts(sample, words)
        rendered = self._render(plain)
        sought = self._rows.last_sought
        spaced = self._define(_with_texts(sample, [f"{_SPACE}{word}{_SPACE}" for word in words]))
        if rendered is None or spaced is None or rendered != self._define(plain):
            return None
        if "" in sought or any("Zq" in each for each in sought):  # texts are compared with each other
            return None
        outlines = []
        for text, other in zip(rendered.texts, spaced.texts, strict=True):
            cuts = _cuts(text.content, other.content)
            if cuts is None:
                return None
            outlines.append(_outline(text, cuts))
        if any(_touches(outline, self._rows.odd) for outline in outlines):
            return None
        known = tuple(outlines), re.compile(f"{longest_of([*self._rows.odd, *sought])}|{ANY_TAG.pattern}")
        for hard in _HARD:
            texts = [hard.format(k=number) for number in range(len(words))]
            filled = self._fill(*known, texts)
            if filled is not None and filled != self._define(_with_texts(sample, texts)):
                return None
        return known


def _with_texts(sample: Sample, texts: Sequence[str]) -> Sample:
    messages = [
        Message(fields={"role": message.role, "content": text}, weight=message.weight)
        for message, text in zip(sample.messages, texts, strict=True)
    ]
    return Sample(kind="chat", row=sample.row, messages=tuple(messages))


def _cuts(content: bytes, spaced: bytes) -> list[Cut] | None:
    """Return how white space is cut in each slot: the one way that explains a document of words amid space."""
    first, *rest = _WORD.split(content)  # text, number, text, number, …, text
    if not spaced.startswith(first):
        return None
    at, cuts = len(first), []
    for number, behind in zip(rest[::2], rest[1::2], strict=True):
        word = f"{_SPACE}Zq{number.decode()}W.{_SPACE}"
        fitting = {cut(word): cut for cut in _CUTS if spaced.startswith(cut(word).encode() + behind, at)}
        if len(fitting) != 1:
            return None
        ((left, cut),) = fitting.items()
        cuts.append(cut)
        at += len(left.encode()) + len(behind)
    return cuts if at == len(spaced) else None


def _outline(text: EncodedText, cuts: Sequence[Cut]) -> _Outline:
    slots = [match.span() for match in _WORD.finditer(text.content)]
    positions = {place for _, *places, _ in text.turns for place in places}
    bounds = sorted({0, len(text.content), *positions, *(place for slot in slots for place in slot)})
    parts = [text.content[a:b] for a, b in itertools.pairwise(bounds)]
    number_of = {place: number for number, place in enumerate(bounds)}
    return _Outline(
        tuple(parts),
        tuple([(number_of[a], int(text.content[a + 2 : b - 2]), cut) for (a, b), cut in zip(slots, cuts, strict=True)]),
        tuple([(message, number_of[a], number_of[b], weight) for message, a, b, weight in text.turns]),
    )


def _touches(outline: _Outline, odd: Iterable[str]) -> bool:
    """Whether a text may form a token, a tag or an escape with what stands beside it, or with the next text."""
    slots = {place for place, *_ in outline.slots}
    fixed = "".join("\0" if place in slots else part.decode() for place, part in enumerate(outline.parts)).split("\0")
    if "" in fixed[1:-1] or any("&" in before[-8:] for before in fixed[:-1]):
        return True
    if any(may_make_tag(*around) for around in {*itertools.pairwise(fixed)}):
        return True
    begun = tuple({token[:size] for token in odd for size in range(1, len(token))})
    left = tuple({token[size:] for token in odd for size in range(1, len(token))})
    return any(text.endswith(begun) for text in set(fixed[:-1])) or any(
        text.startswith(left) or any(each.startswith(text) for each in left) for text in set(fixed[1:]) if text
    )
