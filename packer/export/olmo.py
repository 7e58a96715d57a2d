"""OLMo-core: ``token_ids_part_0000.npy`` with ids, ``labels_mask_part_0000.npy`` with a bool for each, and borders.

Despite their names the files have no header: they are the bare values. The ids have the narrowest unsigned type that
holds the vocabulary, as OLMo-core works it out. ``labels_mask`` is not shifted: it says of each token whether it is a
target, and OLMo-core shifts. ``token_ids_part_0000.csv.gz`` has a line ``start,end`` for each document; the datasets
read it where they are opened with ``use_array_if_local=False``, and otherwise look for EOS tokens, which is right only
where EOS ends each document and stands nowhere else.
"""

import gzip
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.batches import BlockBatch
from packer.export.source import FlatDocuments
from packer.export.writer import OpenFile, SplitToWrite
from packer.layout import MASKED

_MAX_TOKENS = 2**28
"""A part ends with the batch that reaches this: a gibibyte of uint32."""

_DTYPES: tuple[type[np.unsignedinteger[Any]], ...] = (np.uint8, np.uint16, np.uint32)


def token_dtype(vocab_size: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest unsigned type that holds every id of a vocabulary."""
    return next(dtype for dtype in _DTYPES if vocab_size - 1 <= np.iinfo(dtype).max)


class OlmoWriter:
    """One split as parts of ids, of masks and, of documents, of borders."""

    def __init__(self, asked: SplitToWrite) -> None:
        self._asked = asked
        self._dtype = token_dtype(asked.model.vocab_size)
        self._parts: list[_Part] = []
        self._eos_ends_documents = asked.unit == "documents"

    def documents(self, batch: FlatDocuments) -> None:
        self._append(batch.input_ids, batch.trained).borders(batch)
        is_eos = batch.input_ids == self._asked.model.eos_id
        ends = np.zeros(len(is_eos), np.bool_)
        ends[batch.offsets[1:] - 1] = True
        self._eos_ends_documents &= bool(np.array_equal(is_eos, ends))

    def blocks(self, batch: BlockBatch) -> None:
        self._append(batch.input_ids.reshape(-1), batch.labels.reshape(-1) != MASKED)

    def finish(self) -> dict[str, Any]:
        for part in self._parts:
            part.finish()
        told: dict[str, Any] = {
            "paths": [part.tokens.path for part in self._parts],
            "label_mask_paths": [part.mask.path for part in self._parts],
            "dtype": np.dtype(self._dtype).name,
        }
        if self._asked.unit == "blocks":
            return told | {"sequence_length": self._asked.block_len}
        return told | {"eos_ends_documents": self._eos_ends_documents}

    def _append(self, input_ids: npt.NDArray[Any], trained: npt.NDArray[np.bool_]) -> "_Part":
        if not self._parts or self._parts[-1].num_tokens >= _MAX_TOKENS:
            self._parts.append(_Part(self._asked, len(self._parts)))
        part = self._parts[-1]
        part.tokens.write_array(input_ids.astype(self._dtype))
        part.mask.write_array(trained)
        part.num_tokens += len(input_ids)
        return part


class _Part:
    """The files of one part."""

    def __init__(self, asked: SplitToWrite, number: int) -> None:
        self._asked = asked
        self.tokens: OpenFile = asked.files.open(f"{asked.folder}token_ids_part_{number:04d}.npy")
        self.mask: OpenFile = asked.files.open(f"{asked.folder}labels_mask_part_{number:04d}.npy")
        self.num_tokens = 0
        self._lines: list[str] = []

    def borders(self, batch: FlatDocuments) -> None:
        """Remember where the documents lie that were appended last."""
        bounds = (batch.offsets + self.num_tokens - batch.offsets[-1]).tolist()
        self._lines += [f"{start},{end}\n" for start, end in pairwise(bounds)]

    def finish(self) -> None:
        self.tokens.finish()
        self.mask.finish()
        if self._lines:
            content = gzip.compress("".join(self._lines).encode(), mtime=0)
            self._asked.files.write(f"{self.tokens.path.removesuffix('.npy')}.csv.gz", content)
