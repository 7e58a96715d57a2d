"""Shards are Arrow files that Hugging Face datasets loads as they are."""

from pathlib import Path

import numpy as np
import pytest
from store.samples import block_batch, document_batch, write_blocks, write_documents

from packer.layout import document_labels


def _load(files: list[Path], cache: Path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return datasets.load_dataset("arrow", data_files=[str(file) for file in files], cache_dir=str(cache), split="train")


def test_datasets_loads_document_shards(tmp_path: Path) -> None:
    batches = [document_batch(30, seed=seed) for seed in range(2)]
    shards = [write_documents(tmp_path, [batch]) for batch in batches]
    table = _load([tmp_path / shard.path for shard in shards], tmp_path / "hub")
    assert table.num_rows == 60
    row = 0
    for batch in batches:
        labels = document_labels(batch)
        for i in range(batch.num_documents):
            tokens = slice(batch.offsets[i], batch.offsets[i + 1])
            found = table[row]
            assert found["input_ids"] == batch.input_ids[tokens].tolist()
            assert found["labels"] == labels[tokens].tolist()
            assert found["sample_id"] == batch.sample_id[i]
            runs = slice(batch.run_offsets[i], batch.run_offsets[i + 1])
            assert [span["start"] for span in found["spans"]] == batch.run_start[runs].tolist()
            assert [span["end"] for span in found["spans"]] == batch.run_end[runs].tolist()
            row += 1
    assert row == 60


def test_datasets_loads_block_shards(tmp_path: Path) -> None:
    batches = [block_batch(10, seed=seed) for seed in range(4)]
    shards = [write_blocks(tmp_path, batches[i : i + 2], index=i) for i in (0, 2)]
    table = _load([tmp_path / shard.path for shard in shards], tmp_path / "hub")
    assert table.num_rows == 40
    names = ["input_ids", "labels", "position_ids", "length", "num_trained"]
    for name in names:
        expected = np.concatenate([getattr(batch, name) for batch in batches])
        np.testing.assert_array_equal(np.array(table[:][name]), expected)
    for name in ("doc_ids", "doc_starts", "seq_lengths"):
        expected = np.concatenate([getattr(batch, name) for batch in batches])
        assert [value for row in table[:][name] for value in row] == expected.tolist()
    assert "digest" in table.column_names
