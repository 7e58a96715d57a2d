"""Images, sound and films that a row names in a field that nothing reads."""

import re
from collections.abc import Collection, Iterator

from packer.questions.read_places import UnreadField
from packer.recipe.named_options import flow_mapping
from packer.source.file_bytes import quoted
from packer.source.row import Columns
from packer.source.unsupported_rows import MEDIA_FIELDS

_SUFFIXES = "png|jpe?g|gif|webp|bmp|tiff?|heic|avif|mp3|wav|flac|ogg|opus|m4a|aac|mp4|mov|mkv|webm|avi"
_NAMES_MEDIA = re.compile(
    rf"(?:data:)?(?:image|audio|video)/(?:{_SUFFIXES}|mpeg|quicktime|x-[\w-]+)(?:;.*)?|.+\.(?:{_SUFFIXES})(?:[?#]\S*)?",
    re.IGNORECASE | re.DOTALL,
)


def names_media(text: str) -> bool:
    """Whether a text is a type, a name, an address or the data of an image, of sound or of a film.

    Example:
        >>> names_media("image/png"), names_media("https://example.org/a.MP3?v=2"), names_media("image/caption")
        (True, True, False)
    """
    return ("." in text or "/" in text) and _NAMES_MEDIA.fullmatch(text) is not None


def without_media(
    field: UnreadField, columns: Columns, names: Collection[str], num_rows: int
) -> Iterator[tuple[str, str]]:
    """Propose to read a field as one that holds media, so that its rows are rejected, if other rows remain.

    Yields at most one setting, with what it keeps.

    `names` are the fields of the rows, of which there are `num_rows`.
    """
    free = next((name for name in MEDIA_FIELDS if name not in {*names, *columns}), None)
    if field.kind == "media" and free is not None and field.num_rows < num_rows:
        setting = f"sources.columns={flow_mapping({**columns, free: field.path})}"
        yield setting, f"the rows with nothing under {quoted(field.path)}"
