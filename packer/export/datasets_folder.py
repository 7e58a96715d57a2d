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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import DESIRABLE, Int64
from packer.export.run import Files, SplitRows, lists
from packer.layout import MASKED, offsets_of
from packer.recipe.groups import Declared, declared
from packer.store.shards import block_values, document_values

_BLOCKS = ("input_ids", "labels", "position_ids", "seq_lengths")
_TYPES = {"attention_mask": pa.int8(), "loss_mask": pa.int8()}
_MEDIA = ("images", "videos", "audios")
_FILE = "data-00000-of-00001.arrow"


def write(files: Files, rows: SplitRows, windows: Iterable[Int64], *, as_mask: bool = False) -> dict[str, Any]:
    """Write a split as a folder for ``datasets.load_from_disk``; several splits become a DatasetDict folder."""
    folder = "" if rows.is_alone else f"{rows.split}/"
    own = () if as_mask else declared(rows.cache.manifest.recipe)
    columns = _columns(rows, own, as_mask=as_mask)
    features = {name: _feature(kind) for name, kind in columns.items()}
    schema = pa.schema(list(columns.items()), {"huggingface": json.dumps({"info": {"features": features}})})
    arrays_of = _documents if rows.unit == "documents" else _blocks
    with pa.ipc.new_stream(files.open(f"{folder}{_FILE}"), schema) as stream:
        for numbers in windows:
            arrays = arrays_of(rows, numbers, own)
            stream.write_batch(pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema))
    identity = f"{rows.cache.manifest.content_fingerprint} {' '.join(schema.names)} {rows.unit} {rows.split}"
    state: dict[str, Any] = {
        "_data_files": [{"filename": _FILE}],
        "_fingerprint": hashlib.sha256(identity.encode()).hexdigest()[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": rows.split,
    }
    info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
    for name, value in (("dataset_info.json", info), ("state.json", state)):
        files.write(f"{folder}{name}", json.dumps(value, indent=2, sort_keys=True).encode())
    pairs = {"pairs": len(rows) // 2} if rows.cache.is_paired else {}
    return {"columns": list(schema.names), "path": folder.rstrip("/") or ".", **pairs}


def write_index(files: Files, splits: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the names of several splits."""
    if len(splits) > 1:
        files.write("dataset_dict.json", json.dumps({"splits": list(splits)}).encode())


def notes(rows: SplitRows, *, as_mask: bool = False) -> Iterator[str]:
    """Yield what a trainer does not read."""
    if as_mask:
        if not rows.is_alone:
            yield "name the folder of a split: SkyRL reads all files below the one that it is given, as one dataset"
        return
    if rows.unit == "blocks":
        reads = "seq_lengths or position_ids (TRL: padding_free)"
        yield f"blocks keep documents apart only if the trainer reads {reads}"


def _columns(rows: SplitRows, own: Sequence[Declared], *, as_mask: bool) -> dict[str, pa.DataType]:
    """Return the name and type of each column."""
    names = ["input_ids", "loss_mask"] if as_mask else ["input_ids", "attention_mask", "labels"]
    names = [*_BLOCKS] if rows.unit == "blocks" else names
    columns: dict[str, pa.DataType] = {name: pa.list_(_TYPES.get(name, pa.int32())) for name in names}
    for each in own:
        number = pa.type_for_alias(each.rule.kind)
        inner = number if each.rule.width is None else pa.list_(number)
        columns[each.name] = pa.list_(inner) if each.of_tokens or rows.unit == "blocks" else inner
    if rows.cache.is_paired:
        sided = {f"{side}_{name}": kind for side in ("chosen", "rejected") for name, kind in columns.items()}
        return sided | {name: pa.null() for name in _MEDIA}
    return columns | ({"kto_tags": pa.bool_()} if rows.cache.has_sides else {})


def _documents(rows: SplitRows, numbers: Int64, own: Sequence[Declared]) -> dict[str, pa.Array]:
    shards: Any = rows.shards
    found = shards.locate(numbers)
    ids, labels = (np.concatenate(found.values(name)) for name in ("input_ids", "labels"))
    flat: dict[str, npt.NDArray[Any]] = {
        "input_ids": ids,
        "attention_mask": np.ones(len(ids), np.int8),
        "labels": labels,
        "loss_mask": (labels != MASKED).view(np.int8),
    }
    offsets = offsets_of(found.values("length"))
    columns = {name: lists(values, offsets) for name, values in flat.items()}
    for each in own:
        values = document_values(found, each)
        columns[each.name] = lists(np.concatenate(values), offsets) if each.of_tokens else pa.array(values)
    if rows.cache.is_paired:
        sides = {"chosen": pa.array(range(0, len(numbers), 2)), "rejected": pa.array(range(1, len(numbers), 2))}
        columns = {f"{side}_{name}": column.take(at) for side, at in sides.items() for name, column in columns.items()}
        columns |= {name: pa.nulls(len(numbers) // 2) for name in _MEDIA}
    elif rows.cache.has_sides:
        columns["kto_tags"] = pa.array(shards.sides()[numbers] == DESIRABLE)
    return columns


def _blocks(rows: SplitRows, numbers: Int64, own: Sequence[Declared]) -> dict[str, pa.Array]:
    shards: Any = rows.shards
    batch = shards.read(numbers)
    B, L = batch.input_ids.shape
    offsets = np.arange(B + 1, dtype=np.int64) * L
    columns = {name: lists(getattr(batch, name).reshape(-1), offsets) for name in _BLOCKS[:3]}
    columns["seq_lengths"] = lists(batch.seq_lengths, batch.seq_offsets)
    if own:
        found = block_values(shards.locate(numbers), L, rows.cache.documents(rows.split), own)
        for name, values in found.items():
            columns[name] = lists(values.reshape(B * L, *values.shape[2:]), offsets)
    return columns


def _feature(kind: pa.DataType) -> dict[str, Any]:
    """Describe a column as datasets does; a list gets the type name that every version of datasets can read."""
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "length": -1, "_type": "Sequence"}
    return {"dtype": {"float": "float32"}.get(str(kind), str(kind)), "_type": "Value"}
