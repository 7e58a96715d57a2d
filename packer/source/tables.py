"""Reads rows of Parquet and Arrow files as the values that a JSON row would have.

A struct cannot omit a field, so a null in a struct means that the row lacks the field; `datasets` adds every key that
any row has. The exception is `content` of a message: OpenAI's messages with calls have that key with a null. Nulls in
lists and in maps, which can omit entries, are kept. NaN is null: pandas writes it for a missing number.

JSON has no timestamps, bytes or decimals. If packer needs the value, the row is refused; in a field of a message that
is not read, it is omitted. In a field that only rules ask about, a time is its ISO text, a decimal is a number, and
anything else is omitted, so that the rest of a struct can be asked about.
"""

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from packer.host.watchdog import MAX_GROWTH_BYTES, OverMemoryError, bounded
from packer.source.chat import MessageFields
from packer.source.decode import Refused, nested_json, type_name
from packer.source.file_bytes import FilePath, Format
from packer.source.row import ID_FIELDS, Columns, FileRow, row_too_large_error
from packer.source.schema import columns_with_fields
from packer.source.table_files import GroupRange, batch_bytes, read_errors, record_batches
from packer.source.unsupported_rows import END_IN_TEXT, IMAGE_FIELDS, MEDIA_FIELDS, PREFERENCE_FIELDS

Convert: TypeAlias = Callable[[Any], Any]

_MESSAGE_KEYS = frozenset({"role", "content", "from", "value", "human", "assistant"}) | frozenset(
    MessageFields.__struct_fields__
)

_types = pa.types
_VIEWS = (pa.ListViewType, pa.LargeListViewType)
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, *_VIEWS)


def holds_messages(kind: pa.DataType) -> bool:
    """Whether the type is one that messages have: a list of structs."""
    return isinstance(kind, _LISTS) and _types.is_struct(kind.value_type)


def converter(kind: pa.DataType, name: str, *, for_rules: bool = False) -> Convert | None:
    """Return a converter from the Python values of a column to JSON, or None if none is needed."""
    if holds_messages(kind):
        message = _struct_converter(kind.value_type, f"$.{name}[]", of_messages=True, for_rules=for_rules)
        return _list_converter(message)
    return _converter(kind, f"$.{name}", for_rules=for_rules)


def _converter(kind: pa.DataType, where: str, *, for_rules: bool = False) -> Convert | None:
    """Return a converter for values of any type, not only for messages; converters are never called with a null.

    `for_rules`: convert or omit a value that JSON does not have, instead of refusing the row.
    """
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json":
        return partial(nested_json, where=where)  # how `datasets` stores values of mixed types
    kind = _storage_type(kind)
    if isinstance(kind, _LISTS):
        inner = _converter(kind.value_type, f"{where}[]", for_rules=for_rules)
        return None if inner is None else _list_converter(inner)
    if _types.is_struct(kind):
        return _struct_converter(kind, where, of_messages=False, for_rules=for_rules)
    if _types.is_map(kind):
        return _map_converter(kind, where, for_rules=for_rules)
    if _is_json(kind):
        return None
    if for_rules:
        return _value_for_rules
    return partial(_convert_number, where) if _types.is_floating(kind) else partial(_refuse_type, str(kind), where)


def _storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, regardless of their encoding."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif _types.is_dictionary(kind) or _types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def _struct_converter(kind: pa.StructType, where: str, *, of_messages: bool, for_rules: bool = False) -> Convert:
    converts: dict[str, Convert] = {}
    for field in (kind.field(i) for i in range(kind.num_fields)):
        is_unread = of_messages and not for_rules and field.name not in _MESSAGE_KEYS
        if is_unread and is_foreign(field.type):
            converts[field.name] = lambda _: None
        elif (convert := _converter(field.type, f"{where}.{field.name}", for_rules=for_rules)) is not None:
            converts[field.name] = convert
    nullable = "content" if of_messages else None

    def of_texts(value: dict[str, Any]) -> Any:
        return {name: item for name, item in value.items() if item is not None or name == nullable}

    def of_struct(value: dict[str, Any]) -> Any:
        return of_texts(
            {
                name: item if item is None or (convert := converts.get(name)) is None else convert(item)
                for name, item in value.items()
            }
        )

    return of_struct if converts else of_texts


def _list_converter(inner: Convert) -> Convert:
    return lambda value: [None if item is None else inner(item) for item in value]


def _map_converter(kind: pa.MapType, where: str, *, for_rules: bool) -> Convert:
    key = _converter(kind.key_type, f"{where} (a key)", for_rules=for_rules)
    item = _converter(kind.item_type, f"{where}{{}}", for_rules=for_rules)

    def of_map(value: list[tuple[Any, Any]]) -> Any:
        found: dict[str, Any] = {}
        for name, entry in value:
            plain_name = name if key is None else key(name)
            if not isinstance(plain_name, str):
                raise Refused("wrong_type", f"expected `str`, got `{type_name(plain_name)}` for a key at {where}")
            found[plain_name] = entry if item is None or entry is None else item(entry)
        return found

    return of_map


