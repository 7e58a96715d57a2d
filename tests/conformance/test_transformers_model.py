"""A real Hugging Face model keeps packed documents apart when fed what the adapter gives, and not otherwise."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")
transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: conformance is not tested")

from small_blocks import pack_literally, random_documents, write_cache  # noqa: E402

from packer.load import PackedLoader  # noqa: E402
from packer.load.adapters import huggingface  # noqa: E402

LENGTHS = [[5, 9, 1, 4], [7, 7], [2, 3, 12]]
BLOCK_LEN = 20


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(0)
    return [random_documents(rng, lengths) for lengths in LENGTHS]


@pytest.fixture(scope="module")
def micro_batch(documents, tmp_path_factory):
    folder = write_cache(tmp_path_factory.mktemp("cache"), [pack_literally(documents, BLOCK_LEN)])
    options = {"micro_batch_size": 3, "global_batch_size": 3, "rank": 0, "world_size": 1, "order": "sequential"}
    ((batch,),) = PackedLoader(folder, **options)
    return batch


def model_of(attention):
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation=attention,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).double().eval()


def logits_alone(model, document):
    ids = torch.from_numpy(document.input_ids.astype(np.int64))[None]
    return model(input_ids=ids, use_cache=False).logits[0].detach()


def summed_loss_alone(model, document):
    return float(
        torch.nn.functional.cross_entropy(
            logits_alone(model, document)[:-1].float(),
            torch.from_numpy(document.labels.astype(np.int64))[1:],
            reduction="sum",
        )
    )


def largest_difference(model, logits, documents):
    """Between packed logits [T, V] and those of each document alone."""
    differences = []
    for row, rows in enumerate(documents):
        place = row * BLOCK_LEN
        for document in rows:
            expected = logits_alone(model, document)
            differences.append((logits[place : place + len(expected)] - expected).abs().max())
            place += len(expected)
    return torch.stack(differences).max().item()  # unlike Python's max, NaN where any is NaN


@pytest.mark.parametrize(("attention", "tolerance"), [("eager", 1e-6), ("sdpa", 1e-9)])
def test_packed_logits_equal_those_of_single_documents(attention, tolerance, documents, micro_batch):
    """In float64, except that transformers' eager attention takes its softmax in float32."""
    model = model_of(attention)
    logits = model(**huggingface(micro_batch, model.config)).logits[0].detach()
    assert largest_difference(model, logits, documents) < tolerance


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_models_own_loss_is_the_sum_over_documents_divided_by_the_items(attention, documents, micro_batch):
    model = model_of(attention)
    losses = [summed_loss_alone(model, document) for rows in documents for document in rows]
    num_items = sum(int((document.labels != -100).sum()) for rows in documents for document in rows)
    loss = model(**huggingface(micro_batch, model.config, num_items_in_batch=2 * num_items)).loss
    assert loss.item() == pytest.approx(
        sum(losses) / (2 * num_items), rel=1e-5
    )  # transformers takes the loss in float32
    assert model(**huggingface(micro_batch, model.config)).loss.item() == pytest.approx(
        sum(losses) / num_items, rel=1e-5
    )


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_mask_of_ones_or_a_cache_lets_neighbors_attend_to_each_other(attention, documents, micro_batch):
    """What the adapter guards against, so that a transformers release that changes it is noticed."""
    model = model_of(attention)
    arguments = huggingface(micro_batch, None)
    cached = model(**{**arguments, "use_cache": True}).logits[0].detach()
    masked = model(**arguments, attention_mask=torch.ones_like(arguments["input_ids"])).logits[0].detach()
    assert largest_difference(model, cached, documents) > 1e-3
    assert largest_difference(model, masked, documents) > 1e-3
