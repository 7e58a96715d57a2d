"""The position of a reader: a few numbers, the same on every rank.

A state records what decides the order of rows, and a position in it, but nothing about sizes and about who reads them.
So it is restored in constant time on another world size, micro-batch size or global batch size, and resumes at the same
row.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from packer.errors import CheckError
from packer.load.batching import End
from packer.load.ordering import OrderName
from packer.recipe.groups import BatchingName

STATE_VERSION: Final = 7

UNCHANGED: Final = "pass what state_dict() returned, unchanged"

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Counters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Totals returned since the beginning, over all ranks and epochs."""

    steps: Count
    rows: Count
    """Blocks or documents; padding rows are not counted."""

    trained: Count
    tokens: Count
    slots: Count
    """Positions, including padding: what the model worked on."""

    @property
    def padding_share(self) -> float:
        """Fraction of the positions that were padding, 0 to 1."""
        return 1 - self.tokens / self.slots if self.slots else 0.0


ZERO_COUNTERS: Final = Counters(steps=0, rows=0, trained=0, tokens=0, slots=0)


class ReaderState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides the rows of the steps to come.

    No field has a default: a checkpoint that lacks one is refused.
    """

    version: Literal[7]
    fingerprint: str
    """Content fingerprint of the cache (not that of its bytes); for a mixture, of all its caches and how its epochs
    end."""

    split: str
    batching: BatchingName
    """Decides whether blocks or documents are ordered, and what sizes count."""

    order: OrderName
    order_by: str | None
    """Of a function of the epoch, a hash of its rows of epoch 0."""

    seed: int
    end: End
    epoch: Count
    cursor: Count
    """Rows of the epoch's order that were returned."""

    shares: tuple[str, ...] | None
    """For a mixture, the proportion of each cache, as a fraction of integers."""

    taken: tuple[Count, ...] | None
    """For a mixture, the rows of each cache before this position, over all epochs."""

    counters: Counters

    def to_dict(self) -> dict[str, Any]:
        """Return plain ints and strings, fit for JSON and for any checkpoint."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain


def decode_state(value: Any) -> ReaderState:
    """Decode a saved state."""
    if isinstance(value, dict) and value.get("version", STATE_VERSION) != STATE_VERSION:
        raise CheckError(
            f"reader state: expected version {STATE_VERSION}, found {value['version']!r}",
            hint="it was saved by another release of packer: continue with that one, or start over",
        )
    try:
        return msgspec.convert(value, ReaderState)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise CheckError(f"reader state: {error}", hint=UNCHANGED) from None


def restore(value: Any, *, reader: ReaderState, length: Callable[[int], int]) -> ReaderState:
    """Return a saved state, after checking that it belongs to the reader's data.

    `reader` is any state of the reader that is to continue, `length` gives the number of rows of an epoch.
    """
    state = decode_state(value)
    for name, hint in _HINTS.items():
        expected, found = getattr(reader, name), getattr(state, name)
        if expected != found:
            raise CheckError(
                f"reader state: it was saved with {name} {found!r}, this reader has {expected!r}", hint=hint
            )
    if state.cursor > length(state.epoch):
        rows = "blocks" if state.batching == "packed" else "documents"
        raise CheckError(f"reader state: cursor {state.cursor} is beyond the {length(state.epoch)} {rows} of an epoch")
    return state


_HINTS = {
    "fingerprint": "the cache's data has changed since the state was saved: open the earlier cache, or start over",
    "shares": "mix with the proportions the state was saved with, or start over",
} | {
    name: f"open the loader with the {name} the state was saved with, or start over"
    for name in ("split", "batching", "order", "order_by", "seed", "end")
}
"""Fields that decide which rows a step has, each with the hint to give if it differs."""
