"""Finds what may say which answers of a row are trained, and that nothing reads.

Tools call it `mask`, `learn`, `is_trainable`, and no list of such names is ever complete. What they have in common is
what they say: a yes or no, or a number below or above zero, in which rows or answers differ. It may stand anywhere: in
a row and in objects and lists in it, under a key of messages or of their parts, or in a list of the row that has one
for each message, or that numbers messages. Within a conversation it may also be one of two words, or a number from 0 to
1; of a row, it may be a word such as `failed`, or the role of the answers. What all say alike says nothing about one of
them, and why an answer ended is no flag.
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from packer.source.decode import decoded_json
from packer.source.field_names import judgement
from packer.source.read_places import ITEMS, Path
from packer.source.read_texts import MESSAGE_FIELDS
from packer.source.roles import is_answer
from packer.source.row import NO, TRAIN_FIELDS, YES, as_flag, as_number
from packer.source.unsupported_rows import may_say_end

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

_LONGEST_WORD = 32
_SIGNS = "numbers below and above 0"
_AS_WORDS = {"true": YES, "false": NO}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """What answers, or rows, differ in."""

    path: Path
    num_rows: int
    says: str
    """Its values, and whether some have none."""

    programs: tuple[tuple[str, str], ...] = ()
    """What it may say, each with the program of jq that gives it a name that packer reads."""

    keeps: tuple[tuple[str, str], ...] = ()
    """Settings that train some of the rows, each with what is trained by it."""


class _Place(NamedTuple):
    """Where something is said, and of what."""

    path: Path
    of: Literal["row", "role", "message", "list", "list of answers", "numbers"]
    messages: Path = ()
    """Where the messages are to which a list of the row belongs."""

    first: int = 0
    """The number of the first message, in a list of numbers."""


@dataclass(slots=True)
class _Said:
    """What some rows say at a place."""

    num_rows: int = 0
    num_silent: int = 0
    """Answers of these rows, or other rows, that say nothing."""

    values: Counter[str] = field(default_factory=Counter)
    """Each as JSON, so that 1 is not true."""

    differs: bool = False
    """Within a conversation."""

    def add(self, values: Sequence[Any], num_answers: int) -> None:
        said = Counter(map(_as_json, values))
        self.num_rows += 1
        self.num_silent += num_answers - len(values)
        self.differs |= len(said) > 1
        self.values += said


def _as_json(value: Any) -> str:
    """Return a value as JSON, or null for one that is no number, no yes or no, and no word."""
    is_long = isinstance(value, str) and len(value) > _LONGEST_WORD
    return json.dumps(value if isinstance(value, bool | int | float | str) and not is_long else None)


class Flags:
    """Gathers the flags of some rows."""

    def __init__(self, *, read: Collection[str], roles: Mapping[str, str]) -> None:
        self._read = read
        self._roles = roles
        self._said: dict[_Place, _Said] = {}
        self._num_rows = 0
        self._num_answers: Counter[Path] = Counter()
        self._not_lists: set[_Place] = set()
        """Lists of which some are of another length, or have other numbers: they say nothing about messages."""

    def add(self, row: Mapping[str, Any]) -> None:
        """Gather those of one row, as it is in its file."""
        self._num_rows += 1
        values: dict[Path, list[Any]] = {}
        lists: dict[Path, list[Any]] = {}
        talks: dict[Path, list[Any]] = {}
        for path, value in self._searched(row):
            if not isinstance(value, list):
                values.setdefault(path, []).append(value)
            elif isinstance(value[0], Mapping):
                talks[path] = value
            else:
                lists[path] = value
        for path, said in values.items():
            self._note(_Place(path, "row"), said, num_answers=len(said))
        for path, messages in talks.items():
            self._add_messages(path, messages)
            self._add_lists(path, messages, lists)
            self._add_role(messages, values)

    def _searched(self, row: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
        """Yield the lists of messages in a row, and the lists and values that nothing reads."""
        stack: list[tuple[Path, Any]] = [((name,), value) for name, value in row.items()]
        while stack:
            path, given = stack.pop()
            value = decoded_json(given) or given if isinstance(given, str) else given  # of a cell of CSV
            is_read = path[0] in self._read
            if isinstance(value, Mapping):
                stack += [((*path, str(key)), each) for key, each in value.items()]
            elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
                if any(is_answer(each, self._roles) for each in value):
                    yield path, value
                elif not is_read:
                    stack += [((*path, ITEMS), each) for each in value]
            elif not (is_read or value in (None, [], "") or may_say_end(path[-1])):
                yield path, value

    def _note(self, place: _Place, values: Sequence[Any], *, num_answers: int) -> None:
        self._said.setdefault(place, _Said()).add(values, num_answers)

    def _add_messages(self, path: Path, messages: Sequence[Mapping[str, Any]]) -> None:
        found: dict[Path, list[Any]] = {}
        for message in messages:
            if is_answer(message, self._roles):
                for at, value in self._of_message((*path, ITEMS), message):
                    found.setdefault(at, []).append(value)
        for at, values in found.items():
            self._note(_Place(at, "message"), values, num_answers=len(values))

    def _of_message(self, path: Path, message: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
        """Yield what a message has, and what its parts have, of which each counts as an answer."""
        self._num_answers[path] += 1
        stack: list[tuple[Path, Any]] = [
            ((*path, str(key)), value) for key, value in message.items() if key not in _READ
        ]
        while stack:
            at, value = stack.pop()
            if isinstance(value, Mapping):
                stack += [((*at, str(key)), each) for key, each in value.items()]
            elif value is not None and not may_say_end(at[-1]):
                yield at, value
        parts = message.get("content")
        for part in parts if isinstance(parts, list) and path[-2:] != ("content", ITEMS) else ():
            if isinstance(part, Mapping):
                own = {key: value for key, value in part.items() if key != "closed"}  # which parts of reasoning are
                scalars = {key: value for key, value in own.items() if not isinstance(value, Mapping | list)}
                yield from self._of_message((*path, "content", ITEMS), scalars)

    def _add_lists(self, path: Path, messages: Sequence[Any], lists: Mapping[Path, Sequence[Any]]) -> None:
        """Note lists with one for each message, or for each answer, and lists of the numbers of some answers."""
        answers = [number for number, each in enumerate(messages) if is_answer(each, self._roles)]
        for at, values in lists.items():
            said: dict[_Place, Sequence[Any]] = {
                _Place(at, "list", path): [values[k] for k in answers] if len(values) == len(messages) else (),
                _Place(at, "list of answers", path): values if len(values) == len(answers) else (),
            }
            are_numbers = all(type(value) is int for value in values) and values == sorted({*values})
            for first in (0, 1) if are_numbers else ():
                numbers = [number + first for number in answers]
                are_answers = {*numbers}.issuperset(values)
                said[_Place(at, "numbers", path, first)] = [each in values for each in numbers if are_answers]
            for place, each in said.items():
                if each:
                    self._note(place, [value for value in each if value is not None], num_answers=len(answers))
                else:
                    self._not_lists.add(place)

    def _add_role(self, messages: Sequence[Mapping[str, Any]], of_row: Mapping[Path, Sequence[Any]]) -> None:
        senders = {
            str(each.get("from") or each.get("role")).lower() for each in messages if is_answer(each, self._roles)
        }
        for path, (value, *_) in of_row.items():
            if len(path) == 1 and isinstance(value, str) and value.lower() in senders:
                self._note(_Place(path, "role"), [True], num_answers=2)  # of which not all are meant

    def differing(self) -> Iterator[Flag]:
        """Yield those in which answers, or rows, differ, by their paths."""
        for place, said in sorted(self._said.items(), key=lambda each: each[0]):
            values = sorted(map(json.loads, said.values), key=str)
            num_silent = said.num_silent
            if place.of == "row":
                flag = _of_row(place, said, values, num_silent=self._num_rows - said.num_rows)
            else:
                if place.of == "message":
                    num_silent = self._num_answers[_up_to_items(place.path)] - said.values.total()
                flag = _of_answers(place, said, values, num_silent) if place not in self._not_lists else None
            if flag is not None:
                yield flag


def _up_to_items(path: Path) -> Path:
    """Return the path of the messages, or of their parts, of which a path leads to a key."""
    return path[: len(path) - path[::-1].index(ITEMS)]


def _kind(values: Sequence[Any]) -> Literal["flags", "signs", "weights", "words"] | None:
    """Return what values are: each a yes or no, below or above zero, from 0 to 1, or one of two words."""
    if all(as_flag(value) is not None for value in values):
        return "flags"
    numbers = [*map(as_number, values)]
    if not any(map(math.isnan, numbers)):
        is_weight = min(numbers) >= 0 and max(numbers) <= 1
        return "signs" if min(numbers) < 0 < max(numbers) else "weights" if is_weight else None
    words = {*map(_word, values)}
    return "words" if len(words) < 3 and None not in words else None


def _word(value: Any) -> str | None:
    """Return a word, or what a yes or no is, in small letters; None for anything else."""
    if (flag := as_flag(value)) is not None:
        return str(flag).lower()
    is_word = isinstance(value, str) and value.replace("_", "").replace("-", "").isalpha()
    return value.lower() if is_word else None


def _of_row(place: _Place, said: _Said, values: Sequence[Any], num_silent: int) -> Flag | None:
    """Return the flag in which rows differ, if some of them say no, or a number below zero."""
    kind, says, kept = _kind(values), "", dict[str, str]()
    if kind == "signs":
        says, kept = _SIGNS, {"the rows with 0 or more": "{min: 0}", "the rows with 0 or less": "{max: 0}"}
    elif kind == "flags":
        yes, no = ([value for value in values if as_flag(value) is flag] for flag in (True, False))
        are_ids = said.num_rows == len(values) and not any(map(math.isnan, map(as_number, values)))
        if no and (yes or (num_silent and said.num_rows > 1)) and not are_ids:
            says = "false or true" if yes else "false or nothing"
            kept = {f"the rows with {_listed(each)}": f"{{in: [{_listed(each)}]}}" for each in (yes, no) if each}
    elif all(isinstance(value, str) for value in values):
        right, wrong = ([value for value in values if judgement(value) is each] for each in (True, False))
        if wrong and (len(values) > 1 or num_silent):
            says = " or ".join((*right, *wrong))
            kept = {"the rows that it says are right": f"{{in: [{_listed(right)}]}}"} if right else {}
    name = ".".join(place.path)
    is_plain = {".", "="}.isdisjoint(name)
    where = f"sources.where.{name}=%s" if is_plain else f"sources.where={{{json.dumps(name)}: %s}}"
    keeps = tuple((where % condition, which) for which, condition in kept.items() if ITEMS not in place.path)
    return Flag(path=place.path, num_rows=said.num_rows, says=says, keeps=keeps) if says else None


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(json.dumps, values))


def _of_answers(place: _Place, said: _Said, values: Sequence[Any], num_silent: int) -> Flag | None:
    """Return the flag in which answers differ: in words and weights, those of one conversation."""
    kind, words = _kind(values), sorted({str(_word(value)) for value in values})
    differ = said.differs or kind == "signs" or (kind == "flags" and len(words) + (num_silent > 0) > 1)
    if kind is None or not differ:
        return None
    says = {"signs": _SIGNS, "weights": "a number from 0 to 1"}.get(kind, " or ".join(words))
    named = {"role": "the role of the answers", "numbers": "the numbers of some messages"}
    says = named.get(place.of, says + " or nothing" * (num_silent > 0))
    return Flag(path=place.path, num_rows=said.num_rows, says=says, programs=tuple(_programs(place, kind, words)))


def _programs(place: _Place, kind: str, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what a flag may say, each with the program of jq that gives the messages keys that packer reads."""
    name = place.path[-1]
    if place.of in ("role", "list of answers"):
        return
    if place.of == "numbers":
        is_trained = f".key + {place.first} | IN($flags[])"
        yield f"if `{name}` numbers the trained messages from {place.first}", _of_list(place, is_trained)
    elif kind == "weights":
        yield f"if `{name}` says how much an answer is trained", _moved(place, ".", to="weight")
    elif kind == "signs":
        yield f"if more than 0 under `{name}` says that an answer is trained", _moved(place, "tonumber > 0")
    else:
        one_of = {"yes": YES, "no": NO} if kind == "flags" else {word: _AS_WORDS.get(word, (word,)) for word in words}
        silence = json.dumps(words != ["true"]) if len(words) == 1 else None
        for said, trained in one_of.items():
            is_trained = f"tostring | ascii_downcase | IN({_listed(trained)})"
            yield f"if {said} under `{name}` says that an answer is trained", _moved(place, is_trained, silence=silence)


def _moved(place: _Place, value: str, *, to: str = "train", silence: str | None = None) -> str:
    """Return the program that moves flags to a key of their messages, where `value` is made of each.

    Where only a yes is ever said, silence says no, and the other way round.
    """
    if place.of == "list":
        return _of_list(place, f"$flags[.key] | {value}", to=to)
    messages = _up_to_items(place.path)
    each, key = _at(messages), _at(place.path[len(messages) :])
    kept = f" | select({key} != null)" if silence is None else ""
    said = "" if silence is None else f"if . == null then {silence} else . end | "
    return f"({each}{kept}) |= (.{to} = ({key} | {said}{value}) | del({key}))"


def _of_list(place: _Place, value: str, *, to: str = "train") -> str:
    """Return the program that moves the flags in a list of the row to a key of the messages."""
    flags = _at(place.path)
    set_each = f"to_entries | map(.value + {{{to}: ({value})}})"
    return f"{flags} as $flags | {_at(place.messages)} |= ({set_each}) | del({flags})"


def _at(path: Path) -> str:
    return "." + "".join("[]?" if key == ITEMS else f"[{json.dumps(key)}]" for key in path)
