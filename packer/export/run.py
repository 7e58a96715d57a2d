"""An export from its refusals to export.json: a folder that is there with all of its files, or not at all."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packer.export.datasets_folder import DatasetsWriter, dataset_dict
from packer.export.mds import MdsWriter
from packer.export.megatron import MegatronWriter
from packer.export.olmo import OlmoWriter
from packer.export.refusals import asked_splits, refuse_form, refuse_place, shards_of
from packer.export.replacing import replacing
from packer.export.source import blocks_of, documents_of
from packer.export.writer import FORMS, ExportedFile, Files, Form, SplitToWrite, Unit, Writer
from packer.pipeline.progress import Progress, Silent
from packer.store.cache import Cache
from packer.store.exported import RECORD

_WRITERS: dict[Form, Callable[[SplitToWrite], Writer]] = {
    "datasets": DatasetsWriter,
    "megatron": MegatronWriter,
    "olmo": OlmoWriter,
    "mds": MdsWriter,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSplit:
    """One split that was written."""

    split: str
    num_rows: int
    num_tokens: int
    """Slots of the rows: of blocks with their padding."""

    num_trained: int
    told: dict[str, Any]
    """What its form says of it: paths, types, columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of :func:`export`."""

    folder: Path
    to: Form
    unit: Unit
    splits: tuple[ExportedSplit, ...]
    files: tuple[ExportedFile, ...]
    notes: tuple[str, ...]
    """What whoever trains with it should know."""

    fingerprint: str
    """Of the cache."""


def export(
    cache: Path | str,
    out: Path | str,
    *,
    to: Form,
    split: str | None = None,
    unit: Unit | None = None,
    separate_mask: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write a cache in the files of another trainer; every row's digest is compared on the way.

    Args:
        cache: the cache.
        out: the folder to write, which must not be there.
        to: whose files.
        split: this one alone; all where none is named.
        unit: documents or blocks; the first that the form can hold where nothing is said.
        separate_mask: `megatron` alone: write the loss mask as a second pair of files.
        force: replace a folder that an export wrote.
        progress: listens; counts rows.

    Raises:
        UsageError: the form cannot hold this, or `out` is there.
        InputError: not a cache.
        BusyError: another process is exporting to `out`.
        CheckError: the cache is damaged; nothing is left behind.
        StorageError: the disk refuses; nothing is left behind.

    """
    out, progress = Path(out), progress or Silent()
    unit = unit or FORMS[to][0]
    with Cache.open(cache) as opened:
        splits = asked_splits(opened, split, unit)
        refuse_place(opened, out, force=force)
        refuse_form(opened, splits, to=to, unit=unit, separate_mask=separate_mask)
        progress.stage("exporting", sum(shard.num_rows for shard in shards_of(opened, splits, unit)), unit)
        with replacing(out, lambda: refuse_place(opened, out, force=force)) as folder:
            files = Files(folder)
            written = tuple(
                _write_split(
                    opened,
                    _asked(opened, name, files, unit, alone=len(splits) == 1, to=to, mask=separate_mask),
                    to,
                    progress,
                )
                for name in splits
            )
            if to == "datasets" and len(splits) > 1:
                files.write("dataset_dict.json", dataset_dict(splits))
            notes = tuple(_notes(opened, written, to=to, unit=unit, separate_mask=separate_mask))
            found = Exported(
                folder=out, to=to, unit=unit, splits=written, files=tuple(files.written), notes=notes,
                fingerprint=opened.fingerprint,
            )  # fmt: skip
            files.write(RECORD, json.dumps(_record(opened, found), indent=2, sort_keys=True).encode() + b"\n")
    return found


