"""Recognizes conversations that are no rows of messages, and gives the command that makes rows of them.

They may be exports, of which a page has the commands, messages under other keys, at any depth and in columns, or one
message in each row. What a program of jq does not read, it passes on, so that a build asks about it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

from packer.questions.field_names import meant_field
from packer.questions.read_places import ITEMS, Path, places, shown_path
from packer.questions.texts import is_text, strings
from packer.source.file_bytes import FilePath, quoted
from packer.source.jq_commands import jq_field, jq_path, row_command
from packer.source.roles import ROLES, SPEAKERS, guess_roles, is_role
from packer.source.row import ID_FIELDS, field_value

_OWN_KEYS = ({"role", "content"}, {"from", "value"})

_SAYS = ("content", "value")
"""Keys of what a message says, be it one word, or nothing, such as the result of a tool."""

_MOST_SAID = 4

_FEWEST_SAID = 10
"""One message in so many may lack a text, as one of an attachment does."""

PAGE = "docs/how-to/exports.md"

_TALKS = frozenset(
    {"thread", "channel", "conversation", "conv", "dialog", "dialogue", "chat", "session", "room", "ticket"}
)
"""Words for what the messages of a conversation have in common."""

_TRANSPOSED = "(to_entries | map(.key as $key | .value | map({($key): .})) | transpose | map(add))"


EXPORTS: Mapping[str, tuple[str, ...]] = {
    "ChatGPT": ("an export of ChatGPT", "mapping", "current_node"),
    "Claude": ("an export of Claude", "chat_messages"),
    "Claude Code": ("a session of Claude Code", "sessionId", "message"),
    "Glaive": ("a file of transcripts, with tools in their system texts", "system", r'"chat": "USER: '),
    "Label Studio": ("an export of Label Studio", "annotations", "was_cancelled", "data"),
    "LangSmith": ("a file of runs of LangSmith", "inputs", "outputs", r'"run_type": "llm"'),
    "Helicone": ("a log of Helicone", "request_body", "response_body"),
    "Bedrock": ("in the form of Bedrock", r'"(toolUse|toolSpec|reasoningContent|inputBodyJson)": \{|"stopReason": "'),
    "Items of Responses": ("a file of conversations of Responses", r'"items": \[\{', r'"type": "message"'),
    "Half of a batch": (
        "one half of a log: requests or answers. Rows with both, as `request` and `response`, are read",
        r'"custom_id": |"object": "(response|chat\.completion)"',
    ),
    "AI SDK": ("an export of the AI SDK", "messages", "parts", "text"),
    "Messages of the AI SDK": ("a file of messages of the AI SDK", "messages", "content", "toolCallId"),
    "Open WebUI": ("an export of Open WebUI", "chat", "history", "currentId"),
    "Pydantic AI": ("a file of messages of Pydantic AI", "messages", "part_kind"),
    "Traces": ("a file of traces", "nodes", "sampled"),
    "OpenTelemetry": ("a file of spans of OpenTelemetry", "attributes", r'"gen_ai\.'),
    "Zendesk": ("an export of tickets", "requester_id", "comments", "author_id", "public"),
    "Channels": ("a channel of people, and you say who of them is the assistant", "channel", "author", "timestamp"),
}
"""Of each heading of the page what it is about, and by what a row is recognized: keys at any depth, and other JSON."""


def conversation_hint(path: FilePath, rows: Sequence[Mapping[str, Any]], field: str | None = None) -> str | None:
    """Return the step that makes rows of messages of an export, or those for each list of them; None for others.

    `rows` are some of the file. The list `field` keeps its name; one that is searched for is called `messages`.
    """
    written = [json.dumps(row, default=str) for row in rows]
    for heading, (what, *signs) in EXPORTS.items():
        patterns = [sign if '"' in sign else f'"{sign}": (?!null)' for sign in signs]
        if any(all(re.search(pattern, row) for pattern in patterns) for row in written):
            return f"this is {what}; {PAGE}#{heading.lower().replace(' ', '-')} has the command that makes rows of it"
    if found := list(_dialogues(rows, field)):
        return "; ".join(step(what, row_command(path, program)) for what, program in found)
    messages = single_messages(rows) if field is None else None
    return f"each row is a single message; {messages.way}" if messages else None


def step(what: str, command: str | None) -> str:
    """Return a hint with a command, or how to get one."""
    return f"{what}: {command}" if command else f"{what}: unpack it, or save it to a file, and packer names the command"


def _dialogues(rows: Sequence[Mapping[str, Any]], field: str | None, before: Path = ()) -> Iterator[tuple[str, str]]:
    """Yield what lists of messages need, each with its program; `before` leads to lists that have the rows."""
    for place in places(rows) if field is None else ((field,),):
        values = [value for row in rows if (value := field_value(row, ".".join(place)))]
        if len({*map(type, values)}) != 1:
            continue  # such as content that is a text or parts
        columns = [_rows_of(value) for value in values]
        own = _message_of(values, are_own=True)
        found = own if before or own is None else _message_of(values)
        found = found or (_message_of(columns, are_own=True) if all(columns) else None)
        at = jq_path(place)
        if found is None:
            items = [item for each in values if isinstance(each, list) for item in each]
            if own is None and field is None and items and all(isinstance(item, dict) for item in items):
                inner = _dialogues(items, None, (*before, *place, ITEMS))
                yield from ((what, f"{at}[]? | {program}") for what, program in inner)
            continue
        message, others, roles = found
        turns = "" if isinstance(values[0], list) else f" | {_TRANSPOSED}"
        program = (
            f"{{messages: [{at}{turns}[]? | {message}]}} + del({at})" if field is None else f"{at} |= map({message})"
        )
        what = f"the messages in `{shown_path((*before, *place))}` need the keys `role` and `content`"
        if before:
            what += f", and the fields beside `{shown_path(before[:-1])}` are left out"
        if roles:
            what = f"if {' and '.join(f'`{name}` is the {role}' for name, role in roles.items())}, {what}"
        if others:
            what += f" (what is said may also be {' or '.join(map(quoted, others))}: put it in its place)"
        yield what, program


class _Message(NamedTuple):
    """How a message becomes one that packer reads."""

    program: str
    others: Sequence[str]
    """Other keys of what it may say."""

    roles: Mapping[str, str]
    """What names of speakers are taken for."""


class SingleMessages(NamedTuple):
    """Rows that are messages, not conversations: as texts, what users say would be trained as well."""

    speaker: str
    """The field that names who speaks."""

    says: str
    way: str
    """How they become conversations."""


def single_messages(rows: Sequence[Mapping[str, Any]]) -> SingleMessages | None:
    """Recognize rows that are single messages, by a field that names who speaks.

    It has a role in all rows, or speakers with ids or names who take turns where rows share a value.
    """
    for speaker in dict.fromkeys(chain(*rows)):
        told = [row for row in rows if isinstance(row.get(speaker), str | int)]
        if told and (way := _way_to_join(speaker, told, rows)) is not None:
            says = sorted({str(row[speaker]) for row in told})[:_MOST_SAID]
            return SingleMessages(speaker, " or ".join(says), way)
    return None


def _way_to_join(speaker: str, told: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return how messages become conversations, of which some have a speaker; None if these are no messages."""
    names = [row[speaker] for row in told]
    is_speaker = not {*SPEAKERS, "user"}.isdisjoint(speaker.lower().split("_"))
    are_roles = all(is_role(str(name)) for name in names) and told == rows
    if are_roles and (is_speaker or _roles("role", [{"role": name} for name in names]) is not None):
        if _answer_others(rows):
            return f"give each answer the messages that it follows, as {PAGE}#answers-to-messages shows"
        return f"join those of each conversation to `messages`, as {PAGE}#single-messages shows"
    if not is_speaker or not any(_text_keys(told, but=speaker)) or 2 * len(told) <= len(rows):
        return None  # few rows without a speaker may say what happened
    for key in rows[0]:
        if key != speaker and _take_turns(key, [row.get(key) for row in told], names):
            return f"join those with the same {quoted(key)} to `messages` that say who is the assistant"
    is_channel = speaker == "user" and _take_turns("channel", [0] * len(names), names)
    return f"join them to `messages` that say who is the assistant, as {PAGE}#channels shows" if is_channel else None


