"""From a column of Arrow to the values a row of JSON would have.

A struct cannot leave a field out, so a null in a struct says that the row has no such field; `datasets` fills in every
key that some row has. The `content` of a message is the exception: a call of OpenAI's has a null there, and the key.
Nulls in lists and in maps, which can leave things out, stay. NaN is how pandas writes a missing number: it is null.

JSON has no timestamps, bytes or decimals. Where packer would read one the row is refused; in a field of a message that
nobody reads, it is left out.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from packer.source.chat import MessageFields
from packer.source.decode import Refused
from packer.source.row import nested_json, type_name

Convert: TypeAlias = Callable[[Any], Any]

_READ_OF_MESSAGES = frozenset({"role", "content", "from", "value", "human", "assistant"}) | frozenset(
    MessageFields.__struct_fields__
)

_types = pa.types
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)


def holds_messages(kind: pa.DataType) -> bool:
    """Whether the type is one that messages have: lists of objects."""
    return isinstance(kind, _LISTS) and _types.is_struct(kind.value_type)


def converter(kind: pa.DataType, name: str) -> Convert | None:
    """Return a converter from the Python values of a column to JSON, or None if none is needed."""
    if holds_messages(kind):
        return _list(_struct(kind.value_type, f"$.{name}[]", of_messages=True))
    return _convert(kind, f"$.{name}")


def _convert(kind: pa.DataType, where: str) -> Convert | None:
    """As :func:`converter`, of any value; no converter is given a null."""
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json":
        return partial(nested_json, where=where)  # `datasets` keeps values of mixed types so
    kind = _plain(kind)
    if isinstance(kind, _LISTS):
        inner = _convert(kind.value_type, f"{where}[]")
        return None if inner is None else _list(inner)
    if _types.is_struct(kind):
        return _struct(kind, where, of_messages=False)
    if _types.is_map(kind):
        return _map(kind, where)
    if _types.is_floating(kind):
        return partial(_number, where)
    return None if _is_json(kind) else partial(_refuse, str(kind), where)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of the values, however they are laid out."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif _types.is_dictionary(kind) or _types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def _struct(kind: pa.StructType, where: str, *, of_messages: bool) -> Convert:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    left_out = frozenset(
        field.name for field in fields if of_messages and field.name not in _READ_OF_MESSAGES and is_foreign(field.type)
    )
    converts = {
        field.name: convert
        for field in fields
        if field.name not in left_out and (convert := _convert(field.type, f"{where}.{field.name}")) is not None
    }
    nullable = "content" if of_messages else None

    def of_struct(value: dict[str, Any]) -> Any:
        found = {}
        for name, item in value.items():
            if name in left_out:
                continue
            convert = converts.get(name)
            plain = item if convert is None or item is None else convert(item)
            if plain is not None or name == nullable:
                found[name] = plain
        return found

    def of_texts(value: dict[str, Any]) -> Any:
        return {name: item for name, item in value.items() if item is not None or name == nullable}

    return of_struct if converts or left_out else of_texts


def _list(inner: Convert) -> Convert:
    return lambda value: [None if item is None else inner(item) for item in value]


def _map(kind: pa.MapType, where: str) -> Convert:
    key, item = _convert(kind.key_type, f"{where} (a key)"), _convert(kind.item_type, f"{where}{{}}")

    def of_map(value: list[tuple[Any, Any]]) -> Any:
        found: dict[str, Any] = {}
        for name, entry in value:
            plain_name = name if key is None else key(name)
            if not isinstance(plain_name, str):
                raise Refused("wrong_type", f"expected `str`, got `{type_name(plain_name)}` for a key at {where}")
            if plain_name in found:
                raise Refused("duplicate_key", f"an object has the key `{plain_name[:40]}` twice")
            found[plain_name] = entry if item is None or entry is None else item(entry)
        return found

    return of_map


def _number(where: str, value: float) -> float | None:
    if math.isinf(value):
        raise Refused("wrong_type", f"a number is infinite at {where}")
    return None if math.isnan(value) else value


def _refuse(kind: str, where: str, _: Any) -> None:
    raise Refused("wrong_type", f"expected a JSON value, got `{kind}` at {where}")


def is_text(kind: pa.DataType) -> bool:
    """Whether values of the type are texts, however they are laid out."""
    kind = _plain(kind)
    return bool(_types.is_string(kind) or _types.is_large_string(kind) or _types.is_string_view(kind))


def _is_json(kind: pa.DataType) -> bool:
    return bool(is_text(kind) or _types.is_boolean(kind) or _types.is_integer(kind) or _types.is_null(kind))


def is_foreign(kind: pa.DataType) -> bool:
    """Whether values of the type, or in it, may be none of JSON's."""
    kind = _plain(kind)
    if kind.num_fields:
        return any(is_foreign(kind.field(i).type) for i in range(kind.num_fields))
    return not (_is_json(kind) or _types.is_floating(kind))
