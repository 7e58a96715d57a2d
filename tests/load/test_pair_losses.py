"""The loss of pairs and its gradients, by the loop of docs/how-to/preference.md, are the same in every layout."""

import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")
pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: losses of pairs are not tested")

from preference_rows import built, long_pair, pair  # noqa: E402
from tiny_models import tiny_model  # noqa: E402
from torch.nn.functional import logsigmoid  # noqa: E402

from packer.load import PackedLoader, answer_logps  # noqa: E402

LAYOUTS = {
    "padded": {"batching": "padded", "micro_batch_size": 3, "global_batch_size": 12},
    "padding_free": {"batching": "padding_free", "micro_batch_size": 2, "global_batch_size": 12},
    "token_budget": {"batching": "token_budget", "micro_batch_size": 300, "global_batch_size": 3000},
}
"""All pairs in one step."""


@pytest.fixture(scope="module")
def pairs(starter, tmp_path_factory):
    rows = [pair(number) if number % 4 else long_pair(number) for number in range(7)]
    return built(tmp_path_factory.mktemp("pairs") / "cache", rows, starter / "tokenizer")


def logits_of(model, batch):
    if "cu_seq_lens_q" in batch:
        return model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
    return model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits


@pytest.fixture(scope="module")
def reference():
    return tiny_model(vocab_size=4096, seed=1)


def losses_of(batch, model, reference):
    chosen, rejected = answer_logps(logits_of(model, batch), batch)
    with torch.no_grad():
        expected_chosen, expected_rejected = answer_logps(logits_of(reference, batch), batch)
    return -logsigmoid(0.5 * (chosen - rejected - (expected_chosen - expected_rejected)))


def loss_and_gradients(pairs, reference, options, *, changed=dict, world_size=1):
    """Of one step, as DDP makes them of its ranks: their mean."""
    model = tiny_model(vocab_size=4096)
    total = 0.0
    for rank in range(world_size):
        own = {"rank": rank, "world_size": world_size, "end": "pad", "prefetch": 0}
        (step,) = PackedLoader(pairs, **options, **own)
        assert step.num_pairs == 7
        for batch in step:
            loss = losses_of(changed(batch), model, reference).sum() / step.num_pairs
            loss.backward()
            total += loss.item()
    return total, torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.fixture(scope="module")
def right(pairs, reference):
    return loss_and_gradients(pairs, reference, LAYOUTS["padded"])


def test_losses_and_gradients_are_the_same_in_every_layout_and_on_two_ranks(pairs, reference, right):
    loss, gradients = right
    assert abs(loss - 0.6931) > 1e-2 and gradients.abs().max() > 1e-2
    for name, options in LAYOUTS.items():
        found, own = loss_and_gradients(pairs, reference, options, world_size=2)
        assert found == pytest.approx(loss, abs=1e-12), name
        torch.testing.assert_close(own, gradients, rtol=0, atol=1e-12)


def test_positions_that_run_on_move_the_loss(pairs, reference, right):
    def leaking(batch):
        return batch | {"position_ids": torch.arange(batch["input_ids"].shape[1])[None]}

    wrong, _ = loss_and_gradients(pairs, reference, LAYOUTS["padding_free"], changed=leaking)
    assert abs(wrong - right[0]) > 1e-3


def test_a_last_token_that_is_not_learned_moves_the_loss(pairs, reference, right):
    def without_last(batch):
        mask = batch["completion_mask"]
        last = mask.bool() & ~torch.nn.functional.pad(mask[:, 1:], (0, 1)).bool()
        return batch | {"completion_mask": mask * ~last}

    for layout in ("padded", "padding_free"):
        wrong, _ = loss_and_gradients(pairs, reference, LAYOUTS[layout], changed=without_last)
        assert abs(wrong - right[0]) > 1e-4
