"""`packer push`: uploads a cache to the Hub as a dataset, with a card in Markdown.

The card's figures come from the manifest and :func:`packer.audit.stats`. User-supplied names are set as code spans.
"""

import json
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path, PurePosixPath

from jinja2 import DictLoader, Environment, StrictUndefined

from packer.audit import stats, verify
from packer.display import in_shell, number, one_line, percent, plural
from packer.errors import CheckError, UsageError
from packer.hub import SCHEME, HubName, data_name, listed, snapshot
from packer.progress import Progress
from packer.report.facts import Documents, source_facts
from packer.store.cache import Cache
from packer.store.files import CacheFiles
from packer.store.manifest import MANIFEST_NAME, REJECTED_NAME, manifest_bytes
from packer.store.rejected import rejected_path


def card(cache: Cache, name: str) -> bytes:
    """Render the card of a cache as UTF-8; `name` is its name on the Hub, as readers accept it.

    Raises:
        CheckError: a part of the cache is missing or damaged.
        StorageError: a file cannot be read.
    """
    own = DictLoader({"card": (resources.files(__package__) / "card.md.j2").read_text("utf-8")})
    environment = Environment(loader=own, undefined=StrictUndefined, trim_blocks=True, autoescape=False)  # noqa: S701 - no HTML
    environment.filters |= {"number": number, "percent": percent, "plural": plural, "code": _code, "cell": _cell}
    manifest = cache.manifest
    text = environment.get_template("card").render(
        title=name.rpartition("/")[2],
        name=name,
        found=stats(cache.folder),
        sources=source_facts(cache, Documents.of(cache)),
        manifest=manifest,
        versions=", ".join(f"{library} {version}" for library, version in sorted(manifest.versions.items())),
        recipe=json.dumps(manifest.recipe, indent=2),  # JSON in ASCII, where no line can begin with backticks
    )
    return text.encode("utf-8", "backslashreplace")


def _code(text: str) -> str:
    """Format a code span for a table cell; the text can end neither the span nor the line."""
    return f"`{_cell(text).replace('`', chr(0x2CB))}`"


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")


CARD, _CARD_START = "README.md", b"---\ntags:\n- packer\n"
"""Name and first lines of a card; a README.md that begins otherwise is somebody's own."""

_FOLDERS = ("blocks", "documents", "model", "rows")
"""Folders of a cache; where there is a manifest beside them, everything in them belongs to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """The result of :func:`push`."""

    name: str
    """As commands and readers accept it, with the commit."""

    address: str
    """URL of the dataset's page."""

    is_private: bool
    fingerprint: str
    num_files: int
    """Files that were committed; 0 if the dataset already contained this cache."""

    num_bytes: int
    keeps_card: bool
    """Whether there is a README.md that no push wrote; it is kept."""


def push(
    cache: Path | str, to: str, *, public: bool = False, replaces: bool = False, progress: Progress | None = None
) -> Pushed:
    """Verify every byte and row of a cache, and upload it to the Hub with a card, in one commit.

    Args:
        cache: the cache.
        to: ``ORG/NAME``, or ``hf://datasets/ORG/NAME[@BRANCH][/FOLDER]``. A dataset that does not exist is created.
        public: create it as a public dataset, not a private one.
        replaces: replace another cache at the destination.
        progress: receives the progress of the verification; counts bytes.

    Raises:
        UsageError: there is another cache at the destination.
        RecipeError: `to` is not the name of a dataset.
        InputError: not a finished cache; or the Hub refuses, or does not answer.
        CheckError: the cache is damaged.
        BusyError: the dataset was changed during the upload.
        StorageError: a file cannot be read.
    """
    target = data_name(to if to.startswith(SCHEME) else f"{SCHEME}datasets/{to}")
    assert target is not None  # data_name() returns None only without the scheme
    report = verify(cache, progress=progress)
    if not report.ok:
        hint = f"packer verify {in_shell(report.folder)} says where"
        raise CheckError(f"{report.folder} is damaged, so it is not pushed", hint=hint)
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
            f"{target} contains another cache",
            hint=f"--replace overwrites it with this one; or push this one to hf://datasets/{target.repository}/FOLDER",
        )
    readme = str(inside / CARD)
    text = (snapshot(there.name, [readme]) / readme).read_bytes() if readme in listing else _CARD_START
    keeps_card = not text.startswith(_CARD_START)
    files: dict[str, Path | bytes] = {}
    name = there.name
    if old != content:
        here = dict.fromkeys(cache.manifest.digests) | {REJECTED_NAME: rejected_path(cache.folder, cache.manifest)}
        files = {str(inside / path): CacheFiles(cache.folder).fetch(name or path) for path, name in here.items()}
        files[manifest] = content
        if not keeps_card:
            files[readme] = card(cache, str(target))
        owned = () if old is None else tuple(f"{inside / folder}/" for folder in _FOLDERS)
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
