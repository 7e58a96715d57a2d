"""What a build warns of or refuses: rejected rows, tokens that are in no block, and the price of rewritten history.

Both are counted in the manifest and listed in `rejected.jsonl`. If more than one percent of the tokens is in no
block, the build warns and names the block lengths that would keep them; if more than a tenth is, it stops. It names
inputs of which no row is kept, and codes that reject many rows of the others. `--fail-above` sets another limit, for
rows and tokens alike.

A template that rewrites earlier turns makes several documents of a conversation. The cost is the ratio of their tokens
to those of each conversation's last document: the price of training every turn in its true context. If it exceeds
`MOST_TIMES`, the user has to choose.
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.display import number, percent, plural
from packer.errors import CheckError, NothingKeptError, UsageError
from packer.model.model import Model
from packer.pipeline.messages.suggestions import remedy
from packer.pipeline.partition import PartitionResult, PartitionTask, RejectedRow
from packer.pipeline.plan.build_plan import BuildPlan
from packer.pipeline.stages import turn_end_marker
from packer.recipe.groups import MAX_BLOCK_LEN
from packer.recipe.recipe import Recipe
from packer.rejections import CODES
from packer.store.entries import Cut, InNoBlock
from packer.store.manifest import Manifest
from packer.store.row_tables import documents_of, read_rejected
from packer.store.shards import DocumentShards

_MOST = 0.99
_STEP = 64


class LeftOutError(CheckError):
    """More is left out than is allowed; nothing is wrong with what was made so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLosses:
    """Tokens that are in no block, if they are more than one percent of all."""

    tokens: int
    of_tokens: int
    """Tokens of all documents but those that rules about rows leave out."""

    share: float
    fits_all: int | None
    """Block length that fits the longest document: a multiple of 64 and of `pack.align`. None if a longer block
    does not help, because the documents are too short or the block would exceed the limit."""

    fits_most: int | None
    """Smallest such length that fits documents with 99 % of the tokens; None if it equals `fits_all`, or is not longer
    than the current blocks."""

    ways_out: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield the warning."""
        tokens = f"{number(self.tokens)} of {number(self.of_tokens)}"
        yield f"warning: {percent(self.share)} of the tokens are in no block ({tokens})"
        yield from (f"  {way}" for way in self.ways_out)


def token_losses(folder: Path, manifest: Manifest) -> TokenLosses:
    """Return what a cache leaves out of its blocks, with ways to keep it."""
    lost, splits = InNoBlock.of(manifest.totals), documents_of(folder, manifest).values()
    return _losses(lost, splits, manifest.recipe["pack"])


def _losses(lost: InNoBlock, splits: Collection[DocumentShards], pack: Mapping[str, Any]) -> TokenLosses:
    """Find what keeps more of the documents of all splits than the recipe's `pack` does."""
    fits_all = fits_most = None
    if splits and pack["mode"] != "stream" and lost.cuts:  # a handmade manifest may have none
        step = math.lcm(_STEP, pack.get("align", 1))
        lengths: npt.NDArray[np.integer] = np.concatenate([documents.lengths() for documents in splits])
        fits_all, fits_most = fitting(lengths, step=step)
    most = fits_most if fits_most != fits_all and (fits_most or 0) > pack["block_len"] else None
    return TokenLosses(
        tokens=lost.tokens,
        of_tokens=lost.of_tokens,
        share=lost.share,
        fits_all=fits_all,
        fits_most=most,
        ways_out=_remedies(lost.cuts, fits_all, most),
    )


