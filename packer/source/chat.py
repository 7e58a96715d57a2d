"""Schema `messages`, OpenAI's chat format with its dialects; also builds the messages of every other chat schema.

The fields of a message keep their names and values, with these exceptions: the role gets its OpenAI name; a content
list becomes a string; a refusal becomes content; calls are normalized; reasoning is stored where templates look for it;
fields that say whether a message is trained are removed; a null counts as absent, except as the `content` of a message
with calls or reasoning. A message without content, calls and reasoning is refused: its text may be stored under another
key.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from packer.batches import REASONING_FIELDS, Message, Sample, has_content
from packer.source.decode import Refused, as_flag, coalesce_aliases
from packer.source.file_bytes import quoted
from packer.source.message_parts import (
    PARTS_START,
    Content,
    Part,
    TrainFields,
    holds_results,
    is_reasoning,
    joined_with_answers,
    own_flag,
    read_content,
    read_results,
    read_system,
    reasoning_in,
)
from packer.source.roles import CALL_ROLES, ROLES, role_of
from packer.source.row import OPTIONAL_MESSAGE_FIELDS, RowFields, RowSchema, sample_id, typed_row
from packer.source.tools_and_calls import (
    read_calls,
    read_tools,
    refuse_stray_results,
    refuse_wrong_calls,
    with_ids_of_results,
)
from packer.source.unsupported_rows import may_have_media_tags, refuse_cut, refuse_media_tags
from packer.source.written_calls import split_thought, with_calls_of_text

_READ_FIELDS = OPTIONAL_MESSAGE_FIELDS | {"role", "content"}
_KNOWN_FIELDS = _READ_FIELDS.union(REASONING_FIELDS, ("tool_call_id",))
TEXT_FIELDS = ("text", "value", "output", "result", "response", "answer", "completion", "message", "body")
_OTHER_CALLS = ("parts", "toolInvocations", "additional_kwargs", "recipient")
_TO_TOOL = re.compile(r"python|\w+\.[\w.-]+")
_OF_ANY_ANSWER = {"role", "content", "tool_calls"}
_MAX_LISTED = 8

_OWN_VARIABLES = ("messages", "tools", "add_generation_prompt")
"""Variables of a template that a row cannot set by `chat_template_kwargs`."""


class MessageFields(TrainFields, frozen=True, kw_only=True):
    """Fields of a message that have a meaning to packer, besides its sender and content."""

    tool_calls: list[Any] | str | None = None
    function_call: dict[str, Any] | None = None
    """The older field for a single call."""

    reasoning_content: str | None = None
    thinking: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    """The answer of OpenAI's models in place of a content."""

    train_detail: Any = None
    """axolotl's ranges of characters, which are not read: parts of a content say the same by their own `train`."""


class ChatMessage(MessageFields, frozen=True, kw_only=True):
    """A message as OpenAI writes it."""

    role: str
    content: str | list[Part] | UnsetType | None = UNSET


