"""How images pass through stages that know nothing of them: as marks in texts, and as an optional column of batches.

A row has its images in parts of contents, in a column, or as tags. Each becomes a mark of private-use characters in the
text at its place, with the number of its source and a digest of it, so that questions about other images are other
texts. Schemas, roles, results of tools and pairs are then read as those of any text; the template gets each mark as a
part ``{"type": "image"}``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_hexdigest

from packer.media.images import Image, UnusableImageError


class Images(NamedTuple):
    """The images of a row."""

    sources: tuple[Any, ...]
    """Where each of them is; once they have been opened, the images themselves."""

    refusal: str
    """Why the row is rejected by a build that reads no images."""


class DrawnImage(NamedTuple):
    """An image in a text: what the model's processor writes for it stands in bytes ``[start, end)`` of the text."""

    image: Image
    start: int
    end: int
    runs: tuple[int, ...]
    """How often each token of the image is repeated that the text has once."""

    pixels: int


class ImageSpan(NamedTuple):
    """An image in a document."""

    sha256: bytes
    start: int
    length: int
    height: int
    width: int
    pixels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """The images of documents, a column like any other. D documents, M images."""

    offsets: npt.NDArray[np.int64]  # [D + 1]
    sha256: npt.NDArray[np.uint8]  # [M, 32] of the bytes of each image
    places: npt.NDArray[np.int32]  # [M, 5] start, length, height, width, pixels

    def __getitem__(self, document: int) -> tuple[ImageSpan, ...]:
        """Return the images of one document."""
        numbers = range(int(self.offsets[document]), int(self.offsets[document + 1]))
        return tuple(ImageSpan(self.sha256[number].tobytes(), *self.places[number].tolist()) for number in numbers)

    def take(self, documents: npt.NDArray[np.int64]) -> "Media":
        """Return the images of some documents, in the given order."""
        images = [np.arange(self.offsets[number], self.offsets[number + 1]) for number in documents.tolist()]
        chosen = np.concatenate([np.zeros(0, np.int64), *images])
        lengths = np.array([0, *map(len, images)], np.int64)
        return Media(offsets=np.cumsum(lengths), sha256=self.sha256[chosen], places=self.places[chosen])

    @classmethod
    def join(cls, parts: Sequence[tuple["Media | None", int]]) -> "Media | None":
        """Concatenate the column of consecutive batches, each with its number of documents; None if none has images."""
        if all(part is None for part, _ in parts):
            return None
        made = [part or cls.none(number) for part, number in parts]
        lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in made)])
        return cls(
            offsets=np.cumsum(lengths),
            sha256=np.concatenate([part.sha256 for part in made]),
            places=np.concatenate([part.places for part in made]),
        )

    @classmethod
    def none(cls, num_documents: int) -> "Media":
        """The column of documents without images."""
        offsets = np.zeros(num_documents + 1, np.int64)
        return cls(offsets=offsets, sha256=np.zeros((0, 32), np.uint8), places=np.zeros((0, 5), np.int32))


OPEN, CLOSE = "\ue0f5", "\ue0f6"
MARK = re.compile(f"{OPEN}([0-9]+)-[0-9a-f]{{16}}{CLOSE}")
PIECE = re.compile(f"{OPEN}[^{CLOSE}]+{CLOSE}|[^{OPEN}]+")
"""Matches a mark, or the text up to the next one."""

_RESERVED = re.compile("[\ue0f0-\ue0f6]")

_COLUMNS = ("images", "image")
_TAG = "<image>"
_TYPES = ("image", "image_url", "input_image")
_SOURCES = ("image", "image_url", "url", "path", "value", "source", "base64", "bytes")
_OPTIONS = ("min_pixels", "max_pixels", "resized_height", "resized_width")
INLINE = ("inlineData", "inline_data", "fileData", "file_data")
"""Where Gemini has the media of a part, which has no type."""

_NO_PARTS = frozenset({"tools", "functions", "tool_calls", "function_call", "chat_template_kwargs"})
_SIDES = ("chosen", "rejected")
_ANSWER_FIELDS = frozenset({"response", "output", "completion", "answer", "chosen_response", "rejected_response"})
_ANSWERERS = frozenset({"assistant", "gpt", "model", "bot", "chatbot"})


