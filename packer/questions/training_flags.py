"""Finds what may say which answers of a row are trained, and that nothing reads.

Tools call it `mask`, `learn`, `is_trainable`, and no list of such names is ever complete. What they have in common is
their values, which differ between rows or between answers:

- a yes or no, or numbers below and above zero, wherever they stand: in a row, under a key of messages, in objects and
  lists in both, in parts of messages, or in a list of the row that has one for each message, or that numbers messages;
- under a key of messages also one of two words, or within a conversation a number from 0 to 1;
- in a row also one of two signs, a letter such as `Y`, a word such as `failed`, or a word and its denial (`safe`,
  `unsafe`). Other words of a row are labels, of which most fields have some.

A value that is the same everywhere is no flag, nor is a number that counts the items of each list, nor why an answer
ended.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from packer.questions.field_names import is_character, is_mark, verdicts
from packer.questions.read_places import ITEMS, Path, UnreadField, shown_path, up_to_items
from packer.questions.texts import MESSAGE_FIELDS
from packer.source.decode import TRAIN_FIELDS, WEIGHT_FIELDS, as_flag, as_number, decoded_json
from packer.source.roles import is_answer
from packer.source.row import LETTERS, first_name
from packer.source.tools_and_calls import KEYS_OF_CALLS
from packer.source.unsupported_rows import may_say_end

_TEXTS = (
    *("from", "value", "human", "assistant", "system", "input", "output"),
    *("text", "thinking", "refusal", "type", "name", "channel", "phase"),
)
_FLAGS = (*TRAIN_FIELDS, *WEIGHT_FIELDS, "output_with_loss", "train_detail", "function_call", "prefix")
_READ = MESSAGE_FIELDS.union(_TEXTS, _FLAGS)
"""Keys of messages and of parts that are read under these names, or say what a text is; an answer may be a yes."""

_LONGEST_LABEL = 60
_MOST_VERDICTS = 6
_MOST_ITEMS = 100
"""Items of a list that are searched: there may be one for each token."""

_MOST_MISFITS = 20
"""One in this many lists of numbers may have others than those of answers."""

SIGNS = "numbers below and above 0"
_CALLS = "tool_calls"


class Place(NamedTuple):
    """Where something is said, and of what."""

    path: Path
    of: Literal["row", "message", "items", "list", "list of answers", "numbers"]
    """`items` are in lists, or in JSON text, under a key of messages."""

    messages: Path = ()
    """Where the messages are to which a list of the row belongs."""

    first: int = 0
    """The number of the first message, in a list of numbers."""

    @property
    def whose(self) -> Path:
        """The path of what says it: the messages or their parts, a list, or the row."""
        return () if self.of == "row" else up_to_items(self.path) if self.of == "message" else self.path


@dataclass(slots=True)
class _Said:
    """What some rows say at a place."""

    num_rows: int = 0
    num_empty: int = 0  # rows with an empty text there, as cells are
    values: Counter[str] = field(default_factory=Counter)
    """Each as JSON, so that 1 is not true; null for what is no number, no yes or no, and no word."""

    differs: bool = False
    """Within a conversation."""

    counts: bool = True
    """Whether each is the place of its item in a list."""

    def add(self, values: Sequence[Any]) -> None:
        self.counts &= all(isinstance(value, _Ordinal) for value in values)
        said = Counter(json.dumps(value if _is_short(value) else None) for value in values)
        self.num_rows += 1
        self.differs |= len(said) > 1
        self.values += said


class _Ordinal(int):
    """A number that is the place of its item in a list, counted from 0."""


def _counted(items: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of a list; numbers in objects that count them are ordinals."""
    for place, item in enumerate(map(_decoded, items)):
        if isinstance(item, Mapping):
            yield {key: _Ordinal(place) if type(each) is int and each == place else each for key, each in item.items()}
        else:
            yield item


def _is_short(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _LONGEST_LABEL)


def _said_in(items: Sequence[Any]) -> list[Any]:
    """Return what a list says that may have nothing to do with messages: each yes or no, and each word, once.

    Numbers count something, and letters name the answers of a question.
    """
    some = [each for each in items[:_MOST_ITEMS] if each is not None]
    are_said = all(isinstance(each, bool | str) and _is_short(each) and _word(each) for each in some)
    return [*dict.fromkeys(some)] if are_said and LETTERS[0] not in some else [None]


