"""Numbers between numpy and Arrow: without pandas, whatever the type."""

import numpy as np
import pyarrow as pa
import pytest

from packer.layout import array_of, numbers_of

KINDS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_come_back_from_arrays_slices_and_chunks(kind):
    values = np.arange(7).astype(kind)
    array = array_of(values)
    for column, expected in (
        (array, values),
        (array.slice(2, 3), values[2:5]),
        (pa.chunked_array([array, array.slice(6)]), np.append(values, values[6:])),
        (pa.chunked_array([], array.type), values[:0]),
    ):
        found = numbers_of(column)
        assert found.dtype == kind and found.tolist() == expected.tolist()


def test_what_is_no_number_is_refused():
    with pytest.raises(TypeError):
        numbers_of(pa.array(["0"]))
