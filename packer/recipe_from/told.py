"""What becomes of the keys of a foreign configuration: each is carried over, or told."""

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from packer.errors import RecipeError

_MOST_SHOWN = 60

Kind = Literal["differs", "training", "unknown"]
"""``differs``: about rows, and means something else in packer, or nothing. ``training``: the trainer's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
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


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Filled while a configuration is read."""

    taken: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def carried(self) -> tuple[str, ...]:
        """Keys that mean in the recipe what they meant before, in the order in which they were read."""
        told = {note.key for note in self.notes}
        return tuple(key for key in dict.fromkeys(self.taken) if key not in told)


class Keys:
    """The keys of one mapping of a configuration. Whoever takes a key answers for it; the rest is told at the end."""

    def __init__(self, values: Mapping[str, Any], ledger: Ledger, *, where: str = "") -> None:
        self._values = {str(key): value for key, value in values.items()}
        self._ledger = ledger
        self._where = where
        self._left = dict.fromkeys(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str) -> Any:
        """Its value; None where it is not there, or says nothing. The key counts as carried over, unless it is told."""
        if key in self._values:
            self._left.pop(key, None)
            self._ledger.taken.append(self._where + key)
        value = self._values.get(key)
        return None if value == "" else value

    def text(self, key: str) -> str | None:
        """As :meth:`take`, of a key that holds a text.

        Raises:
            RecipeError: it holds something else.

        """
        value = self.take(key)
        if value is not None and not isinstance(value, str):
            raise self._unlike("a text", key)
        return value

    def texts(self, key: str) -> list[str] | None:
        """As :meth:`take`, of a key that holds texts, or one alone.

        Raises:
            RecipeError: it holds something else.

        """
        value = self.take(key)
        if isinstance(value, str):
            return [value]
        if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise self._unlike("a list of texts", key)
        return value

    def number(self, key: str) -> int | None:
        """As :meth:`take`, of a key that holds a whole number.

        Raises:
            RecipeError: it holds something else.

        """
        value = self.take(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self._unlike("a whole number", key)
        return value

    def _unlike(self, expected: str, key: str) -> RecipeError:
        return RecipeError(f"{self._where}{key}: expected {expected}, found {shown(self._values[key])}")

    def tell(self, key: str, says: str, *, kind: Kind = "differs", default: Any = None) -> None:
        """Say that a key is not carried over as it is, and what that means.

        Where the key is not there nothing is said, unless its `default` means something that a reader has to know.
        """
        if key in self._values or default is not None:
            self._left.pop(key, None)
            value = self._values.get(key, default)
            note = Note(key=self._where + key, value=value, kind=kind, says=says)
            if note not in self._ledger.notes:  # an entry of two splits is read twice
                self._ledger.notes.append(note)

    def expect(self, key: str, same: Container[Any], says: str) -> Any:
        """Take a key that packer has no word for: told, unless its value is what packer does anyway."""
        value = self.take(key)
        if value is not None and value not in same:
            self.tell(key, says)
        return value

    def tell_each(self, meanings: Mapping[str, str]) -> None:
        """Tell those of the keys that are there and say something."""
        for key, says in meanings.items():
            if self.take(key) is not None:
                self.tell(key, says)

    def inner(self, key: str) -> "Keys":
        """The keys below a key, which is taken; none where it is not there.

        Raises:
            RecipeError: it holds no mapping.

        """
        return Keys(self.mapping(key), self._ledger, where=f"{self._where}{key}.")

    def mapping(self, key: str) -> Mapping[str, Any]:
        """As :meth:`take`, of a key that holds a mapping; an empty one where it is not there.

        Raises:
            RecipeError: it holds something else.

        """
        value = self.take(key)
        if value is not None and not isinstance(value, Mapping):
            raise self._unlike("a mapping", key)
        return value or {}

    def tell_rest(self, *, is_training: Callable[[str], bool] = lambda _: False) -> None:
        """Tell what nobody took: the trainer's own keys, and those that nobody here knows."""
        for key in list(self._left):
            if is_training(key):
                self.tell(key, "the trainer's own", kind="training")
            else:
                self.tell(key, "not known here", kind="unknown")
