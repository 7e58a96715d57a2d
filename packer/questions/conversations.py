"""Recognizes conversations that are no rows of messages: exports, messages under other keys, and single messages.

A flat list of messages has a command that gives them the keys which packer reads. Of anything else a hint says what the
rows need, and names the heading of a page with commands to edit.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

from packer.questions.field_names import meant_field
from packer.questions.read_places import ITEMS, Path, places, shown_path
from packer.questions.texts import is_text, strings
from packer.source.file_bytes import FilePath
from packer.source.jq_commands import jq_field, row_command
from packer.source.roles import ROLES, SPEAKERS, guess_roles, is_role
from packer.source.row import ID_FIELDS, field_value

PAGE = "docs/how-to/exports.md"

SAID_BEFORE = f"is what was said before, write all of a row in turn into `messages`, as {PAGE} shows"

_OWN_KEYS = {"role": "content", "from": "value"}

EXPORTS: Mapping[str, tuple[str, ...]] = {
    "ChatGPT": ("an export of ChatGPT", "mapping", "current_node"),
    "Claude": ("an export of Claude", "chat_messages"),
    "Claude Code": ("a session of Claude Code", "sessionId", "message"),
    "Glaive": ("a file of transcripts, with tools in their system texts", "system", r'"chat": "USER: '),
    "Label Studio": ("an export of Label Studio", "annotations", "was_cancelled", "data"),
    "LangSmith": ("a file of runs of LangSmith", "inputs", "outputs", r'"run_type": "llm"'),
    "Helicone": ("a log of Helicone", "request_body", "response_body"),
    "Bedrock": (
        "in the form of Bedrock",
        r'"(toolUse|toolSpec|reasoningContent|cachePoint|inputBodyJson)": \{|"stopReason": "',
    ),
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
    """Return what makes rows of messages of an export, of lists of messages, or of single ones; None for others.

    `rows` are some of the file. `field` has messages that are refused; without it they are searched for.
    """
    written = [json.dumps(row, default=str) for row in rows]
    for heading, (what, *signs) in EXPORTS.items():
        patterns = [sign if '"' in sign else f'"{sign}": (?!null)' for sign in signs]
        if any(all(re.search(pattern, row) for pattern in patterns) for row in written):
            return f"this is {what}; {PAGE}#{heading.lower().replace(' ', '-')} has the command that makes rows of it"
    found = _of_messages(path, rows, [(field,)] if field is not None else places(rows), name=field or "messages")
    if hints := list(found):
        return "; ".join(hints)
    messages = single_messages(rows) if field is None and any(map(_is_worded, strings(rows))) else None
    return f"each row is a single message; {messages.way}" if messages else None


def _of_messages(
    path: FilePath, rows: Sequence[Mapping[str, Any]], searched: Iterable[Path], before: Path = (), *, name: str
) -> Iterator[str]:
    """Yield what lists of messages need, among those in some places of rows; `before` leads to what has the rows.

    `name`: that of the field which a command makes.
    """
    for place in searched:
        values = [field_value(row, ".".join(place)) for row in rows]
        turns = [each for value in values for each in _objects(value)]
        speaker = _speaker(turns)
        shown, are_lists = shown_path((*before, *place)), all(isinstance(value, list | None) for value in values)
        if speaker is None:
            yield from _of_messages(path, turns, places(turns), (*before, *place, ITEMS), name=name)
        elif not are_lists or not any(_OWN_KEYS.get(speaker) in turn for turn in turns):
            others = [key for key in rows[0] if key != place[0] and meant_field(key) == "output"]
            if not before and any(all(isinstance(row.get(key), str) for row in rows) for key in others):
                yield f"if `{shown}` {SAID_BEFORE}"
                continue
            is_flat = are_lists and len(place) == 1 and not before and any(place[0] in row for row in rows)
            program = _program(turns, speaker, place[0], name) if is_flat else None
            command = row_command(path, program) if program else None
            needed = f"the messages in `{shown}` need the keys `role` and `content`"
            yield f"{needed}: {command}" if command else f"{needed}, as {PAGE}#other-keys shows"
        elif before:
            yield f"each list in `{shown}` needs a row of its own, as {PAGE}#lists-of-conversations shows"


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list, or those of which an object has the columns; nothing of anything else."""
    if isinstance(value, dict) and len(value) > 1 and all(isinstance(each, list) for each in value.values()):
        return [dict(zip(value, row, strict=False)) for row in zip(*value.values(), strict=False)]
    return value if isinstance(value, list) and all(isinstance(each, dict) for each in value) else []


