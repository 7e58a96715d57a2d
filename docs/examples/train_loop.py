"""Build a cache on the command line, and train on it in a plain PyTorch loop.

Run it in an empty folder. It needs torch and transformers.
"""

import subprocess
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from packer import PackedLoader
from packer.load.adapters import huggingface

PACKER = [sys.executable, "-m", "packer"]  # in a shell: packer

subprocess.run([*PACKER, "init", "first"], check=True)
subprocess.run([*PACKER, "build", "-c", "first/recipe.yaml", "-o", "cache"], check=True)

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=4096, **sizes)).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

losses = []
for step in PackedLoader("cache", micro_batch_size=2, global_batch_size=8):
    total = 0.0
    for micro_batch in step:
        # The loss is a sum divided by the trained tokens of the whole step, so micro-batches add up to the mean.
        loss = model(**huggingface(micro_batch, model.config, num_items_in_batch=step.num_items_in_batch)).loss
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(total)
    print(f"step {step.index}: loss {total:.3f} over {step.num_items_in_batch} trained tokens")

assert losses[-1] < losses[0]
