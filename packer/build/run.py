"""One build, from the recipe to the commit.

Order of work: plan; document shards of the partitions that are not there yet; blocks; rejected.jsonl and model files;
the manifest, whose appearance is the commit; then what no manifest names is removed. Whatever happens before the
manifest is replaced, the cache that was there stays as it was, and finished partitions are found again.
"""

import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import msgspec

from packer import __version__
from packer.batches import UInt64
from packer.build.blocks import BlockTask, PackedSplit, block_worker, pack_split
from packer.build.identity import content_fingerprint
from packer.build.partition import PartitionResult, PartitionTask, RejectedRow, read_journal, run_partition
from packer.build.plan import BuildPlan, plan_build
from packer.build.pool import Pool, default_jobs
from packer.build.price import check_price, check_sampled_price
from packer.build.progress import Progress, Silent
from packer.build.stages import Stages
from packer.errors import CheckError, InputError, NothingKeptError, UsageError
from packer.model import Model
from packer.recipe import Recipe, to_json
from packer.rejections import CODES
from packer.source import line_of_row
from packer.store.block_shards import BlockShards
from packer.store.conservation import check_conservation
from packer.store.digest import digest_file, digest_file_xxh3
from packer.store.document_shards import DocumentShards
from packer.store.folder import lock, sweep, sweep_temporary, write_atomically
from packer.store.manifest import (
    Manifest,
    ModelFile,
    ModelRecord,
    Shard,
    Totals,
    manifest_fingerprint,
    read_manifest,
    write_manifest,
)
from packer.store.rejected import REJECTED_NAME, Rejected, read_rejected, write_rejected
from packer.store.shard_file import relink

MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What a build did."""

    folder: Path
    manifest: Manifest | None
    """None after a dry run of a build that has something to do."""

    fingerprint: str | None
    built: bool
    """False where the cache was up to date already, and for a dry run."""

    num_partitions_built: int
    num_partitions_reused: int


def build(
    recipe: Recipe,
    folder: Path | str,
    *,
    jobs: int | None = None,
    on_error: Literal["reject", "fail"] = "reject",
    force: bool = False,
    repair: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> BuildResult:
    """Build a cache, or bring it up to date.

    The bytes do not depend on `jobs`, the folder, or on how often a build was interrupted.

    Args:
        recipe: what to build.
        folder: the cache; made if it is not there.
        jobs: processes; by default one for each processor.
        on_error: `fail` stops at the first rejected row.
        force: replace a cache that was built by another recipe.
        repair: check every byte of what is there, and make again what is damaged.
        dry_run: only say what would be done.
        progress: listens.

    Raises:
        PackerError: see :mod:`packer.errors`; nothing of an existing cache is lost.

    """
    folder, progress = Path(folder), progress or Silent()
    _refuse_foreign(folder)
    plan = plan_build(recipe, progress)
    found = _existing(folder, progress)
    if found is not None and not repair and _up_to_date(folder, found, plan):
        return BuildResult(
            folder=folder,
            manifest=found,
            fingerprint=manifest_fingerprint(folder),
            built=False,
            num_partitions_built=0,
            num_partitions_reused=len(plan.tasks),
        )
    if found is not None and not force:
        _refuse_other_recipe(folder, found, plan)
    if dry_run:
        reusable = _reusable(folder, found, repair=repair)
        missing = sum(task.key not in reusable for task in plan.tasks)
        return BuildResult(
            folder=folder,
            manifest=None,
            fingerprint=None,
            built=False,
            num_partitions_built=missing,
            num_partitions_reused=len(plan.tasks) - missing,
        )
    with lock(folder):
        sweep_temporary(folder)
        found = _existing(folder, progress)  # another build may have finished just before this one got the lock
        return _Build(plan, folder, jobs or default_jobs(), on_error, progress).run(found, repair=repair)


class _Build:
    """One build that has the lock."""

    def __init__(self, plan: BuildPlan, folder: Path, jobs: int, on_error: str, progress: Progress) -> None:
        self._plan = plan
        self._folder = folder
        self._jobs = jobs
        self._on_error = on_error
        self._progress = progress

    def run(self, found: Manifest | None, *, repair: bool) -> BuildResult:
        plan = self._plan
        results, num_built = self._documents(_reusable(self._folder, found, repair=repair))
        shards = [result.shard for result in results]
        self._check_kept(results)
        check_price(plan, sum(s.num_tokens for s in shards), sum(s.num_last_tokens for s in shards))
        blocks, packed = self._blocks(shards) if plan.recipe.pack.mode != "none" else ([], {})
        manifest = self._manifest(results, blocks, packed)
        check_conservation(manifest)
        write_manifest(self._folder, manifest)
        sweep(self._folder, manifest)
        return BuildResult(
            folder=self._folder,
            manifest=manifest,
            fingerprint=manifest_fingerprint(self._folder),
            built=True,
            num_partitions_built=num_built,
            num_partitions_reused=len(results) - num_built,
        )

    def _documents(self, reusable: Mapping[str, PartitionResult]) -> tuple[list[PartitionResult], int]:
        """The result of every partition, in order: reused where it is there, made where it is not."""
        plan = self._plan
        results: dict[int, PartitionResult] = {}
        for number, task in enumerate(plan.tasks):
            if task.key in reusable:
                results[number] = _reuse(self._folder, reusable[task.key], task)
                self._check_rejected(results[number])
        missing = [number for number in range(len(plan.tasks)) if number not in results]
        inline = None
        if missing:
            stages = Stages(plan.recipe, plan.model)
            check_sampled_price(plan, stages)
            inline = _partition_function(self._folder, plan.recipe, plan.model, stages)
        tasks = [plan.tasks[number] for number in missing]
        self._progress.stage("documents", sum(task.partition.num_rows for task in tasks), "rows")
        arguments = (self._folder, plan.recipe, plan.model)
        pool: Pool[PartitionTask, PartitionResult] = Pool(_partition_worker, arguments, self._jobs, inline=inline)
        for i, result in pool.run(tasks):
            results[missing[i]] = result
            self._progress.advance(result.shard.num_input_rows, result.shard.num_tokens)
            self._check_rejected(result)
        return [results[number] for number in range(len(plan.tasks))], len(missing)

    def _check_rejected(self, result: PartitionResult) -> None:
        if self._on_error != "fail" or not result.rejected:
            return
        first, shard = result.rejected[0], result.shard
        assert shard.source is not None
        entry = self._plan.inputs[shard.source]
        number = shard.first_row + first.row
        place = f"{entry.path}:{line_of_row(Path(entry.path), number)}" if entry.format == "jsonl" else entry.path
        raise InputError(
            f"{place}: {first.code}: {first.reason} (row {number})",
            hint="without --on-error fail such rows are left out and listed in rejected.jsonl",
        )

    def _check_kept(self, results: Sequence[PartitionResult]) -> None:
        if any(result.shard.num_rows for result in results):
            return
        codes = Counter(row.code for result in results for row in result.rejected)
        examples = {row.code: row.reason for result in reversed(results) for row in reversed(result.rejected)}
        told = "; ".join(f"{count} × {code} ({examples[code]})" for code, count in codes.most_common(3))
        raise NothingKeptError(
            f"nothing kept: all {sum(codes.values())} rows were rejected: {told}",
            hint=_rejection_hint(codes.most_common(1)[0][0]),
        )

    def _blocks(self, shards: Sequence[Shard]) -> tuple[list[Shard], dict[str, PackedSplit]]:
        recipe = self._plan.recipe
        packed: dict[str, PackedSplit] = {}
        for split in dict.fromkeys(shard.split for shard in shards):
            documents = DocumentShards(self._folder, [shard for shard in shards if shard.split == split])
            packed[split] = pack_split(split, documents, recipe.pack, recipe.shard_bytes)
        tasks = [task for split in packed.values() for task in split.tasks]
        if not tasks:
            raise NothingKeptError(
                f"nothing kept: every document is longer than pack.block_len ({recipe.pack.block_len})",
                hint="raise it with --block-len",
            )
        self._progress.stage("blocks", sum(split.num_blocks for split in packed.values()), "blocks")
        arguments = (self._folder, shards, recipe.pack.block_len, self._plan.model.pad_id)
        pool: Pool[BlockTask, Shard] = Pool(block_worker, arguments, self._jobs)
        made: dict[int, Shard] = {}
        for number, shard in pool.run(tasks):
            made[number] = shard
            self._progress.advance(shard.num_rows, shard.num_tokens)
        return [made[number] for number in range(len(tasks))], packed

    def _manifest(
        self, results: Sequence[PartitionResult], blocks: Sequence[Shard], packed: Mapping[str, PackedSplit]
    ) -> Manifest:
        plan = self._plan
        shards = [result.shard for result in results]
        rejected = self._rejected(results, packed)
        return Manifest(
            format="packer-cache",
            format_version=1,
            label_shift="none",
            recipe=to_json(plan.recipe),
            engine=plan.engine,
            engine_version=plan.engine_version,
            model=_write_model(self._folder, plan.model),
            inputs=plan.inputs,
            shards=(*shards, *blocks),
            rejected_sha256=write_rejected(self._folder, rejected),
            totals=_totals(results, blocks, packed, plan.recipe.pack.block_len),
            recipe_fingerprint=plan.recipe_fingerprint,
            content_fingerprint=content_fingerprint(_row_digests(self._folder, shards, blocks)),
            versions={
                "packer": __version__,
                "python": platform.python_version(),
                **{name: version(name) for name in ("jinja2", "numpy", "pyarrow", "tokenizers")},
            },
        )

    def _rejected(self, results: Sequence[PartitionResult], packed: Mapping[str, PackedSplit]) -> list[Rejected]:
        lines: list[tuple[int, int, Rejected]] = []
        for result in results:
            shard = result.shard
            assert shard.source is not None
            path = self._plan.inputs[shard.source].path
            lines += [
                (
                    shard.source,
                    shard.first_row + row.row,
                    Rejected(source=path, row=shard.first_row + row.row, code=row.code, reason=row.reason),
                )
                for row in result.rejected
            ]
        for split, left in packed.items():
            own = [result.shard for result in results if result.shard.split == split]
            documents = DocumentShards(self._folder, own)
            lengths, ids = documents.lengths(), documents.doc_ids()
            for code, numbers in left.left_out.items():
                for number in numbers.tolist():
                    source, row = documents.origin(number)
                    line = Rejected(
                        source=self._plan.inputs[source].path,
                        row=row,
                        code=code,
                        reason=f"{CODES[code]} ({lengths[number]} tokens)",
                        document=int(ids[number]),
                    )
                    lines.append((source, row, line))
        return [line for _, _, line in sorted(lines, key=lambda entry: entry[:2])]


def _partition_worker(folder: Path, recipe: Recipe, model: Model) -> Callable[[PartitionTask], PartitionResult]:
    """The function that makes partitions in another process."""
    return _partition_function(folder, recipe, model, Stages(recipe, model))


def _partition_function(
    folder: Path, recipe: Recipe, model: Model, stages: Stages
) -> Callable[[PartitionTask], PartitionResult]:
    return lambda task: run_partition(task, folder=folder, recipe=recipe, model=model, stages=stages)


def _refuse_foreign(folder: Path) -> None:
    """A folder with other things in it is not taken for a cache."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", hint="-o takes a folder")
    known = (folder / MANIFEST_NAME).exists() or (folder / ".packer").exists()
    if folder.is_dir() and not known and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files and is no cache", hint="give a new or empty folder with -o")


