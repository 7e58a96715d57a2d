"""The cost of rewritten history: estimate it early, check it at the end, and name the alternatives.

A template that rewrites earlier turns makes several documents of a conversation. The cost is the ratio of their tokens
to those of each conversation's last document: the price of training every turn in its true context. If it exceeds
`LIMIT`, the user has to choose.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np

from packer.batches import DocumentBatch
from packer.errors import UsageError
from packer.layout import last_of_rows
from packer.model.model import Model
from packer.pipeline.partition import PartitionResult
from packer.pipeline.plan.build_plan import BuildPlan
from packer.pipeline.stages import turn_end_marker
from packer.recipe.recipe import Recipe
from packer.store.manifest import Shard

LIMIT = 2.0
"""Ratio of all tokens to those of last documents above which a build asks the user to choose."""

CLEARLY = 2.5
"""The ratio at which a build stops early, estimated from the first partitions of the first `_INPUTS` inputs."""

_INPUTS = 16


class RewrittenError(UsageError):
    """Exact supervision of rewritten history costs more than twice the tokens, and the recipe does not ask for it."""

    code = "rewritten"


def sampled_tasks(plan: BuildPlan) -> tuple[int, ...]:
    """Return tasks that show early what rewritten history costs: the first partition of each of the first inputs."""
    if plan.recipe.supervision.history_rewrite is not None:
        return ()
    first = {task.source: number for number, task in reversed(list(enumerate(plan.tasks)))}
    return tuple(sorted(first.values())[:_INPUTS])


def refuse_early(plan: BuildPlan, results: Mapping[int, PartitionResult]) -> None:
    """Stop a long build early if its first partitions are well above the limit.

    Each of them is weighted by the rows of its input. The same partitions are used every time, so the decision depends
    on the plan alone.
    """
    tasks = sampled_tasks(plan)
    if not all(number in results for number in tasks):
        return
    sampled = [(plan.inputs[plan.tasks[number].source].num_rows, results[number].shard) for number in tasks]
    _refuse(plan, [(num_rows / max(shard.num_input_rows, 1), shard) for num_rows, shard in sampled], CLEARLY, "about ")


def check_rewrite_cost(plan: BuildPlan, shards: Sequence[Shard]) -> None:
    """Refuse more than `LIMIT` times the tokens of each row's last document, unless the recipe has chosen."""
    _refuse(plan, [(1, shard) for shard in shards], LIMIT)


def _refuse(plan: BuildPlan, weighted: Sequence[tuple[float, Shard]], limit: float, about: str = "") -> None:
    paid = sum(weight * shard.num_tokens for weight, shard in weighted)
    last = sum(weight * shard.num_last_tokens for weight, shard in weighted)
    if plan.recipe.supervision.history_rewrite is None and paid > limit * last:
        raise RewrittenError(
            "this template changes earlier answers once a conversation continues: training each of them in the context "
            f"that a server sends takes {about}{paid / last:.1f} times the tokens",
            hint=choices_hint(plan.model, plan.recipe),
        )


def last_tokens(documents: DocumentBatch) -> int:
    """Count the tokens of each sample's last document (for pairs: of the last one of each side)."""
    return int(np.diff(documents.offsets)[last_of_rows(documents.sample, documents.side)].sum())


def choices_hint(model: Model, recipe: Recipe) -> str:
    """Say what each choice trains, and, if a token closes every turn, that nothing is rewritten up to it."""
    closing = turn_end_marker(model, recipe)
    if closing is not None:
        stops = json.dumps([*recipe.supervision.stop, closing], ensure_ascii=False)
        return (
            f"--set 'supervision.stop={stops}' if generation stops at {closing}, which this template writes "
            f"after every turn: then nothing is rewritten. Otherwise --history {_CHOICES}"
        )
    return f"--history {_CHOICES}"


_CHOICES = (
    "as_rendered trains every answer, earlier ones as the template shows them later on, without an empty reasoning "
    "block; --history exact trains every answer in the context that a server sends, at this price; "
    "--history last trains only the end of each conversation"
)
