"""What to do about one rejected row."""

import functools

import msgspec

from packer.batches import Rejection, RowBatch, Sample
from packer.build.suggestions import rejection_hint
from packer.model import Model
from packer.recipe import Recipe
from packer.render import Renderer, RenderRules
from packer.render.chat import Divergent

_DIVERGENT: dict[Divergent, str] = {
    "continue": "--set supervision.divergent=continue goes on inside the reasoning the prompt opens",
    "common_prefix": "--set supervision.divergent=common_prefix takes what both have in common as the prompt",
}
"""Ways past a prompt that diverges, the better first; each can be tried on the row."""

_NO_WAY = "use another template, or correct this one"


class WaysOut:
    """Finds ways out under one recipe."""

    def __init__(self, recipe: Recipe, model: Model) -> None:
        """Take the recipe that rejects, and its model."""
        self._recipe = recipe
        self._model = model
        self._renderer = functools.cache(self._make_renderer)

    def of(self, rejection: Rejection, sample: Sample | None) -> str:
        """The way out of a rejection, as a hint; `sample` is the row, where it was understood."""
        if rejection.code == "prompt_diverges" and sample is not None:
            return self._past_divergence(sample)
        return rejection_hint(rejection.code, allowed=self._recipe.supervision.allow_dropped)

    def _past_divergence(self, sample: Sample) -> str:
        """The first way under which the row renders, else the first under which its prompt no longer diverges."""
        left = {way: self._rejected(sample, way) for way in _DIVERGENT}
        kept = (way for way, code in left.items() if code is None)
        past = (way for way, code in left.items() if code != "prompt_diverges")
        found = next(kept, None) or next(past, None)
        return _DIVERGENT[found] if found is not None else _NO_WAY

    def _rejected(self, sample: Sample, divergent: Divergent) -> str | None:
        rendered = self._renderer(divergent).render(RowBatch(samples=(sample,), rejections=(), num_rows=1))
        return rendered.rejections[0].code if rendered.rejections else None

    def _make_renderer(self, divergent: Divergent) -> Renderer:
        supervision = msgspec.structs.replace(self._recipe.supervision, divergent=divergent)
        return Renderer(self._model, RenderRules.of(msgspec.structs.replace(self._recipe, supervision=supervision)))
