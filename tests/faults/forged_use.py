"""Everything that opens a cache, over one whose values are forged: each must end in a PackerError or well."""

import contextlib
import io
import random
import resource
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from faults.forging import forgeries
from single_documents import read_document

from packer.errors import PackerError
from packer.load import PackedLoader
from packer.store.cache import Cache
from packer.store.row_tables import content_fingerprint, read_rejected
from packer_cli.main import cli

_MEMORY, _SECONDS = 8 * 2**30, 60
"""What nothing here needs: a forged count that takes it is a fault."""

COLUMNS = ("token_columns", "document_columns")

_COMMANDS = (
    "verify {cache}",
    "verify --full {cache}",
    "stats {cache}",
    "inspect {cache}",
    "inspect --row chat.jsonl:0 {cache}",
    "inspect --row chat.jsonl:7 {cache}",
    "inspect --doc {doc} {cache}",
    "inspect --block 0 --ids {cache}",
    "inspect --step 0 {cache}",
    "check {cache}",
    "check --near {cache}",
    "report {cache} -o {out}/page.html",
    "diff {cache} {whole}",
    "diff {whole} {cache}",
    "export {cache} --to datasets -o {out}/datasets",
    "build -c {recipe} -o {cache} --dry-run",
    "build -c {recipe} -o {cache} --force -j 1",
)


class _Hang(BaseException):
    pass


def try_forgeries(job: Path, out: Path, part: int, num_parts: int, num_commands: int) -> tuple[int, list[str]]:
    """Forge a job's cache in all ways of a part, and use each; returns how many were used, and what went wrong."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGALRM, _raise_hang)
    whole, rng, used, wrong = job / "cache", random.Random(job.name), 0, []
    every = list(forgeries(whole))
    rng.shuffle(every)
    for name, forge in every[part::num_parts]:
        cache = out / "cache"
        for folder in (cache, out / "datasets"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, cache)
        forge(cache)
        uses: dict[str, Callable[[], Any]] = {"the reader": partial(_read_all, cache)}
        for words in rng.sample(_COMMANDS, min(num_commands, len(_COMMANDS))):
            places = {"cache": cache, "out": out, "whole": whole, "recipe": job / "recipe.yaml", "doc": _doc_id(whole)}
            uses[words] = partial(_command, words.format(**places).split())
        wrong += [f"{name}: {words}: {error}" for words, use in uses.items() if (error := _error_of(use))]
        used += 1
    return used, wrong


def _doc_id(cache: Path) -> int:
    with Cache.open(cache) as opened:
        return int(opened.documents(opened.splits("documents")[0]).doc_ids()[0])


def _error_of(use: Callable[[], Any]) -> str | None:
    """What is wrong about how it ended; an error that says whose fault it is, and is not the machine's, is right."""
    signal.alarm(_SECONDS)
    try:
        use()
    except PackerError as error:
        return None if error.exit_code in (1, 2, 3) else f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - a panic, a hang, an internal error: told to the test
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    return None


def _raise_hang(*_: object) -> NoReturn:
    raise _Hang


def _command(words: list[str]) -> None:
    code: Any = 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            cli.main([*words, "-v"], prog_name="packer")
        except SystemExit as end:
            code = end.code
    if code not in (None, 0, 1, 2, 3):
        raise AssertionError(f"exit {code}: {errors.getvalue()}")


def _read_all(folder: Path) -> None:
    """Use what a training job, a build and an export use of a cache; every use must end well or in an error of its own."""
    with Cache.open(folder) as cache:
        for use in (*_uses_of_rows(cache), *_loaders(cache)):
            with contextlib.suppress(PackerError):
                use()
        with contextlib.suppress(PackerError):
            list(read_rejected(folder, cache.manifest))
        content_fingerprint(folder, cache.manifest.shards)


def _uses_of_rows(cache: Cache) -> Iterator[Callable[[], Any]]:
    for split in cache.splits("blocks"):
        blocks = cache.blocks(split)
        yield lambda blocks=blocks: blocks.read(np.arange(len(blocks)))
    for split in cache.splits("documents"):
        documents = cache.documents(split)
        names = ("lengths", "runs", "columns", "origins", "num_trained", "prompts", "verify")
        yield from (getattr(documents, name) for name in names)
        yield lambda documents=documents: [read_document(documents, number) for number in range(len(documents))]
        if documents.has_sides:
            yield documents.sides


def _loaders(cache: Cache) -> Iterator[Callable[[], None]]:
    for batching, orders in (
        ("packed", ("random", "sequential")),
        ("padded", ("random", "length_bucketed")),
        ("padding_free", ("random",)),
        ("token_budget", ("random",)),
    ):
        for split in cache.splits("blocks" if batching == "packed" else "documents"):
            for order in orders:
                yield lambda arguments={"split": split, "batching": batching, "order": order}: _epoch(cache, arguments)


def _epoch(cache: Cache, arguments: dict[str, Any]) -> None:
    size = 1024 if arguments["batching"] == "token_budget" else 1
    arguments |= {"columns": [name for key in COLUMNS for name in cache.manifest.recipe.get(key, ())]}
    with PackedLoader(cache, micro_batch_size=size, end="pad", prefetch=0, **arguments) as loader:
        for step in loader:
            loader.doc_ids(step)
            for micro_batch in step:
                if "cu_seq_lens_q" in micro_batch:
                    bounds = micro_batch["cu_seq_lens_q"]
                    assert bounds[-1] == micro_batch["input_ids"].shape[1]
                    assert (bounds.diff() > 0).all()
