"""The keys of a configuration: each is carried over, or reported with what packer makes of it.

What becomes of a key is a :class:`Rule` in a table, one for each mapping of a tool's configuration; `Keys.apply` reads
the table. Only what one key alone cannot say, such as which columns a type of rows has, is code.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from packer.errors import RecipeError

_MOST_SHOWN = 60

_OF_ROWS = (
    *("chat", "column", "data", "field", "len", "mask", "message", "pack", "prompt", "role", "sample", "template"),
    *("token", "train_on"),
)
"""Words in the names of keys about rows. A key with one of them that packer does not know may be misspelled."""

Kind = Literal["differs", "training", "unknown"]
"""``differs``: about rows, and means something else in packer, or nothing. ``training``: the trainer's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The meaning of a key in a recipe."""

    says: str = ""
    """Reported of a value that means something else in packer, or nothing."""

    same: tuple[Any, ...] = ()
    """Values that are what packer does anyway."""

    to: str | None = None
    """The key of the recipe that says it, such as ``pack.min_length``."""

    values: Mapping[Any, Any] | None = None
    """Their word → the recipe's, where it has words of its own."""

    kind: Literal["take", "text", "texts", "number", "mapping"] = "take"
    """The type of its value, named as the method of :class:`Keys` that takes it."""


def noted(says: str, *same: Any) -> Rule:
    """The rule of a key that a recipe has no word for."""
    return Rule(says=says, same=same)


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


def held_out(keys: "Keys", key: str) -> dict[str, Any]:
    """What a trainer draws for evaluation, as a share of a recipe's `split`; a number of rows is reported alone."""
    size = keys.take(key)
    if not size:
        return {}
    if type(size) is not float or not 0 < size < 1:
        keys.report(key, "packer draws no number of rows: split.shares.validation is a share, such as 0.02")
        return {}
    keys.report(
        key, "drawn by the first prompt, so that no prompt is in both; not the rows that the trainer would draw"
    )
    return {"split.shares": {"validation": size}}


class EntryLeftOutError(Exception):
    """An entry whose rows cannot be had; `key` of it says why."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key
        self.reason = reason


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
            keys.report(error.key, f"{error.reason}; the entry is left out", default="")
            self.left_out.append(self.notes[-1])


class Keys:
    """The keys of one mapping of a configuration. Whoever takes a key answers for it; the rest is reported at the end.

    Methods that take a key of one type raise RecipeError where it holds something else.
    """

    def __init__(self, values: Mapping[str, Any], report: Report, *, where: str = "") -> None:
        self._values = {str(key): value for key, value in values.items()}
        self._report = report
        self._where = where
        self._left = dict.fromkeys(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str) -> Any:
        """Its value; None where it is not there or empty. The key counts as carried over, unless it is reported."""
        if key in self._values:
            self._left.pop(key, None)
            self._report.taken.append(self._where + key)
        value = self._values.get(key)
        return None if value == "" else value

    def text(self, key: str) -> str | None:
        """A text."""
        value: str | None = self._of_type(key, "a text", lambda value: isinstance(value, str))
        return value

    def texts(self, key: str) -> list[str] | None:
        """A list of texts, or one text alone."""

        def fits(value: Any) -> bool:
            return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))

        value: list[str] | str | None = self._of_type(key, "a list of texts", fits)
        return [value] if isinstance(value, str) else value

    def number(self, key: str) -> int | None:
        """A whole number."""
        value: int | None = self._of_type(key, "a whole number", lambda value: type(value) is int)
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        """A mapping; an empty one where it is not there."""
        return self._of_type(key, "a mapping", lambda value: isinstance(value, Mapping)) or {}

    def inner(self, key: str) -> "Keys":
        """The keys of a mapping."""
        return Keys(self.mapping(key), self._report, where=f"{self._where}{key}.")

    def _of_type(self, key: str, expected: str, fits: Callable[[Any], bool]) -> Any:
        value = self.take(key)
        if value is not None and not fits(value):
            raise RecipeError(f"{self._where}{key}: expected {expected}, found {shown(self._values[key])}")
        return value

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
            value = getattr(self, rule.kind)(key)
            if value in (None, {}, []) or value in rule.same:
                continue
            if rule.to is not None and (rule.values is None or value in [*rule.values]):
                found[rule.to] = value if rule.values is None else rule.values[value]
            else:
                self.report(key, rule.says)
        return found

    def report_rest(self, *, is_training: bool = False) -> None:
        """Report what nobody took; of a training's own keys those whose names say nothing of rows as the trainer's."""
        for key in list(self._left):
            if is_training and not any(word in key for word in _OF_ROWS):
                self.report(key, "the trainer's own", kind="training")
            else:
                self.report(key, "not known here", kind="unknown")
