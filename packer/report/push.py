"""`packer push`: a cache as a data set of the Hub, with a card in Markdown.

The card says what the manifest and :func:`packer.audit.stats` say; names that strangers chose stand in code spans.
"""

import json
import shlex
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path, PurePosixPath

from jinja2 import DictLoader, Environment, StrictUndefined

from packer.audit.stats import stats
from packer.audit.verify import verify
from packer.display import number, one_line, percent, plural
from packer.errors import CheckError, UsageError
from packer.hub import SCHEME, HubName, data_name, listed, snapshot
from packer.progress import Progress
from packer.report.facts import Documents, source_facts
from packer.store.cache import Cache
from packer.store.files import CacheFiles
from packer.store.manifest import MANIFEST_NAME, REJECTED_NAME, manifest_bytes
from packer.store.rejected import rejected_path


def card(cache: Cache, name: str) -> bytes:
    """The card as UTF-8.

    Args:
        cache: the cache.
        name: its name on the Hub, as readers take it.

    Raises:
        CheckError: something of the cache is missing or damaged.
        StorageError: something cannot be read.

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
        recipe=json.dumps(manifest.recipe, indent=2),  # in ASCII, where backticks can only be within a line
    )
    return text.encode("utf-8", "backslashreplace")


def _code(text: str) -> str:
    """A code span within a table: no name ends it, or the line."""
    return f"`{_cell(text).replace('`', chr(0x2CB))}`"


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")


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
