"""A yes or no in which answers differ may say which of them are trained, whatever its name is: it is found."""

import json
import math
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from search_effort import each_with_a_kind

from packer.questions.unread_text import find_unread
from packer.source.schema import read_row

ASKED = [{"role": "user", "content": f"Question {number}?"} for number in range(2)]
ANSWERS = [{"role": "assistant", "content": f"answer {number}"} for number in range(2)]


PROMPT = {"prompt": "Question?", "completion": "answer"}


def talk(*flags: Any, key: str = "mask", **row: Any) -> dict[str, Any]:
    answers = [answer | ({} if flag is None else {key: flag}) for answer, flag in zip(ANSWERS, flags, strict=True)]
    return {"messages": [ASKED[0], answers[0], ASKED[1], answers[1]], **row}


def found_in(*rows: dict[str, Any], schema: str = "messages", roles: Any = None, kinds: Any = ANY) -> dict[str, str]:
    found = find_unread(rows, schema=schema, columns={}, roles=roles or {})
    assert found.num_read == len(rows)
    return {each.path: each.example for each in found.fields if kinds == each.kind}


@pytest.mark.parametrize("key", ["mask", "learn", "is_trainable", "x"])
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((True, False), "false or true"),
        ((0, 1), "false or true"),
        ((-1, 1), "false or true"),
        (("no", "Yes"), "false or true"),
        ((None, True), "true or nothing"),
        ((False, None), "false or nothing"),
        ((True, True), None),
        ((0, 0), None),
        ((0.5, 0.7), "a number from 0 to 1"),
        ((0.1, 1.0), "a number from 0 to 1"),
        ((0.5, 0.5), None),
        ((1, 2), None),
        (("no", "other"), "no or other"),
        (("ignore", "train"), "ignore or train"),
        (("a1", "a2"), None),
    ],
)
def test_a_key_of_messages_is_a_flag_if_it_says_yes_or_no_and_answers_differ_in_it(key, flags, says) -> None:
    assert found_in(talk(*flags, key=key)) == ({} if says is None else {f"messages[].{key}": says})


FLAGS_OF_ROWS: list[tuple[list[tuple[Any, Any]], str | None]] = [
    ([(True, True), (False, False)], "false or true"),  # answers of different rows differ, too
    ([("ok", "ok"), ("timeout", "timeout")], "ok or timeout"),
    ([(0.1, 0.1), (0.2, 0.2)], None),  # numbers differ within a conversation
    ([("draft", "final"), ("draft", "sent")], None),  # words are two, or verdicts
    ([("passed", "failed"), ("passed", "skipped")], "failed or passed or skipped"),
    ([("good", "bad"), ("good", "good")], "bad or good"),
    ([("yes", "maybe"), ("maybe", "no")], "maybe or no or yes"),
    ([("no", "maybe"), ("some", "no")], None),  # nothing says yes
]


@pytest.mark.parametrize(("flags", "says"), FLAGS_OF_ROWS)
def test_flags_of_several_rows_are_looked_at_together(flags, says) -> None:
    assert found_in(*(talk(*each) for each in flags)) == ({} if says is None else {"messages[].mask": says})


def test_flags_of_questions_say_nothing() -> None:
    asked = [each | {"mask": bool(number)} for number, each in enumerate(ASKED)]
    assert found_in({"messages": [asked[0], ANSWERS[0], asked[1], ANSWERS[1]]}) == {}


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        (["overloaded_error"] * 2, {"messages[].mark": {'"overloaded_error"': 2}}),
        (["2025-03-01", "2026-11-29"], {"messages[].mark": {'"2025-03-01"': 1, '"2026-11-29"': 1}}),
        ([{"of": {"type": "busy"}}] * 2, {"messages[].mark.of.type": {'"busy"': 2}}),
        ([["Oban"], ["Oban"]], {}),
    ],
)
def test_a_label_that_some_answers_have_is_named_and_not_asked_about(marks, said) -> None:
    rows = [talk(mark, None, key="mark") for mark in marks]
    found = find_unread(rows, schema="messages", columns={}, roles={})
    assert (found.fields, found.labels) == ((), said)


@pytest.mark.parametrize("key", ["name", "tool_call_id", "type", "annotations", "finish_reason"])
def test_what_has_another_meaning_is_no_flag(key: str) -> None:
    values = ["stop", None] if key != "annotations" else [["Oban"], None]
    assert found_in(*[talk(*values, key=key)] * 3) == {}
    assert found_in(talk(False, None, key="prefix")) == {}, "which is read"


