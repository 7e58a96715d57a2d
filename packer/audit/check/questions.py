"""The five questions: which files, which rows, which tokenizer and template, which packing rules, made by which code.

Whoever trains from a cache must be able to answer them. The answers are those of the manifest.
"""

from collections.abc import Collection

from packer.audit.check.check_report import Answer, Check
from packer.pipeline.identity import CODE_VERSION, RULES_VERSION
from packer.pipeline.row_report import row_report
from packer.recipe import Recipe
from packer.rejections import ROW_REASONS
from packer.store.cache import Cache
from packer.store.manifest import Manifest
from packer.version import __version__, code_digest

_SHOWN = 4
_DIGITS = 12


def answers(cache: Cache, recipe: Recipe, missing: Collection[str]) -> tuple[Answer, ...]:
    """The five answers; `missing` are paths of inputs that are not what was built from."""
    manifest = cache.manifest
    return (
        Answer(question="files", lines=_files(manifest, missing)),
        Answer(question="rows", lines=_rows(cache)),
        Answer(question="tokenizer", lines=_tokenizer(manifest, recipe)),
        Answer(question="packing", lines=_packing(manifest, recipe)),
        Answer(question="code", lines=_code(manifest)),
    )


def check_code(manifest: Manifest) -> Check:
    """Whether the cache was made by the code that runs now."""
    if manifest.rules_version != RULES_VERSION:
        message = f"rules {manifest.rules_version} made it; a build today follows rules {RULES_VERSION}"
        return Check.of("code", message, "warning", hint="packer build makes it again")
    theirs = manifest.versions.get(CODE_VERSION)
    if theirs == code_digest():
        return Check.of("code", "made by the code that runs now", None)
    rules = "by the same rules" if theirs is None else "by another version of packer's source, with the same rules"
    return Check.of("code", f"made {rules} as a build follows today", None)


def _files(manifest: Manifest, missing: Collection[str]) -> tuple[str, ...]:
    inputs = manifest.inputs
    lines = [
        f"{entry.path}: {entry.num_rows:,} rows, sha256 {entry.sha256[:_DIGITS]}, "
        + ("not as it was" if entry.path in missing else "unchanged")
        for entry in inputs[:_SHOWN]
    ]
    if len(inputs) > _SHOWN:
        others = inputs[_SHOWN:]
        changed = sum(entry.path in missing for entry in others)
        lines.append(
            f"and {len(others):,} more: {sum(entry.num_rows for entry in others):,} rows, "
            + (f"{changed:,} not as they were" if changed else "unchanged")
        )
    return tuple(lines)


def _rows(cache: Cache) -> tuple[str, ...]:
    totals, report = cache.manifest.totals, row_report(cache.folder, cache.manifest)
    codes = ", ".join(
        f"{code} {number:,}" for code, number in sorted(totals.rejected.items(), key=lambda each: -each[1])
    )
    lines = [f"{totals.kept:,} of {totals.rows:,} can be learned" + (f"; rejected: {codes}" if codes else "")]
    if report is not None:
        left_out = ", ".join(f"{each.rule or each.code} {each.rows:,}" for each in report.left_out)
        splits = ", ".join(f"{each.split} {each.rows:,}" for each in report.splits)
        lines.append(f"rules leave out: {left_out or 'none'}; splits: {splits}")
    cut = ", ".join(f"{code} {each.tokens:,}" for code, each in totals.cut.items() if code not in ROW_REASONS)
    return (*lines, *([f"tokens in no block: {cut}"] if cut else []))


def _tokenizer(manifest: Manifest, recipe: Recipe) -> tuple[str, ...]:
    digests = {file.path.rpartition("/")[2]: file.sha256[:_DIGITS] for file in manifest.model.files}
    files = ", ".join(f"{name} {digest}" for name, digest in sorted(digests.items()))
    template = recipe.template.file or "the tokenizer's own"
    return (f"{recipe.tokenizer}; template: {template}", files)


def _packing(manifest: Manifest, recipe: Recipe) -> tuple[str, ...]:
    pack, blocks = recipe.pack, manifest.totals.blocks
    if pack.mode == "none":
        return ("none: documents alone",)
    length = f"{pack.block_len:,} tokens"
    rules = f"{pack.mode}, {length}, {pack.strategy}, overlong: {pack.overlong}, seed {pack.seed}"
    return (f"{rules}; {blocks:,} blocks",)


def _code(manifest: Manifest) -> tuple[str, ...]:
    code = manifest.versions.get(CODE_VERSION)
    made = f"packer {manifest.versions.get('packer', '?')}, rules {manifest.rules_version}"
    here = f"packer {__version__}, rules {RULES_VERSION}, source {code_digest()[:_DIGITS]}"
    return (
        f"{made}"
        + (f", source {code[:_DIGITS]}" if code else "")
        + f"; engine {manifest.engine} {manifest.engine_version}",
        f"here: {here}",
    )
