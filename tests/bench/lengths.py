"""Lengths to pack: of real documents where they lie on this machine, and log-normal ones."""

import os
import tempfile
from pathlib import Path

import numpy as np

from packer.batches import Int32
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache

_REAL = Path(os.environ.get("PACKER_REAL", Path(__file__).parents[3] / "shared" / "real"))


def log_normal(num_documents: int) -> Int32:
    """Median 148 tokens, mean 245, a few of thousands."""
    lengths = np.random.default_rng(0).lognormal(5, 1, num_documents)
    return np.maximum(lengths, 1).astype(np.int32)


def real() -> Int32 | None:
    """Documents of real chats under a real tokenizer and its template; None without the files."""
    paths = [_REAL / "corpora" / f"{name}.jsonl" for name in ("alpaca_en_52k", "hh_harmless_test_messages")]
    tokenizer = _REAL / "tokenizers" / "qwen3"
    if not all(path.exists() for path in (*paths, tokenizer)):
        return None
    recipe = make_recipe(
        {
            "sources": [{"path": str(path)} for path in paths],
            "tokenizer": str(tokenizer),
            "supervision": {"history_rewrite": "as_rendered"},
            "pack": {"mode": "none"},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        build(recipe, Path(folder) / "cache")
        with Cache.open(Path(folder) / "cache") as cache:
            return cache.documents("train").lengths().copy()
