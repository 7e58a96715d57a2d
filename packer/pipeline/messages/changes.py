"""What differs between recipes; what a build would change about an existing cache, and whether that needs `--force`.

Adding or changing inputs is what building again is for, and needs no force. Changing the rules does, and so does a
build that keeps none of the cache's inputs, since it would replace the cache by an unrelated one.

An input is kept if one of the new inputs has its name or its bytes. A source (a pattern, a folder) is kept if the new
recipe names it too, whatever files it matches now. Names are compared as the recipe and the manifest spell them, but
without the commit for files of the Hub. Standard input has no name, and is identified by its bytes alone.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from packer.display import listed
from packer.errors import UsageError
from packer.names import data_name
from packer.pipeline.identity import Provenance
from packer.recipe.recipe import Recipe, Source, to_json
from packer.source.files import STANDARD_INPUT
from packer.store.manifest import Input, Manifest

_MOST_NAMED = 8

PLACES = ("sources", "tokenizer", "template.file", "template.name", "media.root")
"""Keys that name places; their contents are compared by digest instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A named value that differs; None if it is absent or null."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        """Say what it was and is, as JSON; of long values, at most 60 characters from shortly before they part."""
        texts = [msgspec.json.encode(value, order="sorted").decode() for value in (self.old, self.new)]
        same = len([*takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))])
        first = max(0, same - 20) if len(max(texts, key=len)) > 60 else 0
        was, now = (
            ("…" if first else "") + each[first : first + 60] + "…" * bool(each[first + 60 :]) for each in texts
        )
        return f"was {was}, is {now}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a build would change about a cache."""

    num_inputs: int
    leaving: tuple[str, ...]
    """Names of the cache's inputs that the build does not have."""

    keeps_none: bool
    """Whether no input and no source of the cache is kept."""

    rules: tuple[str, ...]
    """Changed keys of the recipe, changed keys of kept sources, and changed files of the tokenizer, as phrases."""

    @property
    def need_force(self) -> bool:
        return self.keeps_none or bool(self.rules)

    def sentences(self) -> list[str]:
        """Say of the cache what would change, one sentence per kind; inputs that leave come last."""
        inputs = listed(self.leaving, _MOST_NAMED)
        return [
            *([f"was built by another recipe: {listed(self.rules, _MOST_NAMED, '; ')}"] if self.rules else ()),
            *([f"would lose inputs ({len(self.leaving)} of {self.num_inputs}): {inputs}"] if self.leaving else ()),
        ]

    def refuse(self, folder: Path) -> None:
        """Refuse changes that need `--force`."""
        if self.need_force:
            told = "; and it ".join(self.sentences())
            raise UsageError(f"{folder} {told}", hint="--force replaces it; -o another folder keeps both")


def changes(manifest: Manifest, wanted: Provenance) -> Changes:
    """Compare the cache of a manifest with what building `wanted` would make."""
    by_name, by_bytes = _grouped(wanted.inputs)
    kept: list[tuple[list[Input], list[Input]]] = []
    leaving: list[str] = []
    for name, inputs in _grouped(manifest.inputs)[0].items():
        new = by_name.get(name) or by_bytes.get(inputs[0].sha256)
        if new is None:
            leaving.append(inputs[0].path)
        else:
            kept.append((inputs, new))
    before, after = manifest.recipe, to_json(wanted.recipe)
    rules = (f"{change.key} {change}" for change in compare_recipes(before, after) if _is_rule(change.key))
    files = compare(manifest.model.digests, wanted.model.digests)
    return Changes(
        num_inputs=len(kept) + len(leaving),
        leaving=tuple(leaving),
        keeps_none=not kept and _taken(before).keys().isdisjoint(_taken(after)),
        rules=(*rules, *_readings(kept), *(f"{change.key} differs" for change in files)),
    )


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the values that differ as JSON.

    In Python true, 1 and 1.0 are equal, but a template prints them, and a rule tells them apart.
    """
    texts = [{name: msgspec.json.encode(value, order="sorted") for name, value in each.items()} for each in (old, new)]
    names = dict.fromkeys([*old, *new])
    return tuple(
        Change(key=name, old=old.get(name), new=new.get(name))
        for name in names
        if texts[0].get(name, b"null") != texts[1].get(name, b"null")
    )


def compare_recipes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the keys that differ, such as `pack.seed`; a key that an older recipe lacks has its default.

    Keys that are paths are excluded. So are keys of sources that decide how inputs are read; those that choose rows are
    named by the source's path, `sources[PATH].take`, if both recipes have the source.
    """
    before, after = _taken(old), _taken(new)
    both = before.keys() & after
    rules = []
    for recipe, taken in ((old, before), (new, after)):
        flat = {**_flat_keys(to_json(Recipe())), **_flat_keys(recipe)}
        chosen = {
            f"sources[{name}].{key}": value or None
            for name, own in taken.items()
            for key, value in own.items()
            if name in both
        }
        rules.append(
            {key: value for key, value in flat.items() if key not in PLACES and value not in ({}, [])} | chosen
        )
    return compare(*rules)


def _flat_keys(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested keys: `{"pack": {"seed": 1}}` becomes `{"pack.seed": 1}`; an empty mapping is a value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, Mapping) and value
        flat |= _flat_keys(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _grouped(inputs: Iterable[Input]) -> tuple[dict[str, list[Input]], dict[str, list[Input]]]:
    """Group inputs by name and by digest; a file may be listed once per split."""
    by_name: dict[str, list[Input]] = {}
    by_bytes: dict[str, list[Input]] = {}
    for entry in inputs:
        # Key standard input by its digest, which cannot collide with a path.
        by_name.setdefault(entry.sha256 if entry.path == STANDARD_INPUT else _name(entry.path), []).append(entry)
        by_bytes.setdefault(entry.sha256, []).append(entry)
    return by_name, by_bytes


def _name(path: str) -> str:
    hub = data_name(path)
    return path if hub is None else str(replace(hub, revision=None))


def _is_rule(key: str) -> bool:
    """Whether a key of a recipe decides documents or blocks; every engine makes the same."""
    is_place = re.fullmatch(r"(token|document)_columns\..*\.file", key)
    return not (is_place or key == "engine" or key.startswith("read."))


def _taken(recipe: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return which rows a recipe takes from each named source; empty if the manifest contains no valid sources.

    Of a name that several sources have, lists of what each of them says, unless all say the same.
    """
    try:
        sources = msgspec.convert(recipe.get("sources"), tuple[Source, ...])
    except msgspec.ValidationError:
        return {}
    by_name: dict[str, list[Source]] = {}
    for source in sources:
        if source.path != STANDARD_INPUT:
            by_name.setdefault(_name(source.path), []).append(source)
    taken = {}
    for name, own in by_name.items():
        values = {key: [to_json(getattr(source, key)) for source in own] for key in ("limit", "where", "take")}
        taken[name] = {key: each[0] if each.count(each[0]) == len(each) else each for key, each in values.items()}
    return taken


def _readings(kept: Iterable[tuple[list[Input], list[Input]]]) -> Iterator[str]:
    """Say how an input was read and is read now, if none of the old ways of reading it is among the new ones."""
    for old, new in kept:
        names = ("split", "schema", "columns", "roles")
        before, after = ([{name: getattr(entry, name) for name in names} for entry in own] for own in (old, new))
        if not any(reading in after for reading in before):
            yield from (f"{change.key} of {old[0].path} {change}" for change in compare(before[0], after[0]))
