"""The reader: the only part of packer that imports torch, and only once one of its names is asked for.

    order, mixture             which row comes when
    steps, state               what a step holds, and where a reader stands after it
    rows, row_source           blocks or documents under one numbering, and the steps that are cut from them
    batching, layouts          which rows a micro-batch has, and what it looks like
    reading, read_ahead        from plans to tensors: which rank reads what; in the background
    loader, step               what a training loop imports
    dataset, step_dataset      the same for frameworks with a sampler or a loop of their own
    adapters, attention        micro-batches as particular libraries and kernels take them
    contract, batch_view          whether a batch is what a model expects; the one of some step, with its documents
    poison, seeds              whether a model keeps documents apart; random numbers that belong to a document
    trainers/                  the same in trainers that bring a loop of their own

Orders, steps and state are arithmetic, and need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.load.batch_view import view_batch
    from packer.load.contract import check_batch
    from packer.load.dataset import PackedDataset, collate
    from packer.load.loader import PackedLoader
    from packer.load.mixture import Mixture
    from packer.load.poison import poison_test
    from packer.load.seeds import example_seed
    from packer.load.step import MicroBatch, Step, shift_labels
    from packer.load.step_dataset import StepDataset

__all__ = [
    "MicroBatch",
    "Mixture",
    "PackedDataset",
    "PackedLoader",
    "Step",
    "StepDataset",
    "check_batch",
    "collate",
    "example_seed",
    "poison_test",
    "shift_labels",
    "view_batch",
]

_HOME = {
    "MicroBatch": "step",
    "Mixture": "mixture",
    "PackedDataset": "dataset",
    "PackedLoader": "loader",
    "Step": "step",
    "StepDataset": "step_dataset",
    "check_batch": "contract",
    "collate": "dataset",
    "example_seed": "seeds",
    "poison_test": "poison",
    "shift_labels": "step",
    "view_batch": "batch_view",
}


def __dir__() -> list[str]:
    return list(__all__)


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
