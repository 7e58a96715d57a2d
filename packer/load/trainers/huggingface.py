"""transformers' Trainer over a loader, with the Trainer's counts replaced where they would be wrong.

A Trainer groups a DataLoader's batches by ``gradient_accumulation_steps``, and treats each group as an
optimizer step. Here the loader determines the steps: a *batch* of this Trainer is a whole step of the loader, with as
many micro-batches as its size requires, and ``gradient_accumulation_steps`` is 1. So a step of the loader is an
optimizer step, whatever its size.

Only methods that subclasses may override are replaced:

    get_train_dataloader           the loader itself: nothing shards, collates or skips
    get_batch_samples              one step, and the number its losses are divided by
    training_step                  runs over the step's micro-batches; gradients are reduced with the last one
    set_initial_training_values    the number of steps, for epochs that may differ in length
    _save_checkpoint, train        save the reader's state in trainer_state.json, and restore it
    get_eval_dataloader, compute_loss    evaluation as a mean over tokens
"""

import math
import sys
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import torch
import transformers
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from packer.errors import CheckError, InputError, UsageError
from packer.load.adapters import huggingface, model_arguments, summed_loss
from packer.load.datasets import Adapter, EvaluationBatches, StepDataset
from packer.load.loader import PackedLoader, loader_of_examples
from packer.load.ordering import Count
from packer.load.poison import refuse_leaks, refuse_other_model
from packer.load.step import MicroBatch, Step

if tuple(map(int, transformers.__version__.split(".")[:2])) < (4, 57):
    raise ImportError(f"PackedTrainer needs transformers 4.57 or newer, found {transformers.__version__}")
_IS_OLD = not hasattr(Trainer, "_track_num_input_tokens")
"""Whether a pass over the data ends after the steps that were counted at its beginning, not when the data end."""

KEY = "packer"
"""Name of the reader's state among ``stateful_callbacks`` in trainer_state.json."""


