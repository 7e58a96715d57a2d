"""Checks of what a cache records: the sizes and lengths of splits, and the groups in them.

None of this needs the inputs.
"""

from collections.abc import Sequence

import numpy as np

from packer.arrow_arrays import numbers_of
from packer.audit.check.check_report import Check
from packer.audit.stats import kept_rows
from packer.batches import Int32
from packer.pipeline.messages.row_report import requested_splits
from packer.pipeline.selecting import read_traits
from packer.recipe.recipe import Recipe
from packer.store.cache import Cache
from packer.store.selected import read_selection

FEW_ROWS = 100
"""With fewer held-out rows, the mean loss varies by over a tenth of its spread from one sample of rows to another."""

_OTHER_LENGTH = 1.5


def check_sizes(cache: Cache, recipe: Recipe, trained: Sequence[str]) -> Check:
    """Look for splits that are empty, though a rule asks for them, or too small to be meaningful."""
    kept = {split: kept_rows(cache, split) for split in cache.splits("documents")}
    if recipe.split is not None and cache.manifest.selection is not None:
        kept = dict.fromkeys(requested_splits(cache.manifest, recipe.split), 0) | kept
    empty = [name for name, number in kept.items() if not number]
    small = [name for name, number in kept.items() if 0 < number < FEW_ROWS and name not in trained]
    sizes = ", ".join(f"{number:,} in {name}" for name, number in kept.items())
    if empty:
        return Check.of("splits", f"no row is left of {' and '.join(empty)}: {sizes}", "failure")
    if small:
        return Check.of("splits", f"{' and '.join(small)}: a loss over so few rows says little: {sizes}", "warning")
    return Check.of("splits", f"rows: {sizes}{'; nothing is held out' if len(kept) == 1 else ''}", None)


def check_groups(cache: Cache, recipe: Recipe) -> Check | None:
    """Count groups of `split.group` that are in more than one split; None if the recipe has no such rule."""
    selection = cache.manifest.selection
    if selection is None or recipe.split is None or recipe.split.group is None:
        return None
    traits = read_traits(cache.folder, selection.traits, recipe.row_rules)
    split, group = read_selection(cache.folder, selection).split, numbers_of(traits.column("group_text"))
    known = (split >= 0) & (group != 0)  # rows of other sources need no group
    own = np.unique(np.stack([group[known].view(np.int64), split[known]], axis=1), axis=0)
    values, counts = np.unique(own[:, 0], return_counts=True)
    number = int((counts > 1).sum())
    field = recipe.split.group
    found = f"{number:,} of {len(values):,} values of {field} are in more than one split"
    return Check.of(
        "groups",
        found if number else f"each of {len(values):,} values of {field} is in one split",
        "failure" if number else None,
        count=number,
        hint='sources with a split of their own have rows of these groups, or the field has both 7 and "7"',
    )


def check_lengths(cache: Cache, trained: Sequence[str]) -> Check:
    """Look for held-out splits whose documents are much longer or shorter than the training documents."""
    lengths = {name: cache.documents(name).lengths() for name in cache.splits("documents")}
    typical = _median(np.concatenate([lengths[name] for name in trained if name in lengths]))
    held = {name: _median(own) for name, own in lengths.items() if name not in trained and len(own)}
    others = [name for name, own in held.items() if not typical / _OTHER_LENGTH <= own <= typical * _OTHER_LENGTH]
    medians = ", ".join(
        [f"{typical:,} tokens in {' and '.join(trained)}", *(f"{own:,} in {name}" for name, own in held.items())]
    )
    hint = "a held-out split that is not like the rows to train on measures something else"
    return Check.of("lengths", f"typical length: {medians}", "warning" if others else None, hint=hint)


def _median(lengths: Int32) -> int:
    return int(np.median(lengths)) if len(lengths) else 0
