"""What a consumer wants a micro-batch to be."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from packer.load.batching import Batching, Packed, Padded, TokenBudget

_RUNS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Which columns a micro-batch has, and how they are laid out."""

    flatten: bool
    shifted: bool
    weighted: bool
    columns: frozenset[str]

    def wants(self, name: str) -> bool:
        return name in self.columns


def form_of(
    batching: Batching,
    *,
    flatten: bool,
    labels: Literal["unshifted", "shifted"],
    weighted: bool,
    columns: Collection[str] | None,
) -> Form:
    """The form that a loader's arguments make.

    Raises:
        ValueError: a column that micro-batches of this form do not have, or labels asked shifted and left out.
        TypeError: what is no names.

    """
    if columns is not None and (
        not isinstance(columns, Collection) or not all(isinstance(name, str) for name in columns)
    ):
        raise TypeError(f"columns is {columns!r}; expected names")
    there = list(_columns(batching, flatten=flatten))
    if weighted:
        there.append("loss_weights")
    wanted = frozenset(there if columns is None else columns)
    if not wanted or not wanted <= frozenset(there):
        found = ", ".join(sorted(wanted - frozenset(there))) or "none"
        raise ValueError(f"columns {found}: expected some of {', '.join(there)}")
    if labels == "shifted" and "labels" not in wanted:
        raise ValueError("labels='shifted' needs the column labels")
    return Form(flatten=flatten, shifted=labels == "shifted", weighted=weighted, columns=wanted)


def _columns(batching: Batching, *, flatten: bool) -> Iterable[str]:
    yield from ("input_ids", "labels", "position_ids")
    padded = batching.padded if isinstance(batching, TokenBudget) else batching
    if isinstance(padded, Padded):
        yield "attention_mask"
    elif isinstance(batching, Packed) and not flatten:
        yield "document_ids"
    else:
        yield from _RUNS
