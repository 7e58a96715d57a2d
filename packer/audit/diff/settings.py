"""Differences in what two caches were built from: recipe, inputs, tokenizer and template."""

import difflib
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal

from packer.display import number, plural
from packer.errors import CheckError
from packer.model import CONFIG_FILE, GENERATION_FILE, TEMPLATE_FILE, TOKENIZER_FILE, TOOL_TEMPLATE_FILE
from packer.pipeline.changes import PLACES, flat_keys
from packer.pipeline.identity import model_digests
from packer.pipeline.kept_tokenizer import kept_files
from packer.recipe import Recipe, to_json
from packer.store.cache import Cache
from packer.store.manifest import Input, ModelRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A named value that differs; None if it is absent or null."""

    key: str
    old: Any
    new: Any

    @property
    def kind(self) -> Literal["added", "removed", "changed"]:
        return "added" if self.old is None else "removed" if self.new is None else "changed"

    @property
    def values(self) -> tuple[str, str]:
        """Old and new value as text; a digest is abbreviated."""
        return _value(self.old), _value(self.new)

    @property
    def growth(self) -> str:
        """Difference of two counts; an absent count is 0."""
        return f"{(self.new or 0) - (self.old or 0):+,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputChange:
    """An input that is not the same in both caches."""

    kind: Literal["added", "removed", "changed", "renamed"]
    """``renamed``: the same bytes read in the same way, under another path."""

    path: str
    """As the new manifest names it; for a removed input, as the old manifest does."""

    split: str
    num_rows: int
    changes: tuple[Change, ...]
    """Fields of the manifest's entry that differ; empty if only one cache has the input."""

    @property
    def is_other(self) -> bool:
        """Whether other bytes are read, or the same ones otherwise; fewer rows of them are a rule (`limit`)."""
        return self.kind != "renamed" and [change.key for change in self.changes] != ["num_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateChange:
    """Line-by-line changes of a chat template."""

    name: str
    lines: tuple[str, ...]
    """A unified diff without the two header lines with file names."""

    @property
    def summary(self) -> str:
        removed, added = (plural(sum(line.startswith(sign) for line in self.lines), "line") for sign in "-+")
        return f"{self.name}: {removed} removed, {added} added"


_SAME: tuple[Callable[[Input], object], ...] = (
    lambda entry: (entry.sha256, entry.split),
    lambda entry: (entry.path, entry.split),
    lambda entry: entry.path,
    lambda entry: (PurePosixPath(entry.path).name, entry.split),
)
"""Keys by which inputs are paired, the most reliable first. The last is for folders that were copied and edited."""


def changes(old: Mapping[str, Any], new: Mapping[str, Any], names: Iterable[str] | None = None) -> list[Change]:
    """Return the entries that differ, in the order of `names`; by default all names of both, sorted."""
    return [
        Change(key=name, old=old.get(name), new=new.get(name))
        for name in (sorted(old.keys() | new.keys()) if names is None else names)
        if old.get(name) != new.get(name)
    ]


def compare_recipes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the keys that differ, such as `pack.seed`; a key that an older recipe lacks has its default.

    Keys that are paths are excluded. So are keys of sources that the comparison of inputs covers; those that choose
    rows are named by the source's path, `sources[PATH].take`.
    """
    rules = [flat_keys(to_json(Recipe())) | flat_keys(recipe) for recipe in (old, new)]
    found = [change for change in changes(*rules) if change.key not in PLACES]
    for before, after in _pair_sources(old, new):
        chosen = [{name: source.get(name) or None for name in ("limit", "where", "take")} for source in (before, after)]
        found += [replace(each, key=f"sources[{after['path']}].{each.key}") for each in changes(*chosen)]
    return tuple(found)


def _pair_sources(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the sources of both recipes with the same path, then the others in their order."""
    left: list[Mapping[str, Any]] = []
    others = dict(enumerate(new.get("sources", ())))
    by_path: dict[str, deque[int]] = {}
    for place, source in others.items():
        by_path.setdefault(source["path"], deque()).append(place)
    for source in old.get("sources", ()):
        same = by_path.get(source["path"])
        if same:
            yield source, others.pop(same.popleft())
        else:
            left.append(source)
    yield from zip(left, others.values(), strict=False)


def pair_inputs(old: Sequence[Input], new: Sequence[Input]) -> dict[int, int]:
    """Map the index of each old input to the index of the new input that is the same file, or replaced it.

    A match by file name alone counts only if it is unique among the inputs not yet paired.
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
    """Return the inputs that were added, changed or renamed, in the order of the new manifest, then removed ones."""
    old_of = {new_number: old[old_number] for old_number, new_number in pairs.items()}
    found = [_input_change(old_of.get(number), entry) for number, entry in enumerate(new)]
    found += [_input_change(entry, None) for number, entry in enumerate(old) if number not in pairs]
    return tuple(change for change in found if change is not None)


def _grouped(inputs: Sequence[Input], key: Callable[[Input], object], taken: set[int]) -> dict[object, list[int]]:
    groups: dict[object, list[int]] = {}
    for place, entry in enumerate(inputs):
        if place not in taken:
            groups.setdefault(key(entry), []).append(place)
    return groups


def _input_change(old: Input | None, new: Input | None) -> InputChange | None:
    """Return the change of an input; None if there is none."""
    entry = new or old
    assert entry is not None
    found: tuple[Change, ...] = ()
    if old is None or new is None:
        kind = "added" if old is None else "removed"
    else:
        names = [name for name in Input.__struct_fields__ if name != "part"]  # covered by changes of the recipe
        found = tuple(changes(to_json(old), to_json(new), names=names))
        kind = "renamed" if [change.key for change in found] == ["path"] else "changed"
        if not found:
            return None
    return InputChange(kind=kind, path=entry.path, split=entry.split, num_rows=entry.num_rows, changes=found)  # type: ignore[arg-type]


Files = Mapping[str, bytes]

_ADDED = "added token "
_IDS = ("vocab_size", "pad_id", "eos_id", "stop_ids", "control_ids")


def compare_models(old: Cache, new: Cache) -> tuple[list[Change], list[TemplateChange]]:
    """Compare tokenizer files, settings and ids; and the chat templates."""
    before, after = (cache.manifest.model for cache in (old, new))
    ids = changes(_ids(before), _ids(after), names=_IDS)
    files = changes(model_digests(before), model_digests(after))
    if not files:
        return ids, []
    kept = [kept_files(cache.folder, cache.manifest) for cache in (old, new)]
    return [*files, *changes(*map(_settings, kept)), *ids], _compare_templates(*kept)


def _compare_templates(old: Files, new: Files) -> list[TemplateChange]:
    found = []
    for name in (TEMPLATE_FILE, TOOL_TEMPLATE_FILE):
        # Split at newlines only: splitlines() would also split at other characters, such as form feeds.
        before, after = (files.get(name, b"").decode().split("\n") for files in (old, new))
        if before != after:
            lines = [line.rstrip("\n") for line in difflib.unified_diff(before, after, n=2)][2:]
            found.append(TemplateChange(name=name, lines=tuple(lines)))
    return found


def _ids(record: ModelRecord) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in _IDS}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def split_model(changes: Sequence[Change]) -> tuple[list[Change], list[Change]]:
    """Separate a tokenizer's changes into settings, with training-relevant ids first, and added tokens.

    There may be hundreds of added tokens; their keys are the tokens alone.
    """
    tokens = [
        replace(change, key=change.key.removeprefix(_ADDED)) for change in changes if change.key.startswith(_ADDED)
    ]
    rest = [change for change in changes if not change.key.startswith(_ADDED)]
    return sorted(rest, key=lambda change: change.key not in _IDS), tokens


def _settings(files: Files) -> dict[str, Any]:
    """Return the settings of the JSON files, long lists as digests, without templates that are compared separately."""
    definition = _json(files, TOKENIZER_FILE)
    model = definition.pop("model", None) or {}
    model |= {name: _digest(model[name]) for name in ("vocab", "merges") if model.get(name) is not None}
    found = {f"{_ADDED}{token.pop('content')}": token for token in definition.pop("added_tokens", None) or []}
    found |= {f"{TOKENIZER_FILE} {key}": value for key, value in definition.items()}
    found |= {f"{TOKENIZER_FILE} model.{key}": value for key, value in model.items()}
    in_use = files.get(TEMPLATE_FILE, b"").decode()
    for name in (CONFIG_FILE, GENERATION_FILE):
        values = _json(files, name).items()
        found |= {f"{name} {key}": value for key, value in values if (key, value) != ("chat_template", in_use)}
    return found


def _value(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    if isinstance(value, str) and len(value) == 64 and value.isalnum():
        return value[:16]
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def _digest(values: Sequence[Any] | Mapping[str, Any]) -> str:
    """Summarize a vocabulary or list that is too long to show."""
    return f"{len(values):,} entries, sha256 {hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]}"


def _json(files: Files, name: str) -> dict[str, Any]:
    """Parse a kept file. Its digest is verified, so anything but a JSON object was written by another program."""
    try:
        value = json.loads(files.get(name, b"{}"))
    except ValueError as error:
        raise CheckError(f"the kept {name} is not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}
