"""Train with transformers' Trainer, stop, and resume.

Run it in an empty folder. It needs torch, transformers and accelerate.
"""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

import packer
from packer import PackedLoader
from packer.load.trainers import PackedTrainer
from packer.starter import write_starter

write_starter(Path("first"))  # as `packer init first`
packer.build("first/recipe.yaml", "cache")


def trainer(max_steps: int) -> PackedTrainer:
    """What a training script makes each time it is started."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=4096, **sizes))
    args = TrainingArguments(
        output_dir="run",
        max_steps=max_steps,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        logging_steps=1,
        save_steps=2,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    loader = PackedLoader("cache", micro_batch_size=2, global_batch_size=8, seed=0)
    return PackedTrainer(model=model, args=args, train_dataset=loader)


trainer(max_steps=2).train()  # stopped after two steps
resumed = trainer(max_steps=4)
resumed.train(resume_from_checkpoint=True)  # continues with the third step's blocks; nothing is skipped through

assert resumed.state.global_step == 4
