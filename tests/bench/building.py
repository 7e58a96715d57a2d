"""Builds from real rows, start to end, beside what people run today on the same rows.

Every build has a process of its own, whose clock runs from the recipe to the commit: inputs hashed, tokenizer and encoders
loaded, proof and digests included, imports not. The same rows are built once, four and sixteen times over, edited so that no
two are alike, to tell what loading costs from what rows cost.

The peer is the way of TRL's trainer for prompts and completions: `datasets.map` over rows, the chat template once with the
prompt and once with the whole, the mask from their lengths, then `pack_dataset`, also without imports. It proves nothing,
writes no digests, and of a dialogue learns the last turn alone, where packer learns every turn.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.table import Table

from packer.build.pool import default_jobs
from packer.tokenize import fast_version

_REAL = Path(os.environ.get("PACKER_REAL", Path(__file__).parents[3] / "shared" / "real"))
_TOKENIZER = _REAL / "tokenizers" / "llama-3"
_CORPORA = {"short rows": ("alpaca_en_52k.jsonl", 1), "dialogues": ("sgd_train_chat_1800.jsonl", 7)}
"""File, and how often it is taken to make rows worth measuring."""

_BLOCK_LEN = 2048
_TIMES = (1, 4, 16)


def building_tables(*, huge: bool) -> Iterator[Table]:
    """One table for each kind of rows. `huge`: 4 and 16 times the rows too, and those by the peer 4 times."""
    for kind, (name, copies) in _CORPORA.items():
        corpus = _REAL / "corpora" / name
        table = Table(kind, "rows", "time", "tokens/s", "of TRL's", "peak of a process", box=None, pad_edge=False)
        if corpus.exists() and _TOKENIZER.exists():
            with tempfile.TemporaryDirectory() as folder:
                _add_systems(table, corpus, copies, Path(folder), times=_TIMES if huge else _TIMES[:1])
        else:
            table.add_row("SKIPPED: real rows and tokenizer not found")
        yield table


def _add_systems(table: Table, corpus: Path, copies: int, folder: Path, *, times: Iterable[int]) -> None:
    peer_s = None
    for factor in times:
        rows = folder / f"rows-{factor}.jsonl"
        num_rows = write_rows(corpus, rows, copies * factor)
        if factor < max(_TIMES):
            peer_s = _peer_seconds(rows, folder)
            peer_s_each = None if peer_s is None else peer_s / num_rows
            told = f"{peer_s:.1f} s" if peer_s is not None else "not installed"
            table.add_row(f"TRL {_version('trl')}, {default_jobs()} processes", f"{num_rows:,}", told, "", "1", "")
        for engine, jobs in [(engine, jobs) for engine in ("reference", "fast") for jobs in {1, default_jobs()}]:
            system = f"packer, {engine}, -j {jobs}"
            if engine == "fast" and fast_version() is None:
                table.add_row(system, f"{num_rows:,}", "not installed", "", "", "")
                continue
            did = _build(rows, folder / "cache", engine, jobs)
            ratio = "" if peer_s_each is None else f"1/{peer_s_each * num_rows / did['seconds']:.1f}"
            table.add_row(
                system,
                f"{num_rows:,}",
                f"{did['seconds']:.1f} s",
                f"{did['tokens'] / did['seconds']:,.0f}",
                ratio,
                f"{did['peak_bytes'] / 2**20:.0f} MiB",
            )


def write_rows(corpus: Path, rows: Path, copies: int) -> int:
    """A corpus several times over, every copy but the first with a word of its own in each row; returns the rows."""
    lines = corpus.read_text("utf-8").splitlines()
    with rows.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
        for copy in range(1, copies):
            for line in lines:
                row = json.loads(line)
                if "messages" in row:
                    row["messages"][0]["content"] += f" ({copy})"
                else:
                    row["instruction"] += f" ({copy})"
                file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    return len(lines) * copies


def _build(rows: Path, folder: Path, engine: str, jobs: int) -> dict[str, Any]:
    recipe = {
        "sources": [{"path": str(rows)}],
        "tokenizer": str(_TOKENIZER),
        "engine": engine,
        "pack": {"block_len": _BLOCK_LEN},
    }
    command = [
        sys.executable,
        str(Path(__file__).with_name("one_build.py")),
        json.dumps(recipe),
        str(folder),
        str(jobs),
    ]
    try:
        told: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return told


def _peer_seconds(rows: Path, folder: Path) -> float | None:
    if _version("trl") is None:
        return None
    command = [sys.executable, __file__, str(rows), str(folder / "peer")]
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, "TOKENIZERS_PARALLELISM": "false"}
        )
    finally:
        shutil.rmtree(folder / "peer", ignore_errors=True)
    return float(done.stdout.split()[-1])


def _version(name: str) -> str | None:
    try:
        return version(name)
    except ModuleNotFoundError:
        return None


def _as_prompt(row: dict[str, Any]) -> dict[str, Any]:
    if "messages" in row:
        last = max(k for k, message in enumerate(row["messages"]) if message["role"] == "assistant")
        return {"prompt": row["messages"][:last], "completion": [row["messages"][last]]}
    question = "\n".join(filter(None, (row["instruction"], row["input"])))
    return {
        "prompt": [{"role": "user", "content": question}],
        "completion": [{"role": "assistant", "content": row["output"]}],
    }


def _trl(rows: Path, folder: Path) -> float:
    """Seconds of TRL's preparation of rows; the form it takes them in is made before the clock runs."""
    import datasets
    import trl
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    folder.mkdir()
    with rows.open(encoding="utf-8") as file, (folder / "rows.jsonl").open("w", encoding="utf-8") as prompts:
        prompts.writelines(json.dumps(_as_prompt(json.loads(line))) + "\n" for line in file)
    start = time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(_TOKENIZER)
    loaded = datasets.load_dataset("json", data_files=str(folder / "rows.jsonl"), cache_dir=str(folder / "hf"))["train"]

    def tokenized(row: dict[str, Any]) -> dict[str, list[int]]:
        prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=True)["input_ids"]
        whole = tokenizer.apply_chat_template(row["prompt"] + row["completion"], return_dict=True)["input_ids"]
        return {"input_ids": whole, "completion_mask": [0] * len(prompt) + [1] * (len(whole) - len(prompt))}

    mapped = loaded.map(tokenized, remove_columns=["prompt", "completion"], num_proc=default_jobs())
    packed = trl.pack_dataset(mapped, seq_length=_BLOCK_LEN, strategy="bfd")
    assert len(packed)
    return time.perf_counter() - start


if __name__ == "__main__":
    print(_trl(Path(sys.argv[1]), Path(sys.argv[2])))
