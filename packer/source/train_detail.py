"""Which characters of a message are trained, as axolotl's `train_detail` says it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from packer.source.decode import Refused


class TrainDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A range of characters, the last one included."""

    begin_offset: int
    end_offset: int
    train: bool


def trained_spans(details: Sequence[TrainDetail], text: Any, *, where: str) -> tuple[tuple[int, int], ...]:
    """Return the ranges of a text that are trained, in order; what no detail is about is not.

    Raises:
        Refused: `bad_spans`; a range is not one of the text, two overlap, or the content is not one text.
    """
    if not isinstance(text, str):
        raise Refused("bad_spans", f"the content beside {where} is not one text")
    ranges = sorted((each.begin_offset, each.end_offset + 1, each.train) for each in details)
    for start, end, _ in ranges:
        if not 0 <= start < end <= len(text):
            found = f"characters {start} to {end - 1}"
            raise Refused("bad_spans", f"{found} at {where}, but the text has {len(text)} characters, counted from 0")
    for (_, end, _), (start, *_) in pairwise(ranges):
        if start < end:
            raise Refused("bad_spans", f"two ranges at {where} have character {start}")
    return tuple((start, end) for start, end, train in ranges if train)
