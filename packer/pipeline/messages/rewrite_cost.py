"""The cost of rewritten history: estimate it early, check it at the end, and recommend an alternative.

A template that rewrites earlier turns makes several documents of a conversation. The cost is the ratio of their tokens
to those of each conversation's last document: the price of training every turn in its true context. If it exceeds
`LIMIT`, the user has to choose a remedy. Each one is tried on the first rows, and one of them is recommended.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import msgspec
import numpy as np

from packer.batches import DocumentBatch, RowBatch, Sample, TurnBatch
from packer.errors import UsageError
from packer.layout import last_of_rows
from packer.model.model import Model
from packer.pipeline.partition import PartitionResult
from packer.pipeline.plan.build_plan import BuildPlan
from packer.pipeline.plan.input_resolution import source_files
from packer.pipeline.plan.inputs import open_inputs
from packer.pipeline.stages import turn_end_marker
from packer.progress import Silent
from packer.recipe.recipe import Recipe
from packer.render import Renderer
from packer.render.reasoning import reasoning_of
from packer.store.manifest import Shard

LIMIT = 2.0
"""Ratio of all tokens to those of last documents above which a build asks the user to choose."""

CLEARLY = 2.5
"""The ratio at which a build stops early, estimated from the first partitions of the first `_INPUTS` inputs."""

_INPUTS = 16

RECOMMENDED_BELOW = 0.9
"""`as_rendered`, which trains the same answers, is recommended if its tokens are below this fraction of those of
`exact`."""

_ROWS, _MOST_ROWS = 64, 256
"""Number of rows to try the choices on: per input, and in total. Rows with tools take some milliseconds per choice."""


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
    """Compare the tokens of all documents with those of each row's last document.

    Raises:
        RewrittenError: more than `LIMIT` times as many, and the recipe does not say what to do.
    """
    num_tokens, num_last_tokens = sum(s.num_tokens for s in shards), sum(s.num_last_tokens for s in shards)
    if plan.recipe.supervision.history_rewrite is None and num_tokens > LIMIT * num_last_tokens:
        raise _error(plan, f"{num_tokens / num_last_tokens:.1f}")


def _error(plan: BuildPlan, times: str) -> RewrittenError:
    return RewrittenError(
        "this template changes earlier answers once a conversation continues: training each of them as "
        f"inference asks for it takes {times} times the tokens",
        hint=choices_hint(plan.model, plan.recipe),
    )


def last_tokens(documents: DocumentBatch) -> int:
    """Count the tokens of each sample's last document (for pairs: of the last one of each side)."""
    return int(np.diff(documents.offsets)[last_of_rows(documents.sample, documents.side)].sum())


def choices_hint(model: Model, recipe: Recipe) -> str:
    """Describe the first rows, recommend the choice that suits them, and say what each of the others would train.

    Raises:
        InputError: an input cannot be read.
    """
    samples = list(islice(_first_samples(recipe), _MOST_ROWS))
    exact, rendered, last = (_turns(samples, model, recipe, choice) for choice in ("exact", "as_rendered", "last"))
    least, num_last, num_answers = max(len(last.text), 1), len(last.turn_text), len(exact.turn_text)
    told = {
        "as_rendered": "trains every answer, earlier ones as the template shows them later on, without an empty "
        f"reasoning block ({len(rendered.text) / least:.1f} times the tokens)",
        "exact": "trains every answer as inference asks for it, in as many documents as that takes "
        f"({len(exact.text) / least:.1f} times the tokens)",
        "last": f"trains only the end of each conversation ({num_last:,} of {num_answers:,} answers)",
    }
    closing = turn_end_marker(model, recipe)
    if closing is not None:
        best = f"--set 'supervision.stop=[\"{closing}\"]'"
        why = f"this template writes {closing} after every turn, and where generation stops at it nothing is rewritten"
    else:
        choice = "as_rendered" if len(rendered.text) < RECOMMENDED_BELOW * len(exact.text) else "exact"
        best = f"--set supervision.history_rewrite={choice}"
        why = f"it {told.pop(choice)}"
        told.pop("as_rendered", None)  # saves hardly any tokens over exact
    others = "; ".join(f"={choice} {what}" for choice, what in told.items())
    return f"{_held(samples)}; {best} suits them: {why}. Else history_rewrite{others}"


def _held(samples: list[Sample]) -> str:
    """Describe how many answers the rows have, and what share of them contains reasoning."""
    answers = [message for sample in samples for message in sample.messages if message.role == "assistant"]
    reasoned = sum(bool(reasoning_of(message.fields)) for message in answers)
    thought = "none with reasoning" if not reasoned else f"{reasoned / len(answers):.0%} of them with reasoning"
    return f"the first {len(samples):,} rows have {len(answers) / max(len(samples), 1):.1f} answers each, {thought}"


def _first_samples(recipe: Recipe) -> Iterator[Sample]:
    files = [file for source in recipe.sources for file in source_files(source)]
    for _, entry in open_inputs(files, recipe, Silent().note):
        for row in islice(entry.rows(), _ROWS):
            yield from (sample for sample in row.batch.samples if sample.kind == "chat")


def _turns(samples: list[Sample], model: Model, recipe: Recipe, choice: str) -> TurnBatch:
    """Return the answers that a choice trains, and the texts they are trained in."""
    supervision = msgspec.structs.replace(recipe.supervision, history_rewrite=choice)
    renderer = Renderer(model, msgspec.structs.replace(recipe, supervision=supervision))
    return renderer.render(RowBatch(samples=tuple(samples), rejections=(), num_rows=len(samples)))
