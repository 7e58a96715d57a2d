"""What messages say of their order is the order they stand in, or a build asks."""

import datetime as dt
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.questions.read_places import UnreadField
from packer.questions.row_notes import BEGIN_OTHERS
from packer.questions.unread_text import Unread, find_unread

WAYS: dict[str, Callable[[int], Any]] = {
    "a counter": lambda k: k,
    "a counter from 17": lambda k: 17 + k,
    "seconds": lambda k: 1_700_000_000 + 9 * k,
    "fractions of seconds": lambda k: 1_700_000_000.25 + k / 2,
    "milliseconds": lambda k: 1_700_000_000_000 + 900 * k,
    "ISO": lambda k: when(k).isoformat(),
    "ISO in UTC": lambda k: when(k).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "days": lambda k: when(k * 24).date().isoformat(),
}


def when(k: int) -> dt.datetime:
    return dt.datetime(2025, 3, 1, tzinfo=dt.UTC) + dt.timedelta(hours=k)


def talk(*said: dict[str, Any], roles: str = "ua") -> list[dict[str, Any]]:
    names = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    given_roles = [names[roles[number % len(roles)]] for number in range(len(said))]
    return [
        {"role": role, "content": f"said {number}"} | each
        for number, (role, each) in enumerate(zip(given_roles, said, strict=True))
    ]


def found(*talks: list[dict[str, Any]], known: tuple[str, ...] = ()) -> Unread:
    return find_unread([{"messages": each} for each in talks], schema="messages", columns={}, roles={}, known=known)


def asked(*talks: list[dict[str, Any]], known: tuple[str, ...] = ()) -> list[UnreadField]:
    return [field for field in found(*talks, known=known).fields if field.kind == "order"]


def paths(*talks: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(field.path, field.num_rows) for field in asked(*talks)]


def valued(key: str, *values: Any, roles: str = "ua") -> list[dict[str, Any]]:
    return talk(*({} if value is None else {key: value} for value in values), roles=roles)


lengths = st.lists(st.integers(2, 7), min_size=1, max_size=5).filter(lambda each: max(each) > 2)


@given(way=st.sampled_from(sorted(WAYS)), lengths=lengths, seed=st.integers(0, 99))
def test_rows_in_their_order_are_never_asked_about_and_the_same_rows_in_another_always_are(
    way: str, lengths: list[int], seed: int
) -> None:
    value = WAYS[way]
    rows = [talk(*({"at": value(k)} for k in range(length))) for length in lengths]
    assert asked(*rows) == []
    shuffled = [random.Random(seed).sample(row, len(row)) for row in rows]
    num_moved = sum(one != other for one, other in zip(rows, shuffled, strict=True))
    assert paths(*shuffled) == ([("messages[].at", num_moved)] if num_moved else [])
    assert paths(*[row[::-1] for row in rows]) == [("messages[].at", len(rows))]


@given(lengths=lengths, seed=st.integers(0, 99))
def test_parents_that_are_the_messages_before_are_never_asked_about_and_others_always_are(
    lengths: list[int], seed: int
) -> None:
    rows = [
        talk(*({"id": f"{n}-{k}", "after": f"{n}-{k - 1}" if k else None} for k in range(length)))
        for n, length in enumerate(lengths)
    ]
    assert asked(*rows) == []
    shuffled = [random.Random(seed).sample(row, len(row)) for row in rows]
    num_moved = sum(one != other for one, other in zip(rows, shuffled, strict=True))
    assert paths(*shuffled) == ([("messages[].after", num_moved)] if num_moved else [])


