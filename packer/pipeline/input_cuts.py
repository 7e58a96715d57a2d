"""Cut the inputs of a build into partitions; inputs in a bucket are read once for it by all of its processes.

Beside the cache, a record is kept of where an object was cut. It belongs to one version (ETag) of the object and to all
else that its cuts depend on. It is created once and never replaced; without it an object is read again. Files of a file
system have none, since nothing names their version.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from packer.errors import StorageError
from packer.pipeline.bucket_inputs import ObjectFile
from packer.pipeline.executor import Workers
from packer.pipeline.input_resolution import SourceFile
from packer.pipeline.inputs import CUTTING_SPEEDUP
from packer.pipeline.trait_planner import FieldsSeen, TraitPlanner
from packer.progress import Progress
from packer.recipe import Recipe
from packer.source.file_bytes import Codec
from packer.source.file_cuts import partition_file
from packer.source.partition import TABLE_FORMATS, FilePartitions, FileStatus, Format, Partition, TableFile
from packer.source.rows import InputFile
from packer.store.files import CacheFiles
from packer.store.folder import PRIVATE
from packer.version import __version__

_FOLDER = f"{PRIVATE}/cuts"


class _Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A partition, without what all partitions of the file have in common; see :class:`Partition`."""

    start: int
    stop: int
    first_row: int
    first_line: int
    num_rows: int
    xxh3: str
    first_group: int
    num_groups: int
    skip: int


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sha256: str
    format: Format
    codec: Codec | None
    parts: tuple[_Part, ...]