class PackedTrainer(Trainer):  # type: ignore[misc]
    """A Trainer whose data is a :class:`PackedLoader`.

    Order, sizes and accumulation are the loader's; model, optimizer, learning rate, logs and checkpoints are
    the Trainer's. Resuming restores the loader in constant time, on any number of ranks and with any micro-batch size.
    ``args.ignore_data_skip`` is set, as there is nothing to skip.

    In the logs, ``epoch`` counts what was read. Besides the loss they have ``coverage`` of the epoch (0 to 1),
    ``blocks``, ``tokens`` and ``trained_tokens`` since the beginning over all ranks, ``padding_share``, and
    ``global_batch_size`` (without the padding rows of a last step).

    With a loader of images, the loss is :func:`packer.load.adapters.summed_loss`, since models that see take no
    `num_items_in_batch`.

    Args:
        args: positional arguments of a Trainer; pass `train_dataset` and `eval_dataset` by name.
        train_dataset: the loader, not to be used elsewhere. Training starts at its current position.
        eval_dataset: a separate loader, or a dict of them by name; other datasets are handled by the Trainer as usual.
        adapter: converts a micro-batch to a model's arguments; by default :func:`packer.load.adapters.huggingface` with
            the model's config.
        options: other arguments of a Trainer.

    Raises:
        UsageError: settings under which a step would not be the loader's step.

    Example:
        >>> loader = PackedLoader("cache", micro_batch_size=1, global_batch_size=8)  # doctest: +SKIP
        >>> PackedTrainer(model=model, args=args, train_dataset=loader).train()  # doctest: +SKIP
    """

    def __init__(
        self,
        *args: Any,
        train_dataset: PackedLoader,
        eval_dataset: Any = None,
        adapter: Adapter | None = None,
        **options: Any,
    ) -> None:
        self._adapter = adapter or (lambda each: huggingface(each, **model_arguments(self.model)))
        self._reader = loader_of_examples("train_dataset", train_dataset, type(self).__name__)
        self._training_start = {"epoch": train_dataset.epoch, "steps": train_dataset.counters.steps}
        self._initial_state: dict[str, Any] = {
            "reader": train_dataset.state_dict(),
            "beginning": self._training_start,
            "taken": 0,
        }
        self._steps = StepDataset(train_dataset)
        self._last: Step | None = None  # the step being trained on
        self._is_tested = False  # whether the model keeps packed documents apart
        options = {"compute_loss_func": summed_loss} | options if train_dataset.images is not None else options
        datasets = {"train_dataset": self._as_dataset(train_dataset), "eval_dataset": self._as_dataset(eval_dataset)}
        super().__init__(*args, **datasets, **options)
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self._check()
        self.args.ignore_data_skip = True
        self.add_callback(_EpochCallback(self))

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **options: Any) -> Any:
        """Train from the beginning, or from a checkpoint: a folder, or True for the last one in ``output_dir``.

        Raises:
            CheckError: the checkpoint has no reader state, or that of a different loader.
            InputError: True, and there is no checkpoint.
        """
        folder = resume_from_checkpoint or None
        if folder is True:
            folder = get_last_checkpoint(self.args.output_dir)
            if folder is None:
                raise InputError(f"{self.args.output_dir} has no checkpoint to resume from")
        saved = self._initial_state if folder is None else saved_reader(Path(folder))
        self._training_start = saved["beginning"]
        self._steps = StepDataset(self._reader)
        self._steps.load_state_dict({"reader": saved["reader"], "taken": saved["taken"]})
        try:
            return super().train(None if folder is None else str(folder), *args, **options)
        finally:
            self._reader.close()

    def get_train_dataloader(self) -> StepDataset:
        return self._steps

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        found = self.eval_dataset if eval_dataset is None else eval_dataset
        found = self.eval_dataset[found] if isinstance(found, str) else found
        is_loader = isinstance(found, PackedLoader)
        return EvaluationBatches(found, self._adapted) if is_loader else super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        if isinstance(test_dataset, PackedLoader):
            return EvaluationBatches(test_dataset, self._adapted)
        return super().get_test_dataloader(test_dataset)

    def num_examples(self, dataloader: Any) -> int:
        """Return the blocks of an epoch; documents if steps consist of them."""
        if isinstance(dataloader, StepDataset | EvaluationBatches):
            return dataloader.loader.num_blocks
        return int(super().num_examples(dataloader))

    def set_initial_training_values(
        self,
        args: TrainingArguments,
        dataloader: Any,  # noqa: ARG002 - the Trainer's signature
        *total_batch_size: int,  # noqa: ARG002 - as above, of transformers 4
    ) -> tuple[Any, ...]:
        """Return the length of training. Passes over the data end when the loader says so, not by a count.

        Returns:
            passes, maximum steps of a pass, blocks of an epoch, blocks in all, blocks of a step, again the maximum
            steps of a pass, and the exact number of steps
        """
        max_steps, blocks = self._num_steps(), self._reader.num_blocks
        size = self._reader.global_batch_size
        by_steps = args.max_steps > 0 or _IS_OLD
        passes = sys.maxsize if by_steps else math.ceil(self._end_epoch) - self._reader.epoch
        num_blocks = max_steps * size if args.max_steps > 0 else blocks * args.num_train_epochs
        left = max_steps > self._steps_taken
        return (passes if left else 0), sys.maxsize, blocks, num_blocks, size, sys.maxsize, max_steps

    def get_batch_samples(
        self,
        epoch_iterator: Any,
        num_batches: int,  # noqa: ARG002 - the Trainer's signature
        device: torch.device,
    ) -> tuple[list[Step], Tensor | None]:
        """Return the next step, and its trained targets over all ranks."""
        step = next(epoch_iterator, None)
        if step is None:
            self.control.should_epoch_stop = True
            return [], None
        self._last = step
        return [step], torch.tensor(step.num_items_in_batch, device=device)

    def training_step(self, model: nn.Module, inputs: Step, num_items_in_batch: Tensor | None = None) -> Tensor:
        """Train on a whole step, and return the sum of its losses: the step's mean over trained tokens."""
        if not self._is_tested:
            is_spread = self.is_deepspeed_enabled or self.is_fsdp_enabled  # parameters, over all ranks
            own = self.accelerator.unwrap_model(model, keep_torch_compile=False)
            tested = model if is_spread else own
            first, name = next(iter(inputs)), type(own).__name__
            refuse_other_model(own, first, self._reader.vocab_size, name=name)
            with self.accelerator.autocast():  # by its dtype, rounding is allowed for
                refuse_leaks(tested, self._adapter, first, self._reader.images, name=name)
            self._is_tested = True
        self.current_gradient_accumulation_steps = len(inputs)  # divides losses that are means, such as router losses
        losses = []
        for number, micro_batch in enumerate(inputs, start=1):
            with self._gradient_sync(model, is_last=number == len(inputs)):
                losses.append(super().training_step(model, self._adapted(micro_batch), num_items_in_batch))
        return torch.stack(losses).sum()

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], *args: Any, num_items_in_batch: Any = None, **options: Any
    ) -> Any:
        """Compute the loss like the Trainer; an evaluation's micro-batch brings its own number of items."""
        inputs = dict(inputs)
        num_items_in_batch = inputs.pop("num_items_in_batch", num_items_in_batch)
        inputs.pop("columns", None)  # a subclass has used them
        mask = inputs.get("attention_mask")
        if isinstance(mask, dict) or (mask is not None and mask.ndim != 2):  # an SFTTrainer would count tokens in it
            return Trainer.compute_loss(self, model, inputs, *args, num_items_in_batch=num_items_in_batch, **options)
        return super().compute_loss(model, inputs, *args, num_items_in_batch=num_items_in_batch, **options)

    def _adapted(self, micro_batch: MicroBatch) -> MicroBatch:
        """Return a model's arguments, and beside them columns, which models do not accept."""
        beside = {"columns": micro_batch["columns"]} if "columns" in micro_batch else {}
        return self._adapter(micro_batch) | beside

    def floating_point_ops(self, inputs: Any) -> int:
        if isinstance(inputs, Step):
            return sum(int(super(PackedTrainer, self).floating_point_ops(micro_batch)) for micro_batch in inputs)
        return int(super().floating_point_ops(inputs))

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        if "loss" in logs and self._last is not None:
            totals = self._reader.counters
            logs |= {"blocks": totals.rows, "tokens": totals.tokens, "trained_tokens": totals.trained}
            logs |= {"padding_share": totals.padding_share, "coverage": self._last.coverage}
            logs["global_batch_size"] = self._last.size
        super().log(logs, *args, **options)

    @property
    def _end_epoch(self) -> Fraction:
        """The epoch at which training ends, possibly fractional; 2.2 is exactly 11/5 here, not the nearest float."""
        return Fraction(str(self.args.num_train_epochs)) + self._training_start["epoch"]

    @property
    def _steps_taken(self) -> int:
        return self._reader.counters.steps - self._training_start["steps"]

    def _num_steps(self) -> int:
        """Count the steps of the whole training, including those already taken."""
        if self.args.max_steps > 0:
            return int(self.args.max_steps)
        whole, part = divmod(self._end_epoch, 1)
        steps = self._steps_taken + self._reader.steps_until(whole)
        if part:
            left = self._reader.steps_until(whole + 1) - self._reader.steps_until(whole)
            taken = len(self._steps) - left if self._reader.epoch == whole else 0  # of the epoch that is not finished
            steps += math.ceil(part * (taken + left)) - taken
        return steps

    def _as_dataset(self, data: Any) -> Any:
        """Return what the Trainer's constructor sees of training and evaluation data: something that has a length."""
        return StepDataset(data) if isinstance(data, PackedLoader) else data

    def _gradient_sync(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[Any]:
        """Reduce gradients over the ranks only with the last micro-batch, by the rules of the Trainer's own loop."""
        state = self.accelerator.gradient_state
        state._set_sync_gradients(is_last)  # noqa: SLF001 - as the Trainer does
        each = state.plugin_kwargs.get("sync_each_batch", False) or self.is_deepspeed_enabled
        return nullcontext() if is_last or each else self.accelerator.no_sync(model)

    def _track_num_input_tokens(self, inputs: Step) -> None:
        counted = self.args.include_num_input_tokens_seen
        if counted != "no":
            self.state.num_input_tokens_seen += inputs.num_tokens if counted == "non_padding" else inputs.num_slots

    def _save_checkpoint(self, *args: Any, **options: Any) -> None:
        state = self._steps.state_dict()
        self.state.stateful_callbacks[KEY] = {
            "reader": state["reader"],
            "beginning": self._training_start,
            "taken": state["taken"],  # steps of this epoch
        }
        super()._save_checkpoint(*args, **options)

    def _check(self) -> None:
        args = self.args
        ranks = self.accelerator.num_processes // _size(self, "tp")
        refused = {
            f"gradient_accumulation_steps={args.gradient_accumulation_steps}": (
                args.gradient_accumulation_steps != 1,
                "leave it at 1: the loader's global_batch_size says how many micro-batches a step has",
            ),
            f"nn.DataParallel over {args.n_gpu} devices": (args.n_gpu > 1, "start one process a device with torchrun"),
            "auto_find_batch_size": (args.auto_find_batch_size, "set the loader's micro_batch_size"),
            "context or sequence parallelism": (
                _size(self, "cp") * _size(self, "sp") > 1,
                "it cuts micro-batches across their boundaries",
            ),
            f"a loader for {self._reader.world_size} of {ranks} ranks": (
                self._reader.world_size != ranks,
                "make the TrainingArguments first, then open the loader: it takes its rank from torch.distributed",
            ),
            "average_tokens_across_devices=False": (
                ranks > 1 and not args.average_tokens_across_devices,
                "leave it True: losses are divided by the targets of all ranks",
            ),
            f"include_num_input_tokens_seen under transformers {transformers.__version__}": (
                _IS_OLD and args.include_num_input_tokens_seen not in ("no", False),
                "leave it out: the logs have tokens",
            ),
            "a model that takes no num_items_in_batch": (
                not self.model_accepts_loss_kwargs and self.compute_loss_func is None,
                "pass compute_loss_func(outputs, labels, num_items_in_batch)",
            ),
        }
        for what, (applies, hint) in refused.items():
            if applies:
                raise UsageError(f"PackedTrainer cannot train exactly with {what}", hint=hint)


def _size(trainer: Trainer, axis: str) -> int:
    """Return how many ranks a kind of parallelism has; a Trainer that has no such method has no such kind."""
    return int(getattr(trainer, f"get_{axis}_size", lambda: 1)())


class _EpochCallback(TrainerCallback):  # type: ignore[misc]
    """Sets the epoch by what was read: the Trainer's own counts steps, whose number may differ between epochs."""

    def __init__(self, trainer: PackedTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        del args, control, rest
        step = self._trainer._last  # noqa: SLF001 - same module
        if step is not None:
            state.epoch = step.epoch + step.coverage


class _Beginning(msgspec.Struct, forbid_unknown_fields=True):
    epoch: Count
    steps: Count


class _Saved(msgspec.Struct, forbid_unknown_fields=True):
    """What a checkpoint has under `KEY`."""

    reader: dict[str, Any]
    beginning: _Beginning
    taken: Count


def saved_reader(folder: Path) -> dict[str, Any]:
    """Read the reader's state from a checkpoint: also where its training began, and the steps taken of its epoch."""
    file = folder / "trainer_state.json"
    if not file.is_file():
        raise CheckError(f"{folder} has no trainer_state.json", hint="resume from a folder that a Trainer saved")
    try:
        saved: Any = TrainerState.load_from_json(str(file)).stateful_callbacks.get(KEY)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        hint = "it is cut off or damaged: resume from an earlier checkpoint"
        raise CheckError(f"{file} cannot be read: {error}", hint=hint) from None
    try:
        msgspec.convert(saved, _Saved)
    except msgspec.ValidationError:
        raise CheckError(
            f"{file} has no state of a packer reader",
            hint="it was saved by another Trainer: start over, or continue there",
        ) from None
    found: dict[str, Any] = saved
    return found
