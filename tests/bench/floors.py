"""What a build of rows without a template costs, beside its floor: CPU seconds of one process with the fast engine.

The floor is what cannot be left out: the rows decoded, their texts encoded by the library (a vocabulary that has seen no
word yet), and the bytes of the cache written and hashed once. Start-up, a build of a thousand rows, is a column of its own.
"""

import hashlib
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from building import REAL
from rich.table import Table
from watched import run_watched
from xxhash import xxh3_128

_TOKENIZER = REAL / "tokenizers" / "llama-3"
_COPIES = 5
_FEW = 1000
_ROUNDS = 3


def floors_table() -> Table:
    """Text, prompt-completion, and token rows made of one corpus."""
    table = Table("rows", "of", "floor", "build", "of it start-up", "times the floor", box=None, pad_edge=False)
    corpus = REAL / "corpora" / "alpaca_en_52k.jsonl"
    if not (corpus.exists() and _TOKENIZER.exists()):
        return Table("floors: SKIPPED: real rows and tokenizer not found", box=None, pad_edge=False)
    for kind, row_of in _KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            few, rows = Path(folder) / "few.jsonl", Path(folder) / "rows.jsonl"
            lines = [*_lines(corpus, row_of)]
            few.write_text("".join(islice(lines, _FEW)), "utf-8")
            rows.write_text("".join(lines), "utf-8")
            start = min(_build_s(few, Path(folder) / "few") for _ in range(_ROUNDS))
            build = min(_build_s(rows, Path(folder) / "cache") for _ in range(_ROUNDS))
            floor = min(_floor_s(rows, Path(folder) / "cache") for _ in range(_ROUNDS))
        size = f"{sum(map(len, lines)) / 1e6:.0f} MB"
        table.add_row(kind, size, f"{floor:.2f} s", f"{build:.2f} s", f"{start:.2f} s", f"{build / floor:.1f}")
    return table


def _lines(corpus: Path, row_of: Callable[[str, str], dict[str, Any]]) -> Iterator[str]:
    rows = [json.loads(line) for line in corpus.read_text("utf-8").splitlines()]
    for copy in range(_COPIES):
        for row in rows:
            question, answer = f"{row['instruction']}\n{row.get('input') or ''}\n", f"{row['output']} ({copy})"
            yield json.dumps(row_of(question, answer), ensure_ascii=False) + "\n"


def _tokens(question: str, answer: str) -> dict[str, Any]:
    ids = [*question.encode(), *answer.encode()]  # a byte each: as many numbers as a row of text has bytes
    return {"input_ids": ids, "loss_mask": [0] * len(question.encode()) + [1] * len(answer.encode())}


_KINDS: Mapping[str, Callable[[str, str], dict[str, Any]]] = {
    "text": lambda question, answer: {"text": question + answer},
    "prompt and completion": lambda question, answer: {"prompt": question, "completion": answer},
    "tokens": _tokens,
}


def _build_s(rows: Path, cache: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "packer", "build", rows, "--tokenizer", _TOKENIZER, "-o", cache, "-j", 1]
    command += ["--fail-above", 1, "--json", "--set", "engine=fast"]
    shutil.rmtree(cache, ignore_errors=True)  # nothing is reused
    run_watched(command, log=cache.with_suffix(".log"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _floor_s(rows: Path, cache: Path) -> float:
    from gigatoken.gigatoken_rs import load_hf_json

    encode = load_hf_json((_TOKENIZER / "tokenizer.json").read_bytes()).encode
    files = [path.read_bytes() for path in cache.glob("*/*.arrow")]
    start = time.process_time()
    content = rows.read_bytes()
    hashlib.sha256(content)
    for row in map(msgspec.json.Decoder().decode, content.splitlines()):
        text = row.get("text") or row.get("prompt", "") + row.get("completion", "")
        _ = np.array(row["input_ids"], np.int32) if "input_ids" in row else encode(text)
    for data in files:
        (cache.parent / "copy").write_bytes(data)
        hashlib.sha256(data)
        xxh3_128(data)
    return time.process_time() - start