class MessagesRow(RowFields, frozen=True, kw_only=True):
    messages: list[ChatMessage]


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"messages": [{"role": "user", "content": "…"}, …], "tools": […], …}``"""
    shape = typed_row(row, MessagesRow, "messages")
    messages = read_messages(row["messages"], shape.messages, where="$.messages")
    return chat_sample(row, shape, messages, number=number)


def read_messages(raw: Sequence[dict[str, Any]], shapes: Sequence[ChatMessage], *, where: str) -> list[Message]:
    """Build the messages of a list, as :func:`read_message` does."""
    messages: list[Message] = []
    for i, (fields, shape) in enumerate(zip(raw, shapes, strict=True)):
        if len(fields) == 2 and (plain := plain_message(shape.role, shape.content)) is not None:
            messages.append(plain)
        elif holds_results(fields.get("content")):
            messages += _read_results(fields, shape, where=f"{where}[{i}]")
        else:
            messages.append(read_message(fields, shape, where=f"{where}[{i}]"))
    return messages


def plain_message(sender: str, content: Any) -> Message | None:
    """Build a message of which nothing else is given, as :func:`read_message` would; None if it needs a closer look."""
    role = ROLES.get(sender)
    if role is None or type(content) is not str or content.startswith(PARTS_START):
        return None
    if "<" in content and may_have_media_tags(content, is_asked=role == "user"):
        return None
    return Message(fields={"role": role, "content": content})


def _read_results(raw: dict[str, Any], shape: ChatMessage, *, where: str) -> Iterator[Message]:
    """Yield the messages of one whose content has results of tools, and then perhaps what the user says."""
    assert isinstance(shape.content, list)
    if role_of(shape.role, where=f"{where}.role") != "user":
        raise Refused("wrong_type", f"tool results in a message that is not the user's at {where}.content")
    others = _READ_FIELDS | {"name"}  # which is the user's, not the tool's
    more = {key: value for key, value in raw.items() if value is not None and key not in others}
    results = read_results(raw["content"], shape.content, more, where=f"{where}.content")
    yield from results
    said = shape.content[len(results) :]
    if said or shape.tool_calls or shape.function_call or shape.refusal:
        yield read_message(raw, msgspec.structs.replace(shape, content=said), where=where)


def read_message(raw: dict[str, Any], shape: ChatMessage, *, where: str) -> Message:
    """Build a message of its fields and the same typed; those without a meaning to packer are passed through."""
    content = _with_reasoning_beside(raw, _content(raw, shape, where=where))
    calls, raw = _calls(raw, shape, content, where=where)
    role = ROLES.get(shape.role) or (
        "assistant" if shape.role in CALL_ROLES else role_of(shape.role, where=f"{where}.role")
    )
    if shape.refusal:
        content = _with_refusal(content, shape.refusal, role, where=where)
    calls_or_reasoning = calls or content.reasoning or any(getattr(shape, name) for name in REASONING_FIELDS)
    if calls_or_reasoning and role != "assistant":
        raise Refused("wrong_type", f"calls or reasoning of a message that is not the assistant's at {where}")
    if not calls:
        _refuse_other_calls(raw, where=where)
    is_empty = content.text is None or (not content.text.strip() and _has_text_in_other_field(raw, role))
    if is_empty and not calls_or_reasoning:
        others = [key for key, value in raw.items() if value is not None and key not in _KNOWN_FIELDS]
        named = ", ".join(map(quoted, others[:_MAX_LISTED])) or "none"
        raise Refused("no_content", f"no content at {where}; its other keys: {named}")
    text = "" if content.text is None and shape.content is UNSET else content.text
    fields: dict[str, Any] = {"role": role, "content": text}
    fields |= {key: value for key, value in raw.items() if value is not None and key not in _READ_FIELDS}
    if calls:  # no empty list: a template that tests `is defined` would see calls
        fields["tool_calls"] = calls
    trained, spans = own_flag(shape, content.trained if role == "assistant" else (), where=where), None
    if role == "assistant" and trained is not False:
        if not raw.keys() <= _OF_ANY_ANSWER:
            refuse_cut(raw, where=where)
            if as_flag(raw.get("prefix")):
                raise Refused(
                    "cut_off", f"`prefix` is true at {where}: the answer is a beginning, which a server continues"
                )
        if shape.train_detail not in (None, ""):
            reason = f"`train_detail` at {where} is not read; give the content as parts, each with `train`"
            raise Refused("bad_spans", reason)
        spans = content.spans
    fields = _merge_reasoning(fields, content.reasoning, where=where)
    return Message(fields=fields, trained=trained, spans=spans or None)


def _calls(
    raw: dict[str, Any], shape: ChatMessage, content: Content, *, where: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the calls of a message, of which one place may repeat another's, and its fields without them."""
    calls = read_calls(shape.tool_calls, where=f"{where}.tool_calls")
    if shape.role in CALL_ROLES and not (calls or content.calls):
        beside = {key: value for key, value in raw.items() if value is not None and key not in _KNOWN_FIELDS}
        if beside.keys() & {"name", "function"}:  # a call has its name and arguments as fields of its own
            calls = read_calls([beside], where=where)
            raw = {key: value for key, value in raw.items() if key in _KNOWN_FIELDS}
    older = [shape.function_call] if shape.function_call else None
    for name, others in (
        ("content", content.calls),
        ("function_call", read_calls(older, where=f"{where}.function_call")),
    ):
        if calls and others and [each["function"] for each in calls] != [each["function"] for each in others]:
            raise Refused("bad_tools", f"`tool_calls` and {where}.{name} say different things")
        calls = calls or [*others]
    return calls, raw