def _existing(folder: Path, progress: Progress) -> Manifest | None:
    if not (folder / MANIFEST_NAME).exists():
        return None
    try:
        return read_manifest(folder)
    except CheckError as error:
        progress.note(f"{error.message}; building again")
        return None


def _up_to_date(folder: Path, manifest: Manifest, plan: BuildPlan) -> bool:
    if manifest.recipe_fingerprint != plan.recipe_fingerprint:
        return False
    sizes = [(shard.path, shard.num_bytes) for shard in manifest.shards]
    sizes += [(f"model/{file.path}", file.num_bytes) for file in manifest.model.files]
    paths = {(entry.path, entry.split) for entry in manifest.inputs}
    if paths != {(entry.path, entry.split) for entry in plan.inputs} or not (folder / REJECTED_NAME).is_file():
        return False
    return all((folder / path).is_file() and (folder / path).stat().st_size == size for path, size in sizes)


def _refuse_other_recipe(folder: Path, manifest: Manifest, plan: BuildPlan) -> None:
    """New and changed inputs are what building again is for; other rules need a word."""
    old, new = _flat(manifest.recipe), _flat(to_json(plan.recipe))
    changed = [
        f"{key} was {_short(old.get(key))}, is {_short(new.get(key))}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and key not in _PLACES
    ]
    old_files = {Path(file.path).name: file.sha256 for file in manifest.model.files}
    digests = plan.model.digests
    changed += [
        f"{name} differs" for name in sorted(old_files.keys() | digests) if old_files.get(name) != digests.get(name)
    ]
    if changed:
        raise UsageError(
            f"{folder} was built by another recipe: {'; '.join(changed)}",
            hint="--force replaces it; -o another folder keeps both",
        )


