"""The inputs of a cache, read again: only those below a root that the user named in the same command, and in the
partitions of its build.

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
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast, get_args

import msgspec

from packer.batches import RowBatch, Sample
from packer.display import Progress, in_shell
from packer.errors import InputError, PackerError, UsageError, did_you_mean, near_paths
from packer.names import SCHEME, data_name, is_address
from packer.pipeline.plan.input_resolution import input_place
from packer.pipeline.workers import Workers
from packer.pipeline.workers.executor import ALONE
from packer.recipe.recipe import Recipe
from packer.source.file_bytes import Format, file_sha256
from packer.source.files import STANDARD_INPUT
from packer.source.partition import Partition, partition_file
from packer.source.rows import read_rows
from packer.source.schema import SCHEMAS
from packer.store.manifest import Input

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
            InputError: there is nothing at one on this machine.
        """
        roots = tuple(os.fspath(root) for root in ([named] if isinstance(named, str | Path) else named))
        if "" in roots:  # an unset variable of a shell, which would stand for the current folder
            raise UsageError("--sources names nothing", hint="--sources . is the current folder")
        if STANDARD_INPUT in roots:
            raise UsageError("--sources -: standard input cannot be read again", hint=_PIPED)
        for root in roots:  # every input would be below no root, and count as not compared
            if not is_address(root) and not os.path.lexists(root):
                hint = did_you_mean(near_paths(root), f"looked in {Path.cwd()}")
                raise InputError(f"--sources {root}: no such file or folder", hint=hint)
        return cls(roots)

    def __bool__(self) -> bool:
        return bool(self.roots)

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
        f"{name}: not read: below no --sources",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPart:
    """A partition of an input, and how to read its rows."""

    partition: Partition
    entry: Input
    source: int

    def rows(self, max_row_bytes: int, fields: Sequence[str] = ()) -> Iterator[RowBatch]:
        """Read the partition's rows as the build did; `fields` are extra fields of the rows that rules need."""
        return read_rows(
            self.partition,
            schema=self.entry.schema,
            columns=self.entry.columns,
            roles=self.entry.roles,
            max_row_bytes=max_row_bytes,
            fields=fields,
        )

    def samples(self, rows: Collection[int], max_row_bytes: int) -> Iterator[tuple[int, Sample]]:
        """Yield the requested rows of the input that are in this partition and can be read, each with its number."""
        first = self.partition.first_row
        own = {row - first for row in rows if first <= row < first + self.partition.num_rows}
        for batch in self.rows(max_row_bytes) if own else ():
            yield from ((first + sample.row, sample) for sample in batch.samples if sample.row in own)


def read_inputs(
    inputs: Sequence[Input], partition_bytes: int | None, roots: SourceRoots, workers: Workers, progress: Progress
) -> list[tuple[InputPart, ...] | str]:
    """Compare the bytes of each input with those of its build, and cut it into the partitions of its build.

    Returns the partitions of an unchanged input, none if it is not to be cut; or else what was found in its place.
    """
    from packer.pipeline.plan.inputs import MIN_PARALLEL_BYTES, read_whole  # noqa: PLC0415 - imports all that renders

    sizes = [entry.num_bytes for entry in inputs]
    progress.stage("inputs", sum(sizes), "bytes")
    workers = ALONE if sum(sizes) < MIN_PARALLEL_BYTES else workers
    return read_whole(partial(_read_input, partition_bytes, roots), list(enumerate(inputs)), sizes, workers, progress)


def _read_input(
    partition_bytes: int | None, roots: SourceRoots, task: tuple[int, Input]
) -> tuple[InputPart, ...] | str:
    source, entry = task
    parts: tuple[InputPart, ...] = ()
    try:
        file = input_place(roots.place(entry.path))  # of the Hub or of a bucket, if it can be had
        if partition_bytes is None:
            digest = file_sha256(file)
        elif entry.format not in get_args(Format) or entry.schema not in SCHEMAS:
            raise InputError(f"{entry.path}: schema '{entry.schema}' in format '{entry.format}' is not known")
        else:  # a limit keeps the first rows of the file
            kind = cast("Format", entry.format)
            cut = partition_file(file, format=kind, partition_bytes=partition_bytes, limit=entry.num_rows)
            digest = cut.sha256
            parts = tuple(InputPart(partition=each, entry=entry, source=source) for each in cut.partitions)
    except PackerError as error:
        with suppress(PackerError):  # one that can be read, but not cut, may be another file
            if (digest := file_sha256(input_place(roots.place(entry.path)))) != entry.sha256:
                return f"sha256 {digest}"
        return error.message.removeprefix(f"{entry.path}: ")
    return parts if digest == entry.sha256 else f"sha256 {digest}"
