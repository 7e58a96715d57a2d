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
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from packer.batches import Int64
from packer.display import repair_hint
from packer.errors import CheckError, UsageError
from packer.layout import MASKED
from packer.load.arguments import LoaderOptions
from packer.load.attention import boundaries, flattened
from packer.load.batching import Padded
from packer.load.ordered_rows import PADDING_ROW
from packer.load.row_source import RowSource
from packer.load.step import MicroBatch
from packer.media.columns import ImageSpan
from packer.media.decoder import UnusableImageError, decode
from packer.media.processor import Processor, processor_of
from packer.store.cache import Cache, FoundBlocks, FoundDocuments
from packer.store.files import CacheFiles
from packer.store.media_shards import MediaShards

Found: TypeAlias = FoundBlocks | FoundDocuments

_TYPES = ("mm_token_type_ids", "token_type_ids")
_FILLER_SIZE = (64, 64)


def images_of(source: RowSource, options: LoaderOptions, *, pad_id: int) -> "BatchImages":
    """Return what adds the images of a source's caches to micro-batches."""
    if options.cutoff_len is not None:
        raise UsageError("cutoff_len would cut images apart", hint="leave out long rows: a filter on `tokens`")
    if options.batching == "packed" and (options.static_shapes or not options.flatten):
        raise UsageError("blocks with images have other shapes each time", hint="leave static_shapes and flatten out")
    fills = source.rows.content == "examples"
    return BatchImages(source.caches, split=options.split, padded=options.padded, pad_id=pad_id, fills=fills)


class BatchImages:
    """Adds the images of some caches to micro-batches.

    Args:
        caches: with images, all for one model.
        split: of them, that blocks are of.
        padded: how a small image is padded, if it is added; None if documents are concatenated.
        pad_id: of padding.
        fills: whether micro-batches without images get a small one.
    """

    def __init__(
        self,
        caches: Sequence[Cache],
        *,
        split: str = "train",
        padded: Padded | None = None,
        pad_id: int = 0,
        fills: bool,
    ) -> None:
        self._caches, self._split, self._padded, self._pad_id, self._fills = caches, split, padded, pad_id, fills

    def added(self, found: Found, parts: Sequence[Int64], micro_batches: list[MicroBatch]) -> list[MicroBatch]:
        """Return micro-batches with their images.

        Args:
            found: the documents or blocks of all of them, in order.
            parts: rows of each micro-batch, PADDING_ROW for padding.
            micro_batches: of tokens.
        """
        rows = iter(self._spans(found))
        made = []
        for micro_batch, part in zip(micro_batches, parts, strict=True):
            own = [document for row in part.tolist() if row != PADDING_ROW for document in next(rows)]
            digests = {each.sha256 for document in own for each in document}  # both answers of a pair show the same
            decoded = {digest: self._decoded(digest) for digest in digests}
            images = [[decoded[each.sha256] for each in document] for document in own if document]
            if not images and self._fills:
                micro_batch = self._filled(micro_batch)  # noqa: PLW2901 - with the filler
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
    def _filler(self) -> Tensor:
        return torch.tensor(self.processor.ids(self.processor.token, [self._small]))

    def types(self, micro_batch: MicroBatch) -> MicroBatch:
        """Return which tokens are images, under the name that the family has for it."""
        name = next((name for name in _TYPES if name in self.processor.own.model_input_names), None)
        if name is None:
            return {}
        types = self.processor.own.create_mm_token_type_ids(micro_batch["input_ids"].tolist())
        return {name: torch.tensor(types)}

    def probe(self) -> tuple[MicroBatch, MicroBatch]:
        """Return three short documents, two of them with images, packed and padded: a model says the same of both."""
        image = self._filler
        text = torch.tensor(self.processor.own.tokenizer("What is this?", add_special_tokens=False)["input_ids"])
        documents = [torch.cat([image, text]), text, torch.cat([text, image, text])]
        mask = pad_sequence([torch.ones_like(each) for each in documents], batch_first=True)
        ids = pad_sequence(documents, batch_first=True)
        padded = {"input_ids": ids, "labels": ids, "attention_mask": mask}
        pixels = self.processor.tensors([[self._small], [self._small]])
        first, second = (each | self.types(each) | pixels for each in (flattened(documents), padded))
        return first, second

    def _filled(self, micro_batch: MicroBatch) -> MicroBatch:
        """Return a micro-batch with the filler as its last document."""
        ids = self._filler
        own = {
            "input_ids": ids,
            "labels": torch.full_like(ids, MASKED),
            "position_ids": torch.arange(len(ids)),
            "attention_mask": torch.ones_like(ids),
            "loss_weights": torch.zeros(len(ids)),
        }
        if self._padded is None:
            columns = {name: torch.cat([micro_batch[name], own[name][None]], 1) for name in own.keys() & micro_batch}
            lengths = torch.cat([micro_batch["cu_seq_lens_q"].diff(), torch.tensor([len(ids)])])
            return micro_batch | columns | boundaries(lengths)
        width = max(self._padded.rounded(len(ids)), micro_batch["input_ids"].shape[1])
        fill = {"input_ids": self._pad_id, "labels": MASKED}

        def widened(values: Tensor, value: int) -> Tensor:
            missing = width - values.shape[-1]
            sides = (missing, 0) if self._padded is not None and self._padded.side == "left" else (0, missing)
            return torch.nn.functional.pad(values, sides, value=value)

        return micro_batch | {
            name: torch.cat(
                [widened(micro_batch[name], fill.get(name, 0)), widened(own[name], fill.get(name, 0))[None]]
            )
            for name in own.keys() & micro_batch
        }

    def _spans(self, found: Found) -> list[list[tuple[ImageSpan, ...]]]:
        """Return the images of each document of each row. Blocks name their documents, which name their images."""
        if isinstance(found, FoundDocuments):
            pairs = zip(found.opened, found.rows, strict=True)
            return [[() if opened.media is None else opened.media[row]] for opened, row in pairs]
        return [[self._of_document(doc_id) for doc_id in doc_ids.tolist()] for doc_ids in found.doc_ids()]

    def _of_document(self, doc_id: int) -> tuple[ImageSpan, ...]:
        for cache in self._caches:
            documents = cache.documents(self._split)
            if (number := documents.find(doc_id)) is not None:
                ((spans,),) = self._spans(documents.locate(np.array([number])))
                return spans
        hint = repair_hint(self._caches[0].folder)
        raise CheckError(f"no document has the id {doc_id}, which a block names", hint=hint)
