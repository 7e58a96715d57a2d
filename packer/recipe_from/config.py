"""The keys of a configuration, each carried over or reported, and its sources in the form of a recipe.

How a key is converted is a :class:`Rule` in `axolotl.yaml` or `llamafactory.yaml`, which have one table for each
mapping of a configuration; `Keys.apply` applies a table. Only rules that involve more than one key are code.
"""

import glob
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from packer.errors import RecipeError
from packer.hub import SCHEME, may_be_repository
from packer.names import data_ending
from packer.source.files import matches
from packer.source.roles import ROLES
from packer.strict_yaml import load_mapping

_MOST_SHOWN = 60

_OF_ROWS = (
    *("chat", "column", "data", "field", "len", "mask", "message", "pack", "prompt", "role", "sample", "template"),
    *("token", "train_on"),
)
"""Parts of the names of keys about rows. An unknown key that contains one of them may be misspelled."""

_UNNAMED = ("functions", "chat_template_kwargs")
"""Fields of chat rows that packer reads unasked, and other trainers do not."""

_UNNAMED_OF_INSTRUCTIONS = ("history", "system", "tools", *_UNNAMED, "context", "reasoning")
"""The same for alpaca rows, and fields that other trainers read only if a key names them."""

_UNNAMED_OF_ANSWERS = (
    *("prompt", "messages", "conversations", "conversation", "instruction", "query", "input"),
    *_UNNAMED_OF_INSTRUCTIONS,
)
"""The same for preference data."""

Kind = Literal["differs", "training", "unknown"]
"""``differs``: about rows, and means something different in packer, or nothing. ``training``: the trainer's own."""

_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a text", lambda value: isinstance(value, str)),
    "texts": ("a list of texts", lambda value: all(isinstance(each, str) for each in _listed(value))),
    "number": ("a whole number", lambda value: type(value) is int),
    "mapping": ("a mapping", lambda value: isinstance(value, Mapping)),
}
"""Type of a value → its name in messages, and its check."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a key is converted to a recipe."""

    says: str = ""
    """Reported if the value means something different in packer, or nothing."""

    same: tuple[Any, ...] = ()
    """Values that match packer's behavior anyway."""

    to: str | None = None
    """The corresponding key of the recipe, such as ``pack.min_length``."""

    values: dict[Any, Any] | None = None
    """Value in the configuration → value in the recipe, if they differ."""

    kind: Literal["text", "texts", "number", "mapping"] | None = None
    """The type of its value; None accepts any."""


