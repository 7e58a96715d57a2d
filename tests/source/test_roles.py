"""Roles by the names that data sets have for them: `roles` of a source, and what the hint proposes."""

import json
from pathlib import Path

import pytest
import yaml
from hints import settings_in
from hypothesis import given
from hypothesis import strategies as st

from packer.recipe.recipe import make_recipe
from packer.source.decode import Refused
from packer.source.roles import ROLES, guess_roles, rename_roles, roles_hint
from packer.source.schema import read_row

NAMES = st.one_of(
    st.sampled_from(["client", "Counselor", "A", "yes", "no: 1", "it's", "用户"]), st.text(min_size=1, max_size=6)
)
KNOWN = st.sampled_from(["system", "user", "assistant"])


@given(
    roles=st.dictionaries(NAMES, KNOWN, max_size=4),
    said=st.lists(st.one_of(NAMES, KNOWN), max_size=6),
    place=st.sampled_from([("messages", "role"), ("conversations", "from"), ("prompt", "role")]),
)
def test_each_message_has_the_role_that_the_source_gives_its_name(roles, said, place):
    field, key = place
    row = {field: [{key: name, "content": name, "messages": ["client"]} for name in said], "id": 3, "text": "client"}
    renamed = rename_roles(row, roles)
    assert [message[key] for message in renamed[field]] == [
        roles.get(name) or roles.get(name.lower()) or name for name in said
    ]
    assert [message["content"] for message in renamed[field]] == said
    assert {**renamed, field: None} == {**row, field: None}


@given(
    pair=st.lists(NAMES.filter(lambda name: name.lower() not in ROLES), min_size=2, max_size=2, unique_by=str.lower),
    turns=st.integers(1, 3),
)
def test_the_hint_followed_literally_makes_samples_of_the_rows(pair, turns):
    """Whatever two sides are called: who opens is the user, unless the names say otherwise."""
    said = [{"role": pair[k % 2], "content": f"text {k}"} for k in range(2 * turns)]
    row = {"messages": said}
    guessed = guess_roles([row])
    assert {*guessed} == {*pair}
    (source,) = make_recipe({"sources": [{"path": "rows.jsonl"}]}, settings_in(roles_hint([row], {}))).sources
    assert source.roles == guessed
    sample = read_row(row, number=0, schema="messages", columns={}, roles=source.roles)
    assert [message.role for message in sample.messages] == [guessed[message["role"]] for message in said]


def test_the_hint_for_a_pair_after_a_request_names_the_roles_of_the_request():
    sides = {f"{name}output": [{"role": "agent", "content": name}] for name in ("preferred_", "non_preferred_")}
    row = {"input": {"messages": [{"role": "client", "content": "a"}]}, **sides}
    guessed = guess_roles([row])
    assert guessed == {"client": "user", "agent": "assistant"}
    sample = read_row(row, number=0, schema="preference", columns={}, roles=guessed)
    assert [message.role for message in sample.messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("spoken", "expected"),
    [
        (["client", "counselor"], {"client": "user", "counselor": "assistant"}),
        (["Counselor", "Client"], {"Client": "user", "Counselor": "assistant"}),
        (["system", "Patient", "Dr."], {"Patient": "user", "Dr.": "assistant"}),
        (["user", "HAL"], {"HAL": "assistant"}),
        (["A", "B"], {"A": "user", "B": "assistant"}),
        (["A", "B", "C"], {}),
        (["Counselor", "AI"], {"Counselor": "user", "AI": "assistant"}),
        (["user", "Counselor", "AI"], {"Counselor": "assistant", "AI": "assistant"}),
        (["Counselor", "AI", "Coach"], {}),
        (["AI"], {"AI": "assistant"}),
        (["Patient", "assistant"], {"Patient": "user"}),
        (["user", "assistant"], {}),
        (["user", "assistant", "environment"], {"environment": "tool"}),
        (["user", "assistant", "tool-response"], {"tool-response": "tool"}),
        (["user", "assistant", "code_interpreter"], {"code_interpreter": "tool"}),
        (["environment", "agent"], {"environment": "user", "agent": "assistant"}),
        (["environment", "assistant"], {"environment": "user"}),
        (["user", "environment"], {"environment": "assistant"}),
        (["user", "HAL", "environment"], {"HAL": "assistant", "environment": "tool"}),
        (
            ["client", "counselor", "function_result"],
            {"client": "user", "counselor": "assistant", "function_result": "tool"},
        ),
        *(
            ([asked, answered], {asked: "user", answered: "assistant"} if asked != "user" else {answered: "assistant"})
            for answered in ("response", "output", "result", "return", "api")
            for asked in ("user", "instruction", "input", "prompt", "query", "question")
        ),
        (["human", "response"], {"response": "assistant"}),
    ],
)
def test_names_say_who_is_who_and_else_the_order(spoken, expected):
    assert guess_roles([{"messages": [{"role": name, "content": "x"} for name in spoken]}]) == expected


def test_names_that_take_the_same_place_in_different_rows_are_the_same_role():
    """Dumps of several chatbots name each by its own name."""
    rows = [
        {"messages": [{"role": name} for name in names]} for names in (["user", "gpt"], ["user", "Bo"], ["human", "Cy"])
    ]
    assert guess_roles(rows) == {"Bo": "assistant", "Cy": "assistant"}
    assert guess_roles([*rows, {"messages": [{"role": name} for name in ("gpt", "Cy")]}]) == {"Bo": "assistant"}


def test_a_role_that_is_none_is_refused_with_those_there_are(tmp_path: Path):
    with pytest.raises(
        Exception, match=r"expected system \| developer \| user \| assistant \| tool \| reasoning, found 'usr'"
    ):
        make_recipe({"sources": [{"path": "x", "roles": {"client": "usr"}}]})
    row = json.loads('{"messages": [{"role": "client", "content": "Hi"}]}')
    with pytest.raises(Refused, match="`client`"):
        read_row(row, number=0, schema="messages", columns={}, roles={"patient": "user"})


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (["user", "assistant", "critic"], [{"critic": "user"}, {"critic": "assistant"}]),
        (
            ["Ann", "Bo", "Cy"],
            [{"Ann": "user", "Bo": "assistant"}, {"Ann": "assistant", "Bo": "user"}],
        ),
        (
            ["user", "function-call", "function-response", "assistant", "critic"],
            [{"function-response": "tool", "critic": each} for each in ("user", "assistant")],
        ),
    ],
)
def test_where_nothing_tells_what_roles_are_both_ways_name_those_of_the_rows(names, settings):
    row = {"messages": [{"role": name, "content": "a"} for name in names]}
    assert not {*guess_roles([row])} & {"critic", "Ann", "Bo", "Cy"}
    found = [yaml.safe_load(setting.partition("=")[2]) for setting in settings_in(roles_hint([row], {}))]
    assert found == settings
    for roles in settings:
        renamed = rename_roles(row, roles)["messages"]
        assert {name: each["role"] for name, each in zip(names, renamed, strict=True) if name in roles} == roles
