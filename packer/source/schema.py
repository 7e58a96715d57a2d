"""The schemas of rows: which fields tell them apart, and who reads them."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from packer.batches import Sample
from packer.source import alpaca, chat, completion, sharegpt, tokens
from packer.source.decode import Refused
from packer.source.row import type_name
from packer.source.unsupported_rows import is_preference, refuse_unsupported

Schema = Literal["messages", "sharegpt", "alpaca", "completion", "text", "tokens"]

_READERS: dict[Schema, Callable[[dict[str, Any], int], Sample]] = {
    "messages": chat.read,
    "sharegpt": sharegpt.read,
    "alpaca": alpaca.read,
    "completion": completion.read,
    "text": completion.read_text,
    "tokens": tokens.read,
}

FIELDS: dict[Schema, tuple[tuple[str, ...], ...]] = {
    "tokens": (("input_ids",), tokens.MARKS),
    "messages": (("messages",),),
    "sharegpt": (("conversations", "conversation"),),
    "completion": (("prompt",), ("completion",)),
    "alpaca": (("instruction", "query"), ("output", "response")),
    "text": (("text",),),
}
"""What a row of a schema has: one field of every group. In the order in which a row that fits several is taken."""


def missing_field(row: dict[str, Any], schema: Schema) -> tuple[str, ...] | None:
    """The first group of fields of which the row has none; None where the row fits the schema."""
    for group in FIELDS[schema]:
        for name in group:
            if row.get(name) is not None:
                break
        else:
            return group
    return None


def schema_of(row: dict[str, Any]) -> Schema | None:
    """The schema a row votes for, or None.

    A preference pair is voted for by what else it has, so that a file of pairs gets a schema, and its rows get their
    reason: prompts by the schema they open, bare pairs as `messages` or, where they are strings, as `text`. So do ids
    without a word on what is trained.
    """
    for schema in FIELDS:
        if missing_field(row, schema) is None:
            return schema
    if not is_preference(row):
        return "tokens" if row.get("input_ids") is not None else None
    for schema in ("alpaca", "completion"):
        if missing_field(row, schema) != FIELDS[schema][0]:
            return schema
    return "text" if isinstance(row.get("chosen"), str) else "messages"


def rename(row: dict[str, Any], columns: Mapping[str, str | None]) -> dict[str, Any]:
    """The row under its new names, as `columns` of a source says.

    `columns` maps a new name to the name in the rows, or to None, which hides the field. A renamed field is gone under
    its old name, and a new name covers a field that had it already.

    Example:
        >>> rename({"q": "2+2?", "a": "4", "label": True}, {"instruction": "q", "output": "a", "label": None})
        {'instruction': '2+2?', 'output': '4'}

    """
    if not columns:
        return row
    taken = {*columns, *columns.values()}
    renamed = {name: value for name, value in row.items() if name not in taken}
    renamed |= {new: row[old] for new, old in columns.items() if old is not None and old in row}
    return renamed


def read_row(value: Any, *, number: int, schema: Schema, columns: Mapping[str, str | None]) -> Sample:
    """One decoded row as a sample.

    Args:
        value: The decoded JSON.
        number: Row number from 0 within the partition.
        schema: How to read it.
        columns: New name of a field → its name in the row, or None to hide it.

    Raises:
        Refused: the row cannot be a sample.

    """
    if not isinstance(value, dict):
        raise Refused("wrong_type", f"expected `object`, got `{type_name(value)}`")
    row = rename(value, columns)
    refuse_unsupported(row, rated=schema != "text")
    missing = missing_field(row, schema)
    if missing is not None:
        if missing == tokens.MARKS:
            raise Refused("no_labels", f"neither labels nor a mask: none of {', '.join(missing)}")
        raise Refused("unknown_schema", f"no field `{'` or `'.join(missing)}`, which schema {schema} needs")
    return _READERS[schema](row, number)
