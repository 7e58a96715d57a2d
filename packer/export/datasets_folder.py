"""Hugging Face datasets, as ``Dataset.save_to_disk`` writes them: what TRL, axolotl and LLaMA-Factory load.

A folder of Arrow stream files with ``state.json`` and ``dataset_info.json``. Documents have exactly the columns
``input_ids``, ``attention_mask`` and ``labels``, which is what axolotl asks of a dataset that is tokenized already;
blocks have ``position_ids`` and ``seq_lengths`` in place of the mask: TRL takes borders from ``seq_lengths``, others
from ``position_ids``, and a mask of ones would make transformers overlook both. Labels are unshifted.
"""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import BlockBatch, Int64
from packer.export.source import FlatDocuments
from packer.export.writer import OpenFile, SplitToWrite

_MAX_BYTES = 500 * 10**6
"""A file ends with the batch that reaches this, as save_to_disk has it."""

_COLUMNS = {
    "documents": ("input_ids", "attention_mask", "labels"),
    "blocks": ("input_ids", "labels", "position_ids", "seq_lengths"),
}
_TYPES = {"attention_mask": pa.int8(), "loss_weights": pa.float32()}


class DatasetsWriter:
    """One split as a folder that ``datasets.load_from_disk`` loads."""

    def __init__(self, asked: SplitToWrite) -> None:
        self._asked = asked
        names = _COLUMNS[asked.unit] + (("loss_weights",) if asked.weighted else ())
        fields = [(name, pa.list_(_TYPES.get(name, pa.int32()))) for name in names]
        features = {name: _feature(str(kind.value_type)) for name, kind in fields}
        self._info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        self._schema = pa.schema(fields, metadata=metadata)
        self._open: list[tuple[OpenFile, pa.ipc.RecordBatchStreamWriter]] = []

    def documents(self, batch: FlatDocuments) -> None:
        columns: dict[str, npt.NDArray[Any]] = {
            "input_ids": batch.input_ids,
            "attention_mask": np.ones(len(batch.input_ids), np.int8),
            "labels": batch.labels,
        }
        if batch.loss_weights is not None:
            columns["loss_weights"] = batch.loss_weights
        self._write({name: _lists(values, batch.offsets) for name, values in columns.items()})

    def blocks(self, batch: BlockBatch) -> None:
        B, L = batch.input_ids.shape
        offsets = np.arange(B + 1, dtype=np.int64) * L
        columns = {name: _lists(getattr(batch, name).reshape(-1), offsets) for name in _COLUMNS["blocks"][:3]}
        columns["seq_lengths"] = _lists(batch.seq_lengths, batch.seq_offsets)
        if batch.loss_weights is not None:
            columns["loss_weights"] = _lists(batch.loss_weights.reshape(-1), offsets)
        self._write(columns)

    def finish(self) -> dict[str, Any]:
        if not self._open:
            self._begin()  # a split without rows is a dataset without rows
        names = [f"data-{i:05d}-of-{len(self._open):05d}.arrow" for i in range(len(self._open))]
        for (file, writer), name in zip(self._open, names, strict=True):
            if writer is not None:
                writer.close()
            file.path = f"{self._asked.folder}{name}"
            file.finish()
        state: dict[str, Any] = {
            "_data_files": [{"filename": name} for name in names],
            "_fingerprint": self._asked.identity[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": self._asked.split,
        }
        for name, value in (("dataset_info.json", self._info), ("state.json", state)):
            self._asked.files.write(f"{self._asked.folder}{name}", json.dumps(value, indent=2, sort_keys=True).encode())
        return {"columns": list(self._schema.names), "path": self._asked.folder.rstrip("/") or "."}

    def _write(self, columns: dict[str, pa.Array]) -> None:
        if not self._open or self._open[-1][0].num_bytes >= _MAX_BYTES:
            self._begin()
        arrays = [columns[name] for name in self._schema.names]
        self._open[-1][1].write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _begin(self) -> None:
        file = self._asked.files.open(f"{self._asked.folder}data.arrow")
        self._open.append((file, pa.ipc.new_stream(file, self._schema)))


def dataset_dict(splits: list[str]) -> bytes:
    """``dataset_dict.json``: what makes a folder of several a DatasetDict."""
    return json.dumps({"splits": splits}).encode()


def _feature(dtype: str) -> dict[str, Any]:
    """A list column, under the name that every version of datasets reads."""
    dtype = {"float": "float32"}.get(dtype, dtype)
    return {"feature": {"dtype": dtype, "_type": "Value"}, "length": -1, "_type": "Sequence"}


def _lists(values: npt.NDArray[Any], offsets: Int64) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))
