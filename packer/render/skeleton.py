"""The texts of a conversation without rendering it: its skeleton, filled with its words.

Conversations of one *form* (the same roles and weights, one text a message, no tools) are rendered alike by most
templates: the same texts between the words. For a form that comes again, the whole definition of the renderer is run
once on a conversation of made-up words, over a template that is traced (:mod:`packer.render.tracing`). What comes out
is the skeleton: texts, slots, where turns begin and end. A conversation of that form is then filled in, if its words
meet the conditions; else it is rendered as if there were no skeletons. The outcome is the same, byte for byte. Why:

1. Every rendering that the definition asks for is, for words that meet the conditions, the rendering of the made-up
   words with the real ones in the slots. That is what a trace proves, and a trial with long words holds it to the
   limits of the sandbox (:mod:`packer.render.filling`).
2. What the definition asks about renderings is then asked of texts with slots at the same places. A skeleton is only
   made where all it was told of the made-up ones holds for the real ones too: a text begins with another (it still does
   with words in the slots); a message's words stand in a text (their slot does); one prompt is longer than another
   (both hold the same slots); the first stop token of a turn is here (it is looked for again in the filled text).
   Two texts of one conversation, a prompt that is not continued, a second try, a header that is looked for, a loss: no
   skeleton.
3. What the definition asks about words themselves it is told alike for all words that are not blank and hold neither a
   control token nor a tag of reasoning.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

from packer.batches import Message, Sample
from packer.literals import longest_of
from packer.render.chat import JSONMessage
from packer.render.environment import ChatTemplate, RenderError
from packer.render.filling import traced
from packer.render.reasoning import ANY_TAG, may_make_tags
from packer.render.traced import Condition, Slot, UntraceableError
from packer.render.tracing import Tracer

Form: TypeAlias = tuple[tuple[str, float | None], ...]
"""Role and own weight of every message."""

_FEW = 3
"""Conversations of a form that are rendered before a skeleton is made for it: it costs as much as some renderings."""

_MAX_FORMS = 4096

_FIELDS = ["role", "content"]

_MARK = "zqslot"
_WRITTEN = re.compile(rf"{_MARK}(\d{{6,}})c(\d{{3,}})x")

_PROBED = frozenset("Zq0123456789xW")
"""Letters of the words, of any length, that :mod:`packer.render.dropped` puts in place of others."""

Turn: TypeAlias = tuple[int, int, int, float]
"""Message, end of the prompt, end of the completion, weight."""


class Filled(NamedTuple):
    """What a conversation is rendered to."""

    content: bytes
    turns: tuple[Turn, ...]
    """Places count bytes."""


class Defined(NamedTuple):
    """What the definition makes of made-up words."""

    text: str
    turns: tuple[Turn, ...]
    """Places count characters."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """Texts of a form, slots, and where turns begin and end."""

    parts: tuple[bytes, ...]
    """One after another; empty where a slot is."""

    slots: tuple[tuple[int, int, Callable[[str], str] | None], ...]
    """Number of the part, of the message whose words go there, and what cuts them."""

    turns: tuple[Turn, ...]
    """Places count the parts before them."""

    conditions: tuple[Condition, ...]
    longest: int
    """Characters a message's words may have."""

    def fill(self, words: Sequence[str], stops: re.Pattern[bytes]) -> Filled | None:
        """The text of a conversation of this form; None where its words do not meet the conditions.

        Args:
            words: the text of each message, not blank, without control tokens and tags of reasoning.
            stops: matches any stop token.

        Raises:
            UnicodeEncodeError: half of a surrogate pair.

        """
        longest = self.longest
        for word in words:
            if len(word) > longest:
                return None
        for condition in self.conditions:
            if not condition.met(condition.slot.value(words[condition.slot.number])):
                return None
        parts = list(self.parts)
        for place, number, cut in self.slots:
            word = words[number]
            parts[place] = (word if cut is None else cut(word)).encode()
        ends = [0, *accumulate(map(len, parts))]
        content = b"".join(parts)
        turns = []
        for message, prompt, completion, weight in self.turns:
            stop = stops.search(content, ends[prompt])
            if stop is None or stop.end() != ends[completion]:
                return None
            turns.append((message, ends[prompt], ends[completion], weight))
        return Filled(content, tuple(turns))


class Skeletons:
    """The skeletons of one template and one recipe, made for forms that come again.

    Args:
        template: renders what the definition asks of it.
        tracer: the same template.
        define: the definition: what becomes of a sample under a template, one text or several.
        stops: texts of the stop tokens.
        control: matches any control token.
        max_bytes: what a rendering may come to.

    """

    def __init__(
        self,
        template: ChatTemplate,
        tracer: Tracer,
        define: Callable[[Sample, Any], Sequence[Defined]],
        *,
        stops: Sequence[str],
        control: re.Pattern[str] | None,
        max_bytes: int,
    ) -> None:
        self._template = template
        self._tracer = tracer
        self._define = define
        self._stops = re.compile(longest_of(stops).encode())
        patterns = [ANY_TAG.pattern, *([control.pattern] if control else [])]
        self._special = re.compile("|".join(patterns))
        self._max_bytes = max_bytes
        self._made: OrderedDict[Form, Skeleton | int | None] = OrderedDict()

    def fill(self, sample: Sample) -> Filled | None:
        """The text of a sample; None where it has to be rendered."""
        form, words = _form_of(sample)
        if not form:
            return None
        skeleton = self._skeleton(form)
        if skeleton is None:
            return None
        search = self._special.search
        for word in words:
            if not word or word.isspace() or search(word):
                return None
        try:
            return skeleton.fill(words, self._stops)
        except UnicodeEncodeError:
            return None

    def _skeleton(self, form: Form) -> Skeleton | None:
        known = self._made.get(form, 0)
        if isinstance(known, int):
            known = known + 1 if known < _FEW else self._make(form)
            self._made[form] = known
            if len(self._made) > _MAX_FORMS:
                self._made.popitem(last=False)
        return known if isinstance(known, Skeleton) else None

    def _make(self, form: Form) -> Skeleton | None:
        messages = tuple(
            Message(fields={"role": role, "content": _made_up(number)}, weight=weight)
            for number, (role, weight) in enumerate(form)
        )
        asked = _Asked(
            self._template, self._tracer, [message.fields for message in messages], max_bytes=self._max_bytes
        )
        try:
            texts = self._define(Sample(kind="chat", row=0, messages=messages), asked)
        except (UntraceableError, RenderError):
            return None
        if len(texts) != 1 or not asked.plain:
            return None
        return _skeleton_of(texts[0], asked)


