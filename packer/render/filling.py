"""The fast path of rendering: fills the texts of a conversation into a skeleton instead of running the template.

If a shape of conversation is frequent in a batch, a skeleton is made for it (:mod:`packer.render.skeleton`), and its
conversations are filled in. Three checks guard against differences from rendering, which is the reference:

1. *Recording*: every question that the template asks about a text becomes a condition. A conversation whose texts do
   not meet the conditions is rendered.
2. *Trial*: hard conversations must be filled in exactly as they are rendered: with white space at both ends of each
   text, with every constant of the template inside, with single characters, with thousands of them. After a single
   difference, the shape gets no skeleton.
3. *Comparison*: one row in 128 is rendered, too (:mod:`packer.render.renderer`).

Which shapes are filled in and which rows are compared depends on the batch alone. So the result for a row does not
depend on which rows a process has seen before.
"""

import functools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from typing import TypeAlias

from packer.batches import Sample
from packer.literals import longest_of
from packer.render.control import FOREIGN_ENDS
from packer.render.conversation import Template
from packer.render.environment import ChatTemplate, RenderError
from packer.render.reasoning import ANY_TAG
from packer.render.recorder import TemplateRecorder, TrialTemplate, placeholder_text
from packer.render.rewritten_history import RenderedRow
from packer.render.shape import Shape, conversation_of, num_texts, shape_of
from packer.render.skeleton import Skeleton, skeleton_of
from packer.render.symbolic import OpaqueError
from packer.watchdog import TemplateOverrunError

WORTH_A_SKELETON = 4
"""Number of conversations of one shape in a batch whose rendering takes about as long as making a skeleton."""

_MAX_SHAPES = 4096
_LONGEST = 2**18
"""Total length of the texts that a skeleton is tried with, in characters."""

_HARD = ("'", '"', "\\", "<b>", "{{ 1 }}", "%s", "None", "ÜmläUT ß", "http://example.org", "1", "\t", "\u2028")


Define: TypeAlias = Callable[[Sample, Template], RenderedRow]
"""Renders a conversation with a template; returns no texts if one of its messages is lost."""


class Filling:
    """The skeletons of one template, the reference, under one recipe; `stops` and `control` are texts of tokens."""

    def __init__(self, template: ChatTemplate, define: Define, *, stops: Sequence[str], control: Iterable[str]) -> None:
        self._template = template
        self._render_for_skeleton = define
        self._stops = re.compile(longest_of(stops).encode())
        self._special = re.compile(f"{ANY_TAG.pattern}|{longest_of([*control, *FOREIGN_ENDS])}")
        self._made: OrderedDict[Shape, Skeleton | None] = OrderedDict()

    @functools.cached_property
    def _trial(self) -> TrialTemplate:
        """Most shapes are the beginning of others, so the same prompts and turns are rendered for all of them."""
        return TrialTemplate(self._template)

    @staticmethod
    def suits(stops: Sequence[str]) -> bool:
        """Whether the end of a turn can be found in a filled-in text.

        If one stop token is part of another, which of them ends a turn depends on what follows.
        """
        return bool(stops) and not any(stop in other for stop, other in permutations(stops, 2))

    def fill(self, samples: Sequence[Sample]) -> dict[int, RenderedRow]:
        """Return the conversations of a batch that need not be rendered, by their number in it."""
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
        longest = min(_LONGEST, self._template.max_bytes // 32) // 2 ** (number - 1).bit_length()
        long = [f"Word{k:06d}".ljust(longest, "w")[:longest] for k in range(number)]
        # Render in the sandbox first: recording has no limits of its own.
        rendered = self._render_for_skeleton(conversation_of(shape, long), self._trial)
        if sum(len(text.content) for text in rendered.texts) > self._template.max_bytes // 4:
            return None
        recorder = TemplateRecorder(self._trial)
        recorded = self._render_for_skeleton(
            conversation_of(shape, [placeholder_text(k) for k in range(number)]), recorder
        )
        if not recorder.rendered_each_turn_once:
            return None
        skeleton = skeleton_of(recorded.texts, recorder, longest=longest, num_skipped=recorded.num_skipped)
        if skeleton is None or not self._agrees(skeleton, long, rendered):
            return None
        for texts in (["7"] * number, self._hard_texts(skeleton, number)):
            if not self._agrees(skeleton, texts, self._render_for_skeleton(conversation_of(shape, texts), self._trial)):
                return None
        return skeleton

    def _agrees(self, skeleton: Skeleton, texts: Sequence[str], rendered: RenderedRow) -> bool:
        """Whether filling in the texts yields the same as rendering, or they do not meet the conditions."""
        return not skeleton.meets(texts) or skeleton.fill(texts, self._stops) == rendered

    def _hard_texts(self, skeleton: Skeleton, number: int) -> list[str]:
        """Return texts that contain whatever the template may check for without having been seen to do so."""
        text = "A"
        for constant in (*_HARD, *self._template.constants):
            longer = f"{text} {constant} a"
            if not self._special.search(longer) and skeleton.meets([longer] * number):
                text = longer
        return [f" \n {text[: skeleton.longest - 20]}{k}Z \n " for k in range(number)]
