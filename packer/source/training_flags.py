"""Finds what may say which answers of a row are trained, and that nothing reads.

Tools call it `mask`, `learn`, `is_trainable`, and no list of such names is ever complete. What they have in common is
a yes or no beside each answer, or one of two words, or a number from 0 to 1, and answers that differ in it: a flag that
all answers share says nothing about one of them. Why an answer ended is no flag. Words and numbers have to differ
within a conversation. A flag is a key of the messages or of their parts, at any depth of objects, or a list of the row
with one for each message. A field of the row whose value is the role of the answers may say it too. So may a yes or no
of the row itself, in objects only under the name of a verdict such as `correct`, and a word such as `failed`, if rows
differ in it.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from packer.source.decode import decoded_json
from packer.source.field_names import judgement, verdict
from packer.source.read_places import ITEMS, Path
from packer.source.read_texts import MESSAGE_FIELDS
from packer.source.roles import is_answer
from packer.source.row import NO, TRAIN_FIELDS, YES, as_flag
from packer.source.unsupported_rows import may_say_end

_Value: TypeAlias = bool | float | str | None

_TEXTS = (
    "from",
    "value",
    "human",
    "assistant",
    "system",
    "input",
    "output",
    "text",
    "thinking",
    "refusal",
    "type",
    "name",
    "channel",
)
_FLAGS = (*TRAIN_FIELDS, "weight", "loss_weight", "output_with_loss", "train_detail", "function_call")
_READ = MESSAGE_FIELDS.union(_TEXTS, _FLAGS)
"""Keys of messages and of parts that are read under these names; an answer may be a yes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A yes or no, a word or a number in which answers differ."""

    path: Path
    num_rows: int
    says: str
    """Its values, and whether some answers have none."""

    programs: tuple[tuple[str, str], ...]
    """What it may say, each with the program of jq that gives it a name that packer reads."""

    keeps: tuple[tuple[str, str], ...] = ()
    """Settings that train some of the rows, each with what is trained by it."""


@dataclass(slots=True)
class _Found:
    num_rows: int = 0
    values: Counter[_Value] = field(default_factory=Counter)
    """How often it is said; None: something that is no flag."""

    differs: bool = False
    """Within a conversation."""

    messages: str = ""
    """The messages to which a list of the row belongs."""

    rows_say: dict[bool, set[str]] = field(default_factory=dict)
    """What rows have for yes and for no, as JSON, if they say it themselves."""

    right: bool | None = None
    """Which of both says that a row is right, if that is known."""


class Flags:
    """Gathers the flags of some rows."""

    def __init__(self, *, read: Collection[str], roles: Mapping[str, str]) -> None:
        self._read = read
        self._roles = roles
        self._found: dict[Path, _Found] = {}
        self._num_answers: Counter[Path] = Counter()

    def add(self, row: Mapping[str, Any], path: Path = ()) -> None:
        """Gather those of one row, as it is in its file, and of the objects in it."""
        self._of_row(row, path)
        values = {name: decoded_json(value) if isinstance(value, str) else value for name, value in row.items()}
        for name, messages in values.items():
            if isinstance(messages, dict):
                self.add(messages, (*path, name))
            if not (isinstance(messages, list) and messages and all(isinstance(each, dict) for each in messages)):
                continue
            answers = [number for number, each in enumerate(messages) if is_answer(each, self._roles)]
            found = [pair for number in answers for pair in self._of_message((*path, name, ITEMS), messages[number])]
            self._note(found)
            if path:
                continue
            for other, flags in values.items():
                if isinstance(flags, list) and len(flags) == len(messages) and other not in self._read:
                    own = [((other,), _value(flags[number])) for number in answers if flags[number] is not None]
                    self._note(own, messages=name)
                    self._num_answers[(other,)] += len(answers) if own else 0
            senders = {str(messages[number].get("from") or messages[number].get("role")).lower() for number in answers}
            for other, value in row.items():
                if isinstance(value, str) and value.lower() in senders and other not in self._read:
                    self._note([((other,), True)])
                    self._num_answers[(other,)] += 2  # of which not all are meant

    def _of_row(self, row: Mapping[str, Any], path: Path) -> None:
        for name, value in row.items():
            at, right = (*path, name), verdict(name)
            if at[0] in self._read or not isinstance(value, bool | int | float | str):
                continue
            said = as_flag(value) if right is not None or not path else None
            if said is None and isinstance(value, str):
                self._num_answers[at] += 1
                said, right = judgement(value), True
            if said is not None:
                self._note([(at, said)])
                self._found[at].rows_say.setdefault(said, set()).add(json.dumps(value))
                self._found[at].right = right
            elif not isinstance(value, str) and not path and right is None:
                self._note([(at, None)])

    def _of_message(self, path: Path, message: Mapping[str, Any]) -> Iterator[tuple[Path, _Value]]:
        """Yield the flags of a message, and of its parts, of which each counts as an answer."""
        self._num_answers[path] += 1
        stack: list[tuple[Path, Any]] = [
            ((*path, str(key)), value) for key, value in message.items() if key not in _READ
        ]
        while stack:
            at, value = stack.pop()
            if isinstance(value, dict):
                stack += [((*at, str(key)), each) for key, each in value.items()]
            elif value is not None and not may_say_end(at[-1]):
                yield at, _value(value)
        parts = message.get("content")
        for part in parts if isinstance(parts, list) and path[-2:] != ("content", ITEMS) else ():
            if isinstance(part, dict):
                own = {key: value for key, value in part.items() if key != "closed"}  # which parts of reasoning are
                scalars = {key: value for key, value in own.items() if not isinstance(value, dict | list)}
                yield from self._of_message((*path, "content", ITEMS), scalars)

    def _note(self, flags: Sequence[tuple[Path, _Value]], *, messages: str = "") -> None:
        said: dict[Path, set[_Value]] = {}
        for path, value in flags:
            said.setdefault(path, set()).add(value)
        for path, values in said.items():
            found = self._found.setdefault(path, _Found(messages=messages))
            found.num_rows += 1
            found.differs |= len(values) > 1
        for path, value in flags:
            self._found[path].values[value] += 1

    def differing(self) -> Iterable[Flag]:
        """Return those in which answers differ, by their paths."""
        for path, found in sorted(self._found.items()):
            inner = next((end for end in range(len(path), 0, -1) if path[end - 1] == ITEMS), len(path))
            are_missing = self._num_answers[path[:inner]] > found.values.total()
            is_flag = found.values.keys() <= {True, False} and len(found.values) + are_missing > 1
            if found.rows_say:
                is_flag &= False in found.rows_say  # else some rows are right, and others say nothing
                is_flag &= found.right is not None or found.num_rows > len(found.values)  # else they are ids
            if is_flag or (found.differs and (_are_numbers(found) or _are_words(found))):
                shown = [str(value).lower() for value in sorted(found.values, key=str)]
                says = shown if _are_words(found) else ["a number from 0 to 1"]
                says += ["nothing"] * are_missing
                is_told = ITEMS in path or bool(found.messages)
                programs, said = _programs(path, found) if is_told else (), " or ".join(says)
                if not (is_told or found.rows_say):
                    said = "the role of the answers"
                keeps = tuple(_keeps(path, found))
                yield Flag(path=path, num_rows=found.num_rows, says=said, programs=programs, keeps=keeps)


def _keeps(path: Path, found: _Found) -> Iterator[tuple[str, str]]:
    """Yield the settings that keep the rows that say yes and those that say no, or those that are known to be right."""
    name = ".".join(path)
    for said, values in sorted(found.rows_say.items(), reverse=True):
        if found.right not in (None, said):
            continue
        which = (
            f"the rows with {', '.join(sorted(values))}" if found.right is None else "the rows that it says are right"
        )
        says_so = f"{{in: [{', '.join(sorted(values))}]}}"
        is_plain = {".", "="}.isdisjoint(name)
        where = f"sources.where.{name}={says_so}" if is_plain else f"sources.where={{{json.dumps(name)}: {says_so}}}"
        yield where, which


def _value(value: Any) -> _Value:
    if (flag := as_flag(value)) is not None:
        return flag
    if isinstance(value, str):
        return value.lower() if value.replace("_", "").replace("-", "").isalpha() else None
    return value if isinstance(value, float) and 0 < value < 1 else None


def _are_words(found: _Found) -> bool:
    """Whether a flag is a yes or no, or one of two words."""
    return len(found.values) < 3 and all(isinstance(value, str | bool) for value in found.values)


def _are_numbers(found: _Found) -> bool:
    return all(isinstance(value, float | bool) for value in found.values)


def _programs(path: Path, found: _Found) -> tuple[tuple[str, str], ...]:
    name = path[-1]
    if not _are_words(found):
        return ((f"if `{name}` says how much an answer is trained", _program(path, found, ())),)
    is_flag = found.values.keys() <= {True, False}
    words = {"yes": YES, "no": NO} if is_flag else {value: _words(value) for value in sorted(found.values, key=str)}
    return tuple(
        (f"if {str(said).lower()} under `{name}` says that an answer is trained", _program(path, found, trained))
        for said, trained in words.items()
    )


def _words(value: _Value) -> Sequence[str]:
    return (YES if value else NO) if isinstance(value, bool) else (str(value),)


def _program(path: Path, found: _Found, trained: Sequence[str]) -> str:
    """Return the program that moves flags to `train` of the messages, where one of some words means trained.

    Without such words they are weights. Where only a yes is ever said, silence says no, and the other way round.
    """
    silence = None if len(found.values) > 1 else not next(iter(found.values))
    to = "train" if trained else "weight"
    is_trained = "." if not trained else f"tostring | ascii_downcase | IN({', '.join(map(json.dumps, trained))})"
    if found.messages:
        flags, messages = (f".[{json.dumps(name)}]" for name in (path[0], found.messages))
        set_each = f"to_entries | map(.value + {{{to}: ($flags[.key] | {is_trained})}})"
        return f"{flags} as $flags | {messages} |= ({set_each}) | del({flags})"
    end = len(path) - path[::-1].index(ITEMS)
    each = "".join("[]?" if key == ITEMS else f"[{json.dumps(key)}]" for key in path[:end])
    key = "." + "".join(f"[{json.dumps(key)}]" for key in path[end:])
    kept = f" | select({key} != null)" if silence is None else ""
    said = "" if silence is None else f"if . == null then {json.dumps(silence)} else . end | "
    return f"(.{each}{kept}) |= (.{to} = ({key} | {said}{is_trained}) | del({key}))"