@pytest.mark.parametrize(
    ("key", "flags"),
    [
        *((key, flags) for key in ("train", "training", "trainable") for flags in ((True, False), (False, True))),
        *((key, flags) for key in ("loss", "loss_mask", "masked") for flags in ((True, False), (0, 1))),
        *((key, (0, 1)) for key in ("weight", "loss_weight")),
    ],
)
def test_what_says_under_a_known_name_that_a_part_is_trained_is_read_and_not_asked_about(key: str, flags: Any) -> None:
    parts = [{"type": "text", "text": f"answer {k} ", key: flag} for k, flag in enumerate(flags)]
    row = {"messages": [ASKED[0], ANSWERS[0] | {"content": parts}]}
    assert found_in(row) == {}
    (_, said) = read_row(row, number=0, schema="messages", columns={}).messages
    trained = [bool(flag) != (key == "masked") for flag in flags].index(True)
    assert said.spans == ((9 * trained, 9 * trained + 9),)


def test_flags_of_parts_in_objects_and_of_exchanges_are_found() -> None:
    parts = [{"type": "text", "text": "answer", "mask": flag} for flag in (True, False)]
    assert found_in({"messages": [ASKED[0], ANSWERS[0] | {"content": parts}]}) == {
        "messages[].content[].mask": "false or true"
    }
    assert found_in(talk({"learn": True}, {"learn": False}, key="meta")) == {"messages[].meta.learn": "false or true"}
    turns = [{"human": "Question?", "assistant": "no", "keep": flag} for flag in (True, False)]
    assert found_in({"conversations": turns}, schema="sharegpt") == {"conversations[].keep": "false or true"}
    turns = [{"from": "me", "value": "Question?"}, {"from": "it", "value": "no"}, {"from": "me", "value": "Question?"}]
    turns.append({"from": "it", "value": "yes", "keep": "no"})
    assert found_in({"conversations": turns}, schema="sharegpt", roles={"me": "user", "it": "assistant"}) == {
        "conversations[].keep": "false or nothing"
    }


@pytest.mark.parametrize(
    ("keys", "path", "says"),
    [
        ({"reactions": [["👍"], ["👎"]]}, "reactions", "👍 or 👎"),
        ({"notes": [[{"ok": True}, {"ok": True}], [{"ok": False}]]}, "notes[].ok", "false or true"),
        ({"notes": [[{"tags": ["good"]}], [{"tags": ["bad", "good"]}]]}, "notes[].tags", "good or bad"),
        ({"notes": ['{"ok": true}', '{"ok": false}']}, "notes.ok", "false or true"),
        ({"topics": [["ferries"], ["ports", "tides"]]}, None, None),
        ({"logprobs": [[0, 1, 1], [-0.5, 0.5]]}, None, None),
        ({"sources": [[{"rank": 0.1}], [{"rank": 0.2}]]}, None, None),
    ],
)
def test_lists_under_a_key_of_messages_are_searched_for_a_yes_and_a_no(keys, path, says) -> None:
    ((key, values),) = keys.items()
    assert found_in(talk(*values, key=key), kinds="flag") == ({f"messages[].{path}": says} if path else {})
    assert found_in(talk(values[0], values[0], key=key), kinds="flag") == {}


@pytest.mark.parametrize("key", ["details", "content"])
def test_a_number_that_counts_the_items_of_each_list_is_no_flag(key: str) -> None:
    """As `index` of OpenRouter's `reasoning_details`."""

    def lists(*numbers: list[Any]) -> list[Any]:
        return [[{"type": "text", "text": "a", "number": each} for each in own] for own in numbers]

    assert found_in(talk(*lists([0], [0, 1]), key=key), kinds="flag") == {}
    assert found_in({**PROMPT, "notes": lists([0, 1])[0]}, PROMPT, schema="completion", kinds="flag") == {}
    path = f"messages[].{key}[].number"
    for numbers in (([1], [0, 1]), ([1, 0], [0, 1]), ([0], [1]), ([0, 0], [0, 1]), ([False], [False, True])):
        assert found_in(talk(*lists(*numbers), key=key), kinds="flag") == {path: "false or true"}
    some = [talk(*lists(*each), key=key) for each in (([0, 1], [0, 1]), ([0], [0, 1]), ([1], [0]))]
    assert found_in(*some, kinds="flag") == {path: "false or true"}, "where one list has another number"
    rows = [{**PROMPT, "notes": lists([0])[0]}] * 2
    assert found_in(*rows, PROMPT, schema="completion", kinds="flag") == {"notes": "number: false or nothing"}


