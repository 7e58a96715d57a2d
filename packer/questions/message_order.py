"""Finds rows whose messages stand in another order than they say.

What a row says of the order of its messages must be the order they stand in. A row says it under a key of its messages:
one that numbers them, by consecutive integers; one that has their times; or one that has the id of the message before.
Only values tell such a key, never its name. Results of calls may come in any order.
"""

import datetime as dt
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product
from typing import Any

from packer.questions.read_places import ITEMS, UnreadField
from packer.source.decode import decoded_json
from packer.source.roles import ROLES, is_answer
from packer.source.row import field_value

_NO_ORDER = frozenset({"role", "from", "content", "value", "tool_calls", "tool_call_id"})

_SECONDS = (946_684_800, 4_102_444_800)
"""The years from 2000 to 2099; a number may also count milliseconds."""

_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d\S{0,24})?")

_FEWEST_COUNTED = 3
"""Of two messages, 1 and 0 may say who speaks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Talk:
    """What the messages in a list say, by their keys and their numbers in the list."""

    roles: tuple[str | None, ...]
    answers: frozenset[int]
    said: Mapping[str, Mapping[int, Any]]

    def stands(self, values: Mapping[int, float]) -> bool:
        """Whether messages with these values, which rise with time, stand in order."""
        return all(
            values[one] <= values[other] or self.roles[one] == self.roles[other] == "tool"
            for one, other in pairwise(values)
        )


def out_of_order(
    rows: Sequence[Mapping[str, Any]], names: Collection[str], roles: Mapping[str, str]
) -> Iterator[UnreadField]:
    """Yield the keys of messages, in some fields, whose order some rows do not keep, be they refused for it or not."""
    for name in sorted(names):
        values = (field_value(row, name) for row in rows)
        lists = (decoded_json(value) if isinstance(value, str) else value for value in values)
        talks = [talk for each in lists if (talk := _talk(each, roles)) is not None]
        every = chain(_unsorted(talks, _count), _unsorted(talks, _time), _branched(talks))
        for found in {each.path: each for each in every}.values():
            yield replace(found, path=f"{name}{ITEMS}.{found.path}")


def _talk(messages: Any, roles: Mapping[str, str]) -> _Talk | None:
    """Return what several messages in a list say; None if it is nothing, or if they are none."""
    if not isinstance(messages, list) or len(messages) < 2 or any(type(each) is not dict for each in messages):
        return None
    said: dict[str, dict[int, Any]] = {}
    for number, message in enumerate(messages):
        for key, value in message.items():
            if key not in _NO_ORDER and isinstance(value, str | int | float) and not isinstance(value, bool):
                said.setdefault(key, {})[number] = value
    senders = [str(each.get("role") or each.get("from")) for each in messages]
    own = tuple(ROLES.get(roles.get(each, each).lower()) for each in senders)
    answers = frozenset(k for k, each in enumerate(messages) if is_answer(each, roles))
    return _Talk(roles=own, answers=answers, said=said) if said else None


def _field(key: str, num_rows: int, example: str) -> UnreadField:
    return UnreadField(path=key, kind="order", num_rows=num_rows, example=example)


def _time(value: Any) -> float | None:
    """Return a time in seconds; None for anything else."""
    if (number := _count(value)) is not None:
        return next((at for unit in (1, 1000) if _SECONDS[0] <= (at := number / unit) < _SECONDS[1]), None)
    if not isinstance(value, str) or not _ISO.fullmatch(value):
        return None
    try:
        when = dt.datetime.fromisoformat(value)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=dt.UTC)).timestamp()


def _count(value: Any) -> float | None:
    return float(value) if not isinstance(value, str) and abs(value) < 1e19 else None


_Numbers = Mapping[int, Mapping[int, float]]
"""Those of messages, by the number of the talk."""


def _numbers(talks: Sequence[_Talk], number: Callable[[Any], float | None]) -> dict[str, _Numbers]:
    """Return what messages have under the keys that time or count them: one for at least half of the answers.

    Documents that were found have times, too, which say nothing about messages.
    """
    found: defaultdict[str, dict[int, Mapping[int, float]]] = defaultdict(dict)
    others: set[str] = set()
    for (k, talk), path in ((each, path) for each in enumerate(talks) for path in each[1].said.keys() - others):
        said = talk.said[path]
        numbers = {at: each for at, value in said.items() if (each := number(value)) is not None}
        values = {*numbers.values()}
        if number is _count:
            is_order = len(values) == len(said) == max(values) - min(values) + 1
        else:
            is_order = all(isinstance(said[at], str) for at in said.keys() - numbers.keys())
        if not is_order:
            others.add(path)
        elif 2 * len(values) >= len(numbers) > 1 and 2 * len(talk.answers & numbers.keys()) >= len(talk.answers):
            found[path][k] = numbers
    fewest = _FEWEST_COUNTED if number is _count else 2
    are_long = (path for path, each in found.items() if max(map(len, each.values())) >= fewest)
    return {path: found[path] for path in sorted(are_long) if path not in others}


def _unsorted(talks: Sequence[_Talk], number: Callable[[Any], float | None]) -> Iterator[UnreadField]:
    """Yield the keys whose numbers fall in rows in which no other key rises: an edit may be later than an answer."""
    keys = _numbers(talks, number)
    falls = {key: {k for k, each in found.items() if not talks[k].stands(each)} for key, found in keys.items()}
    in_order = {k for key, found in keys.items() for k in found.keys() - falls[key]}
    for key, found in keys.items():
        if broken := sorted(falls[key] - in_order):
            first, said = found[broken[0]], talks[broken[0]].said[key]
            example = next(f"{said[k]} after {said[j]}" for j, k in pairwise(first) if first[j] > first[k])
            yield _field(key, len(broken), example)


def _num_named(ids: Sequence[Any], names: Sequence[Any]) -> int:
    """Return how many messages name another one. Numbers do so beside nothing, for the first message."""
    are_clear = None in names or not any(isinstance(each, int) for each in names)
    return sum(map({*ids}.__contains__, names)) if are_clear and not any(map(operator.eq, ids, names)) else 0


def _branches_at(roles: Sequence[str | None], ids: Sequence[Any], names: Sequence[Any]) -> int:
    """Return the first message that names another than the one before it, or none, as the first does; 0 without one."""
    before: set[Any] = set()  # with results, any of them or their call
    for at, (own, name, role) in enumerate(zip(ids, names, roles, strict=True)):
        is_first = name is None and {*roles[:at]} <= {"system"}
        if at and not is_first and name not in before and name in (None, names[0], *ids):
            return at
        before = {own} if role != "tool" else {own, *before}
    return 0


def _branched(talks: Sequence[_Talk]) -> Iterator[UnreadField]:
    """Yield the keys with the id of the message before in which some rows name another one, as where answers branch.

    An id is another one for each message, and most messages have to name one.
    """
    having: defaultdict[str, list[_Talk]] = defaultdict(list)
    ids: defaultdict[str, dict[_Talk, set[Any]]] = defaultdict(dict)
    for talk in talks:
        for key, said in talk.said.items():
            having[key].append(talk)
            values = {*said.values()}
            if len(values) == len(talk.roles) and all(isinstance(each, str | int) for each in values):
                ids[key][talk] = values
    for own, parent in product(sorted(ids), sorted(having)):
        found = having[parent]
        if not ids[own].keys() >= {*found} or ids[parent].keys() >= {*found}:
            continue
        if all(ids[own][talk].isdisjoint(talk.said[parent].values()) for talk in found):
            continue
        pairs = [([*talk.said[own].values()], [*map(talk.said[parent].get, talk.said[own])]) for talk in found]
        num_named = sum(_num_named(*pair) for pair in pairs)
        if 2 * num_named < sum(len(each) - 1 for each, _ in pairs):
            continue
        places = [_branches_at(talk.roles, *pair) for talk, pair in zip(found, pairs, strict=True)]
        if any(places):
            (own_ids, names), at = next((pair, at) for pair, at in zip(pairs, places, strict=True) if at)
            example = f"{names[at] or 'nothing'} after {own_ids[at - 1]}"
            yield _field(parent, sum(map(bool, places)), example)
