"""What both kinds of configurations need: their keys, of which some are carried over, and the files that they name."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from packer.errors import PackerError, RecipeError
from packer.names import SCHEME, is_address, refuse_address
from packer.recipe.strict_yaml import load_mapping
from packer.source.files import is_data_set, matches
from packer.source.roles import ROLES

EXPECTED = "a configuration of axolotl (datasets:) or of LLaMA-Factory (dataset:)"
_MOST_SHOWN = 60


def load_config(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON mapping as plain values that can be written to a recipe and to a screen."""
    values = load_mapping(path, hint=f"FILE is {EXPECTED}")
    try:
        json.dumps(values, ensure_ascii=False, default=str, skipkeys=True).encode()
    except UnicodeEncodeError as error:
        found = ascii(error.object[max(error.start - 40, 0) : error.start + 40])
        raise RecipeError(f"{path}: {found} is not UTF-8: it has half a surrogate") from None
    except (RecursionError, ValueError) as error:
        raise RecipeError(f"{path}: a value contains itself, is nested too deeply, or is too large: {error}") from None
    return values


class EntryLeftOutError(Exception):
    """An entry whose rows packer cannot read, and why."""


_TYPES = {"text": "a text", "texts": "a list of texts", "mapping": "a mapping"}
"""Types of values, and what messages call them."""


class Keys:
    """The keys of one mapping of a configuration. What is not taken is not carried over."""

    def __init__(self, values: Mapping[str, Any], *, where: str = "", within: "Keys | None" = None) -> None:
        self._values = {str(key): value for key, value in values.items()}
        self._where = where
        self.carried: dict[str, None] = {} if within is None else within.carried
        self.left: dict[str, Any] = {} if within is None else within.left
        self.left_out: dict[str, str] = {}
        self.left |= {where + key: value for key, value in self._values.items()}

    def take(self, key: str, kind: str | None = None) -> Any:
        """Return a key's value; None if it is absent or empty. The key counts as carried over.

        `kind` is the required type. A single text is accepted as a list of texts.
        """
        name, value = self._where + key, self._values.get(key)
        if key in self._values:
            self.left.pop(name, None)
            self.carried[name] = None
        if value in (None, ""):
            return None
        values = value if isinstance(value, list) and kind == "texts" else [value]
        if kind and not all(isinstance(each, Mapping if kind == "mapping" else str) for each in values):
            raise RecipeError(f"{name}: expected {_TYPES[kind]}, found {one_line_of(value)}")
        return values if kind == "texts" else value

    def leave(self, key: str) -> None:
        """Count a key that was taken as not carried over after all."""
        if key in self._values:
            self.carried.pop(self._where + key, None)
            self.left[self._where + key] = self._values[key]

    def inner(self, key: str) -> "Keys":
        """Return the keys of a nested mapping; empty if it is absent."""
        return Keys(self.take(key, "mapping") or {}, where=f"{self._where}{key}.", within=self)

    def columns(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return packer's name of each field that a key names → the field; `names` has key → packer's name."""
        return {new: column for key, new in names.items() if (column := self.take(key, "text")) is not None}

    def sources(
        self, name: str, values: Mapping[str, Any], read: Callable[["Keys"], list[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """Return the sources that `read` makes of an entry of a list; of one that is left out, only the reason."""
        own = Keys(values, where=f"{name}.")
        try:
            found = read(own)
        except EntryLeftOutError as error:
            self.left_out[name] = str(error)
            return []
        self.carried |= own.carried
        self.left |= own.left
        return found


def refuse_training(key: str, *, is_text: bool) -> NoReturn:
    """Refuse a configuration that trains on plain texts, or else on preference data."""
    preference = "packer build FILE recognizes pairs and rated answers; sources.columns has other names"
    hint = "packer build FILE --schema text --set pack.mode=stream packs texts as one stream" if is_text else preference
    raise RecipeError(f"{key}: this configuration does not train on chats", hint=hint)


def one_line_of(value: Any) -> str:
    """Format a value on one line, truncated."""
    text = json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
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
        """Return the path of a file of rows, of a pattern or of a saved dataset; a missing file keeps its place."""
        if is_address(name):
            try:
                refuse_address(name, place="input")
            except PackerError as error:
                raise EntryLeftOutError(error.message) from None
            return name
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


def columns_and_roles(
    messages: str | None, names: Iterable[str | None], columns: Mapping[str, str], roles: Mapping[str, str]
) -> dict[str, Any]:
    """Return `columns` and `roles` of a source, without what packer reads so by itself; `roles` has sender → role.

    The column of messages is called by what a message's role and its content, `names`, are called.
    """
    schema = "conversations" if {"from", "value"}.intersection(names) else "messages"
    renamed = {new: old for new, old in {schema: messages, **columns}.items() if old is not None and new != old}
    senders = {name: role for name, role in roles.items() if ROLES.get(name, ROLES.get(name.lower())) != role}
    return ({"columns": renamed} if renamed else {}) | ({"roles": senders} if senders else {})
