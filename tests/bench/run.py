"""`make bench`: what things cost, each as a ratio to a plain operation on the same data, measured in one run.

Times on shared machines are noise; ratios within a run say more. Each line is the best of a few rounds. ``--huge`` packs a
hundred million documents too, which takes about 4 GB of memory, opens ten million blocks, and builds 4 and 16 times the rows. TRL, numba and the loaders of
requirements.txt beside this file are compared with where they are installed, and real documents are packed and read where
``PACKER_REAL`` says they lie. ``--peers`` has LLaMA-Factory and axolotl prepare rows too, which preparing/install.py installs.
``--only reading`` prints the tables of one kind.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from building import building_tables
from gathering import gathering
from packing import mixing_table, packing_table
from reading import reading_tables
from rendering import rendering_table
from rich.console import Console
from rich.table import Table
from timing import best
from verifying import verifying_table

from packer.model import TOKENIZER_FILE
from packer.pipeline import build
from packer.pipeline.plan import plan_build
from packer.pipeline.progress import Silent
from packer.pipeline.stages import Stages
from packer.recipe import make_recipe
from packer.source import read_rows
from packer.starter import write_starter
from packer.store.cache import Cache
from packer.tokenize import ReferenceEncoder


def stages(table: Table, folder: Path) -> None:
    write_starter(folder / "starter")
    rows = (folder / "starter" / "data" / "alpaca.jsonl").read_text("utf-8")
    (folder / "rows.jsonl").write_text(rows * 200, "utf-8")
    recipe = make_recipe(
        {"sources": [{"path": str(folder / "rows.jsonl")}], "tokenizer": str(folder / "starter" / "tokenizer")}
    )
    planned = plan_build(recipe, Silent())
    whole = Stages(recipe, planned.model)
    task = planned.tasks[0]
    batches = list(read_rows(task.partition, schema="alpaca", columns={}, max_row_bytes=2**26))
    documents = [whole.run(batch).documents for batch in batches]
    encoder = ReferenceEncoder(planned.model.files[TOKENIZER_FILE])
    texts = [message.fields["content"] for batch in batches for sample in batch.samples for message in sample.messages]
    encode = best(lambda: encoder.encode(texts))
    seconds = best(lambda: [whole.run(batch) for batch in batches])
    tokens = sum(len(batch.input_ids) for batch in documents)
    table.add_row(
        f"render, tokenize, prove {tokens:,} tokens",
        f"{seconds:.3f} s",
        "encoding the messages",
        f"{seconds / encode:.1f}",
    )


def reading(table: Table, folder: Path) -> None:
    build(
        make_recipe(
            {"sources": [{"path": str(folder / "rows.jsonl")}], "tokenizer": str(folder / "starter" / "tokenizer")}
        ),
        folder / "cache",
    )
    cache = Cache.open(folder / "cache")
    blocks = cache.blocks("train")
    order = np.random.default_rng(0).permutation(len(blocks))
    blocks.read(order)
    seconds = best(lambda: blocks.read(order))
    source = np.zeros((3, len(blocks) * blocks.block_len), np.int32)
    copy = best(source.copy)
    table.add_row(
        f"read {len(blocks)} blocks, checked before",
        f"{seconds:.4f} s",
        "copying as many bytes",
        f"{seconds / copy:.1f}",
    )
    again = best(lambda: build(make_recipe(cache.manifest.recipe), folder / "cache"))
    table.add_row("build that is up to date", f"{again:.3f} s", "", "")


def _plain_table() -> Table:
    table = Table("what", "time", "beside", "ratio", box=None, pad_edge=False)
    with tempfile.TemporaryDirectory() as folder:
        gathering(table)
        stages(table, Path(folder))
        reading(table, Path(folder))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--huge", action="store_true", help="a hundred million documents, ten million blocks, 16 times the rows"
    )
    parser.add_argument(
        "--only",
        choices=("building", "rendering", "packing", "reading", "verifying", "plain"),
        help="the tables of one kind",
    )
    parser.add_argument("--peers", action="store_true", help="LLaMA-Factory and axolotl beside builds, too")
    options = parser.parse_args()
    kinds: dict[str, Callable[[], Iterable[Table]]] = {
        "building": lambda: building_tables(huge=options.huge, peers=options.peers),
        "rendering": lambda: [rendering_table()],
        "packing": lambda: [packing_table(huge=options.huge), mixing_table()],
        "reading": lambda: reading_tables(huge=options.huge),
        "verifying": lambda: [verifying_table()],
        "plain": lambda: [_plain_table()],
    }
    console = Console(width=120)
    for kind, tables in kinds.items():
        if options.only in (None, kind):
            for table in tables():  # printed as it is finished: some take minutes
                console.print(table, end="\n\n")


if __name__ == "__main__":
    main()
