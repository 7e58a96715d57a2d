"""Renaming and hiding the fields of a row, as `columns` of a source says."""

from collections.abc import Mapping
from typing import Any


def rename(row: dict[str, Any], columns: Mapping[str, str | None]) -> dict[str, Any]:
    """The row under its new names.

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