def _asked(cache: Cache, split: str, files: Files, unit: Unit, *, alone: bool, to: Form, mask: bool) -> SplitToWrite:
    name = f"{cache.manifest.content_fingerprint} {to} {unit} {split}"
    return SplitToWrite(
        files=files,
        split=split,
        folder="" if to == "megatron" or (to == "datasets" and alone) else f"{split}/",
        unit=unit,
        weighted=cache.documents(split).weighted if unit == "documents" else cache.blocks(split).weighted,
        model=cache.manifest.model,
        block_len=cache.manifest.recipe["pack"]["block_len"],
        separate_mask=mask,
        identity=hashlib.sha256(name.encode()).hexdigest(),
    )


def _write_split(cache: Cache, asked: SplitToWrite, to: Form, progress: Progress) -> ExportedSplit:
    split, unit = asked.split, asked.unit
    shards = shards_of(cache, [split], unit)
    writer = _WRITERS[to](asked)
    try:
        if unit == "documents":
            for documents in documents_of(cache.documents(split)):
                writer.documents(documents)
                progress.advance(len(documents.lengths), len(documents.input_ids))
        else:
            for blocks in blocks_of(cache.blocks(split)):
                writer.blocks(blocks)
                progress.advance(len(blocks.length), blocks.input_ids.size)
        told = writer.finish()
    finally:
        asked.files.abort()
    num_rows = sum(shard.num_rows for shard in shards)
    return ExportedSplit(
        split=split,
        num_rows=num_rows,
        num_tokens=num_rows * asked.block_len if unit == "blocks" else sum(shard.num_tokens for shard in shards),
        num_trained=sum(shard.num_trained for shard in shards),
        told=told,
    )


def _notes(
    cache: Cache, splits: Sequence[ExportedSplit], *, to: Form, unit: Unit, separate_mask: bool
) -> Iterator[str]:
    model = cache.manifest.model
    if to == "datasets" and any("loss_weights" in entry.told["columns"] for entry in splits):
        yield "TRL, axolotl and LLaMA-Factory do not read loss_weights: they train every label with weight 1"
    if to == "datasets" and unit == "blocks":
        yield "blocks keep documents apart only where the trainer reads seq_lengths or position_ids (TRL: padding_free)"
    if to == "megatron" and separate_mask:
        yield "Megatron's own GPTDataset does not read the mask, and trains every token"
    if to == "megatron" and model.pad_id in model.stop_ids:
        yield f"GPTDataset masks targets that are its pad id; here the pad id, {model.pad_id}, is a stop token"
    if to == "olmo" and unit == "documents" and not all(entry.told["eos_ends_documents"] for entry in splits):
        yield "EOS does not mark the ends of documents here: open with use_array_if_local=False, to read the .csv.gz"
    if to == "mds":
        yield "train with target_responses: all, or all but the last turn go unlearned"
        if any(entry.told["documents_that_get_another_eos"] for entry in splits):
            yield f"llm-foundry appends EOS (id {model.eos_id}) to documents that do not end in it, and trains it"


def _record(cache: Cache, found: Exported) -> dict[str, Any]:
    manifest = cache.manifest
    return {
        "format": "packer-export",
        "format_version": 1,
        "to": found.to,
        "unit": found.unit,
        "conventions": {"labels": "unshifted", "masked": -100, "first_token_of_a_document": "masked"},
        "source": {
            "fingerprint": found.fingerprint,
            "content_fingerprint": manifest.content_fingerprint,
            "recipe_fingerprint": manifest.recipe_fingerprint,
            "pack_mode": manifest.recipe["pack"]["mode"],
        },
        "model": {
            "vocab_size": manifest.model.vocab_size,
            "pad_id": manifest.model.pad_id,
            "eos_id": manifest.model.eos_id,
            "stop_ids": list(manifest.model.stop_ids),
        },
        "splits": {
            entry.split: {
                "rows": entry.num_rows, "tokens": entry.num_tokens, "trained": entry.num_trained, **entry.told,
            }
            for entry in found.splits
        },
        "files": [asdict(file) for file in found.files],
        "notes": list(found.notes),
    }  # fmt: skip
