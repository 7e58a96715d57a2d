"""The identity a manifest claims, worked out again from what lies in the cache, or where its recipe says.

The fingerprint of a recipe depends on the rules of the packer that made it. So this is done only for caches of the
same version; for others the shards' own digests must do.
"""

from pathlib import Path

from packer import __version__
from packer.audit.verify_report import Finding, is_elsewhere
from packer.errors import PackerError
from packer.model import TEMPLATE_FILE
from packer.pipeline.identity import Provenance, model_digests
from packer.pipeline.kept_tokenizer import kept_model
from packer.pipeline.plan import load_bare_model
from packer.recipe import Recipe, make_recipe
from packer.store.manifest import MANIFEST_NAME, Manifest


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
