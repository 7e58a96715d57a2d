"""Renders rows without messages, for which there is no template: prompts with completions, and plain texts.

A completion is trained after its prompt, a text throughout; both are closed by EOS.

Nearly all rows are clear: nothing in them is read as more than text, which is told of many at once. Each of the others
is looked at by itself.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from packer.batches import Rejection, Sample, TurnBatch
from packer.layout import offsets_of
from packer.recipe.recipe import Recipe
from packer.render.control import TypedControl
from packer.render.environment import RenderError
from packer.render.rewritten_history import EncodedText, Range, encoded


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
        return encoded(whole, ((0, len(sample.prompt), len(whole), 1.0),), raw=True, guarded=guarded)

    def batch(self, samples: Sequence[Sample]) -> TurnBatch:
        """Render rows; what cannot be rendered correctly is rejected."""
        contents, prompt_end, unclear = self._plainly(samples)
        guarded: dict[int, Sequence[Range]] = {}
        rejections: dict[int, Rejection] = {}
        for number in sorted(unclear):
            sample = samples[number]
            try:
                text = self.rendered(sample)
            except RenderError as error:
                rejections[number] = Rejection(row=sample.row, code=error.code, reason=str(error))
            else:
                contents[number], prompt_end[number], guarded[number] = text.content, text.turns[0][1], text.guarded
        kept = [number for number in range(len(samples)) if number not in rejections]
        texts = [contents[number] for number in kept]
        lengths = [*map(len, texts)]
        offsets = offsets_of(lengths)
        ranges = [
            (start + a, start + b)
            for number, start in zip(kept, offsets.tolist(), strict=False)
            for a, b in guarded.get(number, ())
        ]
        return TurnBatch(
            text=b"".join(texts),
            text_offsets=offsets,
            raw=np.ones(len(kept), np.bool_),
            sample=np.array([samples[number].row for number in kept], np.int32),
            turn_text=np.arange(len(kept), dtype=np.int32),
            turn_message=np.zeros(len(kept), np.int32),
            prompt_end=np.array([prompt_end[number] for number in kept], np.int64),
            completion_end=np.array(lengths, np.int64),
            weight=np.ones(len(kept), np.float32),
            skipped=np.zeros(0, np.int32),
            guarded=np.array(ranges, np.int64).reshape(-1, 2),
            masked=np.zeros((0, 2), np.int64),
            rejections=tuple(rejections.values()),
        )

    def _plainly(self, samples: Sequence[Sample]) -> tuple[list[bytes], list[int], Iterable[int]]:
        """Return the texts of rows, as if all were clear, where their prompts end in bytes, and which are unclear."""
        close = self._close
        try:
            contents = [f"{each.prompt}{each.text}{close[each.kind]}".encode() for each in samples]
            prompt_end = [len(each.prompt.encode()) for each in samples]
        except UnicodeEncodeError:
            return [b""] * len(samples), [0] * len(samples), range(len(samples))
        return contents, prompt_end, self._unclear(samples)

    def _unclear(self, samples: Sequence[Sample]) -> Iterable[int]:
        """Return the numbers of the rows that may be read as more than text, or that lack something."""
        if not self._eos:
            return range(len(samples))
        typed = self._control.may_concern(
            [each.prompt + each.text for each in samples], [each.text for each in samples]
        )
        return {*typed, *(n for n, each in enumerate(samples) if each.images is not None or not each.text)}
