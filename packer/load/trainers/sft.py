"""TRL's SFTTrainer over a loader.

An SFTTrainer renders, tokenizes, truncates and packs what it is given, and takes `datasets` alone. All of that was done
when the cache was built. So it gets a row that looks prepared, and the setting to prepare nothing; what is trained
is the loader's.
"""

from typing import Any

from datasets import Dataset
from transformers import Trainer
from trl import SFTConfig, SFTTrainer

from packer.errors import UsageError
from packer.load.loader import PackedLoader
from packer.load.trainers.huggingface import PackedTrainer


class PackedSFTTrainer(PackedTrainer, SFTTrainer):  # type: ignore[misc]
    """An SFTTrainer whose data is a :class:`PackedLoader`; all that :class:`PackedTrainer` says holds.

    What an SFTConfig says of preparing data is refused where it is set (``packing``, ``padding_free``,
    ``assistant_only_loss``, ``completion_only_loss``, ``chat_template_path``) or has no effect (``max_length``,
    ``pad_to_multiple_of``).

    Args:
        model: as of an SFTTrainer.
        args: an SFTConfig.
        options: as of :class:`PackedTrainer`.

    Raises:
        UsageError: settings that would have other data trained than the cache holds.

    """

    def __init__(self, model: Any, args: SFTConfig, **options: Any) -> None:
        for name in _REFUSED:
            if getattr(args, name, None):
                raise UsageError(
                    f"{name}={getattr(args, name)!r} says how an SFTTrainer prepares data, and a cache is prepared",
                    hint=f"leave {name} out; the recipe decides what is trained",
                )
        if options.get("formatting_func") is not None:
            raise UsageError("formatting_func says how an SFTTrainer prepares data, and a cache is prepared")
        args.dataset_kwargs = {**(args.dataset_kwargs or {}), "skip_prepare_dataset": True}
        super().__init__(model, args, **options)

    def evaluate(self, eval_dataset: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(eval_dataset, PackedLoader):  # an SFTTrainer would look for columns
            return Trainer.evaluate(self, eval_dataset, *args, **options)
        return super().evaluate(eval_dataset, *args, **options)

    def _shown(self, data: Any) -> Any:
        """One row with the columns of prepared data in place of a loader: an SFTTrainer wants to see some."""
        if isinstance(data, dict):
            return {name: self._shown(value) for name, value in data.items()}
        return Dataset.from_dict(_PREPARED) if isinstance(data, PackedLoader) else data


_PREPARED = {"input_ids": [[0]], "labels": [[-100]], "seq_lengths": [[1]]}
_REFUSED = ("assistant_only_loss", "chat_template_path", "completion_only_loss", "packing", "padding_free")
