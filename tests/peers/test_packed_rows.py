"""Megatron-Bridge's and SkyRL's own readers over an export: same tokens, same mask, same loss as packer's own reader.

Their modules that read and collate run as they are installed. The ``__init__`` of the packages around them do not, as
they ask for Triton, Ray and a GPU; of Megatron-Bridge, the type of the tokenizer and the rank are stand-ins.
"""

import json
import sys
import types
from importlib.machinery import PathFinder
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: trainers are not tested")

from export import readers  # noqa: E402
from tiny_decoder import TinyDecoder, causal, summed_loss  # noqa: E402

from packer.export.run import export  # noqa: E402
from packer.load import PackedLoader  # noqa: E402
from packer.load.attention import block_diagonal_mask, document_ids  # noqa: E402
from packer.pipeline.from_python import build  # noqa: E402
from packer.recipe.recipe import make_recipe  # noqa: E402

pytestmark = pytest.mark.slow


def opened(name):
    """Return a package whose modules can be imported, without running its ``__init__``."""
    parent = name.rpartition(".")[0]
    spec = PathFinder.find_spec(name, sys.modules[parent].__path__ if parent else None)
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip(f"PEER MISSING: {name}; make peers")
    package = types.ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    return package


@pytest.fixture
def without_inits(monkeypatch):
    def replaced(*names, **stand_ins):
        for name in names:
            monkeypatch.setitem(sys.modules, name, opened(name))
        for name, members in stand_ins.items():
            monkeypatch.setitem(sys.modules, name, SimpleNamespace(**members))

    before = {*sys.modules}
    yield replaced
    for name in {*sys.modules} - before:
        if name.split(".")[0] in {"megatron", "skyrl"}:
            del sys.modules[name]


