"""Recognizes exports that are no rows yet, and gives the one command that makes rows of them: a program of jq.

What a program does not read, it passes on, so that a build asks about it; or it leaves the conversation out, if that
has other parts than texts.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from packer.source.file_bytes import FilePath, jq_command
from packer.source.roles import ROLES, SPEAKERS, guess_roles, is_role
from packer.source.row import ID_FIELDS

_OWN_KEYS = ({"role", "content"}, {"from", "value"})

_PARTS = "if . then map(select(length > 1)) else . end"
"""Parts of a message without those that have nothing but a type, as the `step-start` of the AI SDK."""

EACH_ROW = 'if type == "array" then .[] else . end | '

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
_LM_STUDIO = (
    '{messages: [(.systemPrompt // "" | select(. != "") | {role: "system", content: .}), (.messages[]'
    " | .versions[.currentlySelected] | {role, content: (if .steps then [.steps[] | (.style.type // .type) as $style"
    ' | .content[]? | if $style == "thinking" then {type: "thinking", thinking: .text} else . end]'
    " else .content end)})]}"
)
_IN_TURN = 'to_entries[] | {role: (if .key % 2 == 0 then "user" else "assistant" end), content: (.value | values)}'

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
    """Whether all lines of the file together are one row."""


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
        "one half of a log: its requests without the answers, or the answers alone. Rows with both, as `request` and "
        "`response`, are read; those of a batch have the same `custom_id`",
        lambda row: row.get("custom_id") is not None or row.get("object") in ("response", "chat.completion"),
        None,
    ),
    _Export("an export of the AI SDK, with calls and results in parts", _in_messages("parts", "toolCallId"), _AI_SDK),
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
            program = export.program if export.slurps else f"{EACH_ROW}{export.program}"
            return _step(f"this is {export.what}", jq_command(path, program, slurps=export.slurps))
    return _dialogue_hint(path, rows, field)


def turns_hint(path: FilePath, rows: Sequence[Mapping[str, Any]], field: str | None = None) -> str | None:
    """Return the step for a list of texts, or of pairs of them, that may be a dialogue; None if there is none."""
    for name in dict.fromkeys(name for row in rows for name in row) if field is None else (field,):
        at = f".[{json.dumps(name, ensure_ascii=False)}]"
        lists = [row[name] for row in rows if row.get(name)]
        items = [item for each in lists if isinstance(each, list) and len(each) > 1 for item in each]
        are_pairs = all(isinstance(item, list) and len(item) == 2 and isinstance(item[1], str) for item in items)
        if not items or not (are_pairs or all(isinstance(item, str) for item in items)):
            continue
        what, said = f"if the texts in `{name}` are a user's and the assistant's in turn", f"{at} | {_IN_TURN}"
        if are_pairs:
            what, said = f"if the pairs in `{name}` are questions and answers", f"[{at}[][]] | {_IN_TURN}"
        if are_pairs and all(str(one).lower() in ROLES for one, _ in items):
            what, said = f"the messages in `{name}` are pairs", f"{at}[] | {{role: .[0], content: .[1]}}"
        return _step(what, jq_command(path, f"{EACH_ROW}{{messages: [{said}]}} + del({at})"))
    return None


def _step(what: str, command: str | None) -> str:
    return f"{what}: {command}" if command else f"{what}: unpack it, or save it to a file, and packer names the command"


def _dialogue_hint(path: FilePath, rows: Sequence[Mapping[str, Any]], field: str | None) -> str | None:
    """Return the step that gives the messages in a list the keys `role` and `content`.

    None if there is no list of which each object has a speaker and a text. The list `field` keeps its name; one that is
    searched for is called `messages`.
    """
    for name in dict.fromkeys(name for row in rows for name in row) if field is None else (field,):
        found = _dialogue([row[name] for row in rows if row.get(name)])
        if found is not None:
            key = json.dumps(name, ensure_ascii=False)
            rest = f" + del(.[{key}])" if field is None else ""
            program = f"{{messages: [.[{key}][] | {found}]}}{rest}" if field is None else f".[{key}] |= map({found})"
            return _step(
                f"the messages in `{name}` need the keys `role` and `content`", jq_command(path, f"{EACH_ROW}{program}")
            )
    return None


def _dialogue(lists: Sequence[Any]) -> str | None:
    """Return the program for one message of some lists, or None if they are not all made of messages.

    What a message says may be in an object within it, as in LangChain's dumps.
    """
    turns = [turn for each in lists if isinstance(each, list) for turn in each]
    if not turns or not all(isinstance(turn, dict) for turn in turns):
        return None
    inner = [key for key in turns[0] if all(isinstance(turn.get(key), dict) for turn in turns)]
    for key in (None, *inner):
        own = [turn if key is None else turn | turn[key] for turn in turns]
        if (found := _message(own, are_own=key is not None)) is not None:
            return found if key is None else f". + {_at(key)} | del({_at(key)}) | {found}"
    return None


def _message(turns: Sequence[Mapping[str, Any]], *, are_own: bool) -> str | None:
    for speaker in dict.fromkeys(key for turn in turns for key in turn):
        roles = _roles(speaker, turns)
        texts = _text_keys(turns, but=speaker) if roles is not None else []
        if roles is not None and texts:
            if len(texts) == 1 and {speaker, *texts} in _OWN_KEYS:
                return "." if are_own else None  # `columns` and `roles` read them
            role = _at(speaker)
            if roles:
                role = f"({json.dumps(roles, ensure_ascii=False)}[{role}] // {role})"
            said = [f"({_at(key)} | {_PARTS})" if _has_parts(turns, key) else _at(key) for key in texts]
            dropped = ", ".join(_at(key) for key in (speaker, *texts) if key not in ("role", "content"))
            deleted = f" | del({dropped})" if dropped else ""
            return f". + {{role: {role}, content: ({' // '.join(said)})}}{deleted}"
    return None


def _has_parts(turns: Sequence[Mapping[str, Any]], key: str) -> bool:
    """Whether messages have parts with types under a key, all of which are read or refused."""
    lists = [value for turn in turns if (value := turn.get(key))]
    return all(
        isinstance(each, list) and all(isinstance(part, dict) and "type" in part for part in each) for each in lists
    )


def _at(key: str) -> str:
    return f".[{json.dumps(key, ensure_ascii=False)}]"


def _roles(speaker: str, turns: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Return what the names under a key mean, if they are names of speakers; of those that packer knows, nothing.

    They are if the key says so, or if one of them is a role: two models, or two thoughts, are no user and assistant.
    """
    names = [turn.get(speaker) for turn in turns]
    if speaker.lower() not in SPEAKERS and not any(is_role(name) for name in names if isinstance(name, str)):
        return None
    if not all(isinstance(name, str) and name for name in names):
        return None
    guessed = guess_roles([{"messages": [{"role": name} for name in names]}])
    known = {name: ROLES.get(str(name).lower()) or guessed.get(str(name)) for name in names}
    if not {"user", "assistant"} <= {*known.values()} or None in known.values():
        return None
    return {str(name): guessed[name] for name in known if name in guessed}


def _text_keys(turns: Sequence[Mapping[str, Any]], *, but: str) -> list[str]:
    """Return the keys of which each message has a text under one: first the one with the longest texts."""
    keys: list[str] = []
    left = list(turns)
    while left:
        lengths = Counter(dict(_lengths(left, but)))
        if not lengths:
            return []
        keys.append(max(lengths, key=lambda key: lengths[key]))
        left = [turn for turn in left if not turn.get(keys[-1]) and not any(map(_is_nested, turn.values()))]
    return keys


def _is_nested(value: Any) -> bool:
    """Whether a value may be calls, beside which a message needs no text."""
    return bool(value) and isinstance(value, list | dict)


def _lengths(turns: Sequence[Mapping[str, Any]], but: str) -> Iterator[tuple[str, int]]:
    for key in dict.fromkeys(key for turn in turns for key in turn if key not in (but, *ID_FIELDS)):
        texts = [value for turn in turns if isinstance(value := turn.get(key), str)]
        if not texts and _has_parts(turns, key):
            texts = [str(part.get("text") or "") for turn in turns for part in turn.get(key) or ()]
        length = sum(map(len, texts))
        if length:
            yield key, length
