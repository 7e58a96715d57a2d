"""Which `columns` would make rows fit a schema, by the names their fields have and what they hold."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from packer.source.chunks import shown
from packer.source.columns import rename
from packer.source.schema import Schema
from packer.source.unsuited import TELLING_FIELDS

_SYNONYMS: dict[str, tuple[str, ...]] = {
    "instruction": ("instruction", "question", "prompt", "query", "problem"),
    "reasoning": (
        "reasoning",
        "reasoningcontent",
        "cot",
        "complexcot",
        "chainofthought",
        "thinking",
        "thought",
        "rationale",
    ),
    "output": ("output", "answer", "response", "completion", "solution"),
}
"""Fields of schema `alpaca`, and what data sets call them: small letters and digits alone."""

_COMPLETE: dict[Schema, set[str]] = {
    "messages": {"messages"},
    "sharegpt": {"conversations"},
    "alpaca": {"instruction", "output"},
}
"""Fields with which rows fit a schema."""

_MEANT = {synonym: field for field, synonyms in _SYNONYMS.items() for synonym in synonyms}


def field_meant(name: str) -> str | None:
    """The field of schema `alpaca` that a name stands for.

    Example:
        >>> field_meant("Complex_CoT")
        'reasoning'

    """
    return _MEANT.get(re.sub(r"[^a-z0-9]", "", name.lower()))


def columns_hint(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str | None], schema: Schema | None = None
) -> str:
    """How to say which field is which, by the fields there are; it does not choose where two may be meant.

    Args:
        rows: Some rows, before their columns are renamed.
        columns: New name of a field → its name in the rows, or None to hide it.
        schema: The schema that was named, if one was.

    """
    renamed = [rename(dict(row), columns) for row in rows]
    found: dict[str, list[str]] = {}
    for name, _ in Counter(name for row in renamed for name in row).most_common():
        field = _field(name, next((row[name] for row in renamed if row.get(name)), None))
        if field is not None:
            found.setdefault(field, []).append(columns.get(name) or name)
    fits = next((fit for fit, fields in _COMPLETE.items() if fields <= found.keys()), None)
    fields = [field for field in ("messages", "conversations", *_SYNONYMS) if found.get(field) not in (None, [field])]
    if fits is None or not fields or (fits != "alpaca" and not found.keys().isdisjoint(_SYNONYMS)):
        return (
            "say which field is which with `columns`: --set 'sources.columns={instruction: FIELD, output: FIELD}', "
            "{messages: FIELD} or {text: FIELD}; the schema follows from the names"
        )
    unsure = [f"{_either(found[field])} may be the {field}" for field in fields if len(found[field]) > 1]
    pairs = [f"{field}: {'FIELD' if len(found[field]) > 1 else _as_yaml(found[field][0])}" for field in fields]
    option = f"--schema {fits} " if schema not in {None, fits} else ""
    said = "".join(f"{each}; " for each in unsure)
    return f"{said}say which field is which with `columns`: {option}--set 'sources.columns={{{', '.join(pairs)}}}'"


def _field(name: str, value: Any) -> str | None:
    """The field that one of this name, with such a value, would be; a side of a preference pair is none."""
    if isinstance(value, str):
        return field_meant(name)
    if isinstance(value, list) and isinstance(value[0], dict) and name not in TELLING_FIELDS:
        return "messages" if "role" in value[0] else "conversations" if "from" in value[0] else None
    return None


def _either(names: Sequence[str]) -> str:
    return f"{', '.join(map(shown, names[:-1]))} or {shown(names[-1])}"


def _as_yaml(name: str) -> str:
    """A name as a value in YAML and within quotes of a shell."""
    return name if re.fullmatch(r"\w+", name) else json.dumps(name, ensure_ascii=False).replace("'", "'\\''")
