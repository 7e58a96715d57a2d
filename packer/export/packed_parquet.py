"""Packed Parquet, as Megatron-Bridge's ``GPTSFTPackedParquetDataset`` reads it: a row is the sequences of a block.

Its collator makes the inputs of a sequence from all tokens but the last, and the labels from all but the first. The
mask is that of the labels, so it is moved by one token here, and no more there. Padding at the end of a block is left
out, because the collator pads.

With ``pack.align`` N, a sequence has a multiple of N inputs. The collator knows the padding between sequences, which
attention must not see, by its id: that of EOS. So it trains nothing that follows an EOS, up to version 0.6 wherever it
is.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from packer.batches import BlockBatch, Int64
from packer.errors import UsageError
from packer.export.writer import Files, SplitRows, Writer, lists
from packer.layout import MASKED, concatenated_ranges, offsets_of

_SCHEMA = pa.schema(
    [("input_ids", pa.list_(pa.int32())), ("loss_mask", pa.list_(pa.int8())), ("seq_start_id", pa.list_(pa.int32()))]
)
METADATA = "metadata.json"


class PackedParquetWriter(Writer):
    """Writes one split as a file, and a list of the metadata of all splits."""

    conventions: ClassVar[Mapping[str, Any]] = {"loss_mask": "shifted: 1 where the next token is trained"}

    def __init__(self, files: Files, rows: SplitRows) -> None:
        super().__init__(files, rows)
        manifest = rows.cache.manifest
        self._align = int(manifest.recipe["pack"].get("align", 1))
        eos = manifest.model.eos_id
        if eos is None and self._align > 1:
            raise UsageError(
                "the tokenizer has no EOS, by which Megatron-Bridge knows the padding of pack.align",
                hint="packer build with --set pack.align=1 --force",
            )
        self._eos = -1 if eos is None else eos
        self._path = f"{self.split}.idx.parquet"
        self._file = files.enter_context(pq.ParquetWriter(files.open(self._path), _SCHEMA))
        self._lengths: list[Int64] = []
        self._per_row: list[Int64] = []

    @classmethod
    def write_index(cls, files: Files, splits: Mapping[str, Mapping[str, Any]]) -> None:
        found = [details["packing"] for details in splits.values() if details["packing"]]
        files.write(METADATA, json.dumps(found, indent=2).encode() + b"\n")

    def blocks(self, batch: BlockBatch) -> None:
        """Append blocks.

        Worked example, `align` 4 and EOS 9: tokens 5 6 7 with labels . 6 7 become ids 5 6 7 9 9 with mask 1 1 0 0 0, of
        which four are inputs.
        """
        start = offsets_of(batch.seq_lengths)[:-1]
        block_len = batch.input_ids.shape[1]
        place = batch.doc_places + block_len * np.repeat(np.arange(batch.num_blocks), np.diff(batch.doc_offsets))
        sequence = np.searchsorted(start, place, side="right") - 1  # of each piece
        tokens = np.zeros(len(start), np.int64)
        tokens[sequence] = place + batch.doc_lengths - start[sequence]  # the last piece of a sequence decides its end
        sequences = np.flatnonzero(tokens)  # the others are padding
        tokens = tokens[sequences]
        lengths = -(-(tokens - 1) // self._align) * self._align + 1
        is_token = concatenated_ranges(np.zeros_like(lengths), lengths) < np.repeat(tokens, lengths)
        source = concatenated_ranges(start[sequences], tokens)
        ids = np.full(len(is_token), self._eos, np.int32)
        ids[is_token] = batch.input_ids.reshape(-1)[source]
        mask = np.zeros(len(is_token), np.int8)
        mask[np.flatnonzero(is_token) - 1] = batch.labels.reshape(-1)[source] != MASKED
        if mask[ids == self._eos].any():
            raise UsageError(
                "a token right after an EOS is trained, and Megatron-Bridge trains none there",
                hint="--to datasets has documents as they are",
            )
        per_row = np.bincount(
            np.searchsorted(batch.seq_offsets, sequences, side="right") - 1, minlength=batch.num_blocks
        )
        rows, offsets = offsets_of(per_row), offsets_of(lengths)
        columns = {
            "input_ids": lists(ids, offsets[rows]),
            "loss_mask": lists(mask, offsets[rows]),
            "seq_start_id": lists((offsets[:-1] - np.repeat(offsets[rows[:-1]], per_row)).astype(np.int32), rows),
        }
        self._file.write_batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=_SCHEMA))
        self._lengths.append(lengths)
        self._per_row.append(per_row)

    def finish(self) -> dict[str, Any]:
        self._file.close()
        return {"path": self._path, "packing": self._packing() if self._lengths else {}}

    def _packing(self) -> dict[str, Any]:
        """Return the metadata of the split, in inputs; with CUDA graphs, shapes are those of the largest row."""
        inputs, per_row = np.concatenate(self._lengths) - 1, np.concatenate(self._per_row)
        of_rows = np.add.reduceat(inputs, offsets_of(per_row)[:-1])
        block_len = self.rows.cache.blocks(self.split).block_len
        return {
            "dataset_max_seqlen": int(inputs.max()),
            "max_samples_per_bin": int(per_row.max()),
            "packing_factor": round(float(per_row.mean()), 2),
            "packing_efficiency": round(100 * float(of_rows.mean()) / block_len, 2),
            "pack_size": block_len,
            "min_packed_seqlen": int(of_rows.min()),
        }

    def notes(self) -> Iterator[str]:
        block_len = self.rows.cache.blocks(self.split).block_len
        specs = f"packed_sequence_size={block_len}, pad_seq_to_mult={self._align}"
        yield f"Megatron-Bridge reads it with PackedSequenceSpecs({specs}, …)"
