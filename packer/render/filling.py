"""Documents of conversations without rendering each: the fast path of rendering.

A shape of conversation that comes often in a batch gets a skeleton (:mod:`packer.render.skeleton`), and its
conversations are filled in. It is checked against the reference, which is rendering, three times:

1. *Recorded*: whatever the template asks about a text becomes a condition. A text that does not meet it is rendered.
2. *Tried*: conversations made to be hard, with white space at both ends of each text, every constant of the template
   within it, one letter, many thousands, have to be filled in as they are rendered. One difference: no skeleton.
3. *Compared*: one row in 128 is rendered too (:mod:`packer.render.renderer`).

Which shapes are filled in, and which conversations compared, is up to the batch alone. So what a row becomes does not
depend on which rows a process has seen before.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from typing import TypeAlias

from packer.batches import Sample
from packer.literals import longest_of
from packer.render.conversation import Template
from packer.render.environment import ChatTemplate, RenderError
from packer.render.reasoning import ANY_TAG
from packer.render.recorder import TemplateRecorder, made_up
from packer.render.rewritten_history import RenderedRow
from packer.render.shape import Shape, conversation_of, num_texts, shape_of
from packer.render.skeleton import Skeleton, skeleton_of
from packer.render.symbolic import OpaqueError
from packer.watchdog import TemplateOverrunError

WORTH_A_SKELETON = 4
"""Conversations of a shape in a batch that take about as long to render as a skeleton takes to be made."""

_MAX_SHAPES = 4096
_LONGEST = 2**18
"""Characters of all texts that a skeleton is tried with."""

_HARD = ("'", '"', "\\", "<b>", "{{ 1 }}", "%s", "None", "ÜmläUT ß", "http://example.org", "1", "\t", "\u2028")


Define: TypeAlias = Callable[[Sample, Template], RenderedRow]
"""What a template makes of a conversation: no texts where one of its messages is lost."""


class Filling:
    """The skeletons of one template and one recipe.

    Args:
        template: the reference.
        define: renders a conversation by a template.
        stops: texts of the stop tokens.
        control: texts of the control tokens.

    """

    def __init__(self, template: ChatTemplate, define: Define, *, stops: Sequence[str], control: Iterable[str]) -> None:
        self._template = template
        self._define = define
        self._stops = re.compile(longest_of(stops).encode())
        tokens = list(control)
        self._special = re.compile("|".join([ANY_TAG.pattern, *([longest_of(tokens)] if tokens else [])]))
        self._made: OrderedDict[Shape, Skeleton | None] = OrderedDict()

    @staticmethod
    def suits(stops: Sequence[str]) -> bool:
        """Whether turns can be seen to end; of a stop token within another, which one it is is up to what follows."""
        return bool(stops) and not any(stop in other for stop, other in permutations(stops, 2))

    def fill(self, samples: Sequence[Sample]) -> dict[int, RenderedRow]:
        """Conversations of a batch that need not be rendered, by their number in it."""
        by_shape: dict[Shape, list[tuple[int, list[str]]]] = {}
        for number, sample in enumerate(samples):
            texts: list[str] = []
            shape = shape_of(sample, texts)
            if shape is not None:
                by_shape.setdefault(shape, []).append((number, texts))
        filled = {}
        for shape, conversations in by_shape.items():
            skeleton = self._skeleton(shape) if len(conversations) >= WORTH_A_SKELETON else None
            if skeleton is None:
                continue
            for number, texts in conversations:
                row = self._filled(skeleton, texts)
                if row is not None:
                    filled[number] = row
        return filled

    def _filled(self, skeleton: Skeleton, texts: Sequence[str]) -> RenderedRow | None:
        try:
            return None if self._special.search("\n".join(texts)) else skeleton.fill(texts, self._stops)
        except UnicodeEncodeError:  # half of a surrogate pair
            return None

    def _skeleton(self, shape: Shape) -> Skeleton | None:
        if shape not in self._made:
            try:
                self._made[shape] = self._make(shape)
            except (OpaqueError, RenderError, TemplateOverrunError):
                self._made[shape] = None
            if len(self._made) > _MAX_SHAPES:
                self._made.popitem(last=False)
        return self._made[shape]

    def _make(self, shape: Shape) -> Skeleton | None:
        number = num_texts(shape)
        longest = min(_LONGEST, self._template.max_bytes // 32) // max(number, 1)
        long = [f"Word{k:06d}".ljust(longest, "w")[:longest] for k in range(number)]
        # The sandbox first: a recording has no limits of its own.
        rendered = self._define(conversation_of(shape, long), self._template)
        if sum(len(text.content) for text in rendered.texts) > self._template.max_bytes // 4:
            return None
        recorder = TemplateRecorder(self._template)
        recorded = self._define(conversation_of(shape, [made_up(k) for k in range(number)]), recorder)
        if not recorder.is_straight:
            return None
        skeleton = skeleton_of(recorded.texts, recorder, longest=longest, num_skipped=recorded.num_skipped)
        if skeleton is None or not self._agrees(skeleton, long, rendered):
            return None
        for texts in (["7"] * number, self._hard(skeleton, number)):
            if not self._agrees(skeleton, texts, self._define(conversation_of(shape, texts), self._template)):
                return None
        return skeleton

    def _agrees(self, skeleton: Skeleton, texts: Sequence[str], rendered: RenderedRow) -> bool:
        """Whether a conversation is filled in as it is rendered, if its texts meet the conditions."""
        return not skeleton.meets(texts) or skeleton.fill(texts, self._stops) == rendered

    def _hard(self, skeleton: Skeleton, number: int) -> list[str]:
        """Texts that hold whatever the template may look for and was not seen to ask about."""
        text = "A"
        for constant in (*_HARD, *self._template.constants):
            longer = f"{text} {constant} a"
            if not self._special.search(longer) and skeleton.meets([longer] * number):
                text = longer
        return [f" \n {text[: skeleton.longest - 20]}{k}Z \n " for k in range(number)]
