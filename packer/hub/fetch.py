"""Fetches tokenizers and data from the Hub, with the Hub's own client, into its own cache, with its own token.

The client's failures become errors of packer.
"""

import glob
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from packer.errors import BusyError, InputError, PackerError, RecipeError, StorageError
from packer.hub.names import HubName
from packer.names import data_ending, fits

_SHOWN_FILES = 6

_NETWORK = ("httpx", "httpcore", "requests", "urllib3")
"""Modules whose errors the client lets through; they have no class that all its versions share."""

_LOG_IN = "log in with hf auth login, or set HF_TOKEN"


class UnreachableError(InputError):
    """Something is not in the client's cache, and the Hub cannot be asked for it or does not answer sensibly."""

    reason = ""
    """Why it was not asked, or what it answered."""


@contextmanager
def asking(name: HubName) -> Iterator[None]:
    """A question to the client about a name.

    Raises:
        UnreachableError: neither the Hub nor the cache has an answer.
        PackerError: the answer is no.

    """
    try:
        yield
    except Exception as error:
        found = _translated(name, error)
        if found is None:
            raise
        raise found from error


def _translated(name: HubName, error: Exception) -> PackerError | None:
    """The client's error as one of packer's; None where it is no error of the client."""
    from huggingface_hub import errors  # noqa: PLC0415 - a third of a second

    if isinstance(error, errors.LocalEntryNotFoundError):
        cause = error.__cause__
        refused = isinstance(cause, errors.HfHubHTTPError)
        return _refusal(name, cause) if refused else _unreachable(name, _first_line(cause or error))
    if isinstance(error, errors.HfHubHTTPError):
        return _refusal(name, error)
    if isinstance(error, errors.HFValidationError):
        return RecipeError(f"{name.label}: {_first_line(error)}", hint="a name on the Hub is ORG/NAME")
    if isinstance(error, ConnectionError | TimeoutError) or type(error).__module__.startswith(_NETWORK):
        return _unreachable(name, _first_line(error))
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):
        return _translated(name, error.__cause__)  # of one file among those that are uploaded
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


def _refusal(name: HubName, error: BaseException | None) -> PackerError:
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
    if status in {409, 412}:
        return BusyError(f"{name.label}: somebody else changes it", hint="look at what was changed, then try again")
    if status in {401, 403}:
        return InputError(f"{name.label}: the Hub refuses it (HTTP {status})", hint=f"see {places['place']}; {_LOG_IN}")
    return _unreachable(name, f"it answers HTTP {status}")


def _unreachable(name: HubName, reason: str) -> UnreachableError:
    from huggingface_hub import constants  # noqa: PLC0415 - as above

    here = "no file or folder here, " if name.kind == "model" else ""
    fetch = f"hf download {name.repository}" + " --repo-type dataset" * (name.kind == "dataset")
    why, hint = f"{constants.ENDPOINT} does not answer: {reason}", "look at the network"
    if constants.HF_HUB_OFFLINE:
        why, hint = "HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE"
    found = UnreachableError(
        f"{name.label}: {here}not in the cache of the Hub, {_cache()}, and {why}",
        hint=f"{hint}, or fill the cache where there is one: {fetch}",
    )
    found.reason = why
    return found


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
    from huggingface_hub import HfApi, constants  # noqa: PLC0415 - a third of a second

    if name.is_pinned:
        return Pinned(name=name, by_cache=False)
    ask = HfApi(library_name="packer").repo_info
    unreachable = None
    try:
        with asking(name):
            ask(name.repository, repo_type=name.kind, revision=name.revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except UnreachableError as error:
        unreachable = error
    try:
        folder = snapshot(name, [], offline=unreachable is not None)  # its name is the commit, which the client keeps
    except UnreachableError as error:
        raise unreachable or error from error
    return Pinned(name=replace(name, revision=folder.name), by_cache=unreachable is not None)


def fetch_tokenizer(name: HubName, files: Sequence[str]) -> Path:
    """A folder with those of the files that the repository has; what is in the cache is not fetched again.

    Args:
        name: of a tokenizer.
        files: paths within the repository; the first must be there.

    Raises:
        InputError: it cannot be had.
        StorageError: the disk refuses.

    """
    folder = snapshot(name, files)
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
    chosen = choose(name, listed(name))
    folder = snapshot(name, chosen)
    return [HubFile(name=replace(name, path=path), path=folder / path) for path in chosen]


def listed(name: HubName) -> list[str]:
    """All files of a commit: as the client remembers them, else as the Hub lists them.

    Those in the cache of a client that does not say which there are may be a part of what a name stands for.

    Raises:
        InputError: neither knows.

    """
    import huggingface_hub  # noqa: PLC0415 - as above

    commit = {"repo_type": name.kind, "revision": name.revision}
    try:
        return [file.path for file in huggingface_hub.get_cached_repo_tree(name.repository, **commit)]
    except huggingface_hub.errors.CachedRepoTreeNotFoundError:
        with asking(name):
            return huggingface_hub.HfApi(library_name="packer").list_repo_files(name.repository, **commit)


def snapshot(name: HubName, files: Sequence[str], *, offline: bool = False) -> Path:
    """The folder of a commit with these files, as far as the repository has them; fetches those not in the cache.

    Raises:
        InputError: they cannot be had.
        StorageError: the disk refuses.

    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - as above

    with asking(name), without_chatter():
        folder = snapshot_download(
            name.repository,
            repo_type=name.kind,
            revision=name.revision,
            allow_patterns=[glob.escape(file) for file in files],
            local_files_only=offline,
            library_name="packer",
        )
    return Path(folder)


def _cached(name: HubName) -> Path | None:
    """The one file that a name with a commit stands for, where it is in the cache."""
    if not name.path or glob.has_magic(name.path):
        return None
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - as above

    found = try_to_load_from_cache(name.repository, name.path, revision=name.revision, repo_type=name.kind)
    return Path(found) if isinstance(found, str) else None


@contextmanager
def without_chatter() -> Iterator[None]:
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
        chosen = sorted(path for path in listed if fits(path, name.path))
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
