"""The reader, the only part of packer that imports torch; its names are imported lazily, on first use.

Orders, step plans and state are plain arithmetic and do not need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.load.adapters import answer_logps as answer_logps
    from packer.load.arguments import Padded as Padded
    from packer.load.batch_view import view_batch as view_batch
    from packer.load.contract import check_batch as check_batch
    from packer.load.datasets import EvaluationBatches as EvaluationBatches
    from packer.load.datasets import PackedDataset as PackedDataset
    from packer.load.datasets import StepDataset as StepDataset
    from packer.load.datasets import collate as collate
    from packer.load.loader import PackedLoader as PackedLoader
    from packer.load.mixture import Mixture as Mixture
    from packer.load.poison import poison_test as poison_test
    from packer.load.step import MicroBatch as MicroBatch
    from packer.load.step import Step as Step
    from packer.load.step import shift_labels as shift_labels

_HOME = {
    "EvaluationBatches": "datasets",
    "MicroBatch": "step",
    "Mixture": "mixture",
    "PackedDataset": "datasets",
    "PackedLoader": "loader",
    "Padded": "arguments",
    "Step": "step",
    "StepDataset": "datasets",
    "answer_logps": "adapters",
    "check_batch": "contract",
    "collate": "datasets",
    "poison_test": "poison",
    "shift_labels": "step",
    "view_batch": "batch_view",
}

__all__ = list(_HOME)


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