@pytest.fixture(scope="module", params=[1, 8], ids=["plain", "aligned"])
def cache(request, starter, tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed") / "cache"
    sources = [{"path": str(starter / "data" / "chat.jsonl"), "limit": 60}]
    pack = {"block_len": 384, "align": request.param}
    build(make_recipe({"sources": sources, "tokenizer": str(starter / "tokenizer"), "pack": pack}), folder, jobs=1)
    return folder


@pytest.fixture(scope="module")
def model():
    return TinyDecoder(vocab_size=4096).eval()


def loss_of_targets(logits, targets, mask):
    """Summed over the targets with a mask of 1; each stands where it is predicted."""
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return float((losses * mask.flatten()).sum())


@torch.no_grad()
def own_loss(cache, model):
    """Of all blocks, as packer's reader gives them."""
    total = trained = 0
    with PackedLoader(cache, micro_batch_size=1, global_batch_size=1, order="sequential", end="short") as loader:
        for step in loader:
            for batch in step:
                mask = block_diagonal_mask(document_ids(batch["cu_seq_lens_q"]))[None, None]
                labels = batch["labels"]
                total += float(summed_loss(model(batch["input_ids"], batch["position_ids"], mask), labels))
                trained += int((labels[:, 1:] != -100).sum())
    return total, trained


@pytest.fixture
def megatron_bridge(without_inits):
    common = {"get_local_rank_preinit": lambda: 0}
    for name in ("megatron", "megatron.core", "megatron.bridge", "megatron.bridge.data"):
        without_inits(name)
    without_inits(
        **{
            "megatron.bridge.utils.common_utils": common,
            "megatron.bridge.training.tokenizers.tokenizer": {"MegatronTokenizer": object},
        }
    )
    from megatron.bridge.data.packing.parquet import GPTSFTPackedParquetDataset

    return GPTSFTPackedParquetDataset


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_megatron_bridge_trains_the_tokens_of_blocks(cache, model, megatron_bridge, tmp_path):
    """Its dataset and its collator, with and without the padding of context parallelism, with CUDA graphs' shapes."""
    export(cache, tmp_path / "out", to="megatron-bridge")
    manifest = json.loads((cache / "manifest.json").read_text())
    align, eos = manifest["recipe"]["pack"].get("align", 1), manifest["model"]["eos_id"]
    dataset = megatron_bridge(
        file_path=str(tmp_path / "out" / "train.idx.parquet"),
        tokenizer=SimpleNamespace(eos_id=eos, eod=eos),
        pack_metadata_file_path=str(tmp_path / "out" / "metadata.json"),
        pad_cu_seqlens=True,
        pad_to_max_length=True,
        pad_seq_to_mult=align,
        max_seq_length=384,
        prompt_template="{input} {output}",
        label_key="output",
        truncation_field="input",
    )
    blocks = readers.cache_blocks(cache, "train")
    assert len(dataset) == len(blocks) > 3
    total = trained = 0
    for number, block in enumerate(blocks):
        row = dataset[number]
        dataset.validate_row(number, row["input_ids"], row["loss_mask"], row["seq_boundaries"][:-1])
        batch = dataset.collate_fn([row])
        assert batch["tokens"].shape == (1, 384)
        bounds = batch.get("cu_seqlens_q_padded", batch["cu_seqlens_q"])[0]
        mask = block_diagonal_mask(document_ids(bounds.unique()))[None, None]
        logits = model(batch["tokens"], batch["position_ids"], mask)
        total += loss_of_targets(logits, batch["labels"], batch["loss_mask"])
        trained += int(batch["loss_mask"].sum())
        documents = zip(block["doc_places"], block["doc_lengths"], strict=True)
        for (place, length), start in zip(documents, row["seq_boundaries"], strict=False):
            assert row["input_ids"][start : start + length] == block["input_ids"][place : place + length]
        if align > 1:
            seen = batch["cu_seqlens_q"][0].diff()[: len(block["doc_lengths"])]
            # an EOS at the very end is no input, or predicts nothing
            assert all(0 <= n - 1 - s <= 1 for n, s in zip(block["doc_lengths"], seen.tolist(), strict=True))
    assert trained == own_loss(cache, model)[1] > 100
    assert total == pytest.approx(own_loss(cache, model)[0], abs=1e-6)


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_skyrl_trains_the_tokens_of_documents(cache, model, without_inits, tmp_path):
    """From its loading of pretokenized data to its packed batch."""
    pytest.importorskip("loguru", reason="PEER MISSING: SkyRL; make peers")
    names = ("skyrl", "skyrl.train", "skyrl.train.dataset", "skyrl.backends", "skyrl.backends.skyrl_train")
    for name in names:
        without_inits(name)
    from skyrl.train.dataset.collators import PackedDataCollator
    from skyrl.train.dataset.pretokenized import load_from_pretokenized

    export(cache, tmp_path / "out", to="skyrl")
    rows = list(load_from_pretokenized(str(tmp_path / "out")))
    documents = readers.cache_documents(cache, "train")
    assert [row["input_ids"] for row in rows] == [ids for ids, _ in documents]
    sizes = {"tp_size": 1, "pp_size": 1, "cp_size": 1, "dp_size": 1, "micro_train_batch_size_per_gpu": 1}
    tokenizer = SimpleNamespace(pad_token_id=0)
    collate = PackedDataCollator(tokenizer, max_tokens_per_microbatch=512, batch_size=len(rows), **sizes)
    batch = collate(rows, len(rows))
    trained = sum(label != -100 for _, labels in documents for label in labels)
    total = 0.0
    for number, lengths in enumerate(batch["sub_seq_lengths"]):
        ids, mask = batch["sequences"][number], batch["loss_mask"][number]
        places = np.cumsum([0, *lengths.tolist()]).tolist()
        for place, end in pairwise(places):
            part = ids[place:end][None]
            logits = model(part, torch.arange(end - place)[None], causal(end - place))[:, :-1]
            total += loss_of_targets(logits, part[:, 1:], mask[place : end - 1])
    assert total * trained == pytest.approx(own_loss(cache, model)[0], rel=1e-6)
