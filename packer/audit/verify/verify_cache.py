"""Verification of a cache: reports everything that is wrong, not just the first error.

    quick     the manifest, its conservation laws, and the size of every file
    default   every byte of the shards by xxh3-128, of other files by sha256; every row digest; the fingerprints
    full      sha256 of the shards too, Arrow's own validation, the rules of rows, blocks against documents

Independent of the level, inputs, tokenizer and template can be compared with those of the build, and the inputs can be
re-encoded (:mod:`reencode`).

Everything else is compared with the manifest. Nothing in the cache vouches for the manifest except its own conservation
laws and its canonical form; to know that it is the one that was built, pin its fingerprint (`expect`).
"""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from packer.audit.input_parts import InputPart, cut_input, map_inputs
from packer.audit.verify.block_checks import check_blocks, check_counts
from packer.audit.verify.file_checks import (
    check_fingerprint,
    check_identity,
    check_input,
    check_kept,
    check_manifest,
    check_rejected,
    check_selection,
    check_tokenizer,
    find_strays,
)
from packer.audit.verify.reencode import Reencoded, compare_reencoded
from packer.audit.verify.shard_checks import shard_auditor
from packer.audit.verify.verify_report import Checked, Finding, Level, VerifyReport, differing
from packer.errors import CheckError, InputError, PackerError, RecipeError, UsageError
from packer.fork_server import default_jobs
from packer.pipeline.blocks import BlockForm
from packer.pipeline.executor import Threads, Workers
from packer.pipeline.ray_workers import workers_on
from packer.progress import Progress, Silent
from packer.recipe import make_recipe
from packer.source import STANDARD_INPUT, input_path
from packer.store.cache import content_fingerprint
from packer.store.document_shards import DocumentShards
from packer.store.files import CacheFiles
from packer.store.manifest import (
    MANIFEST_NAME,
    Input,
    Manifest,
    ModelFile,
    Shard,
    StoredTable,
    decode_manifest,
    fingerprint_of,
    manifest_bytes,
)
from packer.store.mirror import mirror_of, shown
from packer.store.place import checked_place
from packer.store.rejected import rejected_path
from packer.store.selected import documents_of

_CHECKING_SPEEDUP = 128
"""Number of shard bytes that are read and compared in the time it takes to tokenize one byte."""


