"""Packing real documents in every mode: each token once, no target across a border, and the blocks classic packing gives."""

from pathlib import Path

import numpy as np
import pytest
from pack.oracles import best_fit_count, first_fit_count
from packed_again import packed_again
from packed_caches import check_packing

from packer.audit import stats, verify
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache

pytestmark = pytest.mark.real

CORPORA = {
    "short": ("multilingual_chat_a.jsonl", "llama-3", 400),
    "long": ("reason_tool_use_openai_50.jsonl", "qwen3", 40),
}
"""Corpus, tokenizer and rows: documents of some fifty tokens, and of some thousands."""


@pytest.fixture(scope="module", params=["short", pytest.param("long", marks=pytest.mark.slow)])
def documents(request, real: Path, tmp_path_factory) -> Path:
    corpus, tokenizer, rows = CORPORA[request.param]
    folder = tmp_path_factory.mktemp("real") / request.param
    recipe = {
        "sources": [{"path": str(real / "corpora" / corpus), "limit": rows}],
        "tokenizer": str(real / "tokenizers" / tokenizer),
        "engine": "reference",
        "supervision": {"history_rewrite": "as_rendered", "allow_dropped": ["reasoning"]},
        "pack": {"mode": "none"},
    }
    build(make_recipe(recipe), folder, jobs=1)
    return folder


RULES = [
    pytest.param({"mode": "isolated", "block_len": 512, "overlong": "split"}, marks=pytest.mark.slow),
    {"mode": "isolated", "block_len": 1024, "overlong": "truncate_left", "align": 16},
    {"mode": "eos", "block_len": 700, "overlong": "truncate_right", "strategy": "first_fit"},
    {"mode": "stream", "block_len": 512},
]


@pytest.mark.parametrize("pack", RULES, ids=lambda pack: pack["mode"] + str(pack["block_len"]))
def test_every_token_is_in_one_block_or_in_the_ledger(pack, documents, tmp_path):
    packed_again(documents, tmp_path / "again", pack)
    num_blocks, num_pieces, _ = check_packing(tmp_path / "again")
    assert num_blocks > 10 and num_pieces >= num_blocks
    report = verify(tmp_path / "again", level="full")
    assert report.ok, report.findings


@pytest.mark.parametrize("block_len", [512, 2048, 8192])
def test_blocks_are_as_many_as_classic_packing_needs(block_len, documents, tmp_path):
    with Cache.open(documents) as cache:
        lengths = cache.documents("train").lengths()
    fitting = lengths[lengths <= block_len].tolist()
    assert fitting
    for strategy, count in (("best_fit", best_fit_count), ("first_fit", first_fit_count)):
        packed_again(documents, tmp_path / strategy, {"mode": "isolated", "block_len": block_len, "strategy": strategy})
        assert stats(tmp_path / strategy).blocks == count(fitting, block_len)


def test_every_document_of_a_corpus_is_in_a_block(documents, tmp_path):
    packed_again(documents, tmp_path / "mixed", {"mode": "isolated", "block_len": 8192})
    with Cache.open(tmp_path / "mixed") as cache:
        blocks = cache.blocks("train")
        batch = blocks.read(np.arange(len(blocks)))
        assert len(batch.doc_ids) == len(cache.documents("train"))
