"""Bytes of an image that a row names: within the row, or in a file below the folder that rows may name files of."""

import base64
import binascii
import errno
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from packer.host.regular_file import open_descriptor
from packer.media.decoder import Image, UnusableImageError, examine, refuse_many_bytes
from packer.names import is_address
from packer.recipe.row_rules import MediaRules

CODES_OF_FILES = frozenset({"media_missing", "media_outside", "media_unreadable", "media_too_large", "media_refused"})
"""Codes of rejections that another file under the same name may end."""

_NOWHERE = "/nowhere"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFiles:
    """Opens the images of the rows of one file.

    Args:
        base: the folder where relative paths begin: that of the file.
        root: the folder that no path may leave, and where those begin that lead nowhere from the first.
        is_decoded: whether each image is decoded, too.
        names_from_root: whether images are named by their paths below `root`, and not as rows name them.
    """

    base: Path
    root: Path
    is_decoded: bool = True
    names_from_root: bool = False

    @classmethod
    def of(cls, folder: str | None, rules: MediaRules) -> Self:
        """What opens images for a file in this folder; without a folder, only absolute paths below `rules.root`."""
        base = Path(folder or _NOWHERE).resolve()
        return cls(
            base=base,
            root=base if rules.root is None else Path(rules.root).resolve(),
            is_decoded=rules.check == "decode",
            names_from_root=rules.keep == "reference",
        )

    @classmethod
    def below(cls, named: Iterable[str | Path], roots: Iterable[str]) -> tuple[Self, ...]:
        """What opens the files of a cache that has only their names, below folders that the reader named.

        Names begin at one of the `roots` of its build, from the current folder or from a named one, if it is below
        that; or at a named folder itself, where the images are now.
        """
        here, roots, found = Path.cwd(), tuple(roots), list[Self]()
        for top in (_straight(here / each) for each in named if not is_address(str(each))):
            bases = map(_straight, (*(place / root for root in roots for place in (here, top)), top))
            inside = dict.fromkeys(base.resolve() for base in bases if base.is_relative_to(top))
            found += [cls(base=base, root=base) for base in inside if base.is_relative_to(top.resolve())]
        return tuple(found)

    def open(self, source: Any) -> Image:
        """Return the image of a source: a path, a `data:` address, or an object with bytes, a path or an address.

        Raises:
            UnusableImageError: it cannot be used.
        """
        data, name = _inner(source), None
        if isinstance(data, str) and data.startswith("data:"):
            data = _decoded(data)
        elif isinstance(data, str):
            named, place = self._places(data)
            name, data = self._name(data, named, place) if self.names_from_root else data, _content(place, data)
        if not isinstance(data, bytes):
            raise UnusableImageError("media_unreadable", f"a source of type {type(data).__name__}")
        return examine(data, is_decoded=self.is_decoded, name=name)

    def digest(self, name: str) -> bytes | None:
        """Return the digest of what a file now has that an image was named by; None if it cannot be read."""
        try:
            return sha256((replace(self, base=self.root) if self.names_from_root else self).read(name)).digest()
        except UnusableImageError:
            return None

    def read(self, name: str) -> bytes:
        """Return the bytes of a file.

        Raises:
            UnusableImageError: `media_url`, `media_missing`, `media_outside`, `media_too_large`.
        """
        return _content(self._places(name)[1], name)

    def _places(self, name: str) -> tuple[str, str]:
        """Return where a name leads, and what is there behind all links, which is below the root.

        Both as texts: this is done for every image, and takes three times as long with paths.
        """
        path = name.removeprefix("file://")
        if _SCHEME.match(path):
            raise UnusableImageError("media_url", f"{path[:_SHOWN]}: a build downloads nothing")
        if self.base == Path(_NOWHERE) and not path.startswith("/"):
            where = "the file with the rows is in a bucket: paths must be absolute, below media.root"
            raise UnusableImageError("media_missing", f"{path[:_SHOWN]}: {where}")
        try:
            # A relative path begins at the folder of the file with the rows, or else at the root.
            starts = ("",) if path.startswith("/") else (f"{self.base}/", f"{self.root}/")
            named = next((start + path for start in starts if os.path.lexists(start + path)), starts[0] + path)
            place = os.path.realpath(named)
            if _within(self.root, place) is None:
                # What leaves the folder is refused as such, however deep the folder is and whatever is there.
                if ".." in path.split("/") or Path(place).exists():
                    raise UnusableImageError("media_outside", f"{path[:_SHOWN]} is not below {self.root}")
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        except (OSError, ValueError) as error:
            raise _missing(name, error) from None
        return named, place

    def _name(self, name: str, named: str, place: str) -> str:
        """Return the path below the root: as the row has it, so that links on the way are watched, where it is that.

        Raises:
            UnusableImageError: `media_missing`: the path is no text, which a cache has no place for.
        """
        path = _within(self.root, os.path.normpath(named)) or _within(self.root, place) or "."
        try:
            path.encode()
        except UnicodeEncodeError as error:
            raise _missing(name, error) from None
        return path


def _straight(path: Path) -> Path:
    """Return a path without `..`, whatever links are on the way."""
    return Path(os.path.normpath(path))


def _within(folder: Path, path: str) -> str | None:
    """Return a path from a folder that it is, or is below; None if it is not."""
    start = f"{folder}/".replace("//", "/")
    return (path[len(start) :] or ".") if f"{path}/".startswith(start) else None


def _content(place: str, name: str) -> bytes:
    try:
        # It is resolved: a link in its place now was put there since.
        with os.fdopen(open_descriptor(place, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            num_bytes = os.fstat(file.fileno()).st_size
            refuse_many_bytes(num_bytes)
            # One byte more than it has: memory for the largest image costs as much as the digest of a photo.
            return file.read(num_bytes + 1)
    except (OSError, ValueError) as error:
        raise _missing(name, error) from None


def _missing(name: str, error: Exception) -> UnusableImageError:
    path, said = name.removeprefix("file://"), getattr(error, "strerror", None) or error
    return UnusableImageError("media_missing", f"{path[:_SHOWN]}: {said}")


def _decoded(address: str) -> bytes:
    try:
        return base64.b64decode(address.partition(",")[2], validate=True)
    except (binascii.Error, ValueError):
        raise UnusableImageError("media_unreadable", "its base64 cannot be decoded") from None


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
