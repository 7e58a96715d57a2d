"""The price of rewritten history, before and after it is paid.

A template that rewrites earlier turns makes several documents of a conversation. Their tokens, over those of
each conversation's last document, are the price of learning every turn in its true context. Above `LIMIT` the
choice is the user's.
"""

import functools
import itertools

from packer.batches import DocumentBatch, RowBatch
from packer.build.overruns import named_row, overruns_at
from packer.build.partition import PartitionTask
from packer.build.plan import BuildPlan, tasks_by_input
from packer.build.stages import Stages, turn_end_marker
from packer.errors import UsageError
from packer.model import Model
from packer.recipe import Recipe
from packer.source import read_rows

LIMIT = 2.0
CLEARLY = 2.5

_SAMPLE_ROWS = 100
_SAMPLE_INPUTS = 16


class RewrittenError(UsageError):
    """Exact supervision of rewritten history costs more than twice the tokens, and nobody asked for it."""

    code = "rewritten"


def check_sampled_price(plan: BuildPlan, stages: Stages) -> None:
    """Look at the first rows of the first inputs, so that a long build does not end in a question.

    Each input counts by its rows. This is an estimate: it stops the build only where it is well above the limit, and
    what it lets pass is measured when the documents are there.

    Raises:
        RewrittenError: the estimate is above `CLEARLY` and the recipe does not say what to do.

    """
    if plan.recipe.supervision.rewritten is not None:
        return
    paid = last = 0.0
    for entry, tasks in itertools.islice(tasks_by_input(plan), _SAMPLE_INPUTS):
        rows = _first_rows(plan, tasks[0])
        with overruns_at(functools.partial(named_row, tasks[0].partition, recipe=plan.recipe)):
            documents = stages.run(rows).documents
        weight = entry.num_rows / max(rows.num_rows, 1)
        paid += weight * len(documents.input_ids)
        last += weight * last_tokens(documents)
    if paid > CLEARLY * last:
        raise _error(plan, f"about {paid / last:.1f}")


def check_price(plan: BuildPlan, num_tokens: int, num_last_tokens: int) -> None:
    """Compare tokens of all documents with those of each row's last.

    Raises:
        RewrittenError: more than `LIMIT` times as many, and the recipe does not say what to do.

    """
    if plan.recipe.supervision.rewritten is None and num_tokens > LIMIT * num_last_tokens:
        raise _error(plan, f"{num_tokens / num_last_tokens:.1f}")


def way_out(model: Model, recipe: Recipe) -> str:
    """What to do about rewritten history, as a hint."""
    closing = turn_end_marker(model, recipe)
    stop = (
        f"if generation stops at '{closing}', which this template writes after every turn, say so and nothing is "
        f"rewritten: --set 'supervision.stop=[\"{closing}\"]'. Else "
        if closing
        else ""
    )
    return (
        f"{stop}--set supervision.rewritten=as_rendered learns earlier turns as history shows them, where only an "
        "empty reasoning block differs (right for rows without reasoning); =exact pays the price; =last learns only "
        "each conversation's last stretch. See docs/explanation/supervision.md"
    )


def _error(plan: BuildPlan, times: str) -> RewrittenError:
    return RewrittenError(
        f"this template changes earlier turns when a conversation goes on: learning every turn in its true context "
        f"takes {times} times the tokens",
        hint=way_out(plan.model, plan.recipe),
    )


def _first_rows(plan: BuildPlan, task: PartitionTask) -> RowBatch:
    batches = read_rows(
        task.partition,
        schema=task.schema,
        columns=task.columns,
        max_row_bytes=plan.recipe.rows.max_bytes,
        batch_rows=_SAMPLE_ROWS,
    )
    return next(iter(batches), _NO_ROWS)


_NO_ROWS = RowBatch(samples=(), rejections=(), num_rows=0)


def last_tokens(documents: DocumentBatch) -> int:
    """Tokens of the last document of each sample; documents of a sample stand together."""
    lengths = documents.offsets[1:] - documents.offsets[:-1]
    is_last = [True] * len(lengths)
    is_last[:-1] = (documents.sample[1:] != documents.sample[:-1]).tolist()
    return int(lengths[is_last].sum())
