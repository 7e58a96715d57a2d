"""Hugging Face datasets, as ``Dataset.save_to_disk`` writes them, for TRL, axolotl and LLaMA-Factory.

A dataset is a folder with an Arrow stream file, ``state.json`` and ``dataset_info.json``. Documents have exactly the
columns ``input_ids``, ``attention_mask`` and ``labels``, which axolotl requires of a tokenized dataset. Blocks have
``position_ids`` and ``seq_lengths`` instead of the mask: TRL takes boundaries from ``seq_lengths``, others from
``position_ids``, and with a mask of ones transformers would ignore both. Labels are unshifted.

Pairs have the three columns of documents twice, prefixed with ``chosen_`` and ``rejected_``. Rated answers have them
with ``kto_tags``, and again with the prefix ``kl_``: their prompt with the answer of an earlier row that has a
different prompt. These are the names that LLaMA-Factory's collators use; they also require ``images``, ``videos`` and
``audios``.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import CHOSEN, DESIRABLE, BlockBatch, Int64
from packer.errors import UsageError
from packer.export.writer import Files, FlatDocuments, SplitRows, Writer
from packer.layout import MASKED, concatenated_ranges, crossed, offsets_of, partners
from packer.store.document_shards import FoundDocuments

_COLUMNS = {
    "documents": ("input_ids", "attention_mask", "labels"),
    "blocks": ("input_ids", "labels", "position_ids", "seq_lengths"),
}
_TYPES = {"attention_mask": pa.int8(), "loss_weights": pa.float32()}
_MEDIA = ("images", "videos", "audios")
_FILE = "data-00000-of-00001.arrow"


class DatasetFolder(Writer):
    """Writes one split as a folder for ``datasets.load_from_disk``; several splits become a DatasetDict folder."""

    name: ClassVar[str]
    """Name of the format; part of the fingerprint that datasets uses for its caches."""

    def __init__(self, files: Files, rows: SplitRows) -> None:
        super().__init__(files, rows)
        self._folder = "" if rows.is_alone else f"{self.split}/"
        columns = self.columns()
        features = {name: _feature(kind) for name, kind in columns.items()}
        self._info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        self._schema = pa.schema(list(columns.items()), metadata=metadata)
        self._stream = pa.ipc.new_stream(files.open(f"{self._folder}{_FILE}"), self._schema)
        self._partners: Int64 | None = None  # for rated answers
        self._num_crossed = 0

    @classmethod
    def write_index(cls, files: Files, splits: Sequence[str]) -> None:
        if len(splits) > 1:
            files.write("dataset_dict.json", json.dumps({"splits": list(splits)}).encode())

    def columns(self) -> dict[str, pa.DataType]:
        """Return the name and type of each column."""
        raise NotImplementedError

    def margin_column(self) -> dict[str, pa.DataType]:
        """Return the column `margin`, if any pair has a margin."""
        margins = self.rows.cache.documents(self.split).margins()
        return {} if np.isnan(margins).all() else {"margin": pa.float32()}

    def of_rows(self, batch: FlatDocuments) -> dict[str, pa.Array]:
        """Return the columns of preference data that have one value for each row."""
        if batch.sides is None or batch.margins is None:
            return {}
        step = 2 if self.rows.cache.is_paired else 1
        margins, liked = batch.margins[::step], np.isin(batch.sides[::step], (CHOSEN, DESIRABLE))
        found = {
            "margin": pa.array(margins, pa.float32(), from_pandas=True),
            "kto_tags": pa.array(liked),
            "label": pa.array(liked),
            **{name: pa.nulls(len(liked)) for name in _MEDIA},
        }
        return {name: values for name, values in found.items() if name in self._schema.names}

    def partners_of(self, batch: FlatDocuments) -> FoundDocuments:
        """Find, for each document, the one whose answer KTO puts under its prompt; call it once for each batch."""
        documents = self.rows.cache.documents(self.split)
        if self._partners is None:
            try:
                self._partners = partners(documents.prompts(), 1)
            except UsageError as error:
                others = None if self.rows.is_alone else "--split NAME exports another split alone"
                raise UsageError(f"split '{self.split}': {error.message}", hint=others) from None
        own = self._partners[self._num_crossed : self._num_crossed + len(batch.length)]
        self._num_crossed += len(own)
        return documents.locate(own)

    def finish(self) -> dict[str, Any]:
        self._stream.close()
        identity = f"{self.rows.cache.manifest.content_fingerprint} {self.name} {self.unit} {self.split}"
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

    def append(self, columns: Mapping[str, pa.Array]) -> None:
        """Append rows, given by column."""
        arrays = [columns[name] for name in self._schema.names]
        self._stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))


class DatasetsWriter(DatasetFolder):
    """Writes ids with a label for each token."""

    name = "datasets"

    def columns(self) -> dict[str, pa.DataType]:
        names = _COLUMNS[self.unit] + (("loss_weights",) if self.rows.weighted else ())
        columns = {name: pa.list_(_TYPES.get(name, pa.int32())) for name in names}
        if not self.rows.cache.is_preference:
            return columns
        media = {name: pa.null() for name in _MEDIA}
        if self.rows.cache.is_paired:
            sided = {f"{side}_{name}": kind for side in ("chosen", "rejected") for name, kind in columns.items()}
            return sided | self.margin_column() | media
        return columns | {f"kl_{name}": kind for name, kind in columns.items()} | {"kto_tags": pa.bool_()} | media

    def documents(self, batch: FlatDocuments) -> None:
        flat: dict[str, npt.NDArray[Any]] = {
            "input_ids": batch.input_ids,
            "attention_mask": np.ones(len(batch.input_ids), np.int8),
            "labels": batch.labels,
        }
        if batch.loss_weights is not None:
            flat["loss_weights"] = batch.loss_weights
        starts, lengths = batch.offsets[:-1], batch.length
        if self.rows.cache.is_paired:
            sides = {"chosen": slice(0, None, 2), "rejected": slice(1, None, 2)}
            columns = {
                f"{side}_{name}": pieces(values, starts[own], lengths[own])
                for side, own in sides.items()
                for name, values in flat.items()
            }
        else:
            columns = {name: _lists(values, batch.offsets) for name, values in flat.items()}
            columns |= self._crossed(batch) if self.rows.cache.is_preference else {}
        self.append(columns | self.of_rows(batch))

    def _crossed(self, batch: FlatDocuments) -> dict[str, pa.Array]:
        """Combine the prompt of each document with the answer of its partner."""
        answers, bounds = self.partners_of(batch), batch.offsets[1:-1]
        of_prompts = zip(np.split(batch.input_ids, bounds), np.split(batch.labels, bounds), strict=True)
        of_answers = zip(answers.values("input_ids"), answers.values("labels"), strict=True)
        ids, labels = zip(*map(crossed, of_prompts, of_answers), strict=True)
        offsets = offsets_of([len(each) for each in ids])
        return {
            "kl_input_ids": _lists(np.concatenate(ids), offsets),
            "kl_attention_mask": _lists(np.ones(offsets[-1], np.int8), offsets),
            "kl_labels": _lists(np.concatenate(labels), offsets),
        }

    def blocks(self, batch: BlockBatch) -> None:
        B, L = batch.input_ids.shape
        offsets = np.arange(B + 1, dtype=np.int64) * L
        columns = {name: _lists(getattr(batch, name).reshape(-1), offsets) for name in _COLUMNS["blocks"][:3]}
        columns["seq_lengths"] = _lists(batch.seq_lengths, batch.seq_offsets)
        if batch.loss_weights is not None:
            columns["loss_weights"] = _lists(batch.loss_weights.reshape(-1), offsets)
        self.append(columns)

    def notes(self) -> Iterator[str]:
        if self.rows.weighted:
            yield "TRL, axolotl and LLaMA-Factory do not read loss_weights: they train every label with weight 1"
        if self.unit == "blocks":
            reads = "seq_lengths or position_ids (TRL: padding_free)"
            yield f"blocks keep documents apart only if the trainer reads {reads}"


def pieces(values: npt.NDArray[Any], starts: Int64, lengths: Int64) -> pa.Array:
    """Return slices of a flat array as a list array."""
    return _lists(values[concatenated_ranges(starts, lengths)], offsets_of(lengths))


def prompt_lengths(batch: FlatDocuments) -> Int64:
    """Count the tokens before the first trained one of each document.  # int64[D]

    Worked example: of two documents of 3 tokens, tokens 2, 4 and 5 are trained: 2 and 1.
    """
    trained = np.flatnonzero(batch.trained)
    return trained[np.searchsorted(trained, batch.offsets[:-1])] - batch.offsets[:-1]


def _feature(kind: pa.DataType) -> dict[str, Any]:
    """Describe a column as datasets does; a list gets the type name that every version of datasets can read."""
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "length": -1, "_type": "Sequence"}
    return {"dtype": {"float": "float32"}.get(str(kind), str(kind)), "_type": "Value"}


def _lists(values: npt.NDArray[Any], offsets: Int64) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))


class TrlWriter(DatasetFolder):
    """Writes one split of preference data."""

    name = "trl"

    @classmethod
    def refuse(cls, rows: Sequence[SplitRows]) -> None:
        for each in rows:
            documents = each.cache.documents(each.split)
            offsets, _, ends = documents.runs()
            whole = np.diff(offsets) == 1
            whole &= ends[offsets[1:] - 1] == documents.lengths()
            if not whole.all():
                raise UsageError(
                    f"{int(np.count_nonzero(~whole)):,} of {len(documents):,} answers of split '{each.split}' have "
                    "masked tokens after their prompt, which TRL would train",
                    hint="--to datasets has labels; packer.load.trainers.PackedDPOTrainer reads the cache's own",
                )

    def columns(self) -> dict[str, pa.DataType]:
        ids = pa.list_(pa.int32())
        if self.rows.cache.is_paired:
            return {"prompt_ids": ids, "chosen_ids": ids, "rejected_ids": ids, **self.margin_column()}
        return {"prompt_ids": ids, "completion_ids": ids, "KL_completion_ids": ids, "label": pa.bool_()}

    def documents(self, batch: FlatDocuments) -> None:
        starts, lengths = batch.offsets[:-1], batch.length
        prompts = prompt_lengths(batch)
        answers = {"chosen_ids": slice(0, None, 2), "rejected_ids": slice(1, None, 2)}
        if not self.rows.cache.is_paired:
            answers = {"completion_ids": slice(None)}
        firsts = slice(0, None, len(answers))
        columns = {"prompt_ids": pieces(batch.input_ids, starts[firsts], prompts[firsts])}
        for name, own in answers.items():
            columns[name] = pieces(batch.input_ids, (starts + prompts)[own], (lengths - prompts)[own])
        if not self.rows.cache.is_paired:
            found = self.partners_of(batch)
            parts = zip(found.values("input_ids"), found.values("labels"), strict=True)
            others = [ids[int((labels != MASKED).argmax()) :] for ids, labels in parts]
            columns["KL_completion_ids"] = _lists(np.concatenate(others), offsets_of([len(each) for each in others]))
        self.append(columns | self.of_rows(batch))

    def notes(self) -> Iterator[str]:
        yield "TRL's trainers prepare such rows again and fail, unless _prepare_dataset returns its input"
