"""What planning costs, beside other packers."""

import numpy as np
from lengths import log_normal, real
from packers import Packer, packers
from rich.table import Table
from timing import ROUNDS, Measured, measured
from whole_documents import mixing_of, plan_whole

from packer.batches import Int32

BLOCK_LENS = (2048, 4096, 8192, 131072)
FEW_DOCUMENTS = 2_000_000  # below it rounds are short, and there are more of them
HUGE_DOCUMENTS = 100_000_000


def packing_table(*, huge: bool) -> Table:
    """Every packer on the same lengths, real or log-normal; ratios are to the first of them."""
    table = _table("documents", "block", "packer", right=("s", "ratio", "blocks", "fill", "MB"))
    compared = packers()
    lengths = real()
    if lengths is None:
        table.add_row("real", "", "no PACKER_REAL: skipped", "", "", "", "", "")
    else:
        _rows(table, f"{len(lengths):,} real", lengths, BLOCK_LENS, compared)
    for num_documents in (1_000_000, 10_000_000):
        _rows(table, f"{num_documents:,}", log_normal(num_documents), BLOCK_LENS, compared)
    if huge:
        _rows(table, f"{HUGE_DOCUMENTS:,}", log_normal(HUGE_DOCUMENTS), BLOCK_LENS[1:2], compared[:1])
    return table


def _rows(table: Table, name: str, raw: Int32, block_lens: tuple[int, ...], compared: list[Packer]) -> None:
    for block_len in block_lens:
        lengths = np.minimum(raw, block_len)
        documents, block = name, str(block_len)
        first: Measured | None = None
        for packer in compared:
            if not _takes(packer, len(lengths), block_len):
                continue
            if packer.pack is None:
                table.add_row(documents, block, f"{packer.name}: not installed", "", "", "", "", "")
            else:
                found = measured(lambda p=packer.pack, x=lengths, b=block_len: p(x, b), _rounds(packer, len(lengths)))
                first = first or found
                table.add_row(documents, block, packer.name, *_figures(found, first, int(lengths.sum()), block_len))
            documents = block = ""
    table.add_section()


def _takes(packer: Packer, num_documents: int, block_len: int) -> bool:
    few = num_documents < packer.most_documents or packer.block_lens is None
    return num_documents <= packer.most_documents and (few or block_len in packer.block_lens)


def _rounds(packer: Packer, num_documents: int) -> int:
    if not packer.name.startswith("packer"):
        return 1
    return 2 * ROUNDS if num_documents < FEW_DOCUMENTS else ROUNDS


def _figures(found: Measured, first: Measured, num_tokens: int, block_len: int) -> list[str]:
    return [
        f"{found.seconds:.3f}",
        f"{found.seconds / first.seconds:.3g}",
        f"{found.result:,}",
        f"{num_tokens / (found.result * block_len):.3%}",
        f"{found.peak_bytes / 1e6:,.0f}",
    ]


def mixing_table() -> Table:
    """By the eighths of the source that documents come from; 1 is chance."""
    table = _table("packer", right=("mixing of 1 block", "of 64 blocks"))
    lengths = np.minimum(log_normal(1_000_000), 4096)
    eighth = np.arange(len(lengths)) * 8 // len(lengths)
    packed = plan_whole(lengths, 4096)
    table.add_row("best fit", *(f"{mixing_of(packed, eighth, blocks=blocks).index:.4f}" for blocks in (1, 64)))
    return table


def _table(*left: str, right: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table
