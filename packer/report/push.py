"""`packer push`: a cache and its card as a data set of the Hub."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from packer.audit.verify import verify
from packer.errors import CheckError, UsageError
from packer.hub import SCHEME, HubName, data_name, listed, snapshot
from packer.progress import Progress
from packer.report.card import card
from packer.store.cache import Cache
from packer.store.files import CacheFiles
from packer.store.manifest import MANIFEST_NAME, REJECTED_NAME, manifest_bytes
from packer.store.rejected import rejected_path

CARD = "README.md"
_FOLDERS = ("blocks", "documents", "model", "rows")
"""Of a cache; what lies in them belongs to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What is on the Hub now."""

    name: str
    """As commands and readers take it, with the commit."""

    address: str
    """Of the data set's page."""

    is_private: bool
    fingerprint: str
    num_files: int
    """That were committed: none where the data set held this very cache."""

    num_bytes: int
    keeps_card: bool
    """There is a README.md that no push wrote; it stays."""


def push(
    cache: Path | str, to: str, *, public: bool = False, replaces: bool = False, progress: Progress | None = None
) -> Pushed:
    """Verify a cache, every byte and row of it, and put it on the Hub with a card, in one commit.

    Args:
        cache: the cache.
        to: ``ORG/NAME``, or ``hf://datasets/ORG/NAME[@BRANCH][/FOLDER]``. A data set that is not there is made.
        public: make it for everybody to see, instead of its owner alone.
        replaces: take the place of another cache that is there.
        progress: listens to the verification; counts bytes.

    Raises:
        UsageError: another cache is there.
        RecipeError: `to` is no name of a data set.
        InputError: not a finished cache; or the Hub says no, or does not answer.
        CheckError: the cache is damaged.
        BusyError: somebody else changed the data set meanwhile.
        StorageError: something cannot be read.

    """
    target = data_name(to if to.startswith(SCHEME) else f"{SCHEME}datasets/{to}")
    assert target is not None  # it has the scheme
    report = verify(cache, progress=progress)
    if not report.ok:
        where = shlex.quote(str(report.folder))
        raise CheckError(f"{report.folder} is damaged, and is not pushed", hint=f"packer verify {where} says where")
    with Cache.open(report.folder) as opened:
        if opened.fingerprint != report.fingerprint:
            raise CheckError(f"{opened.folder} was built again while it was verified", hint="push it again")
        return _push(opened, target, public=public, replaces=replaces)


def _push(cache: Cache, target: HubName, *, public: bool, replaces: bool) -> Pushed:
    from packer.hub.upload import data_set, upload  # noqa: PLC0415 - not for a report

    there = data_set(target, private=not public)
    inside = PurePosixPath(target.path)
    listing, manifest = set(listed(there.name)), str(inside / MANIFEST_NAME)
    content, old = manifest_bytes(cache.folder), None
    if manifest in listing:
        old = manifest_bytes(snapshot(there.name, [manifest]) / inside)
    if old not in (None, content) and not replaces:
        raise UsageError(
            f"{target} holds another cache",
            hint=f"--replace puts this one in its place; or push it to hf://datasets/{target.repository}/FOLDER",
        )
    readme = str(inside / CARD)
    keeps_card = old is None and readme in listing
    files: dict[str, Path | bytes] = {}
    name = there.name
    if old != content:
        here = dict.fromkeys(cache.manifest.digests) | {REJECTED_NAME: rejected_path(cache.folder, cache.manifest)}
        files = {str(inside / path): CacheFiles(cache.folder).fetch(name or path) for path, name in here.items()}
        files[manifest] = content
        if not keeps_card:
            files[readme] = card(cache, str(target))
        owned = tuple(f"{inside / folder}/" for folder in _FOLDERS)
        gone = sorted(path for path in listing - set(files) if path.startswith(owned))
        message = f"Cache {cache.fingerprint[:12]}"
        name = upload(target, files, gone=gone, parent=there.name.revision, message=message)
    return Pushed(
        name=str(replace(name, path=target.path)),
        address=there.address,
        is_private=there.is_private,
        fingerprint=cache.fingerprint,
        num_files=len(files),
        num_bytes=sum(len(each) if isinstance(each, bytes) else each.stat().st_size for each in files.values()),
        keeps_card=keeps_card,
    )
