"""Images between the stages: opened before rows are rendered, repeated in the ids, and a column of the documents.

Texts have each run of a processor's token once, so that tokenizing a page of 2,752 placeholders takes no longer than
that of one. An added token never merges with its neighbors, so repeating its id gives the ids of the whole text.
"""

from contextlib import suppress
from dataclasses import replace
from hashlib import sha256

import msgspec
import numpy as np

from packer.batches import DocumentBatch, Int32, Int64, Rejection, RowBatch, Sample, TokenBatch, TurnBatch
from packer.errors import CheckError, InputError
from packer.layout import offsets_of
from packer.media.carried import DrawnImage, Media
from packer.media.images import DECODER_VERSION, Image, ImageFiles, UnusableImageError, decode
from packer.media.processor import processor_of
from packer.model.model import Model
from packer.recipe.recipe import Recipe

_CHECKED_FIRST = 32
_CHECKED_EVERY = 128


def with_processor(model: Model) -> Model:
    """Return the model with the identity of its processor; InputError if packer can use none of the folder's."""
    processor = processor_of(model.files)
    if processor.token not in model.control:
        raise InputError(f"the placeholder of images, '{processor.token}', is not a special token of this tokenizer")
    with processor.tried():
        return replace(
            model,
            processor=sha256(f"{DECODER_VERSION} {processor.probe}".encode()).hexdigest(),
            image_ids=tuple(sorted(processor.repeated.values())),
        )