def _convert_number(where: str, value: float) -> float | None:
    if math.isinf(value):
        raise Refused("wrong_type", f"a number is infinite at {where}")
    return None if math.isnan(value) else value


def _refuse_type(kind: str, where: str, _: Any) -> None:
    raise Refused("wrong_type", f"expected a JSON value, got `{kind}` at {where}")


def _value_for_rules(value: Any) -> Any:
    """Return what rules compare a value with that JSON does not have; None if they compare it with nothing."""
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value if isinstance(value, float) and math.isfinite(value) else None


def _without_nanoseconds(kind: pa.DataType) -> pa.DataType:
    """Return the type with times in microseconds, in UTC if they have a zone.

    Python has no finer ones: what a value of nanoseconds becomes would depend on whether pandas is installed.
    """
    if _types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if _types.is_duration(kind):
        return pa.duration("us")
    if _types.is_time64(kind):
        return pa.time64("us")
    if _types.is_dictionary(kind):
        values = _without_nanoseconds(kind.value_type)
        return kind if values == kind.value_type else values
    if _types.is_map(kind):
        return pa.map_(_without_nanoseconds(kind.key_type), _without_nanoseconds(kind.item_type))
    if not (_types.is_struct(kind) or isinstance(kind, _LISTS)) or isinstance(kind, _VIEWS):
        return kind
    fields = [kind.field(i) for i in range(kind.num_fields)]
    changed = [field.with_type(_without_nanoseconds(field.type)) for field in fields]
    if changed == fields:
        return kind
    return pa.struct(changed) if _types.is_struct(kind) else pa.list_(changed[0])


def is_text(kind: pa.DataType) -> bool:
    """Whether values of the type are texts, regardless of their encoding."""
    kind = _storage_type(kind)
    return bool(_types.is_string(kind) or _types.is_large_string(kind) or _types.is_string_view(kind))


def is_searched(kind: pa.DataType) -> bool:
    """Whether values of the type are texts, or contain some, or flags."""
    if _types.is_map(kind) or isinstance(kind, pa.BaseExtensionType):
        return True
    kind = _storage_type(kind)
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if _types.is_fixed_size_list(kind) and _types.is_floating(inner[0]):
        return False  # an embedding
    return is_text(kind) or any(_is_json(each) or _types.is_floating(each) or is_searched(each) for each in inner)


def _is_json(kind: pa.DataType) -> bool:
    return bool(is_text(kind) or _types.is_boolean(kind) or _types.is_integer(kind) or _types.is_null(kind))


def is_foreign(kind: pa.DataType) -> bool:
    """Whether the type has, or contains, values that JSON does not have."""
    kind = _storage_type(kind)
    if kind.num_fields:
        return any(is_foreign(kind.field(i).type) for i in range(kind.num_fields))
    return not (_is_json(kind) or _types.is_floating(kind))


_SLICE_ROWS = 1000
"""Number of rows of a record batch that are converted to Python values at a time."""

_MEMORY_RATIO = 8
"""Memory for the Python values of rows, in multiples of `rows.max_bytes`: a text may take 4 times its bytes."""

_OPTIONAL_FIELDS = (*ID_FIELDS, *PREFERENCE_FIELDS, "label")
"""Fields that are ignored if their type is not one of JSON's."""


def table_rows(
    path: FilePath,
    kind: Format,
    names: Mapping[str, bool],
    *,
    columns: Columns,
    max_row_bytes: int,
    some: GroupRange | None = None,
    fields: Sequence[str] = (),
) -> Iterator[FileRow]:
    """Yield the rows of a file, or those from the start of a range to the end of its groups.

    Only the columns in `names` are read, and the size of a row is that of these columns; of those with false, only
    texts that may say how an answer ended. `columns` determines which of them contain media, which are only checked for
    presence, and in which a text is JSON. The columns in `fields` are read in addition, and do not affect the rows.
    """
    reader = _ColumnReader([*names], columns)
    skip = 0 if some is None else some.skip
    with read_errors(path, kind):
        for batch in record_batches(path, kind, [*dict.fromkeys((*names, *fields))], some):
            num_skipped = min(skip, batch.num_rows)
            skip -= num_skipped
            selected = batch.select(list(names))  # reading a name with a dot may add others
            for name in (name for name, is_whole in names.items() if not is_whole):
                place = selected.schema.get_field_index(name)
                selected = selected.set_column(place, name, _of_ends(selected.column(place)))
            for start in range(num_skipped, selected.num_rows, _SLICE_ROWS):
                rows = _rows(selected.slice(start, _SLICE_ROWS), max_row_bytes, reader)
                if fields:
                    values = _field_values(batch.select(list(fields)).slice(start, _SLICE_ROWS))
                    rows = map(lambda row, own: msgspec.structs.replace(row, fields=own), rows, values)
                yield from rows