def fitting(lengths: npt.NDArray[np.integer], *, step: int) -> tuple[int | None, int | None]:
    """Return the smallest multiples of `step` that fit all documents, and documents with 99 % of the tokens.

    Worked example: lengths 10, 80 and 9000 are 9,090 tokens. Documents of at most 80 tokens contain 90 of them, less
    than 99 %, so with a step of 64 both block lengths are 9,024.

    Returns:
        both lengths; None for one that exceeds the longest possible block
    """
    ordered = np.sort(lengths.astype(np.int64))
    held = np.cumsum(ordered)
    most = ordered[np.searchsorted(held, math.ceil(_MOST * int(held[-1])))]
    rounded = [-(-int(length) // step) * step for length in (ordered[-1], most)]
    all_, most_ = (length if length <= MAX_BLOCK_LEN else None for length in rounded)
    return all_, most_


def _remedies(cut: Mapping[str, Cut], fits_all: int | None, fits_most: int | None) -> tuple[str, ...]:
    """List options that keep more."""
    ways = {
        f"--block-len {fits_all} fits every document": fits_all is not None,
        f"--block-len {fits_most} fits documents with 99 % of the tokens": fits_most is not None,
        "--set pack.overlong=split cuts long documents, and truncate_right keeps their beginning": "overlong" in cut,
        "--set pack.overlong=split keeps what is cut off": "truncated" in cut,
    }
    return tuple(way for way, helps in ways.items() if helps)


def refuse_lost_tokens(
    lost: InNoBlock, splits: Collection[DocumentShards], pack: Mapping[str, Any], limit: float
) -> None:
    """Refuse, with a LeftOutError, blocks that leave out a larger share of the tokens than `limit`, or all of them."""
    if lost.is_within(limit):
        return
    found = "; ".join(f"{number(cut.tokens)} {code} ({CODES[code]})" for code, cut in lost.cuts.items())
    tokens = f"{number(lost.tokens)} of {number(lost.of_tokens)} tokens"
    ways_out = _losses(lost, splits, pack).ways_out
    if lost.tokens == lost.of_tokens:
        raise NothingKeptError(f"nothing kept: no token would be in a block: {found}", hint="; ".join(ways_out))
    raise LeftOutError(
        f"{percent(lost.share)} of the tokens would be in no block ({tokens}): {found}",
        hint="; ".join((*ways_out, "--fail-above 1 builds without these tokens")),
    )


def refuse_rejected_rows(folder: Path, manifest: Manifest, limit: float) -> None:
    """Refuse, with a LeftOutError, a cache of which a larger share of the rows is rejected than `limit`."""
    totals = manifest.totals
    rejected = totals.rows - totals.kept
    if rejected > limit * totals.rows:
        codes = ", ".join(f"{count:,} {code}" for code, count in sorted(totals.rejected.items()))
        first = next(line for line in read_rejected(folder, manifest) if line.document is None)
        place = f"{first.source}:{first.line}" if first.line else f"{first.source} row {first.row}"
        raise LeftOutError(
            f"{percent(rejected / totals.rows)} of the rows are rejected ({rejected:,} of {totals.rows:,}): {codes}; "
            f"the first is {place}: {first.code}: {first.reason}",
            hint="nothing was committed; --fail-above 1 accepts any share, and rejected.jsonl lists what is left out",
        )


def refuse_existing(folder: Path, manifest: Manifest, limit: float) -> None:
    """Refuse, with a LeftOutError, a cache that stands if it leaves out more than a limit."""
    refuse_rejected_rows(folder, manifest, limit)
    lost, splits = InNoBlock.of(manifest.totals), documents_of(folder, manifest).values()
    refuse_lost_tokens(lost, splits, manifest.recipe["pack"], limit)


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
    reason: str
    """The reason of the first row with that code."""

    way_out: str

    def lines(self) -> Iterator[str]:
        """Yield the warning."""
        share = "all" if self.num_rejected == self.num_rows else f"{number(self.num_rejected)} of"
        rows = f"{share} {plural(self.num_rows, 'row')} of {self.name}"
        yield f"warning: {rows} are rejected: {self.code}: {self.reason}"
        yield f"  {self.way_out}"


_Rejections: TypeAlias = Sequence[tuple[PartitionTask, RejectedRow]]


def rejected_inputs(plan: BuildPlan, results: Sequence[PartitionResult]) -> tuple[RejectedInput, ...]:
    """Return what a build reports about rejected rows, from the results of its plan's tasks."""
    made = [*zip(plan.tasks, results, strict=True)]
    rejections = [(task, row) for task, result in made for row in result.rejected]
    if not any(result.shard.num_rows for result in results):
        codes = Counter(row.code for _, row in rejections)
        examples = {row.code: row.reason for _, row in reversed(rejections)}
        counted = "; ".join(f"{count} × {code} ({examples[code]})" for code, count in codes.most_common(3))
        hint = _most(plan, rejections, name="").way_out
        raise NothingKeptError(f"nothing kept: all {len(rejections)} rows were rejected: {counted}", hint=hint)
    kept = {task.source for task, result in made if result.shard.num_kept}
    found = [
        _most(plan, [*own], name=plan.inputs[source].path)
        for source, own in groupby(rejections, key=lambda each: each[0].source)
        if source not in kept
    ]
    rest = [each for each in rejections if each[0].source in kept]
    if rest:
        num_rows = sum(result.shard.num_kept for result in results) + len(rest)
        name = plan.inputs[min(kept)].path if len(kept) == 1 else plural(len(kept), "input")
        most = _most(plan, rest, name=name, num_rows=num_rows)
        found += [most] * (most.num_rejected >= _MANY * num_rows)
    return tuple(found)


def _most(plan: BuildPlan, rejections: _Rejections, *, name: str, num_rows: int | None = None) -> RejectedInput:
    """Describe the most frequent code among rejected rows: the reason of its first row, and the remedy.

    `num_rows` are those that might have been rejected; None if all were.
    """
    codes = Counter(row.code for _, row in rejections)
    code, count = codes.most_common(1)[0]
    task, first = next((task, row) for task, row in rejections if row.code == code)
    lost = sorted(each.removeprefix("dropped_") for each in codes if each.startswith("dropped_"))
    return RejectedInput(
        name=name,
        num_rejected=len(rejections) if num_rows is None else count,
        num_rows=len(rejections) if num_rows is None else num_rows,
        code=code,
        reason=first.reason,
        way_out=remedy(code, first.reason, task.file, plan.recipe, plan.model, lost=lost),
    )


MOST_TIMES = 2.0
"""Ratio of all tokens to those of last documents above which a build asks the user to choose."""

CLEARLY = 2.5
"""The ratio at which a build stops early, estimated from the first partitions of the first inputs."""


class RewrittenError(UsageError):
    """Exact supervision of rewritten history costs more than twice the tokens, and the recipe does not ask for it."""

    code = "rewritten"


def refuse_early(plan: BuildPlan, results: Mapping[int, PartitionResult], tasks: Sequence[int]) -> None:
    """Stop a long build early if some partitions, those of `tasks`, are well above the limit.

    Each of them is weighted by the rows of its input. The same partitions are used every time, so the decision depends
    on the plan alone.
    """
    if not all(number in results for number in tasks):
        return
    sampled = [(plan.inputs[plan.tasks[number].source].num_rows, results[number].shard) for number in tasks]
    weighted = [(num_rows / max(shard.num_input_rows, 1), shard) for num_rows, shard in sampled]
    sizes = [(weight * shard.num_tokens, weight * shard.num_last_tokens) for weight, shard in weighted]
    refuse_cost(plan.recipe, plan.model, sizes, CLEARLY, "about ")


def refuse_cost(
    recipe: Recipe, model: Model, sizes: Sequence[tuple[float, float]], limit: float = MOST_TIMES, about: str = ""
) -> None:
    """Raise RewrittenError if the tokens of all documents are more than `limit` times those of each row's last one."""
    paid, last = (sum(each) for each in zip(*sizes, strict=True)) if sizes else (0, 0)
    times = paid / last if last else 1.0
    if recipe.supervision.history_rewrite is None and times > limit:
        raise RewrittenError(
            "this template changes earlier answers once a conversation continues: training each of them in the context "
            f"that a server sends takes {about}{times:.1f} times the tokens",
            hint=choices_hint(model, recipe),
        )


def choices_hint(model: Model, recipe: Recipe) -> str:
    """Say what each choice trains, and, if a token closes every turn, that nothing is rewritten up to it."""
    closing = turn_end_marker(model, recipe)
    if closing is not None:
        stops = json.dumps([*recipe.supervision.stop, closing], ensure_ascii=False)
        return (
            f"--set 'supervision.stop={stops}' if generation stops at {closing}, which this template writes "
            f"after every turn: then nothing is rewritten. Otherwise --history {_HISTORY_CHOICES}"
        )
    return f"--history {_HISTORY_CHOICES}"


_HISTORY_CHOICES = (
    "as_rendered trains every answer, earlier ones as the template shows them later on, without an empty reasoning "
    "block; --history exact trains every answer in the context that a server sends, at this price; "
    "--history last trains only the end of each conversation"
)
