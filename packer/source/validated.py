"""Whether a batch of Arrow is what it says, and whether its texts are UTF-8.

Arrow's own validation ends at the first text that is not, and says nothing of what stands behind it. Such a text is one
bad row, and a wrong offset a broken file: so the batch is then looked at as one of bytes, which lie in memory as texts
do.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_types = pa.types


def all_in_utf8(batch: pa.RecordBatch) -> bool:
    """Whether all texts are UTF-8; offsets and lengths are right for sure, or it raises.

    Nothing in a file may be believed before that: a wrong offset reads what lies anywhere in memory.

    Raises:
        pyarrow.ArrowInvalid: something points outside of the batch.

    """
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
        # Where buffers end is told to nobody who takes the batch over: that the last offsets lie in them is seen here.
        batch.validate()
        pa.record_batch(_Bytes(batch)).validate(full=True)
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A batch, handed over by Arrow's C data interface as one of bytes."""

    batch: pa.RecordBatch

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        schema = pa.schema([_field(field) for field in self.batch.schema])
        return schema.__arrow_c_schema__(), self.batch.__arrow_c_array__()[1]


def as_bytes(kind: pa.DataType) -> pa.DataType:
    """The type with bytes in place of texts; the layout is the same."""
    if isinstance(kind, pa.BaseExtensionType):
        return as_bytes(kind.storage_type)
    if _types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, as_bytes(kind.value_type), ordered=kind.ordered)
    if _types.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, as_bytes(kind.value_type))
    if _types.is_struct(kind):
        return pa.struct([_field(kind.field(i)) for i in range(kind.num_fields)])
    if _types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field), keys_sorted=kind.keys_sorted)
    if _types.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field), kind.list_size)
    for is_list, make in _LISTS:
        if is_list(kind):
            return make(_field(kind.value_field))
    return next((make() for is_text, make in _TEXTS if is_text(kind)), kind)


_LISTS = (
    (_types.is_list, pa.list_),
    (_types.is_large_list, pa.large_list),
    (_types.is_list_view, pa.list_view),
    (_types.is_large_list_view, pa.large_list_view),
)
_TEXTS = (
    (_types.is_string, pa.binary),
    (_types.is_large_string, pa.large_binary),
    (_types.is_string_view, pa.binary_view),
)


def _field(field: pa.Field) -> pa.Field:
    # Its metadata may say that it is of a type of its own.
    return field.with_type(as_bytes(field.type)).remove_metadata()
