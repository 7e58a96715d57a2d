"""Finds what may say which answers of a row are trained, and that nothing reads.

Tools call it `mask`, `learn`, `is_trainable`, and no list of such names is ever complete. What they have in common is
a yes or no beside each answer, or one of two words, or a number from 0 to 1, and answers that differ in it: a flag that
all answers share says nothing about one of them. Why an answer ended is no flag. Words and numbers have to differ
within a conversation. A flag is a key of the messages or of their parts, at any depth of objects, or a list of the row
with one for each message. A field of the row whose value is the role of the answers may say it too, and so may a
verdict such as `correct`, if some rows are right and others are not.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from packer.source.decode import decoded_json
from packer.source.field_names import verdict
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

    keeps: str = ""
    """The setting that trains only the rows of which a verdict says that they are right."""


@dataclass(slots=True)
class _Found:
    num_rows: int = 0
    values: Counter[_Value] = field(default_factory=Counter)
    """How often it is said; None: something that is no flag."""

    differs: bool = False
    """Within a conversation."""

    messages: str = ""
    """The messages to which a list of the row belongs."""

    right: set[str] = field(default_factory=set)
    """What a verdict says of rows that are right, as JSON."""


class Flags:
    """Gathers the flags of some rows."""

    def __init__(self, *, read: Collection[str], roles: Mapping[str, str]) -> None:
        self._read = read
        self._roles = roles
        self._found: dict[Path, _Found] = {}
        self._num_answers: Counter[Path] = Counter()

    def add(self, row: Mapping[str, Any], path: Path = ()) -> None:
        """Gather those of one row, as it is in its file, and of the objects in it."""
        self._verdicts(row, path)
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

    def _verdicts(self, row: Mapping[str, Any], path: Path) -> None:
        for name, value in row.items():
            yes, said = None if (*path, name)[0] in self._read else verdict(name), as_flag(value)
            if yes is not None and said is not None:
                self._note([((*path, name), said)])
                self._found[(*path, name)].right |= {json.dumps(value)} if said == yes else set()

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
            if is_flag or (found.differs and (_are_numbers(found) or _are_words(found))):
                shown = [str(value).lower() for value in sorted(found.values, key=str)]
                says = shown if _are_words(found) else ["a number from 0 to 1"]
                says += ["nothing"] * are_missing
                is_told = ITEMS in path or bool(found.messages)
                programs, said, keeps = _programs(path, found) if is_told else (), " or ".join(says), ""
                if found.right:
                    name, says_so = ".".join(path), f"{{in: [{', '.join(sorted(found.right))}]}}"
                    is_plain = {".", "="}.isdisjoint(name)
                    keeps = (
                        f"sources.where.{name}={says_so}"
                        if is_plain
                        else f"sources.where={{{json.dumps(name)}: {says_so}}}"
                    )
                elif not is_told:
                    said = "the role of the answers"
                yield Flag(path=path, num_rows=found.num_rows, says=said, programs=programs, keeps=keeps)


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
