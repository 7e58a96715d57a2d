"""Finds the fields of a row whose texts are all read as they stand, so that they need not be searched for others.

Of a conversation that is nearly everything. What is noted of such a field is where texts are read in it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from packer.source.decode import decoded_json
from packer.source.prose import is_text_key

Path: TypeAlias = tuple[str, ...]
"""Keys that lead to a value; ``[]`` stands for the items of a list."""

ITEMS = "[]"


def shown_path(path: Sequence[str]) -> str:
    """Return a path as it is written, such as `messages[].apis`."""
    return "".join(key if key == ITEMS else f".{key}" for key in path).removeprefix(".")


def up_to_items(path: Path) -> Path:
    """Return the path of the innermost list on the way to a value, and its items."""
    return path[: len(path) - path[::-1].index(ITEMS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadField:
    """Something that nothing reads."""

    path: str
    kind: Literal["text", "media", "flag", "order", "block", "label", "variable", "word"] = "text"
    """A text; the name of an image, of sound or of a film; what may say what is trained, or another order of messages;
    what answers begin with: reasoning, or a name; what a template has a variable for, and words for which it has one
    that it takes as true or false.
    """

    num_rows: int
    """Sampled rows in which it says something."""

    example: str
    inner: tuple[str, ...] = ()
    """Of a text: paths in it, or its own, that lead to text through objects, or to a key of the objects in a list. Of a
    block: labels of lines behind it, if its own is among them.
    """

    programs: tuple[tuple[str, str], ...] = ()
    """What a flag may say, each with the program of jq that gives it a name that packer reads."""

    keeps: tuple[tuple[str, str], ...] = ()
    """Settings that train some of the rows, each with what is trained by it."""

    roles: tuple[tuple[str, str], ...] = ()
    """Of a label with which answers begin, if it is a name: it and that of questions, each with its role."""

    @property
    def is_in_texts(self) -> bool:
        """Whether it stands within texts that are read, so that it cannot be ignored as fields can."""
        return self.kind in ("block", "label")


class Note(NamedTuple):
    """What a build says of the first rows of a file, and does not ask about."""

    says: str
    """Of the file, or of some rows of it."""

    num_rows: int = 0
    of: int = 0
    """How many rows of how many it is said of; 0 if it is said of the file."""


_WITHOUT_TEXT = frozenset({int, float, bool, type(None)})
"""Of what rows of tokens have thousands each."""


class _Place:
    """Where values stand in the rows."""

    __slots__ = ("below", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.below: dict[str, _Place] = {}

    def under(self, key: str) -> "_Place":
        place = self.below.get(key)
        if place is None:
            place = self.below[key] = _Place((*self.path, key))
        return place


class ReadPlaces:
    """Where texts of some rows are read as they stand."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()
        """Paths to texts that are read, and their beginnings."""

        self._root = _Place(())
        self._known: set[_Place] = set()

    def left(self, row: Mapping[str, Any], own: Collection[str], said: Collection[str]) -> dict[str, Any]:
        """Return the fields of a row but for those of its schema, `own`, whose texts are all read: one of `said`."""
        return {name: value for name, value in row.items() if name not in own or not self._is_read(name, value, said)}

    def _is_read(self, name: str, value: Any, said: Collection[str]) -> bool:
        places: list[_Place] = []
        stack = [(self._root.under(name), value)]
        while stack:
            place, each = stack.pop()
            if isinstance(each, str):
                if each in said:
                    if place not in self._known:
                        places.append(place)
                elif (decoded := decoded_json(each)) is not None:
                    stack.append((place, decoded))
                elif each.strip():
                    return False
            elif isinstance(each, list | tuple):
                items = place.under(ITEMS)
                stack += [(items, item) for item in each if type(item) not in _WITHOUT_TEXT]
            elif type(each) is dict or isinstance(each, Mapping):
                below = place.below
                stack += [(below.get(key) or place.under(key), item) for key, item in each.items()]
                stack += [(place, key) for key in filter(is_text_key, each)]
        for place in {*places}:
            self._known.add(place)
            self.paths.update(place.path[:end] for end in range(1, len(place.path) + 1))
        return True
