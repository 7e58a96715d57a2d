"""Results of parallel calls are shown in the order of the calls, where nobody could tell which result is whose."""

import itertools

import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from supervision_stages import Stages, chat

from packer.render.call_ids import in_order_of_calls

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
USER = {"role": "user", "content": "How deep, how warm and how clear is it?"}
SAID = {"role": "assistant", "content": "Deep, warm and clear."}
PLAIN = twins.CHATML.replace(
    "(message.content or '')",
    "(message.content or '') + (message.tool_calls | tojson if message.tool_calls else '')",
)
AS_TEXT = twins.CHATML.replace(
    "(message.content or '')",
    "(message.content or '') }}{% for call in message.tool_calls or [] %}"
    "{{ call.function.name + ' ' + call.function.arguments }}{% endfor %}{{ ''",
)
"""Takes arguments as JSON only, since it adds texts."""

WITH_TOOLS = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}" + PLAIN
"""Takes no row without tools."""

WITH_IDS = PLAIN.replace("(message.content or '')", "(message.tool_call_id or '') + (message.content or '')")


def calls(*ids):
    made = [{"id": each, "type": "function", "function": {"name": "look", "arguments": {"at": each}}} for each in ids]
    return {"role": "assistant", "content": "", "tool_calls": made}


def result(name):
    return {"role": "tool", "tool_call_id": name, "content": f"seen at {name}"}


@pytest.fixture(scope="module", params=["definition", "as built"])
def stages(request, tmp_path_factory):
    """Stages by template, whose renderer is the definition or the one of a build."""
    made = {
        name: Stages.load(twins.byte_level(tmp_path_factory.mktemp("tokenizer"), template=template))
        for name, template in (
            ("plain", PLAIN),
            ("as text", AS_TEXT),
            ("with tools", WITH_TOOLS),
            ("with ids", WITH_IDS),
        )
    }
    for each in made.values():
        each.renderer = each.renderer.by_reference() if request.param == "definition" else each.renderer
    return made


def last_prompt(stages, *results):
    tools = [LOOK] if stages.model.template == WITH_TOOLS else None
    return stages.turns(chat(USER, calls("a", "b", "c"), *map(result, results), SAID, tools=tools))[-1][0]


def test_results_are_put_into_the_order_of_the_calls_unless_the_template_writes_ids(stages):
    in_order = {name: last_prompt(stages[name], *"abc") for name in ("plain", "as text", "with tools")}
    for prompt in in_order.values():
        assert prompt.index("seen at a") < prompt.index("seen at b") < prompt.index("seen at c")
    for order in itertools.permutations("abc"):
        assert {name: last_prompt(stages[name], *order) for name in in_order} == in_order
        places = [last_prompt(stages["with ids"], *order).index(f"seen at {name}") for name in order]
        assert places == sorted(places), "as the row has them: the model can tell them apart"


def test_results_that_do_not_all_name_a_call_stay_as_they_are(stages):
    for order in ("ca", "cx", "c"):
        messages = [calls("a", "b", "c"), *map(result, order)]
        assert in_order_of_calls(messages) == (
            [messages[0], *map(result, sorted(order))] if "x" not in order else messages
        )


@given(st.lists(st.lists(st.sampled_from("abcde"), unique=True, max_size=5), max_size=4), st.randoms())
def test_nothing_is_lost_and_results_stay_with_their_calls(rounds, random):
    messages = []
    for ids in rounds:
        answered = random.sample(ids, random.randint(0, len(ids)))
        messages += [USER, calls(*ids), *map(result, answered)]
    ordered = in_order_of_calls(messages)
    assert in_order_of_calls(ordered) == ordered
    starts = [k for k, message in enumerate(messages) if message["role"] != "tool"]
    assert starts == [k for k, message in enumerate(ordered) if message["role"] != "tool"]
    for start, stop in itertools.pairwise([*starts, len(messages)]):
        before, after = messages[start + 1 : stop], ordered[start + 1 : stop]
        assert sorted(map(str, before)) == sorted(map(str, after))
        names = [each["tool_call_id"] for each in after]
        asked = [call["id"] for call in ordered[start].get("tool_calls") or ()]
        assert names == [each for each in asked if each in names]


def unnamed(message, *keys):
    """A message without ids in its calls or of its result, or another part of them."""
    made = {name: value for name, value in message.items() if name not in keys}
    if "tool_calls" in made:
        made["tool_calls"] = [{name: each[name] for name in each if name not in keys} for each in made["tool_calls"]]
    return made


def test_results_without_ids_belong_to_the_calls_in_order_or_of_their_name(stages):
    without = [unnamed(each, "id", "tool_call_id") for each in (calls("a", "b"), result("a"), result("b"))]
    assert in_order_of_calls(without) == without
    assert stages["plain"].turns(chat(USER, *without, SAID)), "as rows of Gemini have them"
    asked = calls("a", "b")
    for call in asked["tool_calls"]:
        call["function"] = call["function"] | {"name": f"look_at_{call['id']}"}
    named = [unnamed(result(each) | {"name": f"look_at_{each}"}, "tool_call_id") for each in "ba"]
    for message in (asked, unnamed(asked, "id")):
        assert in_order_of_calls([message, *named]) == [message, *named[::-1]]
    half = [calls("a", "b"), result("b"), unnamed(result("a"), "tool_call_id")]
    assert in_order_of_calls(half) == [half[0], half[2], half[1]]


SORTING = """{%- set results = messages | selectattr('role', 'equalto', 'tool') | list -%}
{%- if results | selectattr('tool_call_id') | list == results -%}
{%- set results = results | sort(attribute='tool_call_id') -%}
{%- endif -%}
""" + PLAIN.replace(
    "(message.content or '')",
    "(results[loop.index0 - 2].content if message.role == 'tool' else message.content or '')",
)
"""Sorts results that all have ids, as GLM 5.3 does, and shows others as they come."""


@pytest.mark.parametrize("shows_names", [False, True])
def test_results_with_names_alone_are_put_in_order_where_the_template_sorts_by_ids(tmp_path, shows_names):
    names = "(message.name or '') + " * shows_names
    template = SORTING.replace("(results[loop", f"{names}(results[loop")
    stages = Stages.load(twins.byte_level(tmp_path, template=template))
    asked = calls("a", "b")
    for call in asked["tool_calls"]:
        call["function"] = call["function"] | {"name": f"look_at_{call['id']}"}
    named = [unnamed(result(each) | {"name": f"look_at_{each}"}, "tool_call_id") for each in "ba"]
    prompt = stages.turns(chat(USER, asked, *named, SAID))[-1][0]
    places = [prompt.index(f"seen at {each}") for each in "ab"]
    assert places == sorted(places)
