"""Recognizes exports that are no rows yet, and gives the one command that makes rows of them: a program of jq.

What a program does not read, it passes on, so that a build asks about it; or it leaves the conversation out, if that
has other parts than texts.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from packer.source.conversations import conversation_hint, step
from packer.source.file_bytes import FilePath
from packer.source.jq_commands import jq_command, row_command

_CHATGPT = (
    ".mapping as $nodes"
    " | [.current_node | recurse($nodes[.].parent // empty) | $nodes[.].message | values]"
    " | reverse"
    ' | map(select(.metadata.is_visually_hidden_from_conversation != true and .content.parts != [""]))'
    ' | select(all(.[]; .content.content_type == "text" and .author.role != "tool"))'
    ' | {messages: map({role: .author.role, content: (.content.parts | join(""))})}'
)
_CLAUDE = (
    "select(all(.chat_messages[]; (.attachments // []) + (.files // []) == []"
    ' and all(.content[]?; .type == "text" or .type == "thinking")))'
    " | {messages: [.chat_messages[] | {role: .sender,"
    " content: (if .content then [.content[] | {type, (.type): .[.type]}] else .text end)}]}"
)
_CLAUDE_CODE = (
    '[.[] | select((.type == "user" or .type == "assistant") and (.isSidechain or .isMeta | not)) | .message'
    ' | {role, content: (.content | if type == "string" then [{type: "text", text: .}] else . end)}]'
    " | {messages: (reduce .[] as $next ([];"
    " if length > 0 and .[-1].role == $next.role"
    ' and ($next.role == "assistant" or .[-1].content[-1].type == "tool_result")'
    " then .[-1].content += $next.content else . + [$next] end))}"
)
_GLAIVE = (
    r'{tools: [.system | scan("(?<object>\\{(?:[^{}]|\\g<object>)*\\})") | .[0] | fromjson],'
    r' messages: ([{role: "system", content:'
    r' (.system | sub("^SYSTEM: "; "") | sub(",? *with access to[^{]*\\{.*"; ""; "m"))}]'
    r' + [.chat | splits("\\s+(?=(?:USER|ASSISTANT|FUNCTION RESPONSE): )")'
    r' | capture("^(?<from>USER|ASSISTANT|FUNCTION RESPONSE): (?<text>.*?)\\s*(?:<\\|endoftext\\|>\\s*)*$"; "m")'
    r' | if .from == "USER" then {role: "user", content: .text}'
    r' elif .from == "FUNCTION RESPONSE" then {role: "tool", content: .text}'
    r' elif (.text | startswith("<functioncall>")) then'
    r' {role: "tool_call", content: (.text | ltrimstr("<functioncall>")'
    r' | sub("\u0027(?<json>.*)\u0027"; "\(.json)"; "m"))}'
    r' else {role: "assistant", content: .text} end])}'
)
_LABEL_STUDIO = (
    "([.annotations[] | select(.was_cancelled | not)] | first) as $done | select($done)"
    " | {id} + .data + ([$done.result[] | {(.from_name): (.value.text // .value.choices"
    ' | if type == "array" then join("\\n") else . end)}] | add)'
)

_AI_SDK = (
    "{messages: [.messages[] | .role as $role"
    ' | reduce (.parts[] | select(.type != "step-start")) as $part ([];'
    " ($part.toolInvocation // $part) as $call"
    ' | if $call.toolCallId then . + [{role: $role, content: [{type: "tool_use", id: $call.toolCallId,'
    ' name: ($call.toolName // ($part.type | ltrimstr("tool-"))), input: ($call.input // $call.args)}]}]'
    ' + [$call.output // $call.result // $call.errorText | values | {role: "tool", tool_call_id: $call.toolCallId,'
    ' content: (if type == "string" then . else tojson end)}]'
    " else . + [{role: $role, content: [$part | {type, text}]}] end) | .[]]} + del(.messages)"
)
_AI_SDK_MODEL = (
    '{messages: [.messages[] | if .role == "tool" then .content[]'
    ' | {role: "tool", tool_call_id: .toolCallId, name: .toolName,'
    ' content: (.output.value? // .output // .result | if type == "string" then . else tojson end)}'
    ' else .content |= (arrays |= map(if .type == "tool-call"'
    ' then {type: "tool_use", id: .toolCallId, name: .toolName, input: (.input // .args)} else . end)) end]}'
    " + del(.messages)"
)
_OPEN_WEBUI = (
    ".chat as {$history, $params}"
    " | [$history.currentId | recurse($history.messages[.].parentId // empty) | $history.messages[.]] | reverse"
    ' | select(all(.[]; (.files // []) == [] and (.content | contains("<details type=") | not)))'
    ' | {messages: ([$params.system // empty | {role: "system", content: .}] + map({role, content}))}'
)
_PYDANTIC_AI = (
    '{messages: [.messages[] | if .kind == "response" then {role: "assistant", content: [.parts[]'
    ' | if .part_kind == "text" then {type: "text", text: .content}'
    ' elif .part_kind == "thinking" then {type: "thinking", thinking: .content}'
    ' elif .part_kind == "tool-call" then {type: "tool_use", id: .tool_call_id, name: .tool_name,'
    ' input: (.args | if type == "string" then fromjson else . end)} else {type: .part_kind} end]}'
    ' else (.instructions // empty | {role: "system", content: .}), (.parts[]'
    ' | if .tool_name then {role: "tool", tool_call_id, name: .tool_name,'
    ' content: (.content | if type == "string" then . else tojson end)}'
    ' else {role: (.part_kind | rtrimstr("-prompt") | sub("retry"; "user")), content} end) end]} + del(.messages)'
)
_LM_STUDIO = (
    '{messages: [(.systemPrompt // "" | select(. != "") | {role: "system", content: .}), (.messages[]'
    " | .versions[.currentlySelected] | {role, content: (if .steps then [.steps[] | (.style.type // .type) as $style"
    ' | .content[]? | if $style == "thinking" then {type: "thinking", thinking: .text} else . end]'
    " else .content end)})]}"
)

_TRACE = (
    "select([.nodes[].parent] == [null, range(0; (.nodes | length) - 1)])"
    " | {id, tools, messages: [.nodes[] | .sampled as $sampled | .message"
    ' | if .role == "assistant" then .train = $sampled else . end]}'
)


class _Export(NamedTuple):
    what: str
    recognizes: Callable[[Mapping[str, Any]], bool]
    program: str | None
    """None if nothing in the file makes rows of it."""

    slurps: bool = False
    """Whether the program takes all lines of the file together."""

    folder: bool = False
    """Whether it takes those of all files in a folder."""


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda row: all(row.get(name) is not None for name in names)


def _in_messages(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    """Recognize rows whose messages have some keys, at any depth."""
    names = [f'"{key}": ' for key in keys]
    return lambda row: all(map(json.dumps(row.get("messages"), default=str).__contains__, names))


def _is_transcript(row: Mapping[str, Any]) -> bool:
    chat = row.get("chat")
    return isinstance(row.get("system"), str) and isinstance(chat, str) and chat.startswith("USER: ")


def _is_trace(row: Mapping[str, Any]) -> bool:
    nodes = row.get("nodes")
    return isinstance(nodes, list) and all(
        isinstance(each, dict) and {"message", "sampled"} <= each.keys() for each in nodes
    )


_EXPORTS = (
    _Export(
        "an export of ChatGPT, of which this takes the conversations of texts alone",
        _has("mapping", "current_node"),
        _CHATGPT,
    ),
    _Export(
        "an export of Claude, of which this takes the conversations of texts and thinking, without files or tools",
        _has("chat_messages"),
        _CLAUDE,
    ),
    _Export(
        "a session of Claude Code, whose lines together are one conversation; it has no definitions of its tools",
        _has("sessionId", "message"),
        _CLAUDE_CODE,
        slurps=True,
    ),
    _Export("a file of transcripts, with tools in their system texts", _is_transcript, _GLAIVE),
    _Export("an export of Label Studio, which this writes as its JSON-MIN", _has("annotations", "data"), _LABEL_STUDIO),
    _Export(
        "one half of a log, a batch's requests or its answers. With both files in one folder",
        _has("custom_id"),
        "map(select(.custom_id?)) | group_by(.custom_id)[] | add",
        slurps=True,
        folder=True,
    ),
    _Export(
        "one half of a log: the answers without their requests. Rows with both, as `request` and `response`, are read",
        lambda row: row.get("object") in ("response", "chat.completion"),
        None,
    ),
    _Export("an export of the AI SDK, with calls and results in parts", _in_messages("parts", "toolCallId"), _AI_SDK),
    _Export("a file of messages of the AI SDK", _in_messages("content", "toolCallId"), _AI_SDK_MODEL),
    _Export(
        "an export of Open WebUI, of which this takes the conversations of texts alone",
        lambda row: isinstance(row.get("chat"), dict) and "history" in row["chat"],
        _OPEN_WEBUI,
    ),
    _Export("a file of messages of Pydantic AI", _in_messages("part_kind"), _PYDANTIC_AI),
    _Export("a conversation of LM Studio", _in_messages("versions", "currentlySelected"), _LM_STUDIO),
    _Export("a file of traces, of which this takes those without branches", _is_trace, _TRACE),
)


def export_hint(path: FilePath, rows: Sequence[Mapping[str, Any]], field: str | None = None) -> str | None:
    """Return the step that makes rows of messages of an export, or of dialogues under other keys; None for others.

    `rows` are some of the file, and `field` the list with the messages, if it is known.
    """
    for export in _EXPORTS:
        if any(map(export.recognizes, rows)):
            if export.program is None:
                return f"this is {export.what}"
            program, folder = export.program, export.folder
            each_row = row_command(path, program)
            command = jq_command(path, program, slurps=True, folder=folder) if export.slurps else each_row
            return step(f"this is {export.what}", command)
    return conversation_hint(path, rows, field)
