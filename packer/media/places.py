"""Bytes of an image that a row names: within the row, or in a file below the folder that rows may name files of."""

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from packer.host.regular_file import open_descriptor
from packer.media.decoder import MAX_IMAGE_BYTES, Image, UnusableImageError, examine

OF_FILES = frozenset({"media_missing", "media_outside", "media_unreadable", "media_too_large", "media_refused"})
"""Codes of rejections that another file under the same name may end."""

_NOWHERE = "/nowhere"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFiles:
    """Opens the images of the rows of one file.

    Args:
        base: the folder of the file, where relative paths begin.
        root: the folder that no path may leave.
        is_decoded: whether each image is decoded, too.
    """

    base: Path
    root: Path
    is_decoded: bool = True

    @classmethod
    def of(cls, folder: str | None, root: str | None, *, is_decoded: bool = True) -> Self:
        """What opens images for a file in this folder; without a folder, only absolute paths below `root`."""
        base = Path(folder or _NOWHERE).resolve()
        return cls(base=base, root=base if root is None else Path(root).resolve(), is_decoded=is_decoded)

    def open(self, source: Any) -> Image:
        """Return the image of a source: a path, a `data:` address, or an object with bytes, a path or an address.

        Raises:
            UnusableImageError: it cannot be used.
        """
        data = _inner(source)
        content = self._read(data) if isinstance(data, str) else data
        if not isinstance(content, bytes):
            raise UnusableImageError("media_unreadable", f"a source of type {type(content).__name__}")
        image = examine(content, is_decoded=self.is_decoded)
        return replace(image, name=data) if isinstance(data, str) and not data.startswith("data:") else image

    def digest(self, name: str) -> bytes | None:
        """Return the digest of what a file now has that a row named; None if it cannot be read."""
        try:
            return sha256(self._read(name)).digest()
        except UnusableImageError:
            return None

    def _read(self, name: str) -> bytes:
        if name.startswith("data:"):
            try:
                return base64.b64decode(name.partition(",")[2], validate=True)
            except (binascii.Error, ValueError):
                raise UnusableImageError("media_unreadable", "its base64 cannot be decoded") from None
        path = name.removeprefix("file://")
        if _SCHEME.match(path):
            raise UnusableImageError("media_url", f"{path[:_SHOWN]}: a build fetches nothing")
        if self.base == Path(_NOWHERE) and not Path(path).is_absolute():
            where = "the file with the rows is in a bucket: paths must be absolute, below media.root"
            raise UnusableImageError("media_missing", f"{path[:_SHOWN]}: {where}")
        try:
            place = (self.base / path).resolve()
            # What leaves the folder is refused as such, however deep the folder is and whatever is there.
            if not place.is_relative_to(self.root) and (".." in Path(path).parts or place.exists()):
                raise UnusableImageError("media_outside", f"{path[:_SHOWN]} is not below {self.root}")
            # It is resolved: a link in its place now was put there since.
            with os.fdopen(open_descriptor(place, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                return file.read(MAX_IMAGE_BYTES + 1)
        except (OSError, ValueError, RuntimeError) as error:
            said = getattr(error, "strerror", None) or error
            raise UnusableImageError("media_missing", f"{path[:_SHOWN]}: {said}") from None


_PATHS = ("url", "path", "uri", "fileUri", "file_uri")


def _inner(source: Any) -> Any:
    """Return the path, the address or the bytes in the object that a row has for an image."""
    if not isinstance(source, Mapping):
        return source
    if isinstance(source.get("bytes"), bytes | bytearray):
        return bytes(source["bytes"])
    encoded = next((source[key] for key in ("base64", "data", "bytes") if isinstance(source.get(key), str)), None)
    if encoded is not None:
        return f"data:,{encoded}"
    return next((source[key] for key in _PATHS if isinstance(source.get(key), str)), None)
