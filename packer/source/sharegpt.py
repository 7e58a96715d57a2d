"""Schema `sharegpt`: turns with `from` and `value`, and the formats derived from it.

A turn may also be written ``{"role", "content"}``. ms-swift writes an exchange as ``{"human": …, "assistant": …}``,
XTuner as ``{"system": …, "input": …, "output": …}``. LIMA writes texts alone, of the user and the assistant in turn.
A turn from `function_call` is the JSON of a call, or of a list of calls. It joins the assistant's turn before it, if
there is one.
"""

import re
from typing import Any

import msgspec
from msgspec import UNSET

from packer.batches import Message, Sample
from packer.source.chat import (
    ChatMessage,
    MessageFields,
    chat_sample,
    plain_message,
    read_message,
)
from packer.source.decode import Refused
from packer.source.message_parts import Part
from packer.source.roles import role_of
from packer.source.row import RowFields, RowSchema, coalesce_aliases, typed_row
from packer.source.unsupported_rows import refuse_media_tags

_OTHER_NAMES = frozenset({"system", "input", "output", "output_with_loss"})
"""XTuner's names of the parts of an exchange."""

_JSON_TURN = re.compile(r'\s*\{\s*"(?:from|role|value|content|human|input)"\s*:')


class Turn(MessageFields, frozen=True, kw_only=True):
    sender: str | None = msgspec.field(name="from", default=None)
    role: str | None = None
    value: str | list[Part] | None = None
    content: str | list[Part] | None = None


class Exchange(MessageFields, frozen=True, kw_only=True):
    """A question and its answer; all other fields belong to the answer."""

    system: str | None = None
    human: str
    assistant: str


class OtherExchange(Exchange, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same under XTuner's names."""

    human: str = msgspec.field(name="input")
    assistant: str = msgspec.field(name="output")
    train: bool | None = msgspec.field(name="output_with_loss", default=None)


class TurnsRow(RowFields, frozen=True, kw_only=True):
    conversations: list[Turn] | None = None
    conversation: list[Turn] | None = None


class ExchangesRow(RowFields, frozen=True, kw_only=True):
    conversations: list[Exchange] | None = None
    conversation: list[Exchange] | None = None


class OtherExchangesRow(RowFields, frozen=True, kw_only=True):
    conversations: list[OtherExchange] | None = None
    conversation: list[OtherExchange] | None = None


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"conversations": [{"from": "human", "value": "…"}, …], "system": "…", "tools": "[…]"}``"""
    coalesce_aliases({name: row[name] for name in ("conversations", "conversation") if name in row}, where="$")
    name = "conversations" if row.get("conversations") else "conversation"
    raw: Any = row.get(name)
    first = raw[0] if isinstance(raw, list) and raw else None
    if isinstance(first, str):
        raw = _alternating(raw, where=f"$.{name}")
        row = {**row, name: raw}
    is_other = isinstance(first, dict) and {"input", "output"} <= first.keys() <= _OTHER_NAMES
    if is_other or (isinstance(first, dict) and "human" in first):
        kind: type[ExchangesRow | OtherExchangesRow] = OtherExchangesRow if is_other else ExchangesRow
        exchanges = typed_row(row, kind, name)
        turns = exchanges.conversations or exchanges.conversation or []
        pairs = [_exchange(raw[i], turn, where=f"$.{name}[{i}]") for i, turn in enumerate(turns)]
        messages = [message for pair in pairs for message in pair]
        return chat_sample(row, exchanges, messages, number=number)
    shape = typed_row(row, TurnsRow, name)
    turns_of_row = shape.conversations or shape.conversation or []
    messages = [_message(raw[i], turn, where=f"$.{name}[{i}]") for i, turn in enumerate(turns_of_row)]
    return chat_sample(row, shape, messages, number=number)


def _alternating(texts: list[Any], *, where: str) -> list[dict[str, Any]]:
    """Return turns for texts alone."""
    if _JSON_TURN.match(texts[0]):
        raise Refused("wrong_type", f"a turn as JSON text at {where}[0]; give objects, or the JSON of the whole list")
    return [{"from": "gpt" if number % 2 else "human", "value": text} for number, text in enumerate(texts)]


def _exchange(raw: dict[str, Any], turn: Exchange, *, where: str) -> list[Message]:
    shared = {field: getattr(turn, field) for field in MessageFields.__struct_fields__}
    answer_fields = {field: value for field, value in shared.items() if value is not None}
    known = turn.__struct_encode_fields__
    extra = {key: value for key, value in raw.items() if value is not None and key not in known}
    refuse_media_tags(turn.human)
    answer = ChatMessage(role="assistant", content=turn.assistant, **shared)
    question = Message(fields=extra | {"role": "user", "content": turn.human})
    before = [Message(fields={"role": "system", "content": turn.system})] if turn.system else []
    return [*before, question, read_message(answer_fields, answer, where=where)]


def _message(raw: dict[str, Any], turn: Turn, *, where: str) -> Message:
    if len(raw) == 2 and turn.sender is not None and (plain := plain_message(turn.sender, turn.value)) is not None:
        return plain
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
    help="`conversations` of `from`/`value` (human, gpt, system, function_call, observation), of exchanges "
    "(`human`/`assistant`, `input`/`output`), or of texts in turn; `tools` as a JSON string",
    is_templated=True,
    json_fields=("conversations", "conversation"),
)
