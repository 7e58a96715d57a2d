"""The copy of the tokenizer inside the cache, in case the original folder changes or disappears."""

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from packer.display import repair_hint
from packer.errors import CheckError
from packer.host.regular_file import leads_outside
from packer.model.model import TOKENIZER_FILE, Model, model_of
from packer.recipe.recipe import Recipe
from packer.store.files import CacheFiles
from packer.store.manifest import MANIFEST_NAME, Manifest, ModelFile, ModelRecord


def model_record(model: Model) -> ModelRecord:
    """Return a tokenizer's record for the manifest; its files are stored under a name derived from their contents."""
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
        processor=model.processor,
        image_ids=model.image_ids,
    )


def write_model(folder: Path, record: ModelRecord, files: Mapping[str, bytes]) -> None:
    """Copy a tokenizer's files into the cache; files that are already stored and intact are left alone."""
    cache = CacheFiles(folder)
    for file in record.files:
        name = f"model/{file.path}"
        if not leads_outside(folder, name) and cache.size(name) is not None and cache.sha256(name) == file.sha256:
            # A build that was killed may have named it without flushing the name.
            cache.sync(PurePosixPath(name).parent.as_posix())
        else:
            cache.write(name, files[PurePosixPath(name).name])


def kept_model(folder: Path, manifest: Manifest, recipe: Recipe) -> Model:
    """Return the model made of exactly the files that the manifest names; role markers are not searched for.

    Raises:
        CheckError: one of them is missing or damaged, or none is a tokenizer.json.
    """
    files, cache, hint = {}, CacheFiles(folder), repair_hint(folder)
    for file in manifest.model.files:
        name = f"model/{file.path}"
        if cache.size(name) is None:
            raise CheckError(f"{folder}/{name} is missing", hint=hint)
        content = cache.read(name)
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise CheckError(f"{folder}/{name} is damaged: its sha256 is not the manifest's", hint=hint)
        files[PurePosixPath(file.path).name] = content
    if TOKENIZER_FILE not in files:
        raise CheckError(f"{folder / MANIFEST_NAME} names no {TOKENIZER_FILE}", hint=hint)
    return model_of(files, folder / "model", stop=recipe.supervision.stop, pad_id=recipe.pack.pad_id)
