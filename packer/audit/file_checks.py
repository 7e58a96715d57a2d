"""Single files of a cache: whether they are there and what was written, and whether the manifest's claims follow.

The identity a manifest claims is worked out again from the files that the cache keeps. The fingerprint of a recipe
depends on the rules of the packer that made it, so that is done only for caches of the same version; for others the
shards' own digests must do.
"""

from collections import Counter
from pathlib import Path

from packer import __version__
from packer.audit.verify_report import Finding, is_elsewhere
from packer.errors import PackerError
from packer.model import TEMPLATE_FILE
from packer.pipeline.identity import Provenance, model_digests
from packer.pipeline.input_resolution import input_place
from packer.pipeline.kept_tokenizer import kept_model
from packer.pipeline.plan import load_bare_model
from packer.recipe import Recipe, make_recipe
from packer.store.digest import digest_file
from packer.store.files import CacheFiles
from packer.store.manifest import MANIFEST_NAME, Manifest
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
        found = CacheFiles(folder).sha256(path)
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
    files = CacheFiles(folder)
    there = [path for kind in ("documents", "blocks", "rows") for path in files.names(kind, ".arrow")]
    return tuple(sorted({*there} - {file.path for file in manifest.stored}))


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {code}" for code, count in sorted(counts.items())) or "none"


def check_identity(folder: Path, manifest: Manifest) -> list[Finding]:
    """Compare the recipe's fingerprint and the record of the model with what the kept files give.

    Call it only where the model files were found to be whole.
    """
    if manifest.versions.get("packer") != __version__:
        return []
    try:
        recipe = make_recipe(manifest.recipe, where="the manifest's recipe")
        model = kept_model(folder, manifest, recipe)
    except PackerError as error:
        return [_finding("recipe", "a recipe and a tokenizer that load", str(error))]
    findings = [
        _finding(f"model.{name}", str(expected), str(found))
        for name, expected, found in (
            ("vocab_size", manifest.model.vocab_size, model.vocab_size),
            ("pad_id", manifest.model.pad_id, model.pad_id),
            ("eos_id", manifest.model.eos_id, model.eos_id),
            ("stop_ids", manifest.model.stop_ids, model.stop_ids),
        )
        if expected != found
    ]
    found = Provenance.of(manifest, recipe).recipe_fingerprint
    if found != manifest.recipe_fingerprint:
        findings.append(_finding("recipe_fingerprint", manifest.recipe_fingerprint, found))
    return findings


def check_tokenizer(manifest: Manifest) -> list[Finding]:
    """Compare the tokenizer and the template that the recipe names with those the cache was built with."""
    recorded = model_digests(manifest.model)
    try:
        recipe = make_recipe(manifest.recipe, where="the manifest's recipe")
        found = load_bare_model(recipe).digests
    except PackerError as error:
        place = str(manifest.recipe.get("tokenizer"))
        reason = f"{error.message} (looked for from {Path.cwd()})" if is_elsewhere(place) else error.message
        return [Finding(path=place, row=None, what="tokenizer", expected=f"{len(recorded)} files", found=reason)]
    return [
        Finding(
            path=_place(recipe, name),
            row=None,
            what="tokenizer",
            expected=_sha256(recorded.get(name)),
            found=_sha256(found.get(name)),
        )
        for name in sorted(recorded.keys() | found)
        if recorded.get(name) != found.get(name)
    ]


def _place(recipe: Recipe, name: str) -> str:
    """Where a build reads a file of the tokenizer."""
    if name == TEMPLATE_FILE and recipe.template.path is not None:
        return recipe.template.path.as_posix()
    tokenizer = Path(recipe.tokenizer or "")
    return (tokenizer if tokenizer.is_file() else tokenizer / name).as_posix()


def _sha256(digest: str | None) -> str:
    return "no such file" if digest is None else f"sha256 {digest}"


def _finding(what: str, expected: str, found: str) -> Finding:
    return Finding(path=MANIFEST_NAME, row=None, what=what, expected=expected, found=found)
