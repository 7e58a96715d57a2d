"""Builds from real rows, start to end, beside what people run today on the same rows.

Every build has a process of its own, whose clock runs from the recipe to the commit: inputs hashed, tokenizer and encoders
loaded, proof and digests included, imports not. The same rows are built once, four and sixteen times over, edited so that no
two are alike, to tell what loading costs from what rows cost.

TRL is the measure: `datasets.map` over rows, the chat template once with the prompt and once with the whole, the mask from
their lengths, then `pack_dataset`. With ``--peers`` LLaMA-Factory and axolotl prepare the same rows too, see preparers.py and
the scripts in preparing/. None of them proves anything or writes digests. TRL learns of a dialogue the last turn alone, where
the others learn every turn; LLaMA-Factory has templates of its own, which write no date; axolotl packs while it trains.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preparers import OTHERS, TRL, prepare
from rich.table import Table
from watched import run_watched

from packer.pipeline.executor import default_jobs
from packer.tokenize import fast_version

_REAL = Path(os.environ.get("PACKER_REAL", Path(__file__).parents[3] / "shared" / "real"))
_TOKENIZER = _REAL / "tokenizers" / "llama-3"
_CORPORA = {"short rows": ("alpaca_en_52k.jsonl", 1), "dialogues": ("sgd_train_chat_1800.jsonl", 7)}
"""File, and how often it is taken to make rows worth measuring."""

_BLOCK_LEN = 2048
_TIMES = (1, 4, 16)
_COLUMNS = ("of TRL's", "rows", "time", "tokens/s", "bytes/token", "peak of a process")


def building_tables(*, huge: bool, peers: bool) -> Iterator[Table]:
    """One table for each kind of rows.

    Args:
        huge: 4 and 16 times the rows too; 4 times by TRL as well.
        peers: LLaMA-Factory and axolotl too, where :mod:`preparing.install` has put them.

    """
    for kind, (name, copies) in _CORPORA.items():
        corpus = _REAL / "corpora" / name
        table = Table(kind, *_COLUMNS, box=None, pad_edge=False)
        if corpus.exists() and _TOKENIZER.exists():
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder)
                peer_s_each = _add_peers(table, corpus, copies, place, peers=peers, huge=huge)
                for factor in _TIMES if huge else _TIMES[:1]:
                    _add_builds(table, corpus, copies * factor, place, peer_s_each=peer_s_each)
        else:
            table.add_row("SKIPPED: real rows and tokenizer not found")
        yield table


def _add_peers(table: Table, corpus: Path, copies: int, folder: Path, *, peers: bool, huge: bool) -> dict[int, float]:
    """Adds what others make of the rows; returns TRL's seconds by the number of rows."""
    trl_s: dict[int, float] = {}
    for preparer in (TRL, *(OTHERS if peers else ())):
        for factor in _TIMES[:2] if huge and preparer is TRL else _TIMES[:1]:
            rows = folder / "rows.jsonl"
            num_rows = write_rows(corpus, rows, copies * factor)
            did = prepare(
                preparer,
                rows,
                folder / preparer.module,
                tokenizer=_TOKENIZER,
                block_len=_BLOCK_LEN,
                jobs=default_jobs(),
            )
            if did is None:
                table.add_row(preparer.name, "", f"{num_rows:,}", preparer.missing)
                break
            if preparer is TRL:
                trl_s[num_rows] = did["seconds"]
            versions = f"{preparer.name} {did['versions'][preparer.module]}, {default_jobs()} processes"
            _add(table, versions, num_rows, did, trl_s)
    return trl_s


def _add_builds(table: Table, corpus: Path, copies: int, folder: Path, *, peer_s_each: dict[int, float]) -> None:
    rows = folder / "rows.jsonl"
    num_rows = write_rows(corpus, rows, copies)
    for engine, jobs in [(engine, jobs) for engine in ("reference", "fast") for jobs in sorted({1, default_jobs()})]:
        system = f"packer, {engine}, -j {jobs}"
        if engine == "fast" and fast_version() is None:
            table.add_row(system, "", f"{num_rows:,}", "MISSING: pip install fastokens")
            continue
        _add(table, system, num_rows, _build(rows, folder / "cache", engine, jobs), peer_s_each)


def _add(table: Table, system: str, num_rows: int, did: dict[str, Any], trl_s: dict[int, float]) -> None:
    """A line; the ratio is to TRL's time for as many rows, or where it had fewer, for those, times as many."""
    told = ""
    if trl_s:
        nearest = max((rows for rows in trl_s if rows <= num_rows), default=min(trl_s))
        ratio = trl_s[nearest] * num_rows / nearest / did["seconds"]
        told = "1" if 0.95 < ratio < 1.05 else f"1/{ratio:.1f}" if ratio > 1 else f"{1 / ratio:.1f}"
    table.add_row(
        system,
        told,
        f"{num_rows:,}",
        f"{did['seconds']:.1f} s",
        f"{did['tokens'] / did['seconds']:,.0f}",
        f"{did['bytes'] / did['tokens']:.1f}",
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
        return run_watched(command, log=folder.with_suffix(".log"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
