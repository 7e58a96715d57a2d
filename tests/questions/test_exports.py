"""Exports that are no rows yet: the step that a build names is followed letter by letter, and its rows are read back."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import twins
from followed_steps import Shape, commands_of_page, follow, follow_shape, made_by_page, refused, write
from foreign_rows import CALL, CHAT_CALL, CHAT_TOOLS, TEMPLATE, read_back
from search_effort import each_with_a_kind, one_in

import packer
from packer.errors import NothingKeptError
from packer.questions.conversations import EXPORTS as RECOGNIZED
from packer.questions.conversations import PAGE, conversation_hint
from packer.rejections import CODES, rejection_hint

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")

ASKED, SAID, MORE, REST = "When is the tide?", "At twelve past six.", "And tomorrow?", "An hour later."
SYSTEM, THOUGHT = "Answer briefly.", "I should look at the table."
PASSAGE = "High water is at twelve."


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


ASK, ANSWER = message("user", ASKED), message("assistant", SAID)


def node(number: int, role: str, text: str, **more: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    made = {"id": str(number), "author": {"role": role}, "content": content, "metadata": {}} | more
    return {"id": str(number), "message": made, "parent": str(number - 1), "children": [str(number + 1)]}


def chatgpt(**nodes: Any) -> dict[str, Any]:
    """A conversation in which some nodes are others."""
    mapping = {
        "0": {"id": "0", "message": None, "parent": None, "children": ["1"]},
        "1": node(1, "system", "", metadata={"is_visually_hidden_from_conversation": True}),
        "2": node(2, "user", ASKED),
        "9": node(9, "assistant", "An answer that was made again.") | {"parent": "2"},
        "3": node(3, "assistant", SAID),
        "4": node(4, "user", MORE),
        "5": node(5, "assistant", REST),
    }
    return {"title": "Tide", "create_time": 1.0, "mapping": mapping | nodes, "current_node": "5"}


WITH_IMAGE = {"content_type": "multimodal_text", "parts": [{"asset_pointer": "x"}, "?"]}


def claude(*texts: str, **more: Any) -> dict[str, Any]:
    messages = [
        {"uuid": str(number), "text": each, "content": [text(each)], "attachments": [], "files": []}
        | {"sender": "assistant" if number % 2 else "human"}
        | more
        for number, each in enumerate(texts)
    ]
    return {"uuid": "c", "name": "Tide", "chat_messages": messages}


CLAUDE_TOOLS, CLAUDE_THINKS = claude(ASKED, f"I search.\n\n{SAID}"), claude(ASKED, SAID, MORE, REST)
_USES = {"type": "tool_use", "name": "web_search", "input": {"q": "tide"}}
CLAUDE_TOOLS["chat_messages"][1]["content"] = [text("I search."), _USES]
CLAUDE_THINKS["chat_messages"][3]["content"].insert(0, {"type": "thinking", "thinking": "At first.", "summaries": []})


def line(role: str, content: Any, **more: Any) -> dict[str, Any]:
    kept = {"parentUuid": str(content), "isSidechain": False, "sessionId": "s", "cwd": "/", "version": "2"}
    return kept | {"type": role, "message": message(role, content), "uuid": "u"} | more


USE = {"type": "tool_use", "id": "toolu_1", "name": "tide", "input": {"harbor": "Oban"}}
SESSION = [
    {"type": "summary", "summary": "Tide", "leafUuid": "x"},
    line("user", "Some note of the program.", isMeta=True),
    line("user", ASKED),
    line("assistant", [text("I should look.")]),
    line("assistant", [USE]),
    line("user", "Find the harbor.", isSidechain=True),
    line("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "06:12"}]),
    line("assistant", [text(SAID)]),
]
GLAIVE = {
    "system": "SYSTEM: You are a helpful assistant with access to the following functions. Use them if required -\n"
    + json.dumps(CHAT_TOOLS[0]["function"], indent=4),
    "chat": f'USER: {ASKED}\n\n\nASSISTANT: <functioncall> {{"name": "tide", "arguments": \'{{"harbor": "Oban"}}\'}} '
    f'<|endoftext|>\n\n\nFUNCTION RESPONSE: {{"high": "06:12"}}\n\n\nASSISTANT: {SAID} <|endoftext|>\n\n\nUSER: {MORE}\n\n\n'
    f"ASSISTANT: {REST} <|endoftext|>\n\n\n",
}
_ANNOTATED = {"value": {"text": [SAID]}, "from_name": "response", "to_name": "prompt", "type": "textarea"}
LABEL_STUDIO = {
    "id": 1,
    "annotations": [
        {"id": 8, "was_cancelled": True, "result": []},
        {"id": 9, "was_cancelled": False, "result": [_ANNOTATED | {"id": "x", "origin": "manual"}]},
    ],
    "data": {"prompt": ASKED},
}
RESULT = message("tool", "06:12", tool_call_id="call_1")


def trace(*more: dict[str, Any]) -> dict[str, Any]:
    called = message("assistant", None, tool_calls=[CHAT_CALL])
    turns = enumerate([message("system", SYSTEM), ASK, called, RESULT, ANSWER])
    nodes = [
        {"parent": number - 1 if number else None, "sampled": each["role"] == "assistant", "message": each}
        for number, each in turns
    ]
    return {"id": "t", "task": {"idx": 0}, "tools": CHAT_TOOLS, "nodes": [*nodes, *more], "rewards": {"exact": 1.0}}


BRANCH = {"parent": 1, "sampled": True, "message": message("assistant", "?")}


def trajectory(*said: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {"role": role, "system_prompt": each if role == "system" else None, "text": None if role == "system" else each}
        for role, each in said
    ]


DIALOGUE = {"title": "x", "turns": [{"speaker": "client", "utterance": ASKED}, {"speaker": "agent", "utterance": SAID}]}
SINGLE = [[ASK, ANSWER], [message("user", MORE), message("assistant", REST)]]


def dumped(name: str, said: str, kind: str, **more: Any) -> dict[str, Any]:
    of = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": of, "kwargs": {"content": said, "type": kind, **more}}


def langchain(kind: str, said: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "data": {"content": said, **more}}


LC_CALLS = [{"name": "tide", "args": {"harbor": "Oban"}, "id": "call_1", "type": "tool_call"}]
LANGSMITH = {
    "id": "r",
    "run_type": "llm",
    "inputs": {
        "messages": [
            [
                dumped("SystemMessage", SYSTEM, "system"),
                dumped("HumanMessage", ASKED, "human"),
                dumped("AIMessage", "", "ai", tool_calls=LC_CALLS),
                dumped("ToolMessage", "06:12", "tool", tool_call_id="call_1"),
            ]
        ]
    },
    "extra": {"invocation_params": {"tools": CHAT_TOOLS}},
}


def generated(reason: str) -> dict[str, Any]:
    chunk = dumped("AIMessageChunk", SAID, "AIMessageChunk")
    made = {"text": SAID, "generation_info": {"finish_reason": reason}, "message": chunk}
    return {"outputs": {"generations": [[made]], "llm_output": None}}


REQUEST = {
    "messages": [message("system", SYSTEM), ASK, message("assistant", None, tool_calls=[CHAT_CALL]), RESULT],
    "tools": CHAT_TOOLS,
}


def response(reason: str) -> dict[str, Any]:
    return {"object": "chat.completion", "choices": [{"message": ANSWER, "finish_reason": reason}]}


BEDROCK_THINKS = {"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": "c2lnbmF0dXJl"}}}
BEDROCK_CALL = {"toolUse": {"toolUseId": "t1", "name": "tide", "input": {"harbor": "Oban"}}}
BEDROCK_RESULT = {"toolResult": {"toolUseId": "t1", "content": [{"json": {"high": "06:12"}}], "status": "success"}}
BEDROCK_TOOL = CHAT_TOOLS[0]["function"] | {"inputSchema": {"json": CHAT_TOOLS[0]["function"]["parameters"]}}
BEDROCK = {
    "schemaVersion": "bedrock-conversation-2024",
    "system": [{"text": SYSTEM}, {"cachePoint": {"type": "default"}}],
    "messages": [
        message("user", [{"text": ASKED}]),
        message("assistant", [BEDROCK_THINKS, BEDROCK_CALL]),
        message("user", [BEDROCK_RESULT]),
    ],
    "toolConfig": {"tools": [{"toolSpec": BEDROCK_TOOL}, {"cachePoint": {"type": "default"}}]},
}
BEDROCK_ANSWER = message("assistant", [{"text": SAID}])
ON_BEDROCK = {
    "system": SYSTEM,
    "tools": [CHAT_TOOLS[0]["function"] | {"input_schema": CHAT_TOOLS[0]["function"]["parameters"]}],
    "messages": [
        ASK,
        message("assistant", [USE]),
        message("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "06:12"}]),
    ],
}


def invocation(asked: Any, **answer: Any) -> dict[str, Any]:
    return {"operation": "x", "input": {"inputBodyJson": asked}, "output": {"outputBodyJson": answer}}


ON_RESPONSES = [{"type": "function"} | CHAT_TOOLS[0]["function"]]
ITEMS: list[dict[str, Any]] = [
    message("user", [{"type": "input_text", "text": ASKED}], type="message"),
    {"type": "function_call", "call_id": "call_1", "name": "tide", "arguments": '{"harbor": "Oban"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "06:12"},
    message("assistant", [{"type": "output_text", "text": SAID}], type="message"),
]


def ui_message(number: str, role: str, said: str, *before: Any) -> dict[str, Any]:
    return {"id": number, "role": role, "parts": [*before, text(said)]}


TIDE_PART = {"type": "tool-tide", "toolCallId": "call_1", "state": "output-available"}
TIDE_PART |= {"input": {"harbor": "Oban"}, "output": {"high": "06:12"}}
INVOCATION = {"state": "result", "toolCallId": "call_1", "toolName": "tide", "args": {"harbor": "Oban"}}
INVOCATION = {"type": "tool-invocation", "toolInvocation": INVOCATION | {"result": "06:12"}}
_SDK = {"toolCallId": "a", "toolName": "tide"}
SDK_CALL = {"type": "tool-call", "input": {"harbor": "Oban"}, **_SDK}
SDK_RESULT = {"type": "tool-result", "output": {"type": "json", "value": {"high": "06:12"}}, **_SDK}


def webui(**answer: Any) -> dict[str, Any]:
    """A chat whose first question was answered twice."""
    told = {"a1": {"parentId": None, **ASK}, "b2": {"parentId": "a1", **message("assistant", REST)}}
    told |= {"b3": {"parentId": "a1", **ANSWER, **answer}}
    messages = {key: {"id": key, **each} for key, each in told.items()}
    return {
        "id": "c",
        "chat": {"params": {"system": SYSTEM}, "history": {"currentId": "b3", "messages": messages}},
    }


def parts(kind: str, *named: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """A message of pydantic-ai."""
    return {"kind": kind, "parts": [{"part_kind": name, "content": each} for name, each in named], **more}


_PYDANTIC = {"tool_name": "tide", "tool_call_id": "a"}
PYDANTIC = [
    parts("request", ("system-prompt", SYSTEM), ("user-prompt", ASKED)),
    parts("response", ("thinking", THOUGHT), model_name="a-model"),
    {"kind": "request", "parts": [{"part_kind": "tool-return", "content": {"high": "06:12"}, **_PYDANTIC}]},
    parts("response", ("text", SAID)),
]
PYDANTIC[1]["parts"].append({"part_kind": "tool-call", "args": '{"harbor": "Oban"}', **_PYDANTIC})
XML_CALL = (
    "I look.\n\n<tool_call>\n<function=look>\n<parameter=place>\nOban\nor 7\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n<parameter=code>\n7\n</parameter>\n</function>\n</tool_call>"
)
LOOK = {"name": "look", "parameters": {"properties": {"place": {}, "days": {"type": "integer"}}}}
SPAN = {
    "llm.request.functions.0.name": "tide",
    "llm.request.functions.0.description": "tells",
    "llm.request.functions.0.parameters": json.dumps(CHAT_TOOLS[0]["function"]["parameters"]),
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": SYSTEM,
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": ASKED,
    "gen_ai.prompt.2.role": "assistant",
    "gen_ai.prompt.2.tool_calls.0.id": "call_1",
    "gen_ai.prompt.2.tool_calls.0.name": "tide",
    "gen_ai.prompt.2.tool_calls.0.arguments": '{"harbor": "Oban"}',
    "gen_ai.prompt.3.role": "tool",
    "gen_ai.prompt.3.tool_call_id": "call_1",
    "gen_ai.prompt.3.content": "06:12",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": SAID,
    "gen_ai.completion.0.finish_reason": "stop",
}
SPAN_ASKED = [
    {"role": "user", "parts": [{"type": "text", "content": ASKED}]},
    {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "c", "name": "tide", "arguments": {"harbor": "Oban"}}],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "06:12"}]},
]
SPAN_SAID = [{"type": "reasoning", "content": "I look."}, {"type": "text", "content": SAID}]
SPAN_MESSAGES = {
    "gen_ai.system_instructions": json.dumps([{"type": "text", "content": SYSTEM}]),
    "gen_ai.tool.definitions": json.dumps(CHAT_TOOLS),
    "gen_ai.input.messages": json.dumps(SPAN_ASKED),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": SPAN_SAID, "finish_reason": "stop"}]),
}
TICKET = [(11, ASKED, True), (22, "Note: look at the table.", False), (22, SAID, True), (23, REST, True)]
COMMENTS = [{"author_id": by, "body": body, "public": public} for by, body, public in TICKET]
SLACK = [
    {"type": "message", "user": f"U{by}", "text": said, "ts": f"17200000{number}0.0001"}
    for number, (by, said) in enumerate([(0, ASKED), (1, SAID), (1, "Or so."), (0, MORE), (1, REST)])
]
SLACK.append({"type": "message", "subtype": "bot_message", "text": "A reminder of the harbour.", "ts": "1720000099.0"})
DISCORD = [
    {"id": str(number), "type": "Default", "timestamp": f"2026-05-01T10:0{number}:00.123+00:00", "content": said}
    | {"author": {"id": str(number), "name": f"U{number}", "isBot": False}}
    for number, said in enumerate([ASKED, SAID])
]


def beside(key: str, own: str, other: str, texts: Any) -> list[dict[str, Any]]:
    """Two turns whose texts stand beside an id or a label."""
    return [
        {key: who, own: f"{other}-of-{who}", name: value}
        for who, (name, value) in zip(("user", "bot"), texts, strict=True)
    ]


CHAT = [ASKED, SAID], [SAID]
"""What most of these tell and train."""

CALLED = ['"name": "tide"', SYSTEM, ASKED, CALL, "06:12", SAID]
EXPORTS: dict[str, Shape] = {
    "chatgpt": Shape(
        [chatgpt(**{"2": node(2, "user", ASKED, content=WITH_IMAGE)}), chatgpt()],
        [ASKED, SAID, MORE, REST],
        [SAID, REST],
        file="conversations.json",
    ),
    "claude": Shape(
        [claude(ASKED, "?", files=[{"file_name": "tide.pdf"}]), CLAUDE_TOOLS, CLAUDE_THINKS],
        [ASKED, SAID, MORE, "[At first.]" + REST],
        [SAID, "[At first.]" + REST],
        file="conversations.json",
    ),
    "claude code": Shape(
        SESSION, [ASKED, "I should look.", CALL, "06:12", SAID], ["I should look." + CALL, SAID], file="session.jsonl"
    ),
    "glaive": Shape(
        [GLAIVE],
        ['"name": "tide"', "You are a helpful assistant<", ASKED, CALL, '{"high": "06:12"}', SAID, MORE, REST],
        [CALL, SAID, REST],
    ),
    "label studio": Shape([LABEL_STUDIO], *CHAT, file="export.json"),
    "verifiers": Shape([trace(BRANCH), trace()], CALLED, [CALL, SAID], file="traces.jsonl"),
    "messages with types": Shape(
        [{"messages": [{"type": "human", "content": ASKED}, {"type": "ai", "content": SAID}]}], *CHAT
    ),
    "parts of the ai sdk": Shape(
        [{"messages": [ui_message("1", "user", ASKED), ui_message("2", "assistant", SAID, {"type": "step-start"})]}],
        *CHAT,
    ),
    "calls of the ai sdk": Shape(
        [
            {
                "tools": CHAT_TOOLS,
                "messages": [ui_message("1", "user", ASKED), ui_message("2", "assistant", SAID, TIDE_PART)],
            }
        ],
        ['"name": "tide"', ASKED, CALL, '{"high":"06:12"}', SAID],
        [CALL, SAID],
    ),
    "calls of an older ai sdk": Shape(
        [
            {
                "tools": CHAT_TOOLS,
                "messages": [
                    {**ui_message("1", "user", ASKED), "content": ASKED},
                    {**ui_message("2", "assistant", SAID, INVOCATION), "content": SAID},
                ],
            }
        ],
        ['"name": "tide"', ASKED, CALL, "06:12", SAID],
        [CALL, SAID],
    ),
    "texts in turn": Shape([{"id": "0", "data": [ASKED, SAID, MORE, REST]}], [ASKED, SAID, MORE], [SAID, REST]),
    "single messages": Shape(
        [
            {"thread": f"c{talk}", "role": each["role"], "text": each["content"]}
            for talk in (0, 1)
            for each in SINGLE[talk]
        ],
        *CHAT,
    ),
    "a dialogue": Shape([DIALOGUE], *CHAT),
    "answers that are numbers": Shape(
        [{"question": ASKED, "passage": PASSAGE, "answer": 12}], [ASKED, PASSAGE, "12"], ["12"]
    ),
    "messages of the ai sdk": Shape(
        [{"messages": [ASK, message("assistant", [text("I look."), SDK_CALL]), message("tool", [SDK_RESULT]), ANSWER]}],
        [ASKED, "I look.", '"high":"06:12"', SAID],
        [f"I look.{CALL}", SAID],
    ),
    "open webui": Shape([webui()], [SYSTEM, ASKED, SAID], [SAID], file="rows.json"),
    "pydantic ai": Shape(
        [{"messages": PYDANTIC}], [SYSTEM, ASKED, f"[{THOUGHT}]", "06:12", SAID], [f"[{THOUGHT}]{CALL}", SAID]
    ),
    "calls as XML": Shape(
        [{"messages": [ASK, message("assistant", XML_CALL), message("tool", "06:12"), ANSWER], "tools": [LOOK]}],
        [ASKED, "06:12", SAID],
        ['I look.{"name": "look", "arguments": {"place": "Oban\\nor 7", "days": 2, "code": "7"}}', SAID],
    ),
    "langsmith": Shape([LANGSMITH | generated("stop")], CALLED, [SAID], file="runs.jsonl"),
    "langsmith with answers of a server": Shape(
        [{"run_type": "llm", "inputs": REQUEST, "outputs": response("stop")}], CALLED, [SAID], file="runs.jsonl"
    ),
    "helicone": Shape(
        [{"request_id": "r", "request_body": REQUEST, "response_body": response("stop")}], CALLED, [SAID]
    ),
    "bedrock": Shape(
        [BEDROCK | {"messages": [*BEDROCK["messages"], BEDROCK_ANSWER]}], CALLED, [f"[{THOUGHT}]{CALL}", SAID]
    ),
    "bedrock with a cache point": Shape(
        [{"messages": [message("user", [{"text": ASKED}, {"cachePoint": {"type": "default"}}]), BEDROCK_ANSWER]}],
        [ASKED, SAID],
        [SAID],
    ),
    "a log of bedrock": Shape(
        [invocation(BEDROCK, output={"message": BEDROCK_ANSWER}, stopReason="end_turn")], CALLED, [SAID]
    ),
    "a request beside its answer of bedrock": Shape(
        [BEDROCK | {"output": {"message": BEDROCK_ANSWER}, "stopReason": "end_turn"}], CALLED, [SAID]
    ),
    "a request and its answer of bedrock": Shape(
        [{"request": BEDROCK, "response": {"output": {"message": BEDROCK_ANSWER}, "stopReason": "end_turn"}}],
        CALLED,
        [SAID],
    ),
    "a log of anthropic on bedrock": Shape(
        [invocation(ON_BEDROCK, role="assistant", content=[text(SAID)], stop_reason="end_turn")], CALLED, [SAID]
    ),
    "items of responses": Shape(
        [{"id": "c", "instructions": SYSTEM, "tools": ON_RESPONSES, "items": ITEMS}], CALLED, [CALL, SAID]
    ),
    "spans with attributes": Shape(
        [
            {"trace_id": "t", "name": "openai.chat", "attributes": SPAN},
            {"trace_id": "t", "name": "tide.tool", "attributes": {"gen_ai.tool.name": "tide"}},
        ],
        CALLED,
        [SAID],
        file="spans.jsonl",
    ),
    "spans with messages": Shape(
        [{"name": "chat", "attributes": SPAN_MESSAGES}],
        [*CALLED[:-1], "[I look.]" + SAID],
        ["[I look.]" + SAID],
        file="spans.jsonl",
    ),
    "zendesk": Shape(
        [{"id": 1, "requester_id": 11, "comments": COMMENTS}],
        [ASKED, f"{SAID}\n\n{REST}"],
        [f"{SAID}\n\n{REST}"],
        file="tickets.jsonl",
    ),
    "slack": Shape(SLACK, [ASKED, f"{SAID}\nOr so.", MORE, REST], [f"{SAID}\nOr so.", REST], file="channel.json"),
    "discord": Shape(
        {"guild": {"id": "1"}, "channel": {"id": "2", "name": "tides"}, "messages": DISCORD},
        *CHAT,
        file="channel.json",
    ),
}


@pytest.mark.parametrize("name", one_in(2, [*EXPORTS]))
def test_the_step_for_an_export_makes_rows_that_say_what_it_says(name: str, tmp_path: Path) -> None:
    follow_shape(EXPORTS[name], tmp_path)


NEEDED: dict[str, tuple[str, Any]] = {
    "texts under one of two keys": (
        "other-keys",
        {"trajectory": trajectory(("system", SYSTEM), ("user", ASKED), ("ai", SAID))},
    ),
    "a dump of langchain": (
        "other-keys",
        {"messages": [dumped("HumanMessage", ASKED, "human"), dumped("AIMessage", SAID, "ai")]},
    ),
    "messages of langchain": ("other-keys", {"messages": [langchain("human", ASKED), langchain("ai", SAID)]}),
    "columns of messages": ("other-keys", {"dialog": {"role": ["user", "assistant"], "content": [ASKED, SAID]}}),
    "an object beside a label": (
        "other-keys",
        {"turns": beside("role", "model_name", "tides", [("data", {"message": each}) for each in (ASKED, SAID)])},
    ),
    "thoughts beside answers": ("beside-messages", {"messages": [ASK, ANSWER | {"thought": THOUGHT}]}),
    "triples beside messages": (
        "beside-messages",
        {"messages": [ASK, ANSWER], "facts": [["the tide", "turns", "at six"]]},
    ),
    "a text beside messages": (
        "beside-messages",
        {"messages": [message("system", SYSTEM), ASK, ANSWER], "passage": PASSAGE},
    ),
    "messages within an object": (
        "other-keys",
        {"values": {"messages": [{"type": "human", "content": ASKED}, {"type": "ai", "content": SAID}]}},
    ),
    "conversations deep in objects": (
        "lists-of-conversations",
        {"data": {"result": [{"history": {"messages": [ASK, ANSWER]}}]}},
    ),
    "other keys in lists": (
        "other-keys",
        {"export": {"chats": [{"turns": beside("who", "n", "1", [("text", ASKED), ("text", SAID)])}]}},
    ),
}
"""Rows that no option and no command of a hint reads: the heading that their refusal names."""


@pytest.mark.parametrize(("name", "kind"), each_with_a_kind(NEEDED, ["jsonl", "json", "parquet"]))
def test_rows_that_no_option_reads_are_refused_with_the_heading_that_has_the_command(
    name: str, kind: str, tmp_path: Path
) -> None:
    heading, row = NEEDED[name]
    hint = refused(write(tmp_path / f"rows.{kind}", [row]), tmp_path).hint or ""
    assert f"{PAGE}#{heading} shows" in hint and "jq" not in hint


TOOL = {"name": "tide", "description": "tells", "parameters": {"type": "object", "properties": {}}}
EDITED: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "other-keys": (
        {
            "id": 1,
            "history": {
                "turns": [
                    {"by": {"name": "user"}, "said": [text("When is"), text("the tide?")], "at": 7},
                    {"by": {"name": "assistant"}, "said": [text(SAID)]},
                ]
            },
        },
        [{"id": 1, "messages": [message("user", "When is\nthe tide?", at=7), ANSWER]}],
    ),
    "lists-of-conversations": (
        {"agents": [{"name": each, "messages": [ASK, ANSWER], "steps": 3} for each in "ab"], "day": 1},
        [{"name": each, "messages": [ASK, ANSWER]} for each in "ab"],
    ),
    "beside-messages": (
        {
            "messages": [
                ASK | {"apis": [TOOL]},
                ANSWER | {"keep": False},
                message("user", MORE),
                ANSWER | {"keep": True},
            ],
            "passage": PASSAGE,
            "rationale": THOUGHT,
        },
        [
            {
                "messages": [
                    message("user", f"{ASKED}\n\n{PASSAGE}"),
                    ANSWER | {"train": False},
                    message("user", MORE),
                    ANSWER | {"train": True, "reasoning_content": THOUGHT},
                ],
                "tools": [TOOL],
            }
        ],
    ),
}


@pytest.mark.parametrize("heading", EDITED)
def test_a_command_to_edit_makes_rows_that_build_of_those_it_is_written_for(heading: str, tmp_path: Path) -> None:
    row, expected = EDITED[heading]
    made = made_by_page(heading, write(tmp_path / "rows.json", row))
    assert [*map(json.loads, made.read_text("utf-8").splitlines())] == expected
    tokenizer = twins.byte_level(tmp_path / "model", template=TEMPLATE)
    packer.build(made, tmp_path / "cache", tokenizer=tokenizer, progress=False, ignore=["messages[].at"])


def test_each_answer_in_a_tree_of_messages_is_trained_once_after_those_before_it(tmp_path: Path) -> None:
    told = [(ASKED, "prompter", None), (SAID, "assistant", 0), (REST, "assistant", 0), (MORE, "prompter", 1)]
    told.append(("Later than today.", "assistant", 3))
    ids = [f"m{number}" for number in range(len(told))]
    rows = [
        {"message_id": own, "parent_id": None if parent is None else ids[parent], "text": text, "role": role, "rank": 3}
        for own, (text, role, parent) in zip(ids, told, strict=True)
    ]
    tokenizer = twins.byte_level(tmp_path / "model", template=TEMPLATE)
    path = write(tmp_path / "rows.jsonl", rows)
    assert "#answers-to-messages shows" in (refused(path, tmp_path).hint or "")
    path, followed = follow(made_by_page("answers-to-messages", path), tokenizer, tmp_path / "cache")
    assert len(followed) == 1
    found = [each for row in range(3) for each in read_back(tmp_path / "cache", path.name, row)]
    assert [learned for _, learned in found] == [[f"{text}<|im_end|>"] for text in (SAID, REST, "Later than today.")]
    assert all(each in found[-1][0] for each in (ASKED, SAID, MORE)) and REST not in found[-1][0]


CUT_SPAN = SPAN | {"gen_ai.completion.0.finish_reason": "length"}
CUT: dict[str, Any] = {
    "chatgpt": [
        chatgpt(**{"5": node(5, "assistant", REST, metadata={"finish_details": {"type": "max_tokens"}})}),
    ],
    "claude": [claude(ASKED, SAID, stop_reason="max_tokens")],
    "claude-code": [*SESSION[:-1], line("assistant", SAID, message=ANSWER | {"stop_reason": "max_tokens"})],
    "ai-sdk": [
        {
            "messages": [
                ui_message("1", "user", ASKED),
                ui_message("2", "assistant", SAID) | {"metadata": {"finishReason": "length"}},
            ]
        }
    ],
    "langsmith": [LANGSMITH | generated("length")],
    "helicone": [{"request_body": REQUEST, "response_body": response("length")}],
    "bedrock": [invocation(BEDROCK, output={"message": BEDROCK_ANSWER}, stopReason="max_tokens")],
    "items-of-responses": [{"items": [*ITEMS[:-1], ITEMS[-1] | {"status": "incomplete"}]}],
    "opentelemetry": [
        {"attributes": [{"key": key, "value": {"stringValue": value}} for key, value in CUT_SPAN.items()]}
    ],
    "open-webui": [webui(done=False)],
    "pydantic-ai": [
        {
            "messages": [
                parts("request", ("user-prompt", ASKED)),
                parts("response", ("text", SAID), finish_reason="length"),
            ]
        }
    ],
}


@pytest.mark.parametrize("anchor", CUT)
def test_the_command_for_an_export_passes_on_that_an_answer_was_cut(anchor: str, tmp_path: Path) -> None:
    path = made_by_page(
        anchor,
        write(tmp_path / ("rows.json" if anchor in ("chatgpt", "claude", "open-webui") else "rows.jsonl"), CUT[anchor]),
    )
    tokenizer = twins.byte_level(tmp_path / "model", template=TEMPLATE)
    with pytest.raises(NothingKeptError, match="cut_off"):
        packer.build(path, tmp_path / "cache", tokenizer=tokenizer, progress=False)


def test_a_session_has_no_errors_of_its_server_and_is_left_out_where_it_was_rewound(tmp_path: Path) -> None:
    error = line("assistant", [text("API Error: 529")], isApiErrorMessage=True)
    made = made_by_page("claude-code", write(tmp_path / "session.jsonl", [*SESSION, line("user", MORE), error]))
    assert "529" not in made.read_text() and MORE in made.read_text()
    rewound = line("user", MORE, parentUuid=SESSION[2]["parentUuid"])
    assert made_by_page("claude-code", write(tmp_path / "session.jsonl", [*SESSION, rewound])).read_text() == ""


def test_calls_of_one_step_are_one_turn_and_what_follows_them_another(tmp_path: Path) -> None:
    def call(number: int) -> dict[str, Any]:
        return TIDE_PART | {"toolCallId": f"call_{number}", "output": f"0{number}:12"}

    begins = {"type": "step-start"}
    said = [begins, text("I look."), call(1), call(2), begins]
    messages = [ui_message("1", "user", ASKED), ui_message("2", "assistant", SAID, *said)]
    made = made_by_page("ai-sdk", write(tmp_path / "rows.jsonl", [{"messages": messages}]))
    said = [(each["role"], len(each["content"])) for each in json.loads(made.read_text())["messages"]]
    assert said == [("user", 1), ("assistant", 3), ("tool", 5), ("tool", 5), ("assistant", 1)]


def test_a_session_is_cut_where_it_was_compacted_and_an_interrupted_answer_is_not_trained(tmp_path: Path) -> None:
    summary = line("user", "What was said.", isCompactSummary=True)
    rows = [line("user", ASKED), line("assistant", [text("It is")])]
    rows += [line("user", [text("[Request interrupted by user]")]), line("user", MORE), line("assistant", SAID)]
    rows += [summary, line("user", "And now?"), line("assistant", REST)]
    made = made_by_page("claude-code", write(tmp_path / "session.jsonl", rows)).read_text().splitlines()
    first, second = (json.loads(each)["messages"] for each in made)
    assert [each.get("train") for each in first if each["role"] == "assistant"] == [False, None]
    assert [each["content"][0]["text"] for each in second] == ["What was said.", "And now?", REST]


def test_calls_of_one_message_are_one_turn_wherever_their_results_were_written(tmp_path: Path) -> None:
    def use(number: int) -> dict[str, Any]:
        part = USE | {"id": f"toolu_{number}"}
        return line("assistant", [part]) | {"message": {"id": "m1", "role": "assistant", "content": [part]}}

    def result_of(number: int) -> dict[str, Any]:
        return line("user", [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "06:12"}])

    rows = [line("user", ASKED), use(1), result_of(1), use(2), result_of(2), line("assistant", SAID)]
    (made,) = made_by_page("claude-code", write(tmp_path / "session.jsonl", rows)).read_text().splitlines()
    said = [(each["role"], len(each["content"])) for each in json.loads(made)["messages"]]
    assert said == [("user", 1), ("assistant", 2), ("user", 2), ("assistant", 1)]


def test_single_messages_are_joined_in_the_order_of_their_times_with_what_else_they_say(tmp_path: Path) -> None:
    rows = [
        {"thread": thread, "role": role, "text": text, "created_at": time, "deleted": time == 10}
        for thread in "ab"
        for time, role, text in [(10, "assistant", SAID), ("9", "user", ASKED)]
    ]
    made = made_by_page("single-messages", write(tmp_path / "rows.jsonl", rows)).read_text().splitlines()
    for each in made:
        asked, said = json.loads(each)["messages"]
        assert (asked["content"], said["content"], said["deleted"]) == (ASKED, SAID, True)


@pytest.mark.parametrize("time", ["5/1/2025 9:50 AM", "09:50"])
def test_single_messages_are_not_joined_in_the_order_of_times_that_do_not_sort(time: str, tmp_path: Path) -> None:
    row = {"thread": "a", "role": "user", "text": ASKED, "created_at": time}
    with pytest.raises(subprocess.CalledProcessError):
        made_by_page("single-messages", write(tmp_path / "rows.jsonl", [row]))


def test_rows_that_are_turns_are_joined_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    turns = [(ASKED, SAID), (MORE, REST)]
    rows = [
        {"talk": talk, "turn": str(number), "question": asked, "answer": said}
        for number, (asked, said) in reversed([*enumerate(turns, 9)])
        for talk in "ab"
    ]
    made = made_by_page("turns", write(tmp_path / "rows.jsonl", rows)).read_text().splitlines()
    every = [ASK, ANSWER, message("user", MORE), message("assistant", REST)]
    assert [*map(json.loads, made)] == [{"messages": every}] * 2


def test_calls_as_xml_have_values_of_the_types_of_their_tools_and_stay_where_one_has_no_end(tmp_path: Path) -> None:
    properties = {"place": {"type": "string"}, "days": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}
    texts = [
        "<function=look><parameter=place>2</parameter><parameter=days>2</parameter></function>",
        '<function=look>{"place": "2", "days": 2}</function>',
        f"{SAID} <function=look><parameter=place>2",
        f"<function=look><parameter=place>2</parameter></function> {SAID}",
    ]
    messages = [ASK, *(message("assistant", each) for each in texts)]
    row = {"messages": messages, "tools": [{"name": "look", "parameters": {"properties": properties}}]}
    made = json.loads(made_by_page("calls-as-xml", write(tmp_path / "rows.jsonl", [row])).read_text())
    *called, cut, more = made["messages"][1:]
    for each in called:
        assert each["tool_calls"][0]["function"] == {"name": "look", "arguments": {"place": "2", "days": 2}}
    assert [cut, more] == messages[-2:]


def test_the_page_has_a_command_for_each_export_that_is_recognized() -> None:
    others = ["Other keys", "Lists of conversations", "Beside messages"]
    more = [
        "Single messages",
        "Turns",
        "Answers to messages",
        "Requests of a session",
        "Calls as XML",
        "Parameters of tools",
    ]
    assert [*commands_of_page()] == [heading.lower().replace(" ", "-") for heading in [*others, *RECOGNIZED, *more]]


def test_of_the_requests_of_a_session_the_last_is_left(tmp_path: Path) -> None:
    turns = [message(role, said) for role, said in zip(("user", "assistant") * 2, "abcd", strict=True)]
    rows = [{"session_id": each, "messages": turns[:end]} for end in (4, 2) for each in "xy"]
    made = made_by_page("requests-of-a-session", write(tmp_path / "rows.jsonl", rows)).read_text().splitlines()
    assert [*map(json.loads, made)] == [{"session_id": each, "messages": turns} for each in "xy"]


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("note", ["grounding", "rationale", "original_text"])
def test_a_note_beside_what_is_said_never_takes_its_place(note: str, everywhere: bool, tmp_path: Path) -> None:
    beside = {note: "A page says that the tide turns twice a day, and names the hours."}
    turns = [
        {"speaker": "seeker", "utterance": ASKED} | (beside if everywhere else {}),
        {"speaker": "wizard", "utterance": SAID} | beside,
    ]
    path = write(tmp_path / "rows.jsonl", [{"number": number, "dialog": turns} for number in range(3)])
    hint = refused(path, tmp_path).hint or ""
    assert f"the messages in `dialog` need the keys `role` and `content`, as {PAGE}#other-keys shows" in hint


def test_instructions_that_each_request_repeats_are_said_once_at_the_beginning(tmp_path: Path) -> None:
    asked, answer = parts("request", ("user-prompt", ASKED)), PYDANTIC[-1]
    row = {"messages": [asked | {"instructions": "Be rude."}, answer, asked | {"instructions": SYSTEM}, answer]}
    made = json.loads(made_by_page("pydantic-ai", write(tmp_path / "rows.jsonl", [row])).read_text("utf-8"))
    assert [each["role"] for each in made["messages"]] == ["system", *["user", "assistant"] * 2]
    assert made["messages"][0]["content"] == SYSTEM


def test_no_step_puts_an_id_in_place_of_an_object_that_messages_have_as_content(tmp_path: Path) -> None:
    said = [("user", "user", ASKED), ("guide", "model", SAID)]
    events = [
        {"author": author, "run": "run-of-the-guide", "content": {"role": role, "parts": [{"text": text}]}}
        for author, role, text in said
    ]
    row = {"steps": events}
    assert "jq" not in (conversation_hint(write(tmp_path / "rows.jsonl", [row]), [row]) or "")


def test_a_text_that_ends_where_another_field_answers_is_no_transcript(tmp_path: Path) -> None:
    row = {"input": f"User: {ASKED}\nAssistant: {SAID}\nUser: {MORE}\nAssistant:", "output": REST}
    assert refused([row], tmp_path).hint == "say which field is which: columns={'instruction': 'input'}"


def test_rows_without_texts_are_told_plainly(tmp_path: Path) -> None:
    hint = refused(write(tmp_path / "rows.jsonl", [{"score": 1, "tags": []}]), tmp_path).hint
    reads = "packer reads messages, questions with answers, texts, and token ids"
    assert hint == f"no field of these rows has a text; {reads}"
    hidden = {"turns": [{"said": ASKED}, {"speaker": "assistant", "said": SAID}]}
    hint = refused(write(tmp_path / "turns.jsonl", [hidden]), tmp_path).hint
    assert hint == f"`turns` has texts in a list; {reads}; {PAGE} shows how to make rows of other shapes"


@pytest.mark.parametrize(
    "row",
    [
        {"id": "b", "custom_id": "1", "response": {"status_code": 200, "body": {"choices": []}}, "error": None},
        {"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": {"model": "m", "input": ASKED}},
        {"id": "r", "object": "response", "output": [{"type": "message", "role": "assistant", "content": []}]},
    ],
)
def test_one_half_of_a_log_is_told_what_is_missing(row: dict[str, Any], tmp_path: Path) -> None:
    error = refused(write(tmp_path / "rows.jsonl", [row]), tmp_path)
    assert (error.hint or "").startswith("this is one half of a log")


@pytest.mark.parametrize("half", ["sent", "received"])
def test_the_halves_of_a_batch_in_one_folder_are_joined_by_the_step(half: str, tmp_path: Path) -> None:
    """The answers are in another order than their requests, as in what OpenAI returns."""
    (asked, said), (more, rest) = SINGLE
    sent = [{"custom_id": each["content"], "body": {"messages": [each]}} for each in (asked, more)]
    bodies = [(more, {"choices": [{"message": rest}]}), (asked, {"choices": [{"message": said}]})]
    received = [{"custom_id": each["content"], "response": {"body": body}, "error": None} for each, body in bodies]
    write(tmp_path / "sent.jsonl", sent)
    write(tmp_path / "received.jsonl", received)
    tokenizer = twins.byte_level(tmp_path / "model", template=TEMPLATE)
    path, (_,) = follow(tmp_path / f"{half}.jsonl", tokenizer, tmp_path / "cache")
    ((text, learned),) = read_back(tmp_path / "cache", path.name)
    assert MORE in text and learned == [REST + "<|im_end|>"]


@pytest.mark.parametrize("rows", [[(0, "user"), (0, "user")], [(0, "user"), (1, "assistant")], [(0, "user")] * 2])
def test_no_step_joins_single_messages_that_nothing_shows_to_be_one_conversation(
    rows: list[tuple[int, str]], tmp_path: Path
) -> None:
    texts = [{"chat": chat, "role": role, "text": f"{ASKED} {number}"} for number, (chat, role) in enumerate(rows)]
    error = refused(write(tmp_path / "rows.jsonl", texts), tmp_path)
    assert "join those of each conversation to `messages`" in (error.hint or "")


def test_no_hint_leaves_a_name_to_be_filled_in() -> None:
    for code in CODES:
        assert not re.search(r"\b(FIELD|NAME|OTHER)\b", rejection_hint(code)), code
