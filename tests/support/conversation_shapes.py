"""The shapes conversations come in, each a row as a file would hold it, with words that occur nowhere else."""

from typing import Any

from msgspec.structs import replace
from supervision_stages import assistant, call, result, system, user

from packer.batches import Sample
from packer.source.chat import read

TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Looks a city up.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
OTHER_TOOL = {
    "type": "function",
    "function": {"name": "booking", "description": "Books a room.", "parameters": {"type": "object", "properties": {}}},
}
LOOK = {"id": "call00001", **call("lookup", {"city": "kettlecity", "days": 3})}
BOOK = {"id": "call00002", **call("booking", {"room": "marbleroom", "late": True})}
ASKED = [system("bluesystem"), user("zebrauser")]
ANSWER = {"name": "lookup", "tool_call_id": "call00001", **result("violetresult")}
OTHER_ANSWER = {"name": "booking", "tool_call_id": "call00002", **result("indigoresult")}


def _text_call(tool_call: dict[str, Any], arguments: str) -> dict[str, Any]:
    return {**tool_call, "function": {**tool_call["function"], "arguments": arguments}}


SHAPES: dict[str, dict[str, Any]] = {
    "single": {"messages": [user("zebrauser"), assistant("ambercontent")]},
    "multi-turn": {
        "messages": [user("zebrauser"), assistant("ambercontent"), user("tigeruser"), assistant("olivecontent")]
    },
    "system": {"messages": [*ASKED, assistant("ambercontent")]},
    "late system": {"messages": [user("zebrauser"), system("bluesystem"), assistant("ambercontent")]},
    "two users": {"messages": [user("zebrauser"), user("tigeruser"), assistant("ambercontent")]},
    "two assistants": {"messages": [user("zebrauser"), assistant("ambercontent"), assistant("olivecontent")]},
    "assistant first": {"messages": [assistant("ambercontent"), user("zebrauser"), assistant("olivecontent")]},
    "trailing user": {"messages": [user("zebrauser"), assistant("ambercontent"), user("tigeruser")]},
    "call": {
        "messages": [*ASKED, assistant(None, tool_calls=[LOOK]), ANSWER, assistant("ambercontent")],
        "tools": [TOOL],
    },
    "call and text": {
        "messages": [*ASKED, assistant("olivecontent", tool_calls=[LOOK]), ANSWER, assistant("ambercontent")],
        "tools": [TOOL],
    },
    "call without tools": {
        "messages": [*ASKED, assistant("", tool_calls=[LOOK]), ANSWER, assistant("ambercontent")],
        "tools": None,
    },
    "parallel calls": {
        "messages": [
            *ASKED,
            assistant("", tool_calls=[LOOK, BOOK]),
            ANSWER,
            OTHER_ANSWER,
            assistant("ambercontent"),
        ],
        "tools": [TOOL, OTHER_TOOL],
    },
    "call last": {"messages": [*ASKED, assistant("", tool_calls=[LOOK])], "tools": [TOOL]},
    "string arguments": {
        "messages": [
            user("zebrauser"),
            assistant("", tool_calls=[_text_call(LOOK, '{"days": 3, "city": "kettlecity"}')]),
            ANSWER,
            assistant("ambercontent"),
        ],
        "tools": [TOOL],
    },
    "tools unused": {"messages": [user("zebrauser"), assistant("ambercontent")], "tools": [TOOL]},
    "reasoning last": {
        "messages": [
            user("zebrauser"),
            assistant("ambercontent"),
            user("tigeruser"),
            assistant("olivecontent", reasoning_content="pinkreason"),
        ]
    },
    "reasoning": {
        "messages": [
            user("zebrauser"),
            assistant("ambercontent", reasoning_content="greyreason"),
            user("tigeruser"),
            assistant("olivecontent", reasoning_content="pinkreason"),
        ]
    },
    "reasoning and call": {
        "messages": [
            user("zebrauser"),
            assistant("", reasoning="greyreason", tool_calls=[LOOK]),
            ANSWER,
            assistant("ambercontent", reasoning="pinkreason"),
        ],
        "tools": [TOOL],
    },
    "inline reasoning": {
        "messages": [
            user("zebrauser"),
            assistant("<think>\ngreyreason\n</think>\n\nambercontent"),
            user("tigeruser"),
            assistant("<think>\npinkreason\n</think>\n\nolivecontent"),
        ]
    },
    "empty": {"messages": [user("zebrauser"), assistant(""), user("tigeruser"), assistant("ambercontent")]},
    "reasoning alone": {
        "messages": [
            user("zebrauser"),
            assistant(None, reasoning_content="greyreason"),
            user("tigeruser"),
            assistant("ambercontent"),
        ]
    },
    "parts": {
        "messages": [
            user("zebrauser"),
            {
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "value": "greyreason"},
                    {"type": "text", "value": "amber"},
                    {"type": "text", "value": "content"},
                ],
            },
        ]
    },
    "boundaries": {
        "messages": [
            user(" zebrauser\n"),
            assistant("\n\nambercontent "),
            user("你好 tigeruser e\u0301"),
            assistant(" שלום olivecontent 👍🏽"),
        ]
    },
}

WORDS = (
    *("zebrauser", "tigeruser", "ambercontent", "olivecontent", "bluesystem", "greyreason", "pinkreason"),
    *("kettlecity", "marbleroom", "violetresult", "indigoresult"),
)


def sample(shape: str, row: int = 0) -> Sample:
    """The row of a shape, as packer reads it, but in pieces: templates are shown two answers in a row, too."""
    fields = {name: value for name, value in SHAPES[shape].items() if value is not None}
    pieces: list[list[Any]] = []
    for message in fields["messages"]:
        if not pieces or message["role"] == pieces[-1][-1]["role"] == "assistant":
            pieces.append([])
        pieces[-1].append(message)
    read_alone = [read({**fields, "messages": piece}, row) for piece in pieces]
    return replace(read_alone[0], messages=tuple(message for each in read_alone for message in each.messages))