def _with_calls_joined(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with every answer in one: calls alone belong to the answer before them.

    ms-swift and LLaMA-Factory write a text and each of its calls as messages of their own, and so do some logs. The
    model generates all of them in one turn; as turns of their own they would teach it to stop before its calls. A turn
    is trained whole or not at all, so a yes of one message holds for those that say nothing; a no has to be said by
    all of them. Anything else that follows an answer is refused: no server asks for two answers in a row.
    """
    if not any(before.role == after.role == "assistant" for before, after in pairwise(messages)):
        return messages
    joined: list[Message] = []
    for number, message in enumerate(messages):
        if not joined or {joined[-1].role, message.role} != {"assistant"}:
            joined.append(message)
        elif not has_content({**message.fields, "tool_calls": None}) and message.fields.get("tool_calls"):
            flags = {message.trained, joined[-1].trained}
            if False in flags and len(flags) > 1:
                reason = f"a call at $.messages[{number}] with another flag than what the turn begins with"
                raise Refused("wrong_type", f"{reason}; a turn is trained whole or not at all: give both one flag")
            joined[-1] = _joined(joined[-1], message)
        else:
            reason = f"two answers in a row, the second of them at $.messages[{number}]"
            raise Refused("wrong_type", f"{reason}; what a model says in one turn is one message, and calls come last")
    return joined


def _joined(turn: Message, call: Message) -> Message:
    """Return a turn with further calls."""
    calls = [*turn.fields.get("tool_calls", ()), *call.fields["tool_calls"]]
    fields = {**call.fields, **turn.fields, "tool_calls": calls}
    return msgspec.structs.replace(turn, fields=fields, trained=turn.trained or call.trained)


def _content(raw: dict[str, Any], shape: ChatMessage, *, where: str) -> Content:
    if shape.content is UNSET or shape.content is None:
        return Content(text=None)
    if shape.role not in CALL_ROLES:
        content = read_content(shape.content, where=f"{where}.content")
        if content.text and ROLES.get(shape.role) == "user":
            refuse_media_tags(content.text, is_asked=True)
        is_thought = content.text and not content.reasoning and is_reasoning(shape.role, raw)
        return replace(content, text=None, reasoning=content.text) if is_thought else content
    text, calls = None, []
    if isinstance(shape.content, str):
        thought, call = split_thought(shape.content)
        text, calls = thought or None, read_calls(call, where=where)
    if not calls:
        raise Refused("bad_tools", f"no call at {where}")
    return Content(text=text, calls=tuple(calls))


def _with_reasoning_beside(raw: dict[str, Any], content: Content) -> Content:
    if content.reasoning is not None or any(map(raw.get, REASONING_FIELDS)):
        return content
    return replace(
        content, reasoning=next(filter(None, (reasoning_in(raw[key]) for key in raw if key != "content")), None)
    )


def _has_text_in_other_field(raw: dict[str, Any], role: str) -> bool:
    """Whether a message with empty content has a text under a name that other tools use, or a question has anything."""
    parts = raw.get("parts")
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    others = [value for key, value in raw.items() if key not in _KNOWN_FIELDS and isinstance(value, list | dict)]
    return (role in ("user", "tool") and any(others)) or any(
        isinstance(text, str) and text.strip() for text in (*texts, *map(raw.get, TEXT_FIELDS))
    )


def _refuse_other_calls(raw: dict[str, Any], *, where: str) -> None:
    """Refuse a message with calls under a name of the AI SDK or of LangChain, which would be lost.

    A message to a tool, as Harmony has it, would be trained as what is said to the user.
    """
    if raw.keys().isdisjoint(_OTHER_CALLS):
        return
    parts, more = raw.get("parts"), raw.get("additional_kwargs")
    types = [str(part.get("type")) for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    found = {
        "parts": any(name.startswith(("tool", "dynamic-tool")) for name in types),
        "toolInvocations": bool(raw.get("toolInvocations")),
        "recipient": _TO_TOOL.fullmatch(str(raw.get("recipient"))) is not None,
        "additional_kwargs": isinstance(more, dict) and bool(more.get("tool_calls") or more.get("function_call")),
    }
    for name, has_calls in found.items():
        if has_calls:
            raise Refused("bad_tools", f"calls under `{name}` at {where}, which is not read; give them as `tool_calls`")


def _with_refusal(content: Content, refusal: str, role: str, *, where: str) -> Content:
    """Make a refusal the assistant's content, as templates have no other place for it."""
    if role != "assistant":
        raise Refused("wrong_type", f"`refusal` of a message that is not the assistant's at {where}")
    if content.text:
        raise Refused("wrong_type", f"both `content` and `refusal` at {where}")
    return replace(content, text=read_content(refusal, where=f"{where}.refusal").text)


def _merge_reasoning(fields: dict[str, Any], reasoning: str | None, *, where: str) -> dict[str, Any]:
    given = {name: fields[name] for name in REASONING_FIELDS if name in fields}
    if len({text.strip() for text in given.values()} - {""}) > 1:
        names = " and ".join(f"`{name}`" for name in given)
        raise Refused("wrong_type", f"different reasoning under {names} at {where}")
    if given and reasoning is not None:
        raise Refused("wrong_type", f"reasoning both as a field and as a content part at {where}")
    if given:
        reasoning = next((text for text in given.values() if text.strip()), next(iter(given.values())))
    return fields if reasoning is None else with_reasoning_fields(fields, reasoning)


def with_reasoning_fields(fields: dict[str, Any], reasoning: str) -> dict[str, Any]:
    """Return a message with its reasoning where transformers 5 puts it.

    That is `reasoning_content`, and also `thinking` unless that has a text.
    Source: `_alias_reasoning_fields` of transformers.utils.chat_template_utils.
    """
    others = {name: value for name, value in fields.items() if name != "thinking" or value.strip()}
    return {"thinking": reasoning, **others, "reasoning_content": reasoning}


def with_flag(message: Message, *, trained: bool) -> Message:
    """Return the message as one that is trained, or not; only the assistant's messages are."""
    return msgspec.structs.replace(message, trained=trained) if message.role == "assistant" else message


def chat_sample(row: dict[str, Any], fields: RowFields, messages: Sequence[Message], *, number: int) -> Sample:
    """Make a sample of messages, with the tools, the system message and the template variables of its row."""
    if not messages:
        raise Refused("empty", "the row has no messages")
    messages = joined_with_answers(messages)
    system = read_system(fields.system)
    if system and messages[0].role != "system":
        messages = (Message(fields={"role": "system", "content": system}), *messages)
    elif system and (messages[0].fields.get("content") or "").strip() != system.strip():
        reason = "a system message in the field `system` and another among the messages"
        raise Refused("wrong_type", f"{reason}; `columns: {{system: null}}` leaves out the first")
    kwargs = fields.chat_template_kwargs or {}
    set_twice = next((name for name in _OWN_VARIABLES if kwargs.get(name)), None)
    if set_twice is not None:
        reason = f"`chat_template_kwargs` has `{set_twice}`, which packer itself gives to the template"
        raise Refused("wrong_type", reason)
    tools = coalesce_aliases({"tools": fields.tools, "functions": fields.functions}, where="$")
    definitions = read_tools(tools, where="$.tools" if fields.tools else "$.functions") if tools else None
    messages = with_calls_of_text(messages, definitions) if definitions else messages
    messages = with_ids_of_results(messages)
    refuse_stray_results([message.fields for message in messages])
    messages = _with_calls_joined(messages)
    if definitions:
        calls = [call for message in messages for call in message.fields.get("tool_calls") or ()]
        refuse_wrong_calls(calls, definitions)
    return Sample(
        kind="chat",
        row=number,
        messages=tuple(messages),
        tools=definitions,
        template_kwargs=kwargs,
        sample_id=sample_id(row),
    )


SCHEMA = RowSchema(
    needs=(("messages",),),
    rows=(MessagesRow,),
    read=read,
    help="`messages` in the OpenAI chat format: `content` as text, null or a list of parts (text, and Anthropic's "
    "`tool_use` and `tool_result`); `tool_calls`, role `tool`, `reasoning_content` (also `reasoning`, `thinking`), "
    "`refusal` as content; row-level `tools`, `chat_template_kwargs`, `id`",
    is_templated=True,
    json_fields=("messages", "chat_template_kwargs"),
)
