"""Cut the inputs of a build into partitions."""

from collections.abc import Callable, Sequence

from packer.pipeline.executor import Workers
from packer.pipeline.inputs import CUTTING_SPEEDUP
from packer.pipeline.trait_planner import FieldsSeen, TraitPlanner
from packer.progress import Progress
from packer.recipe import Recipe
from packer.source.file_cuts import partition_file
from packer.source.partition import FilePartitions
from packer.source.rows import InputFile


def cut_inputs(
    files: Sequence[tuple[InputFile, int | None]],
    num_bytes: Sequence[int],
    recipe: Recipe,
    workers: Workers,
    progress: Progress,
) -> list[tuple[FilePartitions, FieldsSeen | None]]:
    """Cut every file into partitions, and look in its first rows for the fields that the rules name.

    Args:
        files: each with the index of its source, or None if no rules ask about its rows.
        num_bytes: of each file.
        recipe: the recipe.
        workers: read the files.
        progress: receives the bytes.

    Raises:
        InputError: a file cannot be read.
    """
    cuts: dict[int, tuple[FilePartitions, FieldsSeen | None]] = {}
    sizes = [size // CUTTING_SPEEDUP for size in num_bytes]
    for number, found in workers.run(_cutter, (recipe,), files, sizes=sizes):
        cuts[number] = found
        progress.advance(found[0].num_bytes)
    return [cuts[number] for number in range(len(files))]


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
