"""The price of rewritten history, before and after it is paid.

A template that rewrites earlier turns makes several documents of a conversation. Their tokens, over those of
each conversation's last document, are the price of learning every turn in its true context. Above `LIMIT` the
choice is the user's.
"""

from collections.abc import Sequence

from packer.batches import DocumentBatch
from packer.build.plan import BuildPlan
from packer.build.stages import turn_end_marker
from packer.errors import UsageError
from packer.model import Model
from packer.recipe import Recipe
from packer.store.manifest import Shard

LIMIT = 2.0
CLEARLY = 2.5

_SAMPLE_INPUTS = 16


class RewrittenError(UsageError):
    """Exact supervision of rewritten history costs more than twice the tokens, and nobody asked for it."""

    code = "rewritten"


class Estimate:
    """What rewritten history will cost, by the partitions that are made: a long build should not end in a question.

    Of each input the partitions that are there count for all of its rows; inputs of which there is none yet count as
    if nothing in them were rewritten. It stops a build only well above the limit; what it lets pass is measured when
    all documents are there.
    """

    def __init__(self, plan: BuildPlan) -> None:
        self._plan = plan
        self._total_rows = sum(entry.num_rows for entry in plan.inputs)
        self._parts: dict[int, tuple[int, int, int]] = {}
        self._seen_rows = 0
        self._paid = self._last = 0.0

    def add(self, shard: Shard) -> None:
        """Count a shard of documents.

        Raises:
            RewrittenError: the estimate is above `CLEARLY` and the recipe does not say what to do.

        """
        if self._plan.recipe.supervision.rewritten is not None or not shard.num_input_rows:
            return
        assert shard.source is not None
        num_rows = self._plan.inputs[shard.source].num_rows
        before = self._parts.get(shard.source, (0, 0, 0))
        now = before[0] + shard.num_input_rows, before[1] + shard.num_tokens, before[2] + shard.num_last_tokens
        self._parts[shard.source] = now
        self._seen_rows += 0 if before[0] else num_rows
        for part, sign in ((before, -1), (now, 1)):
            times = sign * num_rows / max(part[0], 1)
            self._paid += times * part[1]
            self._last += times * part[2]
        unseen = (self._total_rows / self._seen_rows - 1) * self._last
        paid, last = self._paid + unseen, self._last + unseen
        if paid > CLEARLY * last:
            raise _error(self._plan, f"about {paid / last:.1f}")


def telling_first(plan: BuildPlan, numbers: Sequence[int]) -> list[int]:
    """Tasks of a plan by which its price is best estimated: the first of the first inputs, which are small."""
    if plan.recipe.supervision.rewritten is not None:
        return []
    return [number for number in numbers if plan.tasks[number].partition.first_row == 0][:_SAMPLE_INPUTS]


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


def last_tokens(documents: DocumentBatch) -> int:
    """Tokens of the last document of each sample; documents of a sample stand together."""
    lengths = documents.offsets[1:] - documents.offsets[:-1]
    is_last = [True] * len(lengths)
    is_last[:-1] = (documents.sample[1:] != documents.sample[:-1]).tolist()
    return int(lengths[is_last].sum())