def _answer_others(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rows have the id of another in a field, such as that of the message which they answer."""
    texts = {key: {row[key] for row in rows if isinstance(row.get(key), str)} for key in rows[0]}
    ids = {key: values for key, values in texts.items() if len(values) == len(rows)}
    return any(
        key != own and None in (row.get(key) for row in rows) and 2 * len(values & every) > len(values)
        for key, values in texts.items()
        for own, every in ids.items()
    )


def _take_turns(key: str, values: Sequence[Any], names: Sequence[Any]) -> bool:
    """Whether most rows with one value under a key are of a few speakers, some of whom speak again after another.

    Where the key is not called a conversation, rows with one value have to follow each other, and values to differ.
    """
    if not all(isinstance(value, str | int) for value in values):
        return False
    shared: dict[Any, list[Any]] = {}
    for value, name in zip(values, names, strict=True):
        shared.setdefault(value, []).append(name)
    if _TALKS.isdisjoint(key.lower().split("_")) and not 1 + _changes(values) == len(shared) > 1:
        return False
    long = [each for each in shared.values() if len(each) > 2]
    talks = [each for each in long if 1 < len({*each}) <= min(_changes(each), (len(each) + 1) / 2)]
    return 2 * len(talks) > len(long)


def _changes(values: Sequence[Any]) -> int:
    return sum(one != other for one, other in pairwise(values))


def _rows_of(value: Any) -> list[dict[str, Any]]:
    """Return the rows of an object of columns, as `datasets` has a sequence of objects; none of anything else."""
    if not isinstance(value, dict) or len(value) < 2 or not all(isinstance(each, list) for each in value.values()):
        return []
    return [dict(zip(value, row, strict=False)) for row in zip(*value.values(), strict=False)]


def _message_of(lists: Sequence[Any], *, are_own: bool = False) -> _Message | None:
    """Return how one message of some lists is made, or None if they are not all made of messages.

    What a message says may be in an object within it, as in LangChain's dumps, or in parts. `are_own`: also messages
    that are read as they are.
    """
    turns = [turn for each in lists if isinstance(each, list) for turn in each]
    if not turns or not all(isinstance(turn, dict) for turn in turns):
        return None
    for before, own in (("", turns), *_opened(turns)):
        if (found := _message(own, are_own=are_own or bool(before))) is not None:
            return found._replace(program=before + found.program)
    return None


def _opened(turns: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield messages with what an object in them has, and the program for it, or with the texts of parts as one."""
    for key in turns[0]:
        if all(isinstance(turn.get(key), dict) for turn in turns):
            own = [{name: turn[name] for name in turn if name != key} | turn[key] for turn in turns]
            yield f"del({jq_field(key)}) + {jq_field(key)} | ", own
    for key in dict.fromkeys(chain(*turns)):
        lists = [turn[key] if isinstance(turn.get(key), list) else [] for turn in turns]
        texts = ["\n".join(part["text"] for part in each if _is_text_part(part)) for each in lists]
        if any(texts):
            yield "", [turn | {key: text} if text else turn for turn, text in zip(turns, texts, strict=True)]


def _is_text_part(part: Any) -> bool:
    is_part = isinstance(part, dict) and isinstance(part.get("text"), str)
    return is_part and (part.get("type") == "text" or {*part} == {"text"})


def _message(turns: Sequence[Mapping[str, Any]], *, are_own: bool) -> _Message | None:
    for speaker in dict.fromkeys(chain(*turns)):
        roles = _roles(speaker, turns)
        texts, others = _text_keys(turns, but=speaker) if roles is not None else ([], [])
        lost = {"role", "content"} - {speaker, *texts}
        if roles is not None and texts and not any(turn.get(key) for turn in turns for key in lost):
            own = next((key for key in (*texts, *others) if {speaker, key} in _OWN_KEYS), None)
            if own is not None and len(texts) == 1:
                return _Message(".", [], {}) if are_own else None  # `columns` and `roles` read them
            return _Message(_as_message(speaker, texts, roles), others, roles)
    return None


def _as_message(speaker: str, texts: Sequence[str], roles: Mapping[str, str]) -> str:
    """Return the program that gives a message the keys `role` and `content`, and keeps its others."""
    role = jq_field(speaker)
    if roles:
        role = f"({json.dumps(roles, ensure_ascii=False)}[{role}] // {role})"
    dropped = ", ".join(jq_field(key) for key in (speaker, *texts) if key not in ("role", "content"))
    deleted = f" | del({dropped})" if dropped else ""
    said = ", ".join(map(jq_field, texts))
    if len(texts) > 1:  # one of them, and others may be there without a text
        said = f'[{said}] | map(select((. // "") != "")) | first'
    return f". + {{role: {role}, content: ({said})}}{deleted}"


def _roles(speaker: str, turns: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Return what the names under a key mean, if they are names of speakers; of those that packer knows, nothing.

    They are if the key says so, or if one of them is a role: two models, or two thoughts, are no user and assistant.
    """
    names = [turn.get(speaker) for turn in turns]
    are_names = all(isinstance(name, str) and name for name in names)
    if not are_names or (speaker.lower() not in SPEAKERS and not any(is_role(str(name)) for name in names)):
        return None
    guessed = guess_roles([{"messages": [{"role": name} for name in names]}])
    known = {name: ROLES.get(str(name).lower()) or guessed.get(str(name)) for name in names}
    if not {"user", "assistant"} <= {*known.values()} or None in known.values():
        return None
    return {str(name): guessed[name] for name in known if name in guessed}


def _text_keys(turns: Sequence[Mapping[str, Any]], *, but: str) -> tuple[list[str], list[str]]:
    """Return the keys of which each message has a text under one: one that all have, or several of which each has one.

    Of those that all have, it is `content`, or the one with the longest texts; the others are returned, too. A key that
    some messages have beside what they say is a note to it. Beside what may be calls a message needs no text.
    """
    texts = {
        key: {
            k: said
            for k, said in enumerate(turn.get(key) for turn in turns)
            if isinstance(said, str) and (said or key in _SAYS)
        }
        for key in dict.fromkeys(chain(*turns))
        if key not in (but, *ID_FIELDS)
    }
    said = {key: [*filter(None, each.values())] for key, each in texts.items()}
    is_prose = any(2 * sum(map(is_text, each)) >= len(each) > 0 for each in said.values())
    inner = [value for turn in turns for value in turn.values() if isinstance(value, list | dict)]
    if not is_prose and any(map(is_text, strings(inner))):
        return [], []  # as the only prose is deeper within the messages
    words = {
        key
        for key, each in said.items()
        if 2 * sum(len(text.split()) > 1 or not text.isascii() or is_text(text) for text in each) >= len(each) > 0
    }
    if words:  # others are ids and labels
        texts = {key: texts[key] for key in texts if key in words or (key in _SAYS and said[key])}
    told = {*chain(*texts.values())}
    silent = [turn.values() for k, turn in enumerate(turns) if k not in told]
    num_lacking = sum(not any(isinstance(each, list | dict) and each for each in values) for values in silent)
    if _FEWEST_SAID * num_lacking > len(told) + num_lacking:
        return [], []  # of fewer, a build says what it does with messages without a text
    by_length = sorted(texts, key=lambda key: (key in _SAYS, sum(map(len, texts[key].values()))), reverse=True)
    if everywhere := [key for key in by_length if texts[key].keys() == told]:
        return everywhere[:1], everywhere[1:]
    chosen, left = list[str](), {*told}
    for key in sorted(
        by_length, key=lambda key: (len(texts[key]), meant_field(key) in ("instruction", "output")), reverse=True
    ):
        if texts[key].keys() <= left:
            chosen, left = [*chosen, key], left - texts[key].keys()
    is_filled = len(chosen) > 1 and not {*chosen}.isdisjoint(_SAYS)  # what such messages lack may be calls
    return ([], []) if left or is_filled else (chosen, [])
