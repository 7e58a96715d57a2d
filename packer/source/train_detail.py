"""Which characters of a message are trained, as axolotl's `train_detail` says it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from packer.source.decode import Refused


class TrainDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A range of characters, the last one included."""

    begin_offset: int
    end_offset: int
    train: bool


def trained_spans(details: Sequence[TrainDetail], text: Any, *, where: str) -> tuple[tuple[int, int], ...]:
    """Return the ranges of a text that are trained, in order; what no detail is about is not."""
    if details and not isinstance(text, str):
        raise Refused("bad_spans", f"the content beside {where} is not one text")
    ranges, free = sorted((each.begin_offset, each.end_offset + 1, each.train) for each in details), 0
    for start, end, _ in ranges:
        if not free <= start < end <= len(text):
            what = f"characters {start} to {end - 1} of a text of {len(text)}, of which others have {free} already"
            raise Refused("bad_spans", f"{what}, at {where}")
        free = end
    return tuple((start, end) for start, end, train in ranges if train)
