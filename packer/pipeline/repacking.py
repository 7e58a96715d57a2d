"""Packing a finished cache again: other blocks from the same documents, nothing read, rendered or tokenized.

What comes out is, byte for byte, what a build with the new rules would make of the same inputs. Document shards are
taken over by hard link, or copied where the other folder is on another disk.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from packer.errors import CheckError, PackerError, RecipeError, UsageError
from packer.pipeline.blocks import BlockForm
from packer.pipeline.changes import changes
from packer.pipeline.identity import Provenance
from packer.pipeline.kept_tokenizer import kept_files, kept_model, write_model
from packer.pipeline.losses import left_out, refuse_losses
from packer.pipeline.packing import Packed, commit, finish, jobs_for_packing, pack_documents
from packer.pipeline.partition import PartitionResult
from packer.pipeline.progress import Progress, Silent
from packer.pipeline.reuse import committed, existing, refuse_foreign, up_to_date
from packer.pipeline.run import BuildResult
from packer.recipe import Recipe, make_recipe
from packer.store.cache import Cache
from packer.store.digest import digest_file_xxh3
from packer.store.folder import PRIVATE, lock, refuse_busy, sweep_all, sweep_temporary
from packer.store.manifest import MANIFEST_NAME, Manifest, Shard, manifest_fingerprint
from packer.store.mapping import repair_hint
from packer.store.path_errors import path_errors
from packer.store.shard_file import relink


def repack(
    cache: Path | str,
    folder: Path | str,
    pack: Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    jobs: int | None = None,
    fail_above: float | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> BuildResult:
    """Make another cache from the documents of one that is there.

    Args:
        cache: a finished cache; it is only read.
        folder: the new cache; made if it is not there.
        pack: keys of the recipe's `pack` that change.
        overrides: ``pack.key=value``, or ``shard_bytes=value``.
        jobs: processes; by default one for each processor, or fewer where there is little to pack.
        fail_above: as for a build.
        force: replace a cache that was made by other rules.
        progress: listens.

    Raises:
        UsageError: `folder` is, holds or lies in the cache itself; or holds something else, or a cache of other rules
            or documents.
        InputError: `cache` is not a cache, or its build did not finish.
        RecipeError: a key that is not of packing, or a value that makes no sense.
        CheckError: the cache is damaged, or was built again meanwhile.
        NothingKeptError: no document would be in a block.
        BusyError: another process writes the new cache.
        StorageError: the disk refuses; a cache that was there is as it was.

    """
    with path_errors():
        return _repack(
            Path(cache),
            Path(folder),
            pack,
            overrides,
            jobs=jobs,
            fail_above=fail_above,
            force=force,
            progress=progress or Silent(),
        )


def _repack(
    cache: Path,
    folder: Path,
    pack: Mapping[str, Any],
    overrides: Sequence[str],
    *,
    jobs: int | None,
    fail_above: float | None,
    force: bool,
    progress: Progress,
) -> BuildResult:
    with Cache.open(cache) as opened:
        manifest, fingerprint = opened.manifest, opened.fingerprint
    _refuse_itself(cache, folder)
    refuse_foreign(folder)
    refuse_busy(folder)
    wanted = _provenance(cache, manifest, pack, overrides)
    was_empty = not (folder / PRIVATE).exists()
    with lock(folder):
        sweep_temporary(folder)
        found = existing(folder, progress)
        if found is not None and up_to_date(folder, found, wanted):
            finish(folder, found)
            refuse_losses(found, fail_above)
            return _result(folder, found, num_partitions=len(_documents(found)), built=False)
        if found is not None and not force:
            changes(found, wanted).refuse(folder)
            _refuse_other_inputs(folder, found, cache, manifest)
        try:
            try:
                results = _take_over(cache, folder, manifest)
            finally:
                # Whatever else went wrong then, this is why.
                if manifest_fingerprint(cache) != fingerprint:
                    raise CheckError(f"{cache} was built again while it was read", hint="run packer pack again")
            packed = _pack(cache, folder, results, wanted, jobs=jobs, progress=progress)
            made = commit(folder, wanted, results, packed, fail_above=fail_above)
        except PackerError:
            if was_empty and not (folder / MANIFEST_NAME).exists():  # nothing in it took work that could be saved
                sweep_all(folder)
            raise
    return _result(folder, made, num_partitions=len(results), built=True)


def _pack(
    cache: Path,
    folder: Path,
    results: Sequence[PartitionResult],
    wanted: Provenance,
    *,
    jobs: int | None,
    progress: Progress,
) -> Packed:
    """Block shards of the documents that were taken over."""
    documents = [result.shard for result in results]
    jobs = jobs or jobs_for_packing(documents)
    try:
        return pack_documents(folder, documents, wanted, there={}, jobs=jobs, progress=progress)
    except CheckError as error:
        raise CheckError(error.message, hint=f"the shards are those of {cache}: {repair_hint(cache)}") from None


def _provenance(cache: Path, manifest: Manifest, pack: Mapping[str, Any], overrides: Sequence[str]) -> Provenance:
    """What the new cache is made from: all as before but the rules of packing."""
    old = make_recipe(manifest.recipe, where=f"the recipe of {cache}")
    if Provenance.of(manifest, old).recipe_fingerprint != manifest.recipe_fingerprint:
        raise CheckError(
            f"{cache} is not what this version of packer makes of its recipe", hint="build it again, with --force"
        )
    values = {**manifest.recipe, "pack": {**manifest.recipe["pack"], **pack}}
    recipe = make_recipe(values, overrides, where=f"packing {cache} again")
    _refuse_other_documents(old, recipe)
    model = manifest.model
    if recipe.pack.pad_id != old.pack.pad_id:
        model = msgspec.structs.replace(model, pad_id=kept_model(cache, manifest, recipe).pad_id)
    BlockForm.of(recipe.pack, pad_id=model.pad_id, eos_id=model.eos_id, stop_ids=model.stop_ids)
    return Provenance.of(msgspec.structs.replace(manifest, model=model), recipe)


def _refuse_other_documents(old: Recipe, new: Recipe) -> None:
    packing = {"pack": old.pack, "shard_bytes": old.shard_bytes}
    if msgspec.structs.replace(new, **packing) != old:
        changed = [
            name for name in old.__struct_fields__ if name not in packing and getattr(old, name) != getattr(new, name)
        ]
        raise RecipeError(
            f"{', '.join(changed)}: packing again changes pack.* and shard_bytes alone; this decides the documents",
            hint="packer build makes other documents",
        )


def _refuse_itself(cache: Path, folder: Path) -> None:
    source, target = cache.resolve(), folder.resolve()
    if source == target:
        raise UsageError(f"{folder} is the cache itself", hint="-o takes another folder")
    if source in target.parents or target in source.parents:
        raise UsageError(
            f"{folder} and {cache} lie one in the other: what one does not name would be removed with it",
            hint="-o takes a folder beside the cache",
        )


def _refuse_other_inputs(folder: Path, found: Manifest, cache: Path, manifest: Manifest) -> None:
    """A cache of other documents is replaced on request alone: its inputs may be gone."""
    theirs, ours = ([(shard.split, shard.sha256) for shard in _documents(each)] for each in (found, manifest))
    if theirs != ours:
        raise UsageError(
            f"{folder} holds other documents than {cache}", hint="--force replaces it; -o another folder keeps both"
        )


def _take_over(cache: Path, folder: Path, manifest: Manifest) -> list[PartitionResult]:
    """Link the document shards and keep the tokenizer's files.

    Raises:
        CheckError: a file of the cache is missing or damaged.

    """
    results = committed(cache, manifest)
    documents = _documents(manifest)
    if len(results) != len(documents):
        raise CheckError(
            f"{cache}: rejected.jsonl is not what was written", hint=f"packer build -o {cache} --repair mends it"
        )
    numbers: dict[str, int] = {}
    for shard in documents:
        index = numbers[shard.split] = numbers.get(shard.split, -1) + 1
        # A link would put damaged bytes in place of a whole file that is there.
        if digest_file_xxh3(cache / shard.path) != shard.xxh3:
            raise CheckError(
                f"{cache / shard.path} is damaged: its xxh3 is not the manifest's", hint=repair_hint(cache)
            )
        relink(folder, shard, index=index, source=cache)
    write_model(folder, manifest.model, kept_files(cache, manifest))
    return results


def _documents(manifest: Manifest) -> list[Shard]:
    return [shard for shard in manifest.shards if shard.kind == "documents"]


def _result(folder: Path, manifest: Manifest, *, num_partitions: int, built: bool) -> BuildResult:
    return BuildResult(
        folder=folder,
        manifest=manifest,
        fingerprint=manifest_fingerprint(folder),
        built=built,
        num_partitions_built=0,
        num_partitions_reused=num_partitions,
        left_out=left_out(folder, manifest),
    )
