"""Builds from real rows, start to end, beside what people run today on the same rows: seconds, and tokens a second.

The peer is the way of TRL's trainer for prompts and completions: `datasets.map` over rows, the chat template once with the
prompt and once with the whole, the mask from their lengths, then `pack_dataset`. It proves nothing, writes no digests, and
of a dialogue learns the last turn alone, where packer learns every turn.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from packer.build import build
from packer.build.pool import default_jobs
from packer.recipe import make_recipe
from packer.tokenize import fast_version

_REAL = Path(os.environ.get("PACKER_REAL", Path(__file__).parents[3] / "shared" / "real"))
_TOKENIZER = _REAL / "tokenizers" / "llama-3"
_CORPORA = {"short rows": "alpaca_en_52k.jsonl", "dialogues": "sgd_train_chat_1800.jsonl"}
_BLOCK_LEN = 2048


def building_table() -> Table:
    """One line a system and corpus; without the real files a line that says so."""
    table = Table("rows", "build", "time", "tokens/s", "of TRL's time", box=None, pad_edge=False)
    has_peer = _import_peer()
    for kind, name in _CORPORA.items():
        corpus = _REAL / "corpora" / name
        if not (corpus.exists() and _TOKENIZER.exists()):
            table.add_row(kind, "SKIPPED: real rows and tokenizer not found", "", "", "")
            continue
        with tempfile.TemporaryDirectory() as folder:
            _add_systems(table, kind, corpus, Path(folder), has_peer=has_peer)
    return table


def _add_systems(table: Table, kind: str, corpus: Path, folder: Path, *, has_peer: bool) -> None:
    peer = f"TRL, {default_jobs()} processes"
    systems: dict[str, Callable[[], int] | None] = {peer: partial(_trl, corpus, folder) if has_peer else None}
    for engine in ("reference", "fast"):
        for jobs in (1, default_jobs()):
            is_there = engine == "reference" or fast_version() is not None
            name = f"packer, engine {engine}, -j {jobs}"
            systems[name] = _packer(corpus, folder, engine, jobs) if is_there else None
    seconds: dict[str, float] = {}
    for name, system in systems.items():
        if system is None:
            table.add_row(kind, name, "not installed", "", "")
            continue
        start = time.perf_counter()
        tokens = system()
        seconds[name] = time.perf_counter() - start
        ratio = f"{seconds[name] / seconds[peer]:.2f}" if peer in seconds else ""
        table.add_row(kind, name, f"{seconds[name]:.1f} s", f"{tokens / seconds[name]:,.0f}", ratio)


def _packer(corpus: Path, folder: Path, engine: str, jobs: int) -> Callable[[], int]:
    recipe = make_recipe(
        {
            "sources": [{"path": str(corpus)}],
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


def _as_prompt(row: dict[str, Any]) -> dict[str, Any]:
    if "messages" in row:
        last = max(k for k, message in enumerate(row["messages"]) if message["role"] == "assistant")
        return {"prompt": row["messages"][:last], "completion": [row["messages"][last]]}
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


def _trl(corpus: Path, folder: Path) -> int:
    import datasets
    import trl
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(_TOKENIZER)
    with corpus.open(encoding="utf-8") as file:
        rows = [_as_prompt(json.loads(line)) for line in file]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    loaded = datasets.load_dataset("json", data_files=str(folder / "rows.jsonl"), cache_dir=str(folder / "hf"))["train"]

    def tokenized(row: dict[str, Any]) -> dict[str, list[int]]:
        prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=True)["input_ids"]
        whole = tokenizer.apply_chat_template(row["prompt"] + row["completion"], return_dict=True)["input_ids"]
        return {"input_ids": whole, "completion_mask": [0] * len(prompt) + [1] * (len(whole) - len(prompt))}

    mapped = loaded.map(tokenized, remove_columns=["prompt", "completion"], num_proc=default_jobs())
    packed = trl.pack_dataset(mapped, seq_length=_BLOCK_LEN, strategy="bfd")
    return sum(len(row) for row in packed.data.column("input_ids").combine_chunks().to_pylist())
