"""Documents of real corpora, given back as rows of tokens, come to the very same cache."""

import json

import pytest
from token_rows import write_token_rows

from packer.audit import verify
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("corpus", "tokenizer", "limit"),
    [
        ("kdconv_zh_devtest.jsonl", "minimind", 60),
        pytest.param("kdconv_zh_devtest.jsonl", "minimind", None, marks=pytest.mark.slow),
        pytest.param("multilingual_chat_a.jsonl", "llama-3", None, marks=pytest.mark.slow),
        pytest.param("alpaca_en_52k.jsonl", "llama-3", 20_000, marks=pytest.mark.slow),
    ],
)
def test_the_documents_of_a_real_corpus_as_rows_of_tokens_are_the_same_cache(real, tmp_path, corpus, tokenizer, limit):
    values = {
        "sources": [{"path": str(real / "corpora" / corpus), "limit": limit}],
        "tokenizer": str(real / "tokenizers" / tokenizer),
        "pack": {"block_len": 4096, "overlong": "split"},
    }
    build(make_recipe(values), tmp_path / "chats", jobs=1)
    ((path, split),) = write_token_rows(tmp_path / "chats", tmp_path / "rows")
    given = make_recipe({**values, "sources": [{"path": path.as_posix(), "split": split}]})
    build(given, tmp_path / "tokens", jobs=1)
    was, now = (json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("chats", "tokens"))
    assert was["inputs"][0]["schema"] != "tokens" == now["inputs"][0]["schema"]
    assert now["content_fingerprint"] == was["content_fingerprint"]
    assert now["totals"]["kept"] == was["totals"]["kept"] > 20
    assert verify(tmp_path / "tokens", sources=["/"], reencode=True, threads=1).ok
