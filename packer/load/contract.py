"""Checks the batch contract on a model's input, from this reader or from any other collator.

Nothing fails when a line of the contract is broken; the loss still falls. A batch is the named inputs of a causal
language model. Sequences begin where the first of these says that it has: ``cu_seq_lens_q``, ``document_ids``,
``seq_idx``, a 2-D ``attention_mask``, or ``position_ids`` that do not increase by one, as in transformers.

Tensors are converted to numpy arrays. So batches of numpy arrays work, too, and nothing here needs torch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int64
from packer.display import plural
from packer.layout import MASKED

_BOUNDS = ("cu_seq_lens_q", "cu_seq_lens_k")
_DTYPES = {
    **dict.fromkeys(("input_ids", "position_ids"), ("int64", "int32")),
    **dict.fromkeys(("labels", "shift_labels"), ("int64",)),
    "attention_mask": ("int64", "int32", "bool"),
    "document_ids": ("int32", "int64"),
    **dict.fromkeys(("seq_idx", *_BOUNDS), ("int32",)),
    **dict.fromkeys(("max_length_q", "max_length_k"), ("int",)),
}
"""Columns that are checked, with the dtypes that losses and kernels need: int64 labels, int32 boundaries, ints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractLine:
    """A line of the contract, and the finding."""

    code: str
    level: Literal["ok", "failure", "skipped"]
    """``skipped``: the batch has nothing that this line applies to."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCheck:
    """The lines of the contract; printed with a tick each."""

    lines: tuple[ContractLine, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """Codes of the lines that failed."""
        return tuple(line.code for line in self.lines if line.level == "failure")

    def __bool__(self) -> bool:
        """Whether none failed."""
        return not self.failed

    ok = property(__bool__)

    def __str__(self) -> str:
        marks = {"ok": "✓", "failure": "✗", "skipped": "–"}
        return "\n".join(f"{marks[line.level]} {line.code:15}  {line.message}" for line in self.lines)


def check_batch(
    batch: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    num_items_in_batch: float | None = None,
    pad_id: int | None = None,
) -> BatchCheck:
    """Check a model's training input against the contract, line by line.

    | line | holds if |
    | --- | --- |
    | dtypes | each column has a dtype that losses and kernels accept |
    | shapes | token columns have one shape, and boundaries increase from 0 to its end |
    | labels | each label is -100 or the id at its place |
    | shift | labels are shifted once: by the model (``labels``), or beforehand (``shift_labels``) |
    | first_targets | no sequence begins with a target, which would be predicted from another one |
    | positions | positions count from 0 in each sequence |
    | mask | a mask is 1 on one run of each row, 0 on padding, and never combined with several sequences in one row |
    | padding_targets | no target is padding |
    | num_items | targets add up to what the loss is divided by |

    A label on a row's first token is not a target: shifting drops it. transformers counts in the same way.

    If a mask is 1 on padding, too, padding cannot be told from text, because its id is often that of an EOS. Then
    ``padding_targets`` reports that there is no padding, and only ``num_items_in_batch`` shows that it is trained.

    Args:
        batch: columns by name, as a model takes them; or all micro-batches of a step, such as a
            :class:`packer.load.Step` of one rank.
        num_items_in_batch: the divisor of the summed loss of all of them; None skips that line.
        pad_id: id of padding. Without a mask, sequences of only this id are padding.

    Raises:
        ValueError: no micro-batch, or one without ``input_ids``.

    Example:
        >>> ids, positions = np.array([[5, 6, 7, 8]]), np.array([[0, 1, 0, 1]])
        >>> check_batch({"input_ids": ids, "labels": ids, "position_ids": positions}).failed
        ('first_targets',)
    """
    batches = [batch] if isinstance(batch, Mapping) else list(batch)
    if not batches or not all(isinstance(each, Mapping) and "input_ids" in each for each in batches):
        raise ValueError("expected a batch of columns by name, input_ids among them, or several")
    read = [_Columns(columns, pad_id) for columns in batches]
    lines: list[ContractLine] = []
    for code, (check, holds) in _LINES.items():
        if code in ("shapes", "labels") and lines[-1].level == "failure":
            break  # columns of wrong dtype or shape cannot be checked further
        lines.append(_check_line(code, check, holds, read))
    else:
        lines.append(_num_items(read, num_items_in_batch))
    return BatchCheck(lines=tuple(lines))


class _Violation(Exception):  # noqa: N818 - a finding
    """A line does not hold; says why, and where."""


class _NotApplicable(Exception):  # noqa: N818 - a finding
    """The batch lacks what a line applies to."""


class _Columns:
    """A micro-batch as arrays, and what is derived from them."""

    def __init__(self, columns: Mapping[str, Any], pad_id: int | None) -> None:
        self.columns = columns = {name: value for name, value in columns.items() if value is not None}
        self.pad_id = pad_id
        self.arrays = {name: _array(columns[name]) for name in _DTYPES if hasattr(columns.get(name), "dtype")}
        if (positions := self.arrays.get("position_ids")) is not None and positions.shape[:-2] == (4,):
            self.arrays["position_ids"] = positions[0]  # those for the mask, before those in three dimensions
        for name in self.arrays.keys() & {*_BOUNDS}:  # without empty sequences at their end, as of static shapes
            if (bounds := self.arrays[name]).ndim == 1 and len(bounds):
                self.arrays[name] = bounds[: np.argmax(bounds == bounds[-1]) + 1]
        self.ids = self.arrays.get("input_ids", np.zeros(0))
        mask = self.arrays.get("attention_mask")
        self.mask = None if mask is None or mask.ndim > 2 else mask
        self.boundaries = next((name for name in ("cu_seq_lens_q", "document_ids", "seq_idx") if name in columns), None)
        self.is_shifted = "shift_labels" in columns
        self.label_column = "shift_labels" if self.is_shifted else "labels"

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.arrays[name]

    @cached_property
    def targets(self) -> Bool:
        """Which tokens are predicted, each from the one before it, whether labels are shifted or not.  # bool[B, T]"""
        targets = np.zeros(self.ids.shape, np.bool_)
        targets[:, 1:] = (self["shift_labels"][:, :-1] if self.is_shifted else self["labels"][:, 1:]) != MASKED
        return targets

    @cached_property
    def firsts(self) -> Bool:
        """Where sequences begin, including padding that a mask hides.  # bool[B, T]"""
        firsts = np.zeros(self.ids.shape, np.bool_)
        firsts[:, 0] = True
        if self.boundaries == "cu_seq_lens_q":
            firsts[0, self["cu_seq_lens_q"][:-1]] = True
        elif self.boundaries is not None:
            firsts[:, 1:] = np.diff(self[self.boundaries]) != 0
        elif self.mask is not None:
            firsts[:, 1:] = self.mask[:, 1:] != self.mask[:, :-1]
            if "position_ids" in self.arrays:
                firsts[:, 1:] |= (self["position_ids"][:, 1:] == 0) & (self.mask[:, 1:] != 0)
        elif "position_ids" in self.arrays:
            firsts[:, 1:] = np.diff(self["position_ids"]) != 1
        return firsts

    @cached_property
    def expected_positions(self) -> Int64:
        """Distance of each token from the beginning of its sequence.  # int64[B, T]"""
        slots = np.arange(self.ids.shape[1])
        positions: Int64 = slots - np.maximum.accumulate(np.where(self.firsts, slots, 0), axis=1)
        return positions

    @cached_property
    def padding(self) -> Bool:
        """Where the mask is 0; without a mask, sequences of only the pad id.  # bool[B, T]"""
        if self.mask is not None:
            hidden: Bool = self.mask == 0
            return hidden
        starts = np.flatnonzero(self.firsts)
        is_padding: Bool = np.logical_and.reduceat(self.ids.reshape(-1) == self.pad_id, starts)
        return np.repeat(is_padding, np.diff(starts, append=self.ids.size)).reshape(self.ids.shape)

    def mismatched_labels(self, shift: int) -> Bool:
        """Return labels that are neither -100 nor the id `shift` places later.  # bool[B, T]"""
        labels = self[self.label_column]
        ids = np.full(labels.shape, MASKED, np.int64)
        ids[:, : max(labels.shape[1] - shift, 0)] = self.ids[:, shift:]
        wrong: Bool = (labels != MASKED) & (labels != ids)
        return wrong

    @property
    def num_sequences(self) -> int:
        """Sequences that are not padding."""
        return int((self.firsts & ~self.padding).sum())

    @cached_property
    def shift(self) -> int | None:
        """Places by which labels precede their ids, as their name implies if possible; None if they are not ids."""
        shifts = (int(self.is_shifted), 0, 1, 2)
        return next((shift for shift in shifts if not self.mismatched_labels(shift).any()), None)


