"""Which columns of a table packer can use, and what for: the others are never decoded."""

from collections.abc import Mapping, Sequence

import msgspec

from packer.source import alpaca, chat, completion, sharegpt, tokens
from packer.source.row import ID_FIELDS
from packer.source.schema import FIELDS, Schema
from packer.source.unsupported_rows import SUSPECT_FIELDS

JSON_FIELDS = ("messages", "conversations", "conversation", "history", "chat_template_kwargs")
"""Fields that are no texts: where a table has a text in one, it is JSON. `tools` may be JSON in every format."""

MESSAGES_FIELDS = ("prompt", "completion")
"""Fields that are texts or messages: where a table has a text in one, it may be the JSON of messages."""

_SHAPES: dict[Schema, tuple[type[msgspec.Struct], ...]] = {
    "messages": (chat.MessagesRow,),
    "sharegpt": (sharegpt.TurnsRow,),
    "alpaca": (alpaca.AlpacaRow,),
    "completion": (completion.StringsRow, completion.MessagesRow),
    "text": (completion.TextRow,),
    "tokens": (tokens.TokensRow,),
}
"""What a schema reads of a row."""


def columns_read(names: Sequence[str], schema: Schema | None, columns: Mapping[str, str | None]) -> list[str]:
    """Those of a table's columns that rows of a schema, or of any schema, are read from; in the table's order.

    Args:
        names: Columns of the table.
        schema: How rows are read; None for all that can tell a schema.
        columns: New name of a field → its name in the rows, or None to hide it.

    """
    if schema is None:
        fields = {name for groups in FIELDS.values() for group in groups for name in group} | SUSPECT_FIELDS
    else:
        fields = fields_read(schema)
    taken = {*columns, *columns.values()}
    read = {columns.get(field, field) for field in fields if field in columns or field not in taken}
    return [name for name in names if name in read]


def fields_read(schema: Schema) -> set[str]:
    """The fields that rows of a schema are read from."""
    return {name for shape in _SHAPES[schema] for name in shape.__struct_fields__} | SUSPECT_FIELDS | {*ID_FIELDS}


def columns_of(fields: Sequence[str], names: Sequence[str], columns: Mapping[str, str | None]) -> tuple[str, ...]:
    """Those of a table's columns that rows call by one of these names.

    Args:
        fields: The names in rows.
        names: Columns of the table.
        columns: New name of a field → its name in the rows, or None to hide it.

    """
    taken = set(columns.values())
    called = (columns.get(field, field) for field in fields if field in columns or field not in taken)
    return tuple(name for name in called if name is not None and name in names)