def marked(row: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return a row with marks in place of its images, and their sources: paths, addresses, bytes or objects.

    A part that has no source of its own takes the next one of the column. Where no part is an image, tags outside of
    answers stand for those of the column. UnusableImageError: `media_count`, `media_option`, `control_render`.
    """
    given = [source for name in _COLUMNS for source in _listed(row.get(name))]
    rest = {name: value for name, value in row.items() if name not in _COLUMNS}
    places = _Places(given)
    found = places.replaced(rest, places.in_parts)
    if given and not places.num_marks:
        found = places.replaced(rest, places.in_texts)
    if places.waiting:
        raise UnusableImageError("media_count", f"{len(places.waiting)} images more than places for them")
    return found, tuple(places.sources)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value] if value not in (None, "", {}) else []


class _Places:
    """Replaces the places of images by marks, and collects their sources, each once."""

    def __init__(self, given: Sequence[Any]) -> None:
        self.waiting = list(given)
        self.sources: list[Any] = []
        self.num_marks = 0

    def replaced(self, row: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
        """Change the fields of a row; both sides of a pair begin with the same image."""
        changed = {
            name: change(value)
            for name, value in row.items()
            if name not in _SIDES and not (change == self.in_texts and name in _ANSWER_FIELDS)
        }
        before = after = self.waiting
        for name in (name for name in _SIDES if isinstance(row.get(name), list | Mapping)):
            self.waiting = list(before)
            changed[name] = change(row[name])
            after = min(after, self.waiting, key=len)
        self.waiting = after
        return {name: changed.get(name, value) for name, value in row.items()}

    def in_parts(self, value: Any, *, is_part: bool = False) -> Any:
        """Return a value with texts of marks in place of parts that are images."""
        if isinstance(value, Mapping):
            if is_part and _is_image(value):
                return {"type": "text", "text": self._mark(_source(value))}
            return {key: each if key in _NO_PARTS else self.in_parts(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.in_parts(each, is_part=True) for each in value]
        if isinstance(value, str) and _RESERVED.search(value):
            raise UnusableImageError("control_render", "an image beside private-use characters in a text")
        return value

    def in_texts(self, value: Any) -> Any:
        """Return a value with marks in place of tags outside of answers."""
        if isinstance(value, str):
            return re.sub(_TAG, lambda _: self._mark(None), value)
        if isinstance(value, Mapping):
            is_answer = str(value.get("role", value.get("from"))).lower() in _ANSWERERS
            return value if is_answer else {key: self.in_texts(each) for key, each in value.items()}
        return [self.in_texts(each) for each in value] if isinstance(value, list | tuple) else value

    def _mark(self, source: Any) -> str:
        self.num_marks += 1
        if source is None:
            if not self.waiting:
                raise UnusableImageError("media_count", "fewer images than places for them")
            source = self.waiting.pop(0)
        if source not in self.sources:
            self.sources.append(source)
        return f"{OPEN}{self.sources.index(source)}-{_digest(source)}{CLOSE}"


def _digest(source: Any) -> str:
    if isinstance(source, Mapping):
        return _digest("\0".join(f"{key} {_digest(source[key])}" for key in sorted(source)))
    return xxh3_64_hexdigest(source if isinstance(source, bytes) else str(source).encode(errors="surrogatepass"))


def _is_image(part: Mapping[str, Any]) -> bool:
    if "type" in part:
        return part["type"] in _TYPES
    return any(isinstance(part.get(name), Mapping) for name in INLINE)


def _source(part: Mapping[str, Any]) -> Any:
    """Return the source that a part has itself, or None."""
    for option in _OPTIONS:
        if part.get(option) is not None:
            raise UnusableImageError("media_option", f"`{option}` in a part, which would change its tokens")
    if "type" not in part:
        return next(part[name] for name in INLINE if isinstance(part.get(name), Mapping))
    name = next((name for name in _SOURCES if part.get(name) is not None), None)
    return {"base64": part[name]} if name == "base64" else None if name is None else part[name]


def has_marks(value: Any) -> bool:
    return isinstance(value, str) and MARK.search(value) is not None


def in_parts(messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return messages with lists of parts in place of texts with marks, and the numbers of their images in order."""
    order: list[int] = []
    changed = []
    for message in messages:
        content = message.get("content")
        if not isinstance(content, str) or not has_marks(content):
            changed.append(dict(message))
            continue
        parts: list[dict[str, str]] = []
        for place, piece in enumerate(MARK.split(content)):
            if place % 2:
                order.append(int(piece))
                parts.append({"type": "image"})
            elif piece:
                parts.append({"type": "text", "text": piece})
        changed.append({**message, "content": parts})
    return changed, order
