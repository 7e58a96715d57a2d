"""Single files of a cache: are they there, have they their size and their digests."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from packer.audit.verify_report import Finding, is_elsewhere
from packer.errors import PackerError
from packer.pipeline.input_resolution import input_place
from packer.store.digest import digest_file
from packer.store.files import CacheFiles
from packer.store.manifest import Manifest
from packer.store.rejected import read_rejected, rejected_path


def check_size(folder: Path, path: str, num_bytes: int) -> Finding | None:
    """A finding where a file is missing, is no file, or has another size."""
    expected = f"{num_bytes:,} bytes"
    try:
        size = CacheFiles(folder).size(path)
    except PackerError as error:
        return Finding(path=path, row=None, what="size", expected=expected, found=error.message)
    if size is None:
        return Finding(path=path, row=None, what="size", expected=expected, found="no file")
    if size != num_bytes:
        return Finding(path=path, row=None, what="size", expected=expected, found=f"{size:,} bytes")
    return None


def check_file(folder: Path, path: str, *, sha256: str, num_bytes: int | None = None) -> list[Finding]:
    """Size, where it is known, and sha256 of one file."""
    wrong = None if num_bytes is None else check_size(folder, path, num_bytes)
    if wrong is not None:
        return [wrong]
    try:
        _, _, found = digest_file(folder / path)
    except PackerError as error:
        return [unreadable(path, error)]
    if found != sha256:
        return [Finding(path=path, row=None, what="sha256", expected=sha256, found=found)]
    return []


def check_rejected(folder: Path, manifest: Manifest) -> list[Finding]:
    """rejected.jsonl: its digest, and its lines against the manifest's totals."""
    path = rejected_path(folder, manifest)
    findings = check_file(folder, path, sha256=manifest.rejected_sha256)
    if findings:
        return findings
    rows: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    try:
        for line in read_rejected(folder, manifest):
            (rows if line.document is None else parts)[line.code] += 1
            tokens[line.code] += line.tokens or 0
    except PackerError as error:
        return [unreadable(path, error)]
    totals = manifest.totals
    return [
        Finding(path=path, row=None, what=what, expected=_counts(expected), found=_counts(found))
        for what, expected, found in (
            ("rejected rows", totals.rejected, dict(rows)),
            ("parts in no block", {code: cut.parts for code, cut in totals.cut.items()}, dict(parts)),
            ("tokens in no block", {code: cut.tokens for code, cut in totals.cut.items()}, dict(+tokens)),
        )
        if expected != found
    ]


def check_input(path: str, *, sha256: str) -> list[Finding]:
    """Whether an input still is what the build read."""
    try:
        _, _, found = digest_file(input_place(path))
    except PackerError as error:
        found = f"{error.message} (looked for from {Path.cwd()})" if is_elsewhere(path) else error.message
        return [Finding(path=path, row=None, what="input", expected=f"sha256 {sha256}", found=found)]
    if found != sha256:
        return [Finding(path=path, row=None, what="input", expected=f"sha256 {sha256}", found=f"sha256 {found}")]
    return []


def unreadable(path: str, error: Exception) -> Finding:
    """A file that cannot be read or makes no sense."""
    return Finding(path=path, row=None, what="structure", expected="a readable file", found=str(error))


def find_strays(folder: Path, manifest: Manifest) -> tuple[str, ...]:
    """Files beside the shards that the manifest does not name."""
    named = {file.path for file in manifest.stored}
    return tuple(sorted(path for path in _shard_files(folder) if path not in named))


def _shard_files(folder: Path) -> Iterable[str]:
    for kind in ("documents", "blocks", "rows"):
        try:
            yield from (f"{kind}/{path.name}" for path in (folder / kind).iterdir() if path.suffix == ".arrow")
        except OSError:
            continue  # a missing folder shows as missing shards


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {code}" for code, count in sorted(counts.items())) or "none"
