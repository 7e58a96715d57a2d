"""Fetches tokenizers and data from the Hub, with the Hub's own client, into its own cache, with its own token.

The client's failures become errors of packer.
"""

import fnmatch
import glob
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from packer.data_files import data_ending
from packer.errors import InputError, PackerError, RecipeError, StorageError
from packer.hub.names import HubName

_SHOWN_FILES = 6

_NETWORK = ("httpx", "httpcore", "requests", "urllib3")
"""Modules whose errors the client lets through; they have no class that all its versions share."""

_LOG_IN = "log in with hf auth login, or set HF_TOKEN"


class UnreachableError(Exception):
    """The Hub cannot be asked, or does not answer sensibly; its cache may still do."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@contextmanager
def asking(name: HubName) -> Iterator[None]:
    """A question to the Hub about a name.

    Raises:
        UnreachableError: there is no answer.
        PackerError: the answer is no.

    """
    try:
        yield
    except Exception as error:
        found = _translated(name, error)
        if found is None:
            raise
        raise found from error


@contextmanager
def fetching(name: HubName, unreachable: UnreachableError | None = None) -> Iterator[None]:
    """Files of a name, from the cache or the Hub.

    Args:
        name: what is fetched.
        unreachable: why only the cache is looked at.

    Raises:
        PackerError: they cannot be had.

    """
    try:
        with asking(name):
            yield
    except UnreachableError as error:
        raise _nowhere(name, (unreachable or error).reason) from error


def _translated(name: HubName, error: Exception) -> PackerError | UnreachableError | None:
    """The client's error as one of packer's; None where it is no error of the client."""
    from huggingface_hub import errors  # noqa: PLC0415 - a third of a second

    if isinstance(error, errors.LocalEntryNotFoundError):
        cause = error.__cause__
        refused = isinstance(cause, errors.HfHubHTTPError)
        return _refusal(name, cause) if refused else UnreachableError(_first_line(cause or error))
    if isinstance(error, errors.HfHubHTTPError):
        return _refusal(name, error)
    if isinstance(error, errors.HFValidationError):
        return RecipeError(f"{name.label}: {_first_line(error)}", hint="a name on the Hub is ORG/NAME")
    if isinstance(error, ConnectionError | TimeoutError) or type(error).__module__.startswith(_NETWORK):
        return UnreachableError(_first_line(error))
    if isinstance(error, OSError):
        return StorageError(f"{name.label}: cannot be kept in {_cache()}: {_first_line(error)}")
    return None


_REFUSALS = {
    "GatedRepoError": ("its owners say who may have it", f"ask for access at {{place}}, then {_LOG_IN}"),
    "RepositoryNotFoundError": (
        "not a repository that can be seen at {endpoint}",
        f"look at the spelling; where it is private, {_LOG_IN}",
    ),
    "RevisionNotFoundError": ("the repository has no such revision", "see its branches and tags at {place}"),
    "EntryNotFoundError": ("a file is gone from the repository", "see {place}"),
}
"""Answers other than yes, by the client's class of error, the special ones first: what they mean, and what to do."""


def _refusal(name: HubName, error: BaseException | None) -> PackerError | UnreachableError:
    from huggingface_hub import constants, errors  # noqa: PLC0415 - as above

    places = {
        "endpoint": constants.ENDPOINT,
        "place": f"{constants.ENDPOINT}/{'datasets/' * (name.kind == 'dataset')}{name.repository}",
    }
    for kind, (says, hint) in _REFUSALS.items():
        if isinstance(error, getattr(errors, kind)):
            here = "no file or folder here, and " * (name.kind == "model" and kind == "RepositoryNotFoundError")
            return InputError(f"{name.label}: {here}{says.format(**places)}", hint=hint.format(**places))
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if status in {401, 403}:
        return InputError(f"{name.label}: the Hub refuses it (HTTP {status})", hint=f"see {places['place']}; {_LOG_IN}")
    return UnreachableError(f"it answers HTTP {status}")


