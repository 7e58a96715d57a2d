"""Builds from real rows, start to end, beside what people run today on the same rows: seconds, and tokens a second.

The peer is the way of TRL's trainer for prompts and completions: `datasets.map` over rows, the chat template once with the
prompt and once with the whole, the mask from their lengths, then `pack_dataset`. It proves nothing and writes no digests.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from rich.table import Table

from packer.build import build
from packer.build.pool import default_jobs
from packer.recipe import make_recipe
from packer.tokenize import fast_version

_REAL = Path(os.environ.get("PACKER_REAL", Path(__file__).parents[3] / "shared" / "real"))
_CORPUS, _TOKENIZER = _REAL / "corpora" / "alpaca_en_52k.jsonl", _REAL / "tokenizers" / "llama-3"
_ROWS = 20_000
_BLOCK_LEN = 2048


def building_table() -> Table:
    """One line a system; without the real files a line that says so."""
    table = Table("build", "time", "tokens/s", "of TRL's time", box=None, pad_edge=False)
    if not (_CORPUS.exists() and _TOKENIZER.exists()):
        table.add_row("SKIPPED: real rows and tokenizer not found", "", "", "")
        return table
    with tempfile.TemporaryDirectory() as folder:
        systems: list[tuple[str, Callable[[], int]]] = [
            ("TRL", lambda: _trl(Path(folder))),
            *(
                (f"packer, engine {engine}, -j {jobs}", _packer(Path(folder), engine, jobs))
                for engine in ("reference", "fast")
                for jobs in (1, default_jobs())
            ),
        ]
        has_peer, peer = _import_peer(), None
        for name, system in systems:
            if name == "TRL" and not has_peer:
                table.add_row(name, "not installed", "", "")
                continue
            if "engine fast" in name and fast_version() is None:
                table.add_row(name, "fastokens not installed", "", "")
                continue
            start = time.perf_counter()
            tokens = system()
            seconds = time.perf_counter() - start
            peer = peer or (seconds if name == "TRL" else None)
            ratio = "" if peer is None else f"{seconds / peer:.2f}"
            table.add_row(name, f"{seconds:.1f} s", f"{tokens / seconds:,.0f}", ratio)
    return table


def _packer(folder: Path, engine: str, jobs: int) -> Callable[[], int]:
    recipe = make_recipe(
        {
            "sources": [{"path": str(_CORPUS), "limit": _ROWS}],
            "tokenizer": str(_TOKENIZER),
            "engine": engine,
            "pack": {"block_len": _BLOCK_LEN},
        }
    )

    def run() -> int:
        manifest = build(recipe, folder / f"{engine}-{jobs}", jobs=jobs).manifest
        assert manifest is not None
        return manifest.totals.tokens

    return run


def _as_prompt(row: dict[str, str]) -> dict[str, Any]:
    question = "\n".join(filter(None, (row["instruction"], row["input"])))
    return {
        "prompt": [{"role": "user", "content": question}],
        "completion": [{"role": "assistant", "content": row["output"]}],
    }


def _import_peer() -> bool:
    """Import before the clock runs; False where something is not installed."""
    try:
        import datasets  # noqa: F401
        import transformers  # noqa: F401
        import trl  # noqa: F401
    except ImportError:
        return False
    return True


def _trl(folder: Path) -> int:
    import datasets
    import trl
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(_TOKENIZER)
    with _CORPUS.open(encoding="utf-8") as file:
        rows = [_as_prompt(json.loads(line)) for line in islice(file, _ROWS)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    loaded = datasets.load_dataset("json", data_files=str(folder / "rows.jsonl"), cache_dir=str(folder / "hf"))["train"]

    def tokenized(row: dict[str, Any]) -> dict[str, list[int]]:
        prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=True)["input_ids"]
        whole = tokenizer.apply_chat_template(row["prompt"] + row["completion"], return_dict=True)["input_ids"]
        return {"input_ids": whole, "completion_mask": [0] * len(prompt) + [1] * (len(whole) - len(prompt))}

    mapped = loaded.map(tokenized, remove_columns=["prompt", "completion"], num_proc=default_jobs())
    packed = trl.pack_dataset(mapped, seq_length=_BLOCK_LEN, strategy="bfd")
    return sum(len(row) for row in packed.data.column("input_ids").combine_chunks().to_pylist())
