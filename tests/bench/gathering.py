"""What gathering blocks costs, beside copying as many bytes."""

import numpy as np
from rich.table import Table
from timing import best

from packer.batches import DocumentColumns, Int32
from packer.pack import Pieces, gather, plan
from packer.recipe import Pack

BLOCK_LEN = 4096
NUM_TOKENS = 8_000_000
MEANS = (80, 1000)


def gathering(table: Table) -> None:
    """Documents of about so many tokens (log-normal), and of exactly so many."""
    for mean in MEANS:
        num_documents = NUM_TOKENS // mean
        spread = np.random.default_rng(0).lognormal(np.log(mean) - 0.32, 0.8, num_documents)  # mean exp(µ + σ²/2)
        _gather(table, f"gather, documents of about {mean} tokens", np.clip(spread, 1, BLOCK_LEN).astype(np.int32))
        _gather(table, f"gather, documents of {mean} tokens each", np.full(num_documents, mean, np.int32))


def _gather(table: Table, name: str, lengths: Int32) -> None:
    packed = plan(Pieces.whole(lengths, BLOCK_LEN), Pack(block_len=BLOCK_LEN))
    tokens = np.arange(int(lengths.sum()), dtype=np.int32)
    columns = DocumentColumns(
        input_ids=(tokens,),
        labels=(tokens,),
        loss_weights=None,
        chunk=np.zeros(len(lengths), np.int32),
        start=np.cumsum(lengths, dtype=np.int64) - lengths,
        length=lengths,
        doc_id=np.arange(len(lengths), dtype=np.int64),
    )
    seconds = best(lambda: gather(packed, 0, packed.num_blocks, columns, block_len=BLOCK_LEN, pad_id=0), 5)
    blocks = np.ones((3, packed.num_blocks * BLOCK_LEN), np.int32)  # ids, labels and positions
    copy = best(blocks.copy, 5)
    table.add_row(name, f"{seconds:.3f} s", "copying as many bytes", f"{seconds / copy:.1f}")
