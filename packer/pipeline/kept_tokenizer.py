"""The tokenizer that a cache was built with, kept in the cache in case its folder changes or goes away."""

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from packer.errors import CheckError
from packer.model import Model, model_of
from packer.recipe import Recipe
from packer.store.files import CacheFiles
from packer.store.manifest import Manifest, ModelFile, ModelRecord
from packer.store.mapping import repair_hint


def model_record(model: Model) -> ModelRecord:
    """What a manifest says of a tokenizer; its files lie under a name that is theirs alone."""
    digests = model.digests
    listed = "".join(f"{file} {digest}\n" for file, digest in sorted(digests.items()))
    name = hashlib.sha256(listed.encode()).hexdigest()[:12]
    return ModelRecord(
        files=tuple(
            ModelFile(path=f"{name}/{file}", num_bytes=len(content), sha256=digests[file])
            for file, content in sorted(model.files.items())
        ),
        vocab_size=model.vocab_size,
        pad_id=model.pad_id,
        eos_id=model.eos_id,
        stop_ids=model.stop_ids,
        control_ids=tuple(sorted(model.control.values())),
    )


def write_model(folder: Path, record: ModelRecord, files: Mapping[str, bytes]) -> None:
    """Keep a tokenizer's files in the cache; those that are there and whole stay as they are.

    Raises:
        StorageError: the disk refuses.

    """
    cache = CacheFiles(folder)
    for file in record.files:
        name = f"model/{file.path}"
        if cache.size(name) is not None and cache.sha256(name) == file.sha256:
            # A build that was killed may have named it without flushing the name.
            cache.sync(PurePosixPath(name).parent.as_posix())
        else:
            cache.write(name, files[PurePosixPath(name).name])


def kept_files(folder: Path, manifest: Manifest) -> dict[str, bytes]:
    """The files under `model/` that the manifest names, by file name.

    Raises:
        CheckError: one is missing, or not what was written.
        StorageError: one cannot be read.

    """
    files, cache = {}, CacheFiles(folder)
    for file in manifest.model.files:
        name, hint = f"model/{file.path}", repair_hint(folder)
        if cache.size(name) is None:
            raise CheckError(f"{folder}/{name} is missing", hint=hint)
        content = cache.read(name)
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise CheckError(f"{folder}/{name} is damaged: its sha256 is not the manifest's", hint=hint)
        files[PurePosixPath(file.path).name] = content
    return files


def kept_model(folder: Path, manifest: Manifest, recipe: Recipe) -> Model:
    """The model of the kept files: exactly those, whatever else lies there. Role markers are not looked for.

    Raises:
        CheckError, StorageError: as :func:`kept_files`.
        InputError: they make no model.

    """
    files = kept_files(folder, manifest)
    return model_of(files, folder / "model", stop=recipe.supervision.stop, pad_id=recipe.pack.pad_id)
