"""Names on the Hugging Face Hub.

    tokenizer   ORG/NAME[@REVISION]   or hf://ORG/NAME[@REVISION]
    source      hf://datasets/ORG/NAME[@REVISION][/PATH]         PATH: a file or a glob

These are the names that the Hub's client and `datasets` use. A revision is a branch, a tag or a commit; the default is
`main`. In the name of a source, a `/` within the revision is written `%2F`, except in `refs/pr/N` and
`refs/convert/NAME`.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from packer.errors import RecipeError
from packer.names import data_ending, refuse_credentials, refuse_unusable

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
    if not text.startswith(SCHEME) and Path(text).exists():
        return None
    match = _TOKENIZER.fullmatch(text)
    if match is not None:
        refuse_unusable(text)
    if match is None or match["repository"].startswith("datasets/"):
        if text.startswith(SCHEME):
            raise RecipeError(
                f"tokenizer {text}: expected hf://ORG/NAME, or hf://ORG/NAME@REVISION",
                hint="for example --tokenizer Qwen/Qwen3-0.6B",
            )
        return None
    if not text.startswith(SCHEME) and match["revision"] is None and not may_be_repository(text):
        return None
    if not {"", ".", ".."}.isdisjoint((match["revision"] or "main").split("/")):
        raise RecipeError(
            f"tokenizer {text}: no revision has this name", hint="a revision is a branch, a tag or a commit"
        )
    return HubName(kind="model", repository=match["repository"], revision=match["revision"])


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
    revision = None if match["revision"] is None else unquote(match["revision"])
    if not {"", ".", ".."}.isdisjoint((revision or "main").split("/")):
        # The client looks for a file of this name in its cache, and follows it wherever it leads.
        raise RecipeError(f"{text}: no revision has this name", hint="a revision is a branch, a tag or a commit")
    return HubName(
        kind="dataset",
        repository=match["repository"],
        revision=revision,
        path=(match["path"] or "").strip("/"),
    )