def _nowhere(name: HubName, reason: str) -> InputError:
    """Neither the Hub nor its cache has it."""
    from huggingface_hub import constants  # noqa: PLC0415 - as above

    here = "no file or folder here, " if name.kind == "model" else ""
    fetch = f"hf download {name.repository}" + " --repo-type dataset" * (name.kind == "dataset")
    why, hint = f"{constants.ENDPOINT} does not answer: {reason}", "look at the network"
    if constants.HF_HUB_OFFLINE:
        why, hint = "HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE"
    return InputError(
        f"{name.label}: {here}not in the cache of the Hub, {_cache()}, and {why}",
        hint=f"{hint}, or fill the cache where there is one: {fetch}",
    )


def _cache() -> str:
    from huggingface_hub import constants  # noqa: PLC0415 - as above

    return constants.HF_HUB_CACHE


def _first_line(error: BaseException) -> str:
    """The first words of an error; some of the client's run over many lines."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A name with a commit in place of its revision."""

    name: HubName
    by_cache: bool
    """The Hub did not answer; the commit is the one that its cache remembers of the revision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file of a data set."""

    name: HubName
    """The name of this file, with its commit."""

    path: Path
    """In the client's cache."""


def pin(name: HubName) -> Pinned:
    """Put the commit in place of a branch or a tag; the Hub is not asked about what is a commit already.

    Raises:
        InputError: no such repository or revision, no access, or neither the Hub nor its cache knows.

    """
    if name.is_pinned:
        return Pinned(name=name, by_cache=False)
    try:
        commit, _ = _look(name)
    except UnreachableError as unreachable:
        with fetching(name, unreachable):
            return Pinned(name=replace(name, revision=_snapshot(name, [], offline=True).name), by_cache=True)
    with fetching(name):
        _snapshot(name, [])  # the client remembers what the revision was, for when the Hub does not answer
    return Pinned(name=replace(name, revision=commit), by_cache=False)


def fetch_tokenizer(name: HubName, files: Sequence[str]) -> Path:
    """A folder with those of the files that the repository has; what is in the cache is not fetched again.

    Args:
        name: of a tokenizer.
        files: paths within the repository; the first must be there.

    Raises:
        InputError: it cannot be had.
        StorageError: the disk refuses.

    """
    folder = _fetch(name, files)
    if not (folder / files[0]).is_file():
        raise InputError(
            f"{name.label}: the repository has no {files[0]}",
            hint=f"AutoTokenizer.from_pretrained('{name.repository}').save_pretrained(DIR) in transformers may make "
            "one; then --tokenizer DIR",
        )
    return folder


def fetch_data(name: HubName) -> list[HubFile]:
    """The files a name stands for, sorted; what is in the cache is not fetched again.

    Raises:
        InputError: they cannot be had, or the name stands for none, or for several that it does not name.
        StorageError: the disk refuses.

    """
    name = pin(name).name
    found = _cached(name)
    if found is not None:
        return [HubFile(name=name, path=found)]
    chosen = choose(name, _listed(name))
    folder = _fetch(name, chosen)
    missing = [path for path in chosen if not (folder / path).is_file()]
    if missing:
        with fetching(name):
            raise UnreachableError(f"{missing[0]} was not fetched")
    return [HubFile(name=replace(name, path=path), path=folder / path) for path in chosen]


def _listed(name: HubName) -> list[str]:
    """The files of a commit: from the cache, where it knows them, else from the Hub."""
    listed = _cached_listing(name)
    if listed is not None:
        return listed
    try:
        return _look(name)[1]
    except UnreachableError as unreachable:
        with fetching(name, unreachable):
            raise  # not the files that are there: they may be a part of what the name stands for


def _fetch(name: HubName, files: Sequence[str]) -> Path:
    """The folder of a commit with these files, as far as the repository has them; of the cache alone, if it must be."""
    patterns = [glob.escape(file) for file in files]
    try:
        with asking(name):
            return _snapshot(name, patterns)
    except UnreachableError as unreachable:
        with fetching(name, unreachable):
            return _snapshot(name, patterns, offline=True)


