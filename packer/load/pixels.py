"""Images of micro-batches: decoded while steps are read ahead, and made into the tensors of the model's own processor.

The processor is called once for a micro-batch, with the images of each document together, so that tiles, padding and
grids are as the family has them. A micro-batch without images gets a document with a small one and without labels: else
the vision tower would have no gradient on one rank, and the others would wait for it.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from packer.batches import Int32, Int64
from packer.display import repair_hint
from packer.errors import CheckError, UsageError
from packer.load.arguments import LoaderOptions
from packer.load.attention import flattened
from packer.load.ordered_rows import FILLER_ROW, PADDING_ROW
from packer.load.row_source import RowSource
from packer.load.step import MicroBatch
from packer.media.carried import ImageSpan
from packer.media.images import UnusableImageError, decode
from packer.media.processor import Processor, processor_of
from packer.store.arrow_columns import DocumentRows
from packer.store.cache import Cache
from packer.store.files import CacheFiles
from packer.store.media_shards import MediaShards
from packer.store.numbered_rows import FoundRows

Shown: TypeAlias = list[tuple[ImageSpan, ...]]
"""The images of each document of a micro-batch that has some."""

_TYPES = ("mm_token_type_ids", "token_type_ids")
_FILLER_SIZE = (64, 64)


def images_of(source: RowSource, options: LoaderOptions) -> "BatchImages":
    """Return what adds the images of a source's caches to micro-batches."""
    if options.batching == "packed" and (options.static_shapes or not options.flatten):
        raise UsageError("blocks with images have other shapes each time", hint="leave static_shapes and flatten out")
    return BatchImages(source.caches, split=options.split, fills=source.rows.content == "examples")


class BatchImages:
    """Adds the images of some caches to micro-batches.

    Args:
        caches: with images, all for one model.
        split: of them, that blocks are of.
        fills: whether micro-batches without images get a small one.
    """

    def __init__(self, caches: Sequence[Cache], *, split: str = "train", fills: bool) -> None:
        self._caches, self._split, self._fills = caches, split, fills

    def shown(self, found: FoundRows[Any], parts: Sequence[Int64]) -> list[Shown]:
        """Return the images of each document that has some, for each micro-batch.

        Args:
            found: the documents or blocks of all of them, in order.
            parts: rows of each micro-batch, PADDING_ROW for padding.
        """
        rows = iter(self._spans(found))
        of_rows = [[next(rows) for row in part.tolist() if row != PADDING_ROW] for part in parts]
        return [[document for row in part for document in row if document] for part in of_rows]

    def filled(self, shown: Sequence[Shown], parts: Sequence[Int64], sizes: Int64) -> tuple[list[Int64], Int64, Int32]:
        """Return rows and their sizes with a placeholder in each micro-batch that shows nothing, and its ids."""
        if not self._fills or all(shown):
            return [*parts], sizes, np.zeros(0, np.int32)
        rows = [part if images else np.append(part, FILLER_ROW) for part, images in zip(parts, shown, strict=True)]
        is_filler = np.concatenate(rows) == FILLER_ROW
        all_sizes = np.full(len(is_filler), len(self._filler), np.int64)
        all_sizes[~is_filler] = sizes
        return rows, all_sizes, self._filler

    def added(self, shown: Sequence[Shown], micro_batches: Sequence[MicroBatch]) -> list[MicroBatch]:
        """Return micro-batches with their images."""
        made = []
        for micro_batch, documents in zip(micro_batches, shown, strict=True):
            digests = {each.sha256 for document in documents for each in document}  # a pair shows the same twice
            decoded = {digest: self._decoded(digest) for digest in digests}
            images = [[decoded[each.sha256] for each in document] for document in documents]
            if not images and self._fills:
                images = [[self._small]]
            made.append(micro_batch | self.types(micro_batch) | (self.processor.tensors(images) if images else {}))
        return made

    @cached_property
    def processor(self) -> Processor:
        """The processor that the caches were built with."""
        cache = next(cache for cache in self._caches if cache.manifest.media is not None)
        files = CacheFiles(cache.folder)
        return processor_of(
            {file.path.rpartition("/")[2]: files.read(f"model/{file.path}") for file in cache.manifest.model.files}
        )

    @cached_property
    def _shards(self) -> list[MediaShards]:
        return [cache.images for cache in self._caches]

    def _decoded(self, digest: bytes) -> Any:
        shards = next((each for each in self._shards[:-1] if digest in each), self._shards[-1])
        try:
            return decode(shards.read(digest))
        except UnusableImageError as error:
            what = f"the image {shards.name(digest)} cannot be decoded: {error.reason}"
            raise CheckError(what, hint="media.check: decode leaves its rows out of a build") from None

    @cached_property
    def _small(self) -> Any:
        from PIL import Image  # noqa: PLC0415 - part of the extra

        return Image.new("RGB", _FILLER_SIZE)

    @cached_property
    def _filler(self) -> Int32:
        return np.array(self.processor.ids(self.processor.token, [self._small]), np.int32)

    def types(self, micro_batch: MicroBatch) -> MicroBatch:
        """Return which tokens are images, under the name that the family has for it."""
        name = next((name for name in _TYPES if name in self.processor.own.model_input_names), None)
        if name is None:
            return {}
        types = self.processor.own.create_mm_token_type_ids(micro_batch["input_ids"].tolist())
        return {name: torch.tensor(types)}

    def probe(self) -> tuple[MicroBatch, MicroBatch]:
        """Return three short documents, two of them with images, packed and padded: a model says the same of both."""
        image = torch.tensor(self._filler, dtype=torch.int64)
        text = torch.tensor(self.processor.own.tokenizer("What is this?", add_special_tokens=False)["input_ids"])
        documents = [torch.cat([image, text]), text, torch.cat([text, image, text])]
        mask = pad_sequence([torch.ones_like(each) for each in documents], batch_first=True)
        ids = pad_sequence(documents, batch_first=True)
        padded = {"input_ids": ids, "labels": ids, "attention_mask": mask}
        pixels = self.processor.tensors([[self._small], [self._small]])
        first, second = (each | self.types(each) | pixels for each in (flattened(documents), padded))
        return first, second

    def _spans(self, found: FoundRows[Any]) -> list[list[tuple[ImageSpan, ...]]]:
        """Return the images of each document of each row. Blocks name their documents, which name their images."""
        return [
            [() if opened.media is None else opened.media[row]]
            if isinstance(opened, DocumentRows)
            else [self._of_document(doc_id) for doc_id in opened.ids_of(row).tolist()]
            for opened, row in zip(found.opened, found.rows, strict=True)
        ]

    def _of_document(self, doc_id: int) -> tuple[ImageSpan, ...]:
        for cache in self._caches:
            documents = cache.documents(self._split)
            if (number := documents.find(doc_id)) is not None:
                ((spans,),) = self._spans(documents.locate(np.array([number])))
                return spans
        hint = repair_hint(self._caches[0].folder)
        raise CheckError(f"no document has the id {doc_id}, which a block names", hint=hint)
