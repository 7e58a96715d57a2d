"""Megatron-LM: ``PREFIX.bin`` with the ids of all documents, ``PREFIX.idx`` with the position of each document.

``GPTDataset`` has no loss mask: it concatenates documents into one stream and trains every token of it. So a cache that
masks anything is refused, unless the mask is exported too: as a second pair of files of the same shape (uint8, 1 where
trained), for a dataset class that reads it.

The index is little-endian: the nine bytes ``MMIDIDX`` 0 0; uint64 version 1; uint8 code of the ids' type; uint64 number
of sequences; uint64 number of entries of the document index; int32 lengths; int64 offsets in bytes; int64 document
index (0, 1, …: each sequence is a document).
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.export.writer import Files, FlatDocuments, SplitRows, Writer
from packer.layout import offsets_of

_MAGIC = b"MMIDIDX\x00\x00"
_CODES: dict[type[np.generic], int] = {np.uint8: 1, np.int32: 4, np.uint16: 8}
_SMALL_VOCABULARY = 65_500
"""Vocabularies below this size are stored as uint16, as Megatron does."""


class MegatronWriter(Writer):
    """Writes one split as ``<split>_text_document``, and on request its mask as ``<split>_loss_mask_document``."""

    def __init__(self, files: Files, rows: SplitRows) -> None:
        super().__init__(files, rows)
        split = self.split
        small = self.model.vocab_size < _SMALL_VOCABULARY
        self._types: dict[str, type[np.generic]] = {"tokens": np.uint16 if small else np.int32}
        self._prefixes = {"tokens": f"{split}_text_document"}
        if rows.separate_mask:
            self._types["loss_mask"] = np.uint8
            self._prefixes["loss_mask"] = f"{split}_loss_mask_document"
        self._bins = {name: files.open(f"{prefix}.bin") for name, prefix in self._prefixes.items()}
        self._lengths: list[Int64] = [np.zeros(0, np.int64)]

    @classmethod
    def refuse(cls, rows: Sequence[SplitRows]) -> None:
        documents = [each.cache.documents(each.split) for each in rows]
        tokens = sum(each.num_tokens for each in documents)
        trained = sum(int(each.num_trained().sum(dtype=np.int64)) for each in documents)
        masked = tokens - trained - sum(map(len, documents))
        if masked and not rows[0].separate_mask:
            raise UsageError(
                f"Megatron's GPTDataset trains every token, and {masked:,} of {tokens:,} tokens here are masked "
                "beside the first one of each document",
                hint="--separate-mask writes the mask as a second .bin and .idx, for a dataset class that reads it",
            )

    def documents(self, batch: FlatDocuments) -> None:
        for name, file in self._bins.items():
            values = batch.input_ids if name == "tokens" else batch.trained
            file.write(values.astype(self._types[name]).data)
        self._lengths.append(batch.length)

    def finish(self) -> dict[str, Any]:
        lengths = np.concatenate(self._lengths)
        for name, prefix in self._prefixes.items():
            with self.files.open(f"{prefix}.idx") as file:
                code = _CODES[self._types[name]]
                file.write(_MAGIC + struct.pack("<QBQQ", 1, code, len(lengths), len(lengths) + 1))
                file.write(lengths.astype(np.int32).data)
                file.write((offsets_of(lengths)[:-1] * np.dtype(self._types[name]).itemsize).data)
                file.write(np.arange(len(lengths) + 1, dtype=np.int64).data)
        return {
            "prefixes": self._prefixes,
            "dtypes": {name: np.dtype(dtype).name for name, dtype in self._types.items()},
        }

    def notes(self) -> Iterator[str]:
        model = self.model
        if self.rows.separate_mask:
            yield "Megatron's own GPTDataset does not read the mask, and trains every token"
        if model.pad_id in model.stop_ids:
            yield f"GPTDataset masks targets that are its pad id; here the pad id, {model.pad_id}, is a stop token"
