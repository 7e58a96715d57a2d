"""Every error packer raises for something a user can cause.

    PackerError
    ├── CheckError          1   a check failed: bytes or rows are not what the manifest says
    ├── UsageError          2   the command or the recipe asks for something impossible
    │   ├── RecipeError         a key, a value or a combination in the recipe
    │   └── TemplateError       the template cannot be used with this tokenizer or these rows
    ├── InputError          3   a source, a tokenizer folder or a row is missing or unreadable
    │   └── NothingKeptError    every row was rejected
    ├── BusyError           4   another process is writing this cache
    ├── StorageError        5   the disk refused: full, read-only, gone
    └── ResourceError       5   file handles, memory, processes or threads ran out

The number is the process's exit code. An error says what, where, expected and found; `hint` is the way out. Where a
folder stands for a place in a bucket, an error names that place, unless it is about the disk. Credentials are masked.

Within packer, these errors pass through to whoever asked. So docstrings name them where users import a name, where a
caller catches one, and where one says what is left; other errors, such as ValueError, are named everywhere.
"""

from pathlib import Path
from typing import ClassVar

from packer.display import masked

_URLS: dict[str, str] = {}
"""Local paths of this process that stand for a URL."""


def show_as_url(path: Path, url: str | None) -> None:
    """From now on, show the URL in errors in place of this path and paths below it; with None, no longer."""
    _URLS.pop(str(path), None)
    if url is not None:
        _URLS[str(path)] = url


def url_of(path: Path) -> str | None:
    """Return the URL that is shown in place of a path."""
    return _URLS.get(str(path))


def _with_urls(text: str) -> str:
    for path, url in list(_URLS.items()):
        text = text.replace(path, url)
    return text


class PackerError(Exception):
    """Base class of all errors a user can cause; `hint` says what to do."""

    exit_code: ClassVar[int] = 70
    code: ClassVar[str] = "error"
    is_about_disk: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = masked(message if self.is_about_disk else _with_urls(message))
        hint = None if hint is None else masked(_with_urls(hint))
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return the message, and the way out on a line of its own."""
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class CheckError(PackerError):
    exit_code = 1
    code = "check_failed"


class UsageError(PackerError):
    exit_code = 2
    code = "usage"


class RecipeError(UsageError):
    code = "recipe"


class TemplateError(UsageError):
    code = "template"


class InputError(PackerError):
    exit_code = 3
    code = "input"


class NothingKeptError(InputError):
    code = "nothing_kept"


class BusyError(PackerError):
    exit_code = 4
    code = "busy"


class StorageError(PackerError):
    exit_code = 5
    code = "storage"
    is_about_disk = True


class ResourceError(PackerError):
    exit_code = 5
    code = "resource"
    is_about_disk = True
