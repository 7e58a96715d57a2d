"""Hugging Face datasets, as ``Dataset.save_to_disk`` writes them, for TRL, axolotl and LLaMA-Factory.

A dataset is a folder with an Arrow stream file, ``state.json`` and ``dataset_info.json``. Documents have exactly the
columns ``input_ids``, ``attention_mask`` and ``labels``, which axolotl requires of a tokenized dataset. Blocks have
``position_ids`` and ``seq_lengths`` instead of the mask: TRL takes boundaries from ``seq_lengths``, others from
``position_ids``, and with a mask of ones transformers would ignore both. Labels are unshifted.

With a ``loss_mask`` in place of labels, unshifted too, documents are what SkyRL reads. It is a format of its own, as
collators fail that get more columns than they know, such as LLaMA-Factory's.

Pairs have the three columns of documents twice, prefixed with ``chosen_`` and ``rejected_``, and empty ``images``,
``videos`` and ``audios``, which LLaMA-Factory's collators require; rated answers have them with ``kto_tags``.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import DESIRABLE, BlockBatch
from packer.export.writer import Files, FlatDocuments, SplitRows, Writer, lists
from packer.layout import MASKED
from packer.recipe.column_rules import declared
from packer.store.column_values import block_values, document_values

_BLOCKS = ("input_ids", "labels", "position_ids", "seq_lengths")
_TYPES = {"attention_mask": pa.int8(), "loss_mask": pa.int8(), "loss_weights": pa.float32()}
_MEDIA = ("images", "videos", "audios")
_FILE = "data-00000-of-00001.arrow"


class MaskWriter(Writer):
    """Writes one split as a folder for ``datasets.load_from_disk``; several splits become a DatasetDict folder."""

    conventions: ClassVar[Mapping[str, Any]] = {"loss_mask": "unshifted: 1 where a token is trained"}
    _of_documents: ClassVar[tuple[str, ...]] = ("input_ids", "loss_mask")

    def __init__(self, files: Files, rows: SplitRows) -> None:
        super().__init__(files, rows)
        self._declared = declared(rows.cache.manifest.recipe) if self.writes_columns else ()
        self._first = 0
        self._folder = "" if rows.is_alone else f"{self.split}/"
        columns = self._columns()
        features = {name: _feature(kind) for name, kind in columns.items()}
        self._info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        self._schema = pa.schema(list(columns.items()), metadata=metadata)
        self._stream = pa.ipc.new_stream(files.open(f"{self._folder}{_FILE}"), self._schema)

    @classmethod
    def write_index(cls, files: Files, splits: Mapping[str, Mapping[str, Any]]) -> None:
        if len(splits) > 1:
            files.write("dataset_dict.json", json.dumps({"splits": list(splits)}).encode())

    def finish(self) -> dict[str, Any]:
        self._stream.close()
        columns = " ".join(self._schema.names)
        identity = f"{self.rows.cache.manifest.content_fingerprint} {columns} {self.unit} {self.split}"
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
        pairs = {"pairs": len(self.rows) // 2} if self.rows.cache.is_paired else {}
        return {"columns": list(self._schema.names), "path": self._folder.rstrip("/") or ".", **pairs}

    def _columns(self) -> dict[str, pa.DataType]:
        """Return the name and type of each column."""
        names = self._of_documents if self.unit == "documents" else _BLOCKS
        names += ("loss_weights",) if self.rows.weighted else ()
        columns: dict[str, pa.DataType] = {name: pa.list_(_TYPES.get(name, pa.int32())) for name in names}
        for each in self._declared:
            number = pa.type_for_alias(each.rule.kind)
            inner = number if each.rule.width is None else pa.list_(number)
            columns[each.name] = pa.list_(inner) if each.of_tokens or self.unit == "blocks" else inner
        if self.rows.cache.is_paired:
            sided = {f"{side}_{name}": kind for side in ("chosen", "rejected") for name, kind in columns.items()}
            margins = self.rows.cache.documents(self.split).margins()
            margin = {} if np.isnan(margins).all() else {"margin": pa.float32()}
            return sided | margin | {name: pa.null() for name in _MEDIA}
        return columns | ({"kto_tags": pa.bool_()} if self.rows.cache.is_preference else {})

    def _next(self, number: int) -> Any:
        """Locate the rows that are written next."""
        self._first += number
        return self.rows.shards.locate(np.arange(self._first - number, self._first, dtype=np.int64))

    def _append(self, columns: Mapping[str, pa.Array]) -> None:
        arrays = [columns[name] for name in self._schema.names]
        self._stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def documents(self, batch: FlatDocuments) -> None:
        flat: dict[str, npt.NDArray[Any]] = {
            "input_ids": batch.input_ids,
            "attention_mask": np.ones(len(batch.input_ids), np.int8),
            "labels": batch.labels,
            "loss_mask": (batch.labels != MASKED).view(np.int8),
        }
        if batch.loss_weights is not None:
            flat["loss_weights"] = batch.loss_weights
        columns = {name: lists(values, batch.offsets) for name, values in flat.items()}
        found: Any = self._next(len(batch.length)) if self._declared else None
        for each in self._declared:
            own = document_values(found, each)
            columns[each.name] = lists(np.concatenate(own), batch.offsets) if each.of_tokens else pa.array(own)
        if self.rows.cache.is_paired and batch.margins is not None:
            number = len(batch.length) // 2
            sides = {"chosen": pa.array(range(0, 2 * number, 2)), "rejected": pa.array(range(1, 2 * number, 2))}
            columns = {f"{side}_{name}": own.take(at) for side, at in sides.items() for name, own in columns.items()}
            columns |= {name: pa.nulls(number) for name in _MEDIA}
            columns["margin"] = pa.array(batch.margins[::2], pa.float32(), from_pandas=True)
        elif batch.sides is not None:
            columns["kto_tags"] = pa.array(batch.sides == DESIRABLE)
        self._append(columns)

    def notes(self) -> Iterator[str]:
        if not self.rows.is_alone:
            yield "name the folder of a split: SkyRL reads all files below the one that it is given, as one dataset"


class DatasetsWriter(MaskWriter):
    """Writes documents with labels and an attention mask, or blocks."""

    conventions: ClassVar[Mapping[str, Any]] = Writer.conventions
    _of_documents: ClassVar[tuple[str, ...]] = ("input_ids", "attention_mask", "labels")
    writes_columns: ClassVar[bool] = True

    def blocks(self, batch: BlockBatch) -> None:
        B, L = batch.input_ids.shape
        offsets = np.arange(B + 1, dtype=np.int64) * L
        columns = {name: lists(getattr(batch, name).reshape(-1), offsets) for name in _BLOCKS[:3]}
        columns["seq_lengths"] = lists(batch.seq_lengths, batch.seq_offsets)
        if batch.loss_weights is not None:
            columns["loss_weights"] = lists(batch.loss_weights.reshape(-1), offsets)
        if self._declared:
            documents = self.rows.cache.documents(self.split)
            for name, own in block_values(self._next(B), L, documents, self._declared).items():
                columns[name] = lists(own.reshape(B * L, *own.shape[2:]), offsets)
        self._append(columns)

    def notes(self) -> Iterator[str]:
        if self.rows.weighted:
            yield "TRL, axolotl and LLaMA-Factory do not read loss_weights: they train every label with weight 1"
        if self.unit == "blocks":
            reads = "seq_lengths or position_ids (TRL: padding_free)"
            yield f"blocks keep documents apart only if the trainer reads {reads}"


def _feature(kind: pa.DataType) -> dict[str, Any]:
    """Describe a column as datasets does; a list gets the type name that every version of datasets can read."""
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "length": -1, "_type": "Sequence"}
    return {"dtype": {"float": "float32"}.get(str(kind), str(kind)), "_type": "Value"}