def _values(
    stack: list[tuple[Path, Any]], is_whole: Callable[[Path, Sequence[Any]], bool] = lambda *_: False
) -> Iterator[tuple[Path, Any]]:
    """Yield what is in objects, in lists of objects or lists, and in the JSON of these, as it stands in cells of CSV.

    A list of anything else, or that is to be seen as a whole, is a value.
    """
    while stack:
        path, given = stack.pop()
        value = _decoded(given)
        first = next((each for each in value if each is not None), None) if isinstance(value, list) else None
        if isinstance(value, Mapping):
            stack += [((*path, str(key)), each) for key, each in value.items()]
        elif isinstance(_decoded(first), Mapping | list) and not is_whole(path, value):
            stack += [((*path, ITEMS), each) for each in _counted(value[:_MOST_ITEMS])]
        else:
            yield path, value


def _decoded(value: Any) -> Any:
    return decoded_json(value) or value if isinstance(value, str) else value


class Flags:
    """Gathers the flags of some rows."""

    def __init__(self, *, read: Collection[str], roles: Mapping[str, str]) -> None:
        self._read = read
        self._roles = roles
        self._said: defaultdict[Place, _Said] = defaultdict(_Said)
        self._num_asked: Counter[Path] = Counter()
        """How many rows, answers or parts could say something at a place."""

        self._num_empty: Counter[Path] = Counter()
        self._misfits: Counter[Place] = Counter()
        """How many lists are of another length, or have other numbers, so that they say nothing about messages."""

    def add(self, row: Mapping[str, Any], given: Collection[str]) -> None:
        """Gather those of one row, as it is in its file; `given` are names of variables that it gives its template."""
        self._num_asked[()] += 1
        values: dict[Path, list[Any]] = {}
        lists: dict[Path, list[Any]] = {}
        conversations: dict[Path, list[Any]] = {}
        stack: list[tuple[Path, Any]] = [((name,), value) for name, value in row.items()]
        for path, value in _values(stack, lambda at, items: at[0] in self._read or self._are_messages(items)):
            if isinstance(value, list) and self._are_messages(value):
                conversations[path] = value
            elif path[0] in self._read or value in (None, [], "") or may_say_end(path[-1]):
                self._num_empty[path] += value == ""
            elif isinstance(value, list):
                for each in _said_in(value):
                    values.setdefault((*path, ITEMS), []).append(each)
                lists |= {path: value} if ITEMS not in path else {}
            else:
                values.setdefault(path, []).append(value)
        for path, said in ((path, said) for path, said in values.items() if path[-1] not in given):
            self._said[Place(path, "row")].add(said)
        for path, messages in conversations.items():
            self._add_messages(path, messages)
            self._add_lists(path, messages, lists)

    def _are_messages(self, items: Sequence[Any]) -> bool:
        are_objects = all(isinstance(each, Mapping) for each in items)
        return are_objects and any(is_answer(each, self._roles) for each in items)

    def _add_messages(self, path: Path, messages: Sequence[Mapping[str, Any]]) -> None:
        found: dict[Place, list[Any]] = {}
        for message in messages:
            if is_answer(message, self._roles):
                for place, value in self._of_message((*path, ITEMS), message):
                    found.setdefault(place, []).append(value)
        for place, values in found.items():
            self._said[place].add(values)

    def _of_message(
        self, path: Path, message: Mapping[str, Any], read: Collection[str] = _READ
    ) -> Iterator[tuple[Place, Any]]:
        """Yield what a message has, and what its parts and calls have, of which each counts as an answer."""
        self._num_asked[path] += 1
        others = [((*path, str(key)), value) for key, value in message.items() if key not in read]
        for at, value in _values(others):
            if isinstance(value, list):
                yield from ((Place((*at, ITEMS), "items"), each) for each in _said_in(value))
            elif value is not None and not may_say_end(at[-1]):
                key, *inner = at[len(path) :]
                is_in_text = bool(inner) and isinstance(message[key], str)
                yield Place(at, "items" if ITEMS in inner or is_in_text else "message"), value
        parts = message.get("content")
        for part in _counted(parts) if isinstance(parts, list) and path[-2:] != ("content", ITEMS) else ():
            if isinstance(part, Mapping):
                own = {key: value for key, value in part.items() if key != "closed"}  # which parts of reasoning are
                scalars = {key: value for key, value in own.items() if not isinstance(value, Mapping | list)}
                yield from self._of_message((*path, "content", ITEMS), scalars)
        calls = _decoded(message.get(_CALLS))
        for call in map(_decoded, calls) if isinstance(calls, list) else ():
            if isinstance(call, Mapping):
                function = _decoded(call.get("function"))
                of_function = function if isinstance(function, Mapping) else {}
                own = {key: value for key, value in of_function.items() if key not in KEYS_OF_CALLS}
                yield from self._of_message((*path, _CALLS, ITEMS), {**call, "function": own}, KEYS_OF_CALLS)

    def _add_lists(self, path: Path, messages: Sequence[Any], lists: Mapping[Path, Sequence[Any]]) -> None:
        """Note lists with one for each message, or for each answer, and lists of the numbers of some answers."""
        answers = [number for number, each in enumerate(messages) if is_answer(each, self._roles)]
        for at, values in lists.items():
            said: dict[Place, Sequence[Any]] = {
                Place(at, "list", path): [values[k] for k in answers] if len(values) == len(messages) else (),
                Place(at, "list of answers", path): values if len(values) == len(answers) else (),
            }
            distinct = {*values} if all(type(value) is int for value in values) else set[Any]()
            are_numbers = len(distinct) == len(values)
            for first in (0, 1):
                numbers = [number + first for number in answers]
                are_answers = are_numbers and distinct <= {*numbers}
                said[Place(at, "numbers", path, first)] = [each in distinct for each in numbers if are_answers]
            for place, each in said.items():
                if each:
                    self._said[place].add([value for value in each if value is not None])
                else:
                    self._misfits[place] += 1
            self._num_asked[at] += len(answers)

    def labels(self) -> dict[str, Counter[str]]:
        """Return the short values of fields, and of keys of answers, as JSON: how often each is said.

        Those of the items of a list are needed where others of its keys are read.
        """
        parts = {first_name(name) for name in self._read if name != first_name(name)}
        most = {"row": 0, "message": 1}
        found = [
            (at, said)
            for at, said in self._said.items()
            if at.path.count(ITEMS) <= most.get(at.of, -1) + (_CALLS in at.path)
            or (at.of == "row" and at.path[0] in parts)
        ]
        return {shown_path(place.path): said.values - Counter(null=said.values["null"]) for place, said in found}

    def differing(self) -> Iterable[UnreadField]:
        """Return those in which answers, or rows, differ, by their paths; those in a list of the row are one."""
        found: dict[str, UnreadField] = {}
        fitting = {(*place.path, ITEMS) for place in self._said if place.messages and self._fits(place)}
        candidates = []
        for place, said in self._said.items():
            is_even = len(said.values) == 2 and len({*said.values.values()}) == 1  # as yes and no in lists of two
            if not (said.counts and len(said.values) > 1 and (place.of == "row" or not is_even)):
                candidates.append((place, said))
        for place, said in sorted(candidates, key=lambda each: each[0]):
            num_silent = self._num_asked[place.whose] - said.values.total()
            said.num_empty = self._num_empty[place.path]
            flag_of = _of_row if place.of in ("row", "items") else _of_answers
            flag = flag_of(place, said, sorted(map(json.loads, said.values), key=str), num_silent)
            is_of_messages = place.path in fitting and _kind([*map(json.loads, said.values)]) == "flags"
            if flag is not None and self._fits(place) and not is_of_messages:
                found.setdefault(flag.path, flag)
        return found.values()

    def _fits(self, place: Place) -> bool:
        """Whether something may be said about messages, or is said about no list."""
        most = self._said[place].num_rows // _MOST_MISFITS if place.of == "numbers" else 0
        return self._misfits[place] <= most


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(json.dumps(value, ensure_ascii=False) for value in values)


