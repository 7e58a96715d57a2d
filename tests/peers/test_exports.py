"""Exports, read by the libraries of the trainers they are for. `make peers` installs these."""

import sys
import types
from collections import Counter

import numpy as np
import pytest
from export import readers

from packer.export.run import export

pytestmark = pytest.mark.filterwarnings("default")


def _frozen(documents):
    return Counter((tuple(ids), tuple(labels)) for ids, labels in documents)


def test_megatron_reads_the_documents_and_their_mask(starter_cache, tmp_path):
    indexed = pytest.importorskip(
        "megatron.core.datasets.indexed_dataset", reason="PEER MISSING: megatron-core; make peers", exc_type=ImportError
    )
    export(starter_cache, tmp_path / "out", to="megatron", separate_mask=True)
    for split in ("train", "eval"):
        expected = readers.cache_documents(starter_cache, split)
        tokens = indexed.IndexedDataset(str(tmp_path / f"out/{split}_text_document"))
        masks = indexed.IndexedDataset(str(tmp_path / f"out/{split}_loss_mask_document"))
        assert len(tokens) == len(masks) == len(expected) > 0
        assert tokens.document_indices.tolist() == list(range(len(expected) + 1))
        for i, (ids, labels) in enumerate(expected):
            assert tokens[i].tolist() == ids
            assert masks[i].tolist() == [int(label != -100) for label in labels]


def test_olmo_core_packs_the_documents_with_their_targets(starter_cache, tmp_path):
    data = pytest.importorskip("olmo_core.data", reason="PEER MISSING: ai2-olmo-core; make peers", exc_type=ImportError)
    from olmo_core.data.utils import get_labels

    found = export(starter_cache, tmp_path / "out", to="olmo", split="train")
    details, length = found.splits[0].details, 1024
    dataset = data.NumpyPackedFSLDataset(
        *[str(tmp_path / "out" / path) for path in details["paths"]],
        label_mask_paths=[str(tmp_path / "out" / path) for path in details["label_mask_paths"]],
        sequence_length=length,
        pad_token_id=4089,
        eos_token_id=4091,
        vocab_size=4096,
        dtype=getattr(np, details["dtype"]),
        generate_doc_lengths=True,
        use_array_if_local=False,
    )
    dataset.work_dir = tmp_path / "work"
    dataset.prepare()
    seen = []
    for number in range(len(dataset)):
        row = dataset[number]
        targets = get_labels({"input_ids": row["input_ids"][None], "label_mask": row["label_mask"][None]})[0]
        at = 0
        for size in row["doc_lens"].tolist():
            ids = row["input_ids"][at : at + size].tolist()
            # The target of the token before: what OLMo-core trains of each token but a document's first.
            labels = [-100, *targets[at : at + size - 1].tolist()]
            if set(ids) != {4089}:
                seen.append((ids, labels))
            at += size
        assert targets[np.cumsum(row["doc_lens"]) - 1].tolist() == [-100] * len(row["doc_lens"]), (
            "no target across a border"
        )
    expected = readers.cache_documents(starter_cache, "train")
    assert max(len(ids) for ids, _ in expected) <= length
    assert _frozen(seen) == _frozen(expected)


def test_olmo_core_reads_blocks_of_one_run_as_they_are(starter_cache, tmp_path):
    data = pytest.importorskip("olmo_core.data", reason="PEER MISSING: ai2-olmo-core; make peers", exc_type=ImportError)
    from packer.pipeline.repacking import repack

    repack(starter_cache, tmp_path / "cache", {"mode": "eos", "block_len": 512}, (), jobs=1)
    details = export(tmp_path / "cache", tmp_path / "out", to="olmo", unit="blocks", split="train").splits[0].details
    dataset = data.NumpyFSLDataset(
        *[str(tmp_path / "out" / path) for path in details["paths"]],
        label_mask_paths=[str(tmp_path / "out" / path) for path in details["label_mask_paths"]],
        sequence_length=details["sequence_length"],
        pad_token_id=4089,
        eos_token_id=4091,
        vocab_size=4096,
        dtype=getattr(np, details["dtype"]),
    )
    dataset.work_dir = tmp_path / "work"
    dataset.prepare()
    blocks = readers.cache_blocks(tmp_path / "cache", "train")
    assert len(dataset) == len(blocks) > 10
    for number, block in enumerate(blocks):
        assert dataset[number]["input_ids"].tolist() == block["input_ids"]
        assert dataset[number]["label_mask"].tolist() == [label != -100 for label in block["labels"]]


@pytest.fixture
def streaming(monkeypatch):
    # Its parts for pictures need torchvision, which is nothing to these tests.
    for name in ("streaming.vision", "streaming.multimodal"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    return pytest.importorskip("streaming", reason="PEER MISSING: mosaicml-streaming; make peers", exc_type=ImportError)


def test_mosaicml_streaming_reads_the_turns(starter_cache, tmp_path, streaming):
    export(starter_cache, tmp_path / "out", to="mds")
    for split in ("train", "eval"):
        dataset = streaming.StreamingDataset(local=str(tmp_path / "out"), split=split, batch_size=1, shuffle=False)
        samples = [dataset[i]["turns"] for i in range(len(dataset))]
        expected = readers.cache_documents(starter_cache, split)
        assert [readers.stitched(turns) for turns in samples] == expected and expected
