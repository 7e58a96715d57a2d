"""Tokenizers, datasets and caches on the Hugging Face Hub, fetched by the Hub's own client.

The client brings its cache and its token. It is imported only when a name refers to the Hub, and its failures are
raised as packer's errors.
"""

import glob
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from packer.display import shown_cause
from packer.errors import InputError, PackerError, RecipeError, StorageError, UsageError, did_you_mean, near_paths
from packer.names import HubName, data_ending, fits

_SHOWN_FILES = 6

_NETWORK = ("httpx", "httpcore", "requests", "urllib3")
"""Modules whose errors the client does not catch; they have no base class common to all its versions."""

_LOG_IN = "log in with hf auth login, or set HF_TOKEN"


class UnreachableError(InputError):
    """Something is not in the client's cache, and the Hub cannot be reached or gives no usable answer."""


@contextmanager
def client_request(name: HubName) -> Iterator[None]:
    """Translate errors of the client, raised in a request about a name, into packer's errors.

    An UnreachableError says that neither the Hub nor the cache has an answer.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{name.label}: names on the Hub need huggingface_hub", hint='pip install "token-packer[hub]"'
        ) from error
    except Exception as error:
        found = _translated(name, error)
        if found is None:
            raise
        raise found from shown_cause(error)


def _translated(name: HubName, error: Exception) -> PackerError | None:
    """Return packer's error for one of the client; None if it is not the client's."""
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
    if isinstance(error, ValueError):
        return InputError(f"{name.label}: the Hub's client rejects the name, or the Hub's answer: {_first_line(error)}")
    if isinstance(error, OSError):
        return StorageError(f"{name.label}: cannot be stored in {_cache()}: {_first_line(error)}")
    return None


_REFUSALS = {
    "GatedRepoError": ("its owners decide who has access", f"ask for access at {{place}}, then {_LOG_IN}"),
    "RepositoryNotFoundError": (
        "not a repository that is visible at {endpoint}",
        f"check the spelling; if it is private, {_LOG_IN}",
    ),
    "RevisionNotFoundError": ("the repository has no such revision", "see its branches and tags at {place}"),
    "EntryNotFoundError": ("a file is missing from the repository", "see {place}"),
}
"""Refusals by the client's error class, subclasses first: what each means, and what to do about it."""


def _refusal(name: HubName, error: BaseException | None) -> PackerError:
    from huggingface_hub import constants, errors  # noqa: PLC0415 - as above

    places = {
        "endpoint": constants.ENDPOINT,
        "place": f"{constants.ENDPOINT}/{'datasets/' * (name.kind == 'dataset')}{name.repository}",
    }
    for kind, (says, hint) in _REFUSALS.items():
        if isinstance(error, getattr(errors, kind)):
            here = "no file or folder here, and " * (name.kind == "model" and kind == "RepositoryNotFoundError")
            way_out = did_you_mean(_near_here(name), hint.format(**places))
            return InputError(f"{name.label}: {here}{says.format(**places)}", hint=way_out)
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if status in {401, 403}:
        return InputError(f"{name.label}: the Hub refuses it (HTTP {status})", hint=f"see {places['place']}; {_LOG_IN}")
    return _unreachable(name, f"it answers HTTP {status}")


def _unreachable(name: HubName, reason: str) -> UnreachableError:
    from huggingface_hub import constants  # noqa: PLC0415 - as above

    here = "no file or folder here, " if name.kind == "model" else ""
    fetch = f"hf download {name.repository}" + " --repo-type dataset" * (name.kind == "dataset")
    why, hint = f"{constants.ENDPOINT} does not answer: {reason}", "check the network"
    if constants.HF_HUB_OFFLINE:
        why, hint = "HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE"
    return UnreachableError(
        f"{name.label}: {here}not in the cache of the Hub, {_cache()}, and {why}",
        hint=did_you_mean(_near_here(name), f"{hint}, or download it where there is a network: {fetch}"),
    )


def _near_here(name: HubName) -> list[str]:
    return near_paths(name.repository) if name.kind == "model" else []


def _cache() -> str:
    from huggingface_hub import constants  # noqa: PLC0415 - as above

    return constants.HF_HUB_CACHE


