"""The price of rewritten history, before and after it is paid.

A template that rewrites earlier turns makes several documents of a conversation. Their tokens, over those of
each conversation's last document, are the price of learning every turn in its true context. Above `LIMIT` the
choice is the user's.
"""

from collections.abc import Mapping, Sequence

from packer.batches import DocumentBatch
from packer.errors import UsageError
from packer.pipeline.partition import PartitionResult
from packer.pipeline.plan import BuildPlan
from packer.pipeline.rewrite_choices import choices_hint
from packer.store.manifest import Shard

LIMIT = 2.0
CLEARLY = 2.5

_INPUTS = 16


class RewrittenError(UsageError):
    """Exact supervision of rewritten history costs more than twice the tokens, and nobody asked for it."""

    code = "rewritten"


def sampled_tasks(plan: BuildPlan) -> tuple[int, ...]:
    """Tasks that show early what rewritten history will cost: the first of each of the first inputs; they are small."""
    if plan.recipe.supervision.history_rewrite is not None:
        return ()
    first = {task.source: number for number, task in reversed(list(enumerate(plan.tasks)))}
    return tuple(sorted(first.values())[:_INPUTS])


def refuse_early(plan: BuildPlan, results: Mapping[int, PartitionResult]) -> None:
    """Stop a long build before it ends in a question: where the first partitions are well above the limit.

    Each counts for all rows of its input. They are always the same, so the answer depends on nothing but the plan.

    Raises:
        RewrittenError: they take more than `CLEARLY` times the tokens.

    """
    tasks = sampled_tasks(plan)
    if not all(number in results for number in tasks):
        return
    paid = last = 0.0
    for number in tasks:
        shard = results[number].shard
        times = plan.inputs[plan.tasks[number].source].num_rows / max(shard.num_input_rows, 1)
        paid += times * shard.num_tokens
        last += times * shard.num_last_tokens
    if paid > CLEARLY * last:
        raise _error(plan, f"about {paid / last:.1f}")


def check_rewrite_cost(plan: BuildPlan, shards: Sequence[Shard]) -> None:
    """Compare tokens of all documents with those of each row's last.

    Raises:
        RewrittenError: more than `LIMIT` times as many, and the recipe does not say what to do.

    """
    num_tokens, num_last_tokens = sum(s.num_tokens for s in shards), sum(s.num_last_tokens for s in shards)
    if plan.recipe.supervision.history_rewrite is None and num_tokens > LIMIT * num_last_tokens:
        raise _error(plan, f"{num_tokens / num_last_tokens:.1f}")


def _error(plan: BuildPlan, times: str) -> RewrittenError:
    return RewrittenError(
        "this template writes earlier answers in another way once a conversation goes on: learning each of them as "
        f"inference asks for it takes {times} times the tokens",
        hint=choices_hint(plan.model, plan.recipe),
    )


def last_tokens(documents: DocumentBatch) -> int:
    """Tokens of the last document of each sample; documents of a sample stand together."""
    lengths = documents.offsets[1:] - documents.offsets[:-1]
    is_last = [True] * len(lengths)
    is_last[:-1] = (documents.sample[1:] != documents.sample[:-1]).tolist()
    return int(lengths[is_last].sum())
