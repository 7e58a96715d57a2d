"""Schema `completion`: a prompt and its continuation, as strings, or as messages in TRL's conversational form."""

from typing import Any

import msgspec

from packer.batches import Sample
from packer.source.chat import ChatMessage, chat_sample, read_messages, with_weight
from packer.source.decode import Refused
from packer.source.row import RowFields, RowSchema, drop_empty_optional_fields, sample_id, type_name, typed
from packer.source.synonyms import refuse_lost
from packer.source.unsupported_rows import refuse_media_tags


class StringsRow(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str
    completion: str
    reasoning: str | None = None
    """Always refused: there is no template to write it."""

    input: Any = None
    context: Any = None
    """Both are refused unless the prompt contains them."""


class MessagesRow(RowFields, frozen=True, kw_only=True):
    prompt: list[ChatMessage]
    completion: list[ChatMessage]
    reasoning: str | None = None


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"prompt": "…", "completion": "…"}``, or both lists of messages: only those of `completion` are trained.

    Raises:
        Refused: the row cannot be a sample.

    """
    row = drop_empty_optional_fields(row, "prompt", "completion")
    prompt, completion = row.get("prompt"), row.get("completion")
    if "reasoning" in row:
        raise Refused(
            "wrong_type",
            "a completion has no place for `reasoning`; `columns: {instruction: prompt, output: completion}` reads the "
            "row as alpaca, which has; `columns: {reasoning: null}` leaves it out",
        )
    if isinstance(prompt, list) != isinstance(completion, list):
        raise Refused("wrong_type", f"`prompt` is `{type_name(prompt)}`, but `completion` is `{type_name(completion)}`")
    for name in ("input", "context"):
        as_alpaca = None if isinstance(prompt, list) else f"instruction: prompt, input: {name}, output: completion"
        reason = f"a completion has no place for `{name}`"
        refuse_lost(row, name, reason, read=("prompt", "completion"), columns=as_alpaca)
    if isinstance(prompt, list):
        return _chat(row, number)
    refuse_chat_fields(row, columns="instruction: prompt, output: completion")
    strings = typed(row, StringsRow)
    if not strings.completion or strings.completion.isspace():
        raise Refused("empty", "`completion` is empty")
    refuse_media_tags(strings.prompt)
    refuse_media_tags(strings.completion)
    return Sample(
        kind="completion", row=number, prompt=strings.prompt, text=strings.completion, sample_id=sample_id(row)
    )


def refuse_chat_fields(row: dict[str, Any], *, columns: str) -> None:
    """Refuse fields that only a chat has, in a row of strings; the reason suggests `columns` that make it a chat.

    Raises:
        Refused: `wrong_type`.
    """
    unused = next((name for name in ("system", "tools", "functions") if row.get(name)), None)
    if unused is not None:
        raise Refused(
            "wrong_type",
            f"strings have no place for `{unused}`; `columns: {{{columns}}}` reads the row as alpaca, which has; "
            f"`columns: {{{unused}: null}}` leaves it out",
        )


def _chat(row: dict[str, Any], number: int) -> Sample:
    shape = typed(row, MessagesRow)
    if not shape.completion:
        raise Refused("empty", "`completion` has no messages")
    prompt = [with_weight(message, 0.0) for message in read_messages(row["prompt"], shape.prompt, where="$.prompt")]
    completion = read_messages(row["completion"], shape.completion, where="$.completion")
    trained = [message if message.weight is not None else with_weight(message, 1.0) for message in completion]
    return chat_sample(row, shape, [*prompt, *trained], number=number)


SCHEMA = RowSchema(
    needs=(("prompt",), ("completion",)),
    rows=(StringsRow, MessagesRow),
    read=read,
    help="`prompt` and `completion`, both text or both lists of messages",
    message_fields=("prompt", "completion"),
)
