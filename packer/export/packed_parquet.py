"""Packed Parquet, as Megatron-Bridge's ``GPTSFTPackedParquetDataset`` reads it: a row is the sequences of a block.

Its collator makes the inputs of a sequence from all tokens but the last, and the labels from all but the first. The
mask is that of the labels, so it is moved by one token here, and no more there. Padding at the end of a block is left
out, because the collator pads.

With ``pack.align`` N, a sequence has a multiple of N inputs. The collator knows the padding between sequences, which
attention must not see, by its id: that of EOS. So it trains nothing that follows an EOS, up to version 0.6 wherever it
is.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from packer.batches import BlockBatch, Int64
from packer.errors import UsageError
from packer.export.run import Files, SplitRows, lists
from packer.layout import MASKED, concatenated_ranges, offsets_of

_SCHEMA = pa.schema(
    [("input_ids", pa.list_(pa.int32())), ("loss_mask", pa.list_(pa.int8())), ("seq_start_id", pa.list_(pa.int32()))]
)
METADATA = "metadata.json"


def write(files: Files, rows: SplitRows, windows: Iterable[Int64]) -> dict[str, Any]:
    """Write a split as a file."""
    manifest = rows.cache.manifest
    align, eos = _align(rows), manifest.model.eos_id
    if eos is None and align > 1:
        raise UsageError(
            "the tokenizer has no EOS, by which Megatron-Bridge knows the padding of pack.align",
            hint="packer build with --set pack.align=1 --force",
        )
    path, written = f"{rows.split}.idx.parquet", []
    with pq.ParquetWriter(files.open(path), _SCHEMA) as file:
        for numbers in windows:
            batch = rows.cache.blocks(rows.split).read(numbers)
            made, lengths, per_row = sequences(batch, align, -1 if eos is None else eos)
            file.write_batch(made)
            written.append((lengths, per_row))
    return {
        "path": path,
        "packing": _packing(rows, *map(np.concatenate, zip(*written, strict=True))) if written else {},
    }


def write_index(files: Files, splits: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a list of the metadata of all splits."""
    found = [details["packing"] for details in splits.values() if details["packing"]]
    files.write(METADATA, json.dumps(found, indent=2).encode() + b"\n")


def notes(rows: SplitRows) -> Iterator[str]:
    """Yield the options with which it is read."""
    block_len = rows.cache.blocks(rows.split).block_len
    specs = f"packed_sequence_size={block_len}, pad_seq_to_mult={_align(rows)}"
    yield f"Megatron-Bridge reads it with PackedSequenceSpecs({specs}, …)"


def _align(rows: SplitRows) -> int:
    return int(rows.cache.manifest.recipe["pack"].get("align", 1))


def sequences(batch: BlockBatch, align: int, eos: int) -> tuple[pa.RecordBatch, Int64, Int64]:
    """Return blocks as rows of the file, the lengths of their sequences, and how many each row has.

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
    lengths = -(-(tokens - 1) // align) * align + 1
    is_token = concatenated_ranges(np.zeros_like(lengths), lengths) < np.repeat(tokens, lengths)
    source = concatenated_ranges(start[sequences], tokens)
    ids = np.full(len(is_token), eos, np.int32)
    ids[is_token] = batch.input_ids.reshape(-1)[source]
    mask = np.zeros(len(is_token), np.int8)
    mask[np.flatnonzero(is_token) - 1] = batch.labels.reshape(-1)[source] != MASKED
    if mask[ids == eos].any():
        raise UsageError(
            "a token right after an EOS is trained, and Megatron-Bridge trains none there",
            hint="--to datasets has documents as they are",
        )
    per_row = np.bincount(np.searchsorted(batch.seq_offsets, sequences, side="right") - 1, minlength=batch.num_blocks)
    rows, offsets = offsets_of(per_row), offsets_of(lengths)
    columns = {
        "input_ids": lists(ids, offsets[rows]),
        "loss_mask": lists(mask, offsets[rows]),
        "seq_start_id": lists((offsets[:-1] - np.repeat(offsets[rows[:-1]], per_row)).astype(np.int32), rows),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=_SCHEMA), lengths, per_row


def _packing(rows: SplitRows, lengths: Int64, per_row: Int64) -> dict[str, Any]:
    """Return the metadata of the split, in inputs; with CUDA graphs, shapes are those of the largest row."""
    inputs = lengths - 1
    of_rows = np.add.reduceat(inputs, offsets_of(per_row)[:-1])
    block_len = rows.cache.blocks(rows.split).block_len
    return {
        "dataset_max_seqlen": int(inputs.max()),
        "max_samples_per_bin": int(per_row.max()),
        "packing_factor": round(float(per_row.mean()), 2),
        "packing_efficiency": round(100 * float(of_rows.mean()) / block_len, 2),
        "pack_size": block_len,
        "min_packed_seqlen": int(of_rows.min()),
    }
