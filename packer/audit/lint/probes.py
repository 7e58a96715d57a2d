"""The conversations a template is asked about: rows as a file would hold them, in words that say what they are."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

QUESTION, ANSWER = "first question", "first answer"
NEXT_QUESTION, NEXT_ANSWER = "second question", "second answer"
REASONING, NEXT_REASONING = "first thoughts", "second thoughts"
SYSTEM = "rules of the row"
RESULT_TEXT = "sunny and mild"

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "name of a city"}}},
    },
}
_CALL_IDS = ("call00001", "call00002")


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def inline(reasoning: str, answer: str) -> str:
    return f"<think>\n{reasoning}\n</think>\n\n{answer}"


def _call(number: int, city: str) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": {"city": city}}
    return {"id": _CALL_IDS[number], "type": "function", "function": function}


def _result(number: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "name": "get_weather", "tool_call_id": _CALL_IDS[number], "content": content}


PLAIN: Row = {"messages": [user(QUESTION), assistant(ANSWER)]}
CHAT: Row = {"messages": [*PLAIN["messages"], user(NEXT_QUESTION), assistant(NEXT_ANSWER)]}
WITH_SYSTEM: Row = {"messages": [{"role": "system", "content": SYSTEM}, *PLAIN["messages"]]}
REASONED: Row = {"messages": [user(QUESTION), assistant(ANSWER, reasoning_content=REASONING)]}
REASONED_CHAT: Row = {
    "messages": [
        *REASONED["messages"],
        user(NEXT_QUESTION),
        assistant(NEXT_ANSWER, reasoning_content=NEXT_REASONING),
    ]
}
INLINE: Row = {"messages": [user(QUESTION), assistant(inline(REASONING, ANSWER))]}
INLINE_CHAT: Row = {
    "messages": [*INLINE["messages"], user(NEXT_QUESTION), assistant(inline(NEXT_REASONING, NEXT_ANSWER))]
}
TOOLS: Row = {"messages": PLAIN["messages"], "tools": [_TOOL]}
CALL: Row = {"messages": [user(QUESTION), assistant(None, tool_calls=[_call(0, "Paris")])], "tools": [_TOOL]}
CALL_AND_TEXT: Row = {
    "messages": [user(QUESTION), assistant("a word before", tool_calls=[_call(0, "Paris")])],
    "tools": [_TOOL],
}
PARALLEL: Row = {
    "messages": [user(QUESTION), assistant(None, tool_calls=[_call(0, "Paris"), _call(1, "Oslo")])],
    "tools": [_TOOL],
}
RESULT: Row = {
    "messages": [*CALL["messages"], _result(0, RESULT_TEXT), assistant(ANSWER)],
    "tools": [_TOOL],
}

_MARKS = "if a < b & \"c\" > 'd': \\n"
"""Letters that HTML or JSON escapes."""

ESCAPABLE: Row = {
    "messages": [
        {"role": "system", "content": f"{SYSTEM}: {_MARKS}"},
        user(f"{QUESTION}: {_MARKS}"),
        assistant(f"{ANSWER}: {_MARKS}"),
    ]
}

FIELD, TAGS = "reasoning in a field", "reasoning in <think> tags"

SHAPES: dict[str, Row] = {
    "a system message": WITH_SYSTEM,
    "a system message later on": {
        "messages": [
            *PLAIN["messages"],
            {"role": "system", "content": SYSTEM},
            user(NEXT_QUESTION),
            assistant(NEXT_ANSWER),
        ]
    },
    "a developer message": {"messages": [{"role": "developer", "content": SYSTEM}, *PLAIN["messages"]]},
    "two questions in a row": {"messages": [user(QUESTION), user(NEXT_QUESTION), assistant(ANSWER)]},
    "two answers in a row": {"messages": [user(QUESTION), assistant(ANSWER), assistant(NEXT_ANSWER)]},
    "an answer at the start": {"messages": [assistant(ANSWER), user(NEXT_QUESTION), assistant(NEXT_ANSWER)]},
    FIELD: REASONED,
    TAGS: INLINE,
    "two turns with reasoning in fields": REASONED_CHAT,
    "two turns with reasoning in <think> tags": INLINE_CHAT,
    "tool definitions": TOOLS,
    "a tool call": CALL,
    "text beside a tool call": CALL_AND_TEXT,
    "two tool calls at once": PARALLEL,
    "a tool result": RESULT,
    "quotes and angle brackets": ESCAPABLE,
}
"""Shapes that real rows have, by what is special about them."""

USUAL = frozenset({"a system message", *list(SHAPES)[6:]})
"""Shapes that many files hold; the others are seen now and then."""


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
