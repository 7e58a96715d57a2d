"""Every error packer raises for something a user can cause, and what was meant by a name that does not exist.

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

import glob
import inspect
import os
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import ClassVar, ParamSpec, TypeVar

from packer.display import masked, with_urls


class PackerError(Exception):
    """Base class of all errors a user can cause; `hint` says what to do."""

    exit_code: ClassVar[int] = 70
    code: ClassVar[str] = "error"
    is_about_disk: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = masked(message if self.is_about_disk else with_urls(message))
        hint = None if hint is None else masked(with_urls(hint))
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


P = ParamSpec("P")
T = TypeVar("T")

_LEAST = 0.6
"""Ratio of equal characters below which two names are not taken for one another; difflib's own."""

_ELSEWHERE = {
    "block_len": ("max_length", "max_len", "max_seq_length", "max_seq_len", "seq_length", "sequence_len", "cutoff_len"),
    "tokenizer": ("model", "model_name_or_path", "base_model"),
    "jobs": ("num_proc", "num_workers"),
    "micro_batch_size": ("batch_size", "per_device_train_batch_size"),
    "prefetch": ("num_workers",),
    "device": ("pin_memory",),
    "order": ("shuffle",),
    "batching": ("collate_fn",),
}
"""The names that trainers, and DataLoaders, have for a key, an option or an argument of packer's, which no letters
tell."""

_MOST_ENTRIES = 2_000
"""Of a folder; the rest is not compared."""

_MOST_SHOWN = 200
"""Characters of a name; rows may have longer ones."""

_MOST_NAMED = 3
"""In a hint."""


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return those of the known names that are nearest to one, whatever the case of letters; usually one or none.

    Example:
        >>> near("pack.blok_len", ["pack.block_len", "pack.mode"]), near("llama", ["llama-2", "llama-3", "gpt-2"])
        (['pack.block_len'], ['llama-2', 'llama-3'])
    """
    known = list(known)
    for each in known:
        if _bare(name) in _ELSEWHERE.get(_bare(each), ()):
            return [each]
    matcher = SequenceMatcher(None, b=_bare(name))
    ratios: dict[str, float] = {}
    for each in known:
        matcher.set_seq1(_bare(each))
        if matcher.real_quick_ratio() >= _LEAST and matcher.quick_ratio() >= _LEAST:
            ratios[each] = matcher.ratio()
    best = max(ratios.values(), default=0.0)
    return [each for each, ratio in ratios.items() if ratio == best >= _LEAST]


def _bare(name: str) -> str:
    """Return what is compared of a name: letters in lower case, and without the dashes of options."""
    return name.casefold().lstrip("-").replace("-", "_")


def did_you_mean(names: Iterable[str], otherwise: str) -> str:
    """Return a hint that names what was probably meant, or another one if there is no such name."""
    shown = (name if name.isprintable() else name.encode("unicode_escape").decode() for name in names)
    named = " or ".join(f"'{name[:_MOST_SHOWN]}'" for name in islice(shown, _MOST_NAMED))
    return f"did you mean {named}?" if named else otherwise


def answers_names(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function answer an argument that it does not have with the nearest one that it has."""
    known = [*inspect.signature(function).parameters]

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> T:
        for name in options.keys() - known:
            hint = did_you_mean(near(name, known), f"its arguments: {', '.join(known[1:])}")
            raise UsageError(f"{function.__qualname__.removesuffix('.__init__')} has no argument '{name}'", hint=hint)
        return function(*args, **options)

    return checked


def near_paths(path: str | Path) -> list[str]:
    """Return what is on this machine and is named nearly like a path or pattern at which there is nothing.

    With a folder `models` that contains `qwen3`, this is `models/qwen3` for `models/qwen` and for `model/qwen3`, and
    for `qwen3`, too: something of the same name one folder below. A `~` that no shell replaced is the home folder.
    """
    wanted = Path(path).expanduser() if str(path).startswith("~") else Path(path)
    parts = [part for part in wanted.parts if part != wanted.anchor]
    found = [Path(wanted.anchor)]
    for number, part in enumerate(parts):
        if glob.has_magic(part):
            found = [place.joinpath(*parts[number:]) for place in found]
            break
        found = [near for place in found for near in _near_entries(place, part)]
    if not found and len(parts) == 1:
        found = sorted(Path(wanted.anchor).glob(f"*/{glob.escape(parts[0])}"))
    return [str(place) for place in found if str(place) != os.path.normpath(path)]


def _near_entries(folder: Path, name: str) -> list[Path]:
    if name == ".." or os.path.lexists(folder / name):
        return [folder / name]
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, _MOST_ENTRIES))
    except OSError:
        return []
    return [folder / each for each in near(name, (each for each in names if each.isprintable()))]