def _kind(values: Sequence[Any]) -> Literal["flags", "signs", "fractions", "words"] | None:
    """Return what values are: each a yes or no, around zero, from 0 to 1, or one of two words, or of some verdicts."""
    if all(as_flag(value) is not None for value in values):
        return "flags"
    numbers = [*map(as_number, values)]
    if not any(map(math.isnan, numbers)):
        is_fraction = min(numbers) >= 0 and max(numbers) <= 1
        return "signs" if min(numbers) < 0 < max(numbers) else "fractions" if is_fraction else None
    words = {_word(value) for value in values}
    is_verdict = {"true", "false"} <= words or verdicts([*map(str, words)])[1]  # such as yes, no and maybe
    most = _MOST_VERDICTS if is_verdict else 2
    return "words" if None not in words and len(words) <= most else None


def _word(value: Any) -> str | None:
    """Return a word, or what a yes or no is, in small letters; None for anything else."""
    if (flag := as_flag(value)) is not None:
        return str(flag).lower()
    is_word = isinstance(value, str) and (value.replace("_", "").replace("-", "").isalpha() or is_character(value))
    return value.lower() if is_word else None


def _of_row(place: Place, said: _Said, values: Sequence[Any], num_silent: int) -> UnreadField | None:
    """Return the flag in which rows differ, if some of them say no, or a number below zero, or have a mark."""
    kind, says, kept = _kind(values), "", dict[str, str]()
    yes, no = list[Any](), list[Any]()
    if kind == "signs":
        says, kept = SIGNS, {"the rows with 0 or more": "{min: 0}", "the rows with 0 or less": "{max: 0}"}
    elif kind == "flags":
        yes, no = ([value for value in values if as_flag(value) is flag] for flag in (True, False))
        are_ids = said.num_rows == len(values) and not any(map(math.isnan, map(as_number, values)))
        if no and (yes or (num_silent > 0 and said.num_rows > 1)) and not are_ids:
            says = "false or true" if yes else "false or nothing"
    elif all(isinstance(value, str) for value in values):
        yes, no = verdicts(values)
        if len(values) == 1 and is_mark(values[0]) and num_silent > 0 and said.num_rows > 1:
            yes, says = [*values], f"{values[0]} or nothing"
            kept = {f"the rows without {_listed(yes)}": f"{{not_in: [{_listed(yes)}]}}"} if said.num_empty else {}
        are_topics = place.path[-1] == ITEMS and 2 * len([*yes, *no]) < len(values)  # of which one may be `error`
        if no and (len(values) > 1 or num_silent > 0) and not are_topics:
            first = dict.fromkeys((*no, *values))
            says = " or ".join((*yes, *no) if yes else [*first][:_MOST_VERDICTS])
            says += " or nothing" * (not yes and num_silent > 0)
            kept = {} if yes else {f"the rows without {_listed(no)}": f"{{not_in: [{_listed(no)}]}}"}
    kept |= {f"the rows with {_listed(each)}": f"{{in: [{_listed(each)}]}}" for each in (yes, no) if each}
    name = ".".join(place.path)
    is_plain = {".", "="}.isdisjoint(name)
    begin, end = (f"sources.where.{name}=", "") if is_plain else (f"sources.where={{{_listed([name])}: ", "}")
    keeps = tuple((f"{begin}{said_so}{end}", which) for which, said_so in kept.items() if ITEMS not in place.path)
    return replace(_flag(place, said, says), keeps=keeps) if says else None


