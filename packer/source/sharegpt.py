"""Schema `sharegpt`: turns with `from` and `value`, and the formats derived from it.

A turn may also be written ``{"role", "content"}``. ms-swift writes an exchange as ``{"human": …, "assistant": …}``,
XTuner as ``{"system": …, "input": …, "output": …}``. LIMA writes texts alone, of the user and the assistant in turn.
A turn from `function_call` is the JSON of a call, or of a list of calls. It joins the assistant's turn before it, if
there is one.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from packer.batches import Message, Sample
from packer.source.chat import ChatMessage, MessageFields, chat_sample, plain_message, read_message
from packer.source.decode import Refused
from packer.source.message_parts import Part
from packer.source.roles import role_of
from packer.source.row import RowFields, RowSchema, coalesce_aliases, typed_row

_OTHER_NAMES = frozenset({"system", "input", "output", "output_with_loss"})
"""XTuner's names of the parts of an exchange."""

_JSON_TURN = re.compile(r'\s*\{\s*"(?:from|role|value|content|human|input)"\s*:')


class Turn(MessageFields, frozen=True, kw_only=True):
    sender: str | None = msgspec.field(name="from", default=None)
    role: str | None = None
    value: str | list[Part] | None = None
    content: str | list[Part] | None = None


class TurnsRow(RowFields, frozen=True, kw_only=True):
    conversations: list[Turn] | None = None
    conversation: list[Turn] | None = None


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"conversations": [{"from": "human", "value": "…"}, …], "system": "…", "tools": "[…]"}``"""
    coalesce_aliases({name: row[name] for name in ("conversations", "conversation") if name in row}, where="$")
    name = "conversations" if row.get("conversations") else "conversation"
    raw: Any = row.get(name)
    if isinstance(raw, list) and raw:
        raw = _with_senders(raw, where=f"$.{name}")
        row = {**row, name: raw}
    shape = typed_row(row, TurnsRow, name)
    turns = shape.conversations or shape.conversation or []
    messages = [_message(raw[i], turn, where=f"$.{name}[{i}]") for i, turn in enumerate(turns)]
    return chat_sample(row, shape, messages, number=number)


def _with_senders(turns: list[Any], *, where: str) -> list[Any]:
    """Return turns that each have a sender: texts alone are of the user and the assistant, an exchange is of both."""
    first = turns[0]
    if isinstance(first, str):
        if _JSON_TURN.match(first):
            raise Refused(
                "wrong_type", f"a turn as JSON text at {where}[0]; give objects, or the JSON of the whole list"
            )
        return [{"from": "gpt" if number % 2 else "human", "value": text} for number, text in enumerate(turns)]
    is_exchange = isinstance(first, dict) and ("human" in first or {"input", "output"} <= first.keys() <= _OTHER_NAMES)
    if not is_exchange or not all(isinstance(each, dict) for each in turns):
        return turns
    asked, answered = ("human", "assistant") if "human" in first else ("input", "output")
    places = [(each, f"{where}[{number}]") for number, each in enumerate(turns)]
    return [turn for each, place in places for turn in _turns_of(each, asked, answered, where=place)]


def _turns_of(exchange: dict[str, Any], asked: str, answered: str, *, where: str) -> Iterator[dict[str, Any]]:
    """Yield what is said in an exchange; its fields with a meaning to packer belong to the answer."""
    if not (isinstance(exchange.get(asked), str) and isinstance(exchange.get(answered), str)):
        raise Refused("wrong_type", f"expected texts under `{asked}` and `{answered}` at {where}")
    if exchange.get("system"):
        yield {"from": "system", "value": exchange["system"]}
    others = {key: value for key, value in exchange.items() if key not in ("system", asked, answered)}
    if "output_with_loss" in others:
        others["train"] = others.pop("output_with_loss")
    of_answer = {key: others.pop(key) for key in MessageFields.__struct_fields__ if key in others}
    yield {"from": "human", "value": exchange[asked], **others}
    yield {"from": "gpt", "value": exchange[answered], **of_answer}


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
