"""What the documents of one shape of conversation have in common: fixed texts, slots, and where turns begin and end.

Most templates render conversations of one shape (:mod:`packer.render.shape`) alike, with the same texts around
different words. So the documents of one placeholder conversation, recorded by :mod:`packer.render.recorder`, serve for
all others of its shape once their texts are filled in.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise

from packer.render.reasoning import may_make_tags
from packer.render.recorder import WRITTEN, TemplateRecorder
from packer.render.rewritten_history import EncodedText, EncodedTurn, RenderedRow
from packer.render.symbolic import Condition, Slot


@dataclass(frozen=True, slots=True)
class _Outline:
    """One document: fixed texts, slots, and where turns begin and end."""

    parts: tuple[bytes, ...]
    """The fixed texts in order, with an empty one for each slot."""

    slots: tuple[tuple[int, int], ...]
    """For each slot, its index in `parts` and its index in the skeleton's slots."""

    turns: tuple[EncodedTurn, ...]
    """Turns, whose positions are indices in `parts`."""

    def fill(self, values: Sequence[bytes], stops: re.Pattern[bytes]) -> EncodedText | None:
        """Return the document; None if a turn would end at another stop token."""
        parts = list(self.parts)
        for place, slot in self.slots:
            parts[place] = values[slot]
        ends = [0, *accumulate(map(len, parts))]
        content = b"".join(parts)
        turns = []
        for message, prompt, completion, weight in self.turns:
            stop = stops.search(content, ends[prompt])
            if stop is None or stop.end() != ends[completion]:
                return None
            turns.append((message, ends[prompt], ends[completion], weight))
        return EncodedText(content, tuple(turns))


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The documents of one shape of conversation, with slots for its texts."""

    outlines: tuple[_Outline, ...]
    slots: tuple[Slot, ...]
    conditions: tuple[Condition, ...]
    longest: int
    """Maximum length of each text, in characters."""

    num_skipped: int
    """Number of answers that are not trained."""

    def meets(self, texts: Sequence[str]) -> bool:
        """Whether the template treats these texts as it treated the placeholders."""
        return all(condition.met(condition.slot.value(texts[condition.slot.number])) for condition in self.conditions)

    def fill(self, texts: Sequence[str], stops: re.Pattern[bytes]) -> RenderedRow | None:
        """Return the documents of a conversation of this shape; None if its texts do not meet the conditions.

        The texts have neither control tokens nor reasoning tags.

        Raises:
            UnicodeEncodeError: a text contains half of a surrogate pair.
        """
        if max(map(len, texts), default=0) > self.longest or not self.meets(texts):
            return None
        values = [slot.value(texts[slot.number]).encode() for slot in self.slots]
        filled: list[EncodedText] = []
        for outline in self.outlines:
            document = outline.fill(values, stops)
            if document is None:
                return None
            filled.append(document)
        # A turn is trained in the last document that begins with it.
        if len(filled) > 1 and any(
            later.content.startswith(one.content[: one.turns[0][2]]) for one, later in combinations(filled, 2)
        ):
            return None
        return RenderedRow(tuple(filled), self.num_skipped)


def skeleton_of(
    texts: Sequence[EncodedText], recorder: TemplateRecorder, *, longest: int, num_skipped: int
) -> Skeleton | None:
    """Make a skeleton of recorded documents; None if a text could merge with the fixed texts around it."""
    slots: dict[Slot, int] = {}
    outlines = [_outline(text, recorder, slots) for text in texts]
    whole = tuple(outline for outline in outlines if outline is not None)
    if not whole or len(whole) < len(outlines):
        return None
    return Skeleton(whole, tuple(slots), recorder.conditions, longest, num_skipped)


def _outline(text: EncodedText, recorder: TemplateRecorder, slots: dict[Slot, int]) -> _Outline | None:
    """Cut a document of placeholder texts at its slots and at the boundaries of its turns."""
    content = text.content
    spans = {match.start(): (match.end(), recorder.slot(match)) for match in WRITTEN.finditer(content)}
    if may_make_tags(_between(content, spans)):
        return None
    cuts = {0, len(content), *spans, *(end for end, _ in spans.values())}
    cuts |= {place for _, *places, _ in text.turns for place in places}
    bounds = sorted(cuts)
    if any(start < place < end for start, (end, _) in spans.items() for place in bounds):
        return None
    before = {place: number for number, place in enumerate(bounds)}
    return _Outline(
        parts=tuple(b"" if start in spans else content[start:end] for start, end in pairwise(bounds)),
        slots=tuple((before[start], slots.setdefault(slot, len(slots))) for start, (_, slot) in spans.items()),
        turns=tuple((message, before[start], before[end], weight) for message, start, end, weight in text.turns),
    )


def _between(content: bytes, spans: Mapping[int, tuple[int, Slot]]) -> list[str]:
    """Return the fixed texts before, between and after the slots."""
    bounds = [0, *(place for start, (end, _) in sorted(spans.items()) for place in (start, end)), len(content)]
    return [content[start:end].decode() for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
