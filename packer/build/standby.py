"""Loading that begins while a build is planned: in worker processes, or in a thread of this one.

Importing and loading take a second or two, and a plan reads the inputs for as long. Where a cache is new and its inputs
are large there is no doubt that both are needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from packer.backend import load_fast_meanwhile, warm_up
from packer.build.engine import WORTH_LOADING_BYTES, is_known_fast
from packer.build.places import tokenizer_place
from packer.build.plan import resolve_sources
from packer.build.pool import default_jobs, jobs_for
from packer.build.workers import Workers
from packer.model import TOKENIZER_FILE, read_model_files
from packer.recipe import Recipe

_LINES = {".jsonl", ".ndjson"}
"""Endings of files whose size tells how many partitions they come to, as nearly as is asked here."""


@contextmanager
def standby(recipe: Recipe, jobs: int | None) -> Iterator[Workers | None]:
    """Processes that wait for the tasks of a new cache, as far as can be told how many; they end with the block.

    Where this process will do, it begins to load what a plan does not, and None is given.

    Args:
        recipe: pinned; what is to be built.
        jobs: how many were asked for.

    Raises:
        RecipeError, InputError: as for a plan.

    """
    sizes = _sizes(recipe)
    jobs = min(jobs or jobs_for(sum(sizes)), sum(-(-size // recipe.partition_bytes) for size in sizes))
    if not 1 <= jobs <= default_jobs() or (jobs == 1 and sum(sizes) < WORTH_LOADING_BYTES):
        yield None  # more than there are processors would keep the plan from its own
        return
    assert recipe.tokenizer is not None  # there are no sizes without
    tokenizer = tokenizer_place(recipe.tokenizer)
    content = read_model_files(tokenizer)[TOKENIZER_FILE]
    fast = is_known_fast(recipe.engine, content)
    if jobs == 1:
        if fast:
            load_fast_meanwhile(content)
        yield None
        return
    workers = Workers(jobs, partial(warm_up, tokenizer, fast=fast))
    try:
        workers.start()
        yield workers
    finally:
        workers.stop()


def _sizes(recipe: Recipe) -> list[int]:
    """Bytes of the files whose rows are lines; none where only a plan knows how much of them counts."""
    paths = [file.path for file in resolve_sources(recipe) if file.path.suffix.lower() in _LINES]
    if any(source.limit is not None for source in recipe.sources):
        return []
    return [path.stat().st_size for path in paths if path.is_file()]
