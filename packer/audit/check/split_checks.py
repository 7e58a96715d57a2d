"""Checks of the splits as wholes: their sizes and lengths, and how much was rejected. They need no input."""

from collections.abc import Sequence

import numpy as np

from packer.audit.check.check_report import Check
from packer.store.cache import Cache

FEW_ROWS = 100
"""A loss over fewer held-out rows moves by a tenth of its spread from one draw of rows to another."""

_OTHER_LENGTH = 1.5
_MUCH = 0.3


def check_sizes(cache: Cache, learned: Sequence[str]) -> Check:
    """Splits that are empty, or too small to say anything."""
    asked = dict.fromkeys(entry.split for entry in cache.manifest.inputs)
    shards = [shard for shard in cache.manifest.shards if shard.kind == "documents"]
    kept = {name: sum(shard.num_kept for shard in shards if shard.split == name) for name in asked}
    empty = [name for name, number in kept.items() if not number]
    small = [name for name, number in kept.items() if 0 < number < FEW_ROWS and name not in learned]
    sizes = ", ".join(f"{number:,} in {name}" for name, number in kept.items())
    if empty:
        return Check(code="splits", level="failure", message=f"no row is left of {' and '.join(empty)}: {sizes}")
    if small:
        named = " and ".join(small)
        return Check(code="splits", level="warning", message=f"{named}: a loss over so few rows says little: {sizes}")
    nothing = "; nothing is held out" if len(kept) == 1 else ""
    return Check(code="splits", level="ok", message=f"rows: {sizes}{nothing}")


def check_lengths(cache: Cache, learned: Sequence[str]) -> Check:
    """Held-out splits whose documents are longer or shorter than those that are learned."""
    lengths = {name: cache.documents(name).lengths() for name in cache.splits("documents")}
    typical = _median(np.concatenate([lengths[name] for name in learned if name in lengths]))
    held = {name: _median(own) for name, own in lengths.items() if name not in learned and len(own)}
    others = [name for name, own in held.items() if not typical / _OTHER_LENGTH <= own <= typical * _OTHER_LENGTH]
    medians = ", ".join(
        [f"{typical:,} tokens in {' and '.join(learned)}", *(f"{own:,} in {name}" for name, own in held.items())]
    )
    return Check(
        code="lengths",
        level="warning" if others else "ok",
        message=f"typical length: {medians}",
        hint="a held-out split that is not like the rows to be learned measures something else" if others else None,
    )


def check_rejected(cache: Cache) -> Check:
    """Whether much of the input is not in the cache."""
    totals = cache.manifest.totals
    number = sum(totals.rejected.values())
    if not number:
        return Check(code="rejected", level="ok", message="no row was rejected", count=0)
    code = max(totals.rejected, key=lambda each: totals.rejected[each])
    share = number / totals.rows
    return Check(
        code="rejected",
        level="warning" if share > _MUCH else "ok",
        message=f"{number:,} of {totals.rows:,} rows were rejected, most often {code} ({totals.rejected[code]:,})",
        count=number,
        hint=f"{cache.folder}/rejected.jsonl lists them" if share > _MUCH else None,
    )


def _median(lengths: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> int:
    return int(np.median(lengths)) if len(lengths) else 0
