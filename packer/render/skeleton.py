"""The texts of a conversation without rendering it: its skeleton, filled with its words.

Conversations of one *form* (:mod:`packer.render.forms`) and of the same weights are rendered alike by most templates:
the same texts between the words. For a form that comes again, the whole definition of the renderer is run once on a
conversation of made-up words, over a template that is traced (:mod:`packer.render.tracing`). What comes out is the
skeleton: texts, slots, where turns begin and end. A conversation of that form is then filled in, if its words meet the
conditions; else it is rendered as if there were no skeletons. The outcome is the same, byte for byte. Why:

1. Every rendering that the definition asks for is, for words that meet the conditions, the rendering of the made-up
   words with the real ones in the slots. That is what a trace proves, and a trial with long words holds it to the
   limits of the sandbox (:mod:`packer.render.trial`).
2. What the definition asks about renderings is then asked of texts with slots at the same places. A skeleton is only
   made where all it was told of the made-up ones holds for the real ones too: a text begins with another (it still does
   with words in the slots); a message's words stand in a text (their slot does); one prompt is longer than another
   (both hold the same slots); the first stop token of a turn is here (it is looked for again in the filled text).
   Two texts of one conversation, a prompt that is not continued, a second try, a header that is looked for, a loss: no
   skeleton.
3. What the definition asks about words themselves it is told alike for all words that are not blank and hold neither a
   control token nor a tag of reasoning.
4. Which form of nulls a template takes is tried before the first prompt. A try that raises does so whatever the words
   are, which the trace proves and the trial sees. How often two tries say None is told apart by what stands between
   words (:func:`packer.render.asked._tells_nulls`).
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

from packer.batches import Message, Sample
from packer.literals import longest_of
from packer.render.asked import WRITTEN, Asked
from packer.render.environment import ChatTemplate, RenderError
from packer.render.forms import Form, FormlessError, read_message
from packer.render.reasoning import ANY_TAG, may_make_tags
from packer.render.slots import Condition, Slot, UntraceableError, Words
from packer.render.tracing import Tracer

Weights: TypeAlias = tuple[float | None, ...]
"""Own weight of every message."""

_FEW = 3
"""Conversations of a form that are rendered before a skeleton is made for it: it costs as much as some renderings."""

_MAX_FORMS = 4096

Turn: TypeAlias = tuple[int, int, int, float]
"""Message, end of the prompt, end of the completion, weight."""


class Filled(NamedTuple):
    """What a conversation is rendered to."""

    content: bytes
    turns: tuple[Turn, ...]
    """Places count bytes."""

    num_skipped: int
    """As :attr:`Defined.num_skipped`."""


class Defined(NamedTuple):
    """What the definition makes of made-up words."""

    text: str
    turns: tuple[Turn, ...]
    """Places count characters."""

    num_skipped: int
    """Answers that say nothing and are not learned."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """Texts of a form, slots, and where turns begin and end."""

    parts: tuple[bytes, ...]
    """One after another; empty where a slot is."""

    slots: tuple[tuple[int, Slot], ...]
    """With the number of the part."""

    turns: tuple[Turn, ...]
    """Places count the parts before them."""

    num_skipped: int

    conditions: tuple[Condition, ...]
    longest: int
    """Characters each word may have."""

    def fill(self, words: Words, stops: re.Pattern[bytes]) -> Filled | None:
        """The text of a conversation of this form; None where its words do not meet the conditions.

        Args:
            words: without control tokens and tags of reasoning.
            stops: matches any stop token.

        Raises:
            UnicodeEncodeError: half of a surrogate pair.

        """
        if any(size > self.longest for size in words.sizes):
            return None
        if not all(condition.met(words.of(condition.slot)) for condition in self.conditions):
            return None
        parts = list(self.parts)
        for place, slot in self.slots:
            parts[place] = words.of(slot).encode()
        ends = [0, *accumulate(map(len, parts))]
        content = b"".join(parts)
        turns = []
        for message, prompt, completion, weight in self.turns:
            stop = stops.search(content, ends[prompt])
            if stop is None or stop.end() != ends[completion]:
                return None
            turns.append((message, ends[prompt], ends[completion], weight))
        return Filled(content, tuple(turns), self.num_skipped)


class Skeletons:
    """The skeletons of one template and one recipe, made for forms that come again.

    Args:
        template: renders what the definition asks of it.
        tracer: the same template.
        define: the definition: what becomes of a sample under a template, one text or several.
        stops: texts of the stop tokens.
        control: texts of the control tokens.
        max_bytes: what a rendering may come to.

    """

    def __init__(
        self,
        template: ChatTemplate,
        tracer: Tracer,
        define: Callable[[Sample, Any], Sequence[Defined]],
        *,
        stops: Sequence[str],
        control: Sequence[str],
        max_bytes: int,
    ) -> None:
        self._template = template
        self._tracer = tracer
        self._define = define
        self._stops = re.compile(longest_of(stops).encode())
        self._special = _special(control)
        self._max_bytes = max_bytes
        self._made: OrderedDict[tuple[Form, Weights], Skeleton | int | None] = OrderedDict()

    def fill(self, sample: Sample) -> Filled | None:
        """The text of a sample; None where it has to be rendered."""
        if sample.kind != "chat" or sample.template_kwargs or sample.tools:
            return None
        values: list[str] = []
        try:
            form = tuple([read_message(message.fields, values) for message in sample.messages])
        except FormlessError:
            return None
        skeleton = self._skeleton(form, tuple([message.weight for message in sample.messages]))
        if skeleton is None:
            return None
        words = Words(values)
        try:
            return None if self._special.search("\n".join(values)) else skeleton.fill(words, self._stops)
        except UnicodeEncodeError:  # half of a surrogate pair
            return None

    def _skeleton(self, form: Form, weights: Weights) -> Skeleton | None:
        known = self._made.get((form, weights), 0)
        if isinstance(known, int):
            known = known + 1 if known < _FEW else self._make(form, weights)
            self._made[form, weights] = known
            if len(self._made) > _MAX_FORMS:
                self._made.popitem(last=False)
        return known if isinstance(known, Skeleton) else None

    def _make(self, form: Form, weights: Weights) -> Skeleton | None:
        asked = Asked(self._template, self._tracer, form, max_bytes=self._max_bytes)
        messages = [
            Message(fields=fields, weight=weight) for fields, weight in zip(asked.messages, weights, strict=True)
        ]
        try:
            texts = self._define(Sample(kind="chat", row=0, messages=tuple(messages)), asked)
        except (UntraceableError, RenderError):
            return None
        if len(texts) != 1 or not asked.plain:
            return None
        return _skeleton_of(texts[0], asked)


def _special(control: Iterable[str]) -> re.Pattern[str]:
    tokens = list(control)
    return re.compile("|".join([ANY_TAG.pattern, *([longest_of(tokens)] if tokens else [])]))


def _skeleton_of(defined: Defined, asked: Asked) -> Skeleton | None:
    """A text of made-up words, cut at its slots and where turns begin and end."""
    spans = {match.start(): (match.end(), asked.slot(match[1], match[2])) for match in WRITTEN.finditer(defined.text)}
    if may_make_tags(_between(defined.text, spans)):
        return None
    cuts = {0, len(defined.text), *spans, *(end for end, _ in spans.values())}
    cuts |= {place for _, *places, _ in defined.turns for place in places}
    bounds = sorted(cuts)
    if any(start < place < end for start, (end, _) in spans.items() for place in bounds):
        return None
    before = {place: number for number, place in enumerate(bounds)}
    return Skeleton(
        parts=tuple(b"" if start in spans else defined.text[start:end].encode() for start, end in pairwise(bounds)),
        slots=tuple((before[start], slot) for start, (_, slot) in sorted(spans.items())),
        turns=tuple((message, before[start], before[end], weight) for message, start, end, weight in defined.turns),
        num_skipped=defined.num_skipped,
        conditions=tuple(asked.conditions),
        longest=asked.longest,
    )


def _between(text: str, spans: Mapping[int, tuple[int, Slot]]) -> list[str]:
    """The texts between slots."""
    bounds = [0, *(place for start, (end, _) in sorted(spans.items()) for place in (start, end)), len(text)]
    return [text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
