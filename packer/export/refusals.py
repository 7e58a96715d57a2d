"""What an export refuses before it writes anything: a place that is not its own, and what a form cannot hold."""

import os
from collections.abc import Sequence
from pathlib import Path

from packer.errors import UsageError
from packer.export.writer import FORMS, Form, Unit
from packer.store.cache import Cache
from packer.store.exported import RECORD, read_record
from packer.store.manifest import Shard


def asked_splits(cache: Cache, split: str | None, unit: Unit) -> list[str]:
    """The splits that are meant.

    Raises:
        UsageError: there are none.

    """
    there = list(cache.splits(unit))
    if not there:
        raise UsageError(f"{cache.folder} has no {unit}", hint="--documents exports its documents")
    if split is None:
        return there
    if split not in there:
        raise UsageError(
            f"{cache.folder} has no {unit} of split '{split}'", hint=f"splits with {unit}: {', '.join(there)}"
        )
    return [split]


def shards_of(cache: Cache, splits: Sequence[str], unit: Unit) -> list[Shard]:
    """The shards of some splits, in the manifest's order."""
    return [shard for shard in cache.manifest.shards if shard.kind == unit and shard.split in splits]


def refuse_place(cache: Cache, out: Path, *, force: bool) -> None:
    """An export may replace an export and nothing else: whatever lies there beside its files is not its own."""
    place, home = out.resolve(), cache.folder.resolve()
    if place == home or place.is_relative_to(home):
        where = "is the cache" if place == home else "lies in the cache"
        raise UsageError(f"{out} {where}", hint="export into a folder beside it")
    if home.is_relative_to(place):
        raise UsageError(f"{out} holds the cache", hint="export into a folder beside it")
    if not os.path.lexists(out):
        return
    is_export = (out / RECORD).is_file()
    if not is_export:
        raise UsageError(f"{out} is there, and is no export", hint="name a folder that is not there")
    if not force:
        raise UsageError(f"{out} is there", hint="--force replaces an export")
    strange = sorted(_files_of(out) - _own_files(out))
    if strange:
        raise UsageError(
            f"{out} holds files that no export wrote, such as {strange[0]}", hint="move them, or name another folder"
        )


def _files_of(folder: Path) -> set[str]:
    """Everything in a folder that is no folder, links among it."""
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix() for path in found}


def _own_files(folder: Path) -> set[str]:
    """What the export that lies there says it wrote."""
    try:
        return {RECORD, *(str(each["path"]) for each in (read_record(folder) or {})["files"])}
    except (TypeError, KeyError):
        return {RECORD}


def refuse_form(cache: Cache, splits: Sequence[str], *, to: Form, unit: Unit, separate_mask: bool) -> None:
    if unit not in FORMS[to]:
        raise UsageError(f"{to} takes documents, not blocks", hint="its trainer packs for itself: leave --blocks out")
    if separate_mask and to != "megatron":
        raise UsageError(f"--separate-mask is for megatron; {to} has the mask with the tokens", hint="leave it out")
    mode = cache.manifest.recipe["pack"]["mode"]
    if to == "olmo" and unit == "blocks" and mode == "isolated":
        raise UsageError(
            "OLMo-core finds documents within a row by EOS tokens, and cannot be told the borders of isolated blocks",
            hint="--documents: its NumpyPackedFSLDataset packs them, and keeps them apart; or packer pack --mode eos",
        )
    open_split = cache.documents if unit == "documents" else cache.blocks
    if to != "datasets" and any(open_split(split).weighted for split in splits):
        raise UsageError(
            f"{cache.folder} has fractional loss weights, and {to} has no place for them",
            hint="--to datasets has a column loss_weights, for a trainer that reads it",
        )
    if to == "megatron" and not separate_mask:
        shards = shards_of(cache, splits, unit)
        tokens, trained = (sum(getattr(shard, name) for shard in shards) for name in ("num_tokens", "num_trained"))
        masked = tokens - trained - sum(shard.num_rows for shard in shards)
        if masked:
            raise UsageError(
                f"Megatron's GPTDataset trains every token, and {masked:,} of {tokens:,} tokens here are masked "
                "beside the first one of each document",
                hint="--separate-mask writes the mask as a second .bin and .idx, for a dataset class that reads it",
            )