def _form_of(sample: Sample) -> tuple[Form, list[str]]:
    """The form of a sample and the words of its messages; no form where it is not so simple."""
    if sample.kind != "chat" or sample.tools or sample.template_kwargs:
        return (), []
    form, words = [], []
    for message in sample.messages:
        fields = message.fields
        if [*fields] != _FIELDS:
            return (), []
        role, text = fields.values()
        if type(text) is not str:
            return (), []
        form.append((str(role), message.weight))
        words.append(text)
    return tuple(form), words


def _made_up(number: int) -> str:
    """Words that are in no conversation but as a whole."""
    return f"{_MARK}{number:06d}"


class _Asked:
    """The template as the definition sees it: made-up words are traced, and what is asked is kept.

    Args:
        template: renders everything else.
        tracer: the same template.
        messages: the conversation of made-up words.
        max_bytes: what a rendering may come to.

    """

    def __init__(
        self, template: ChatTemplate, tracer: Tracer, messages: Sequence[JSONMessage], *, max_bytes: int
    ) -> None:
        self.modes = template.modes
        self.takes_only_parts = template.takes_only_parts
        self.conditions: list[Condition] = []
        self.longest = max_bytes
        self._max_bytes = max_bytes
        self._template = template
        self._tracer = tracer
        self._messages = list(messages)
        self._prompts: dict[int, list[Counter[Slot]]] = {}
        self._turns: list[int] = []
        self._cuts: list[tuple[Any, ...]] = []

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """As :meth:`ChatTemplate.render`; made-up words come out with how they were stripped.

        Raises:
            UntraceableError: the template looks into words, raises, or is asked for something out of the ordinary.

        """
        if not any(_MARK in str(message.get("content")) for message in messages):
            return self._template.render(
                messages, tools=tools, add_generation_prompt=add_generation_prompt, kwargs=kwargs
            )
        number = len(messages)
        if list(messages) != self._messages[:number]:
            raise UntraceableError("another conversation")
        if tools:
            raise UntraceableError("tools")
        variables = {**(kwargs or {}), "add_generation_prompt": add_generation_prompt}
        roles = [str(message["role"]) for message in messages]
        rendering = traced(self._template, self._tracer, roles, variables, max_bytes=self._max_bytes)
        if any(isinstance(piece, str) and _MARK in piece for piece in rendering.pieces):
            raise UntraceableError("the template writes what stands for words")
        if any(_PROBED.issuperset(condition.text) for condition in rendering.conditions):
            raise UntraceableError("the template may ask for the words that losses are looked for with")
        if add_generation_prompt:
            slots = Counter(piece for piece in rendering.pieces if isinstance(piece, Slot))
            self._prompts.setdefault(number, []).append(slots)
        else:
            self._turns.append(number)
        self.conditions += rendering.conditions
        self.longest = min(self.longest, rendering.longest)
        return "".join(piece if isinstance(piece, str) else self._written(piece) for piece in rendering.pieces)

    @property
    def plain(self) -> bool:
        """Whether one turn was tried for each message, after prompts that hold the same words."""
        alike = all(prompt == prompts[0] for prompts in self._prompts.values() for prompt in prompts)
        prompted = all(number - 1 in self._prompts for number in self._turns)  # else a header was looked for
        return alike and prompted and len(set(self._turns)) == len(self._turns)

    def slot(self, number: str, cuts: str) -> Slot:
        """The slot that was written with these numbers."""
        return Slot(int(number), self._cuts[int(cuts)])

    def _written(self, slot: Slot) -> str:
        if slot.cuts not in self._cuts:
            self._cuts.append(slot.cuts)
        return f"{_made_up(slot.number)}c{self._cuts.index(slot.cuts):03d}x"


def _skeleton_of(defined: Defined, asked: _Asked) -> Skeleton | None:
    """A text of made-up words, cut at its slots and where turns begin and end."""
    spans = {match.start(): (match.end(), asked.slot(match[1], match[2])) for match in _WRITTEN.finditer(defined.text)}
    if may_make_tags(_WRITTEN.split(defined.text)[::3]):
        return None
    cuts = {0, len(defined.text), *spans, *(end for end, _ in spans.values())}
    cuts |= {place for _, *places, _ in defined.turns for place in places}
    bounds = sorted(cuts)
    if any(start < place < end for start, (end, _) in spans.items() for place in bounds):
        return None
    before = {place: number for number, place in enumerate(bounds)}
    return Skeleton(
        parts=tuple(b"" if start in spans else defined.text[start:end].encode() for start, end in pairwise(bounds)),
        slots=tuple(
            (before[start], slot.number, slot.value if slot.cuts else None)
            for start, (_, slot) in sorted(spans.items())
        ),
        turns=tuple((message, before[start], before[end], weight) for message, start, end, weight in defined.turns),
        conditions=tuple(dict.fromkeys(asked.conditions)),
        longest=asked.longest,
    )
