"""Which input of one cache is which of the other."""

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

from packer.audit.diff.recipe import changes
from packer.audit.diff.report import InputChange, InputsDiff
from packer.recipe import to_json
from packer.store.manifest import Input

_SAME: tuple[Callable[[Input], object], ...] = (
    lambda entry: (entry.path, entry.split, entry.sha256),
    lambda entry: (entry.sha256, entry.split),
    lambda entry: (entry.path, entry.split),
    lambda entry: entry.sha256,
    lambda entry: entry.path,
    lambda entry: (PurePosixPath(entry.path).name, entry.split),
)
"""What pairs two inputs, the surest first. The last is for folders that were copied and then edited."""


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


def compare_inputs(old: Sequence[Input], new: Sequence[Input], pairs: dict[int, int]) -> InputsDiff | None:
    """Inputs that were added, removed, changed or renamed, in the order of the new manifest, removed ones last."""
    old_of = {new_number: old_number for old_number, new_number in pairs.items()}
    found = [
        _one_sided("added", entry) if number not in old_of else _changed(old[old_of[number]], entry)
        for number, entry in enumerate(new)
    ]
    found += [_one_sided("removed", entry) for number, entry in enumerate(old) if number not in pairs]
    different = tuple(change for change in found if change is not None)
    reordered = list(pairs.values()) != sorted(pairs.values())
    if not different and not reordered:
        return None
    return InputsDiff(num_same=len(found) - len(different), reordered=reordered, changed=different)


def _grouped(inputs: Sequence[Input], key: Callable[[Input], object], taken: set[int]) -> dict[object, list[int]]:
    groups: dict[object, list[int]] = {}
    for number, entry in enumerate(inputs):
        if number not in taken:
            groups.setdefault(key(entry), []).append(number)
    return groups


def _changed(old: Input, new: Input) -> InputChange | None:
    fields: tuple[dict[str, Any], dict[str, Any]] = (to_json(old), to_json(new))
    found = tuple(changes(*fields, names=Input.__struct_fields__))
    if not found:
        return None
    kind = "renamed" if [change.key for change in found] == ["path"] else "changed"
    return InputChange(
        kind="renamed" if kind == "renamed" else "changed",
        path=new.path,
        split=new.split,
        num_rows=new.num_rows,
        changes=found,
    )


def _one_sided(kind: str, entry: Input) -> InputChange:
    return InputChange(
        kind="added" if kind == "added" else "removed",
        path=entry.path,
        split=entry.split,
        num_rows=entry.num_rows,
        changes=(),
    )
