"""Verification of a cache: reports everything that is wrong, not just the first error.

    default   every byte of the shards by xxh3-128, of other files by sha256; every row digest; the fingerprints
    full      sha256 of the shards too, Arrow's own validation, the rules of rows, and documents packed again

Independent of the level, inputs can be compared with those of the build, and re-encoded (:mod:`reencode`) with the
tokenizer and the template that the cache keeps.

Everything else is compared with the manifest. Nothing in the cache vouches for the manifest except its own conservation
laws and its canonical form; to know that the rows are those that were built, pin the fingerprint (`expect`).
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import get_args

from packer.audit.input_parts import InputPart, SourceRoots, read_inputs
from packer.audit.verify.cache_checks import (
    check_blocks,
    check_fingerprint,
    check_identity,
    check_manifest,
    check_rejected,
    check_selection,
)
from packer.audit.verify.shard_checks import check_kept, check_media, check_references, shard_auditor
from packer.audit.verify.verify_report import Checked, Finding, Level, VerifyReport, differing
from packer.display import Progress, Silent, plural, url_of
from packer.errors import CheckError, RecipeError
from packer.pipeline.identity import RULES_VERSION
from packer.pipeline.workers import Workers
from packer.pipeline.workers.executor import workers_on
from packer.recipe.recipe import make_recipe
from packer.store.cache import fingerprint
from packer.store.manifest import (
    MANIFEST_NAME,
    Input,
    Manifest,
    ModelFile,
    Shard,
    StoredTable,
    decode_manifest,
    manifest_bytes,
)
from packer.store.media_shards import MediaShards
from packer.store.place import fresh_place
from packer.store.row_tables import content_fingerprint, documents_of
from packer.store.shards import DocumentShards

_CHECKING_SPEEDUP = 128
"""Number of shard bytes that are read and compared in the time it takes to tokenize one byte."""


def verify(
    folder: Path | str,
    *,
    level: Level = "default",
    sources: str | Path | Iterable[str | Path] = (),
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
        sources: roots below which inputs are read again, to compare their sha256; see
            :mod:`packer.audit.input_parts`. An input that is missing, has changed or is below no root is a
            finding. By default nothing outside of the cache is read.
        reencode: also make the documents again from the inputs, and compare them with the stored ones. Needs `sources`;
            the rows of inputs with a finding are not compared.
        sample: with `reencode`, re-encode only this many rows, the same ones every time; by default all.
        expect: the fingerprint the cache must have.
        threads: processes that check and re-encode; by default one for each processor, or fewer for small caches.
        on: a Ray cluster to read shards and inputs on, as for :func:`packer.build`.
        progress: receives progress; counts bytes, then re-encoded rows.

    Raises:
        InputError: there is no manifest: not a cache, or its build did not finish.
        StorageError: the manifest cannot be read.
        WorkerDiedError: a process that re-encoded rows was killed.
        UsageError: a node has different software than this machine.
        ValueError: another level; a sample without `reencode`, or of no rows; `reencode` without `sources`.
    """
    if level not in get_args(Level):
        raise ValueError(f"level is {level}; expected default or full")
    if sample is not None and (not reencode or sample < 1):
        raise ValueError(f"sample is {sample}; expected at least 1, with reencode")
    roots = SourceRoots.of(sources)
    if reencode and not roots:
        raise ValueError("reencode reads the inputs again: pass the folder that they are below as sources")
    progress, content = progress or Silent(), b""
    with fresh_place(folder) as place, workers_on(on, threads, progress.note) as workers:
        named = url_of(place) or place
        try:
            content = manifest_bytes(place)
            manifest = decode_manifest(place, content)
            found = fingerprint(manifest)
        except CheckError as error:  # there is nothing else to compare with
            wrong = differing(MANIFEST_NAME, ("structure", "a manifest", error.message))
            return VerifyReport(
                folder=named,
                level=level,
                checked=(Checked(kind="manifest", num_files=1, num_rows=0, num_bytes=len(content), num_damaged=1),),
                findings=(*check_fingerprint(None, expect), *wrong),
                fingerprint=None,
                manifest_sha256=sha256(content).hexdigest(),
            )
        audit = _Audit(
            folder=place,
            fetched=named,
            manifest=manifest,
            level=level,
            roots=roots,
            workers=workers,
            progress=progress,
        )
        # Not counted as damage of the manifest: a cache with another fingerprint than the pinned one may be intact.
        audit.findings += check_fingerprint(found, expect)
        audit.record("manifest", check_manifest(manifest, content), [len(content)])
        documents = audit.check_rows()
        audit.record("rejected", *check_rejected(place, manifest))
        model = [each for file in manifest.model.files for each in check_kept(place, file, "model/")]
        audit.record("model", model, _sizes(manifest.model.files))
        parts = audit.check_sources(cut=reencode) if roots else {}
        if documents:
            audit.check_images()
        audit.findings += [] if model else check_identity(place, manifest)
        if documents:  # over damaged shards, which were reported already, the fingerprint would add nothing
            content_found = content_fingerprint(place, manifest.shards, documents)
            compared = ("content_fingerprint", manifest.content_fingerprint, content_found)
            audit.findings += differing(MANIFEST_NAME, compared)
        if documents and level == "full":
            audit.findings += check_blocks(manifest, documents)
            if manifest.rules_version != RULES_VERSION:
                made = f"packed by rules {manifest.rules_version}, and packed again by rules {RULES_VERSION}"
                audit.notes.append(f"versions differ: blocks were {made}")
        num_reencoded = audit.reencode(parts, sample) if reencode else None
        return VerifyReport(
            folder=named,
            level=level,
            checked=tuple(audit.checked),
            findings=tuple(audit.findings),
            fingerprint=found,
            manifest_sha256=sha256(content).hexdigest(),
            content_fingerprint=manifest.content_fingerprint,
            recipe_fingerprint=manifest.recipe_fingerprint,
            notes=tuple(audit.notes),
            num_reencoded=num_reencoded,
        )


