"""The roles of messages: the names that data sets use, `roles` of a source that uses others, and hints for them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from packer.recipe.named_options import as_option, flow_mapping
from packer.source.decode import Refused
from packer.source.file_bytes import quoted
from packer.source.row import Columns, rename

ROLES = {
    **{name: name for name in ("system", "developer")},
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "bot", "model", "chatgpt"), "assistant"),
    **dict.fromkeys(("tool", "function", "observation", "ipython", "tool_response"), "tool"),
}

CALL_ROLES = frozenset(f"{tool}{between}call" for tool in ("function", "tool") for between in "_- ")
"""Senders whose messages are the JSON of one call or of a list of calls, made by the assistant."""

SPEAKERS = frozenset({"role", "from", "speaker", "sender", "author", "who"})
"""Keys under which a turn of a dialogue names who speaks."""
REASONING_ROLES = frozenset({"reasoning", "thinking", "thought", "thoughts", "analysis"})
"""Senders whose messages are the assistant's reasoning; also names of the channel that gpt-oss has for it."""

MESSAGE_LISTS = (
    *("messages", "conversations", "conversation", "prompt", "completion", "input"),
    *("chosen", "rejected", "chosen_messages", "rejected_messages", "preferred_output", "non_preferred_output"),
)
"""Fields of a row that may contain messages, a single one, or a request with messages."""

_ROLE_FIELDS = ("role", "from")
"""Fields of a message that may contain its role."""

_MAX_ROLE_LENGTH = 40
"""Maximum length of a role's name, in characters; longer values are texts in the wrong place."""

_USERS = re.compile(
    "advisee|asker|caller|client|customer|guest|inquirer|learner|member|patient|prompter|questioner|seeker|student|usr|visitor"
)
_ASSISTANTS = re.compile(
    "adviser|advisor|agent|ai|answerer|chatbot|clinician|coach|consultant|counsell?or|doctor|expert|helper|instructor|"
    "llm|nurse|operator|physician|provider|responder|support|supporter|teacher|therapist|tutor|wizard"
)
_TOOLS = re.compile(
    "env|environment|executor|(?:code|python)?interpreter|(?:code|function|tool)(?:call)?(?:output|response|result|return)s?"
)
"""Not `output` or `response` alone: in pairs such as prompt and response, these are the assistant."""


def role_of(name: str, *, where: str) -> str:
    """Return the OpenAI name of a role."""
    role = "assistant" if name.lower() in REASONING_ROLES else ROLES.get(name) or ROLES.get(name.lower())
    if role is None:
        described = f"`{name}`" if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,31}", name) else "no role packer knows"
        raise Refused("unknown_role", f"the role at {where} is {described}; known: {', '.join(ROLES)}")
    return role


def is_answer(message: Mapping[str, Any], roles: Mapping[str, str] = {}) -> bool:
    """Whether a raw message is the assistant's, or an exchange that ends with what the assistant says."""
    sender = message.get("from") or message.get("role")
    if not isinstance(sender, str):
        return "assistant" in message or "output" in message
    name = roles.get(sender) or roles.get(sender.lower()) or sender
    return name in CALL_ROLES or name.lower() in REASONING_ROLES or ROLES.get(name.lower()) == "assistant"


def ends_in_question(value: Any) -> bool:
    """Whether a value is a list of messages that ends with what an answer in another field follows."""
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        return False
    return ROLES.get(str(value[-1].get("role") or value[-1].get("from")).lower()) in {"user", "tool"}


def rename_roles(row: dict[str, Any], roles: Mapping[str, str]) -> dict[str, Any]:
    """Return the row with its messages' roles renamed by `roles` of a source, matched exactly or in lower case.

    Example:
        >>> rename_roles({"messages": [{"role": "Client", "content": "Hi"}]}, {"client": "user"})
        {'messages': [{'role': 'user', 'content': 'Hi'}]}
    """
    return row | {name: _rename_message_roles(row[name], roles) for name in MESSAGE_LISTS if name in row}


