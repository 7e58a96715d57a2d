"""One decoder for all images: bytes become a digest and an upright size when a cache is built, pixels when it is read.

It shows what a browser shows: the first frame, turned as its EXIF orientation says, on white where it is transparent,
as RGB. The loaders of transformers disagree about each of these. Nothing is decoded whose header says that it is too
large, and no format whose reader would start another program.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image as Pixels

DECODER_VERSION = 1
"""Raised when the same bytes would give other pixels or another size."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")

_ADDRESS = re.compile(r" <[^<>]* at 0x[0-9a-f]+>")
"""What Pillow writes of an object, which is another one in each process."""

_SHOWN = 200

MAX_PIXELS = 64_000_000
MAX_IMAGE_BYTES = 64 * 2**20

_ORIENTATION = 0x0112
_LYING = {5, 6, 7, 8}
"""Orientations that exchange height and width."""

_LATE_CHUNKS = (b"eXIf", b"Raw profile type", b"XML:com.adobe.xmp")
"""Chunks of a PNG that may hold an orientation. They may follow the pixels, so Pillow decodes all to find them."""


class UnusableImageError(Exception):
    """An image that is not taken, with the code of the rejection; `reason` is for the user."""

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

    Raises:
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

    Raises:
        UnusableImageError: as :func:`examine`: its header may have been all that was read, or a cache is a stranger's.
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

    Raises:
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
            said = _ADDRESS.sub("", str(error))[:_SHOWN]
            raise UnusableImageError("media_unreadable", f"{type(error).__name__}: {said}") from None


def refuse_many_bytes(number: int) -> None:
    """Refuse the bytes of an image if they are too many.

    Raises:
        UnusableImageError: `media_too_large`.
    """
    if number > MAX_IMAGE_BYTES:
        raise UnusableImageError("media_too_large", f"{number:,} bytes; packer takes up to {MAX_IMAGE_BYTES:,}")


def _refuse_large(height: int, width: int) -> None:
    if height * width > MAX_PIXELS:
        raise UnusableImageError("media_too_large", f"{width} x {height} pixels; packer takes up to {MAX_PIXELS:,}")