@pytest.mark.parametrize(
    "rows",
    [
        [valued("latency", 0.3, 2.1, 0.2, 1.7)],
        [valued("tokens", 512, 40, 12, 230), valued("tokens", 7, 90, 14, 8)],
        [valued("stars", 3, 2, 1, 4), valued("stars", 3, 3, 5, 1)],
        [valued("is_user", 1, 0), valued("is_user", 1, 0)],
        [valued("turn", 1, 1, 0, 0)],
        [valued("at", *["2025-03-01T10:00:00Z"] * 4)],
        [valued("at", *[1_700_000_000] * 4, 1_699_999_999)],
        [valued("seed", 1_900_000_000, 1_200_000_000, 77, 1_400_000_000)],
        [valued("name", "2 pm", "noon", "10-12", "2025")],
        [valued("flag", True, False, True)],
        [valued("huge", 10**400, 10**399, 1)],
        [valued("no number", math.nan, math.inf, 1.0)],
        [valued("no date", "2025-13-01T10:00", "2025-02-30", "2025-01-01T99:00")],
        [valued("published", None, None, *map(WAYS["ISO"], (9, 2, 5)), None, roles="uattta")],
        [valued("at", *map(WAYS["ISO"], (0, 1, 4, 2, 3, 5)), roles="uattta")],
        [talk(*({"created": when(k).isoformat(), "edited": when(9 - k).isoformat()} for k in range(4)))],
        [valued("reply_to", None, None, None, "m1", None)],
        [talk(*({"seq": k, "exchange": k // 2} for k in range(6)))],
        [talk(*({"id": f"m{k}", "reply_to": "m0" if k == 5 else None} for k in range(8)))],
        [
            talk(
                {"id": "q", "parent": None},
                {"id": "call", "parent": "q"},
                *({"id": f"r{k}", "parent": "call"} for k in range(3)),
                {"id": "end", "parent": "call"},
                roles="uattta",
            )
        ],
        [talk({"id": "s"}, *({"id": f"m{k}", "parent": f"m{k - 1}" if k else None} for k in range(3)), roles="suau")],
        [talk(*({"id": f"m{k}", "parent": f"m{k - 1}" if k % 3 else f"hidden{k}"} for k in range(7)))],
    ],
)
def test_what_is_no_order_is_not_asked_about(rows: list[list[dict[str, Any]]]) -> None:
    assert paths(*rows) == []
    assert found(*rows).num_read == len(rows)


def test_a_few_rows_among_many_are_asked_about() -> None:
    rows = [valued("at", *map(WAYS["ISO"], range(4))) for _ in range(200)]
    rows[7] = rows[7][::-1]
    (field,) = asked(*rows)
    assert (field.path, field.num_rows, field.kind) == ("messages[].at", 1, "order")
    assert field.example == "2025-03-01T02:00:00+00:00 after 2025-03-01T03:00:00+00:00"
    assert asked(*rows, known=("messages[].at",)) == []


def test_a_message_whose_parent_is_not_the_one_before_is_asked_about_also_as_a_second_first_one() -> None:
    said = [("a", "root"), ("b", "a"), ("c", "root"), ("d", "c")]
    numbers = [(1, None), (2, 1), (3, 2), (4, 1), (5, 4)]
    for pairs in (said, numbers):
        rows = talk(*({"uid": own, "parentId": parent} for own, parent in pairs))
        assert paths(rows) == [("messages[].parentId", 1)]


def snapshot(*texts: str, **last: Any) -> list[dict[str, Any]]:
    rows = [{"role": "user" if k % 2 == 0 else "assistant", "content": text} for k, text in enumerate(texts)]
    return [*rows[:-1], rows[-1] | last]


def begun(*talks: list[dict[str, Any]]) -> int:
    return sum(note.num_rows for note in found(*talks).notes if note.says == BEGIN_OTHERS)


def test_rows_that_begin_another_row_are_counted() -> None:
    rows = [snapshot(*"abcdef"[:end]) for end in (2, 4, 6)]
    assert begun(*rows) == 2
    assert begun(*rows, *rows[:1], snapshot(*"abxd")) == 3
    assert begun(*rows[:1], *rows[:1]) == 0  # twice the same
    assert begun(snapshot(*"ab"), snapshot(*"xbcd"), snapshot(*"aycd")) == 0
    reasoned = snapshot(*"ab", reasoning_content="Hm.")
    assert begun(reasoned, snapshot(*"abcd")) == 1


def test_rows_of_which_only_the_last_answer_is_trained_begin_no_other_row() -> None:
    def masked(*texts: str) -> list[dict[str, Any]]:
        return [each | {"train": k == len(texts) - 1} for k, each in enumerate(snapshot(*texts))]

    assert begun(*(masked(*"abcdef"[:end]) for end in (2, 4, 6))) == 0
