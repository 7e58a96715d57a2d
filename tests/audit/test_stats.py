"""Stats: every number equals one counted literally from the Arrow files."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from packed_again import packed_again
from packed_caches import table

from packer.audit.stats import count_lengths, stats
from packer.errors import CheckError


def test_totals_equal_a_literal_count(starter_cache):
    found = stats(starter_cache)
    documents = [table(starter_cache, "documents", split) for split in ("train", "eval")]
    blocks = [table(starter_cache, "blocks", split) for split in ("train", "eval")]
    labels = [label for part in documents for row in part for label in row["labels"]]
    lines = [json.loads(line) for line in (starter_cache / "rejected.jsonl").read_text().splitlines()]
    codes = Counter(line["code"] for line in lines if "document" not in line)
    assert found.totals.rows == 200
    assert found.totals.kept == 200 - sum(codes.values())
    assert found.totals.rejected == codes
    assert found.documents == sum(map(len, documents))
    assert found.tokens == len(labels)
    assert found.trained == sum(label != -100 for label in labels)
    assert found.trained_share == found.trained / found.tokens
    assert found.totals.blocks == sum(map(len, blocks))
    in_blocks = sum(row["length"] for part in blocks for row in part)
    assert found.totals.slots == found.totals.blocks * 512
    assert found.totals.padding == found.totals.slots - in_blocks
    assert found.fill == in_blocks / found.totals.slots
    assert found.cut_tokens == found.tokens - in_blocks
    files = [path for path in starter_cache.rglob("*") if path.is_file() and ".packer" not in path.parts]
    assert sum(found.num_bytes.values()) == sum(path.stat().st_size for path in files)


def test_splits_equal_a_literal_count(starter_cache):
    found = {split.split: split for split in stats(starter_cache).splits}
    assert list(found) == ["train", "eval"]
    assert (found["train"].kept, found["eval"].kept) == (172, 25)
    for name, split in found.items():
        documents, blocks = table(starter_cache, "documents", name), table(starter_cache, "blocks", name)
        lengths = sorted(len(row["input_ids"]) for row in documents)
        assert split.documents == len(lengths)
        assert split.tokens == sum(lengths)
        assert split.trained == sum(row["num_trained"] for row in documents)
        assert split.packed_tokens == sum(row["length"] for row in blocks)
        assert split.slots == 512 * len(blocks)
        assert (split.lengths.min, split.lengths.max) == (lengths[0], lengths[-1])


@pytest.mark.parametrize("lengths", [[1], [3, 5, 6, 9], [1, 2, 3, 4, 7, 8, 15, 16, 1_000_000], list(range(1, 101))])
def test_quantiles_equal_a_literal_count(lengths):
    found = count_lengths(np.array(lengths, np.int32))
    ordered = sorted(lengths)

    def quantile(share):
        return next(n for i, n in enumerate(ordered, 1) if i >= share * len(ordered))

    assert (found.min, found.max) == (ordered[0], ordered[-1])
    assert [found.p10, found.p50, found.p90, found.p99] == [quantile(share) for share in (0.1, 0.5, 0.9, 0.99)]


def test_no_documents_have_no_lengths():
    assert count_lengths(np.zeros(0, np.int32)) is None


def test_documents_that_fit_no_block_are_counted_with_their_tokens(starter_cache, tmp_path):
    packed_again(starter_cache, tmp_path / "cache", {"block_len": 64})
    found = stats(tmp_path / "cache")
    documents, blocks = (
        table(tmp_path / "cache", kind, "train") + table(tmp_path / "cache", kind, "eval")
        for kind in ("documents", "blocks")
    )
    lengths = [len(row["input_ids"]) for row in documents]
    overlong = [length for length in lengths if length > 64]
    assert overlong
    ((code, cut),) = found.totals.cut.items()
    assert (code, cut.documents, cut.parts) == ("overlong", len(overlong), len(overlong))
    assert found.cut_tokens == sum(overlong)
    assert cut.trained == found.trained - sum(row["num_trained"] for row in blocks)


def test_a_cache_without_blocks_has_numbers_too(starter_cache, tmp_path):
    packed_again(starter_cache, tmp_path / "cache", {"mode": "none"})
    found = stats(tmp_path / "cache")
    assert found.manifest.recipe["pack"]["mode"] == "none"
    assert (found.totals.blocks, found.totals.slots, found.fill) == (0, 0, 0.0)
    assert found.documents == sum(split.documents for split in found.splits) > 0


def test_what_rules_leave_out_is_on_disk_and_in_no_other_number(starter_cache, tmp_path):
    rules = ["filters=[{name: long, of: answers, chars: {min: 200}}]"]
    packed_again(starter_cache, tmp_path / "cache", {}, rules)
    found = stats(tmp_path / "cache")
    assert 0 < sum(split.kept for split in found.splits) < found.totals.kept
    for name in ("documents", "tokens", "trained"):
        assert getattr(found, name) == sum(getattr(split, name) for split in found.splits)
    blocks = [row for split in found.splits for row in table(tmp_path / "cache", "blocks", split.split)]
    in_blocks = sum(row["length"] for row in blocks)
    assert found.cut_tokens == found.tokens - in_blocks
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and ".packer" not in path.parts]
    assert any(path.parent.name == "rows" for path in files)
    assert sum(found.num_bytes.values()) == sum(path.stat().st_size for path in files)


def test_a_missing_file_is_said(starter_cache, tmp_path):
    cache = Path(shutil.copytree(starter_cache, tmp_path / "cache"))
    (cache / "rejected.jsonl").unlink()
    with pytest.raises(CheckError, match=r"rejected\.jsonl"):
        stats(cache)