_PLACES = ("sources", "tokenizer", "template.file")
"""Keys that name places; what lies there is compared by its digests."""


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted ones."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, Mapping) and value
        flat |= _flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _short(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "…"


def _reusable(folder: Path, manifest: Manifest | None, *, repair: bool) -> dict[str, PartitionResult]:
    """Results that are there, by key: of a build that did not finish, and of the cache that is there."""
    results = read_journal(folder)
    if manifest is not None:
        results |= _committed(folder, manifest)
    return {key: result for key, result in results.items() if _is_whole(folder, result.shard, every_byte=repair)}


def _committed(folder: Path, manifest: Manifest) -> dict[str, PartitionResult]:
    path = folder / REJECTED_NAME
    if not path.is_file() or digest_file(path)[2] != manifest.rejected_sha256:
        return {}
    rows: dict[str, list[Rejected]] = {}
    for line in read_rejected(folder):
        if line.document is None:
            rows.setdefault(line.source, []).append(line)
    results = {}
    for shard in manifest.shards:
        if shard.kind != "documents" or shard.key is None or shard.source is None:
            continue
        last = shard.first_row + shard.num_input_rows
        own = tuple(
            RejectedRow(line.row - shard.first_row, line.code, line.reason)
            for line in rows.get(manifest.inputs[shard.source].path, ())
            if shard.first_row <= line.row < last
        )
        if len(own) == shard.num_rejected:
            results[shard.key] = PartitionResult(shard=shard, rejected=own)
    return results


def _is_whole(folder: Path, shard: Shard, *, every_byte: bool) -> bool:
    path = folder / shard.path
    if not path.is_file() or path.stat().st_size != shard.num_bytes:
        return False
    return not every_byte or digest_file_xxh3(path) == shard.xxh3


def _reuse(folder: Path, result: PartitionResult, task: PartitionTask) -> PartitionResult:
    """The same shard under the number and the place it has in this build."""
    shard = msgspec.structs.replace(result.shard, split=task.split)
    path = relink(folder, shard, index=task.index)
    shard = msgspec.structs.replace(shard, path=path, source=task.source, first_row=task.partition.first_row)
    return PartitionResult(shard=shard, rejected=result.rejected)


def _write_model(folder: Path, model: Model) -> ModelRecord:
    """Keep the tokenizer's files in the cache, under a name that is theirs alone."""
    digests = model.digests
    name = content_fingerprint({f"{file} {digest}": () for file, digest in digests.items()})[:12]
    files = []
    for file, content in sorted(model.files.items()):
        path = f"{name}/{file}"
        write_atomically(folder / "model" / path, content)
        files.append(ModelFile(path=path, num_bytes=len(content), sha256=digests[file]))
    return ModelRecord(
        files=tuple(files),
        vocab_size=model.vocab_size,
        pad_id=model.pad_id,
        eos_id=model.eos_id,
        stop_ids=model.stop_ids,
        control_ids=tuple(sorted(model.control.values())),
    )


def _totals(
    results: Sequence[PartitionResult], blocks: Sequence[Shard], packed: Mapping[str, PackedSplit], block_len: int
) -> Totals:
    shards = [result.shard for result in results]
    rejected = Counter(row.code for result in results for row in result.rejected)
    rows = sum(shard.num_input_rows for shard in shards)
    tokens, trained = sum(shard.num_tokens for shard in shards), sum(shard.num_trained for shard in shards)
    num_blocks, in_blocks = sum(shard.num_rows for shard in blocks), sum(shard.num_tokens for shard in blocks)
    left_out: Counter[str] = Counter()
    for split in packed.values():
        left_out.update({code: len(numbers) for code, numbers in split.left_out.items() if len(numbers)})
    return Totals(
        rows=rows,
        kept=rows - rejected.total(),
        rejected=dict(sorted(rejected.items())),
        documents=sum(shard.num_rows for shard in shards),
        tokens=tokens,
        trained=trained,
        masked=tokens - trained,
        merged=sum(shard.num_merged for shard in shards),
        packed=sum(split.num_packed for split in packed.values()),
        left_out=dict(sorted(left_out.items())),
        cut=tokens - in_blocks if packed else 0,
        blocks=num_blocks,
        slots=num_blocks * block_len,
        padding=num_blocks * block_len - in_blocks,
    )


def _row_digests(folder: Path, documents: Sequence[Shard], blocks: Sequence[Shard]) -> dict[str, list[UInt64]]:
    digests: dict[str, list[UInt64]] = {}
    for split in dict.fromkeys(shard.split for shard in documents):
        own = DocumentShards(folder, [shard for shard in documents if shard.split == split])
        digests[f"documents/{split}"] = [own.digests()]
    for split in dict.fromkeys(shard.split for shard in blocks):
        packed = BlockShards(folder, [shard for shard in blocks if shard.split == split])
        digests[f"blocks/{split}"] = [packed.digests()]
    return digests


def _rejection_hint(code: str) -> str:
    hints = {
        "no_terminator": "--set supervision.no_terminator=append closes every turn with the EOS token",
        "prompt_diverges": "--set supervision.divergent=common_prefix, or fix the mode with --set template.kwargs",
        "control_token": "--set supervision.control_tokens=allow takes them as ordinary text",
        "unknown_schema": "name the schema: schema: messages | sharegpt | alpaca | completion | text",
    }
    if code.startswith("dropped_"):
        return f"--set supervision.allow_dropped=[{code.removeprefix('dropped_')}] builds without it"
    return hints.get(code, "docs/reference/rejections.md explains every code")
