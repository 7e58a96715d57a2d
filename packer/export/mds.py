"""MosaicML streaming shards (MDS) of documents as turns, the form of tokenized rows for llm-foundry's finetuning.

A sample has one column ``turns``, JSON: a list of ``{"input_ids": context, "labels": target}``. Both are token ids; the
trainer concatenates them and masks the contexts. So a document is cut wherever its labels begin or end. (Columns
``input_ids`` and ``labels`` as in Hugging Face datasets would be read as a context and its target: every token twice.)
Train with ``target_responses: all``; otherwise only the last turn is trained.

A shard is little-endian: uint32 number of samples n; uint32[n + 1] file offset of each sample, and of the end; the
shard's configuration as JSON; the samples. A sample is the uint32 size of its column, then the column.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from packer.batches import Int32
from packer.export.writer import Files, FlatDocuments, SplitRows, Writer
from packer.layout import MASKED

_MAX_BYTES = 1 << 26
"""A shard ends before the sample that would exceed this size, as in MDSWriter."""

_CONFIG: dict[str, Any] = {
    "column_encodings": ["json"],
    "column_names": ["turns"],
    "column_sizes": [None],
    "compression": None,
    "format": "mds",
    "hashes": [],
    "size_limit": _MAX_BYTES,
    "version": 2,
}
_CONFIG_BYTES = json.dumps(_CONFIG, sort_keys=True).encode()


class MdsWriter(Writer):
    """Writes one split as a folder for ``streaming.StreamingDataset``."""

    def __init__(self, files: Files, rows: SplitRows) -> None:
        super().__init__(files, rows)
        self._samples: list[bytes] = []
        self._num_bytes = 0
        self._shards: list[dict[str, Any]] = []
        self._left_out = self._without_eos = 0

    def documents(self, batch: FlatDocuments) -> None:
        for start, end in pairwise(batch.offsets.tolist()):
            self._append(batch.input_ids[start:end], batch.labels[start:end])

    def finish(self) -> dict[str, Any]:
        if self._samples or not self._shards:
            self._end_shard()
        index = json.dumps({"shards": self._shards, "version": 2}, sort_keys=True).encode()
        self.files.write(f"{self.split}/index.json", index)
        return {
            "path": self.split,
            "tokens_behind_the_last_target": self._left_out,
            "documents_that_get_another_eos": self._without_eos,
        }

    def notes(self) -> Iterator[str]:
        yield "train with target_responses: all, or all but the last turn go unlearned"
        if self._without_eos:
            eos = self.model.eos_id
            yield f"llm-foundry appends EOS (id {eos}) to documents that do not end in it, and trains it"

    def _append(self, input_ids: Int32, labels: Int32) -> None:
        turns, left_out = turns_of(input_ids, labels)
        self._left_out += left_out
        if not turns:
            return
        self._without_eos += turns[-1]["labels"][-1] != self.model.eos_id
        column = json.dumps(turns, separators=(",", ":")).encode()
        sample = len(column).to_bytes(4, "little") + column
        # The file header: the number of samples, the offset of each, the end of the last one, and the configuration.
        table = len(_CONFIG_BYTES) + 4 * (len(self._samples) + 3)
        if self._samples and table + self._num_bytes + len(sample) > _MAX_BYTES:
            self._end_shard()
        self._samples.append(sample)
        self._num_bytes += len(sample)

    def _end_shard(self) -> None:
        count = len(self._samples)
        offsets = np.cumsum([4 + 4 * (count + 1) + len(_CONFIG_BYTES), *map(len, self._samples)]).astype("<u4")
        name = f"shard.{len(self._shards):05d}.mds"
        with self.files.open(f"{self.split}/{name}") as file:
            file.write(count.to_bytes(4, "little") + offsets.tobytes() + _CONFIG_BYTES)
            file.write(b"".join(self._samples))
            info = {"basename": name, "bytes": file.tell(), "hashes": {}}
        self._shards.append(_CONFIG | {"raw_data": info, "samples": count, "zip_data": None})
        self._samples, self._num_bytes = [], 0


def turns_of(input_ids: Int32, labels: Int32) -> tuple[list[dict[str, list[int]]], int]:
    """Split a document into turns of context and target; also return the number of tokens after the last target.

    Worked example: ids 5 6 7 8 9 with labels . . 7 8 . give one turn, context [5, 6] and target [7, 8]. Token 9 is not
    trained and precedes no trained token, so it is dropped.
    """
    trained = labels != MASKED
    edges = np.flatnonzero(np.diff(trained, prepend=False, append=False))
    starts, ends = edges[::2].tolist(), edges[1::2].tolist()
    ids = input_ids.tolist()
    turns = [
        {"input_ids": ids[before:start], "labels": ids[start:end]}
        for before, start, end in zip([0, *ends][: len(ends)], starts, ends, strict=True)
    ]
    return turns, len(ids) - (ends[-1] if ends else 0)
