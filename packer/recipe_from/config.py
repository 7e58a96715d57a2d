"""The keys of a configuration, each carried over or listed, and its sources in the form of a recipe."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from packer.errors import RecipeError
from packer.hub import SCHEME
from packer.source.files import is_data_set, matches
from packer.source.roles import ROLES

_MOST_SHOWN = 60

_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a text", lambda value: isinstance(value, str)),
    "texts": ("a list of texts", lambda value: all(isinstance(each, str) for each in _listed(value))),
    "mapping": ("a mapping", lambda value: isinstance(value, Mapping)),
}
"""Type of a value → its name in messages, and its check."""


class EntryLeftOutError(Exception):
    """An entry whose rows packer cannot read, and why."""


@dataclass(slots=True, kw_only=True)
class Report:
    """Which keys were carried over; filled while a configuration is read."""

    carried: dict[str, None] = field(default_factory=dict)
    left: dict[str, Any] = field(default_factory=dict)
    """Keys that are not carried over, with their values."""

    left_out: dict[str, str] = field(default_factory=dict)
    """Entries whose rows packer cannot read, and why."""

    @contextmanager
    def entry(self, name: str, values: Mapping[str, Any]) -> "Iterator[Keys]":
        """Report on an entry of a list while the body reads its keys; of one that is left out, only the reason."""
        own = Report()
        try:
            yield Keys(values, own, where=f"{name}.")
        except EntryLeftOutError as error:
            self.left_out[name] = str(error)
        else:
            self.carried |= own.carried
            self.left |= own.left


class Keys:
    """The keys of one mapping of a configuration. What is not taken is not carried over."""

    def __init__(self, values: Mapping[str, Any], report: Report, *, where: str = "") -> None:
        self._values = {str(key): value for key, value in values.items()}
        self._report, self._where = report, where
        report.left |= {where + key: value for key, value in self._values.items()}

    def take(self, key: str, kind: str | None = None) -> Any:
        """Return a key's value; None if it is absent or empty. The key counts as carried over.

        `kind` is the required type. A single text is accepted as a list of texts.
        """
        name, value = self._where + key, self._values.get(key)
        if key in self._values:
            self._report.left.pop(name, None)
            self._report.carried[name] = None
        if value in (None, ""):
            return None
        if kind is not None and not _TYPES[kind][1](value):
            raise RecipeError(f"{name}: expected {_TYPES[kind][0]}, found {shown(value)}")
        return _listed(value) if kind == "texts" else value

    def leave(self, key: str) -> None:
        """Count a key that was taken as not carried over after all."""
        if key in self._values:
            self._report.carried.pop(self._where + key, None)
            self._report.left[self._where + key] = self._values[key]

    def inner(self, key: str) -> "Keys":
        """Return the keys of a nested mapping; empty if it is absent."""
        return Keys(self.take(key, "mapping") or {}, self._report, where=f"{self._where}{key}.")

    def columns(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return packer's name of each field that a key names → the field; `names` has key → packer's name."""
        return {new: column for key, new in names.items() if (column := self.take(key, "text")) is not None}


def refuse_training(key: str, *, is_text: bool) -> NoReturn:
    """Refuse a configuration that trains on plain texts, or else on preference data."""
    hint = "packer build FILE recognizes pairs and rated answers; sources.columns has other names"
    if is_text:
        hint = "packer build FILE --schema text --set pack.mode=stream packs texts as one stream"
    raise RecipeError(f"{key}: this configuration does not train on chats", hint=hint)


def shown(value: Any) -> str:
    """Format a value on one line, truncated."""
    text = json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPaths:
    """Finds the files that a configuration names."""

    bases: tuple[Path, ...]
    """Folders that relative paths may refer to: the trainer's working directory, and the configuration's folder."""

    target: Path
    """The folder of the recipe."""

    def find(self, text: str) -> Path | None:
        """Return the file or folder that a path names, or the pattern if it matches files; None if there is none."""
        places = [base / text for base in self.bases]
        return next((place for place in places if os.path.lexists(place) or matches(str(place))), None)

    def in_recipe(self, path: Path, *, like: str) -> str:
        """Return a path for the recipe: absolute if `like` is, else relative to the recipe's folder."""
        if Path(like).is_absolute():
            return path.absolute().as_posix()
        # Resolve the target: if it is a symlink, `..` leads to the parent of the real folder.
        return Path(os.path.relpath(path.absolute(), self.target.resolve())).as_posix()

    def rows(self, name: str, *, like: str) -> str:
        """Return the path of a file of rows, of a pattern or of a saved dataset; a missing file keeps its place.

        Raises:
            EntryLeftOutError: an address, or a plain folder, of whose files packer guesses none.
        """
        if "://" in name:
            raise EntryLeftOutError("packer reads files of this machine and of the Hub")
        found = self.find(name) or self.bases[0] / name
        if found.is_dir() and not is_data_set(found):
            raise EntryLeftOutError(f"{name} is a folder: name its files in sources, as {name}/*.jsonl does")
        return self.in_recipe(found, like=like)

    def tokenizer(self, text: str | None, revision: str | None) -> dict[str, str]:
        """Return the key of a tokenizer, if one is named: a local folder, or a name on the Hub with its revision."""
        if text is None:
            return {}
        found = self.find(text)
        named = f"{text}@{revision}" if revision else text
        return {"tokenizer": named if found is None else self.in_recipe(found, like=text)}


def hub_path(repository: str, revision: str | None = None, path: str = "") -> str:
    """Return the name of a dataset on the Hub, or of a file of it, as a recipe writes it."""
    name = repository.removeprefix(SCHEME).removeprefix("datasets/")
    at = f"@{revision.replace('/', '%2F')}" if revision else ""
    return f"{SCHEME}datasets/{name}{at}" + f"/{path}" * bool(path)


def rows_of(columns: Mapping[str, str], roles: Mapping[str, str]) -> dict[str, Any]:
    """Return `columns` and `roles` of a source, without what packer reads so by itself; `roles` has sender → role."""
    renamed = {new: old for new, old in columns.items() if new != old}
    senders = {name: role for name, role in roles.items() if ROLES.get(name, ROLES.get(name.lower())) != role}
    return ({"columns": renamed} if renamed else {}) | ({"roles": senders} if senders else {})


def messages_column(names: tuple[str | None, str | None], column: str | None) -> dict[str, str]:
    """Return the column of messages, which packer calls by what its role and its content are called."""
    return {} if column is None else {"conversations" if {"from", "value"}.intersection(names) else "messages": column}