def _first_line(error: BaseException) -> str:
    """Return the start of an error's first line; some of the client's messages run over many lines."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


def pin(name: HubName) -> tuple[HubName, bool]:
    """Resolve a branch or a tag to its commit; a name that has a commit is returned without asking the Hub.

    Also returns whether the commit comes from the client's cache, because the Hub did not answer.
    """
    if name.is_pinned:
        return name, False
    unreachable = None
    try:
        with client_request(name):
            from huggingface_hub import HfApi, constants  # noqa: PLC0415 - a third of a second

            ask = HfApi(library_name="packer").repo_info
            ask(name.repository, repo_type=name.kind, revision=name.revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except UnreachableError as error:
        unreachable = error
    try:
        folder = snapshot(name, [], offline=unreachable is not None)  # named after the commit, which the client caches
    except UnreachableError as error:
        raise unreachable or error from error
    return replace(name, revision=folder.name), unreachable is not None


def fetch_tokenizer(name: HubName, files: Sequence[str]) -> Path:
    """Return a folder with those files that the tokenizer's repository has; the first must exist.

    Cached files are not fetched again.
    """
    folder = snapshot(name, files)
    if not (folder / files[0]).is_file():
        raise InputError(
            f"{name.label}: the repository has no {files[0]}",
            hint=f"AutoTokenizer.from_pretrained('{name.repository}').save_pretrained(DIR) in transformers may make "
            "one; then --tokenizer DIR",
        )
    return folder


def fetch_data(name: HubName) -> list[tuple[HubName, Path]]:
    """Return the names, with their commit, and the paths of the files that a name refers to, sorted.

    Cached files are not fetched again.
    """
    name, _ = pin(name)
    found = _cached(name)
    if found is not None:
        return [(name, found)]
    chosen = choose(name, listed(name))
    folder = snapshot(name, chosen)
    return [(replace(name, path=path), folder / path) for path in chosen]


def listed(name: HubName) -> list[str]:
    """List all files of a commit, from the client's cached listing or else from the Hub.

    The files in the cache alone are not enough: they may be only a part of those that a name refers to.
    """
    commit = {"repo_type": name.kind, "revision": name.revision}
    with client_request(name):
        import huggingface_hub  # noqa: PLC0415 - as above

        if hasattr(huggingface_hub, "get_cached_repo_tree"):  # from 1.27 on
            with suppress(huggingface_hub.errors.CachedRepoTreeNotFoundError):
                return [file.path for file in huggingface_hub.get_cached_repo_tree(name.repository, **commit)]
        return huggingface_hub.HfApi(library_name="packer").list_repo_files(name.repository, **commit)


def snapshot(name: HubName, files: Sequence[str], *, offline: bool = False) -> Path:
    """Return the folder of a commit with those of the files that the repository has; fetch what is not cached."""
    with client_request(name), quiet_client():
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - as above

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
    """Return the one file that a name with a commit refers to, if it is in the cache."""
    if not name.path or glob.has_magic(name.path):
        return None
    with client_request(name):
        from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - as above

        found = try_to_load_from_cache(name.repository, name.path, revision=name.revision, repo_type=name.kind)
    return Path(found) if isinstance(found, str) else None


@contextmanager
def quiet_client() -> Iterator[None]:
    """Silence the client, which draws progress bars even without a terminal and warns if no file is requested."""
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
    """Return the files of a repository that the name refers to, sorted.

    A path without a wildcard that is not a file refers to the only data file below it; if there are several, none is
    guessed.
    """
    if name.path in listed:
        return [name.path]
    if glob.has_magic(name.path):
        chosen = sorted(path for path in listed if fits(path, name.path))
    else:
        inside = [path for path in listed if path.startswith(f"{name.path}/" * bool(name.path))]
        chosen = [path for path in inside if data_ending(path) is not None]
        if len(chosen) > 1:
            hint = f"say which of them, or give a glob: {_shown(chosen)}"
            raise InputError(f"{name}: matches {len(chosen)} data files", hint=hint)
    if not chosen:
        told = "no file matches" if glob.has_magic(name.path) else "no such data file in the repository"
        raise InputError(f"{name}: {told}", hint=f"the repository has {_shown(listed)}")
    return chosen


def _shown(listed: Sequence[str]) -> str:
    files = sorted(path for path in listed if data_ending(path) is not None) or sorted(listed)
    more = f", and {len(files) - _SHOWN_FILES:,} more" if len(files) > _SHOWN_FILES else ""
    return ", ".join(files[:_SHOWN_FILES]) + more if files else "no files"
