"""Checked types for names from untrusted files: names of splits, of a cache's files, of files that an index lists.

Manifests, recipes and indexes may have been written by anyone. So such a name has one of these types wherever it is
read, and :func:`packer.store.folder.inside` checks again where a file is written.

Also decides which files contain rows, by their extensions, when a folder or a repository is given as a source; and what
names something in a bucket or on the Hugging Face Hub:

    tokenizer   ORG/NAME[@REVISION]   or hf://ORG/NAME[@REVISION]
    source      hf://datasets/ORG/NAME[@REVISION][/PATH]         PATH: a file or a glob

These are the names that the Hub's client and `datasets` use. A revision is a branch, a tag or a commit; the default is
`main`. It is resolved to a commit once, and used in that form from then on: a recipe with a commit in it always means
the same bytes, and needs no network once they are cached. In the name of a source, a `/` within the revision is written
`%2F`, except in `refs/pr/N` and `refs/convert/NAME`.
"""

import fnmatch
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal
from urllib.parse import quote, unquote

from msgspec import Meta

from packer.display import scheme_with_credentials, url_of
from packer.errors import InputError, RecipeError, UsageError

SPLIT_NAME = r"\A[A-Za-z0-9][A-Za-z0-9_.]{0,99}\Z"
RULE_NAME = r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z"
_NAME = r"\w[\w .-]{0,199}"
_FILE_NAME = rf"\A{_NAME}\Z"
_FILE_PATH = rf"\A{_NAME}(?:/{_NAME})*\Z"

SplitName = Annotated[str, Meta(pattern=SPLIT_NAME)]
"""Name of a split; file names begin with it."""

RuleName = Annotated[str, Meta(pattern=RULE_NAME)]
"""Name of a filter, as shown in reports."""

FileName = Annotated[str, Meta(pattern=_FILE_NAME)]
"""Name of a file directly in a folder: no separators or control characters, no leading dot or dash."""

FilePath = Annotated[str, Meta(pattern=_FILE_PATH)]
"""POSIX path of a file below a folder: each part is a :data:`FileName`."""

_PATTERNS_IN_WORDS = {
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
"""URL schemes of object storage, by the names that the providers' own tools use."""

_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+")
"""Matches URLs; a `Path` keeps only one of the two slashes."""

_BUCKET_URL = re.compile(rf"\A(?P<scheme>{'|'.join(BUCKETS)}):/{{1,2}}(?P<rest>[^/].*)\Z", re.DOTALL)

_BUCKETS_IN_WORDS = "buckets (s3://, gs://, az://)"


def is_address(path: str) -> bool:
    """Whether a text is a URL: of the Hub, of a bucket, or of something that packer does not read."""
    return _ADDRESS.match(path) is not None


CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and others, not from ~/.aws",
    "gs": "GOOGLE_SERVICE_ACCOUNT and others",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY and others",
    "hf": "HF_TOKEN",
}
"""Variables of the environment that hold the credentials of stores."""


def credentials_hint(scheme: str) -> str:
    """Say which variables hold the credentials of a store."""
    variables = CREDENTIALS.get(scheme, CREDENTIALS["az"])
    return f"credentials are taken from the environment: {variables}; see docs/how-to/scale.md"


def refuse_credentials(name: str, *, where: str | None = None) -> None:
    """Refuse an address that holds credentials: caches, journals and logs keep names.

    The UsageError does not repeat it.
    """
    scheme = scheme_with_credentials(name)
    if scheme is not None:
        hint = f"take them out; {credentials_hint(scheme)}" if scheme in ("hf", *BUCKETS) else "take them out"
        raise UsageError(f"{f'{where}: ' if where else ''}an address ({scheme}://…) holds credentials", hint=hint)


_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
"""Control characters, backslashes (which clients take for slashes on some systems), and halves of surrogate pairs."""