OF_CALLS = [
    ("train", (True, False), "false or true"),
    ("weight", (0, 1), "false or true"),
    ("mask", (None, False), "false or nothing"),
    ("status", ("ok", "timeout"), "ok or timeout"),
    ("valid", (True, True), None),
    ("index", (0, 1), None),
    ("type", ("function", "custom"), None),
    ("parameters", ({"exact": True}, {"exact": False}), None),
]
"""Keys of two calls; the last three have another meaning, except in an object of their own."""


@pytest.mark.parametrize(
    ("inside", "key", "flags", "says"),
    [
        *((inside, *case) for inside in ((), ("function",)) for case in OF_CALLS),
        *((("meta",), *case) for case in OF_CALLS[:5]),
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_flags_of_calls_are_found_and_what_is_read_of_calls_is_none(key, inside, flags, says, as_text) -> None:
    calls = []
    for number, flag in enumerate(flags):
        call: dict[str, Any] = {
            "id": str(number),
            "index": number,
            "function": {"name": "look", "arguments": {"x": number}},
        }
        (call.setdefault(*inside, {}) if inside else call).update({} if flag is None else {key: flag})
        calls.append(call)
    results = [{"role": "tool", "tool_call_id": str(number), "content": "seven"} for number in range(2)]
    turn = {"role": "assistant", "content": "", "tool_calls": json.dumps(calls) if as_text else calls}
    path = ".".join(["messages[].tool_calls[]", *inside, key])
    row = {"messages": [ASKED[0], turn, *results, ANSWERS[1]]}
    assert found_in(row) == ({} if says is None else {path: says})
    assert find_unread([row], schema="messages", columns={}, roles={}, known=[path]).fields == ()


def test_messages_in_an_object_of_the_row_are_searched() -> None:
    found = find_unread(
        [{"data": talk(True, False)}], schema="messages", columns={"messages": "data.messages"}, roles={}
    )
    assert [each.path for each in found.fields] == ["data.messages[].mask"]


NUMBERS = "the numbers of some messages"
TWENTY = [{"x": [1 + 2 * (number % 2)]} for number in range(20)]
LISTS_OF_ROWS: list[tuple[list[dict[str, Any]], dict[str, str]]] = [
    ([{"loss_mask": [0, 0, 0, 1]}], {"loss_mask": "false or true"}),
    ([{"loss_mask": [0, 1, 0, 1]}], {}),  # as it is trained anyway
    ([{"learn": ["no", "no", "no", "yes"]}], {"learn": "false or true"}),
    ([{"scores": [0, 1, 0, 5]}], {}),
    ([{"numbers": [0, 0, 1]}], {}),
    ([{"meta": {"learn": [0, 1]}}], {"meta.learn": "false or true"}),  # one for each answer
    ([{"x": "[0, 0, 0, 1]"}, {"x": "[0, 1, 0, 1]"}], {"x": "false or true"}),
    ([{"x": "[0, 0, 0, 1]"}, {"x": "[0, 1]"}], {}),
    ([{"turns": "[1, 3]"}, {"turns": "[3]"}], {"turns": NUMBERS}),
    ([{"turns": [3, 1]}, {"turns": [1]}], {"turns": NUMBERS}),  # in any order
    ([{"level": "1"}, {"level": "3"}], {}),  # a number alone
    ([{"turns": [3]}], {"turns": NUMBERS}),
    ([{"turns": [4]}, {"turns": [2]}], {"turns": NUMBERS}),
    ([{"turns": [1, 3]}], {}),  # as it is trained anyway
    ([{"topics": [3]}, {"topics": [0]}], {}),
    ([{"topics": [3]}, {"topics": [9]}], {}),
    ([*TWENTY, {"x": [2]}], {"x": NUMBERS}),  # nearly all have those of answers
    ([*TWENTY[:19], {"x": [2]}], {}),
]


@pytest.mark.parametrize(("rows", "found"), LISTS_OF_ROWS)
def test_a_list_with_one_for_each_message_or_with_numbers_of_answers_is_a_flag(rows, found) -> None:
    assert found_in(*(talk(None, None, **each) for each in rows)) == found


def test_texts_that_only_look_like_lists_are_labels() -> None:
    rows = [talk(None, None, x=text) for text in ("0,0,0,1", "0001")]
    found = find_unread(rows, schema="messages", columns={}, roles={})
    assert (found.fields, found.labels) == ((), {"x": {'"0,0,0,1"': 1, '"0001"': 1}})


def within(inside: tuple[str, ...], value: Any) -> Any:
    for key in reversed(inside):
        value = [value] if key == "[]" else {key: value}
    return value


LISTS: list[tuple[Any, str | None]] = [
    (([True, False, True], [True]), "false or true"),
    (([None, True, None], [None, False, True]), "false or true"),
    ((["pass", "fail", "pass"], ["fail", "pass", "pass"]), "pass or fail"),
    ((["✓"], ["✗", "✓", "✓"]), "✓ or ✗"),
    (([True, True, True], [True]), None),
    (([0, 1, 1], [0]), None),
    (([5, -5, 1],), None),
    ((["A", "B", "C"], ["A", "B"]), None),
    ((["de", "fr", "en"],), None),
    ((["pandas", "error", "csv"], ["pandas"]), None),
    ((["passed", "error", "skipped"], ["passed", "error", "skipped"]), "passed or error"),
    (([True, 7, False],), None),
]


@pytest.mark.parametrize(
    ("found", "inside"), each_with_a_kind(LISTS, [("x",), ("meta", "x"), ("notes", "[]", "x"), ("x", "[]")])
)
def test_a_list_that_fits_no_messages_is_searched_for_a_yes_and_a_no(found, inside) -> None:
    lists, says = found
    rows = [talk(None, None, **within(inside, value)) for value in lists]
    path, *inner = ".".join(inside).split(".[]")
    says = f"{inner[0].removeprefix('.')}: {says}" if inner and inner[0] and says else says
    assert found_in(*rows, kinds="flag") == ({} if says is None else {path: says})
    prompts = [{key: value for key, value in row.items() if key != "messages"} | PROMPT for row in rows]
    assert found_in(*prompts, schema="completion", kinds="flag") == ({} if says is None else {path: says})


DIFFERING: list[tuple[Any, str | None]] = [
    ((True, False), "false or true"),
    (("yes", "no"), "false or true"),
    ((0, 1, 1), "false or true"),
    ((False, None, False), "false or nothing"),
    ((-0.3, 2), "numbers below and above 0"),
    (("good", "failed", "other"), "good or failed"),
    ((True, None), None),
    ((False, False), None),
    (("yes", "no", "maybe"), None),
    ((1, 2), None),
    ((-0.3, -2), None),
    (("resolved", "unresolved", "partly"), "resolved or unresolved"),
    (("Toxic", "NON-TOXIC"), "Toxic or NON-TOXIC"),
    (("not_solved", "other", "other"), "not_solved or other"),
    (("wrong", "right", None, "wrong"), "wrong or right or nothing"),
    (("failed", *"abcdefg"), "failed or a or b or c or d or e"),
    (("Y", "N"), "N or Y"),
    (("f", "T"), "T or f"),
    (("P", "F"), "F or P"),
    (("x", "✓"), "x or ✓"),
    (("M", "F"), None),
    (("A", "B"), None),
    (("✔️", "❌"), "✔️ or ❌"),
    (("对", "错"), "对 or 错"),
    (("A", "B", "C"), None),
    (("3", "7"), None),
    (("male", "female"), None),
    (("de", "fr"), None),
    (("train", "valid"), "train or valid"),
    (("train", "train", "dev", "test"), "train or dev or test"),
    (("dev", "test"), None),
    (("train", "bus", "plane"), None),
    (("x", "", "x"), "x or nothing"),
    (("x", "x"), None),
    (("M", "", "M"), None),
    (("-", "", "-"), None),
    (("€", "", "€"), None),
    ((0, 1), None),
]
PLACES = [("x",), ("meta", "x"), ("a", "b", "x"), ("notes", "[]", "x")]


@pytest.mark.parametrize(("differing", "inside"), each_with_a_kind(DIFFERING, PLACES))
def test_what_rows_differ_in_is_found_wherever_it_stands_and_whatever_its_name_is(differing, inside) -> None:
    said, says = differing
    rows = [talk(None, None, **within(inside, value)) for value in said]
    path = ".".join(inside).partition(".[]")[0]
    assert found_in(*rows) == ({} if says is None else {path: says if "[]" not in inside else f"x: {says}"})


@pytest.mark.parametrize("key", ["train", "weight", "masked", "loss", "loss_mask", "trainable", "phase"])
def test_what_is_read_is_no_flag(key) -> None:
    flags = (0, 1) if key == "weight" else ("commentary", "final_answer") if key == "phase" else (False, True)
    assert found_in(talk(*flags, key=key)) == {}


SCALARS = st.none() | st.booleans() | st.sampled_from([0, 1, -1, 3, 0.5, 2**63, math.inf, math.nan])
SCALARS |= st.sampled_from(["yes", "no", "maybe", "failed", "[1]", '{"a": true}', "1e999", "assistant", ""])
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "role", "content"]), inner),
    max_leaves=6,
)


