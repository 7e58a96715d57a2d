"""The filter `tojson` as transformers defines it."""

import json
from collections.abc import Hashable
from typing import Any

_KEPT_CHARACTERS = 2**20
"""Of JSON that is kept because it may be written again, those that describe it too."""


class ToJson:
    """Transformers' `tojson`, which keeps what it wrote.

    Every rendering of a conversation writes its tools and calls again, and so do other rows.
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
        # A template cannot change a value, and the value is kept, so that no other has its identity.
        known = self._texts.get((id(value), settings)) if kept else None
        if known is not None:
            return known[1]
        text = json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=None if kept else indent,
            separators=separators,
            sort_keys=sort_keys,
        )
        if kept:
            if indent is not None:
                text = self._indented(text, value, indent, settings)
            self._keep((id(value), settings), value, text)
        return text

    def _indented(self, compact: str, value: Any, indent: int | str, settings: Any) -> str:
        """JSON on lines of its own, which Python writes twenty times as slowly as on one; rows bring the same tools.

        What is written on one line tells how it is written on many: the same keys, numbers and texts in the same order.
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
