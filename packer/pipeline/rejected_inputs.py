"""Inputs of which no row is kept: the one reason, and what to do about it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from packer.errors import NothingKeptError
from packer.pipeline.partition import PartitionResult, PartitionTask, RejectedRow
from packer.pipeline.plan import BuildPlan
from packer.pipeline.suggestions import way_out


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedInput:
    """An input all of whose rows are rejected."""

    name: str
    num_rows: int
    code: str
    """Of most of them."""

    reason: str
    """Of the first of these."""

    way_out: str
    """What to do about them."""


def rejected_inputs(plan: BuildPlan, results: Sequence[PartitionResult]) -> tuple[RejectedInput, ...]:
    """The inputs of a plan of which no row is kept, by the result of each of its tasks.

    Raises:
        NothingKeptError: no row of any input is kept.

    """
    by_input: dict[int, list[tuple[PartitionTask, RejectedRow]]] = {}
    for task, result in zip(plan.tasks, results, strict=True):
        by_input.setdefault(task.source, []).extend((task, row) for row in result.rejected)
    if not any(result.shard.num_rows for result in results):
        raise _nothing_kept(plan, [row for rows in by_input.values() for row in rows])
    kept = {task.source for task, result in zip(plan.tasks, results, strict=True) if result.shard.num_kept}
    found = []
    for source, rows in by_input.items():
        if rows and source not in kept:
            code, reason, hint = _most(plan, rows)
            name = plan.inputs[source].path
            found.append(RejectedInput(name=name, num_rows=len(rows), code=code, reason=reason, way_out=hint))
    return tuple(found)


def _nothing_kept(plan: BuildPlan, rows: Sequence[tuple[PartitionTask, RejectedRow]]) -> NothingKeptError:
    codes = Counter(row.code for _, row in rows)
    examples = {row.code: row.reason for _, row in reversed(rows)}
    counted = "; ".join(f"{count} × {code} ({examples[code]})" for code, count in codes.most_common(3))
    hint = _most(plan, rows)[2]
    return NothingKeptError(f"nothing kept: all {len(rows)} rows were rejected: {counted}", hint=hint)


def _most(plan: BuildPlan, rows: Sequence[tuple[PartitionTask, RejectedRow]]) -> tuple[str, str, str]:
    """The code of most rejected rows, the reason of the first of these, and what to do about them."""
    codes = Counter(row.code for _, row in rows)
    code = codes.most_common(1)[0][0]
    task, first = next((task, row) for task, row in rows if row.code == code)
    lost = sorted(each.removeprefix("dropped_") for each in codes if each.startswith("dropped_"))
    return code, first.reason, way_out(code, first.reason, task.file, plan.recipe, lost=lost)
