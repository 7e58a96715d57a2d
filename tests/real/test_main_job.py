"""The main job on real corpora: files in, a verified cache out, every promise looked at on the way."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from single_documents import read_document
from tokenizers import Tokenizer

from packer.audit.verify import verify
from packer.errors import PackerError
from packer.pipeline.from_python import build
from packer.pipeline.messages.build_result import BuildResult
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache

pytestmark = pytest.mark.real

LISTED = (
    "sgd_train_tools_600",
    "taubench_airline_gpt4o",
    "reason_tool_use_openai_50",
    "kdconv_zh_devtest",
    "multilingual_chat_a",
)


WHOLE = None
"""The number of rows that takes a corpus whole; `make test` takes the first rows, `make deep` both."""


def build_real(
    real: Path, corpus: str, tokenizer: str, folder: Path, *overrides: str, limit: int | None = WHOLE, jobs: int = 1
) -> BuildResult:
    values = {
        "sources": [{"path": str(real / "corpora" / corpus), "limit": limit, "ignore": ["reward"]}],
        "tokenizer": str(real / "tokenizers" / tokenizer),
    }
    return build(make_recipe(values, overrides), folder, jobs=jobs, fail_above=1)


MEASURED = """
import json, sys, time
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
start = time.perf_counter()
result = build(make_recipe(json.loads(sys.argv[1])), sys.argv[2], jobs=1, fail_above=1)
# ru_maxrss would begin with what the process that started this one has.
peak = int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
print(json.dumps({"seconds": time.perf_counter() - start, "peak_bytes": peak}))
"""


ROWS_OF_ALPACA = 52_002
LLAMA_3 = "templates/trl__llama3.jinja"

# Template, rows, and how full blocks are at least. The template of Llama 3.1, which the tokenizer brings, writes 25
# tokens of system message into every row; that of Llama 3 does not. With it no document is shorter than 42 tokens,
# and what best-fit decreasing leaves open in a block is mostly less than that. Of few rows there are few short ones.
ALPACA = [
    pytest.param((LLAMA_3, 3_000, 0.99), id="llama-3-3000", marks=pytest.mark.slow),
    pytest.param((LLAMA_3, ROWS_OF_ALPACA, 0.998), id="llama-3", marks=pytest.mark.slow),
    pytest.param((None, ROWS_OF_ALPACA, 0.995), id="llama-3.1", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=ALPACA)
def alpaca(
    request: pytest.FixtureRequest, real: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, float]]:
    template, num_rows, least_fill = request.param
    folder = tmp_path_factory.mktemp("alpaca") / "cache"
    values = {
        "template": {"file": str(real / template) if template else None},
        "sources": [{"path": str(real / "corpora" / "alpaca_en_52k.jsonl"), "limit": num_rows}],
        "tokenizer": str(real / "tokenizers" / "llama-3"),
        "pack": {"block_len": 2048},
    }
    command = [sys.executable, "-c", MEASURED, json.dumps(values), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return folder, {**json.loads(run.stdout), "least_fill": least_fill, "num_rows": num_rows}


def test_alpaca_is_built_whole_full_and_in_little_memory(alpaca: tuple[Path, dict[str, float]]) -> None:
    folder, measured = alpaca
    totals = Cache.open(folder).manifest.totals
    assert totals.rows == measured["num_rows"] == totals.kept + sum(totals.rejected.values())
    fill = 1 - totals.padding / totals.slots
    assert fill >= measured["least_fill"]
    assert measured["peak_bytes"] < 2**30
    print(
        f"\nalpaca_en_52k, tokenizer llama-3, block 2048, one process: {totals.rows} rows = {totals.kept} kept + {totals.rejected}; "
        f"{totals.documents} documents, {totals.tokens} tokens, {totals.trained} trained, {totals.blocks} blocks, "
        f"fill {fill:.4%}, peak {measured['peak_bytes'] / 2**20:.0f} MiB, {measured['seconds']:.1f} s"
    )
    assert verify(folder, level="full").ok


def test_every_trained_run_of_alpaca_is_the_output_and_its_terminator(
    alpaca: tuple[Path, dict[str, float]], real: Path
) -> None:
    folder, measured = alpaca
    backend = Tokenizer.from_file(str(real / "tokenizers" / "llama-3" / "tokenizer.json"))
    with (real / "corpora" / "alpaca_en_52k.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in itertools.islice(lines, int(measured["num_rows"]))]
    cache = Cache.open(folder)
    documents = cache.documents("train")
    runs, expected = [], []
    _, file_rows = documents.origins()
    for number in range(len(documents)):
        document = read_document(documents, number)
        assert len(document.span_start) == 1
        start, end = int(document.span_start[0]), int(document.span_end[0])
        assert (document.labels[start:end] == document.input_ids[start:end]).all()
        assert (document.labels[:start] == -100).all() and (document.labels[end:] == -100).all()
        runs.append(document.input_ids[start:end].tolist())
        # both Llama templates trim what it renders
        expected.append(rows[file_rows[number]]["output"].strip() + "<|eot_id|>")
    assert backend.decode_batch(runs, skip_special_tokens=False) == expected
    assert (
        len(runs) == cache.manifest.totals.kept == measured["num_rows"] - sum(cache.manifest.totals.rejected.values())
    )


@pytest.mark.slow
def test_buckets_save_the_padding_that_the_documentation_says(real: Path, tmp_path: Path) -> None:
    """docs/explanation/reading.md: micro-batches of 8 of the 51,969 alpaca documents."""
    pytest.importorskip("torch", reason="TORCH MISSING: padding is not measured")
    from packer.load import PackedLoader

    values = {
        "sources": [{"path": str(real / "corpora" / "alpaca_en_52k.jsonl")}],
        "tokenizer": str(real / "tokenizers" / "llama-3"),
        "pack": {"mode": "none"},
    }
    build(make_recipe(values), tmp_path / "cache")
    shares = {}
    for order in ("random", "length_bucketed"):
        options = {"micro_batch_size": 8, "global_batch_size": 64, "end": "pad", "rank": 0, "world_size": 1}
        loader = PackedLoader(tmp_path / "cache", batching="padded", order=order, **options)
        for _ in loader:
            pass
        assert loader.counters.rows == 51_969
        shares[order] = 100 * loader.counters.padding_share
    assert 45 < shares["random"] < 46
    assert 0.3 < shares["length_bucketed"] < 0.6


def corpora(real: Path) -> list[str]:
    listed = [f"{name}.jsonl" for name in LISTED]
    folders = [
        f"{path.parent.name}/{path.name}"
        for name in ("formats", "llamafactory")
        for path in sorted((real / "corpora" / name).glob("*.jsonl"))
    ]
    return listed + folders


@pytest.mark.parametrize(
    ("tokenizers", "limit", "least_kept"),
    [
        (("minimind",), 4, 10),
        pytest.param(("minimind",), WHOLE, 5_000, marks=pytest.mark.slow),
        pytest.param(("qwen3", "llama-3"), WHOLE, 10_000, marks=pytest.mark.slow),
    ],
)
def test_every_listed_corpus_is_built_or_rejected_with_reasons(
    tokenizers: tuple[str, ...], limit: int | None, least_kept: int, real: Path, tmp_path: Path
) -> None:
    table, kept = [], 0
    for tokenizer in tokenizers:
        for number, corpus in enumerate(corpora(real)[:: 1 if limit is WHOLE else 4]):
            folder = tmp_path / f"{tokenizer}-{number}"
            try:
                # Small files, so that loading a second encoder for each would be most of the time.
                keys = ("supervision.history_rewrite=as_rendered", "pack.block_len=16384", "engine=reference")
                result = build_real(real, corpus, tokenizer, folder, *keys, limit=limit)
            except PackerError as error:
                assert error.exit_code == 3 and error.hint, f"{corpus}: {error}"
                assert not (folder / "manifest.json").exists()
                table.append(f"{tokenizer:8} {corpus:45} {error.message[:110]}")
                continue
            assert result.manifest is not None
            totals = result.manifest.totals
            assert totals.rows == totals.kept + sum(totals.rejected.values())
            assert verify(folder).ok
            kept += totals.kept
            table.append(
                f"{tokenizer:8} {corpus:45} rows {totals.rows:5} documents {totals.documents:5} tokens {totals.tokens:8} {totals.rejected or ''} {sorted(totals.cut) or ''}"
            )
    print("", *table, sep="\n")
    assert kept > least_kept