@given(rows=st.lists(st.tuples(ANYTHING, ANYTHING), min_size=1, max_size=4))
@example(rows=[([{}, 0.5], None)])
@example(rows=[([None], [None])])
def test_rows_with_anything_in_any_place_are_searched(rows):
    found = found_in(*(talk(each, None, notes=value) for value, each in rows))
    assert all(path.startswith(("notes", "messages[].mask")) for path in found)


ROWS: dict[str, dict[str, Any]] = {
    "messages": {"messages": [ASKED[0], ANSWERS[0]]},
    "sharegpt": {"conversations": [{"from": "human", "value": "Question?"}, {"from": "gpt", "value": "answer"}]},
    "completion": PROMPT,
    "alpaca": {"instruction": "Question?", "output": "answer"},
    "text": {"text": "A question, and an answer."},
    "preference": {"prompt": ASKED[:1], "chosen": ANSWERS[:1], "rejected": ANSWERS[1:]},
    "rated": {"prompt": ASKED[:1], "completion": ANSWERS[:1], "label": True},
}
SAYS = [(True, False), ("yes", "no"), ("Y", "N"), ("✓", "✗"), ("solved", "unsolved"), ("toxic", "nontoxic")]


@given(
    schema=st.sampled_from(sorted(ROWS)),
    says=st.sampled_from(SAYS),
    shape=st.lists(st.sampled_from(["object", "list", "several", "JSON"]), max_size=5),
    num_more=st.integers(0, 5),
)
def test_a_yes_and_a_no_in_rows_of_any_schema_are_found_at_any_depth(schema, says, shape, num_more):
    rows = []
    for value in [*says, *says[:1] * num_more]:
        for kind in shape:
            if kind == "object":
                value = {"of": "a", "x": value}  # noqa: PLW2901
            elif kind == "list":
                value = [value]  # noqa: PLW2901
            elif kind == "several":
                value = [None, value, value]  # noqa: PLW2901
            elif not isinstance(value, str):
                value = json.dumps(value)  # noqa: PLW2901
        rows.append(ROWS[schema] | {"found": value})
    (path,) = {path.partition(".")[0].partition("[")[0] for path in found_in(*rows, schema=schema)}
    assert path == "found"


