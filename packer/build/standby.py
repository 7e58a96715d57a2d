"""Worker processes that are started while a build is planned.

A process imports and loads for two seconds before it can do anything, and a plan reads the inputs for as long. Where a
cache is new and its inputs are large there is no doubt that both are needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from packer.build.engine import warm_up
from packer.build.places import tokenizer_place
from packer.build.plan import resolve_sources
from packer.build.pool import Workers, default_jobs, jobs_for
from packer.recipe import Recipe

_LINES = {".jsonl", ".ndjson"}
"""Endings of files whose size tells how many partitions they come to, as nearly as is asked here."""


@contextmanager
def standby(recipe: Recipe, jobs: int | None) -> Iterator[Workers | None]:
    """Processes that wait for the tasks of a new cache, as far as can be told how many; they end with the block.

    Args:
        recipe: pinned; what is to be built.
        jobs: how many were asked for.

    Raises:
        RecipeError, InputError: as for a plan.

    """
    workers = _workers(recipe, jobs)
    if workers is None:
        yield None
        return
    try:
        workers.start()
        yield workers
    finally:
        workers.stop()


def _workers(recipe: Recipe, jobs: int | None) -> Workers | None:
    if any(source.limit is not None for source in recipe.sources):
        return None  # how much of a file its first rows are, only a plan knows
    lines = [file.path for file in resolve_sources(recipe) if file.path.suffix.lower() in _LINES]
    sizes = [path.stat().st_size for path in lines if path.is_file()]
    num_partitions = sum(-(-size // recipe.partition_bytes) for size in sizes)
    jobs = min(jobs or jobs_for(sum(sizes)), num_partitions)
    if not 1 < jobs <= default_jobs():  # more than there are processors would keep the plan from its own
        return None
    assert recipe.tokenizer is not None  # resolve_sources asks for one
    return Workers(jobs, partial(warm_up, recipe.engine, tokenizer_place(recipe.tokenizer)))
