"""What travels with rows, texts and documents that have images: one optional column of each batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.media.decoder import Image


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
