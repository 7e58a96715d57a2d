"""Megatron-LM: ``PREFIX.bin`` with the ids one after another, ``PREFIX.idx`` with where each document lies.

``GPTDataset`` has no loss mask: it joins documents into one stream and trains every token of it. So a cache that
masks something is refused, unless its mask is asked for as a second pair of files of the same shape (uint8, 1 where
trained), for a dataset class that reads it.

The index is little-endian: the nine bytes ``MMIDIDX`` 0 0; uint64 version 1; uint8 code of the ids' type; uint64
number of sequences; uint64 number of entries of the document index; int32 lengths; int64 offsets in bytes; int64
document index (0, 1, …: each sequence is a document).
"""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.batches import BlockBatch, Int64
from packer.export.source import FlatDocuments
from packer.export.writer import OpenFile, SplitToWrite
from packer.layout import offsets_of

_MAGIC = b"MMIDIDX\x00\x00"
_CODES: dict[type[np.generic], int] = {np.uint8: 1, np.int32: 4, np.uint16: 8}
_SMALL_VOCABULARY = 65_500
"""Below this Megatron takes uint16."""


class MegatronWriter:
    """One split as ``<split>_text_document``, and where it was asked for ``<split>_loss_mask_document``."""

    def __init__(self, asked: SplitToWrite) -> None:
        dtype = np.uint16 if asked.model.vocab_size < _SMALL_VOCABULARY else np.int32
        self._prefixes = {"tokens": f"{asked.folder}{asked.split}_text_document"}
        self._pairs = {"tokens": _Pair(asked, self._prefixes["tokens"], dtype)}
        if asked.separate_mask:
            self._prefixes["loss_mask"] = f"{asked.folder}{asked.split}_loss_mask_document"
            self._pairs["loss_mask"] = _Pair(asked, self._prefixes["loss_mask"], np.uint8)

    def documents(self, batch: FlatDocuments) -> None:
        self._pairs["tokens"].append(batch.input_ids, batch.lengths)
        if "loss_mask" in self._pairs:
            self._pairs["loss_mask"].append(batch.trained, batch.lengths)

    def blocks(self, batch: BlockBatch) -> None:
        raise AssertionError(f"{len(batch.length)} blocks for a form of documents")

    def finish(self) -> dict[str, Any]:
        for pair in self._pairs.values():
            pair.finish()
        return {
            "prefixes": self._prefixes,
            "dtypes": {name: np.dtype(pair.dtype).name for name, pair in self._pairs.items()},
        }


class _Pair:
    """A .bin and its .idx."""

    def __init__(self, asked: SplitToWrite, prefix: str, dtype: type[np.generic]) -> None:
        self.dtype = dtype
        self._asked, self._prefix = asked, prefix
        self._bin: OpenFile = asked.files.open(f"{prefix}.bin")
        self._lengths: list[Int64] = [np.zeros(0, np.int64)]

    def append(self, values: npt.NDArray[Any], lengths: Int64) -> None:
        self._bin.write_array(values.astype(self.dtype))
        self._lengths.append(lengths)

    def finish(self) -> None:
        self._bin.finish()
        lengths = np.concatenate(self._lengths)
        file = self._asked.files.open(f"{self._prefix}.idx")
        file.write(_MAGIC + struct.pack("<QBQQ", 1, _CODES[self.dtype], len(lengths), len(lengths) + 1))
        file.write_array(lengths.astype(np.int32))
        file.write_array(offsets_of(lengths)[:-1] * np.dtype(self.dtype).itemsize)
        file.write_array(np.arange(len(lengths) + 1, dtype=np.int64))
        file.finish()