def _flag(place: Place, said: _Said, says: str) -> UnreadField:
    path = place.path
    if place.of == "row" and ITEMS in path:
        start = path.index(ITEMS)
        inner = [key for key in path[start:] if key != ITEMS]
        path, says = path[:start], ": ".join((*inner[-1:], says))
    path = path[:-1] if path[-1] == ITEMS else path
    return UnreadField(path=shown_path(path), num_rows=said.num_rows, example=says, kind="flag")


def _of_answers(place: Place, said: _Said, values: Sequence[Any], num_silent: int) -> UnreadField | None:
    """Return the flag in which answers differ: in fractions, and in words of a list, those of one conversation."""
    kind = _kind(values)
    written = {str(_word(value)): str(value).lower() for value in reversed(values)}
    words = sorted(written.values() if kind == "words" else written)
    differ = said.differs or kind == "signs" or (kind == "flags" and len(words) + (num_silent > 0) > 1)
    differ |= kind == "words" and len(words) > 1 and place.of == "message"
    if kind is None or not differ:
        return None
    says = {"signs": SIGNS, "fractions": "a number from 0 to 1"}.get(kind, " or ".join(words))
    says = "the numbers of some messages" if place.of == "numbers" else says + " or nothing" * (num_silent > 0)
    return _flag(place, said, says)
