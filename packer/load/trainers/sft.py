"""TRL's SFTTrainer over a loader.

An SFTTrainer renders, tokenizes, truncates and packs its data, and accepts only `datasets`. All of that was done
when the cache was built. So it gets a placeholder row that looks prepared, and the setting to prepare nothing; the data
it trains on is the loader's.
"""

from typing import Any

from datasets import Dataset
from transformers import Trainer
from trl import SFTConfig, SFTTrainer

from packer.errors import UsageError
from packer.load.loader import PackedLoader
from packer.load.trainers.huggingface import PackedTrainer


class PackedSFTTrainer(PackedTrainer, SFTTrainer):  # type: ignore[misc]
    """An SFTTrainer whose data is a :class:`PackedLoader`; everything said of :class:`PackedTrainer` applies.

    Settings of an SFTConfig about preparing data are either refused (``packing``, ``padding_free``,
    ``assistant_only_loss``, ``completion_only_loss``, ``chat_template_path``) or have no effect (``max_length``,
    ``pad_to_multiple_of``).

    Raises:
        UsageError: settings that ask for other training data than the cache has.
    """

    def __init__(self, model: Any, args: SFTConfig, **options: Any) -> None:
        for name in _REFUSED:
            if getattr(args, name, None):
                raise UsageError(
                    f"{name}={getattr(args, name)!r} says how an SFTTrainer prepares data, but a cache is "
                    "already prepared",
                    hint=f"leave {name} out; the recipe decides what is trained",
                )
        if options.get("formatting_func") is not None:
            raise UsageError("formatting_func says how an SFTTrainer prepares data, but a cache is already prepared")
        args.dataset_kwargs = {**(args.dataset_kwargs or {}), "skip_prepare_dataset": True}
        super().__init__(model, args, **options)

    def evaluate(self, eval_dataset: Any = None, *args: Any, **options: Any) -> Any:
        given = eval_dataset.values() if isinstance(eval_dataset, dict) else (eval_dataset,)
        if any(isinstance(each, PackedLoader) for each in given):  # an SFTTrainer would inspect its columns
            return Trainer.evaluate(self, eval_dataset, *args, **options)
        return super().evaluate(eval_dataset, *args, **options)

    def _as_dataset(self, data: Any) -> Any:
        """Replace a loader by one placeholder row of prepared data, as an SFTTrainer inspects its dataset."""
        if isinstance(data, dict):
            return {name: self._as_dataset(value) for name, value in data.items()}
        return Dataset.from_dict(_PREPARED) if isinstance(data, PackedLoader) else data


_PREPARED = {"input_ids": [[0]], "labels": [[-100]], "seq_lengths": [[1]]}
_REFUSED = ("assistant_only_loss", "chat_template_path", "completion_only_loss", "packing", "padding_free")
