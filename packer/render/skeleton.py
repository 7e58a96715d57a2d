"""What the documents of a shape of conversation have in common: texts, slots, and where turns begin and end.

Most templates render conversations of one shape (:mod:`packer.render.shape`) alike: the same texts around other words.
So the documents of one made-up conversation, recorded as they are worked out (:mod:`packer.render.recorder`), serve for
all others of its shape, once their texts are filled in.
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
    """One document: texts, slots, and where turns begin and end."""

    parts: tuple[bytes, ...]
    """One after another; empty where a slot is."""

    slots: tuple[tuple[int, int], ...]
    """Number of a part, and of its slot among those of the skeleton."""

    turns: tuple[EncodedTurn, ...]
    """Places count the parts before them."""

    def fill(self, values: Sequence[bytes], stops: re.Pattern[bytes]) -> EncodedText | None:
        """The document; None where a turn would end at another stop token."""
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
    """The documents of a shape."""

    outlines: tuple[_Outline, ...]
    slots: tuple[Slot, ...]
    conditions: tuple[Condition, ...]
    longest: int
    """Characters each text may have."""

    num_skipped: int
    """Answers that are not trained."""

    def meets(self, texts: Sequence[str]) -> bool:
        """Whether the template takes the same way for these texts."""
        return all(condition.met(condition.slot.value(texts[condition.slot.number])) for condition in self.conditions)

    def fill(self, texts: Sequence[str], stops: re.Pattern[bytes]) -> RenderedRow | None:
        """The documents of a conversation of this shape; None where its texts do not meet the conditions.

        Args:
            texts: without control tokens and tags of reasoning.
            stops: matches any stop token.

        Raises:
            UnicodeEncodeError: half of a surrogate pair.

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
    """The skeleton of recorded documents; None where texts may run into what is around them."""
    slots: dict[Slot, int] = {}
    outlines = [_outline(text, recorder, slots) for text in texts]
    whole = tuple(outline for outline in outlines if outline is not None)
    if not whole or len(whole) < len(outlines):
        return None
    return Skeleton(whole, tuple(slots), recorder.conditions, longest, num_skipped)


def _outline(text: EncodedText, recorder: TemplateRecorder, slots: dict[Slot, int]) -> _Outline | None:
    """A document of made-up texts, cut at its slots and where turns begin and end."""
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
    """The texts between slots."""
    bounds = [0, *(place for start, (end, _) in sorted(spans.items()) for place in (start, end)), len(content)]
    return [content[start:end].decode() for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
