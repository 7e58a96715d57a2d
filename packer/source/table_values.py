"""From a column of Arrow to the values a row of JSON would have.

A struct cannot leave a field out, so a null in a struct says that the row has no such field; `datasets` fills in every
key that some row has. The `content` of a message is the exception: a call of OpenAI's has a null there, and the key.
Nulls in lists and in maps, which can leave things out, stay. NaN is how pandas writes a missing number: it is null.

JSON has no timestamps, bytes or decimals. Where packer would read one the row is refused; in a field of a message that
nobody reads, it is left out.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

from packer.source.chat import MessageFields
from packer.source.decode import Refused, decode_json
from packer.source.row import type_name

Convert: TypeAlias = Callable[[Any], Any]

_READ_OF_MESSAGES = frozenset({"role", "content", "from", "value", "human", "assistant"}) | frozenset(
    MessageFields.__struct_fields__
)

_types = pa.types


def converter(kind: pa.DataType, name: str) -> Convert | None:
    """Return a converter from the Python values of a column to JSON, or None if none is needed."""
    if _is_list(kind) and _types.is_struct(kind.value_type):
        return _of_list(_struct(kind.value_type, f"$.{name}[]", of_messages=True))
    return _convert(kind, f"$.{name}")


def _convert(kind: pa.DataType, where: str) -> Convert | None:
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.json":  # `datasets` keeps values of mixed types so
            return lambda value: None if value is None else _decoded(value, where)
        return _convert(kind.storage_type, where)
    if _types.is_dictionary(kind) or _types.is_run_end_encoded(kind):
        return _convert(kind.value_type, where)
    if _is_list(kind):
        inner = _convert(kind.value_type, f"{where}[]")
        return _of_list(inner) if inner is not None else None
    if _types.is_struct(kind):
        return _struct(kind, where, of_messages=False)
    if _types.is_map(kind):
        return _map(kind, where)
    if _types.is_floating(kind):
        return lambda value: _number(value, where)
    if _is_json(kind):
        return None
    return lambda value: _refuse(value, str(kind), where)


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

    def of_struct(value: Any) -> Any:
        if value is None:
            return None
        found = {}
        for name, item in value.items():
            if name in left_out:
                continue
            convert = converts.get(name)
            plain = item if convert is None or item is None else convert(item)
            if plain is not None or name == nullable:
                found[name] = plain
        return found

    def of_texts(value: Any) -> Any:
        if value is None:
            return None
        return {name: item for name, item in value.items() if item is not None or name == nullable}

    return of_struct if converts or left_out else of_texts


def _of_list(inner: Convert) -> Convert:
    return lambda value: None if value is None else [inner(item) for item in value]


def _map(kind: pa.MapType, where: str) -> Convert:
    key, item = _convert(kind.key_type, f"{where} (a key)"), _convert(kind.item_type, f"{where}{{}}")

    def of_map(value: Any) -> Any:
        if value is None:
            return None
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


def _decoded(text: str, where: str) -> Any:
    try:
        return decode_json(text.encode())
    except Refused as refused:
        raise Refused(refused.code, f"the JSON at {where}: {refused.reason}") from None


def _number(value: float | None, where: str) -> float | None:
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        raise Refused("wrong_type", f"a number is infinite at {where}")
    return value


def _refuse(value: Any, kind: str, where: str) -> None:
    if value is not None:
        raise Refused("wrong_type", f"expected a JSON value, got `{kind}` at {where}")


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        _types.is_list(kind)
        or _types.is_large_list(kind)
        or _types.is_fixed_size_list(kind)
        or _types.is_list_view(kind)
        or _types.is_large_list_view(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether values of the type are texts, however they are laid out."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_text(kind.storage_type)
    if _types.is_dictionary(kind) or _types.is_run_end_encoded(kind):
        return is_text(kind.value_type)
    return bool(_types.is_string(kind) or _types.is_large_string(kind) or _types.is_string_view(kind))


def _is_json(kind: pa.DataType) -> bool:
    return bool(is_text(kind) or _types.is_boolean(kind) or _types.is_integer(kind) or _types.is_null(kind))


def is_foreign(kind: pa.DataType) -> bool:
    """Whether values of the type, or in it, may be none of JSON's."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_foreign(kind.storage_type)
    if _types.is_dictionary(kind) or _types.is_run_end_encoded(kind):
        return is_foreign(kind.value_type)
    if kind.num_fields:
        return any(is_foreign(kind.field(i).type) for i in range(kind.num_fields))
    return not (_is_json(kind) or _types.is_floating(kind))
