"""The keys of a configuration, each carried over or reported, and its sources as a recipe says them.

What becomes of a key is a :class:`Rule` in `axolotl.yaml` or `llamafactory.yaml`, in one table for each mapping of a
configuration; `Keys.apply` goes by a table. Only what one key alone cannot say is code.
"""

import glob
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from packer.errors import RecipeError
from packer.hub import SCHEME, may_be_repository
from packer.names import data_ending
from packer.source import is_data_set
from packer.source.chat import CALL_ROLES, ROLES
from packer.strict_yaml import load_mapping

_MOST_SHOWN = 60

_OF_ROWS = (
    *("chat", "column", "data", "field", "len", "mask", "message", "pack", "prompt", "role", "sample", "template"),
    *("token", "train_on"),
)
"""Words in the names of keys about rows. A key with one of them that packer does not know may be misspelled."""

Kind = Literal["differs", "training", "unknown"]
"""``differs``: about rows, and means something else in packer, or nothing. ``training``: the trainer's own."""

_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a text", lambda value: isinstance(value, str)),
    "texts": ("a list of texts", lambda value: all(isinstance(each, str) for each in _listed(value))),
    "number": ("a whole number", lambda value: type(value) is int),
    "mapping": ("a mapping", lambda value: isinstance(value, Mapping)),
}
"""Of a value: what a message calls it, and whether it is that."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The meaning of a key in a recipe."""

    says: str = ""
    """Reported of a value that means something else in packer, or nothing."""

    same: tuple[Any, ...] = ()
    """Values that are what packer does anyway."""

    to: str | None = None
    """The key of the recipe that says it, such as ``pack.min_length``."""

    values: dict[Any, Any] | None = None
    """Their word → the recipe's, where it has words of its own."""

    kind: Literal["text", "texts", "number", "mapping"] | None = None
    """The type of its value; None takes any."""


def load_tables(tool: str) -> dict[str, dict[str, Rule]]:
    """The tables of a tool, by their names: key → rule."""
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
    """A key that is not carried over as it is."""

    key: str
    """As a path: ``datasets[0].shards``."""

    value: Any
    kind: Kind
    says: str

    @property
    def shown(self) -> str:
        """The key with its value, on one line and not too long."""
        return f"{self.key}: {shown(self.value)}"


def shown(value: Any) -> str:
    """A value on one line and not too long."""
    text = json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Values by their keys as the mapping of a recipe: ``{"pack.seed": 1}`` is ``{"pack": {"seed": 1}}``."""
    values: dict[str, Any] = {}
    for key, value in flat.items():
        group, _, name = key.rpartition(".")
        (values.setdefault(group, {}) if group else values)[name] = value
    return values


class EntryLeftOutError(Exception):
    """An entry whose rows cannot be had; `key` of it says why."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


@dataclass(slots=True, kw_only=True)
class Report:
    """How each key was converted; filled while a configuration is read."""

    taken: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    left_out: list[Note] = field(default_factory=list)
    """The notes on whole entries."""

    @property
    def carried(self) -> tuple[str, ...]:
        """Keys that mean in the recipe what they meant before, in the order in which they were read."""
        reported = {note.key for note in self.notes}
        return tuple(key for key in dict.fromkeys(self.taken) if key not in reported)

    @contextmanager
    def entry(self, keys: "Keys") -> Iterator[None]:
        """Reading an entry of a list. Of one that is left out nothing is reported but why."""
        num_taken, num_notes = len(self.taken), len(self.notes)
        try:
            yield
            keys.report_rest()
        except EntryLeftOutError as error:
            del self.taken[num_taken:], self.notes[num_notes:]
            keys.report(error.key, f"{error}; the entry is left out", default="")
            self.left_out.append(self.notes[-1])


class Keys:
    """The keys of one mapping of a configuration. Whoever takes one answers for it; the rest is reported at the end."""

    def __init__(self, values: Mapping[str, Any], report: Report, *, where: str = "") -> None:
        self._values = {str(key): value for key, value in values.items()}
        self._report = report
        self._where = where
        self._left = dict.fromkeys(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str, kind: str | None = None) -> Any:
        """Its value; None where it is not there or empty. The key counts as carried over, unless it is reported.

        Args:
            key: of this mapping.
            kind: the type that its value must have, as in a :class:`Rule`. A text alone is a list of texts.

        Raises:
            RecipeError: it is of another.

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
        """The keys of a mapping; none where it is not there."""
        return Keys(self.take(key, "mapping") or {}, self._report, where=f"{self._where}{key}.")

    def report(self, key: str, says: str, *, kind: Kind = "differs", default: Any = None) -> None:
        """Report that a key is not carried over as it is, and what that means.

        Where the key is not there nothing is reported, unless its `default` means something that a reader has to know.
        """
        if key in self._values or default is not None:
            self._left.pop(key, None)
            note = Note(key=self._where + key, value=self._values.get(key, default), kind=kind, says=says)
            if note not in self._report.notes:  # an entry of two splits is read twice
                self._report.notes.append(note)

    def apply(self, table: Mapping[str, Rule]) -> dict[str, Any]:
        """Take the keys of a table: what the recipe has instead, by its keys. The others are reported."""
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
        """What a trainer draws for evaluation, as a share of a recipe's `split`; a number of rows is reported alone."""
        size = self.take(key)
        if not size:
            return {}
        if type(size) is not float or not 0 < size < 1:
            self.report(key, "packer draws no number of rows: split.shares.validation is a share, such as 0.02")
            return {}
        self.report(
            key, "drawn by the first prompt, so that no prompt is in both; not the rows that the trainer would draw"
        )
        return {"split.shares": {"validation": size}}

    def report_rest(self, *, is_training: bool = False) -> None:
        """Report what nobody took; of a training's own keys those whose names say nothing of rows as the trainer's."""
        for key in list(self._left):
            if is_training and not any(word in key for word in _OF_ROWS):
                self.report(key, "the trainer's own", kind="training")
            else:
                self.report(key, "not known here", kind="unknown")