def _field_values(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield each row of a batch as an object of JSON, for rules."""
    columns: list[tuple[str, Any, Convert | None]] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        convert, times = converter(column.type, name, for_rules=True), _without_nanoseconds(column.type)
        columns.append((name, column if times == column.type else column.cast(times, safe=False), convert))
    for i in range(batch.num_rows):
        found = {}
        for name, column, convert in columns:
            with suppress(Refused, ValueError, ArithmeticError):  # including invalid UTF-8
                value = column[i].as_py()
                found[name] = value if convert is None or value is None else convert(value)
        yield found


def _rows(batch: pa.RecordBatch, max_row_bytes: int, reader: "_ColumnReader") -> Iterator[FileRow]:
    """Yield the rows of a batch; one by one if some may be too large, or if a text is not UTF-8."""
    num_bytes, is_single = batch_bytes(batch), batch.num_rows == 1
    is_measured = num_bytes > max_row_bytes or any(map(_shares_values, batch.schema.types))
    values: list[tuple[dict[str, Any] | Refused, int]] | None = None
    try:
        with bounded(num_bytes=MAX_GROWTH_BYTES + _MEMORY_RATIO * max_row_bytes):
            if num_bytes <= max_row_bytes or is_single:
                part = num_bytes // max(batch.num_rows, 1)
                values = [(row, len(str(row)) if is_measured else part) for row in reader.rows(batch)]
    except UnicodeDecodeError:
        values = [(Refused("not_utf8", "a text is not valid UTF-8"), num_bytes)] if is_single else None
    except OverMemoryError:  # values may be shared by rows
        if is_single:
            raise
    if values is None:
        for i in range(batch.num_rows):
            yield from _rows(batch.slice(i, 1), max_row_bytes, reader)
        return
    for row, size in values:
        is_too_large = size > max_row_bytes and isinstance(row, dict)
        yield FileRow(row_too_large_error(max_row_bytes) if is_too_large else row, None, size)


def _shares_values(kind: pa.DataType) -> bool:
    """Whether rows may share the bytes of their values, so that each takes more memory than its part of the batch."""
    if _types.is_dictionary(kind) or _types.is_run_end_encoded(kind) or _types.is_string_view(kind):
        return True
    return isinstance(kind, _VIEWS) or any(_shares_values(kind.field(i).type) for i in range(kind.num_fields))


class _ColumnReader:
    """Converts record batches to rows; knows which columns need special treatment."""

    def __init__(self, names: Sequence[str], columns: Columns) -> None:
        self._images, self._media, self._optional = (
            columns_with_fields(each, names, columns) for each in (IMAGE_FIELDS, MEDIA_FIELDS, _OPTIONAL_FIELDS)
        )

    def rows(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any] | Refused]:
        columns = [
            (name, *self._values(name, column)) for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        for i in range(batch.num_rows):
            try:
                yield {
                    name: plain
                    for name, values, convert in columns
                    if (value := values[i]) is not None
                    and (plain := value if convert is None else convert(value)) is not None
                }
            except Refused as refused:
                yield refused

    def _values(self, name: str, column: pa.Array) -> tuple[list[Any], Convert | None]:
        """Return the values of a column, and the converter that turns them into JSON values."""
        if name in self._images and (is_foreign(column.type) or is_searched(column.type)):
            return column.to_pylist(), None
        if name in self._media:
            return [bool(value) and value == value for value in column.to_pylist()], None  # noqa: PLR0124 - NaN is none
        if name in self._optional and is_foreign(column.type) and not holds_messages(column.type):
            return [None] * len(column), None
        values = column.to_pylist()
        return values, converter(column.type, name)


def _of_ends(column: pa.Array) -> pa.Array:
    """Return the texts of a column that may say how an answer ended, and no others; a nested one whole, or nothing."""
    import pyarrow.compute as pc  # noqa: PLC0415 - a twentieth of a second, not needed for JSON

    if column.type.num_fields:
        leaves = [leaf for leaf in _leaves(column) if is_text(leaf.type)]
        may_say = any(pc.any(pc.match_substring_regex(leaf, END_IN_TEXT)).as_py() for leaf in leaves)
        return column if may_say or _types.is_map(column.type) else pa.nulls(len(column))
    texts = column.cast(pa.large_string())
    return pc.if_else(pc.match_substring_regex(texts, END_IN_TEXT), texts, None)


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    if isinstance(column.type, _LISTS):
        yield from _leaves(column.flatten())
    elif _types.is_struct(column.type):
        for each in column.flatten():
            yield from _leaves(each)
    else:
        yield column
