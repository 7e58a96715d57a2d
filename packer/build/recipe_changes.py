"""Two recipes side by side: nested keys as dotted ones, values short enough for a line, and which keys name places."""

from collections.abc import Mapping
from typing import Any

import msgspec

PLACES = ("sources", "tokenizer", "template.file")
"""Keys that name places; what lies there is compared by its digests."""


def flat_keys(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted ones: `{"pack": {"seed": 1}}` gives `{"pack.seed": 1}`; an empty mapping is a value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, Mapping) and value
        flat |= flat_keys(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def short_json(value: object) -> str:
    """A value as JSON of at most 60 characters."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "…"
