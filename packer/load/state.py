"""Where a reader stands: a few numbers, the same on every rank.

A state names the data it belongs to and a place in it, nothing about how it was read. So it is restored in constant
time on another world size, micro-batch size or global batch size, and goes on at the same block.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from packer.errors import CheckError
from packer.load.order import OrderKind

STATE_VERSION: Final = 1

Count = Annotated[int, Meta(ge=0)]


class Counters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was returned since the beginning, over all ranks and epochs."""

    steps: Count = 0
    blocks: Count = 0
    """Padding rows are not counted."""

    trained: Count = 0
    """Trained targets."""


class ReaderState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: Literal[1] = STATE_VERSION
    fingerprint: str
    """Content fingerprint of the cache."""

    split: str
    order: OrderKind
    seed: int
    epoch: Count = 0
    cursor: Count = 0
    """Blocks of the epoch's order that were returned."""

    counters: Counters = Counters()

    def to_dict(self) -> dict[str, Any]:
        """Plain ints and strings, fit for JSON and for any checkpoint."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def at_next_epoch(self) -> "ReaderState":
        return msgspec.structs.replace(self, epoch=self.epoch + 1, cursor=0)


def restore(value: Any, *, reader: ReaderState, num_blocks: int) -> ReaderState:
    """A saved state, if it belongs to what `reader` reads.

    Args:
        value: what :meth:`ReaderState.to_dict` gave.
        reader: any state of the reader that is to go on.
        num_blocks: blocks of an epoch.

    Raises:
        CheckError: not a state, of another version, of other data, another split, order or seed.

    """
    if isinstance(value, dict) and value.get("version") != STATE_VERSION:
        raise CheckError(f"reader state: expected version {STATE_VERSION}, found {value.get('version')!r}")
    try:
        state = msgspec.convert(value, ReaderState)
    except msgspec.ValidationError as error:
        raise CheckError(f"reader state: {error}", hint="pass what state_dict() returned, unchanged") from None
    for name in ("fingerprint", "split", "order", "seed"):
        expected, found = getattr(reader, name), getattr(state, name)
        if expected != found:
            raise CheckError(
                f"reader state: it was saved with {name} {found!r}, this reader has {expected!r}", hint=_HINTS[name]
            )
    if state.cursor > num_blocks:
        raise CheckError(f"reader state: cursor {state.cursor} is beyond the {num_blocks} blocks of an epoch")
    return state


_HINTS = {
    "fingerprint": "the cache holds other data than when the state was saved: open that cache, or begin anew",
    "split": "open the loader with the split the state was saved with",
    "order": "open the loader with the order the state was saved with",
    "seed": "open the loader with the seed the state was saved with",
}
