"""Renders rows without messages, for which there is no template: prompts with completions, and plain texts.

A completion is trained after its prompt, a text throughout; both are closed by EOS.

Nearly all rows are clear: nothing in them is read as more than text, which is told of many at once. Each of the others
is looked at by itself.
"""

from collections.abc import Collection, Sequence

from packer.batches import Rejection, Sample, TurnBatch
from packer.recipe.recipe import Recipe
from packer.render.control import TypedControl
from packer.render.environment import RenderError
from packer.render.rewritten_history import EncodedText, encoded, turn_batch


class PlainRows:
    """Renders rows without messages under one recipe; `eos` closes them."""

    def __init__(self, control: TypedControl, eos: str | None, recipe: Recipe) -> None:
        self._control = control
        self._eos = eos or ""
        self._close = {"completion": self._eos, "text": self._eos if recipe.text.append_eos else ""}

    def rendered(self, sample: Sample) -> EncodedText:
        """Render one row; RenderError says why it is rejected."""
        if sample.images is not None:
            raise RenderError(sample.images.refusal, code="multimodal")
        if not sample.text:
            raise RenderError("the row has no text to train on", code="nothing_trained")
        completion, close = sample.kind == "completion", self._close[sample.kind]
        if completion and not close:
            raise RenderError("the tokenizer has no EOS to close a completion with", code="no_terminator")
        if completion:
            self._control.refuse(sample.text, "completion")
        guarded = self._control.guarded(sample.prompt + sample.text)
        self._control.refuse_foreign(sample.text, sample.kind, trained=sample.text)
        whole = f"{sample.prompt}{sample.text}{close}"
        return encoded(whole, ((0, len(sample.prompt), len(whole)),), raw=True, guarded=guarded)

    def batch(self, samples: Sequence[Sample]) -> TurnBatch:
        """Render rows; what cannot be rendered correctly is rejected."""
        texts: list[EncodedText] = []
        owners: list[int] = []
        rejections: list[Rejection] = []
        unclear = self._unclear(samples)
        for number, sample in enumerate(samples):
            try:
                texts.append(self.rendered(sample) if number in unclear else self._clearly(sample))
            except RenderError as error:
                rejections.append(Rejection(row=sample.row, code=error.code, reason=str(error)))
            else:
                owners.append(sample.row)
        return turn_batch(texts, owners, [], rejections)

    def _clearly(self, sample: Sample) -> EncodedText:
        """Render a row in which nothing is read as more than text."""
        try:
            prompt, rest = sample.prompt.encode(), f"{sample.text}{self._close[sample.kind]}".encode()
        except UnicodeEncodeError:
            return self.rendered(sample)  # which says so
        return EncodedText(prompt + rest, ((0, len(prompt), len(prompt) + len(rest)),), raw=True)

    def _unclear(self, samples: Sequence[Sample]) -> Collection[int]:
        """Return the numbers of the rows that may be read as more than text, or that lack something."""
        if not self._eos:
            return range(len(samples))
        typed = self._control.may_concern(
            [each.prompt + each.text for each in samples], [each.text for each in samples]
        )
        return {*typed, *(n for n, each in enumerate(samples) if each.images is not None or not each.text)}
