"""What a search of rows finds: places in rows, and what is said of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias

Path: TypeAlias = tuple[str, ...]
"""Keys that lead to a value; ``[]`` stands for the items of a list."""

ITEMS = "[]"

KEY_OF_MESSAGES = re.compile(r"(?P<list>[^\[\]]+)\[\]\.(?P<key>[^\[\]]+)")
"""The path of a key of messages, which may be in an object of theirs, as these may be in one of the row."""

MOST_FIELDS = 64
"""An object with more keys is a table, by ids for example."""


def shown_path(path: Sequence[str]) -> str:
    """Return a path as it is written, such as `messages[].apis`."""
    return "".join(key if key == ITEMS else f".{key}" for key in path).removeprefix(".")


def shortened(text: str, length: int = 60) -> str:
    """Return the beginning of a text, to be shown or judged."""
    return text if len(text) <= length else f"{text[: length - 2].rstrip()} …"


def up_to_items(path: Path) -> Path:
    """Return the path of the innermost list on the way to a value, and its items."""
    return path[: len(path) - path[::-1].index(ITEMS)]


def places(rows: Sequence[Mapping[str, Any]]) -> Iterator[Path]:
    """Yield the paths of fields of rows, and of those of the objects in them, as any row has them."""
    for name in dict.fromkeys(chain(*rows)):
        yield (name,)
        objects = [value for row in rows if isinstance(value := row.get(name), dict) and len(value) <= MOST_FIELDS]
        yield from ((name, *inner) for inner in places(objects))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadField:
    """Something that nothing reads."""

    path: str
    kind: Literal["text", "media", "flag", "order", "block", "name", "variable", "word"] = "text"
    """A text; the name of an image, of sound or of a film; what may say what is trained, or another order of messages;
    what answers begin with: reasoning, or a name; what a template has a variable for, and words for which it has one
    that it takes as true or false.
    """

    num_rows: int
    """Sampled rows in which it says something."""

    example: str
    inner: tuple[str, ...] = ()
    """Paths in it, or its own, that lead to text through objects, or to a key of the objects in a list."""

    keeps: tuple[tuple[str, str], ...] = ()
    """Settings that train some of the rows, each with what is trained by it."""


class Note(NamedTuple):
    """What a build says of the first rows of a file, and does not ask about."""

    says: str
    """Of the file, or of some rows of it."""

    num_rows: int = 0
    of: int = 0
    """How many rows of how many it is said of; 0 if it is said of the file."""
