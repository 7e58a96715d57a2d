"""Builds from real rows, all in, beside what people run today on the same rows.

Each line is a process of its own, measured from the start of its interpreter to its exit: imports, loading and digests included.
packer's is the command `packer build`. Copies of rows are edited so that no two are alike. All take turns three times, and the
fastest run of each is shown; sixteen times the rows are measured once.

TRL is the measure: `datasets.map` over rows, the chat template once with the prompt and once with the whole, the mask from
their lengths, then `pack_dataset`. It is measured at every size that it is compared at. With ``--peers`` datatrove tokenizes
texts too, see preparers.py and the scripts in preparing/. Neither proves anything or writes digests, and TRL trains of a dialogue
the last turn alone.
"""

import compileall
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from preparers import DATATROVE, TRL, Preparer, prepare
from rich.table import Table
from watched import run_watched

import packer
import packer_cli
from packer.model.backend import fast_version
from packer.pipeline.workers.fork_server import default_jobs

REAL = Path(os.environ.get("PACKER_REAL", Path(__file__).parents[3] / "shared" / "real"))
_BLOCK_LEN = 2048
_HUGE_TIMES = 16
_ROUNDS = 3
_COLUMNS = ("time", "times TRL's speed", "tokens/s", "bytes/token", "largest process")

Measured: TypeAlias = dict[str, Any] | str
"""What a run reported, or why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    title: str
    corpus: str
    copies: int
    """How often the corpus is taken to make rows worth measuring."""

    tokenizer: str
    peers: tuple[Preparer, ...] = ()
    template: str | None = None
    """In place of the tokenizer's own."""

    as_text: bool = False
    """Whether rows are plain texts, without a conversation."""


WORKLOADS = (
    Workload(title="short rows", corpus="alpaca_en_52k.jsonl", copies=1, tokenizer="llama-3"),
    Workload(title="dialogues", corpus="sgd_train_chat_1800.jsonl", copies=7, tokenizer="llama-3"),
    Workload(title="Chinese dialogues", corpus="kdconv_zh_devtest.jsonl", copies=25, tokenizer="llama-3"),
    Workload(title="tool dialogues", corpus="sgd_train_tools_600.jsonl", copies=8, tokenizer="qwen3"),
    Workload(
        title="tool dialogues under Qwen2.5's template",
        corpus="sgd_train_tools_600.jsonl",
        copies=8,
        tokenizer="qwen3",  # the same tokens
        template="llamacpp__Qwen-Qwen2.5-7B-Instruct.jinja",
    ),
    Workload(
        title="texts", corpus="alpaca_en_52k.jsonl", copies=5, tokenizer="llama-3", peers=(DATATROVE,), as_text=True
    ),
)


def building_tables(*, huge: bool, peers: bool) -> Iterator[Table]:
    """One table for each kind and number of rows.

    Args:
        huge: Sixteen times the short rows, too.
        peers: datatrove too, where :mod:`preparing.install` has put it.

    """
    for workload in WORKLOADS:
        yield _measure(workload, workload.copies, (TRL, *(workload.peers if peers else ())), rounds=_ROUNDS)
    if huge:
        yield _measure(WORKLOADS[0], WORKLOADS[0].copies * _HUGE_TIMES, (TRL,), rounds=1)


def _measure(workload: Workload, copies: int, peers: tuple[Preparer, ...], *, rounds: int) -> Table:
    corpus, tokenizer = REAL / "corpora" / workload.corpus, REAL / "tokenizers" / workload.tokenizer
    if not (corpus.exists() and tokenizer.exists()):
        return Table(f"{workload.title}: SKIPPED: real rows and tokenizer not found", box=None, pad_edge=False)
    with tempfile.TemporaryDirectory() as folder:
        if workload.template is not None:
            shutil.copytree(tokenizer, Path(folder) / "tokenizer")
            tokenizer = Path(folder) / "tokenizer"
            shutil.copy(REAL / "templates" / workload.template, tokenizer / "chat_template.jinja")
        rows = Path(folder) / "rows.jsonl"
        num_rows = write_rows(corpus, rows, copies, as_text=workload.as_text)
        lines = {peer.name: partial(_prepare, peer, rows, Path(folder) / peer.module, tokenizer) for peer in peers}
        for engine in ("reference", "fast"):
            for jobs in sorted({1, default_jobs()}):
                build = partial(build_rows, rows, Path(folder) / "cache", tokenizer, engine=engine, jobs=jobs)
                lines[f"packer, {engine}, -j {jobs}"] = build
        best = _best_of(lines, rounds)
        table = Table(f"{num_rows:,} {workload.title}, {workload.tokenizer}", *_COLUMNS, box=None, pad_edge=False)
        trl = best.get(TRL.name)
        for name, measured in best.items():
            if isinstance(measured, str):
                table.add_row(name, measured)
            else:
                _add(table, measured["name"], measured, None if isinstance(trl, str) or trl is None else trl["seconds"])
        return table


