"""TRL's trainers of preference data on tiny models: batches, losses, gradients."""

import copy

import pytest
import torch
import transformers
import trl
from tiny_models import tiny_config
from trainer_runs import arguments


def policy_and_reference(vocab_size=4096):
    """Two models that differ: where they are equal, every loss is the same, whatever is masked."""
    torch.manual_seed(0)
    reference = transformers.AutoModelForCausalLM.from_config(
        tiny_config(vocab_size=vocab_size, max_position_embeddings=8192)
    ).train()
    policy = copy.deepcopy(reference)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return policy, reference


PLAIN = {"max_length": None, "bf16": False, "gradient_checkpointing": False, "optim": "sgd"}
PLAIN |= {"train_sampling_strategy": "sequential", "per_device_train_batch_size": 4}


def reward_trainer_of(kind, folder, train_dataset, tokenizer, *, pad_token=None, eval_dataset=None, **options):
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tokenizer)
    tokenizer.pad_token = pad_token or tokenizer.pad_token
    torch.manual_seed(0)
    config = tiny_config(vocab_size=len(tokenizer), num_labels=1, max_position_embeddings=8192)
    return kind(
        transformers.AutoModelForSequenceClassification.from_config(config).train(),
        args=arguments(folder, trl.RewardConfig, **(PLAIN | options)),
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        processing_class=tokenizer,
    )


def trainer_of(kind, folder, train_dataset, tokenizer, *, reference=True, eval_dataset=None, **options):
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tokenizer)
    policy, model = policy_and_reference(len(tokenizer))
    config = trl.DPOConfig if issubclass(kind, trl.DPOTrainer) else trl.KTOConfig
    plain = {**PLAIN, "beta": 0.5}
    return kind(
        policy,
        ref_model=model if reference else None,
        args=arguments(folder, config, **(plain | options)),
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        processing_class=tokenizer,
    )


def batches_of(trainer):
    return [dict(batch) for batch in trainer.get_train_dataloader()]


def loss_and_gradients(trainer, batch):
    trainer.model.zero_grad()
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in trainer.model.parameters()])
    return loss.item(), gradients.clone()


def same_batches(found, expected):
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, values in other.items():
            assert torch.equal(one[name], values), name


def per_side(trainer, batch):
    """Summed log-probabilities of each row, under the reference."""
    return torch.cat(trainer.compute_ref_log_probs(trainer.ref_model, batch))


def same_losses(ours, own, found, expected):
    """A loss that sees the prompt, one that does not, and their gradients, of one batch of each."""
    for loss_type in ("sigmoid", "sft"):
        ours.loss_types = own.loss_types = [loss_type]
        loss, gradients = loss_and_gradients(ours, found)
        expected_loss, expected_gradients = loss_and_gradients(own, expected)
        assert loss == pytest.approx(expected_loss, abs=1e-5), loss_type
        torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=2e-5)
        assert gradients.abs().max() > 1e-3, loss_type
