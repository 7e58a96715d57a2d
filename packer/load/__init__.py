"""The reader: the only part of packer that imports torch, and only once one of its names is asked for.

    loader, step, stateful, dataset    what training imports
    feed                               rows, their order, the steps cut from it
    arguments                          what was given, checked
    items, scalars, cutoff             blocks or documents under one numbering, and their counts
    order, bucketed, mixture           which row comes when
    steps, stretch, batching           what a step holds; who reads which of it, in which micro-batches
    state                              where a reader stands
    reading                            from plans to tensors
    form, layouts, packed_layout, runs, labels, attention    what a micro-batch looks like
    device, memory, prefetch, ranks    where it is placed, and who works when
    adapters                           micro-batches as particular libraries take them
    poison, poison_runs, poison_report, sequences, seeds    tools of honesty
    trainers/                          the same in trainers that bring a loop of their own

Orders, steps, dealing and state are arithmetic, and need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.load.dataset import PackedDataset, collate
    from packer.load.labels import MicroBatch, shift_labels
    from packer.load.loader import PackedLoader
    from packer.load.mixture import Mixture
    from packer.load.poison import poison_test
    from packer.load.seeds import example_seed
    from packer.load.stateful import StepDataset
    from packer.load.step import Step

__all__ = [
    "MicroBatch",
    "Mixture",
    "PackedDataset",
    "PackedLoader",
    "Step",
    "StepDataset",
    "collate",
    "example_seed",
    "poison_test",
    "shift_labels",
]

_HOME = {
    "MicroBatch": "labels",
    "Mixture": "mixture",
    "PackedDataset": "dataset",
    "PackedLoader": "loader",
    "Step": "step",
    "StepDataset": "stateful",
    "collate": "dataset",
    "example_seed": "seeds",
    "poison_test": "poison",
    "shift_labels": "labels",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_HOME[name]}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f'{name} needs torch: pip install "token-packer[torch]"', name="torch") from error
    return getattr(module, name)
