"""How much of a training step is waiting for data: a model of the shape of Llama 3.2 1B, with random weights, on one GPU.

A step is two blocks of 4,096 tokens, one after another through the model in bfloat16 with SDPA, and AdamW. The loop asks for
the loss after every step, so the GPU has nothing to do while the loop waits: nothing of the waiting is hidden.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from typing import Any, TypeAlias

import torch
from caches import seed_cache
from rich.table import Table

from packer import PackedLoader
from packer.load.adapters import huggingface
from packer.load.step import Step
from packer.store.cache import Cache

_BLOCK_LEN = 4096
_BLOCKS_PER_STEP = 2
_STEPS = 50
"""Of one reader in a turn, after a few that are not timed."""

_WARM = 5
_TURNS = 2
_SHAPE = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}

Train: TypeAlias = Callable[[Step], None]


def training_table() -> Table:
    if not torch.cuda.is_available() or find_spec("transformers") is None:
        return Table("training: SKIPPED: no CUDA device, or no transformers", box=None, pad_edge=False)
    with tempfile.TemporaryDirectory() as folder:
        cache, rows = seed_cache(Path(folder), block_len=_BLOCK_LEN)
        train, num_parameters = _training(torch.device("cuda"), torch.bfloat16, _SHAPE)
        table = _measure(cache, train, torch.device("cuda"))
    table.title = (
        f"steps of {_BLOCKS_PER_STEP} blocks of {_BLOCK_LEN:,} from {rows}, {num_parameters / 1e9:.2f} billion parameters,\n"
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {version('transformers')}"
    )
    return table


def _measure(cache: Cache, train: Train, device: torch.device) -> Table:
    """Readers take turns; milliseconds of a step are the median of all turns, those of waiting the mean."""
    table = Table(box=None, pad_edge=False, title_justify="left")
    for name in ("reader", "ms/step", "waiting ms", "longest ms", "share", "tokens/s"):
        table.add_column(name, justify="left" if name == "reader" else "right", no_wrap=True)
    loaders = {prefetch: _loader(cache, device, prefetch) for prefetch in (2, 0)}
    readers: dict[str, Iterator[Step]] = {
        "one step, kept on the device": repeat(next(iter(_loader(cache, device, 0)))),
        **{f"PackedLoader, prefetch={prefetch}": loader.endless() for prefetch, loader in loaders.items()},
    }
    spans: dict[str, list[tuple[float, float, int]]] = {name: [] for name in readers}
    for _ in range(_TURNS):
        for name, steps in readers.items():
            spans[name] += _run(steps, train)[_WARM:]
    for name, timed in spans.items():
        seconds, waited, tokens = zip(*timed, strict=True)
        table.add_row(
            name,
            f"{statistics.median(seconds) * 1e3:.2f}",
            f"{statistics.mean(waited) * 1e3:.3f}",
            f"{max(waited) * 1e3:.3f}",
            f"{sum(waited) / sum(seconds):.3%}",
            f"{sum(tokens) / sum(seconds):,.0f}",
        )
    for loader in loaders.values():
        loader.close()
    return table


def _loader(cache: Cache, device: torch.device, prefetch: int) -> PackedLoader:
    sizes = {"micro_batch_size": 1, "global_batch_size": _BLOCKS_PER_STEP}
    return PackedLoader(cache, **sizes, device=device, prefetch=prefetch, rank=0, world_size=1)


def _run(steps: Iterator[Step], train: Train) -> list[tuple[float, float, int]]:
    """Seconds of each step, seconds of these that it was waited for, and its tokens."""
    timed = []
    for _ in range(_WARM + _STEPS):
        began = time.perf_counter()
        step = next(steps)
        waited = time.perf_counter() - began
        train(step)
        timed.append((time.perf_counter() - began, waited, step.num_tokens))
    return timed


def _training(device: torch.device, dtype: torch.dtype, shape: dict[str, Any]) -> tuple[Train, int]:
    """The loop of docs/how-to/train.md for one step, and the number of parameters that it trains."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**shape, attn_implementation="sdpa")).to(device, dtype).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def train(step: Step) -> None:
        losses = []
        for micro_batch in step:
            loss = model(**huggingface(micro_batch, model.config, num_items_in_batch=step.num_items_in_batch)).loss
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        assert torch.stack(losses).sum().isfinite()  # waits for the device, as a loop that logs its loss

    return train, model.num_parameters()
