"""Pre-training text as one stream, cut into full blocks, built from Python. No torch.

Run it in an empty folder.
"""

from collections.abc import Iterator
from pathlib import Path

import packer
from packer.starter import write_starter


def books() -> Iterator[dict[str, str]]:
    """Rows that need not be in memory together."""
    for number in range(50):
        yield {"text": " ".join(f"This is sentence {k} of book {number}." for k in range(10 + 7 * number))}


write_starter(Path("first"))  # for its small tokenizer
result = packer.build(books(), "cache", tokenizer="first/tokenizer", pack={"mode": "stream", "block_len": 512})
print(result)

stats = packer.cache_stats("cache")
totals = stats.totals
print(
    f"{stats.tokens:,} tokens of {totals.rows} books in {totals.blocks} blocks of {stats.block_len}, "
    f"{stats.fill:.1%} full"
)
assert totals.rows == totals.kept == 50
assert totals.padding < stats.block_len, "only the last block is padded"
