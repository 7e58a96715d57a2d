"""Where the cache lies that a command or a reader names: in a folder, or on the Hub and then in its client's cache."""

import os
import re
from pathlib import Path, PurePosixPath

from packer.errors import CheckError, InputError
from packer.hub import SCHEME, HubName, data_name, pin, snapshot
from packer.store.files import CacheFiles
from packer.store.manifest import MANIFEST_NAME, read_manifest


def cache_place(name: Path | str) -> Path:
    """The folder of a cache.

    Of one on the Hub, ``hf://datasets/ORG/NAME[@REVISION][/FOLDER]``, what its manifest names is fetched as far as it
    is not in the client's cache, and compared with the manifest once it is there.

    Raises:
        RecipeError: it begins as a name on the Hub and is none.
        InputError: the Hub does not have it, or cannot be asked.
        CheckError: a fetched file is not what the manifest says.
        StorageError: the disk refuses.

    """
    text = re.sub(r"\Ahf:/(?!/)", SCHEME, os.fspath(name))  # a Path has one of the two slashes left
    hub = data_name(text)
    return Path(name) if hub is None else _fetched(pin(hub).name)


def _fetched(name: HubName) -> Path:
    inside = PurePosixPath(name.path)
    folder = snapshot(name, [str(inside / MANIFEST_NAME)]) / inside
    files = CacheFiles(folder)
    if files.size(MANIFEST_NAME) is None:
        raise InputError(
            f"{name} is not a cache: it has no {MANIFEST_NAME}",
            hint="packer push CACHE ORG/NAME puts a cache there; rows are what packer build takes",
        )
    digests = read_manifest(folder).digests
    missing = [file for file in digests if files.size(file) is None]
    if missing:
        snapshot(name, [str(inside / file) for file in missing])
    for file in missing:
        if files.size(file) is None:
            raise CheckError(f"{name} has no {file}", hint="packer push CACHE ORG/NAME --replace puts it there")
        found = files.sha256(file)
        if found != digests[file]:
            (folder / file).resolve().unlink()  # or the client would take it for fetched for ever
            (folder / file).unlink(missing_ok=True)
            raise CheckError(
                f"{name}: {file} is damaged: expected sha256 {digests[file]}, found {found}",
                hint="it is gone from the client's cache: the same command fetches it again",
            )
    return folder
