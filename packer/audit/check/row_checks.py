"""Checks that compare rows: copies and near duplicates between and within splits.

Held-out splits are compared with training splits, not with each other.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from packer.audit.check.check_report import Check, Outcome
from packer.audit.check.row_facts import RowFacts
from packer.batches import Int64, UInt64
from packer.curate.near import DroppedRows, exact_duplicates, near_duplicates, nearest
from packer.curate.select import NAMES
from packer.display import plural

JACCARD = 0.8
"""Similarity from which on rows count as near duplicates."""

_LEAKAGE = (
    f"--set split.leakage.near={JACCARD} leaves such rows out of train; --set split.shares.validation=0.02 holds out "
    "rows by their prompt, so that no prompt is in two splits"
)

_GROUPED = (
    "in sources without a split of their own, split.group keeps the rows of a group together; or the field has both 7 "
    'and "7"'
)
_EARLY = "in sources without a split of their own, split.time holds out the last rows"

_OTHER_NAME = "with sources.split: train for what is trained on, as rules take all other splits for held out, "

NEAR_BETWEEN = "near_between_splits"
SHOWN = 5

FEW_ROWS = 100
"""Of an input with fewer rows, a share says little."""

_MANY = 0.01
"""Share of rows from which on copies, or prompts shared with training rows, matter."""

_TEMPLATED = 0.1

ExamplePairs = tuple[tuple[int, int, float], ...]
"""Pairs of rows that illustrate a finding: their indices among the facts, and their similarity."""

CheckResult = tuple[Check, ExamplePairs]


def compare_rows(facts: RowFacts) -> list[CheckResult]:
    """Compare the rows of all splits; also nearly, by group and by time, if the facts have what that needs."""
    found: list[CheckResult] = []
    near = facts.conversations is not None
    if facts.conversations is not None and not len(facts.conversations.shingles):
        message, near = "rows that bring their ids have no words to compare", False
        found.append((Check(code="near_copies", level="skipped", message=message), ()))
    if len(facts.splits) > 1:
        found += _between_splits(facts, near=near)
        found += [(_groups(facts.group, facts), ())] if facts.group is not None else []
    found.append(_copies_within(facts))
    return [*found, _near_within(facts)] if near else found


def _between_splits(facts: RowFacts, *, near: bool) -> Iterator[CheckResult]:
    """Find held-out rows that are also training rows, or whose prompt is that of one, or nearly (`near`)."""

    def copied(rows: Int64, among: Int64) -> ExamplePairs:
        return _same(facts.content, rows, among)

    def asked(rows: Int64, among: Int64) -> ExamplePairs:
        long = np.diff(facts.prompts.offsets) > 0
        return _same(facts.prompt, rows[long[rows]], among[long[among]])

    def nearly(rows: Int64, among: Int64) -> ExamplePairs:
        return _pairs(nearest(facts.prompts, among, rows, JACCARD))

    none = "no row of a held-out split is also in a split that is trained on"
    yield _between(facts, "copies_between_splits", copied, found="{are} also in {others}", none=none, fails=0.0)
    none = "no prompt of a held-out split is also in a split that is trained on"
    found = "{ask} what a row of {others} asks"
    yield _between(facts, "prompts_between_splits", asked, found=found, none=none, fails=_MANY)
    if near:
        none = "no prompt of a held-out split is nearly one that is trained on"
        found = "{ask} nearly what a row of {others} asks"
        check, pairs = _between(facts, NEAR_BETWEEN, nearly, found=found, none=none, fails=_MANY)
        yield check, tuple(pair for pair in pairs if not _is_plain(facts, pair))  # the check before shows those
    if (time := facts.time) is not None:

        def early(rows: Int64, among: Int64) -> ExamplePairs:
            last = int(among[np.nan_to_num(time[among], nan=-np.inf).argmax()])
            return tuple((row, last, 1.0) for row in rows[time[rows] <= time[last]].tolist())

        none = f"every row of a held-out split is later than those that are trained on, by {facts.asked.time}"
        found = "{are} no later than the last of {others}"
        yield _between(facts, "times", early, found=found, none=none, fails=0.0, hint=_EARLY)


def _groups(group: UInt64, facts: RowFacts) -> Check:
    """Count groups that are in more than one split."""
    own = np.unique(np.stack([group.view(np.int64), facts.split], axis=1)[group != 0], axis=0)
    values, counts = np.unique(own[:, 0], return_counts=True)
    number = int((counts > 1).sum())
    of, field = f"of {len(values):,} values of", facts.asked.group
    message = f"{number:,} {of} {field} are in more than one split" if number else f"each {of} {field} is in one split"
    return Check.of("groups", message, "failure" if number else None, count=number, hint=_GROUPED)


def _copies_within(facts: RowFacts) -> CheckResult:
    """Find rows that occur more than once in their split."""
    rows, pairs = 0, list[tuple[int, int, float]]()
    for name in facts.splits:
        own = facts.of_split(name)
        copies = exact_duplicates(facts.content, own)
        rows += len(copies.row)
        pairs += _pairs(copies)[:SHOWN]
    return _within(
        "copies_within_splits",
        rows,
        len(facts.row),
        pairs,
        found="is a copy of another row of its split" if rows == 1 else "are a copy of another row of their split",
        none="no row is in its split twice",
        hint="--set deduplicate.exact=bytes keeps the first of them",
    )


def _near_within(facts: RowFacts) -> CheckResult:
    """Find near duplicates among the training rows: a sign of a corpus generated from templates."""
    conversations = facts.conversations
    assert conversations is not None, "asked for"
    num_capped, rows, near, pairs = 0, [], [], []
    for name in facts.trained:
        own = facts.of_split(name)
        copies = near_duplicates(conversations, own, JACCARD)
        num_capped += copies.num_capped
        rows.append(own)
        near.append(copies.row)
        pairs += [pair for pair in _pairs(copies) if pair[2] < 1][:SHOWN]
    whole, part = (np.bincount(facts.source[np.concatenate(each)], minlength=len(facts.files)) for each in (rows, near))
    large = np.where(whole >= FEW_ROWS, part / np.maximum(whole, 1), 0)
    worst, number = int(np.argmax(large)), int(part.sum())
    share = max(float(large[worst]), number / max(int(whole.sum()), 1))
    is_one = not large[worst] or (whole > 0).sum() == 1
    most = "" if is_one else f"; of {facts.files[worst]} {part[worst]:,} of {whole[worst]:,}"
    return _within(
        "near_within_splits",
        number,
        int(whole.sum()),
        pairs,
        found=f"{'is' if number == 1 else 'are'} nearly another row that is trained on{most}"
        + ("; so many share a template that not all were compared" if num_capped else ""),
        none="no row that is trained on is nearly another",
        hint=f"--set deduplicate.near.jaccard={JACCARD} keeps the first of them",
        is_many=share >= _TEMPLATED,
    )


def _between(
    facts: RowFacts,
    code: str,
    compare: Callable[[Int64, Int64], ExamplePairs],
    *,
    found: str,
    none: str,
    fails: float,
    hint: str = _LEAKAGE,
) -> CheckResult:
    """Compare each held-out split with the training splits.

    `compare` maps held-out rows and training rows to pairs of matching rows. From a share of `fails` of a held-out
    split on, matches are a failure, below a warning. `found` is the verb phrase of the message, `none` the message if
    nothing is found.
    """
    among = np.concatenate([facts.of_split(name) for name in facts.trained])
    if not len(among) or len(among) == len(facts.row):
        missing = "held out" if len(among) else "trained"
        return Check(code=code, level="skipped", message=f"no row that is {missing} could be read"), ()
    levels: list[Outcome] = ["ok"]
    parts: list[str] = []
    pairs: list[tuple[int, int, float]] = []
    number = 0
    for name in (each for each in facts.splits if each not in facts.trained):
        rows = facts.of_split(name)
        alike = compare(rows, among)
        if alike:
            levels.append("failure" if len(alike) >= fails * len(rows) else "warning")
            one = "s" if len(alike) == 1 else ""
            does = found.format(are="is" if one else "are", ask=f"ask{one}", others=" or ".join(facts.trained))
            parts.append(f"{len(alike):,} of {plural(len(rows), 'row')} of {name} {does}")
        number += len(alike)
        pairs += sorted(alike, key=lambda pair: (_is_plain(facts, pair), -pair[2], pair[0]))[:SHOWN]
    worst = max(levels, key=("ok", "warning", "failure").index)
    way = ("" if NAMES[0] in facts.trained else _OTHER_NAME) + hint if number else None
    check = Check(code=code, level=worst, message="; ".join(parts) or none, count=number, hint=way)
    return check, tuple(pairs[:SHOWN])


def _is_plain(facts: RowFacts, pair: tuple[int, int, float]) -> bool:
    """Whether two rows have the same prompt; such pairs are less interesting examples, and are shown last."""
    return bool(facts.prompt[pair[0]] == facts.prompt[pair[1]])


def _within(
    code: str,
    number: int,
    num_rows: int,
    pairs: Sequence[tuple[int, int, float]],
    *,
    found: str,
    none: str,
    hint: str,
    is_many: bool | None = None,
) -> CheckResult:
    """Make a warning if many rows match (by default 1 in 100); `found` is the verb phrase of its message."""
    is_many = number > 0 and (number >= _MANY * num_rows if is_many is None else is_many)
    message = f"{number:,} of {plural(num_rows, 'row')} {found}" if number else none
    check = Check.of(code, message, "warning" if is_many else None, count=number, hint=hint)
    return check, tuple(pairs[:SHOWN]) if is_many else ()


def _same(keys: npt.NDArray[np.generic], rows: Int64, among: Int64) -> ExamplePairs:
    """Pair each row whose key occurs among the others with the first of those."""
    if not len(among):
        return ()
    order = among[np.argsort(keys[among], kind="stable")]
    at = np.minimum(np.searchsorted(keys[order], keys[rows]), len(order) - 1)
    found = np.flatnonzero(keys[order[at]] == keys[rows])
    return tuple((row, of, 1.0) for row, of in zip(rows[found].tolist(), order[at[found]].tolist(), strict=True))


def _pairs(copies: DroppedRows) -> ExamplePairs:
    return tuple(zip(copies.row.tolist(), copies.kept.tolist(), copies.similarity.tolist(), strict=True))