def load_tables(tool: str) -> dict[str, dict[str, Rule]]:
    """Load a tool's tables, by name: key → rule."""
    tables = load_mapping(Path(__file__).parent / f"{tool}.yaml")
    return {
        name: {
            key: msgspec.convert({"says": rule} if isinstance(rule, str) else rule, Rule)
            for keys, rule in table.items()
            for key in keys.split(", ")
        }
        for name, table in tables.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A key that is not carried over unchanged."""

    key: str
    """As a path: ``datasets[0].shards``."""

    value: Any
    kind: Kind
    says: str

    @property
    def shown(self) -> str:
        """The key with its value, on one line, truncated."""
        return f"{self.key}: {shown(self.value)}"


def shown(value: Any) -> str:
    """Format a value on one line, truncated."""
    text = json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nest values by their dotted keys: ``{"pack.seed": 1}`` becomes ``{"pack": {"seed": 1}}``."""
    values: dict[str, Any] = {}
    for key, value in flat.items():
        group, _, name = key.rpartition(".")
        (values.setdefault(group, {}) if group else values)[name] = value
    return values


class EntryLeftOutError(Exception):
    """An entry whose rows packer cannot read; `key` is the key that is the reason."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


@dataclass(slots=True, kw_only=True)
class Report:
    """How each key was converted; filled while a configuration is read."""

    taken: list[str] = field(default_factory=list)
    noted: dict[tuple[str, str, str, str], Note] = field(default_factory=dict)
    """The notes, by their fields as text, in the order in which they were made."""

    left_out: list[Note] = field(default_factory=list)
    """The notes about entries that were left out."""

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self.noted.values())

    @property
    def carried(self) -> tuple[str, ...]:
        """Keys with the same meaning in the recipe, in the order in which they were read."""
        reported = {note.key for note in self.noted.values()}
        return tuple(key for key in dict.fromkeys(self.taken) if key not in reported)

    @contextmanager
    def entry(self, keys: "Keys") -> Iterator[None]:
        """Report on an entry of a list while the body reads it; for an entry that is left out, only the reason."""
        num_taken, num_notes = len(self.taken), len(self.noted)
        try:
            yield
            keys.report_rest()
        except EntryLeftOutError as error:
            del self.taken[num_taken:]
            while len(self.noted) > num_notes:
                self.noted.popitem()
            keys.report(error.key, f"{error}; the entry is left out", default="")
            self.left_out.append(next(reversed(self.noted.values())))


class Keys:
    """The keys of one mapping of a configuration.

    A caller that takes a key is responsible for converting it; the keys that were not taken are reported at the end.
    """

    def __init__(self, values: Mapping[str, Any], report: Report, *, where: str = "") -> None:
        self._values = {str(key): value for key, value in values.items()}
        self._report = report
        self._where = where
        self._left = dict.fromkeys(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str, kind: str | None = None) -> Any:
        """Return a key's value; None if it is absent or empty. The key counts as carried over, unless it is reported.

        `kind` is the required type, as in a :class:`Rule`. A single text is accepted as a list of texts.

        Raises:
            RecipeError: the value has a different type.
        """
        if key in self._values:
            self._left.pop(key, None)
            self._report.taken.append(self._where + key)
        value = self._values.get(key)
        if value in (None, ""):
            return None
        if kind is not None and not _TYPES[kind][1](value):
            raise RecipeError(f"{self._where}{key}: expected {_TYPES[kind][0]}, found {shown(value)}")
        return _listed(value) if kind == "texts" else value

    def inner(self, key: str) -> "Keys":
        """Return the keys of a nested mapping; empty if it is absent."""
        return Keys(self.take(key, "mapping") or {}, self._report, where=f"{self._where}{key}.")

    def report(self, key: str, says: str, *, kind: Kind = "differs", default: Any = None) -> None:
        """Report that a key is not carried over unchanged, and what that means.

        An absent key is not reported, unless its `default` means something that the reader needs to know.
        """
        if key in self._values or default is not None:
            self._left.pop(key, None)
            note = Note(key=self._where + key, value=self._values.get(key, default), kind=kind, says=says)
            # An entry used for two splits is read twice.
            self._report.noted.setdefault((note.key, repr(note.value), kind, says), note)

    def apply(self, table: Mapping[str, Rule]) -> dict[str, Any]:
        """Take the keys of a table and return the recipe's values by its keys; report what cannot be converted."""
        found: dict[str, Any] = {}
        for key, rule in table.items():
            value = self.take(key, rule.kind)
            if value in (None, {}, []) or value in rule.same:
                continue
            if rule.to is not None and (rule.values is None or value in [*rule.values]):
                found[rule.to] = value if rule.values is None else rule.values[value]
            else:
                self.report(key, rule.says)
        return found

    def held_out(self, key: str) -> dict[str, Any]:
        """Convert the share of rows that a trainer holds out for evaluation; a number of rows is only reported."""
        size = self.take(key)
        if not size:
            return {}
        if type(size) is not float or not 0 < size < 1:
            self.report(
                key,
                "packer cannot hold out a fixed number of rows; split.shares.validation is a share, such as 0.02",
            )
            return {}
        self.report(
            key, "drawn by the first prompt, so that no prompt is in both; not the rows that the trainer would draw"
        )
        return {"split.shares": {"validation": size}}

    def report_rest(self, *, own: Collection[str] | None = None) -> None:
        """Report the keys that were not taken.

        With `own`, these keys and others whose names do not suggest rows are reported as the trainer's own, the rest as
        unknown.
        """
        for key in list(self._left):
            if own is not None and (key in own or not any(word in key for word in _OF_ROWS)):
                self.report(key, "the trainer's own", kind="training")
            else:
                self.report(key, "not known here", kind="unknown")


def _listed(value: Any) -> list[Any]:
    """Return a list unchanged, and another value as a list of one."""
    return value if isinstance(value, list) else [value]


NAME_FILES = "packer does not guess files on the Hub; name them: hf://datasets/…/FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPaths:
    """Finds the files that a configuration names."""

    bases: tuple[Path, ...]
    """Folders that relative paths may refer to: the trainer's working directory, and the configuration's folder."""

    target: Path
    """The folder of the recipe."""

    absolute: bool = False
    """Whether paths in the recipe must be absolute because the path they were found below was."""

    def find(self, text: str) -> Path | None:
        """Return the file or folder that a path names, or the pattern if it matches files; None if there is none."""
        places = [base / text for base in self.bases]
        there = next((place for place in places if os.path.lexists(place)), None)
        return there or next((place for place in places if matches(str(place))), None)

    def in_recipe(self, path: Path, *, like: str) -> str:
        """Return a path for the recipe: absolute if `like` is, else relative to the recipe's folder."""
        if self.absolute or Path(like).is_absolute():
            return path.absolute().as_posix()
        # Resolve the target: if it is a symlink, `..` leads to the parent of the real folder.
        return Path(os.path.relpath(path.absolute(), self.target.resolve())).as_posix()

    def tokenizer(self, text: str, revision: str | None) -> str:
        """Return a tokenizer for the recipe: a local folder, or a name on the Hub with its revision."""
        found = self.find(text)
        if found is not None:
            return self.in_recipe(found, like=text)
        return f"{text}@{revision}" if revision else text


def are_several(names: Sequence[str]) -> bool:
    """Whether these paths refer to several files, or may do so."""
    return len(names) > 1 or any(
        glob.has_magic(name) or (name.startswith(SCHEME) and data_ending(name) is None) for name in names
    )


def is_on_hub(text: str) -> bool:
    return text.startswith(SCHEME) or may_be_repository(text)


def hub_path(repository: str, revision: str | None = None, path: str = "") -> str:
    """Return the name of a dataset on the Hub, or of a file of it, as a recipe writes it."""
    name = repository.removeprefix(SCHEME).removeprefix("datasets/")
    at = f"@{revision.replace('/', '%2F')}" if revision else ""
    return f"{SCHEME}datasets/{name}{at}" + f"/{path}" * bool(path)


def files_pattern(folder: Path, key: str) -> Path:
    """Return a pattern for the data files of a plain folder.

    Raises:
        EntryLeftOutError: they are of several kinds, or there are none.
    """
    named = (path.name for path in folder.iterdir() if not path.name.startswith("."))  # glob patterns skip dot files
    kinds = {kind for name in named if (kind := data_ending(name)) is not None}
    if len(kinds) != 1:
        raise EntryLeftOutError(key, "a folder with no data files, or with files of several kinds: name those meant")
    return Path(glob.escape(str(folder))) / f"*{kinds.pop()}"


def rows_of(schema: str, columns: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """Return the keys of a source, omitting columns that already have packer's names."""
    renamed = {new: old for new, old in (columns or {}).items() if new != old}
    return {"schema": schema} | ({"columns": renamed} if renamed else {})


def chat_rows(key: str, *, messages: str, role: str, content: str, columns: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the keys of a source of messages.

    Raises:
        EntryLeftOutError: packer does not read these names of role or content; `key` is the key that gives them.
    """
    columns = _hidden(_UNNAMED, columns)
    if (role, content) == ("role", "content"):
        return rows_of("messages", {"messages": messages, **columns})
    if role in ("role", "from") and content in ("content", "value"):
        return rows_of("sharegpt", {"conversations": messages, **columns})
    raise EntryLeftOutError(
        key, "packer reads the speaker from role or from, and the text from content or value: rename them in the rows"
    )


def alpaca_rows(columns: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the keys of an alpaca source; optional columns that packer could read are off unless given."""
    return rows_of("alpaca", _hidden(_UNNAMED_OF_INSTRUCTIONS, columns))


def answer_rows(schema: str, columns: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the keys of a source of preference data; other columns that packer could read are off."""
    return rows_of(schema, _hidden(_UNNAMED_OF_ANSWERS, columns))


def _hidden(unnamed: Iterable[str], columns: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the columns with fields hidden that no key names."""
    return {name: None for name in unnamed if name not in columns.values()} | dict(columns)


def renamed_roles(roles: Mapping[str, str]) -> dict[str, Any]:
    """Return the key `roles` of a source for senders by their role, if packer does not read some of them so itself."""
    renamed = {name: role for name, role in roles.items() if ROLES.get(name, ROLES.get(name.lower())) != role}
    return {"roles": renamed} if renamed else {}