def _best_of(lines: Mapping[str, Callable[[], Measured]], rounds: int) -> dict[str, Measured]:
    """Return the fastest of a few runs of each line. The lines take turns, so that a slow minute is nobody's alone."""
    best: dict[str, Measured] = {}
    for _ in range(rounds):
        for name, run in lines.items():
            before = best.get(name)
            if isinstance(before, str):
                continue
            measured = run()
            if before is None or isinstance(measured, str) or measured["seconds"] < before["seconds"]:
                best[name] = measured if isinstance(measured, str) else {"name": name, **measured}
    return best


def _prepare(peer: Preparer, rows: Path, folder: Path, tokenizer: Path) -> Measured:
    measured = prepare(peer, rows, folder, tokenizer=tokenizer, block_len=_BLOCK_LEN, jobs=default_jobs())
    if measured is None:
        return peer.missing
    return {**measured, "name": f"{peer.name} {measured['versions'][peer.module]}, {default_jobs()} processes"}


def _add(table: Table, name: str, measured: dict[str, Any], trl_s: float | None) -> None:
    table.add_row(
        name,
        f"{measured['seconds']:.1f} s",
        "" if trl_s is None else f"{trl_s / measured['seconds']:.1f}",
        f"{measured['tokens'] / measured['seconds']:,.0f}",
        f"{measured['bytes'] / measured['tokens']:.1f}",
        f"{measured['peak_bytes'] / 2**20:.0f} MiB",
    )


def write_rows(corpus: Path, rows: Path, copies: int, *, as_text: bool = False) -> int:
    """A corpus several times over, every copy but the first with a word of its own in each row; returns the rows."""
    if as_text:
        return _write_texts(corpus, rows, copies)
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


def _write_texts(corpus: Path, rows: Path, copies: int) -> int:
    fields = [json.loads(line) for line in corpus.read_text("utf-8").splitlines()]
    with rows.open("w", encoding="utf-8") as file:
        for copy in range(copies):
            for row in fields:
                text = f"{row['instruction']}\n{row['input']}\n{row['output']} ({copy})"
                file.write(json.dumps({"text": text}, ensure_ascii=False, separators=(",", ":")) + "\n")
    return len(fields) * copies


@cache
def _compile() -> None:
    """Compile packer, as installing it does: where interpreters may not keep what they compile, each would do so anew."""
    for package in (packer, packer_cli):
        compileall.compile_dir(Path(str(package.__file__)).parent, quiet=1)


def build_rows(rows: Path, cache: Path, tokenizer: Path, *, engine: str, jobs: int) -> Measured:
    """What `packer build` reports of rows, its profile included, and what it needed; the cache is removed."""
    if engine == "fast" and fast_version() is None:
        return "MISSING: pip install gigatoken"
    _compile()
    command = [sys.executable, "-m", "packer", "build", rows, "--tokenizer", tokenizer, "-o", cache, "-j", jobs]
    command += ["--block-len", _BLOCK_LEN, "--fail-above", "1", "--json", "--set", f"engine={engine}"]
    command += ["--set", "supervision.history_rewrite=as_rendered"]  # Qwen3 rewrites history
    try:
        result = run_watched(command, log=cache.with_suffix(".log"))
        num_bytes = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
        return {**result, "tokens": result["totals"]["tokens"], "bytes": num_bytes}
    finally:
        shutil.rmtree(cache, ignore_errors=True)
