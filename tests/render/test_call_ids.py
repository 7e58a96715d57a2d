"""`rows.call_ids`: ids of calls and of their results become nine letters and digits, or names, alike and told apart."""

import copy
import re

import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer.audit.view import view_row
from packer.render.call_ids import with_named_ids, with_short_ids
from packer.store.cache import Cache

SHORT = re.compile(r"[0-9A-Za-z]{9}")
IDS = st.sampled_from(["call_1", "call_2", "call_HGn16KZh9oNCruxsMJ4gYXan", "abcDEF123", "000000001", "", None, 7])
NAMES = st.sampled_from(["find", "book"])


@st.composite
def calls(draw):
    function = {"name": draw(NAMES), "arguments": draw(st.dictionaries(st.sampled_from("ab"), st.integers(0, 2)))}
    given_id = draw(IDS)
    return {"type": "function", "function": function} | ({} if given_id is None else {"id": given_id})


@st.composite
def messages_of(draw):
    kind = draw(st.sampled_from(["user", "call", "result", "result"]))
    if kind == "user":
        return {"role": "user", "content": "call_1"}
    if kind == "call":
        return {"role": "assistant", "content": None, "tool_calls": draw(st.lists(calls(), min_size=1, max_size=3))}
    result = {"role": "tool", "content": "ok"}
    if draw(st.booleans()):
        result["name"] = draw(NAMES)
    given_id = draw(IDS)
    return result if given_id is None else {**result, draw(st.sampled_from(["tool_call_id", "call_id"])): given_id}


def ids_of(messages):
    """Every id in the order in which it is met, with the message's number: of calls, and of results."""
    found = []
    for k, message in enumerate(messages):
        found += [
            (k, "call", call["function"]["name"], str(call.get("id") or "")) for call in message.get("tool_calls", [])
        ]
        if message["role"] == "tool":
            given_id = str(message.get("tool_call_id") or message.get("call_id") or "")
            found.append((k, "result", message.get("name"), given_id))
    return found


def linked(messages):
    """The literal oracle: for each id, the number of the first id that it must be equal to; None for no id at all."""
    group, open_calls, links = {}, [], []
    for number, (_, kind, name, given_id) in enumerate(ids_of(messages)):
        if given_id:
            link = group.setdefault(given_id, number)
        elif kind == "call":
            link = number
        else:
            same = [call for call in open_calls if call[0] == name] or open_calls
            link = same[0][1] if same else None
            if same:
                open_calls.remove(same[0])
        if kind == "call":
            open_calls.append((name, link))
        elif given_id:
            open_calls = [call for call in open_calls if call[1] != link]
        links.append(link)
    return links


def without_ids(messages):
    plain = copy.deepcopy(messages)
    for message in plain:
        for key in ("tool_call_id", "call_id"):
            message.pop(key, None)
        for call in message.get("tool_calls", []):
            call.pop("id", None)
    return plain


@given(messages=st.lists(messages_of(), max_size=8))
def test_ids_are_short_equal_where_they_belong_together_and_different_elsewhere(messages):
    before = copy.deepcopy(messages)
    short = with_short_ids(messages)
    assert messages == before, "what a row holds is not changed in place"
    assert without_ids(short) == without_ids(messages), "nothing but ids changes"
    was, now, links = ids_of(messages), ids_of(short), linked(messages)
    assert len(was) == len(now) == len(links)
    firsts = {}
    for old, new, link in zip(was, now, links, strict=True):
        if link is None:
            assert new[3] == "", "a result of no call gets no id"
            continue
        assert SHORT.fullmatch(new[3])
        assert not SHORT.fullmatch(old[3]) or new[3] == old[3], "what fits stays"
        assert firsts.setdefault(link, new[3]) == new[3], "equal ids stay equal, and a result has the id of its call"
    assert len({*firsts.values()}) == len(firsts), "different ids stay different"
    assert with_short_ids(short) == short, "once is enough"


