"""Counts of two caches that differ."""

from typing import Any

from packer.audit.diff.recipe import changes
from packer.audit.diff.report import Change, LengthsChange, NumbersDiff
from packer.audit.stats import count_lengths
from packer.recipe import to_json
from packer.store.cache import Cache
from packer.store.manifest import Totals

_COUNTS = ("rows", "kept", "documents", "tokens", "trained", "masked", "merged", "skipped", "trained_share", "packed",
           "piece_starts", "blocks", "slots", "separators", "padding", "fill")  # fmt: skip


def compare_numbers(old: Cache, new: Cache, splits: tuple[str, ...]) -> NumbersDiff | None:
    """Totals, rejections, what is in no block, and the lengths of documents; None where nothing differs.

    Raises:
        CheckError: lengths are not those of the ids.

    """
    before, after = old.manifest.totals, new.manifest.totals
    totals = changes(_counts(before), _counts(after), names=_COUNTS)
    rejected = [
        Change(key=change.key, old=change.old or 0, new=change.new or 0)
        for change in changes(before.rejected, after.rejected)
    ]
    cut = changes(*({code: to_json(entry) for code, entry in found.cut.items()} for found in (before, after)))
    lengths = [change for split in splits if (change := _lengths(old, new, split)) is not None]
    if not (totals or rejected or cut or lengths):
        return None
    return NumbersDiff(totals=tuple(totals), rejected=tuple(rejected), cut=tuple(cut), lengths=tuple(lengths))


def _counts(totals: Totals) -> dict[str, Any]:
    counts: dict[str, Any] = to_json(totals)
    in_blocks = totals.slots - totals.separators - totals.padding
    return counts | {
        "trained_share": totals.trained / totals.tokens if totals.tokens else 0.0,
        "fill": in_blocks / totals.slots if totals.slots else 0.0,
    }


def _lengths(old: Cache, new: Cache, split: str) -> LengthsChange | None:
    found = [
        count_lengths(cache.documents(split).lengths()) if split in cache.splits("documents") else None
        for cache in (old, new)
    ]
    return None if found[0] == found[1] else LengthsChange(split=split, old=found[0], new=found[1])