def refuse_unusable(name: str) -> None:
    """Refuse the name of something in a bucket or on the Hub that the clients would misread, or fail on."""
    if (found := _UNUSABLE.search(name)) is not None:
        raise UsageError(
            f"{name}: {found[0]!r} is in no name that packer reads or writes in a bucket or on the Hub",
            hint="rename it there, without control characters and backslashes",
        )


def bucket_url(place: Path | str) -> str | None:
    """Return the URL of a place in a bucket, without a trailing slash; None for anything else.

    A URL with credentials, or with characters that no name in a bucket has, is a UsageError.
    """
    found = _BUCKET_URL.match(os.fspath(place))
    if found is None:
        return None
    refuse_credentials(os.fspath(place))
    refuse_unusable(os.fspath(place))
    return f"{found['scheme']}://{found['rest'].rstrip('/')}"


def shown(folder: Path) -> str:
    """Return a cache's name for messages: its URL, the URL that its folder stands for, or the folder."""
    return url_of(folder) or bucket_url(folder) or str(folder)


_PLACES: dict[str, tuple[str, tuple[str, ...], str, str]] = {
    "input": (
        "read",
        ("hf", *BUCKETS),
        f"files, {_BUCKETS_IN_WORDS} and the Hub (hf://)",
        "copy it to this machine, or pipe it in: curl -sL ADDRESS | packer build - …",
    ),
    "cache": (
        "write to",
        BUCKETS,
        f"to folders and {_BUCKETS_IN_WORDS}",
        "build into a local folder, and copy it; to the Hub: hf upload ORG/NAME CACHE --repo-type dataset",
    ),
    "file": ("write this to", (), "to a path of this machine", "write it here, and copy it"),
}
"""For each place of a path: what packer does there, with addresses of which schemes, all that it takes, and a hint."""


def refuse_address(path: str, *, place: Literal["input", "cache", "file"]) -> None:
    """Refuse a URL where packer cannot use it: an InputError for an input, else a UsageError.

    `place` is where it was given: as an input, which may be in a bucket or on the Hub; as a cache to write, which may
    be in a bucket; or as another file or folder to write, which may not.
    """
    refuse_credentials(path)
    does, supported, takes, hint = _PLACES[place]
    found = _ADDRESS.match(path)
    if found is not None and (scheme := found["scheme"]) not in supported:
        message = f"{scheme}://{path[found.end() :]}: packer does not {does} {scheme}://, only {takes}"
        hint = hint if scheme in {"http", "https"} else hint.replace("curl -sL ADDRESS", "…")
        raise (InputError if place == "input" else UsageError)(message, hint=hint)


def in_words(message: str) -> str:
    """Replace the patterns of names in one of msgspec's messages by descriptions."""
    for pattern, words in _PATTERNS_IN_WORDS.items():
        message = message.replace(f"`str` matching regex {pattern!r}", words)
    return message


_WITH_ROWS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")
_COMPRESSED = (".gz", ".zst")
_WITHOUT_ROWS = "dataset_infos.json"
"""Metadata of data set repositories, which is JSON but contains no rows."""


def data_ending(name: str) -> str | None:
    """Return the extension of a data file, including that of its compression; None if it is not a data file.

    Example:
        >>> data_ending("data/train.JSONL.gz"), data_ending("readme.md")
        ('.JSONL.gz', None)
    """
    path = PurePosixPath(name)
    suffixes = path.suffixes
    num_compressed = int(bool(suffixes) and suffixes[-1].lower() in _COMPRESSED)
    kind = suffixes[: len(suffixes) - num_compressed][-1:]
    if not kind or kind[0].lower() not in _WITH_ROWS or path.name == _WITHOUT_ROWS:
        return None
    return "".join(suffixes[-num_compressed - 1 :])


def fits(path: str, pattern: str) -> bool:
    """Whether a path matches a shell glob: `*` stays within a folder, `**` spans any number of them."""
    return _fit(path.split("/"), pattern.split("/"))


