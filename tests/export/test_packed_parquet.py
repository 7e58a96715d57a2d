"""Blocks as Megatron-Bridge stores them, against a literal reading of the cache's own blocks.

The format is what `megatron.bridge.data.packing` has in commit 067f987d of Megatron-Bridge (`fill_packing_strategy` and
`write_packed_parquet` write it, `GPTSFTPackedDataset.collate_fn` reads it); tests/peers runs its reader.
"""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from export import readers
from small_blocks import Document, pack_literally

from packer.errors import UsageError
from packer.export.packed_parquet import sequences, write
from packer.export.run import Files, export
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe

EOS = 9
READS = ("input_ids", "loss_mask", "seq_start_id")


def literal_rows(blocks, *, align, eos):
    """(ids, mask, starts) of each block: its sequences without the padding behind them."""
    for block in blocks:
        pieces = list(zip(block["doc_places"], block["doc_lengths"], strict=True))
        ids, mask, starts, at = [], [], [], 0
        for length in block["seq_lengths"]:
            end = max((place + n for place, n in pieces if at <= place < at + length), default=at)
            if end > at:
                starts.append(len(ids))
                ids += block["input_ids"][at:end]
                mask += [int(label != -100) for label in [*block["labels"][at + 1 : end], -100]]
                while (len(ids) - starts[-1] - 1) % align:
                    ids.append(eos)
                    mask.append(0)
            at += length
        yield ids, mask, starts


@pytest.mark.parametrize(("mode", "align"), [("isolated", 1), ("isolated", 8), ("stream", 1)])
def test_rows_are_the_sequences_of_blocks_with_the_mask_of_the_next_token(mode, align, starter, tmp_path, monkeypatch):
    monkeypatch.setattr("packer.export.run._TOKENS", 1024)  # several row groups
    sources = [{"path": str(starter / "data" / f"{name}.jsonl"), "split": split, "limit": 40}
               for name, split in (("chat", "train"), ("tools", "eval"))]  # fmt: skip
    pack = {"block_len": 512, "mode": mode, "align": align}
    recipe = make_recipe({"sources": sources, "tokenizer": str(starter / "tokenizer"), "pack": pack})
    build(recipe, tmp_path / "cache", jobs=1, fail_above=1)
    found = export(tmp_path / "cache", tmp_path / "out", to="megatron-bridge")
    specs = f"packed_sequence_size=512, pad_seq_to_mult={align}"
    eos = json.loads((tmp_path / "cache" / "manifest.json").read_text())["model"]["eos_id"]
    metadata = json.loads((tmp_path / "out" / "metadata.json").read_text())
    for each, packing in zip(found.splits, metadata, strict=True):
        table = pq.read_table(tmp_path / "out" / f"{each.split}.idx.parquet")
        rows = [tuple(row[name] for name in READS) for row in table.to_pylist()]
        assert rows == list(literal_rows(readers.cache_blocks(tmp_path / "cache", each.split), align=align, eos=eos))
        assert sum(sum(mask) for _, mask, _ in rows) == each.num_trained > 0
        assert [str(field.type.value_type) for field in table.schema] == ["int32", "int8", "int32"]
        inputs = [np.diff([*starts, len(ids)]) - 1 for ids, _, starts in rows]
        assert all(lengths.sum() <= 512 and not (lengths % align).any() for lengths in inputs)
        assert packing == {
            "dataset_max_seqlen": max(lengths.max() for lengths in inputs),
            "max_samples_per_bin": max(map(len, inputs)),
            "packing_factor": pytest.approx(np.mean([len(lengths) for lengths in inputs]), abs=0.005),
            "packing_efficiency": pytest.approx(np.mean([lengths.sum() for lengths in inputs]) / 5.12, abs=0.005),
            "pack_size": 512,
            "min_packed_seqlen": min(lengths.sum() for lengths in inputs),
        }
    assert found.notes == (f"Megatron-Bridge reads it with PackedSequenceSpecs({specs}, …)",)


def document(*ids, trained):
    ids = np.array(ids, np.int32)
    labels = np.where(np.isin(np.arange(len(ids)), trained), ids, -100).astype(np.int32)
    return Document(ids, labels)


def test_a_token_that_it_would_not_train_is_refused():
    """What follows an EOS: its reader masks that up to version 0.6, and later takes an EOS at the end for padding."""
    sequences(pack_literally([[document(5, EOS, 6, 7, EOS, trained=[1, 3, 4])]], 8), 1, EOS)
    with pytest.raises(UsageError, match="right after an EOS is trained"):
        sequences(pack_literally([[document(5, EOS, 6, 7, trained=[2])]], 8), 1, EOS)


def test_padding_that_it_could_not_tell_from_tokens_is_refused(tmp_path):
    manifest = SimpleNamespace(recipe={"pack": {"align": 2}}, model=SimpleNamespace(eos_id=None))
    rows = SimpleNamespace(cache=SimpleNamespace(manifest=manifest), split="train")
    with Files(tmp_path) as files, pytest.raises(UsageError, match="has no EOS"):
        write(files, rows, iter(()))


def test_documents_that_it_has_no_place_for_are_refused(starter, tmp_path):
    answer = {"role": "assistant", "content": "Half."}
    data = [{"messages": [{"role": "user", "content": f"{n}?"}, answer]} for n in range(3)]
    pack = {"mode": "none"}
    build(data, tmp_path / "cache", tokenizer=starter / "tokenizer", pack=pack, jobs=1, progress=None)
    with pytest.raises(UsageError, match="has no blocks") as caught:
        export(tmp_path / "cache", tmp_path / "out", to="megatron-bridge")
    assert "--to datasets" in caught.value.hint
