"""The price of rewritten history, before and after it is paid.

A template that rewrites earlier turns makes several documents of a conversation. Their tokens, over those of
each conversation's last document, are the price of learning every turn in its true context. Above `LIMIT` the
choice is the user's.
"""

import itertools

from packer.batches import DocumentBatch, RowBatch
from packer.build.plan import BuildPlan, tasks_by_input
from packer.build.stages import Stages
from packer.errors import UsageError
from packer.source import read_rows

LIMIT = 2.0

_SAMPLE_ROWS = 100
_SAMPLE_INPUTS = 16


class RewrittenError(UsageError):
    """Exact supervision of rewritten history costs more than twice the tokens, and nobody asked for it."""

    code = "rewritten"


def check_sampled_price(plan: BuildPlan, stages: Stages) -> None:
    """Look at the first rows of the first inputs, so that a long build does not end in a question.

    Raises:
        RewrittenError: their price is above the limit and the recipe does not say what to do.

    """
    if plan.recipe.supervision.rewritten is not None:
        return
    paid = last = 0
    for _, tasks in itertools.islice(tasks_by_input(plan), _SAMPLE_INPUTS):
        if not tasks:
            continue
        task, rows = tasks[0], plan.recipe.rows
        batches = read_rows(
            task.partition,
            schema=task.schema,  # type: ignore[arg-type]
            columns=task.columns,
            max_row_bytes=rows.max_bytes,
            batch_rows=_SAMPLE_ROWS,
        )
        documents = stages.run(next(iter(batches), _NO_ROWS)).documents
        paid += len(documents.input_ids)
        last += _last_tokens(documents)
    check_price(plan, paid, last)


def check_price(plan: BuildPlan, num_tokens: int, num_last_tokens: int) -> None:
    """Compare tokens of all documents with those of each row's last.

    Raises:
        RewrittenError: more than `LIMIT` times as many, and the recipe does not say what to do.

    """
    if plan.recipe.supervision.rewritten is None and num_tokens > LIMIT * num_last_tokens:
        raise RewrittenError(
            f"this template rewrites earlier turns: learning every turn in its true context takes "
            f"{num_tokens / num_last_tokens:.1f} times the tokens",
            hint="--set supervision.rewritten=exact pays that, =last learns only each conversation's last stretch, "
            "=as_rendered learns earlier turns as history shows them where only an empty reasoning block differs",
        )


_NO_ROWS = RowBatch(samples=(), rejections=(), num_rows=0)


def _last_tokens(documents: DocumentBatch) -> int:
    """Tokens of the last document of each sample; documents of a sample stand together."""
    lengths = documents.offsets[1:] - documents.offsets[:-1]
    is_last = [True] * len(lengths)
    is_last[:-1] = (documents.sample[1:] != documents.sample[:-1]).tolist()
    return int(lengths[is_last].sum())
