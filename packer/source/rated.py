"""Schema `rated`: an answer labeled desirable or undesirable, as used by KTO.

The row has another schema plus a boolean `label`, and is read by that schema's own reader. The answer is the whole
`completion`, or what the assistant says after the last user message of a chat.
"""

from typing import Any

import msgspec

from packer.batches import Preference, Sample
from packer.source import alpaca, chat, completion, sharegpt
from packer.source.decode import Refused, type_name
from packer.source.preference import refuse_empty_answer, untrained_context
from packer.source.row import RowSchema

_SCHEMAS = (chat.SCHEMA, sharegpt.SCHEMA, completion.SCHEMA, alpaca.SCHEMA)
"""Schemas of rated answers; a row that fits several is read by the first."""


class RatedRow(msgspec.Struct, frozen=True, kw_only=True):
    label: bool


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"prompt": "…", "completion": "…", "label": true}``, or `messages`, or another form of a chat, and `label`."""
    label = row["label"]
    if not isinstance(label, bool):
        raise Refused("wrong_type", f"expected `bool`, got `{type_name(label)}` at $.label")
    schema = _schema_of(row)
    if schema is None:
        raise Refused("unknown_schema", "no answer that could be rated: `completion`, `messages` or another")
    prompt, answer = row.get("prompt"), row.get("completion")
    if schema is completion.SCHEMA and isinstance(prompt, list) and isinstance(answer, list):
        sample = chat.read(row | {"messages": [*prompt, *answer]}, number)
        num_context = len(chat.read(row | {"messages": prompt}, number).messages) if prompt else 0
        return _rated(sample, num_context, is_desirable=label)
    sample = schema.read(row, number)
    asked = [i for i, message in enumerate(sample.messages) if message.role == "user"]
    return _rated(sample, max(asked, default=-1) + 1, is_desirable=label)


def _schema_of(row: Any) -> RowSchema | None:
    return next((schema for schema in _SCHEMAS if schema.missing(row) is None), None)


def _rated(sample: Sample, num_context: int, *, is_desirable: bool) -> Sample:
    """Return the sample with its rating; its first `num_context` messages are not trained."""
    preference = Preference(is_desirable=is_desirable)
    if sample.kind == "completion":
        if not sample.prompt.strip():
            raise Refused("pair_no_prompt", "`prompt` is empty")
        return msgspec.structs.replace(sample, preference=preference)
    context, answer = untrained_context(sample.messages[:num_context]), sample.messages[num_context:]
    refuse_empty_answer(answer, "the rated answer is empty")
    return msgspec.structs.replace(sample, messages=context + answer, preference=preference)


SCHEMA = RowSchema(
    needs=(("label",), ("messages", "conversations", "conversation", "completion", "output", "response")),
    rows=(RatedRow, *(shape for schema in _SCHEMAS for shape in schema.rows)),
    read=read,
    compares="rated answers",
    help="`label`, true or false, beside a row of `messages`, `sharegpt`, `completion` or `alpaca` whose last answer "
    "it is about",
    accepts=lambda row: isinstance(row["label"], bool) and _schema_of(row) is not None,
)
