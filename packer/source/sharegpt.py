"""Schema `sharegpt`: turns with `from` and `value`, and the formats derived from it.

A turn may also be written ``{"role", "content"}``. ms-swift writes an exchange as ``{"human": …, "assistant": …}``, and
Capybara as ``{"input": …, "output": …}``.
A turn from `function_call` is the JSON of a call, or of a list of calls. It joins
the assistant's turn before it, if there is one.
"""

from typing import Any

import msgspec
from msgspec import UNSET

from packer.batches import Message, Sample
from packer.source.chat import (
    CALL_ROLES,
    ChatMessage,
    MessageFields,
    chat_sample,
    join_calls,
    read_message,
    role_of,
)
from packer.source.decode import Refused
from packer.source.message_parts import Part
from packer.source.row import RowFields, RowSchema, coalesce_aliases, typed_row
from packer.source.unsupported_rows import refuse_media_tags


class Turn(MessageFields, frozen=True, kw_only=True):
    sender: str | None = msgspec.field(name="from", default=None)
    role: str | None = None
    value: str | list[Part] | None = None
    content: str | list[Part] | None = None


class Exchange(MessageFields, frozen=True, kw_only=True):
    """A question and its answer; all other fields belong to the answer."""

    human: str
    assistant: str


_CAPYBARA = {"input": "human", "output": "assistant"}
"""How Capybara calls the two."""


class TurnsRow(RowFields, frozen=True, kw_only=True):
    conversations: list[Turn] | None = None
    conversation: list[Turn] | None = None


class ExchangesRow(RowFields, frozen=True, kw_only=True):
    conversations: list[Exchange] | None = None
    conversation: list[Exchange] | None = None


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"conversations": [{"from": "human", "value": "…"}, …], "system": "…", "tools": "[…]"}``

    Raises:
        Refused: the row cannot be a sample.

    """
    coalesce_aliases({name: row[name] for name in ("conversations", "conversation") if name in row}, where="$")
    name = "conversations" if row.get("conversations") else "conversation"
    raw: Any = row.get(name)
    if isinstance(raw, list) and all(isinstance(turn, dict) and _CAPYBARA.keys() <= turn.keys() for turn in raw):
        raw = [{_CAPYBARA.get(key, key): value for key, value in turn.items()} for turn in raw]
        row = {**row, name: raw}
    if isinstance(raw, list) and raw and isinstance(raw[0], dict) and "human" in raw[0]:
        exchanges = typed_row(row, ExchangesRow, name)
        turns = exchanges.conversations or exchanges.conversation or []
        pairs = [_exchange(raw[i], turn, where=f"$.{name}[{i}]") for i, turn in enumerate(turns)]
        messages = [message for pair in pairs for message in pair]
        return chat_sample(row, exchanges, messages, number=number)
    shape = typed_row(row, TurnsRow, name)
    turns_of_row = shape.conversations or shape.conversation or []
    messages = [_message(raw[i], turn, where=f"$.{name}[{i}]") for i, turn in enumerate(turns_of_row)]
    are_calls = [(turn.sender if turn.sender is not None else turn.role) in CALL_ROLES for turn in turns_of_row]
    return chat_sample(row, shape, join_calls(messages, are_calls), number=number)


def _exchange(raw: dict[str, Any], turn: Exchange, *, where: str) -> tuple[Message, Message]:
    answer_fields = {key: value for key, value in raw.items() if key in MessageFields.__struct_fields__}
    known = {*answer_fields, "human", "assistant"}
    extra = {key: value for key, value in raw.items() if value is not None and key not in known}
    shared = {field: getattr(turn, field) for field in MessageFields.__struct_fields__}
    refuse_media_tags(turn.human)
    answer = ChatMessage(role="assistant", content=turn.assistant, **shared)
    question = Message(fields=extra | {"role": "user", "content": turn.human})
    return question, read_message(answer_fields, answer, where=where)


def _message(raw: dict[str, Any], turn: Turn, *, where: str) -> Message:
    role = turn.sender if turn.sender is not None else turn.role
    if role is None:
        raise Refused("wrong_type", f"no field `from` at {where}")
    if turn.role is not None and role_of(turn.role, where=where) != role_of(role, where=where):
        raise Refused("wrong_type", f"`from` and `role` say different things at {where}")
    content = coalesce_aliases({"value": turn.value, "content": turn.content}, where=where)
    extra = {key: value for key, value in raw.items() if key not in ("from", "role", "value", "content")}
    shared = {field: getattr(turn, field) for field in MessageFields.__struct_fields__}
    shape = ChatMessage(role=role, content=UNSET if content is None else content, **shared)
    return read_message(extra, shape, where=where)


SCHEMA = RowSchema(
    needs=(("conversations", "conversation"),),
    rows=(TurnsRow,),
    read=read,
    help="`conversations` of `from`/`value` (human, gpt, system, function_call, observation), or of `input`/`output`; "
    "`tools` as a JSON string",
    is_templated=True,
    json_fields=("conversations", "conversation"),
)
