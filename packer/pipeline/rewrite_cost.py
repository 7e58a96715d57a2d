"""The price of rewritten history, before and after it is paid.

A template that rewrites earlier turns makes several documents of a conversation. Their tokens, over those of
each conversation's last document, are the price of learning every turn in its true context. Above `LIMIT` the
choice is the user's.
"""

from packer.batches import DocumentBatch
from packer.errors import UsageError
from packer.model import Model
from packer.pipeline.plan import BuildPlan
from packer.pipeline.stages import turn_end_marker
from packer.recipe import Recipe
from packer.store.manifest import Shard

LIMIT = 2.0
CLEARLY = 2.5

_INPUTS = 16


class RewrittenError(UsageError):
    """Exact supervision of rewritten history costs more than twice the tokens, and nobody asked for it."""

    code = "rewritten"


class Estimate:
    """What rewritten history will cost, by the first partition of the first inputs.

    A long build should not end in a question. Of each of these inputs the partition counts for all of its rows. It
    stops a build only where that is well above the limit; what it lets pass is measured when all documents are there.
    Always the same partitions tell, so the answer depends on nothing but the plan.
    """

    def __init__(self, plan: BuildPlan) -> None:
        self._plan = plan
        self.numbers: tuple[int, ...] = ()
        """Tasks of the plan by which it is told; they are small."""

        if plan.recipe.supervision.history_rewrite is None:
            first = {task.source: number for number, task in reversed(list(enumerate(plan.tasks)))}
            self.numbers = tuple(sorted(first.values())[:_INPUTS])
        self._missing = set(self.numbers)
        self._paid = self._last = 0.0

    def add(self, number: int, shard: Shard) -> None:
        """Count the shard of a task.

        Raises:
            RewrittenError: the estimate is above `CLEARLY`.

        """
        if number not in self._missing:
            return
        self._missing.remove(number)
        times = self._plan.inputs[self._plan.tasks[number].source].num_rows / max(shard.num_input_rows, 1)
        self._paid += times * shard.num_tokens
        self._last += times * shard.num_last_tokens
        if not self._missing and self._paid > CLEARLY * self._last:
            raise _error(self._plan, f"about {self._paid / self._last:.1f}")


def check_rewrite_cost(plan: BuildPlan, num_tokens: int, num_last_tokens: int) -> None:
    """Compare tokens of all documents with those of each row's last.

    Raises:
        RewrittenError: more than `LIMIT` times as many, and the recipe does not say what to do.

    """
    if plan.recipe.supervision.history_rewrite is None and num_tokens > LIMIT * num_last_tokens:
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
        f"{stop}--set supervision.history_rewrite=as_rendered learns earlier turns as history shows them, where only "
        "an empty reasoning block differs (right for rows without reasoning); =exact pays the price; =last learns only "
        "each conversation's last stretch. See docs/explanation/supervision.md"
    )


def _error(plan: BuildPlan, times: str) -> RewrittenError:
    return RewrittenError(
        f"this template changes earlier turns when a conversation goes on: learning every turn in its true context "
        f"takes {times} times the tokens",
        hint=way_out(plan.model, plan.recipe),
    )


def last_tokens(documents: DocumentBatch) -> int:
    """Tokens of the last document of each sample; documents of a sample stand together."""
    lengths = documents.offsets[1:] - documents.offsets[:-1]
    is_last = [True] * len(lengths)
    is_last[:-1] = (documents.sample[1:] != documents.sample[:-1]).tolist()
    return int(lengths[is_last].sum())
