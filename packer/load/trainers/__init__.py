"""The reader in trainers that have their own loop: one module and one entry each.

Names are imported lazily, and no library is a dependency.
"""

from importlib import import_module
from typing import Any, NamedTuple


class Trainer(NamedTuple):
    """An integration with a trainer."""

    module: str
    """In this folder; no other may import the libraries."""

    libraries: tuple[str, ...]
    page: str
    """Its page in docs/how-to/trainers."""

    members: tuple[str, ...] = ()
    """Methods that the reference shows; all of them if empty."""


TRAINERS = {
    "PackedDPOTrainer": Trainer("preference", ("trl", "transformers", "datasets"), "trl.md"),
    "PackedKTOTrainer": Trainer("preference", ("trl", "transformers", "datasets"), "trl.md"),
    "PackedRewardTrainer": Trainer("preference", ("trl", "transformers", "datasets"), "trl.md"),
    "PackedSFTTrainer": Trainer("sft", ("trl", "transformers", "datasets"), "trl.md"),
    "PackedTrainer": Trainer("huggingface", ("transformers", "accelerate"), "transformers.md", ("train",)),
    "PreferenceData": Trainer("preference", ("trl", "transformers", "datasets"), "trl.md"),
    "StepBatches": Trainer("torchtitan", (), "torchtitan.md"),
}

__all__ = list(TRAINERS)


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    if name not in TRAINERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    entry = TRAINERS[name]
    try:
        return getattr(import_module(f"{__name__}.{entry.module}"), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in {"torch", *entry.libraries}:
            raise
        raise ImportError(f"{name} needs {missing}: pip install {' '.join(['torch', *entry.libraries])}") from error