@dataclass(slots=True, kw_only=True)
class _Audit:
    """Checks one cache; each method checks some kinds of files and records what it found."""

    folder: Path
    fetched: Path | str
    """The folder of the shards, or the URL from which each shard is fetched while it is checked."""

    manifest: Manifest
    level: Level
    roots: SourceRoots
    workers: Workers
    progress: Progress
    checked: list[Checked] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def record(self, kind: str, findings: Sequence[Finding], sizes: Sequence[int], num_rows: int = 0) -> None:
        """Record the findings about files of the given sizes."""
        damaged = len({finding.path for finding in findings})
        checked = Checked(kind=kind, num_files=len(sizes), num_rows=num_rows, num_bytes=sum(sizes), num_damaged=damaged)
        self.checked.append(checked)
        self.findings += findings

    def check_rows(self) -> Mapping[str, DocumentShards]:
        """Check shards, images, row tables and selection; return the documents of each split, none if any is damaged.

        Images are compared with the documents, and the selection is made again, only if what they need is intact.
        """
        manifest, is_intact = self.manifest, self._check_shards()
        if manifest.media is not None:
            findings = check_media(self.folder, manifest, is_intact=is_intact)
            self.record("media", findings, _sizes(manifest.media), sum(table.num_rows for table in manifest.media))
            is_intact &= not findings
        if manifest.selection is not None:
            findings = check_selection(self.folder, manifest, is_intact=is_intact)
            self.record("rows", findings, _sizes(manifest.tables), manifest.tables[0].num_rows)
            is_intact &= not findings
        return documents_of(self.folder, manifest) if is_intact else {}

    def _check_shards(self) -> bool:
        """Check the shards; return whether they are intact."""
        shards = self.manifest.shards
        sizes = [shard.num_bytes // _CHECKING_SPEEDUP for shard in shards]
        found: dict[int, list[Finding]] = {}
        self.progress.stage("verifying", sum(shard.num_bytes for shard in shards), "bytes")
        auditor = partial(shard_auditor, self.fetched, self.level, self.manifest.model)
        for number, findings in self.workers.run(auditor, shards, sizes=sizes):
            found[number] = findings
            self.progress.advance(shards[number].num_bytes, shards[number].num_tokens)
        for kind in ("documents", "blocks"):
            own = [number for number, shard in enumerate(shards) if shard.kind == kind]
            if own:
                findings = [finding for number in own for finding in found[number]]
                self.record(kind, findings, _sizes([shards[i] for i in own]), sum(shards[i].num_rows for i in own))
        return not any(found.values())

    def check_sources(self, *, cut: bool) -> dict[int, tuple[InputPart, ...]]:
        """Check the sha256 of inputs; `cut` also partitions them in the same pass, for re-encoding.

        Returns the partitions of unchanged inputs, by the index of the input.
        """
        inputs, partition_bytes = self.manifest.inputs, None
        with suppress(RecipeError):  # reported as a separate finding
            partition_bytes = make_recipe(self.manifest.recipe).partition_bytes if cut else None
        looked = read_inputs(inputs, partition_bytes, self.roots, self.workers, self.progress)
        findings = [
            Finding(path=entry.path, what="input", expected=f"sha256 {entry.sha256}", found=found)
            for entry, found in zip(inputs, looked, strict=True)
            if isinstance(found, str)
        ]
        self.record("inputs", findings, _sizes(inputs), sum(entry.num_rows for entry in inputs))
        return {source: own for source, own in enumerate(looked) if partition_bytes and not isinstance(own, str)}

    def check_images(self) -> None:
        """Check the images that an intact cache only names, or note that they may not be opened."""
        images = MediaShards.of(self.folder, self.manifest, self.roots.roots)
        number = sum(1 for _ in images.references())
        if number and self.roots:
            self.record("images", check_references(self.folder, self.manifest, images), [0] * number)
        elif number:
            named = f"{plural(number, 'image')} that the cache only names"
            self.notes.append(f"{named}: not read; --sources DIR names their folder")

    def reencode(self, parts: Mapping[int, Sequence[InputPart]], sample: int | None) -> int:
        """Re-encode the inputs and compare, after all other checks; return the number of rows."""
        from packer.audit.verify.reencode import compare_reencoded  # noqa: PLC0415 - imports all that renders

        done = compare_reencoded(
            self.folder,
            self.manifest,
            parts,
            roots=self.roots,
            sample=sample,
            damaged=frozenset(finding.path for finding in self.findings),
            fetched=self.fetched,
            workers=self.workers,
            progress=self.progress,
        )
        self.record("re-encoded", done.findings, [0] * done.num_files, done.num_rows)
        self.notes += done.notes
        return done.num_rows


def _sizes(files: Sequence[Shard | StoredTable | ModelFile | Input]) -> list[int]:
    return [file.num_bytes for file in files]
