"""Numbers of Arrow as numpy arrays and back, without pandas, which Arrow's own conversions import where it is there."""

from typing import Any

import numpy as np
import numpy.typing as npt


def numbers_of(column: Any) -> npt.NDArray[Any]:
    """Return the values of a numeric Arrow array or chunked array without nulls.

    Arrow's own `to_numpy` and `to_pandas_dtype` import pandas, which takes a third of a second or is not installed.
    """
    dtype = dtype_of(column.type)
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in getattr(column, "chunks", [column])
        if len(chunk)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])


def dtype_of(kind: Any) -> np.dtype[Any]:
    """Return numpy's type for a type of numbers."""
    name = str(kind)
    return np.dtype({"halffloat": "f2", "float": "f4", "double": "f8"}.get(name, name))


def array_of(values: npt.NDArray[Any]) -> Any:
    """Wrap numbers in an Arrow array that shares their memory. `pa.array` would import pandas, too."""
    import pyarrow as pa  # noqa: PLC0415 - whoever asks for one has it

    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )


def taken(values: Any, indices: npt.NDArray[Any]) -> Any:
    """Return entries of an Arrow array. Its own `take` would import wrappers of all functions, which takes 0.05 s."""
    from pyarrow._compute import TakeOptions, call_function  # noqa: PLC0415 - whoever has an array has it

    return call_function("take", [values, array_of(indices)], TakeOptions())
