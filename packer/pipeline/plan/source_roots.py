"""Which of the files that a cache names may be read: those below a root that the user named in the same command.

A manifest names the inputs and the images of its build. A cache may come from anybody, so these names are only words:
what they lead to is opened if it is below a root (`--sources ROOT`), and not otherwise, here or on another machine.
Then its bytes are compared with the digest in the manifest before any of them is shown. The other places that a recipe
has, such as that of the tokenizer, lead nowhere: what they had is in the cache.

A root is a folder or a file of this machine, a dataset of the Hub (`hf://datasets/ORG/NAME`), or a folder of a bucket
(`s3://BUCKET/FOLDER`). What was standard input is not read again. With the roots `data` and `/mnt/chats`, and
`/home/me` as the current folder:

    name in the manifest       is read from
    data/a.jsonl               /home/me/data/a.jsonl: a relative name is looked up from the current folder,
    a.jsonl                    /home/me/data/a.jsonl: or else from a root
    /mnt/chats/b.jsonl         /mnt/chats/b.jsonl
    ../.ssh/id_rsa             nowhere: it is below no root
    data/link/c.jsonl          nowhere, if `link` is a symbolic link; the root itself may be one
    s3://other/d.jsonl         nowhere, and no request is sent
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from packer.display import in_shell
from packer.errors import InputError, UsageError
from packer.hub import SCHEME, data_name
from packer.names import is_address
from packer.pipeline.plan.input_resolution import input_place
from packer.recipe.recipe import Recipe
from packer.source.file_bytes import FilePath
from packer.source.files import STANDARD_INPUT

_PIPED = "build from a file: what was piped in is not read again, and counts as not compared"


@dataclass(frozen=True, slots=True)
class SourceRoots:
    """The roots that the user named; without any, nothing outside of a cache is read."""

    roots: tuple[str, ...] = ()

    @classmethod
    def of(cls, named: str | Path | Iterable[str | Path]) -> "SourceRoots":
        """Return roots by their names.

        Raises:
            UsageError: one is empty, or standard input.
        """
        roots = tuple(os.fspath(root) for root in ([named] if isinstance(named, str | Path) else named))
        if "" in roots:  # an unset variable of a shell, which would stand for the current folder
            raise UsageError("--sources names nothing", hint="--sources . is the current folder")
        if STANDARD_INPUT in roots:
            raise UsageError("--sources -: standard input cannot be read again", hint=_PIPED)
        return cls(roots)

    def __bool__(self) -> bool:
        return bool(self.roots)

    def file(self, name: str) -> FilePath:
        """Return the file of an input that a manifest names.

        Raises:
            InputError: it is below no root, or a symbolic link leads to it; or it is on the Hub or in a bucket, and
                cannot be had.
        """
        return input_place(self.place(name))

    def place(self, name: str) -> str:
        """Return the path or address of what a manifest names.

        Raises:
            InputError: it is below no root, or a symbolic link leads to it.
        """
        if name == STANDARD_INPUT:
            raise InputError(f"{name}: not read: it was standard input", hint=_PIPED)
        if is_address(name):
            if any(_is_at(name, root) for root in self.roots):
                return name
            raise _refused(name)
        found = [*self._found(name)]
        if not found:
            raise _refused(name)
        root, place = next((each for each in found if os.path.lexists(each[1])), found[0])
        straight = Path(os.path.realpath(root), os.path.relpath(place, root))
        if os.path.realpath(place) != os.path.normpath(straight):
            raise InputError(
                f"{name}: not read: a symbolic link below {root} leads to it",
                hint=f"if you trust what the link leads to: --sources {in_shell(place)}",
            )
        if place == STANDARD_INPUT or is_address(place):  # of `./s3:/bucket/a`, which begins as no address
            raise _refused(name)
        return place

    def _found(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the paths for which a name may stand, each after the root that it is below.

        From a root, a name is looked up only if something is there, so that what is missing is called so by its name.
        """
        roots = [root for root in self.roots if not is_address(root) and "\0" not in name]
        there = [root for root in roots if os.path.lexists(Path(root, name))]
        for path, root in [(Path(name), root) for root in roots] + [(Path(root, name), root) for root in there]:
            if _absolute(path).is_relative_to(_absolute(root)):
                yield root, os.path.normpath(path)

    def images(self, recipe: Recipe) -> Recipe:
        """Return a cache's own recipe with the place of its folder of images."""
        if recipe.media.root is None:
            return recipe
        media = msgspec.structs.replace(recipe.media, root=self.place(recipe.media.root))
        return msgspec.structs.replace(recipe, media=media)


def _refused(name: str) -> InputError:
    where = name if is_address(name) else Path(name).parent
    return InputError(
        f"{name}: not read: it is below no --sources",
        hint=f"what a cache names is read only where you say so; if you trust this name: --sources {in_shell(where)}",
    )


def _absolute(path: Path | str) -> Path:
    return Path(os.path.normpath(Path(path).absolute()))


def _is_at(name: str, root: str) -> bool:
    """Whether an address is a root or below it. A root of the Hub without a revision stands for all of them."""
    if not is_address(root):
        return False
    top = root.rstrip("/").split("/")
    return any({".", ".."}.isdisjoint(own) and own[: len(top)] == top for own in _paths(name))


def _paths(address: str) -> Iterator[list[str]]:
    """Yield the parts of an address; of a name of the Hub also without its revision."""
    yield address.split("/")
    if address.startswith(f"{SCHEME}datasets/") and (hub := data_name(address)) is not None:
        yield f"{SCHEME}{str(replace(hub, revision=None)).removeprefix(SCHEME)}".split("/")
