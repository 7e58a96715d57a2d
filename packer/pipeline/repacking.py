"""Repack a finished cache: make new blocks from the same documents without reading, rendering or tokenizing.

The result is byte-identical to a build of the same inputs with the new rules. Document shards are hard-linked, or
copied if the other folder is on another disk.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from packer.curate.trait_rules import TraitRules, traits_version
from packer.display import in_shell, repair_hint
from packer.errors import CheckError, RecipeError, StorageError, UsageError
from packer.limits import path_errors
from packer.pipeline.blocks import BlockForm
from packer.pipeline.build_result import BuildResult
from packer.pipeline.changes import same_as_json
from packer.pipeline.documents import BuildOptions
from packer.pipeline.executor import Workers
from packer.pipeline.identity import TRAITS_VERSION, Provenance, same_traits
from packer.pipeline.inputs import CUTTING_SPEEDUP
from packer.pipeline.kept_tokenizer import kept_files, kept_model
from packer.pipeline.partition import Documents, PartitionResult
from packer.pipeline.plan import refuse_mixed
from packer.pipeline.ray_workers import workers_on
from packer.pipeline.reuse import committed, refuse_other_files
from packer.pipeline.run import make_cache
from packer.pipeline.timing import Clock, Profile
from packer.progress import Progress, Silent
from packer.recipe import Recipe, make_recipe
from packer.store.cache import Cache
from packer.store.files import CacheFiles
from packer.store.manifest import Manifest, Shard, StoredTable, manifest_fingerprint
from packer.store.mapping import check_bytes
from packer.store.place import build_place, cache_place, fresh_place
from packer.store.row_tables import read_table
from packer.store.shard_file import relink


def repack(
    cache: Path | str,
    folder: Path | str,
    pack: Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    jobs: int | None = None,
    on: str | None = None,
    fail_above: float | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> BuildResult:
    """Make another cache from the documents of an existing one.

    Args:
        cache: a finished cache; it is only read.
        folder: the new cache; created if it does not exist.
        pack: keys of the recipe's `pack` that change.
        overrides: ``pack.key=value``, ``shard_bytes=value``, or rules about rows that need no traits besides the
            recorded ones, such as ``split.seed=1``.
        jobs: number of processes; by default one for each processor, or fewer if there is little to pack.
        on: a Ray cluster, as for :func:`packer.build`.
        fail_above: as for a build.
        force: replace a cache that was made by other rules.
        progress: receives progress and notes.

    Raises:
        UsageError: `folder` is, contains or is inside the cache itself; or contains other files, or a cache of other
            rules or documents.
        InputError: `cache` is not a cache, or its build did not finish.
        RecipeError: a key that does not belong to packing, or an invalid value.
        CheckError: the cache is damaged, or was rebuilt meanwhile.
        NothingKeptError: no document would be in a block.
        BusyError: another process is writing the new cache.
        StorageError: the disk cannot be written; an existing cache stays as it was.
    """
    cache, folder, progress = cache_place(cache), build_place(folder), progress or Silent()
    with path_errors(), workers_on(on, jobs, progress.note) as workers:
        with Cache.open(cache) as opened:
            wanted = _provenance(cache, opened.manifest, pack, overrides)
            source = _CacheDocuments(cache, folder, opened, wanted, workers)
        _refuse_itself(cache, folder)
        refuse_other_files(folder)
        options = BuildOptions(workers=workers, fail_above=fail_above, force=force)
        clock = Clock()
        result = make_cache(folder, source, options, progress, clock)
        return replace(result, profile=Profile(parts=clock.take(), stages={}, processes=0))


class _CacheDocuments:
    """The documents of a cache that is repacked."""

    def __init__(self, cache: Path, folder: Path, opened: Cache, wanted: Provenance, workers: Workers) -> None:
        self.wanted = wanted
        self.model_files: Mapping[str, bytes] = kept_files(cache, opened.manifest)
        self._cache = cache
        self._folder = folder
        self._workers = workers
        self._manifest = opened.manifest
        self._fingerprint = opened.fingerprint

    def refuse_changed(self) -> None:
        if manifest_fingerprint(self._cache) != self._fingerprint:
            raise CheckError(f"{self._cache} was built again while it was read", hint="run packer pack again")

    def documents(self, found: Manifest | None) -> Documents:  # noqa: ARG002 - required by the protocol
        """Link the document shards, and the traits if there are rules about rows.

        Raises:
            CheckError: a file of the cache is missing or damaged.
        """
        try:
            return Documents(results=self._linked(), traits=self._traits(), num_built=0)
        except (CheckError, StorageError):
            self.refuse_changed()  # raises if the cache was rebuilt, which explains the error
            raise

    def _linked(self) -> list[PartitionResult]:
        cache = self._cache
        results = committed(cache, self._manifest)
        documents = [shard for shard in self._manifest.shards if shard.kind == "documents"]
        if len(results) != len(documents):
            raise CheckError(
                f"{cache}: rejected.jsonl is not what was written",
                hint=repair_hint(cache),
            )
        numbers: dict[str, int] = {}
        tasks: list[tuple[Shard, int]] = []
        for shard in documents:
            index = numbers[shard.split] = numbers.get(shard.split, -1) + 1
            tasks.append((shard, index))
        sizes = [shard.num_bytes // CUTTING_SPEEDUP for shard in documents]
        arguments = (CacheFiles(cache).url or cache, self._folder)
        for _ in self._workers.run(_linker, arguments, tasks, sizes=sizes, folder=self._folder):
            pass
        return results

    def _traits(self) -> list[StoredTable]:
        selection = self._manifest.selection
        if selection is None or not self.wanted.recipe.row_rules.is_set:
            return []
        for each in selection.traits:
            read_table(self._cache, each)
            CacheFiles(self._folder).take(each.path, CacheFiles(self._cache), each.path, sha256=each.sha256)
        return list(selection.traits)


def _linker(cache: Path | str, folder: Path) -> Callable[[tuple[Shard, int]], None]:
    """Return the function that links document shards of a cache, given by its folder or URL, into another one."""

    def link(task: tuple[Shard, int]) -> None:
        shard, index = task
        with fresh_place(cache) as place:
            check_bytes(place, shard)  # first, as a link would replace an intact file with damaged bytes
            CacheFiles(folder).publish(relink(folder, shard, index=index, source=place))

    return link


def _provenance(cache: Path, manifest: Manifest, pack: Mapping[str, Any], overrides: Sequence[str]) -> Provenance:
    """Return the provenance of the new cache: that of the old one with the new packing rules and rules about rows."""
    old = make_recipe(manifest.recipe, where=f"the recipe of {cache}")
    if Provenance.of(manifest, old).recipe_fingerprint != manifest.recipe_fingerprint:
        raise CheckError(
            f"{cache} is not what this version of packer makes of its recipe", hint="build it again, with --force"
        )
    values = {**manifest.recipe, "pack": {**manifest.recipe["pack"], **pack}}
    recipe = make_recipe(values, overrides, where=f"packing {cache} again")
    _refuse_other_documents(old, recipe)
    refuse_mixed(manifest.inputs, recipe)
    _refuse_other_traits(cache, manifest, old, recipe)
    if not recipe.row_rules.is_set:
        inputs = tuple(msgspec.structs.replace(entry, part=None) for entry in manifest.inputs)
        manifest = msgspec.structs.replace(manifest, inputs=inputs)
    model = manifest.model
    if recipe.pack.pad_id != old.pack.pad_id:
        model = msgspec.structs.replace(model, pad_id=kept_model(cache, manifest, recipe).pad_id)
    BlockForm.of(recipe.pack, pad_id=model.pad_id, eos_id=model.eos_id, stop_ids=model.stop_ids)
    return Provenance.of(msgspec.structs.replace(manifest, model=model), recipe)


_REPACKED = ("pack", "shard_bytes", "read", "filters", "decontaminate", "deduplicate", "split")


def _refuse_other_documents(old: Recipe, new: Recipe) -> None:
    before, after = (
        msgspec.structs.replace(
            recipe,
            sources=tuple(msgspec.structs.replace(source, where={}, take=None) for source in recipe.sources),
        )
        for recipe in (old, new)
    )
    changed = [
        name
        for name in old.__struct_fields__
        if name not in _REPACKED and not same_as_json(getattr(before, name), getattr(after, name))
    ]
    if changed:
        raise RecipeError(
            f"{', '.join(changed)}: packing again can change only pack.*, shard_bytes and rules about "
            "rows; this key decides the documents",
            hint="packer build makes other documents",
        )


def _refuse_other_traits(cache: Path, manifest: Manifest, old: Recipe, new: Recipe) -> None:
    """Refuse rules about rows that need traits which were not recorded when the rows were read.

    Raises:
        RecipeError: traits are missing; names them.
    """
    rules = new.row_rules
    if not rules.is_set:
        return
    hint = f"packer build -o {in_shell(cache)} with these rules reads the rows again but tokenizes nothing"
    if manifest.selection is None:
        raise RecipeError(f"{cache} was built without rules that choose rows, so it has no traits of them", hint=hint)
    if not same_traits(manifest, old):
        versions = f"version {manifest.versions.get(TRAITS_VERSION)}, not {traits_version(old.row_rules)}"
        raise RecipeError(f"{cache} has traits of its rows by {versions}", hint=hint)
    for i in range(len(new.sources)):
        before, after = TraitRules.of(old.row_rules, i), TraitRules.of(rules, i)
        changed = [
            name for name in after.__struct_fields__ if not same_as_json(getattr(before, name), getattr(after, name))
        ]
        if changed:
            raise RecipeError(f"{cache} has no traits for other {' and '.join(changed)} of sources[{i}]", hint=hint)


def _refuse_itself(cache: Path, folder: Path) -> None:
    source, target = (Path(CacheFiles(each).url or each.resolve()) for each in (cache, folder))
    if source == target:
        raise UsageError(f"{folder} is the cache itself", hint="-o takes another folder")
    if source in target.parents or target in source.parents:
        raise UsageError(
            f"{folder} and {cache} are inside one another: files that one does not name would be removed",
            hint="-o takes a folder beside the cache",
        )