def _rename_message_roles(messages: Any, roles: Mapping[str, str]) -> Any:
    """Rename the roles in a message, in a list of messages, or in a request."""
    if isinstance(messages, list):
        return [_rename_message_roles(message, roles) for message in messages]
    if not isinstance(messages, dict):
        return messages
    names = {name: messages[name] for name in _ROLE_FIELDS if isinstance(messages.get(name), str)}
    if not names and "messages" in messages:
        return messages | {"messages": _rename_message_roles(messages["messages"], roles)}
    return messages | {name: roles.get(role) or roles.get(role.lower()) or role for name, role in names.items()}


def roles_hint(rows: Iterable[dict[str, Any]], columns: Columns) -> str:
    """Return a hint for setting `roles`, guessed from the names that datasets use and from who speaks first."""
    renamed = [rename(row, columns) for row in rows]
    guessed = guess_roles(renamed)
    unknown = (name for row in renamed for name in dict.fromkeys(_roles_of(row)) if not _is_known(name))
    names = Counter(name for name in unknown if name not in guessed)
    if guessed and not names:
        return f"say which role is which: {_set_roles(guessed)}; that is a guess by their names and order"
    if not names:
        return "the first rows have no such role; `--roles` says what the one of the reason means"
    one, *others = [name for name, _ in names.most_common(2)]
    asks = {**guessed, one: "user", **dict.fromkeys(others, "assistant")}
    answers = {**guessed, one: "assistant", **dict.fromkeys(others, "user")}
    return f"if {quoted(one)} asks, {_set_roles(asks)}; if it answers, {_set_roles(answers)}"


def _set_roles(roles: Mapping[str, str]) -> str:
    return as_option(f"sources.roles={flow_mapping(roles)}")


def guess_roles(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Guess the meaning of the roles that no schema knows.

    Unknown names, and names that would all mean the same side, are the sides that a row lacks if they are as many, in
    the order in which they first speak. A name that would be both, or stands among more, is neither.
    Nobody is a tool unless others can be the user and the assistant: a row that only a tool answers trains nothing.
    """
    spoken = [[*dict.fromkeys(_roles_of(row))] for row in rows]
    names = dict.fromkeys(chain(*spoken))
    unknown = [name for name in names if not _is_known(name) and len(name) <= _MAX_ROLE_LENGTH]
    known = {ROLES[name.lower()] for name in names if name.lower() in ROLES}
    guessed = {name: role for name in unknown if (role := _guess_role(name)) is not None}
    sides = {"user", "assistant"} - known - {*guessed.values()}
    if len(unknown) - len(guessed) < len(sides):
        guessed = {name: role for name, role in guessed.items() if role != "tool"}
    if len(guessed) > 1 and not {"user", "assistant"} <= known | {*guessed.values()}:
        guessed = {}
    taken: dict[str, set[str]] = {}
    for row in spoken:
        told = {guessed.get(name) or ROLES.get(name.lower()) for name in row}
        lacking = [role for role in ("user", "assistant") if role not in told]
        others = [name for name in row if name not in guessed and not _is_known(name)]
        roles = lacking if len(others) == len(lacking) else [""] * len(others)
        for name, role in zip(others, roles, strict=True) if len(others) >= len(lacking) else ():
            taken.setdefault(name, set()).add(role)
    return guessed | {name: role for name in unknown for role in taken.get(name, ()) if role and len(taken[name]) == 1}


def _roles_of(row: Mapping[str, Any]) -> Iterator[str]:
    for name in MESSAGE_LISTS:
        messages = row.get(name)
        messages = messages.get("messages", messages) if isinstance(messages, dict) else messages
        for message in messages if isinstance(messages, list) else (messages,):
            if isinstance(message, dict):
                yield from (message[key] for key in _ROLE_FIELDS if isinstance(message.get(key), str))


def _is_known(name: str) -> bool:
    return name.lower() in ROLES or name in CALL_ROLES or name.lower() in REASONING_ROLES


def is_role(name: str) -> bool:
    """Whether a name is one that data sets give to a user, an assistant or a tool."""
    return _is_known(name) or _guess_role(name) is not None


def _guess_role(name: str) -> str | None:
    word = re.sub(r"[^a-z]", "", name.lower())
    patterns = {"user": _USERS, "assistant": _ASSISTANTS, "tool": _TOOLS}
    return next((role for role, pattern in patterns.items() if pattern.fullmatch(word)), None)
