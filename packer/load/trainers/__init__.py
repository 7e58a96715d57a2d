"""The reader in trainers that bring a loop of their own.

    huggingface    PackedTrainer: transformers' Trainer, one batch of which is a whole step
    sft            PackedSFTTrainer: the same of TRL's SFTTrainer
    lightning      PackedDataModule: Lightning's data module, with the reader's state in its checkpoints
    torchtitan     StepBatches: micro-batches as torchtitan's BaseDataLoader gives them
    grain          BlockSource: blocks as a source of grain's, for JAX trainers
    evaluation     micro-batches whose losses average to the mean over all trained tokens

The first three need their libraries, none of which is a dependency; names load when they are asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.load.trainers.grain import BlockSource
    from packer.load.trainers.huggingface import PackedTrainer
    from packer.load.trainers.lightning import PackedDataModule
    from packer.load.trainers.sft import PackedSFTTrainer
    from packer.load.trainers.torchtitan import StepBatches

__all__ = ["BlockSource", "PackedDataModule", "PackedSFTTrainer", "PackedTrainer", "StepBatches"]

_HOME = {
    "BlockSource": ("grain", ""),
    "PackedDataModule": ("lightning", "lightning"),
    "PackedSFTTrainer": ("sft", "trl"),
    "PackedTrainer": ("huggingface", "transformers accelerate"),
    "StepBatches": ("torchtitan", ""),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, library = _HOME[name]
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in {"accelerate", "datasets", "lightning", "torch", "transformers", "trl"}:
            raise
        raise ImportError(f"{name} needs {missing}: pip install torch {library}".rstrip()) from error
