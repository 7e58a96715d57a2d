"""The rules of two caches, key by key, and the software that followed them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packer.audit.diff.report import Change, RecipeDiff, SoftwareDiff
from packer.build.recipe_changes import PLACES, flat_keys
from packer.recipe import Recipe, Source, to_json
from packer.store.manifest import Manifest


def compare_recipes(old: Mapping[str, Any], new: Mapping[str, Any]) -> RecipeDiff | None:
    """Keys that differ, as `pack.seed` or `sources[0].limit`; a key a cache does not have yet has its default."""
    found = changes(_rules(old), _rules(new))
    found += _source_changes(old.get("sources") or [], new.get("sources") or [])
    if not found:
        return None
    return RecipeDiff(
        rules=tuple(change for change in found if not _is_place(change.key)),
        places=tuple(change for change in found if _is_place(change.key)),
    )


def compare_software(old: Manifest, new: Manifest) -> SoftwareDiff | None:
    """Engine and versions that differ."""
    names = ("engine", "engine_version", "rules_version", "format_version")
    engine = changes(*({name: getattr(manifest, name) for name in names} for manifest in (old, new)))
    versions = changes(old.versions, new.versions)
    return SoftwareDiff(engine=tuple(engine), versions=tuple(versions)) if engine or versions else None


def changes(old: Mapping[str, Any], new: Mapping[str, Any], names: Iterable[str] | None = None) -> list[Change]:
    """Entries that differ, in the order of `names`, which are all of both by default, sorted."""
    return [
        Change(key=name, old=old.get(name), new=new.get(name))
        for name in (sorted(old.keys() | new.keys()) if names is None else names)
        if old.get(name) != new.get(name)
    ]


def _rules(recipe: Mapping[str, Any]) -> dict[str, Any]:
    flat = flat_keys(to_json(Recipe())) | flat_keys(recipe)
    del flat["sources"]
    return flat


def _is_place(key: str) -> bool:
    return key in PLACES or (key.startswith("sources[") and key.endswith("].path"))


def _source_changes(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Entries of `sources`, numbered as in the new recipe: paired by path, and where as many are left, in order."""
    rest = {number: dict(entry) for number, entry in enumerate(old)}
    pairs: dict[int, int] = {}
    for number, entry in enumerate(new):
        same = next((other for other, found in rest.items() if found.get("path") == entry.get("path")), None)
        if same is not None:
            pairs[number] = same
            del rest[same]
    left = [number for number in range(len(new)) if number not in pairs]
    if len(left) == len(rest):
        pairs |= dict(zip(left, rest, strict=True))
        rest = {}
    found: list[Change] = []
    for number, entry in enumerate(new):
        if number in pairs:
            found += changes(_numbered(number, old[pairs[number]]), _numbered(number, entry))
        else:
            found.append(Change(key=f"sources[{number}]", old=None, new=dict(entry)))
    return found + [Change(key=f"sources[{number}]", old=entry, new=None) for number, entry in rest.items()]


def _numbered(number: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of an entry of `sources`, defaults written out."""
    whole = {**to_json(Source(path="")), **entry}
    whole["split"] = whole["split"] or "train"  # the splits of a saved DatasetDict are told by its inputs
    return {f"sources[{number}].{key}": value for key, value in whole.items()}
