"""Renders rows without messages, for which there is no template: prompts with completions, and plain texts.

A completion is trained after its prompt, a text throughout; both are closed by EOS. The middle of a text may be trained
after what stands around it.

Nearly all rows are clear: nothing in them is read as more than text, which is told of many at once. Each of the others
is looked at by itself.
"""

import functools
from collections.abc import Collection, Sequence

import xxhash

from packer.batches import Rejection, Sample, TurnBatch
from packer.recipe.groups import Infilling
from packer.recipe.recipe import Recipe
from packer.render.control import TypedControl
from packer.render.environment import RenderError
from packer.render.rewritten_history import EncodedText, encoded, turn_batch

_HASHES = 2**64
"""Number of values of a hash."""


class PlainRows:
    """Renders rows without messages under one recipe; `eos` closes them."""

    def __init__(self, control: TypedControl, eos: str | None, recipe: Recipe) -> None:
        self._control = control
        self._eos = eos or ""
        self._fim = recipe.text.fim
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
        fim = None if completion else self._fim
        said = without_tokens(sample.text, fim) if fim else sample.text
        self._control.refuse_foreign(said, sample.kind, trained=said)
        whole = f"{sample.prompt}{infilled(sample.text, None if guarded or sample.prompt else fim)}{close}"
        return encoded(whole, ((0, len(sample.prompt), len(whole), 1.0),), raw=True, guarded=guarded)

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
        return EncodedText(prompt + rest, ((0, len(prompt), len(prompt) + len(rest), 1.0),), raw=True)

    def _unclear(self, samples: Sequence[Sample]) -> Collection[int]:
        """Return the numbers of the rows that may be read as more than text, or that lack something."""
        if self._fim is not None or not self._eos:
            return range(len(samples))
        typed = self._control.may_concern(
            [each.prompt + each.text for each in samples], [each.text for each in samples]
        )
        return {*typed, *(n for n, each in enumerate(samples) if each.images is not None or not each.text)}


def infilled(text: str, rule: Infilling | None) -> str:
    """Return a text in the order in which it is trained, with the tokens of the rule between its parts.

    What happens to a text depends on its bytes alone: not on its file, its place or the texts beside it.

    Cuts fall between characters. A text that has one of the tokens is left as it is, as it may be cut already.

    Example:
        >>> rule = Infilling(tokens=("<P>", "<S>", "<M>"), rate=1, spm=0)
        >>> infilled("def one(): return 1", rule)
        '<P>def one(): re<S>rn 1<M>tu'
    """
    if rule is None or any(token in text for token in rule.tokens):
        return text
    chosen, order, *cuts = (xxhash.xxh3_64_intdigest(text.encode(), seed=number) for number in range(4))
    if chosen >= rule.rate * _HASHES:
        return text
    start, end = sorted(cut % (len(text) + 1) for cut in cuts)
    prefix, middle, suffix = text[:start], text[start:end], text[end:]
    before_prefix, before_suffix, before_middle = rule.tokens
    if order < rule.spm * _HASHES:
        return f"{before_prefix}{before_suffix}{suffix}{before_middle}{prefix}{middle}"
    return f"{before_prefix}{prefix}{before_suffix}{suffix}{before_middle}{middle}"


def without_tokens(text: str, rule: Infilling | None) -> str:
    """Return what a text says beside the tokens of the rule, with which it may come cut already."""
    return functools.reduce(lambda said, token: said.replace(token, ""), rule.tokens if rule else (), text)
