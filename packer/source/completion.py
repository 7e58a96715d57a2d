"""Schema `completion`: a prompt and its continuation, as strings, or as messages in TRL's conversational form."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from packer.batches import Sample
from packer.recipe.named_options import flow_mapping
from packer.source.chat import ChatMessage, chat_sample, read_messages, with_flag
from packer.source.decode import Refused, type_name, typed
from packer.source.message_parts import is_setting
from packer.source.row import RowFields, RowSchema, drop_empty_optional_fields, sample_id
from packer.source.unsupported_rows import may_have_media_tags, refuse_media_tags

_CHAT_FIELDS = ("system", "tools", "functions")
_AS_ALPACA = {"instruction": "prompt", "output": "completion"}
"""Columns that make a row of strings one of schema `alpaca`, which has a place for all that a chat has."""


class StringsRow(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str
    completion: str


class MessagesRow(RowFields, frozen=True, kw_only=True):
    prompt: list[ChatMessage]
    completion: list[ChatMessage]
    reasoning: str | None = None


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"prompt": "…", "completion": "…"}``, or both lists of messages: only those of `completion` are trained."""
    row = drop_empty_optional_fields(row, "prompt", "completion")
    prompt, completion = row.get("prompt"), row.get("completion")
    if isinstance(prompt, list) and isinstance(completion, dict) and "role" in completion:
        row = {**row, "completion": (completion := [completion])}
    if isinstance(prompt, list) and isinstance(completion, str) and completion.strip():
        answer = {"role": "assistant", "content": completion}
        if row.get("reasoning") and not is_setting(row["reasoning"]):
            answer["reasoning_content"] = row["reasoning"]
        completion = [answer]
        row = {**row, "completion": completion}
    if isinstance(prompt, list) != isinstance(completion, list):
        raise Refused("wrong_type", f"`prompt` is `{type_name(prompt)}`, but `completion` is `{type_name(completion)}`")
    if isinstance(prompt, list):
        return _chat(row, number)
    refuse_chat_fields(row, columns=_AS_ALPACA)
    strings = typed(row, StringsRow)
    if not strings.completion or strings.completion.isspace():
        raise Refused("empty", "`completion` is empty")
    refuse_media_tags(strings.prompt, is_asked=True)
    refuse_media_tags(strings.completion)
    return Sample(
        kind="completion", row=number, prompt=strings.prompt, text=strings.completion, sample_id=sample_id(row)
    )


def _read_plain(rows: Sequence[Mapping[str, Any]], first: int) -> list[Sample | None]:
    return [
        Sample(kind="completion", row=number, prompt=prompt, text=text, sample_id=own_id)
        if type(prompt) is str
        and type(text) is str
        and (text and not text.isspace())
        and not (may_have_media_tags(prompt, is_asked=True) or "<img>" in text)
        and "[" not in prompt.lstrip()[:1] + text.lstrip()[:1]  # with which the JSON of messages begins
        else None
        for number, prompt, text, own_id in zip(
            count(first),
            [row.get("prompt") if row.keys().isdisjoint(_CHAT_FIELDS) else None for row in rows],
            [row.get("completion") for row in rows],
            map(sample_id, rows),
        )
    ]


def refuse_chat_fields(row: dict[str, Any], *, columns: Mapping[str, str]) -> None:
    """Refuse fields that only a chat has, in a row of strings; the reason suggests `columns` that make it a chat."""
    unused = next((name for name in _CHAT_FIELDS if row.get(name)), None)
    if unused is not None:
        raise Refused(
            "wrong_type",
            f"strings have no place for `{unused}`; `columns: {flow_mapping(columns)}` reads the row as alpaca, "
            "which has; "
            f"`columns: {{{unused}: null}}` leaves it out",
        )


def _chat(row: dict[str, Any], number: int) -> Sample:
    shape = typed(row, MessagesRow)
    if not shape.completion:
        raise Refused("empty", "`completion` has no messages")
    prompt = [
        with_flag(message, trained=False) for message in read_messages(row["prompt"], shape.prompt, where="$.prompt")
    ]
    completion = read_messages(row["completion"], shape.completion, where="$.completion")
    trained = [message if message.trained is not None else with_flag(message, trained=True) for message in completion]
    return chat_sample(row, shape, [*prompt, *trained], number=number)


SCHEMA = RowSchema(
    needs=(("prompt",), ("completion",)),
    rows=(StringsRow, MessagesRow),
    read=read,
    read_plain=_read_plain,
    help="`prompt` and `completion`, both text or both lists of messages, or messages and the text of the answer",
    message_fields=("prompt", "completion"),
)