def _listed(value: Any) -> list[Any]:
    """A list; a value alone is a list of one."""
    return value if isinstance(value, list) else [value]


NAME_FILES = "of a data set of the Hub packer takes the files that are named, and guesses none: hf://datasets/…/FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPaths:
    """Finds what a configuration names."""

    bases: tuple[Path, ...]
    """What relative paths may be relative to: where the trainer is started, and the folder of the configuration."""

    target: Path
    """The folder of the recipe."""

    absolute: bool = False
    """Whether every path was given as below an absolute one."""

    def find(self, text: str) -> Path | None:
        """The file or folder that a path names, or the pattern if it matches files; None where there is none."""
        places = [base / text for base in self.bases]
        there = next((place for place in places if os.path.lexists(place)), None)
        return there or next((place for place in places if glob.glob(str(place))), None)  # noqa: PTH207 - as sources are globbed

    def in_recipe(self, path: Path, *, like: str) -> str:
        """A path as the recipe says it: absolute where `like` was, else relative to the recipe's folder."""
        if self.absolute or Path(like).is_absolute():
            return path.absolute().as_posix()
        # Of a folder that is a link, `..` leads to where it really lies.
        return Path(os.path.relpath(path.absolute(), self.target.resolve())).as_posix()

    def tokenizer(self, text: str, revision: str | None) -> str:
        """A tokenizer: a folder of this machine, or a name of the Hub with its revision."""
        found = self.find(text)
        if found is not None:
            return self.in_recipe(found, like=text)
        return f"{text}@{revision}" if revision else text


def are_several(names: Sequence[str]) -> bool:
    """Whether these paths stand for several files, or may do so."""
    return len(names) > 1 or any(
        glob.has_magic(name) or (name.startswith(SCHEME) and data_ending(name) is None) for name in names
    )


def is_on_hub(text: str) -> bool:
    return text.startswith(SCHEME) or may_be_repository(text)


def hub_path(repository: str, revision: str | None = None, path: str = "") -> str:
    """How a recipe names a data set of the Hub, or a file of it."""
    name = repository.removeprefix(SCHEME).removeprefix("datasets/")
    at = f"@{revision.replace('/', '%2F')}" if revision else ""
    return f"{SCHEME}datasets/{name}{at}" + f"/{path}" * bool(path)


def data_set_folder(folder: Path, split: str) -> Path | None:
    """Where a folder of `save_to_disk` has the rows of a split; None where it is no such folder."""
    if not is_data_set(folder):
        return None
    return folder / split if is_data_set(folder / split) else folder


def files_pattern(folder: Path, key: str) -> Path:
    """A pattern for the data files of a plain folder.

    Raises:
        EntryLeftOutError: they are of several kinds, or there are none.

    """
    named = (path.name for path in folder.iterdir() if not path.name.startswith("."))  # as a pattern passes them over
    kinds = {kind for name in named if (kind := data_ending(name)) is not None}
    if len(kinds) != 1:
        raise EntryLeftOutError(key, "a folder with no data files, or with files of several kinds: name those meant")
    return Path(glob.escape(str(folder))) / f"*{kinds.pop()}"


MESSAGE_FIELDS = {
    "role": ("role", "from"),
    "content": ("content", "value"),
    "reasoning_content": ("reasoning_content", "reasoning", "thinking"),
    "tool_calls": ("tool_calls",),
    "tool_call_id": ("tool_call_id",),
    "name": ("name",),
}
"""What packer reads in a message, by the name that templates know it by; a message's own fields cannot be renamed."""


def rows_of(schema: str, columns: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """The keys of a source; columns that are called as packer calls them are left out."""
    renamed = {new: old for new, old in (columns or {}).items() if new != old}
    return {"schema": schema} | ({"columns": renamed} if renamed else {})


def chat_rows(key: str, *, messages: str, role: str, content: str, columns: Mapping[str, str | None]) -> dict[str, Any]:
    """Rows of messages.

    Raises:
        EntryLeftOutError: packer does not read who speaks, or what is said, under these names, which `key` gives.

    """
    if (role, content) == ("role", "content"):
        return rows_of("messages", {"messages": messages, **columns})
    if role in MESSAGE_FIELDS["role"] and content in MESSAGE_FIELDS["content"]:
        return rows_of("sharegpt", {"conversations": messages, **columns})
    raise EntryLeftOutError(
        key, "packer reads who speaks in role or from, and what is said in content or value: rename them in the rows"
    )


def alpaca_rows(columns: Mapping[str, str | None]) -> dict[str, Any]:
    """Rows of instruction, input and output; of what else packer would read in them, only what is asked for."""
    return rows_of("alpaca", dict.fromkeys(("history", "system", "tools")) | dict(columns))


def is_read_as(name: str, role: str) -> bool:
    """Whether packer takes a sender of this name for that role."""
    return ROLES.get(name, ROLES.get(name.lower())) == role or (role == "function_call" and name in CALL_ROLES)
