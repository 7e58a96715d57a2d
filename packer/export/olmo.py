"""OLMo-core: ``token_ids_part_0000.npy`` with ids, ``labels_mask_part_0000.npy`` with a bool for each, and boundaries.

Despite their extension the files have no header: they are the bare values. The ids have the narrowest unsigned type
that fits the vocabulary, as OLMo-core derives it. ``labels_mask`` is not shifted: it says for each token whether it is
a target, and OLMo-core shifts it. ``token_ids_part_0000.csv.gz`` has a line ``start,end`` for each document. The
datasets read it if they are opened with ``use_array_if_local=False``; otherwise they look for EOS tokens, which is
correct only if EOS ends each document and occurs nowhere else.
"""

import gzip
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from packer.batches import BlockBatch, Bool, Int32, Int64
from packer.errors import UsageError
from packer.export.writer import Files, FlatDocuments, SplitRows, Writer
from packer.layout import MASKED

_TOKENS, _MASK = "token_ids_part_0000", "labels_mask_part_0000"
_DTYPES: tuple[type[np.unsignedinteger[Any]], ...] = (np.uint8, np.uint16, np.uint32)


def token_dtype(vocab_size: int) -> type[np.unsignedinteger[Any]]:
    """Return the narrowest unsigned type for the ids of a vocabulary."""
    return next(dtype for dtype in _DTYPES if vocab_size - 1 <= np.iinfo(dtype).max)


class OlmoWriter(Writer):
    """Writes one split as ids, masks and, for documents, boundaries."""

    def __init__(self, files: Files, rows: SplitRows) -> None:
        super().__init__(files, rows)
        self._dtype = token_dtype(self.model.vocab_size)
        self._tokens = files.open(f"{self.split}/{_TOKENS}.npy")
        self._mask = files.open(f"{self.split}/{_MASK}.npy")
        self._ends: list[Int64] = [np.zeros(1, np.int64)]
        self._eos_ends_documents = True

    @classmethod
    def refuse(cls, rows: Sequence[SplitRows]) -> None:
        if rows[0].unit == "blocks" and rows[0].cache.manifest.recipe["pack"]["mode"] == "isolated":
            raise UsageError(
                "OLMo-core finds documents within a row by EOS, and cannot know the boundaries of isolated blocks",
                hint="--documents: its NumpyPackedFSLDataset packs and separates them; or packer pack --mode eos",
            )

    def documents(self, batch: FlatDocuments) -> None:
        self._append(batch.input_ids, batch.trained)
        self._ends.append(self._ends[-1][-1] + batch.offsets[1:])
        is_eos = batch.input_ids == self.model.eos_id
        ends = np.zeros(len(is_eos), np.bool_)
        ends[batch.offsets[1:] - 1] = True
        self._eos_ends_documents &= bool(np.array_equal(is_eos, ends))

    def blocks(self, batch: BlockBatch) -> None:
        self._append(batch.input_ids.reshape(-1), batch.labels.reshape(-1) != MASKED)

    def finish(self) -> dict[str, Any]:
        split = self.split
        details: dict[str, Any] = {
            "paths": [f"{split}/{_TOKENS}.npy"],
            "label_mask_paths": [f"{split}/{_MASK}.npy"],
            "dtype": np.dtype(self._dtype).name,
        }
        if self.unit == "blocks":
            return details | {"sequence_length": self.rows.cache.blocks(split).block_len}
        lines = "".join(f"{start},{end}\n" for start, end in pairwise(np.concatenate(self._ends).tolist()))
        self.files.write(f"{split}/{_TOKENS}.csv.gz", gzip.compress(lines.encode(), mtime=0))
        return details | {"eos_ends_documents": self._eos_ends_documents}

    def notes(self) -> Iterator[str]:
        if self.unit == "documents" and not self._eos_ends_documents:
            yield (
                "EOS does not mark the ends of documents here: open with use_array_if_local=False, to read the .csv.gz"
            )

    def _append(self, input_ids: Int32, trained: Bool) -> None:
        self._tokens.write(input_ids.astype(self._dtype).data)
        self._mask.write(trained.data)