def _array(value: Any) -> npt.NDArray[Any]:
    """Convert a tensor on any device to an array; bfloat16, which numpy lacks, becomes float32."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    return np.asarray(value)


def _dtypes(batch: _Columns) -> str:
    names = [name for name in _DTYPES if name in batch.columns]
    for name in names:
        value = batch.columns[name]
        found = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
        if found not in _DTYPES[name] and not (name == "attention_mask" and batch.mask is None):
            raise _Violation(f"{name} is {found}; expected {' or '.join(_DTYPES[name])}")
    return f"{len(names)} columns, as losses and kernels take them"


def _shapes(batch: _Columns) -> str:
    shape = batch.ids.shape
    if len(shape) != 2 or not batch.ids.size:
        raise _Violation(f"input_ids is {list(shape)}; expected rows of tokens, [B, T]")
    if batch.label_column not in batch.arrays:
        raise _Violation("there are neither labels nor shift_labels")
    for name, array in batch.arrays.items():
        if name in _BOUNDS:
            _check_bounds(batch, name)
        elif array.shape != shape and not (name == "attention_mask" and batch.mask is None):
            raise _Violation(f"{name} is {list(array.shape)}, and input_ids {list(shape)}")
    _check_sequence_ids(batch)
    return f"each token column is {list(shape)}"


def _check_sequence_ids(batch: _Columns) -> None:
    for name in sorted({"document_ids", "seq_idx"} & batch.arrays.keys()):
        if (wrong := (np.diff(batch[name]) != 0) != batch.firsts[:, 1:]).any():
            raise _Violation(f"{name} and {batch.boundaries} differ on what begins after {_location(wrong)}")
    if "document_ids" in batch.arrays:
        begins = batch.firsts & ~batch.padding & (batch["document_ids"] >= 0)
        for row, (ids, row_begins) in enumerate(zip(batch["document_ids"], begins, strict=True)):
            if len(np.unique(ids[row_begins])) < row_begins.sum():
                raise _Violation(f"sequences of row {row} share a number in document_ids, and see each other by it")


def _check_bounds(batch: _Columns, name: str) -> None:
    bounds, (num_rows, length) = batch[name], batch.ids.shape
    if num_rows != 1:
        raise _Violation(f"{name} beside {num_rows} rows; a flattened batch has one")
    if bounds.ndim != 1 or len(bounds) < 2 or (bounds[0], bounds[-1]) != (0, length) or (np.diff(bounds) < 1).any():
        raise _Violation(f"{name} is {_shortened(bounds)}; expected it to go up from 0 to {length}")
    if not np.array_equal(bounds, batch.arrays.get("cu_seq_lens_q", bounds)):
        raise _Violation("cu_seq_lens_q and cu_seq_lens_k differ")
    longest, found = int(np.diff(bounds).max()), batch.columns.get(f"max_length_{name[-1]}")
    if found is not None and not longest <= found <= length:
        raise _Violation(f"max_length_{name[-1]} is {found}; the longest sequence has {longest} tokens")


def _labels(batch: _Columns) -> int:
    labels = batch[batch.label_column]
    if batch.shift is None:
        wrong = batch.mismatched_labels(int(batch.is_shifted))
        raise _Violation(f"{batch.label_column} at {_location(wrong)} is {labels[wrong][0]}, neither its id nor -100")
    return int((labels != MASKED).sum())


def _shift(batch: _Columns) -> str:
    if {"labels", "shift_labels"} <= batch.columns.keys():
        raise _Violation("there are labels and shift_labels: a model shifts one of them again")
    if batch.shift is None:
        raise _NotApplicable("labels that are not ids say nothing about it")
    if batch.shift != batch.is_shifted:
        column = batch.label_column
        raise _Violation(f"{column} at t has the id at t + {batch.shift}; expected t + {int(batch.is_shifted)}")
    return "shifted beforehand: the loss does not" if batch.is_shifted else "unshifted: the model shifts them"


def _first_targets(batch: _Columns) -> int:
    if (wrong := batch.targets & batch.firsts & ~batch.padding).any():
        raise _Violation(f"the first token at {_location(wrong)} is a target, predicted from what is before it")
    return batch.num_sequences


def _positions(batch: _Columns) -> int:
    if "position_ids" not in batch.arrays:
        raise _NotApplicable("no position_ids")
    if (wrong := (batch["position_ids"] != batch.expected_positions) & ~batch.padding).any():
        found, expected = batch["position_ids"][wrong][0], batch.expected_positions[wrong][0]
        raise _Violation(f"the position at {_location(wrong)} is {found}; expected {expected}")
    return batch.num_sequences


def _mask(batch: _Columns) -> int | str:
    if batch.mask is None and batch.boundaries is not None:
        return f"none, as attention goes by {batch.boundaries}"
    if batch.mask is None:
        raise _NotApplicable("no 2-D attention_mask")
    if len(others := np.setdiff1d(batch.mask, (0, 1))):
        raise _Violation(f"attention_mask has {_shortened(others)}; expected 0 and 1")
    if batch.boundaries is not None:
        raise _Violation(f"attention_mask beside {batch.boundaries}: transformers then overlooks the boundaries")
    begins, real = batch.firsts & ~batch.padding, ~batch.padding
    if (seen := np.pad(begins[:, 1:] & real[:, :-1], ((0, 0), (1, 0)))).any():
        raise _Violation(f"a sequence begins at {_location(seen)}, and the mask shows it what is before")
    if len(rows := np.flatnonzero(begins.sum(axis=1) != 1)):
        raise _Violation(f"row {rows[0]} of attention_mask has {begins[rows[0]].sum()} runs of 1; expected one")
    pads, pad_id = np.unique(batch.ids[batch.padding]), batch.pad_id
    if len(pads) > 1 or (pad_id is not None and (pads != pad_id).any()):
        raise _Violation(
            f"attention_mask is 0 on ids {_shortened(pads)}; expected {'one' if pad_id is None else pad_id}"
        )
    return int(batch.padding.sum())


def _padding_targets(batch: _Columns) -> int:
    if (wrong := batch.targets & batch.padding).any():
        raise _Violation(f"the target at {_location(wrong)} is padding")
    return int(batch.padding.sum())


def _num_items(batches: Sequence[_Columns], expected: float | None) -> ContractLine:
    """Compare the sum over all micro-batches with the divisor of their loss."""
    found = sum(int(batch.targets.sum()) for batch in batches)
    if expected is None:
        return ContractLine(code="num_items", level="skipped", message=f"{found:,} targets; no number to compare with")
    level: Any = "ok" if found > 0 and np.isclose(found, expected, rtol=1e-6, atol=0) else "failure"
    message = f"{found:,} targets, num_items_in_batch is {expected:,}"
    return ContractLine(code="num_items", level=level, message=message)


_LINES: dict[str, tuple[Callable[[_Columns], int | str], Callable[[int], str]]] = {
    "dtypes": (_dtypes, str),
    "shapes": (_shapes, str),
    "labels": (_labels, lambda n: f"{n:,} labels are the ids at their places, others -100"),
    "shift": (_shift, str),
    "first_targets": (_first_targets, lambda n: f"none of {plural(n, 'sequence')} begins with a target"),
    "positions": (_positions, lambda n: f"they count from 0 in each of {plural(n, 'sequence')}"),
    "mask": (_mask, lambda n: f"1 on tokens, 0 on {plural(n, 'slot')} of padding" if n else "1 on every slot"),
    "padding_targets": (
        _padding_targets,
        lambda n: f"no target on {plural(n, 'slot')} of padding" if n else "there is no padding",
    ),
}
"""For each line, the check of a micro-batch, and the message for the summed counts if it holds."""


def _check_line(
    code: str, check: Callable[[_Columns], int | str], holds: Callable[[int], str], batches: Sequence[_Columns]
) -> ContractLine:
    """Check a line in all micro-batches, stopping at the first that breaks it."""
    found: list[int | str] = []
    absent = ""
    for number, batch in enumerate(batches):
        try:
            found.append(check(batch))
        except _NotApplicable as lack:
            absent = absent or str(lack)
        except _Violation as broken:
            where = f"micro-batch {number}: " if len(batches) > 1 else ""
            return ContractLine(code=code, level="failure", message=f"{where}{broken}")
    if absent:
        return ContractLine(code=code, level="skipped", message=absent)
    counts = [value for value in found if isinstance(value, int)]
    message = holds(sum(counts)) if counts else str(found[0])
    return ContractLine(code=code, level="ok", message=message)


def _location(wrong: Bool) -> str:
    """Return the location of the first one, and the number of others."""
    rows, slots = np.nonzero(wrong)
    more = f" (and {len(rows) - 1:,} more)" if len(rows) > 1 else ""
    return f"row {rows[0]}, slot {slots[0]}{more}"


def _shortened(values: npt.NDArray[Any]) -> str:
    shown = ", ".join(map(str, values.reshape(-1)[:4].tolist()))
    return f"{shown}, …" if values.size > 4 else shown
