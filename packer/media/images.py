"""The bytes of an image: where a row has them, and what one decoder makes of all.

They are within the row, or in a file below the folder that rows may name files of. They become a digest and an upright
size when a cache is built, pixels when it is read: what a browser shows, the first frame, turned as its EXIF
orientation says, on white where it is transparent, as RGB. The loaders of transformers disagree about each of these.
Nothing is decoded whose header says that it is too large, and no format whose reader would start another program.
"""

import base64
import binascii
import errno
import io
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from packer.host.files import open_descriptor
from packer.names import is_address

if TYPE_CHECKING:
    from PIL.Image import Image as Pixels

    from packer.recipe.row_rules import MediaRules

DECODER_VERSION = 1
"""Raised when the same bytes would give other pixels or another size."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")

_ADDRESS = re.compile(r" <[^<>]* at 0x[0-9a-f]+>")
"""What Pillow writes of an object, which is another one in each process."""

MAX_PIXELS = 64_000_000
MAX_IMAGE_BYTES = 64 * 2**20

_ORIENTATION = 0x0112
_LYING = {5, 6, 7, 8}
"""Orientations that exchange height and width."""

_LATE_CHUNKS = (b"eXIf", b"Raw profile type", b"XML:com.adobe.xmp")
"""Chunks of a PNG that may hold an orientation. They may follow the pixels, so Pillow decodes all to find them."""


class UnusableImageError(Exception):
    """An image that is not taken, or a row whose images cannot be told, with the code of the rejection.

    `reason` is for the user.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image by its content."""

    sha256: bytes
    height: int
    width: int
    """Upright, as :func:`decode` gives it."""

    data: bytes = field(repr=False)
    """As given: a JPEG, a PNG and so on."""

    name: str | None = None
    """The file that the row names, as it does or from `media.root`; None if the row has the bytes."""

    @property
    def size(self) -> tuple[int, int]:
        return self.height, self.width


def examine(data: bytes, *, is_decoded: bool, name: str | None = None) -> Image:
    """Read an image's header and, with `is_decoded`, its pixels, to find out whether they can be read at all.

    UnusableImageError: `media_too_large`, `media_unreadable`.
    """
    with _opened(data) as opened:
        height, width = opened.height, opened.width
        may_turn = opened.format != "PNG" or any(name in data for name in _LATE_CHUNKS)
        is_lying = may_turn and opened.getexif().get(_ORIENTATION) in _LYING
        if is_decoded:
            opened.draft("RGB", (width // 8, height // 8))  # a JPEG is decoded at an eighth of its size
            opened.load()
    height, width = (width, height) if is_lying else (height, width)
    return Image(sha256=sha256(data).digest(), height=height, width=width, data=data, name=name)


def thumbnail(data: bytes, side: int = 128) -> bytes | None:
    """Return an image as a JPEG of at most `side` pixels a side; None if it cannot be decoded."""
    try:
        shown = decode(data, least=side)
    except UnusableImageError:
        return None
    shown.thumbnail((side, side))
    file = io.BytesIO()
    shown.save(file, "JPEG", quality=60)
    return file.getvalue()


def decode(data: bytes, *, least: int | None = None) -> "Pixels":
    """Return the pixels of an image: upright, RGB, on white.

    With `least`, a JPEG may come out smaller than it is, but not below that on both sides, which takes less time.
    UnusableImageError as :func:`examine`: its header may have been all that was read, or a cache is a stranger's.
    """
    from PIL import Image as Pillow  # noqa: PLC0415 - part of the extra
    from PIL import ImageOps  # noqa: PLC0415 - part of the extra

    with _opened(data) as opened:
        if least is not None:
            opened.draft("RGB", (least, least))
        shown: Any = ImageOps.exif_transpose(opened)
        if "A" in shown.getbands() or shown.info.get("transparency") is not None:
            shown = shown.convert("RGBA")
            shown = Pillow.alpha_composite(Pillow.new("RGBA", shown.size, (255, 255, 255, 255)), shown)
        return shown.convert("RGB")  # type: ignore[no-any-return]


@contextmanager
def _opened(data: bytes) -> Iterator[Any]:
    """Open an image within the limits; whatever is raised inside is a reason why it cannot be used.

    UnusableImageError: `media_too_large`, `media_unreadable`.
    """
    refuse_many_bytes(len(data))
    from PIL import Image as Pillow  # noqa: PLC0415 - part of the extra

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow's about large and damaged images, which are counted and read here
        try:
            opened = Pillow.open(io.BytesIO(data), formats=FORMATS)
            _refuse_large(opened.height, opened.width)
            yield opened
        except (Pillow.DecompressionBombError, UnusableImageError) as error:
            raise UnusableImageError("media_too_large", str(getattr(error, "reason", error))) from None
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - readers of damaged files raise almost anything
            said = _ADDRESS.sub("", str(error))[:200]
            raise UnusableImageError("media_unreadable", f"{type(error).__name__}: {said}") from None


def refuse_many_bytes(number: int) -> None:
    """Refuse the bytes of an image if they are too many: `media_too_large`."""
    if number > MAX_IMAGE_BYTES:
        raise UnusableImageError("media_too_large", f"{number:,} bytes; packer takes up to {MAX_IMAGE_BYTES:,}")


def _refuse_large(height: int, width: int) -> None:
    if height * width > MAX_PIXELS:
        raise UnusableImageError("media_too_large", f"{width} x {height} pixels; packer takes up to {MAX_PIXELS:,}")


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
    def of(cls, folder: str | None, rules: "MediaRules") -> Self:
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
        """Return the image of a source: a path, a `data:` address, or an object with bytes, a path or an address."""
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
        """Return a file's bytes, or raise `media_url`, `media_missing`, `media_outside` or `media_too_large`."""
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

        A path that is no text, which a cache has no place for, is `media_missing`.
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
