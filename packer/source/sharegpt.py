"""Schema `sharegpt`: turns with `from` and `value`, and the formats derived from it, as messages.

A turn may also be written ``{"role", "content"}``. ms-swift writes an exchange as ``{"human": …, "assistant": …}``,
XTuner as ``{"system": …, "input": …, "output": …}``. LIMA writes texts alone, of the user and the assistant in turn.
A turn from `function_call` is the JSON of a call, or of a list of calls. It joins the
assistant's turn before it, if there is one (:func:`packer.source.chat.read`).
"""

import re
from collections.abc import Iterator
from typing import Any

from packer.batches import Sample
from packer.source import chat
from packer.source.decode import Refused, coalesce_aliases, type_name
from packer.source.roles import role_of
from packer.source.row import RowFields, RowSchema

_EXCHANGE = {"system": "system", "input": "human", "output": "assistant", "output_with_loss": "train"}
"""XTuner's names of the parts of an exchange, and ms-swift's."""

_TURN = ("from", "role", "value", "content")
_JSON_TURN = re.compile(r'\s*\{\s*"(?:from|role|value|content|human|input)"\s*:')


class TurnsRow(RowFields, frozen=True, kw_only=True):
    conversations: list[Any] | None = None
    conversation: list[Any] | None = None


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"conversations": [{"from": "human", "value": "…"}, …], "system": "…", "tools": "[…]"}``"""
    given = {name: row[name] for name in ("conversations", "conversation") if row.get(name) is not None}
    turns: Any = coalesce_aliases(given, where="$")
    name = next((name for name in given if given[name]), next(iter(given)))
    if isinstance(turns, list):
        if turns and all(isinstance(turn, str) for turn in turns):
            turns = [_of_text(text, i, where=f"$.{name}[{i}]") for i, text in enumerate(turns)]
        turns = [
            message
            for i, turn in enumerate(turns)
            for message in (_plain(turn) or _messages(turn, where=f"$.{name}[{i}]"))
        ]
    try:
        return chat.read({**row, "messages": turns}, number)
    except Refused as refused:
        raise Refused(refused.code, refused.reason.replace("$.messages", f"$.{name}")) from None


def _of_text(text: str, number: int, *, where: str) -> dict[str, str]:
    if _JSON_TURN.match(text):
        raise Refused("wrong_type", f"a turn as JSON text at {where}; give objects, or the JSON of the whole list")
    return {"role": "assistant" if number % 2 else "user", "content": text}


def _plain(turn: Any) -> tuple[dict[str, Any]] | None:
    """Return the message of a turn that has nothing but a sender and a text, as nearly all; None for any other."""
    if type(turn) is dict and len(turn) == 2 and "from" in turn and type(turn.get("value")) is str:
        return ({"role": turn["from"], "content": turn["value"]},)
    return None


def _messages(turn: Any, *, where: str) -> Iterator[dict[str, Any]]:
    """Yield the messages of a turn, or of an exchange: its question, and its answer with all that messages may have."""
    if not isinstance(turn, dict):
        raise Refused("wrong_type", f"expected `object`, got `{type_name(turn)}` at {where}")
    if {"input", "output"} <= turn.keys() <= _EXCHANGE.keys():
        turn = {_EXCHANGE[key]: value for key, value in turn.items()}
    if "human" not in turn:
        yield _message(turn, where=where)
        return
    if "assistant" not in turn:
        raise Refused("wrong_type", f"no field `assistant` at {where}")
    of_answer = {key: value for key, value in turn.items() if key in chat.MessageFields.__struct_fields__}
    others = {key: value for key, value in turn.items() if key not in (*of_answer, "system", "human", "assistant")}
    if turn.get("system"):
        yield {"role": "system", "content": turn["system"]}
    yield {**others, "role": "user", "content": turn["human"]}
    yield {**of_answer, "role": "assistant", "content": turn["assistant"]}


def _message(turn: dict[str, Any], *, where: str) -> dict[str, Any]:
    role, other = turn.get("from"), turn.get("role")
    if role is None and other is None:
        raise Refused("wrong_type", f"no field `from` at {where}")
    if role is not None and other is not None:
        are_names = isinstance(role, str) and isinstance(other, str)
        if not are_names or role_of(other, where=where) != role_of(role, where=where):
            raise Refused("wrong_type", f"`from` and `role` say different things at {where}")
    content = coalesce_aliases({name: turn.get(name) for name in ("value", "content")}, where=where)
    message = {"role": other if role is None else role} | ({} if content is None else {"content": content})
    return message | {key: value for key, value in turn.items() if key not in _TURN}


SCHEMA = RowSchema(
    needs=(("conversations", "conversation"),),
    rows=(TurnsRow,),
    read=read,
    help="`conversations` of `from`/`value` (human, gpt, system, function_call, observation), of exchanges "
    "(`human`/`assistant`, `input`/`output`), or of texts in turn; `tools` as a JSON string",
    is_templated=True,
    json_fields=("conversations", "conversation"),
)
