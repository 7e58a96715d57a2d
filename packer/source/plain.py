"""Rows of the commonest forms, read without a typed view of them: nothing but words under the usual names.

Each function gives the sample that its schema's own reader gives, or None where that has to look. What a row has beside
its words does not matter, unless some schema gives it a meaning.
"""

from collections.abc import Callable
from typing import Any

from packer.batches import Message, Sample
from packer.source.roles import ROLES
from packer.source.row import RowFields, sample_id
from packer.source.unsuited import TELLING_FIELDS

Plain = Callable[[dict[str, Any], int], Sample | None]

_MEANINGFUL = TELLING_FIELDS | frozenset(RowFields.__struct_fields__)
_ALPACA = _MEANINGFUL | {"query", "response", "reasoning", "history"}
_MEDIA = "<img>"
_OPENAI = ["role", "content"]
_SHAREGPT = ["from", "value"]


def alpaca(row: dict[str, Any], number: int) -> Sample | None:
    """An instruction and its output, perhaps an input."""
    instruction, more, output = row.get("instruction"), row.get("input"), row.get("output")
    if type(instruction) is not str or type(output) is not str or not _ALPACA.isdisjoint(row):
        return None
    if more is not None and type(more) is not str:
        return None
    question = f"{instruction}\n{more}" if instruction and more else instruction or more
    if not question or _MEDIA in question or _MEDIA in output:
        return None
    messages = (
        Message(fields={"role": "user", "content": question}),
        Message(fields={"role": "assistant", "content": output}),
    )
    return Sample(kind="chat", row=number, messages=messages, sample_id=sample_id(row))


def messages(row: dict[str, Any], number: int) -> Sample | None:
    """Messages of a role and a text."""
    return _chat(row, number, row.get("messages"), _OPENAI)


def sharegpt(row: dict[str, Any], number: int) -> Sample | None:
    """Turns of a sender and a text."""
    if "conversation" in row:
        return None
    return _chat(row, number, row.get("conversations"), _SHAREGPT)


def _chat(row: dict[str, Any], number: int, turns: Any, names: list[str]) -> Sample | None:
    if type(turns) is not list or not turns or not _MEANINGFUL.isdisjoint(row):
        return None
    said = []
    for turn in turns:
        if type(turn) is not dict or [*turn] != names:
            return None
        sender, text = turn.values()
        role = ROLES.get(sender) if type(sender) is str else None
        if role is None or type(text) is not str or _MEDIA in text:
            return None
        said.append(Message(fields={"role": role, "content": text}))
    return Sample(kind="chat", row=number, messages=tuple(said), sample_id=sample_id(row))
