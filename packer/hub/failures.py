"""Failures of the Hub's client as errors of packer."""

from collections.abc import Iterator
from contextlib import contextmanager

from packer.errors import InputError, PackerError, RecipeError, StorageError
from packer.hub.names import HubName

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