class RowImages:
    """The images of the rows that one process works on."""

    def __init__(self, recipe: Recipe, model: Model) -> None:
        self._rules = recipe.media
        self._processor = processor_of(model.files)
        self._repeated = np.array(sorted(self._processor.repeated.values()), np.int32)
        self._last_row, self._num_seen = -1, 0  # of those that were checked, or might have been

    def opened(self, rows: RowBatch) -> tuple[RowBatch, tuple[Rejection, ...]]:
        """Return the rows whose images can be used, opened, and why others cannot."""
        samples: list[Sample] = []
        rejections: list[Rejection] = []
        files = ImageFiles.of(rows.folder, self._rules)
        for sample in rows.samples:
            given = sample.images
            try:
                images = given and given._replace(sources=tuple(map(files.open, given.sources)))
            except UnusableImageError as error:
                rejections.append(Rejection(row=sample.row, code=error.code, reason=error.reason))
            else:
                samples.append(sample if images is None else msgspec.structs.replace(sample, images=images))
        return replace(rows, samples=tuple(samples)), tuple(rejections)

    def repeated(self, tokens: TokenBatch, turns: TurnBatch) -> TokenBatch:
        """Return the ids as the processor has them: runs repeated, and its prefix before chats that lack it."""
        places, found = self._places(tokens.ids, tokens.offsets)
        runs: list[int] = []
        bos, prefix = self._processor.prefix
        added = np.zeros(len(tokens.sequence_text), np.int64)
        for sequence, text in enumerate(tokens.sequence_text.tolist()):
            if prefix and not turns.raw[text]:
                begins = bool(bos) and turns.text.startswith(bos.encode(), int(turns.text_offsets[text]))
                added[sequence] = 0 if begins else len(prefix)
            number = found[sequence + 1] - found[sequence]
            own = [run for image in turns.images[text] for run in image.runs] if text in turns.images else [1] * number
            if number > len(own):
                raise _differs(turns, text)
            runs += own[:number]
        counts = np.ones(len(tokens.ids), np.int64)
        counts[places] = runs
        ends = offsets_of(counts)
        lengths = added + ends[tokens.offsets[1:]] - ends[tokens.offsets[:-1]]
        ids = np.insert(
            np.repeat(tokens.ids, counts),
            np.repeat(ends[tokens.offsets[:-1]], added),
            np.concatenate([np.zeros(0, np.int32), *([prefix] * int(np.count_nonzero(added)))]).astype(np.int32),
        )
        first, before = tokens.offsets[tokens.turn_sequence], added[tokens.turn_sequence]
        return replace(
            tokens,
            ids=ids,
            offsets=offsets_of(lengths),
            prompt_tokens=before + ends[first + tokens.prompt_tokens] - ends[first],
            completion_tokens=before + ends[first + tokens.completion_tokens] - ends[first],
        )

    def column(self, documents: DocumentBatch, texts: Int32, turns: TurnBatch) -> tuple[Media, tuple[Image, ...]]:
        """Return the images of documents, each made of one of the `texts`, and the images themselves."""
        offsets, places, used = [0], list[tuple[int, ...]](), list[Image]()
        repeated, found = self._places(documents.input_ids, documents.offsets)
        for number, text in enumerate(texts.tolist()):
            own = repeated[found[number] : found[number + 1]] - documents.offsets[number]
            for drawn, start, length in _spans(own, turns, text) if text in turns.images else ():
                places.append((start, length, *drawn.image.size, drawn.pixels))
                used.append(drawn.image)
            offsets.append(len(places))
        digests = b"".join(image.sha256 for image in used)
        return (
            Media(
                offsets=np.array(offsets, np.int64),
                sha256=np.frombuffer(digests, np.uint8).reshape(-1, 32),
                places=np.array(places, np.int32).reshape(-1, 5),
            ),
            tuple(used),
        )

    def _places(self, ids: Int32, offsets: Int64) -> tuple[Int64, list[int]]:
        """Return where tokens of images are, and how many of them are before each offset."""
        places = np.flatnonzero(np.isin(ids, self._repeated))
        return places, np.searchsorted(places, offsets).tolist()

    def check(self, tokens: TokenBatch, turns: TurnBatch) -> None:
        """Compare the ids of some texts with those that the processor makes of the images themselves.

        These are the first rows with images of a partition, and some of the others, without the values of their pixels.
        """
        _, first = np.unique(tokens.sequence_text, return_index=True)
        guarded = np.searchsorted(turns.text_offsets, turns.guarded[:, 0], side="right") - 1
        for text, images in turns.images.items():
            row = int(turns.sample[text])
            self._num_seen = 1 if row < self._last_row else self._num_seen + 1
            self._last_row = row
            if self._num_seen > _CHECKED_FIRST and row % _CHECKED_EVERY:
                continue
            if text in guarded:  # the processor would take what a person typed for its own tokens
                continue
            sequence = int(first[np.searchsorted(tokens.sequence_text[first], text)])
            ids = tokens.ids[tokens.offsets[sequence] : tokens.offsets[sequence + 1]]
            with suppress(UnusableImageError):  # broken behind its header, which was all that the rules have read
                own, made = ids.tolist(), self._full(turns, text, images)
                if own != made:
                    raise _differs(turns, text, self._difference(own, made))

    def _difference(self, own: list[int], made: list[int]) -> str:
        """Return what the processor writes where its ids are others than packer's."""
        pairs = enumerate(zip(own, made, strict=False))
        place = next((number for number, (one, other) in pairs if one != other), min(len(own), len(made)))
        shown = (self._processor.own.tokenizer.decode(ids[place : place + 12]) for ids in (made, own))
        return ": at id {} it writes {!r}, packer {!r}".format(place, *shown)

    def _full(self, turns: TurnBatch, text: int, images: tuple[DrawnImage, ...]) -> list[int]:
        content = turns.text[turns.text_offsets[text] : turns.text_offsets[text + 1]]
        pieces, last = list[bytes](), 0
        for image in images:
            pieces += (content[last : image.start], self._processor.token.encode())
            last = image.end
        whole = (b"".join(pieces) + content[last:]).decode()
        return self._processor.ids(whole, [decode(image.image.data) for image in images])


def _spans(places: Int64, turns: TurnBatch, text: int) -> list[tuple[DrawnImage, int, int]]:
    """Return the images of a document, with the first of its repeated ids and how far it is to behind the last."""
    spans, used = [], 0
    for drawn in turns.images[text]:
        if used == len(places):
            break
        first, used = used, used + sum(drawn.runs)
        if used > len(places):
            raise _differs(turns, text)
        start, last = int(places[first]), int(places[used - 1])
        spans.append((drawn, start, last - start + 1))
    if used != len(places):
        raise _differs(turns, text)
    return spans


def _differs(turns: TurnBatch, text: int, how: str = "") -> CheckError:
    return CheckError(
        f"row {int(turns.sample[text])}: the ids of its images are not those of the model's processor{how}",
        hint="please report it with the model's name: packer cannot build images for this processor",
    )
