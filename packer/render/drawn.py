"""Renderings with images: each image token of the template becomes a mark that names an image and its replacement.

What a processor writes for an image may depend on how many the conversation has, so that a prompt and the turn after it
show the same image differently. Marks differ then, too, and the history counts as rewritten. Only the finished texts
have the replacements themselves, with every run of a token written once.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packer.literals import replaced
from packer.media.carried import CLOSE, OPEN, DrawnImage
from packer.media.images import Image
from packer.media.processor import Processor, RefusedSizesError, Replacement
from packer.render.environment import RenderError
from packer.render.rewritten_history import EncodedText, RenderedRow

_MARK = re.compile(f"{OPEN}([0-9]+):([0-9]+){CLOSE}".encode())


class Drawing:
    """Renders one conversation in place of its template, by `write`, with marks in place of images."""

    def __init__(self, write: Callable[..., str], processor: Processor, images: Sequence[Any]) -> None:
        self._write = write
        self._processor = processor
        self._images = images
        self._replacements: dict[tuple[int, Replacement], int] = {}

    def render(self, messages: Sequence[Mapping[str, Any]], **kwargs: Any) -> str:
        """Render the first messages of the conversation, whose images are its first ones."""
        text = self._write(messages, **kwargs)
        number = sum(map(num_images, messages))
        first, *rest = text.split(self._processor.token)
        if len(rest) != number:
            reason = f"the template writes {len(rest)} of {number} images"
            raise RenderError(reason, code="media_dropped")
        marks = self.marks(number)
        return first + "".join(mark + piece for mark, piece in zip(marks, rest, strict=True))

    def marks(self, number: int) -> list[str]:
        """Return the marks of the first `number` images, for a text that has no others.

        Raises:
            RenderError: `media_refused`.
        """
        try:
            written = self._processor.replacements([image.size for image in self._images[:number]])
        except RefusedSizesError as error:
            raise RenderError(f"the model's processor refuses an image: {error}", code="media_refused") from None
        return [self._mark(place, replacement) for place, replacement in enumerate(written)]

    def drawn(self, row: RenderedRow) -> RenderedRow:
        """Return a row with what the processor writes in place of each mark."""
        known = [replacement for _, replacement in self._replacements]
        return row._replace(texts=tuple([self._drawn(text, known) for text in row.texts]))

    def _drawn(self, text: EncodedText, known: Sequence[Replacement]) -> EncodedText:
        shown: list[tuple[Image, Replacement]] = []

        def written(match: re.Match[bytes]) -> bytes:
            shown.append((self._images[int(match[1])], known[int(match[2])]))
            return shown[-1][1].text.encode()

        content, ranges, moved = replaced(text.content, _MARK, written)
        images = [
            DrawnImage(image, start, end, replacement.runs, replacement.pixels)
            for (image, replacement), (start, end) in zip(shown, ranges, strict=True)
        ]
        return text.moved(moved, content)._replace(images=tuple(images))

    def filled(self, row: RenderedRow) -> RenderedRow | None:
        """Return a row that the fast way filled in as :meth:`drawn` does; None if the processor refuses an image.

        No rendering asked for its marks, so the processor is asked here.
        """
        try:
            self.marks(len(self._images))
        except RenderError:
            return None
        return self.drawn(row)

    def _mark(self, place: int, replacement: Replacement) -> str:
        number = self._replacements.setdefault((place, replacement), len(self._replacements))
        return f"{OPEN}{place}:{number}{CLOSE}"


def num_images(message: Mapping[str, Any]) -> int:
    """Return how many parts of a message are images."""
    content = message.get("content")
    return sum(part.get("type") == "image" for part in content) if isinstance(content, list) else 0
