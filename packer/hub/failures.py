"""What the Hub's client says of failures, as errors of packer."""

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
        told = _told(name, error)
        if told is None:
            raise
        raise told from error


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


def _told(name: HubName, error: Exception) -> PackerError | UnreachableError | None:
    """The client's error as one of packer's; None where it is no error of the client."""
    from huggingface_hub import errors  # noqa: PLC0415 - a third of a second

    if isinstance(error, errors.LocalEntryNotFoundError):
        cause = error.__cause__
        refused = isinstance(cause, errors.HfHubHTTPError)
        return _refusal(name, cause) if refused else UnreachableError(_first_line(cause or error))
    if isinstance(error, errors.HfHubHTTPError):
        return _refusal(name, error)
    if isinstance(error, errors.HFValidationError):
        return RecipeError(f"{name.told}: {_first_line(error)}", hint="a name on the Hub is ORG/NAME")
    if isinstance(error, ConnectionError | TimeoutError) or type(error).__module__.startswith(_NETWORK):
        return UnreachableError(_first_line(error))
    if isinstance(error, OSError):
        return StorageError(f"{name.told}: cannot be kept in {_cache()}: {_first_line(error)}")
    return None


def _refusal(name: HubName, error: BaseException | None) -> PackerError | UnreachableError:
    """What an answer other than yes means."""
    from huggingface_hub import constants, errors  # noqa: PLC0415 - as above

    what, place = name.told, f"{constants.ENDPOINT}/{'datasets/' * (name.kind == 'dataset')}{name.repository}"
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, errors.GatedRepoError):
        return InputError(f"{what}: its owners say who may have it", hint=f"ask for access at {place}, then {_LOG_IN}")
    if isinstance(error, errors.RepositoryNotFoundError):
        here = "neither a file or folder here nor" if name.kind == "model" else "not"
        return InputError(
            f"{what}: {here} a repository that can be seen at {constants.ENDPOINT}",
            hint=f"look at the spelling; where it is private, {_LOG_IN}",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return InputError(f"{what}: the repository has no such revision", hint=f"see its branches and tags at {place}")
    if isinstance(error, errors.EntryNotFoundError):
        return InputError(f"{what}: a file is gone from the repository", hint=f"see {place}")
    if status in {401, 403}:
        return InputError(f"{what}: the Hub refuses it (HTTP {status})", hint=f"see {place}; {_LOG_IN}")
    return UnreachableError(f"it answers HTTP {status}")


def _nowhere(name: HubName, reason: str) -> InputError:
    """Neither the Hub nor its cache has it."""
    from huggingface_hub import constants  # noqa: PLC0415 - as above

    here = "no file or folder here, " if name.kind == "model" else ""
    fetch = f"hf download {name.repository}" + " --repo-type dataset" * (name.kind == "dataset")
    if constants.HF_HUB_OFFLINE:
        return InputError(
            f"{name.told}: {here}not in the cache of the Hub, {_cache()}, and HF_HUB_OFFLINE is set",
            hint=f"unset HF_HUB_OFFLINE, or fill the cache where there is a network: {fetch}",
        )
    return InputError(
        f"{name.told}: {here}not in the cache of the Hub, {_cache()}, and {constants.ENDPOINT} does not answer: "
        f"{reason}",
        hint=f"look at the network, or fill the cache where there is one: {fetch}",
    )


def _cache() -> str:
    from huggingface_hub import constants  # noqa: PLC0415 - as above

    return constants.HF_HUB_CACHE


def _first_line(error: BaseException) -> str:
    """The first words of an error; some of the client's run over many lines."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