def verify(
    folder: Path | str,
    *,
    level: Level = "default",
    sources: bool = False,
    reencode: bool = False,
    sample: int | None = None,
    expect: str | None = None,
    threads: int | None = None,
    on: str | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check a cache and report everything that is wrong with it.

    Args:
        folder: the cache.
        level: how much to check; see the module.
        sources: also read the inputs, the tokenizer and the template again, and compare their sha256.
        reencode: also make the documents again from the inputs, and compare them with the stored ones. The inputs are
            compared as with `sources`: one that is missing or has changed is a finding, and its rows are not compared.
        sample: with `reencode`, re-encode only this many rows, the same ones every time; by default all.
        expect: the fingerprint the cache must have.
        threads: files checked at a time, and processes that re-encode; by default one for each processor.
        on: a Ray cluster to read shards and inputs on, as for :func:`packer.build`.
        progress: receives progress; counts bytes, then re-encoded rows.

    Raises:
        InputError: there is no manifest: not a cache, or its build did not finish.
        StorageError: the manifest cannot be read.
        WorkerDiedError: a process that re-encoded rows was killed.
        UsageError: inputs are to be compared, one was standard input, and nothing is piped in; or a node has different
            software than this machine.
        ValueError: a sample without `reencode`, or of no rows.
    """
    if sample is not None and (not reencode or sample < 1):
        raise ValueError(f"sample is {sample}; expected at least 1, with reencode")
    progress, content = progress or Silent(), b""
    jobs = (threads or default_jobs()) if on is None else threads
    with checked_place(folder) as place, workers_on(on, jobs, progress.note) as workers:
        named = place if mirror_of(place) is None else shown(place)
        try:
            content = manifest_bytes(place)
            manifest = decode_manifest(place, content)
        except CheckError as error:
            return _unreadable(named, level, content, error, expect)
        _need_standard_input(place, manifest, is_compared=sources or reencode)
        hashing = workers if on is not None and level != "quick" else Threads(threads or default_jobs())
        audit = _Audit(place, manifest, level, hashing=hashing, workers=workers, progress=progress)
        audit.manifest(content, expect)
        audit.shards()
        audit.rows()
        audit.rejected()
        model_is_whole = audit.model()
        if sources or reencode:
            audit.inputs(cut=reencode)
        if sources:
            audit.tokenizer()
        if level != "quick":
            audit.identity(model_is_whole=model_is_whole)
        if level == "full":
            audit.blocks()
        reencoded = audit.reencoded(sample) if reencode else None
        return VerifyReport(
            folder=named,
            level=level,
            checked=tuple(audit.checked),
            findings=tuple(audit.findings),
            strays=find_strays(place, manifest),
            fingerprint=fingerprint_of(content),
            content_fingerprint=manifest.content_fingerprint,
            recipe_fingerprint=manifest.recipe_fingerprint,
            notes=() if reencoded is None else reencoded.notes,
            num_reencoded=None if reencoded is None else reencoded.num_rows,
        )


def _need_standard_input(folder: Path, manifest: Manifest, *, is_compared: bool) -> None:
    """Raise a UsageError if standard input must be compared and nothing is piped in: the cache is not damaged."""
    if not is_compared or all(entry.path != STANDARD_INPUT or not entry.num_bytes for entry in manifest.inputs):
        return
    try:
        if input_path(STANDARD_INPUT).stat().st_size:
            return
    except UsageError:
        pass
    raise UsageError(
        f"{folder} was built from standard input, but nothing is piped in: its inputs were not compared",
        hint=f"pipe in the rows it was built from: zcat ... | packer verify {shlex.quote(str(folder))} --sources",
    )


class _Audit:
    """Checks one cache; each method checks one kind of file and records what it found."""

    def __init__(
        self, folder: Path, manifest: Manifest, level: Level, *, hashing: Workers, workers: Workers, progress: Progress
    ) -> None:
        self._folder = folder
        mirror = None if level == "quick" else mirror_of(folder)
        self._fetched = folder if mirror is None else mirror.bucket.url
        """The folder of the shards, or the URL from which each shard is fetched while it is checked."""

        self._manifest = manifest
        self._level: Level = level
        self._hashing = hashing
        self._workers = workers
        self._progress = progress
        self._shards: list[list[Finding]] = []
        """Findings of each shard."""

        self._documents: Mapping[str, DocumentShards] = {}
        """The documents of each split; empty if a shard or the selection is damaged, or at level `quick`."""

        self._parts: dict[int, tuple[InputPart, ...]] = {}
        """Partitions of the unchanged inputs, by the index of the input."""

        self.checked: list[Checked] = []
        self.findings: list[Finding] = []

    def _record(self, kind: str, findings: Sequence[Finding], sizes: Sequence[int], num_rows: int = 0) -> None:
        """Record the findings about files of the given sizes."""
        damaged = len({finding.path for finding in findings})
        checked = Checked(kind=kind, num_files=len(sizes), num_rows=num_rows, num_bytes=sum(sizes), num_damaged=damaged)
        self.checked.append(checked)
        self.findings += findings

    def manifest(self, content: bytes, expect: str | None) -> None:
        # Not counted as damage of the manifest: a cache with another fingerprint than the pinned one may be intact.
        self.findings += check_fingerprint(content, expect)
        findings = check_manifest(self._manifest, content)
        self._record("manifest", findings, [len(content)])

    def shards(self) -> None:
        """Check the shards."""
        manifest, shards = self._manifest, self._manifest.shards
        sizes = [shard.num_bytes // _CHECKING_SPEEDUP for shard in shards]
        found: dict[int, list[Finding]] = {}
        self._progress.stage("verifying", sum(shard.num_bytes for shard in shards), "bytes")
        arguments = (self._fetched, self._level, manifest.model)
        for number, findings in self._hashing.run(shard_auditor, arguments, shards, sizes=sizes):
            found[number] = findings
            self._progress.advance(shards[number].num_bytes, shards[number].num_tokens)
        self._shards = [found[number] for number in range(len(shards))]
        for kind in ("documents", "blocks"):
            own = [shard for shard in manifest.shards if shard.kind == kind]
            pairs = zip(manifest.shards, self._shards, strict=True)
            findings = [finding for shard, found in pairs if shard.kind == kind for finding in found]
            if own:
                self._record(kind, findings, _sizes(own), sum(shard.num_rows for shard in own))

    def rows(self) -> None:
        """Check the row tables and the selection; if they are intact, open the documents of the splits."""
        manifest = self._manifest
        damaged = any(self._shards)
        if manifest.selection is not None:
            findings = check_selection(self._folder, manifest, self._level, is_whole=not damaged)
            self._record("rows", findings, _sizes(manifest.tables), manifest.tables[0].num_rows)
            damaged |= bool(findings)
        if self._level != "quick" and not damaged:
            self._documents = documents_of(self._folder, manifest)

    def rejected(self) -> None:
        name, totals = rejected_path(self._folder, self._manifest), self._manifest.totals
        try:
            size = CacheFiles(self._folder).size(name)
        except PackerError:
            size = None  # check_rejected reports why
        if self._level == "quick":
            findings = differing(name, ("size", "a file", "no file")) if size is None else []
        else:
            findings = check_rejected(self._folder, self._manifest)
        lines = sum(totals.rejected.values()) + sum(cut.parts for cut in totals.cut.values())
        self._record("rejected", findings, [size or 0], lines)

    def model(self) -> bool:
        """Check the tokenizer's files; return whether they are intact."""
        files = self._manifest.model.files
        findings = [each for file in files for each in check_kept(self._folder, f"model/{file.path}", file, self._level)]
        self._record("model", findings, _sizes(files))
        return not findings

    def inputs(self, *, cut: bool) -> None:
        """Check the inputs' sha256; `cut` also partitions them in the same pass, for re-encoding."""
        inputs, partition_bytes = self._manifest.inputs, None
        with suppress(RecipeError):  # reported as a separate finding
            partition_bytes = make_recipe(self._manifest.recipe).partition_bytes if cut else None
        looked = map_inputs(partial(_check_input, partition_bytes), inputs, self._workers, self._progress)
        self._parts = {source: parts for source, (_, parts) in enumerate(looked) if parts is not None}
        findings = [finding for found, _ in looked for finding in found]
        self._record("inputs", findings, _sizes(inputs), sum(entry.num_rows for entry in inputs))

    def tokenizer(self) -> None:
        """Check the tokenizer and the template at the place that the recipe names."""
        self._record("tokenizer", check_tokenizer(self._manifest), _sizes(self._manifest.model.files))

    def identity(self, *, model_is_whole: bool) -> None:
        """Check the fingerprints, as far as the files they cover are intact."""
        if model_is_whole:
            self.findings += check_identity(self._folder, self._manifest)
        if self._documents:  # over damaged shards, which were reported already, the fingerprint would add nothing
            found = content_fingerprint(self._folder, self._manifest.shards, self._documents)
            expected = self._manifest.content_fingerprint
            self.findings += differing(MANIFEST_NAME, ("content_fingerprint", expected, found))

    def blocks(self) -> None:
        """Check the blocks by gathering them again, if shards and selection are intact."""
        manifest, model = self._manifest, self._manifest.model
        if not self._documents:
            return
        try:
            pack = make_recipe(manifest.recipe).pack
            form = BlockForm.of(pack, pad_id=model.pad_id, eos_id=model.eos_id, stop_ids=model.stop_ids)
        except RecipeError:
            return  # reported as a separate finding
        if pack.mode == "none":
            return
        audits = [
            check_blocks(manifest, split, documents, form, model.stop_ids)
            for split, documents in self._documents.items()
        ]
        findings = [finding for each in audits for finding in each.findings]
        self.findings += findings or check_counts(manifest.totals, audits)

    def reencoded(self, sample: int | None) -> Reencoded:
        """Re-encode the inputs and compare; runs after all other checks."""
        damaged = frozenset(finding.path for finding in self.findings)
        done = compare_reencoded(
            self._folder,
            self._manifest,
            self._parts,
            sample=sample,
            damaged=damaged,
            fetched=self._fetched,
            workers=self._workers,
            progress=self._progress,
        )
        self._record("re-encoded", done.findings, [0] * done.num_files, done.num_rows)
        return done


def _check_input(
    partition_bytes: int | None, task: tuple[int, Input]
) -> tuple[list[Finding], tuple[InputPart, ...] | None]:
    """Compare an input and, given a partition size, partition it if it is unchanged."""
    source, entry = task
    if partition_bytes is None:
        return check_input(entry), None
    try:
        return [], cut_input(entry, source, partition_bytes)
    except (InputError, UsageError) as error:
        expected = f"sha256 {entry.sha256}"
        return check_input(entry) or differing(entry.path, ("input", expected, error.message)), None


def _sizes(files: Sequence[Shard | StoredTable | ModelFile | Input]) -> list[int]:
    return [file.num_bytes for file in files]


def _unreadable(named: Path | str, level: Level, content: bytes, error: CheckError, expect: str | None) -> VerifyReport:
    """Return the report of a cache whose manifest cannot be read: there is nothing else to compare with."""
    findings = [
        *check_fingerprint(content, expect),
        *differing(MANIFEST_NAME, ("structure", "a manifest", error.message)),
    ]
    checked = Checked(kind="manifest", num_files=1, num_rows=0, num_bytes=len(content), num_damaged=1)
    return VerifyReport(
        folder=named,
        level=level,
        checked=(checked,),
        findings=tuple(findings),
        strays=(),
        fingerprint=fingerprint_of(content),
        content_fingerprint=None,
        recipe_fingerprint=None,
    )
