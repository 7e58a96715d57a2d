"""Whether a cache is up to date, found out from digests alone: no tokenizer is loaded, no input cut into rows.

A plan depends on the recipe, the bytes of the tokenizer's files and of the inputs, the engine, and the version of
packer. Where all of them are as the manifest says, a plan would give what it gave then, and none is made.
Where one differs, the plan says what that means.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from packer import __version__
from packer.errors import InputError, StorageError
from packer.model import TOKENIZER_FILE, digests_of, read_model_files
from packer.pipeline.engine import resolve_engine
from packer.pipeline.identity import RULES_VERSION, model_digests
from packer.pipeline.input_resolution import SourceFile, tokenizer_place
from packer.pipeline.plan import resolve_sources
from packer.pipeline.progress import Progress
from packer.pipeline.reuse import is_as_committed
from packer.recipe import Recipe, current_keys, to_json
from packer.source.file_bytes import unreadable
from packer.store.digest import digest_file
from packer.store.manifest import Input, Manifest


def is_unchanged(folder: Path, manifest: Manifest, recipe: Recipe, progress: Progress) -> bool:
    """Whether a build would find nothing to do; False where only a plan shows it.

    Args:
        folder: the cache.
        manifest: of the cache.
        recipe: pinned; what is to be built.
        progress: listens.

    Raises:
        RecipeError, InputError, StorageError: as for a plan.

    """
    if manifest.versions.get("packer") != __version__ or manifest.rules_version != RULES_VERSION:
        return False
    files = resolve_sources(recipe)
    return (
        _same_recipe(manifest, recipe)
        and [(file.name, file.split) for file in files] == [(entry.path, entry.split) for entry in manifest.inputs]
        and is_as_committed(folder, manifest)
        and _same_bytes(files, manifest.inputs, progress)
    )


def _same_recipe(manifest: Manifest, recipe: Recipe) -> bool:
    """Whether recipe, tokenizer and engine are those of a manifest."""
    assert recipe.tokenizer is not None  # resolve_sources asks for one
    template = Path(recipe.template.file) if recipe.template.file else None
    files = read_model_files(tokenizer_place(recipe.tokenizer), template=template)
    if digests_of(files) != model_digests(manifest.model):
        return False
    engine = resolve_engine(recipe.engine, files[TOKENIZER_FILE], before=manifest.engine)
    wanted = to_json(msgspec.structs.replace(recipe, engine=engine.name))
    # As JSON: for Python, true and 1 and 1.0 are the same, and a template may write them.
    return _written(wanted) == _written(current_keys(manifest.recipe)) and engine.version == manifest.engine_version


def _written(recipe: Mapping[str, Any]) -> str:
    return json.dumps(recipe, sort_keys=True)


def _same_bytes(files: list[SourceFile], inputs: tuple[Input, ...], progress: Progress) -> bool:
    """Whether every input holds the bytes it held; the sizes are looked at first."""
    for file, entry in zip(files, inputs, strict=True):
        try:
            if file.path.stat().st_size != entry.num_bytes:
                return False
        except OSError as error:
            raise unreadable(file.path, error) from error
    progress.stage("reading", sum(entry.num_bytes for entry in inputs), "bytes")
    for file, entry in zip(files, inputs, strict=True):
        try:
            _, _, sha256 = digest_file(file.path)
        except StorageError as error:
            raise InputError(error.message, hint=error.hint) from error
        if sha256 != entry.sha256:
            return False
        progress.advance(entry.num_bytes)
    return True
