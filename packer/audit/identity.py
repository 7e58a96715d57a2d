"""The identity a manifest claims, worked out again from what lies in the cache.

The fingerprint of a recipe depends on the rules of the packer that made it. So this is done only for caches of the
same version; for others the shards' own digests must do.
"""

import fnmatch
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from packer import __version__
from packer.audit.findings import Finding
from packer.build.identity import documents_identity, recipe_fingerprint
from packer.errors import PackerError
from packer.model import Model, load_model
from packer.recipe import Recipe, make_recipe
from packer.store.manifest import MANIFEST_NAME, Input, Manifest


def check_identity(folder: Path, manifest: Manifest) -> list[Finding]:
    """Compare the recipe's fingerprint and the record of the model with what the kept files give.

    Call it only where the model files were found to be whole.
    """
    if manifest.versions.get("packer") != __version__:
        return []
    try:
        recipe = make_recipe(manifest.recipe, where="the manifest's recipe")
        model = _kept_model(folder, manifest, recipe)
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
    columns = _columns_of_inputs(recipe, manifest.inputs)
    if columns is not None:
        documents = documents_identity(recipe, model, manifest.engine_version)
        found = recipe_fingerprint(recipe, documents, manifest.inputs, columns)
        if found != manifest.recipe_fingerprint:
            findings.append(_finding("recipe_fingerprint", manifest.recipe_fingerprint, found))
    return findings


def _kept_model(folder: Path, manifest: Manifest, recipe: Recipe) -> Model:
    """The model of the files under `model/`: exactly those, whatever else lies there."""
    files = {
        PurePosixPath(file.path).name: (folder / "model" / file.path).read_bytes() for file in manifest.model.files
    }
    with tempfile.TemporaryDirectory(prefix="packer-") as place:
        for name, content in files.items():
            (Path(place) / name).write_bytes(content)
        model = load_model(Path(place), stop=recipe.supervision.stop, pad_id=recipe.pack.pad_id)
    return replace(model, files=files)


def _columns_of_inputs(recipe: Recipe, inputs: tuple[Input, ...]) -> list[Mapping[str, str | None]] | None:
    """The renaming each input was read with; None where globs overlap and their renamings differ."""
    found: list[Mapping[str, str | None]] = []
    for entry in inputs:
        candidates = [
            source.columns
            for source in recipe.sources
            if source.split == entry.split
            # `*` crosses folders here, so this finds a few sources more than were meant, never fewer.
            and (
                Path(source.path).as_posix() == entry.path
                or fnmatch.fnmatchcase(entry.path, Path(source.path).as_posix())
            )
        ]
        if any(columns != candidates[0] for columns in candidates) or (not candidates and _renames(recipe)):
            return None
        found.append(candidates[0] if candidates else {})
    return found


def _renames(recipe: Recipe) -> bool:
    return any(source.columns for source in recipe.sources)


def _finding(what: str, expected: str, found: str) -> Finding:
    return Finding(path=MANIFEST_NAME, row=None, what=what, expected=expected, found=found)