def _speaker(turns: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the key that names who speaks, which may be in an object in each message; None if there is none."""
    keys = map(".".join, places(turns))
    return next((key for key in keys if _are_roles(key, [field_value(turn, key) for turn in turns])), None)


def _are_roles(key: str, names: Sequence[Any]) -> bool:
    """Whether names under a key are those of a user and an assistant.

    They are if the key says so, or if one of them is a role: two models, or two thoughts, are no user and assistant.
    """
    are_names = all(isinstance(name, str) and name for name in names)
    if not are_names or (key.rpartition(".")[2].lower() not in SPEAKERS and not any(map(is_role, names))):
        return False
    guessed = guess_roles([{"messages": [{"role": name} for name in names]}])
    known = {ROLES.get(name.lower()) or guessed.get(name) for name in names}
    return {"user", "assistant"} <= known and None not in known


def _program(turns: Sequence[Mapping[str, Any]], speaker: str, field: str, name: str) -> str | None:
    """Return the program that gives the messages in a field their keys; None if no single key has what each says."""
    said = _text_key(turns, speaker)
    is_lost = any(turn.get(key) for turn in turns for key in {"role", "content"} - {speaker, said})
    if said is None or is_lost or speaker not in turns[0]:
        return None
    who, text = jq_field(speaker), jq_field(said)
    message = f"del({who}, {text}) + {{role: {who}, content: {text}}}"
    key = name if name.isidentifier() and name.isascii() else json.dumps(name)
    return f"del({jq_field(field)}) + {{{key}: [{jq_field(field)}[]? | {message}]}}"


def _text_key(turns: Sequence[Mapping[str, Any]], speaker: str) -> str | None:
    """Return the only key of messages with texts, if all have it; others are ids and labels."""
    names = {*chain(*turns)}
    said = {key: [text for turn in turns if isinstance(text := turn.get(key), str) and text] for key in names}
    worded = {key for key, each in said.items() if 2 * sum(map(_is_worded, each)) >= len(each) > 0}
    keys = (worded | {*_OWN_KEYS.values()} & said.keys()) - {speaker, *ID_FIELDS}
    inner = [value for turn in turns for value in turn.values() if isinstance(value, list | dict)]
    if len(keys) != 1 or not all(isinstance(turn.get(key), str) for turn in turns for key in keys):
        return None
    (key,) = keys
    is_prose = 2 * sum(map(is_text, said[key])) >= len(said[key])
    return key if is_prose or not any(map(is_text, strings(inner))) else None


def _is_worded(text: str) -> bool:
    return len(text.split()) > 1 or not text.isascii() or is_text(text)


class SingleMessages(NamedTuple):
    """Rows that are messages, not conversations: as texts, what users say would be trained as well."""

    speaker: str
    """The field that names who speaks."""

    says: str
    way: str
    """How they become conversations."""


def single_messages(rows: Sequence[Mapping[str, Any]]) -> SingleMessages | None:
    """Recognize rows that are single messages, by a field that has a role in all of them, or that is called by a
    speaker and has few names in turn.
    """
    for field in dict.fromkeys(chain(*rows)):
        names = [name for row in rows if isinstance(name := row.get(field), str | int)]
        says = " or ".join(sorted({*map(str, names)}))
        is_speaker = not {*SPEAKERS, "user"}.isdisjoint(field.lower().split("_"))
        if len(names) == len(rows) and all(is_role(str(name)) for name in names):
            if is_speaker or _are_roles(field, names):
                shows = f"{PAGE}#single-messages or #answers-to-messages shows"
                return SingleMessages(field, says, f"join those of each conversation to `messages`, as {shows}")
        elif is_speaker and 2 * len(names) > len(rows) and _take_turns(names):
            joined = "join those of each conversation to `messages` that say who is the assistant"
            return SingleMessages(field, says, f"{joined}, as {PAGE}#channels shows")
    return None


def _take_turns(names: Sequence[Any]) -> bool:
    """Whether names are few, and some speak again after another: documents have more authors."""
    num_names, num_changes = len({*names}), sum(one != other for one, other in pairwise(names))
    are_few = 1 < num_names <= num_changes and 2 * num_names <= len(names) + 2
    return are_few and not any(map(is_text, map(str, names)))