def _look(name: HubName) -> tuple[str, list[str]]:
    """Commit and files of a revision, asked of the Hub.

    Raises:
        UnreachableError: it does not answer.
        InputError: there is no such repository or revision, or no access.

    """
    from huggingface_hub import HfApi, constants  # noqa: PLC0415 - a third of a second

    api, timeout = HfApi(library_name="packer"), constants.HF_HUB_ETAG_TIMEOUT
    with asking(name):
        if name.kind == "model":
            model = api.model_info(name.repository, revision=name.revision, timeout=timeout)
            commit, siblings = model.sha, model.siblings
        else:
            data = api.dataset_info(name.repository, revision=name.revision, timeout=timeout)
            commit, siblings = data.sha, data.siblings
    if commit is None:
        raise UnreachableError("its answer names no commit")
    return commit, [sibling.rfilename for sibling in siblings or ()]


def _snapshot(name: HubName, patterns: list[str], *, offline: bool = False) -> Path:
    """The folder of a commit, with the files that fit the patterns."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - as above

    with _without_chatter():
        folder = snapshot_download(
            name.repository,
            repo_type=name.kind,
            revision=name.revision,
            allow_patterns=patterns,
            local_files_only=offline,
            library_name="packer",
        )
    return Path(folder)


def _cached(name: HubName) -> Path | None:
    """The one file that a name with a commit stands for, where it is in the cache."""
    if not name.is_pinned or not name.path or glob.has_magic(name.path):
        return None
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - as above

    found = try_to_load_from_cache(name.repository, name.path, revision=name.revision, repo_type=name.kind)
    return Path(found) if isinstance(found, str) else None


def _cached_listing(name: HubName) -> list[str] | None:
    """All files of a commit, where the client remembers them; a cache that an older one filled does not say."""
    import huggingface_hub  # noqa: PLC0415 - as above

    try:
        tree = huggingface_hub.get_cached_repo_tree(name.repository, repo_type=name.kind, revision=name.revision)
    except huggingface_hub.errors.CachedRepoTreeNotFoundError:
        return None
    return [file.path for file in tree]


@contextmanager
def _without_chatter() -> Iterator[None]:
    """The client draws progress bars, for a terminal or not, and warns where no file is asked for."""
    from huggingface_hub.utils import logging as client_logging  # noqa: PLC0415 - as above
    from huggingface_hub.utils.tqdm import (  # noqa: PLC0415 - as above
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    verbosity, silenced = client_logging.get_verbosity(), not (sys.stderr.isatty() or are_progress_bars_disabled())
    client_logging.set_verbosity(logging.ERROR)
    if silenced:
        disable_progress_bars()
    try:
        yield
    finally:
        client_logging.set_verbosity(verbosity)
        if silenced:
            enable_progress_bars()


def choose(name: HubName, listed: Sequence[str]) -> list[str]:
    """The files of a repository that the name stands for, sorted.

    A path without a wildcard that is no file stands for the one data file below it; several are not guessed among.

    Args:
        name: of a data set.
        listed: paths of all its files.

    Raises:
        InputError: it stands for none, or for several that it does not name.

    """
    if name.path in listed:
        return [name.path]
    if glob.has_magic(name.path):
        chosen = sorted(path for path in listed if _matches(path.split("/"), name.path.split("/")))
        if not chosen:
            raise InputError(f"{name}: no file matches", hint=f"the repository has {_shown(listed)}")
        return chosen
    inside = [path for path in listed if path.startswith(f"{name.path}/" * bool(name.path))]
    chosen = [path for path in inside if data_ending(path) is not None]
    if not chosen:
        raise InputError(f"{name}: no such data file in the repository", hint=f"the repository has {_shown(listed)}")
    if len(chosen) > 1:
        raise InputError(
            f"{name}: stands for {len(chosen)} data files", hint=f"say which of them, or give a glob: {_shown(chosen)}"
        )
    return chosen


def _shown(listed: Sequence[str]) -> str:
    files = sorted(path for path in listed if data_ending(path) is not None) or sorted(listed)
    more = f", and {len(files) - _SHOWN_FILES:,} more" if len(files) > _SHOWN_FILES else ""
    return ", ".join(files[:_SHOWN_FILES]) + more if files else "no files"


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path fits a glob, as in a shell: `*` stays within a folder, `**` is any number of them."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[skipped:], pattern[1:]) for skipped in range(len(parts) + 1))
    if not parts or (parts[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
