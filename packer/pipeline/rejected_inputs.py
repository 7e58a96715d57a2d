"""Inputs of which no row is kept: the one reason, and what to do about it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packer.pipeline.partition import PartitionResult, PartitionTask
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
    """The inputs of a plan of which no row is kept, by the result of each of its tasks."""
    return tuple(_rejected_inputs(plan, results))


def _rejected_inputs(plan: BuildPlan, results: Sequence[PartitionResult]) -> Iterator[RejectedInput]:
    by_source: dict[int, list[tuple[PartitionTask, PartitionResult]]] = {}
    for task, result in zip(plan.tasks, results, strict=True):
        by_source.setdefault(task.source, []).append((task, result))
    for source, made in by_source.items():
        rows = [row for _, result in made for row in result.rejected]
        if not rows or any(result.shard.num_kept for _, result in made):
            continue
        counts = Counter(row.code for row in rows)
        code = counts.most_common(1)[0][0]
        reason = next(row.reason for row in rows if row.code == code)
        lost = [each.removeprefix("dropped_") for each in sorted(counts) if each.startswith("dropped_")]
        yield RejectedInput(
            name=plan.inputs[source].path,
            num_rows=len(rows),
            code=code,
            reason=reason,
            way_out=way_out(code, reason, made[0][0], plan.recipe, lost=lost),
        )
