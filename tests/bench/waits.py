"""How long ranks wait for the slowest one, with rows dealt by work and without: computed from the lengths of real corpora.

Work is estimated as the reader does it, so this says how evenly it deals, not how well the estimate fits a model. Ranks
that shard parameters wait after each micro-batch, others after each step.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.table import Table

from packer.load import PackedLoader
from packer.load.ranks import Dealer
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe

CORPORA = ("alpaca_en_52k", "hh_harmless_test_messages", "taubench_airline_gpt4o")
LAYOUTS: dict[str, dict[str, Any]] = {
    "blocks of 4,096": {"batching": "packed", "micro_batch_size": 1},
    "8 documents": {"batching": "padding_free", "micro_batch_size": 8},
    "8 padded documents": {"batching": "padded", "micro_batch_size": 8},
    "16,384 tokens": {"batching": "token_budget", "micro_batch_size": 16_384},
}
MICRO_BATCHES = 4
NUM_STEPS = 2


def waits_table(ranks: tuple[int, ...] = (8, 64, 512)) -> Table:
    table = Table(
        "rows",
        "a micro-batch",
        *(f"{number} ranks: off, on" for number in ranks),
        caption=(__doc__ or "").partition("\n")[0],
    )
    real = Path(os.environ["PACKER_REAL"])
    for name in CORPORA:
        with TemporaryDirectory() as folder:
            rows, tokenizer = real / "corpora" / f"{name}.jsonl", real / "tokenizers" / "qwen3"
            source = {"path": str(rows), "limit": 4_000, "ignore": ["reward"]}
            said = {"sources": [source], "tokenizer": str(tokenizer), "pack": {"block_len": 4096}}
            build(
                make_recipe(said | {"supervision": {"history_rewrite": "last"}}), Path(folder) / "cache", fail_above=1
            )
            for layout, options in LAYOUTS.items():
                cells = [", ".join(waits(Path(folder) / "cache", number, options)) for number in ranks]
                table.add_row(name, layout, *cells)
    return table


def waits(cache: Path, num_ranks: int, options: dict[str, Any]) -> Iterator[str]:
    """Yield the share of time that ranks wait after micro-batches and after steps, without and with balance."""
    size = options["micro_batch_size"] * num_ranks * MICRO_BATCHES
    for balance in (0, 24_576):
        loader = PackedLoader(cache, rank=0, world_size=num_ranks, global_batch_size=size, **options)
        rows, padded = loader._source.rows, loader._options.padded
        dealer, work = Dealer(rows, replace(loader._options, balance=balance)), []
        for _, plan in zip(range(NUM_STEPS), loader.plans(last_epoch=None), strict=False):
            groups, of_ranks, _ = dealer._divided(plan.rows)
            work.append(np.array([literal_work(rows, group, padded=padded) for group in groups])[of_ranks])
        total = sum(of_step.sum() for of_step in work)
        micro = sum(of_step.max(0).sum() for of_step in work) * num_ranks
        step = sum(of_step.sum(1).max() for of_step in work) * num_ranks
        yield f"{1 - total / micro:.1%} / {1 - total / step:.1%}"


def literal_work(rows: Any, part: Any, *, padded: Any, linear: int = 24_576) -> int:
    lengths = rows.lengths_of_each(part)
    if padded is not None:
        width = padded.rounded(int(lengths.max()))
        return int(len(part) * width * (linear + width))
    return int((linear * lengths.sum(1) + rows.squares(part, lengths)).sum())