def _fit(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_fit(parts[skipped:], pattern[1:]) for skipped in range(len(parts) + 1))
    if not parts or (parts[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and _fit(parts[1:], pattern[1:])


SCHEME = "hf://"

_REPOSITORY = r"(?P<repository>[A-Za-z0-9][\w.-]*/[\w.-]+)"
_TOKENIZER = re.compile(rf"(?:hf://)?{_REPOSITORY}(?:@(?P<revision>.+))?")
_DATA = re.compile(rf"hf://datasets/{_REPOSITORY}(?:@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/(?P<path>.*))?")
_SPECIAL_REVISION = re.compile(r"refs/(?:convert|pr)/[^/]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubName:
    """The name of a tokenizer, or of files of a dataset, on the Hub."""

    kind: Literal["model", "dataset"]
    repository: str
    revision: str | None
    path: str = ""
    """A file of a dataset, or a glob; empty for the whole dataset."""

    def __str__(self) -> str:
        """Return the name as it is written in a recipe."""
        if self.kind == "model":
            return self.repository + (f"@{self.revision}" if self.revision else "")
        revision = self.revision or ""
        if not _SPECIAL_REVISION.fullmatch(revision):
            revision = quote(revision, safe="")
        return f"hf://datasets/{self.repository}" + f"@{revision}" * bool(revision) + f"/{self.path}" * bool(self.path)

    @property
    def label(self) -> str:
        """The name as error messages show it."""
        return f"tokenizer {self}" if self.kind == "model" else str(self)

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None


def tokenizer_name(text: str) -> HubName | None:
    """Return the tokenizer on the Hub that a recipe names; None if it names a path on this machine.

    An existing file or folder takes precedence, and any text that is not `ORG/NAME` is a path, as is `ORG/NAME` without
    a revision where a folder `ORG` is here: a mistyped path is not sent to the Hub, which `hf://ORG/NAME` asks.
    """
    is_address = text.startswith(SCHEME)
    match = _TOKENIZER.fullmatch(text)
    if not is_address and (match is None or Path(text).exists()):
        return None
    if match is None or match["repository"].startswith("datasets/"):
        if not is_address:
            return None
        raise RecipeError(
            f"tokenizer {text}: expected hf://ORG/NAME, or hf://ORG/NAME@REVISION",
            hint="for example --tokenizer Qwen/Qwen3-0.6B",
        )
    refuse_unusable(text)
    if not is_address and match["revision"] is None and not may_be_repository(text):
        return None
    name = HubName(kind="model", repository=match["repository"], revision=match["revision"])
    return _with_revision(name, f"tokenizer {text}")


def may_be_repository(text: str) -> bool:
    """Whether a text that names nothing on this machine has the form `ORG/NAME`, and is no path that was mistyped: no
    folder `ORG` is here, and the name is not that of a file of data.
    """
    is_path = Path(text).parent.exists() or data_ending(text) is not None
    return re.fullmatch(_REPOSITORY, text) is not None and not is_path


def data_name(text: str) -> HubName | None:
    """Return the files on the Hub that a source names; None if it names files on this machine."""
    if not text.startswith(SCHEME):
        return None
    refuse_credentials(text)
    refuse_unusable(unquote(text))
    match = _DATA.fullmatch(text)
    if match is None:
        raise RecipeError(
            f"{text}: expected hf://datasets/ORG/NAME/PATH, or hf://datasets/ORG/NAME@REVISION/PATH",
            hint="a / within a revision is written %2F",
        )
    revision, path = match["revision"] and unquote(match["revision"]), (match["path"] or "").strip("/")
    return _with_revision(HubName(kind="dataset", repository=match["repository"], revision=revision, path=path), text)


def _with_revision(name: HubName, given: str) -> HubName:
    """Refuse what no revision is called: the client looks for a file of this name in its cache, wherever it leads."""
    if name.revision is not None and not {"", ".", ".."}.isdisjoint(name.revision.split("/")):
        raise RecipeError(f"{given}: no revision has this name", hint="a revision is a branch, a tag or a commit")
    return name
