"""Find inputs of which no row is kept, and codes that reject many rows of the others; give the reason and a remedy."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packer.display import number, plural
from packer.errors import NothingKeptError
from packer.pipeline.messages.suggestions import remedy
from packer.pipeline.partition import PartitionResult, PartitionTask, RejectedRow
from packer.pipeline.plan.build_plan import BuildPlan

_MANY = 0.1
"""Share of rows rejected by one code from which on a build reports it with a remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedInput:
    """An input whose rows are all rejected; or all remaining inputs, if one code rejects many of their rows."""

    name: str
    num_rejected: int
    """All rows of the input, or the rows rejected with the code."""

    num_rows: int
    code: str
    """The most frequent code."""

    reason: str
    """The reason of the first row with that code."""

    way_out: str
    """The suggested remedy."""

    def lines(self) -> Iterator[str]:
        """Yield the warning."""
        share = "all" if self.num_rejected == self.num_rows else f"{number(self.num_rejected)} of"
        rows = f"{share} {plural(self.num_rows, 'row')} of {self.name}"
        yield f"warning: {rows} are rejected: {self.code}: {self.reason}"
        yield f"  {self.way_out}"
        yield ""


def rejected_inputs(plan: BuildPlan, results: Sequence[PartitionResult]) -> tuple[RejectedInput, ...]:
    """Return what a build reports about rejected rows, from the results of its plan's tasks.

    Raises:
        NothingKeptError: no row of any input is kept.
    """
    by_input: dict[int, list[tuple[PartitionTask, RejectedRow]]] = {}
    for task, result in zip(plan.tasks, results, strict=True):
        by_input.setdefault(task.source, []).extend((task, row) for row in result.rejected)
    if not any(result.shard.num_rows for result in results):
        raise _nothing_kept(plan, [row for rows in by_input.values() for row in rows])
    kept = sorted({task.source for task, result in zip(plan.tasks, results, strict=True) if result.shard.num_kept})
    found = []
    for source, rows in by_input.items():
        if rows and source not in kept:
            found.append(_most(plan, rows, name=plan.inputs[source].path, num_rows=len(rows), all_rows=True))
    rest = [row for source in kept for row in by_input[source]]
    if rest:
        num_rows = sum(result.shard.num_kept for result in results) + len(rest)
        name = plan.inputs[kept[0]].path if len(kept) == 1 else plural(len(kept), "input")
        most = _most(plan, rest, name=name, num_rows=num_rows)
        found += [most] if most.num_rejected >= _MANY * num_rows else []
    return tuple(found)


def _nothing_kept(plan: BuildPlan, rows: Sequence[tuple[PartitionTask, RejectedRow]]) -> NothingKeptError:
    codes = Counter(row.code for _, row in rows)
    examples = {row.code: row.reason for _, row in reversed(rows)}
    counted = "; ".join(f"{count} × {code} ({examples[code]})" for code, count in codes.most_common(3))
    hint = _most(plan, rows, name="", num_rows=len(rows)).way_out
    return NothingKeptError(f"nothing kept: all {len(rows)} rows were rejected: {counted}", hint=hint)


def _most(
    plan: BuildPlan,
    rows: Sequence[tuple[PartitionTask, RejectedRow]],
    *,
    name: str,
    num_rows: int,
    all_rows: bool = False,
) -> RejectedInput:
    """Describe the most frequent code among rejected rows: the reason of its first row, and the remedy."""
    codes = Counter(row.code for _, row in rows)
    code, count = codes.most_common(1)[0]
    task, first = next((task, row) for task, row in rows if row.code == code)
    lost = sorted(each.removeprefix("dropped_") for each in codes if each.startswith("dropped_"))
    hint = remedy(code, first.reason, task.file, plan.recipe, plan.model, lost=lost)
    return RejectedInput(
        name=name,
        num_rejected=len(rows) if all_rows else count,
        num_rows=num_rows,
        code=code,
        reason=first.reason,
        way_out=hint,
    )
