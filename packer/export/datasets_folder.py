"""Hugging Face datasets, as ``Dataset.save_to_disk`` writes them: what TRL, axolotl and LLaMA-Factory load.

A folder with an Arrow stream file, ``state.json`` and ``dataset_info.json``. Documents have exactly the columns
``input_ids``, ``attention_mask`` and ``labels``, which is what axolotl asks of a dataset that is tokenized already;
blocks have ``position_ids`` and ``seq_lengths`` in place of the mask: TRL takes boundaries from ``seq_lengths``, others
from ``position_ids``, and a mask of ones would make transformers overlook both. Labels are unshifted.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import BlockBatch, Int64
from packer.export.writer import Files, FlatDocuments, SplitRows, Writer

_COLUMNS = {
    "documents": ("input_ids", "attention_mask", "labels"),
    "blocks": ("input_ids", "labels", "position_ids", "seq_lengths"),
}
_TYPES = {"attention_mask": pa.int8(), "loss_weights": pa.float32()}
_FILE = "data-00000-of-00001.arrow"


class DatasetsWriter(Writer):
    """One split as a folder that ``datasets.load_from_disk`` loads; the folder around several is one, too."""

    def __init__(self, files: Files, rows: SplitRows) -> None:
        super().__init__(files, rows)
        self._folder = "" if rows.is_alone else f"{self.split}/"
        self._weighted = rows.weighted
        names = _COLUMNS[self.unit] + (("loss_weights",) if self._weighted else ())
        fields = [(name, pa.list_(_TYPES.get(name, pa.int32()))) for name in names]
        features = {name: _feature(str(kind.value_type)) for name, kind in fields}
        self._info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
        self._schema = pa.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": features}})})
        self._stream = pa.ipc.new_stream(files.open(f"{self._folder}{_FILE}"), self._schema)

    @classmethod
    def write_index(cls, files: Files, splits: Sequence[str]) -> None:
        if len(splits) > 1:
            files.write("dataset_dict.json", json.dumps({"splits": list(splits)}).encode())

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
        self._stream.close()
        identity = f"{self.rows.cache.manifest.content_fingerprint} datasets {self.unit} {self.split}"
        state: dict[str, Any] = {
            "_data_files": [{"filename": _FILE}],
            "_fingerprint": hashlib.sha256(identity.encode()).hexdigest()[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": self.split,
        }
        for name, value in (("dataset_info.json", self._info), ("state.json", state)):
            self.files.write(f"{self._folder}{name}", json.dumps(value, indent=2, sort_keys=True).encode())
        return {"columns": list(self._schema.names), "path": self._folder.rstrip("/") or "."}

    def notes(self) -> Iterator[str]:
        if self._weighted:
            yield "TRL, axolotl and LLaMA-Factory do not read loss_weights: they train every label with weight 1"
        if self.unit == "blocks":
            reads = "seq_lengths or position_ids (TRL: padding_free)"
            yield f"blocks keep documents apart only where the trainer reads {reads}"

    def _write(self, columns: dict[str, pa.Array]) -> None:
        arrays = [columns[name] for name in self._schema.names]
        self._stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))


def _feature(dtype: str) -> dict[str, Any]:
    """A list column, under the name that every version of datasets reads."""
    dtype = {"float": "float32"}.get(dtype, dtype)
    return {"feature": {"dtype": dtype, "_type": "Value"}, "length": -1, "_type": "Sequence"}


def _lists(values: npt.NDArray[Any], offsets: Int64) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))
