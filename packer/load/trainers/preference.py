"""TRL's DPOTrainer, RewardTrainer and KTOTrainer over the pairs or rated answers of a cache.

All render, tokenize and truncate their data, and train everything that follows the prompt. All of that was
decided when the cache was built. So they get a dataset of numbers, one per pair or answer, prepare nothing, and
a collator reads the documents: exactly the labeled tokens are trained. Order, accumulation, losses, metrics, PEFT
and resume are TRL's.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer

from packer.batches import CHOSEN, DESIRABLE, Int32, Int64
from packer.errors import UsageError
from packer.layout import MASKED, first_trained
from packer.load.arguments import check_instance, checked, open_cache
from packer.load.ordered_rows import documents_of_pairs
from packer.load.pixels import BatchImages
from packer.load.step import MicroBatch
from packer.permute import permutation_key, permute
from packer.recipe.groups import declared
from packer.store.cache import Cache

_KEPT = ["data", "pair", "answer", "partner", "label", "margin", "length"]
_KEPT += ["ref_chosen_logps", "ref_rejected_logps", "ref_logps", "ref_KL_logps"]
"""Columns of the datasets of numbers, and those of the reference model that TRL adds: a Trainer removes no others."""


class PreferenceData:
    """A split of pairs or of rated answers, for the trainers of this module.

    Args:
        cache: folder of a cache, or an open one.
        split: name of the split.
        seed: shuffles the rows; None keeps them in the order of the cache, which is that of the input. KTO
            reads them in order, so set one if the input is sorted.

    Raises:
        UsageError: the split has examples to imitate, or no documents.
    """

    def __init__(
        self,
        cache: str | Path | Cache,
        split: str = "train",
        *,
        seed: int | None = None,
    ) -> None:
        self.cache = open_cache(cache)
        self.documents = documents = self.cache.documents(split)
        folder = self.cache.folder
        if not self.cache.has_sides:
            raise UsageError(
                f"{folder} holds examples to imitate; expected pairs or rated answers",
                hint="build a cache of rows with chosen and rejected, or with completion and label",
            )
        if not len(documents):
            raise UsageError(
                f"split '{split}' of {folder} has no documents", hint="rejected.jsonl says why its rows were left out"
            )
        self._key = None if seed is None else permutation_key("preference", split, checked("seed", seed, int))
        has_images = self.cache.manifest.media is not None
        self.images = BatchImages((self.cache,), fills=False) if has_images else None

    def order(self, num_rows: int) -> Int64:
        """Return the row numbers in order.  # int64[N]"""
        numbers = np.arange(num_rows, dtype=np.int64)
        return numbers if self._key is None or not num_rows else permute(numbers, num_rows, self._key)

    def read(self, numbers: Int64) -> Iterator[tuple[Int32, Int32]]:
        """Yield ids and labels of some documents."""
        found = self.documents.locate(numbers)
        return zip(found.values("input_ids"), found.values("labels"), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collator:
    """Reads the rows of a batch; each row identifies its data by number."""

    data: list[PreferenceData]
    multiple_of: int
    names: tuple[str, ...] = ("input_ids", "attention_mask", "completion_mask")
    pad_id: int | None = None

    def __call__(self, rows: list[dict[str, Any]]) -> MicroBatch:
        (number,) = {row["data"] for row in rows}  # the rows of a dataset belong to one
        data = self.data[number]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        if "pair" in columns:
            batch = self._read(data, documents_of_pairs(np.array(columns["pair"], np.int64)))
        else:
            own = np.array(columns["answer"], np.int64)
            batch = self._read(data, own)
            if "partner" in columns:  # KTO compares an answer with the model's estimate for answers to other requests
                answers = data.read(np.array(columns["partner"], np.int64))
                mismatched = self._padded(data, map(_crossed, data.read(own), answers))
                mismatched |= {} if data.images is None else data.images.types(mismatched)  # of the same images
                batch |= {f"KL_{name}": column for name, column in mismatched.items()}
        passed_through = columns.keys() - {"data", "pair", "answer", "partner", "length"}
        return batch | {name: torch.tensor(columns[name]) for name in passed_through}

    def _read(self, data: PreferenceData, numbers: Int64) -> MicroBatch:
        batch = self._padded(data, data.read(numbers))
        if data.images is None:
            return batch
        return data.images.added(data.images.shown(data.documents.locate(numbers), [numbers]), [batch])[0]

    def _padded(self, data: PreferenceData, documents: Iterable[tuple[Int32, Int32]]) -> MicroBatch:
        """Pad documents to one length: ids, 1 for tokens and 1 for trained tokens.  # int64[R, L] each

        Worked example: ids [5, 6, 7] and [5, 8] with the last one of each trained, padded by 0: ids [[5, 6, 7],
        [5, 8, 0]], attention mask [[1, 1, 1], [1, 1, 0]], completion mask [[0, 0, 1], [0, 1, 0]].
        """
        ids, labels = zip(*documents, strict=True)
        columns = {
            "input_ids": (ids, data.cache.manifest.model.pad_id if self.pad_id is None else self.pad_id),
            "attention_mask": ([np.ones(len(row), np.int64) for row in ids], 0),
            "completion_mask": ([row != MASKED for row in labels], 0),
        }
        missing = -max(map(len, ids)) % self.multiple_of
        batch: MicroBatch = {}
        for name in self.names:
            rows, fill = columns[name]
            of_rows = [torch.from_numpy(row.astype(np.int64)) for row in rows]
            padded = nn.utils.rnn.pad_sequence(of_rows, batch_first=True, padding_value=fill)
            batch[name] = nn.functional.pad(padded, (0, missing), value=fill)
        return batch


class _CacheTrainer:
    """What all trainers do differently from TRL's."""

    _config: ClassVar[type]
    args: Any
    accelerator: Any
    data_collator: Any

    def __init__(
        self,
        model: Any,
        ref_model: Any = None,
        args: Any = None,
        *,
        train_dataset: PreferenceData,
        eval_dataset: PreferenceData | Mapping[str, PreferenceData] | None = None,
        **options: Any,
    ) -> None:
        check_instance("args", args, self._config, f"a {self._config.__name__}")
        if options.get("data_collator") is not None:
            raise UsageError("data_collator has no effect: packer itself reads the rows of a cache")
        if getattr(args, "padding_free", None):
            raise UsageError(
                "padding_free=True has no effect in TRL, which pads",
                hint="leave it out; a loop of your own can do without padding: PackedLoader(batching='padding_free')",
            )
        self._data: list[PreferenceData] = []
        collator = _Collator(data=self._data, multiple_of=args.pad_to_multiple_of or 1)
        datasets = {
            name: self._as_dataset(value, args)
            for name, value in (("train_dataset", train_dataset), ("eval_dataset", eval_dataset))
        }
        options |= {"ref_model": ref_model} if ref_model is not None else {}
        super().__init__(model, args=args, **(options | datasets | {"data_collator": collator}))  # type: ignore[call-arg]

    def evaluate(self, eval_dataset: Any = None, *args: Any, **options: Any) -> Any:
        if not isinstance(eval_dataset, str):
            eval_dataset = self._as_dataset(eval_dataset, self.args)
        return super().evaluate(eval_dataset, *args, **options)  # type: ignore[misc]

    def _prepare_dataset(self, dataset: Dataset, *args: Any, **options: Any) -> Dataset:
        del args, options
        return dataset

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = _KEPT

    def _precompute_ref_logps(self, dataset: Dataset, *args: Any) -> Dataset:
        if self.accelerator.num_processes > 1:
            raise UsageError(
                "precompute_ref_log_probs of rows in memory does not work in several processes",
                hint="leave it out: the reference model is then run in every step",
            )
        return super()._precompute_ref_logps(dataset, *args)  # type: ignore[misc]

    def _as_dataset(self, data: Any, args: Any) -> Any:
        """Return the dataset of numbers that represents some data; for a mapping, one for each name."""
        if data is None:
            return None
        if isinstance(data, Mapping):
            return {name: self._as_dataset(each, args) for name, each in data.items()}
        self._check(check_instance("a dataset", data, PreferenceData, "PreferenceData"), args)
        self._data.append(data)
        columns = self._columns(data, args)
        number = np.full(len(columns["length"]), len(self._data) - 1, np.int32)
        return Dataset.from_dict({"data": number, **columns})

    def _check(self, data: PreferenceData, args: Any) -> None:
        """Refuse data that would not be trained as the cache defines it."""
        lengths = data.documents.lengths()
        if args.max_length is not None and int(lengths.max(initial=0)) > args.max_length:
            raise UsageError(
                f"max_length={args.max_length} would cut {int(np.count_nonzero(lengths > args.max_length)):,} of "
                f"{len(lengths):,} answers of {data.cache.folder}, but answers are compared whole",
                hint=f"max_length=None; the longest one has {int(lengths.max()):,} tokens. "
                "Rules of the recipe leave out rows by their tokens",
            )

    def _columns(self, data: PreferenceData, args: Any) -> dict[str, Any]:
        raise NotImplementedError


class _PairTrainer(_CacheTrainer):
    """What trainers of pairs have in common."""

    def _check(self, data: PreferenceData, args: Any) -> None:
        super()._check(data, args)
        if not data.documents.is_paired:
            raise UsageError(
                f"{data.cache.folder} holds rated answers, not pairs", hint="PackedKTOTrainer trains on them"
            )

    def _columns(self, data: PreferenceData, args: Any) -> dict[str, Any]:
        del args
        order = data.order(len(data.documents) // 2)
        return {"pair": order, "length": data.documents.lengths().reshape(-1, 2).max(1)[order]}


class PackedDPOTrainer(_PairTrainer, DPOTrainer):  # type: ignore[misc]
    """A DPOTrainer whose rows are the pairs of a cache.

    It takes the arguments of a DPOTrainer, and :class:`PreferenceData` as `train_dataset` and `eval_dataset`; a dict
    names several. ``train_sampling_strategy="group_by_length"`` works. ``dataset_num_proc`` has no effect.

    Raises:
        UsageError: settings under which other tokens would be trained, or that would silently have no effect:
            ``padding_free``, a ``max_length`` below the longest answer.

    Example:
        >>> data = PreferenceData("cache")  # doctest: +SKIP
        >>> PackedDPOTrainer(model, args=DPOConfig(max_length=None), train_dataset=data).train()  # doctest: +SKIP
    """

    _config = DPOConfig


class PackedRewardTrainer(_PairTrainer, RewardTrainer):  # type: ignore[misc]
    """A RewardTrainer whose rows are the pairs of a cache; a document column ``margin`` is what its loss subtracts.

    The model scores an answer at its last token: the stop token, unless that is also the tokenizer's padding, as in
    TRL. It takes the arguments of a RewardTrainer, and datasets as :class:`PackedDPOTrainer` does.

    Raises:
        UsageError: a ``max_length`` below the longest answer, or rated answers.
    """

    _config = RewardConfig

    def __init__(self, model: Any, args: Any = None, **options: Any) -> None:
        super().__init__(model, None, args, **options)
        # A model finds the end of a row by the id that is its tokenizer's padding, and that TRL sets in its config.
        pad_id = self.processing_class.pad_token_id
        self.data_collator = replace(self.data_collator, names=("input_ids", "attention_mask"), pad_id=pad_id)

    def _columns(self, data: PreferenceData, args: Any) -> dict[str, Any]:
        columns = super()._columns(data, args)
        for each in declared(data.cache.manifest.recipe):
            if each.name == "margin" and not each.of_tokens:
                margins = data.documents.stored("margin", np.dtype(each.rule.kind).type)[::2]
                columns["margin"] = margins[columns["pair"]].astype(np.float32)
        return columns


class PackedKTOTrainer(_CacheTrainer, KTOTrainer):  # type: ignore[misc]
    """A KTOTrainer whose rows are the rated answers of a cache, or those of its pairs one by one.

    To estimate the KL term, KTO puts another answer under each row's prompt. As in TRL, it is that of the previous row
    in its batch; but rows with the same prompt are skipped, and if a batch has no other prompt, an earlier row is used.

    It takes the arguments of a KTOTrainer, which reads its rows in order, and datasets as :class:`PackedDPOTrainer`
    does.

    Raises:
        UsageError: a ``max_length`` below the longest answer, or all answers under one prompt.
    """

    _config = KTOConfig

    def _check(self, data: PreferenceData, args: Any) -> None:
        super()._check(data, args)
        if data.images is not None and args.precompute_ref_log_probs:
            raise UsageError(
                "precompute_ref_log_probs=True of a KTOTrainer leaves images out",
                hint="leave it out: the reference model then answers in every step",
            )

    def _columns(self, data: PreferenceData, args: Any) -> dict[str, Any]:
        documents = data.documents
        order = data.order(len(documents))
        columns = {
            "answer": order,
            "label": np.isin(documents.sides(), (CHOSEN, DESIRABLE))[order],
            "length": documents.lengths()[order],
        }
        if args.loss_type not in _WITHOUT_KL:
            prompts = documents.prompts()[order]
            columns["partner"] = order[partners(prompts, args.per_device_train_batch_size)]
        return columns


_WITHOUT_KL = ("apo_zero_unpaired",)


def _crossed(prompt: tuple[Int32, Int32], answer: tuple[Int32, Int32]) -> tuple[Int32, Int32]:
    """Return ids and labels of one document's prompt followed by another document's answer.

    Example: ids 5 6 7 with labels . . 7 and ids 5 8 with labels . 8 give ids 5 6 8 with labels . . 8.
    """
    end, start = first_trained(prompt[1]), first_trained(answer[1])
    labels = np.concatenate([np.full(end, MASKED, np.int32), answer[1][start:]])
    return np.concatenate([prompt[0][:end], answer[0][start:]]), labels


def partners(prompts: Int64, batch_size: int) -> Int64:
    """For each row, choose the row whose answer is put after its prompt.  # int64[N]

    This is the previous row of its batch (for the first row: the last one), skipping rows with the same prompt. If a
    whole batch has one prompt, it is the nearest earlier row with another prompt, wrapping around at the beginning.

    Example: prompts a b b c, d, in batches of 4: rows 3, 0, 0, 2, and for d, alone in its batch, row 3.

    Args:
        prompts: a number identifying each row's prompt.  # int64[N]
        batch_size: rows per batch.

    Raises:
        UsageError: all rows have the same prompt.
    """
    if len(prompts) and (prompts == prompts[0]).all():
        raise UsageError("all answers have the same prompt, but KTO compares with answers to other prompts")
    found = np.arange(len(prompts), dtype=np.int64)
    start = found - found % batch_size
    size = np.minimum(batch_size, len(prompts) - start)
    waiting = found.copy()
    for back in range(1, batch_size):
        first = start[waiting]
        other = first + (waiting - first - back) % size[waiting]
        differs = prompts[other] != prompts[waiting]
        found[waiting[differs]] = other[differs]
        waiting = waiting[~differs]
    # All of a batch have one prompt: the row before it, or before the run of rows with this prompt that ends there.
    begins = prompts != np.roll(prompts, 1)
    run_start = np.maximum.accumulate(np.where(begins, np.arange(len(prompts)), -1))
    run_start[run_start < 0] = np.flatnonzero(begins)[-1]
    before = (start[waiting] - 1) % len(prompts)
    is_same = prompts[before] == prompts[waiting]
    before[is_same] = (run_start[before[is_same]] - 1) % len(prompts)
    found[waiting] = before
    return found
