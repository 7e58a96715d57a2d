"""Small copies of images for a page, made of the bytes that the cache stores or names."""

import base64
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from packer.audit.view import ImageView
from packer.errors import CheckError, UsageError
from packer.media.decoder import thumbnail
from packer.store.cache import Cache

_MOST_BYTES = 1_500_000
"""Most bytes of all thumbnails of a page, enough for some 400; further images are listed without one."""


class Thumbnails:
    """Describes images for a page, with their thumbnails while there is room."""

    def __init__(self, cache: Cache) -> None:
        self._images = cache.images
        self._can_decode = find_spec("PIL") is not None
        self._made: dict[str, str | None] = {}
        self._unread: set[str] = set()
        self._room = _MOST_BYTES

    def of(self, images: Sequence[ImageView]) -> list[dict[str, Any]]:
        """Return size, tokens and thumbnail of each image, a JPEG in base64, and whether its file cannot be read."""
        return [
            {
                "width": each.width,
                "height": each.height,
                "tokens": each.tokens,
                "jpeg": self._jpeg(each.sha256),
                "unread": each.sha256 in self._unread,
            }
            for each in images
        ]

    def _jpeg(self, sha256: str) -> str | None:
        if sha256 not in self._made and self._can_decode and self._room > 0:
            made = thumbnail(self._read(sha256))
            self._made[sha256] = None if made is None else base64.b64encode(made).decode()
        found = self._made.get(sha256)
        self._room -= len(found or "")
        return found if self._room > 0 else None

    def _read(self, sha256: str) -> bytes:
        """Return the bytes of an image; none if its file cannot be read, or may not."""
        digest = bytes.fromhex(sha256)
        try:
            return self._images.read(digest)
        except (CheckError, UsageError):
            if not self._images.only_names(digest):
                raise
            self._unread.add(sha256)
            return b""
