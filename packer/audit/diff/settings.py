"""The rules and the inputs of two caches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from packer.audit.diff.cache_diff import Change, InputChange
from packer.pipeline.changes import PLACES, flat_keys
from packer.recipe import Recipe, current_keys, to_json
from packer.store.manifest import Input

_SAME: tuple[Callable[[Input], object], ...] = (
    lambda entry: (entry.sha256, entry.split),
    lambda entry: (entry.path, entry.split),
    lambda entry: entry.path,
    lambda entry: (PurePosixPath(entry.path).name, entry.split),
)
"""What pairs two inputs, the surest first. The last is for folders that were copied and then edited."""


def changes(old: Mapping[str, Any], new: Mapping[str, Any], names: Iterable[str] | None = None) -> list[Change]:
    """Entries that differ, in the order of `names`, which are all of both by default, sorted."""
    return [
        Change(key=name, old=old.get(name), new=new.get(name))
        for name in (sorted(old.keys() | new.keys()) if names is None else names)
        if old.get(name) != new.get(name)
    ]


def compare_recipes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """Keys that differ, as `pack.seed`; a key a cache does not have yet has its default.

    Keys that say where something lies are left out; so are the sources, which the inputs show.
    """
    rules = [flat_keys(to_json(Recipe())) | flat_keys(current_keys(recipe)) for recipe in (old, new)]
    return tuple(change for change in changes(*rules) if change.key not in PLACES)


def pair_inputs(old: Sequence[Input], new: Sequence[Input]) -> dict[int, int]:
    """Number of an old input → number of the new one that is the same file, or became of it.

    A file name alone pairs only where no other input that is left has it.
    """
    pairs: dict[int, int] = {}
    for key in _SAME:
        left_old, left_new = _grouped(old, key, set(pairs)), _grouped(new, key, set(pairs.values()))
        for same, numbers in left_old.items():
            others = left_new.get(same, [])
            if key is not _SAME[-1] or len(numbers) == len(others) == 1:
                pairs |= dict(zip(numbers, others, strict=False))
    return dict(sorted(pairs.items()))


def compare_inputs(old: Sequence[Input], new: Sequence[Input], pairs: Mapping[int, int]) -> tuple[InputChange, ...]:
    """Inputs that were added, removed, changed or renamed, in the order of the new manifest, removed ones last."""
    old_of = {new_number: old[old_number] for old_number, new_number in pairs.items()}
    found = [_input_change(old_of.get(number), entry) for number, entry in enumerate(new)]
    found += [_input_change(entry, None) for number, entry in enumerate(old) if number not in pairs]
    return tuple(change for change in found if change is not None)


def _grouped(inputs: Sequence[Input], key: Callable[[Input], object], taken: set[int]) -> dict[object, list[int]]:
    groups: dict[object, list[int]] = {}
    for number, entry in enumerate(inputs):
        if number not in taken:
            groups.setdefault(key(entry), []).append(number)
    return groups


def _input_change(old: Input | None, new: Input | None) -> InputChange | None:
    """None where both are the same."""
    entry = new or old
    assert entry is not None
    found: tuple[Change, ...] = ()
    if old is None or new is None:
        kind = "added" if old is None else "removed"
    else:
        names = [name for name in Input.__struct_fields__ if name != "part"]  # the recipe shows its sources' rules
        found = tuple(changes(to_json(old), to_json(new), names=names))
        kind = "renamed" if [change.key for change in found] == ["path"] else "changed"
        if not found:
            return None
    return InputChange(kind=kind, path=entry.path, split=entry.split, num_rows=entry.num_rows, changes=found)  # type: ignore[arg-type]