class InputCuts:
    """Cuts the inputs of one build, with the help of records.

    Args:
        folder: the cache; None for no records.
        files: of the recipe's sources.
        recipe: the recipe.
        keeps: whether to write records.
        turn: index and number of this process among those that cut the same inputs at the same time, if there are some.

    Raises:
        StorageError: from any method, if records cannot be looked up.
    """

    def __init__(
        self,
        folder: Path | None,
        files: Iterable[SourceFile],
        recipe: Recipe,
        *,
        keeps: bool = True,
        turn: tuple[int, int] | None = None,
    ) -> None:
        self._cache = None if folder is None else CacheFiles(folder)
        self._recipe, self._keeps, self._turn = recipe, keeps, turn
        self._keys: dict[tuple[str, str], str] = {}
        for file in files:
            if isinstance(file.path, ObjectFile):
                self._keys[file.name, file.split] = _key(file.path, file, recipe.partition_bytes)
        self._known = self._read(self._keys.values())

    @property
    def any_known(self) -> bool:
        """Whether there are records: other processes have begun to read the inputs, and none has to copy them."""
        return bool(self._known)

    def cut(
        self,
        files: Sequence[tuple[InputFile, int | None]],
        num_bytes: Sequence[int],
        workers: Workers,
        progress: Progress,
    ) -> list[tuple[FilePartitions, FieldsSeen | None]]:
        """Cut every file into partitions, and look in its first rows for the fields that the rules name.

        Files with a record are not read again. Processes that cut the same files at the same time begin with different
        ones, and look before each whether another process has been faster.

        Args:
            files: each with the index of its source, or None if no rules ask about its rows.
            num_bytes: of each file.
            workers: read the files.
            progress: receives the bytes.

        Raises:
            InputError: a file cannot be read.
        """
        cuts: dict[int, tuple[FilePartitions, FieldsSeen | None]] = {}
        planner = TraitPlanner(self._recipe)

        def is_known(number: int, *, again: bool) -> bool:
            file, part = files[number]
            found = self._find(file, again=again)
            if found is not None:
                cuts[number] = found, planner.sample_fields(file, found.partitions[0], part)
                progress.advance(found.num_bytes)
            return found is not None

        def unknown() -> Iterator[tuple[InputFile, int | None]]:
            for number in missing:
                if self._turn is None or not is_known(number, again=True):
                    underway.append(number)
                    yield files[number]

        underway: list[int] = []
        missing = [number for number in _in_turn(len(files), self._turn) if not is_known(number, again=False)]
        sizes = [num_bytes[number] // CUTTING_SPEEDUP for number in missing]
        for task, found in workers.run(_cutter, (self._recipe,), unknown(), sizes=sizes):
            number = underway[task]
            cuts[number] = found
            self._keep(files[number][0], found[0])
            progress.advance(found[0].num_bytes)
        return [cuts[number] for number in range(len(files))]

    def _find(self, file: InputFile, *, again: bool) -> FilePartitions | None:
        """Return the cuts of an input if they are known; with `again`, look whether they are by now."""
        key = self._keys.get((file.name, file.split))
        if key is None or self._cache is None:
            return None
        if again and key not in self._known and self._cache.size(_name(key)) is not None:
            # Whoever wrote this record is likely to have written others.
            self._known |= self._read({*self._keys.values()} - {*self._known})
        found = self._known.get(key)
        return None if found is None or found.format != file.format else _cuts(file, found)

    def _keep(self, file: InputFile, cuts: FilePartitions) -> None:
        """Record the cuts of an input. If that fails, it only has to be read again."""
        key = self._keys.get((file.name, file.split))
        if key is None or self._cache is None or not self._keeps:
            return
        names = _Part.__struct_fields__
        parts = tuple(_Part(*(getattr(each, name) for name in names)) for each in cuts.partitions)
        record = _Record(sha256=cuts.sha256, format=file.format, codec=cuts.partitions[0].codec, parts=parts)
        with suppress(StorageError):
            self._cache.write(_name(key), msgspec.json.encode(record))
            self._cache.publish(_name(key))

    def _read(self, keys: Iterable[str]) -> dict[str, _Record]:
        names = sorted({f"{key}.json" for key in keys})
        records: dict[str, _Record] = {}
        if self._cache is None or not names:
            return records
        for name, content in self._cache.contents(_FOLDER, names):
            with suppress(msgspec.MsgspecError):
                records[PurePosixPath(name).stem] = msgspec.json.decode(content, type=_Record)
        return records


def cut_input(file: InputFile, partition_bytes: int) -> FilePartitions:
    """Cut a file into partitions, in one pass over its bytes.

    Raises:
        InputError: it cannot be read.
    """
    return partition_file(file.path, format=file.format, partition_bytes=partition_bytes, limit=file.limit)


def _cutter(recipe: Recipe) -> Callable[[tuple[InputFile, int | None]], tuple[FilePartitions, FieldsSeen | None]]:
    planner = TraitPlanner(recipe)

    def cut(task: tuple[InputFile, int | None]) -> tuple[FilePartitions, FieldsSeen | None]:
        file, part = task
        found = cut_input(file, recipe.partition_bytes)
        return found, planner.sample_fields(file, found.partitions[0], part)

    return cut


def _in_turn(number: int, turn: tuple[int, int] | None) -> Iterator[int]:
    """Yield 0 … `number` - 1; process I of N begins with the I-th of N equal parts."""
    first = 0 if turn is None else number * turn[0] // turn[1]
    yield from range(first, number)
    yield from range(first)


def _name(key: str) -> str:
    return f"{_FOLDER}/{key}.json"


def _key(path: ObjectFile, file: SourceFile, partition_bytes: int) -> str:
    cut_by = [__version__, path.url, path.etag, path.num_bytes, file.source.format, file.source.limit, partition_bytes]
    return hashlib.sha256(msgspec.json.encode(cut_by)).hexdigest()


def _cuts(file: InputFile, record: _Record) -> FilePartitions:
    status = FileStatus.of(file.path)
    table = TableFile(status=status, sha256=record.sha256) if record.format in TABLE_FORMATS else None
    parts = tuple(
        Partition(path=file.path, format=record.format, codec=record.codec, table=table, **msgspec.structs.asdict(part))
        for part in record.parts
    )
    num_rows = sum(part.num_rows for part in parts)
    return FilePartitions(sha256=record.sha256, num_bytes=status.num_bytes, num_rows=num_rows, partitions=parts)