def test_calls_of_one_id_in_different_rows_get_different_ones():
    """A model does not learn by heart what stands for `call_1` in every row."""

    def row(city):
        function = {"name": "weather", "arguments": {"city": city}}
        return [{"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "function": function}]}]

    ids = {with_short_ids(row(city))[0]["tool_calls"][0]["id"] for city in ("Oslo", "Paris", "Rome")}
    assert len(ids) == 3


def test_named_ids_count_the_calls_and_results_have_that_of_the_last_call_with_theirs():
    """Logs number the calls of each turn anew."""
    turn = [
        {"role": "assistant", "tool_calls": [{"id": "c0", "function": {"name": "find"}}]},
        {"role": "tool", "content": "ok", "tool_call_id": "c0"},
    ]
    both = [{"role": "assistant", "tool_calls": [{"function": {"name": name}} for name in ("book", "find")]}]
    results = [{"role": "tool", "name": name, "content": "ok"} for name in ("find", "book")]
    assert [given_id for *_, given_id in ids_of(with_named_ids([*turn, *turn, *both, *results]))] == [
        *["functions.find:0"] * 2,
        *["functions.find:1"] * 2,
        *["functions.book:2", "functions.find:3", "functions.find:3", "functions.book:2"],
    ]


def test_named_ids_may_count_the_calls_of_each_message_anew():
    calls = [[{"id": "c0", "function": {"name": name}} for name in names] for names in (("find", "book"), ("find",))]
    asked = [{"role": "assistant", "tool_calls": each} for each in calls]
    results = [{"role": "tool", "content": "ok", "tool_call_id": "c0"}]
    named = with_named_ids([asked[0], *results, *results, asked[1], *results], by_message=True)
    ids = ["functions.find:0", "functions.book:1"]
    assert [given_id for *_, given_id in ids_of(named)] == [*ids, *ids, ids[0], ids[0]]
    assert with_named_ids(named, by_message=True) == named


def test_parallel_calls_of_one_id_get_names_of_their_own_and_results_belong_to_the_first_without_one():
    def row(*functions, answered):
        calls = [{"id": "call", "function": {"name": name}} for name in functions]
        results = [{"role": "tool", "content": "ok", "tool_call_id": "call", "name": name} for name in answered]
        return [
            given_id for *_, given_id in ids_of(with_named_ids([{"role": "assistant", "tool_calls": calls}, *results]))
        ]

    clocks = ["functions.clock:0", "functions.clock:1"]
    assert row("clock", "clock", answered=("clock", "clock")) == [*clocks, *clocks]
    assert row("tide", "clock", answered=("clock", "tide")) == [
        "functions.tide:0",
        *(2 * clocks[1:]),
        "functions.tide:0",
    ]


SAME_ID = """\
{%- set seen = namespace(calls=[]) %}{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.tool_calls %}{%- set seen.calls = seen.calls + m.tool_calls %}
{%- for c in m.tool_calls %}{{- c.function.name + (c.function.arguments | tojson) }}{%- endfor %}{%- endif %}
{%- if m.role == 'tool' %}{%- set name = namespace(of=none) %}
{%- for c in seen.calls if c.get('id') == m.get('tool_call_id') %}
{%- set name.of = name.of or c.function.name %}{%- endfor %}
{{- (name.of or '') + ' gives ' }}{%- endif %}{{- (m.content or '') + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_results_without_ids_are_given_to_their_own_calls(tmp_path, at_once, names):
    """A template that compares ids would give all to one call, as no id equals no id."""
    functions = [{"name": name, "arguments": {"at": 6}} for name in ("tide", "ferry")]
    results = [
        {"role": "tool", "content": f"result of {each['name']}"} | ({"name": each["name"]} if names else {})
        for each in functions
    ]
    calls = [{"function": each} for each in functions]
    asking = {"role": "assistant", "content": None}
    pairs = zip(calls, results, strict=True)
    in_turn = [message for call, result in pairs for message in ({**asking, "tool_calls": [call]}, result)]
    called = [{**asking, "tool_calls": calls}, *(results[::-1] if names else results)] if at_once else in_turn
    user, answer = {"role": "user", "content": "When?"}, {"role": "assistant", "content": "At six."}
    tokenizer = twins.byte_level(tmp_path / "tokenizer", template=SAME_ID)
    packer.build([{"messages": [user, *called, answer]}], tmp_path / "cache", tokenizer=tokenizer, progress=False)
    cache = Cache.open(tmp_path / "cache")
    view = view_row(cache, cache.manifest.inputs[0].path, 0)
    text = "".join(run.text for document in view.documents for run in document.runs)
    assert "tide gives result of tide" in text and "ferry gives result of ferry" in text
