"""Names that become files: of splits, of a cache's files, and of files that an index of another tool names.

Whoever wrote a manifest, a recipe or an index may have written anything there. So such a name has one of these types
wherever it is read, and :func:`packer.store.folder.inside` asks again where a file is written.
"""

import re
from typing import Annotated

from msgspec import Meta

from packer.errors import InputError, UsageError

SPLIT_NAME = r"\A[A-Za-z0-9][A-Za-z0-9_.]{0,99}\Z"
RULE_NAME = r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z"
_NAME = r"\w[\w .-]{0,199}"
_FILE_NAME = rf"\A{_NAME}\Z"
_FILE_PATH = rf"\A{_NAME}(?:/{_NAME})*\Z"

SplitName = Annotated[str, Meta(pattern=SPLIT_NAME)]
"""Of a split: file names begin with it."""

RuleName = Annotated[str, Meta(pattern=RULE_NAME)]
"""Of a filter, as reports name it."""

FileName = Annotated[str, Meta(pattern=_FILE_NAME)]
"""Of a file right in a folder: no separator, no control character, no dot or dash in front."""

FilePath = Annotated[str, Meta(pattern=_FILE_PATH)]
"""Of a file somewhere below a folder, POSIX: each part is a :data:`FileName`."""

_WORDS = {
    SPLIT_NAME: "the name of a split: a letter of ASCII or a digit, then up to 99 of them, '_' and '.'",
    RULE_NAME: "the name of a rule: a letter of ASCII or a digit, then up to 63 of them, '_', '.' and '-'",
    _FILE_NAME: "the name of a file: up to 200 letters, digits, blanks, '_', '.' and '-', no dot or dash in front",
    _FILE_PATH: "a relative path of such names as 'a/b-0.arrow', with no dot or dash in front of a name",
}


def is_file_name(name: str) -> bool:
    """Whether a text is a :data:`FileName`."""
    return re.search(_FILE_NAME, name) is not None


def is_file_path(path: str) -> bool:
    """Whether a text is a :data:`FilePath`."""
    return re.search(_FILE_PATH, path) is not None


BUCKETS = ("s3", "gs", "az", "abfs", "abfss")
"""Schemes of object storage, by the names that its own tools use."""

_ADDRESS = re.compile(r"(?P<scheme>hf|s3|gs|gcs|az|abfss?|wasbs?|r2|oci|https?|ftp|file):/{1,2}(?!/)")
"""Addresses of other machines; a `Path` has one of the two slashes left."""


def is_address(path: str) -> bool:
    """Whether a text is an address of another machine: of the Hub, of a bucket, or of what packer does not read."""
    return _ADDRESS.match(path) is not None


def refuse_address(path: str, *, is_input: bool) -> None:
    """Say of an address that only files of this machine and of buckets are read or written, and those of the Hub read.

    Raises:
        InputError: it is to be read.
        UsageError: it is to be written.

    """
    found = _ADDRESS.match(path)
    if found is None or (is_input and found["scheme"] in {"hf", *BUCKETS}):
        return
    scheme = found["scheme"]
    path = f"{scheme}://{path[found.end() :]}"
    if is_input:
        pipe = "curl -sL ADDRESS" if scheme in {"http", "https"} else "…"
        raise InputError(
            f"{path}: packer does not read {scheme}://, only files, buckets (s3://, gs://, az://) and the Hub (hf://)",
            hint=f"copy it to this machine, or pipe it in: {pipe} | packer build - …",
        )
    then = "packer push CACHE ORG/NAME" if scheme == "hf" else "copy that: a cache may lie anywhere"
    raise UsageError(
        f"{path}: packer does not write to {scheme}://", hint=f"build into a folder of this machine, and {then}"
    )


def in_words(message: str) -> str:
    """A message of msgspec, with what a name may be in words instead of a pattern."""
    for pattern, words in _WORDS.items():
        message = message.replace(f"`str` matching regex {pattern!r}", words)
    return message