@pytest.mark.parametrize("name", ["%motion", "100%", "a.%s", "{}"])
def test_a_field_of_any_name_has_the_rows_to_keep(name: str) -> None:
    rows = [{"messages": [ASKED[0], ANSWERS[0]], name: flag} for flag in (True, False)]
    (found,) = find_unread(rows, schema="messages", columns={}, roles={}).fields
    assert [which for _, which in found.keeps] == ["the rows with true", "the rows with false"]
    assert all(name in setting for setting, _ in found.keeps)


@pytest.mark.parametrize(("silent", "ways"), [("", ["the rows without", "the rows with"]), (None, ["the rows with"])])
def test_a_mark_chooses_the_rows_with_it_and_those_without_it_where_a_rule_can(silent: Any, ways: list[str]) -> None:
    rows = [{"messages": [ASKED[0], ANSWERS[0]], "bad": flag} for flag in ("x", silent, "x")]
    (found,) = find_unread(rows, schema="messages", columns={}, roles={}).fields
    assert [which for _, which in found.keeps] == [f'{way} "x"' for way in ways]


def test_two_parts_with_a_no_and_a_yes_are_no_count() -> None:
    parts = [[{"type": "text", "text": "a", "learn": each} for each in (0, 1)]] * 2
    assert found_in(talk(*parts, key="content"), kinds="flag") == {"messages[].content[].learn": "false or true"}
