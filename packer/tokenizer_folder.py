"""The files of a tokenizer folder, as bytes: only regular ones of a plausible size, whatever else lies there."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from packer.errors import InputError, PackerError
from packer.limits import out_of

MAX_TOKENIZER_BYTES = 64 * 2**20
"""Of `tokenizer.json`. The largest of published models have some forty million bytes."""

MAX_FILE_BYTES = 32 * 2**20
"""Of any other file."""

MAX_TEMPLATE_BYTES = 2**20
"""Of a chat template. The largest published ones have some forty thousand bytes."""

TOOL_USE_FILE = Path("additional_chat_templates") / "tool_use.jinja"


def read_folder(tokenizer: Path, name: str, others: Sequence[str], *, tool_use: str) -> dict[str, bytes]:
    """Name → bytes of the files of a tokenizer folder that are there.

    Args:
        tokenizer: folder, or the path of its main file alone.
        name: the main file, which must be there.
        others: names of files that may be there.
        tool_use: name for :data:`TOOL_USE_FILE`, which is newer than a file of that name.

    Raises:
        InputError: there is no main file, or a file cannot be read.

    """
    try:
        if not tokenizer.is_dir():
            return {name: _main_file(tokenizer, tokenizer)}
        main = tokenizer / name
        if not os.path.lexists(main):
            found = sorted(path.name for path in tokenizer.iterdir())[:8]
            raise InputError(
                f"tokenizer {tokenizer}: no {name} in this folder (found: {', '.join(found) or 'nothing'})",
                hint="AutoTokenizer.from_pretrained(...).save_pretrained(DIR) in transformers writes one",
            )
        files = {name: _main_file(main, tokenizer)}
        for other in others:
            if os.path.lexists(tokenizer / other):
                files[other] = read_regular(tokenizer / other, max_bytes=MAX_FILE_BYTES, what=f"tokenizer {tokenizer}")
        if os.path.lexists(tokenizer / TOOL_USE_FILE):
            files[tool_use] = read_regular(
                tokenizer / TOOL_USE_FILE, max_bytes=MAX_FILE_BYTES, what=f"tokenizer {tokenizer}"
            )
    except OSError as error:
        raise _unreadable(f"tokenizer {tokenizer}", Path(error.filename or tokenizer), error) from error
    return files


def _main_file(path: Path, tokenizer: Path) -> bytes:
    if not os.path.lexists(path):
        raise InputError(
            f"tokenizer {tokenizer}: no such file or folder",
            hint="give the folder that holds the model's tokenizer.json, or that file itself; "
            "a model of the Hugging Face Hub is named ORG/NAME, or ORG/NAME@REVISION",
        )
    return read_regular(path, max_bytes=MAX_TOKENIZER_BYTES, what=f"tokenizer {tokenizer}")


def read_regular(path: Path, *, max_bytes: int, what: str) -> bytes:
    """The bytes of a regular file; a pipe or a device is not waited for.

    Args:
        path: the file.
        max_bytes: a larger one is refused.
        what: what the file belongs to, for errors.

    Raises:
        InputError: it cannot be read, is none, or is too large.

    """
    try:
        # Opening a pipe would wait for somebody to write into it.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{what}: {path.name} is not a regular file", hint="put the file itself in its place")
            if status.st_size > max_bytes:
                raise InputError(
                    f"{what}: {path.name} has {status.st_size} bytes; packer takes up to {max_bytes}",
                    hint="look whether it is what its name says",
                )
            return file.read()
    except OSError as error:
        raise _unreadable(what, path, error) from error


def _unreadable(what: str, path: Path, error: OSError) -> PackerError:
    if (limit := out_of(error, f"{what}: {path.name} cannot be read")) is not None:
        return limit
    return InputError(
        f"{what}: {path.name} cannot be read: {error.strerror or error}",
        hint="the path must lead to a regular file that this user can read",
    )
