"""The filter `tojson`, as transformers defines it."""

import functools
import json
from collections.abc import Callable, Hashable
from typing import Any

_KEPT_CHARACTERS = 2**20
"""Maximum size of the cache in characters, including its keys."""


@functools.cache
def _compact(ensure_ascii: bool, sort_keys: bool) -> Callable[[Any], str]:  # noqa: FBT001 - of the filter
    return json.JSONEncoder(ensure_ascii=ensure_ascii, sort_keys=sort_keys).encode


class ToJson:
    """Transformers' `tojson` with a cache.

    Every rendering of a conversation writes its tools and calls again, and other rows have the same tools.
    """

    def __init__(self) -> None:
        self._texts: dict[Hashable, tuple[Any, str]] = {}
        self._num_characters = 0

    def __call__(
        self,
        value: Any,
        ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates may pass it by position
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> str:
        kept = type(value) in (dict, list) and separators is None and type(indent) in (int, str, type(None))
        settings = (bool(ensure_ascii), indent, bool(sort_keys)) if kept else None
        # Templates cannot modify a value, and the cache keeps it alive, so that no other gets the same id.
        known = self._texts.get((id(value), settings)) if kept else None
        if known is not None:
            return known[1]
        if not kept:
            return json.dumps(
                value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
            )
        text = _compact(bool(ensure_ascii), bool(sort_keys))(value)
        if indent is not None:
            text = self._indented(text, value, indent, settings)
        self._keep((id(value), settings), value, text)
        return text

    def _indented(self, compact: str, value: Any, indent: int | str, settings: Any) -> str:
        """Return indented JSON, which Python writes twenty times as slowly as compact JSON; rows share their tools.

        The compact text determines the indented one: it has the same keys, numbers and strings in the same order.
        """
        known = self._texts.get((compact, settings))
        if known is not None:
            return known[1]
        ensure_ascii, _, sort_keys = settings
        text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)
        self._keep((compact, settings), None, text, len(compact))
        return text

    def _keep(self, key: Hashable, value: Any, text: str, key_length: int = 0) -> None:
        length = len(text) + key_length + 100
        self._num_characters += length
        if self._num_characters > _KEPT_CHARACTERS:
            self._texts, self._num_characters = {}, length
        self._texts[key] = value, text
