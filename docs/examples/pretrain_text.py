"""Pre-training text as one stream, cut into full blocks, built from Python. No torch.

Run it in an empty folder.
"""

import json
from pathlib import Path

import packer
from packer.starter import write_starter

write_starter(Path("first"))  # for its small tokenizer
with Path("books.jsonl").open("w", encoding="utf-8") as file:
    for number in range(50):
        text = " ".join(f"This is sentence {k} of book {number}." for k in range(10 + 7 * number))
        file.write(json.dumps({"text": text}) + "\n")

recipe = packer.make_recipe(
    {
        "sources": [{"path": "books.jsonl", "schema": "text"}],
        "tokenizer": "first/tokenizer",
        "pack": {"mode": "stream", "block_len": 512},
    }
)
packer.build_cache(recipe, "cache", jobs=1)

stats = packer.cache_stats("cache")
full = 1 - stats.padding / stats.slots
print(f"{stats.tokens:,} tokens of {stats.rows} books in {stats.blocks} blocks of {stats.block_len}, {full:.1%} full")
assert stats.rows == stats.kept == 50
assert stats.padding < stats.block_len, "only the last block is padded"
