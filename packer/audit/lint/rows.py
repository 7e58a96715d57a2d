"""Real rows under the template: what is rejected, what it costs, which prompts answers take."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from packer.audit.first_rows import input_files, open_input
from packer.audit.lint.findings import Example, LintFinding, LookedAt
from packer.audit.lint.probes import PLAIN
from packer.audit.lint.subject import Subject, learned_turns
from packer.batches import Rejection, RowBatch, Sample
from packer.build.price import LIMIT, last_tokens, way_out
from packer.build.stages import Stages
from packer.model import Model
from packer.recipe import Recipe
from packer.render.control import control_pattern, typed_fields

_BATCH_ROWS = 100


@dataclass(slots=True)
class _Tally:
    """What rows came to, of all inputs together."""

    looked_at: list[LookedAt] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    """Place and reason of the first rejection of each code."""

    prompts: Counter[str] = field(default_factory=Counter)
    control: Counter[str] = field(default_factory=Counter)
    num_turns: int = 0
    num_merged: int = 0
    num_tokens: int = 0
    num_last_tokens: int = 0

    @property
    def num_rows(self) -> int:
        return sum(entry.num_rows for entry in self.looked_at)

    @property
    def num_kept(self) -> int:
        return sum(entry.num_kept for entry in self.looked_at)


def look_at_rows(
    recipe: Recipe, model: Model, subject: Subject | None, *, num_rows: int
) -> tuple[tuple[LookedAt, ...], tuple[LintFinding, ...]]:
    """Take the first rows of each input of the recipe through the stages.

    Args:
        recipe: names the inputs.
        model: with the role markers of its template.
        subject: the template, where plain chats can be built.
        num_rows: rows of each input at most.

    Raises:
        InputError: an input cannot be read.

    """
    exact = msgspec.structs.replace(recipe.supervision, rewritten="exact")
    stages = Stages(msgspec.structs.replace(recipe, supervision=exact), model)
    prompts = _prompt_ends(subject) if subject is not None else ()
    pattern = control_pattern(model.control)
    tally = _Tally()
    for source, path in input_files(recipe):
        entry = open_input(source, path, recipe)
        rows = list(islice(entry.rows(), num_rows + 1))
        batches = [row.batch for row in rows[:num_rows]]
        kept = num_turns = 0
        for start in range(0, len(batches), _BATCH_ROWS):
            batch = _joined(batches[start : start + _BATCH_ROWS])
            if pattern is not None:
                for sample in batch.samples:
                    tally.control.update(_typed(sample, pattern))
            followed = stages.follow(batch)
            documents, rejections = followed.supervised.documents, followed.supervised.rejections
            _count_rejections(tally, path.as_posix(), rejections)
            turns = learned_turns(followed)
            for turn in turns:
                end = next((end for end in prompts if turn.prompt.endswith(end)), None)
                if end is not None:
                    tally.prompts[end] += 1
            kept += len(set(documents.sample.tolist()))
            num_turns += len(documents.run_start)
            tally.num_merged += followed.supervised.num_merged
            tally.num_tokens += len(documents.input_ids)
            tally.num_last_tokens += last_tokens(documents) if documents.num_documents else 0
        tally.num_turns += num_turns
        tally.looked_at.append(
            LookedAt(
                path=path.as_posix(),
                schema=entry.schema,
                num_rows=len(batches),
                is_whole=len(rows) <= num_rows,
                num_kept=kept,
                num_turns=num_turns,
            )
        )
    return tuple(tally.looked_at), tuple(_findings(tally, recipe, model))


def _joined(batches: Sequence[RowBatch]) -> RowBatch:
    return RowBatch(
        samples=tuple(sample for batch in batches for sample in batch.samples),
        rejections=tuple(rejection for batch in batches for rejection in batch.rejections),
        num_rows=sum(batch.num_rows for batch in batches),
    )


def _count_rejections(tally: _Tally, path: str, rejections: Sequence[Rejection]) -> None:
    for rejection in rejections:
        tally.rejected[rejection.code] += 1
        tally.first.setdefault(rejection.code, f"{path}:{rejection.row}: {rejection.reason}")


def _prompt_ends(subject: Subject) -> tuple[str, ...]:
    """How the prompts of all modes end, behind what they have in common; the longest first, none where all are one."""
    outcome = subject.ask(PLAIN)
    prompts = dict.fromkeys(prompt for prompt, _ in subject.conversation(outcome).prompts(1))
    if len(prompts) < 2:
        return ()
    asked = subject.conversation(outcome).messages[0]["content"]
    return tuple(sorted((prompt[prompt.rfind(asked) + len(asked) :] for prompt in prompts), key=len, reverse=True))


def _typed(sample: Sample, pattern: re.Pattern[str]) -> set[str]:
    """Control tokens whose text a row holds."""
    fields = [typed_fields(message.fields) for message in sample.messages]
    texts = _strings([fields, sample.tools, sample.template_kwargs, sample.prompt, sample.text])
    return {found for text in texts for found in pattern.findall(text)}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _findings(tally: _Tally, recipe: Recipe, model: Model) -> Iterator[LintFinding]:
    num_rejected = sum(tally.rejected.values())
    if num_rejected:
        yield LintFinding(
            code="rows_rejected" if tally.num_kept else "rows_all_rejected",
            message=f"{num_rejected:,} of {tally.num_rows:,} rows looked at are rejected"
            if tally.num_kept
            else f"all {tally.num_rows:,} rows looked at are rejected",
            examples=tuple(
                Example(label=f"{count:,} {code}", text=tally.first[code])
                for code, count in tally.rejected.most_common()
            ),
            hint=_rejected_hint(tally),
        )
    if tally.num_last_tokens and tally.num_tokens > tally.num_last_tokens:
        yield _price(tally, recipe, model)
    if len(tally.prompts) > 1:
        yield LintFinding(
            code="rows_modes",
            message=f"the {tally.prompts.total():,} answers of the rows looked at are learned under "
            f"{len(tally.prompts)} prompts",
            examples=tuple(Example(label=f"{count:,} answers", text=end) for end, count in tally.prompts.most_common()),
        )
    if tally.num_merged:
        yield LintFinding(
            code="rows_merged",
            message=f"{tally.num_merged:,} of {tally.num_turns:,} answers looked at fuse with the end of their prompt, "
            "and are encoded apart from it",
        )
    if tally.control:
        listed = ", ".join(f"'{token}' in {count:,}" for token, count in tally.control.most_common())
        yield LintFinding(
            code="rows_control_tokens",
            message=f"rows hold the text of control tokens: {listed}; outside answers it is encoded as ordinary text, "
            "in an answer it rejects the row",
            hint="--set supervision.control_tokens=reject rejects all such rows, =allow keeps them all as text",
        )


def _rejected_hint(tally: _Tally) -> str | None:
    """Where the template loses something, how to keep such rows without it."""
    kinds = [code.removeprefix("dropped_") for code, _ in tally.rejected.most_common() if code.startswith("dropped_")]
    if not kinds:
        return None
    return f"--set 'supervision.allow_dropped=[{','.join(kinds)}]' learns such rows without what is lost"


def _price(tally: _Tally, recipe: Recipe, model: Model) -> LintFinding:
    price = tally.num_tokens / tally.num_last_tokens
    asked = recipe.supervision.rewritten is None and price > LIMIT
    return LintFinding(
        code="rows_price",
        message=f"rewritten history: the rows looked at take {price:.2f} times the tokens of their last documents"
        + ("; above 2 a build stops and asks" if asked else ""),
        hint=way_out(model, recipe) if asked else None,
        allowed=not asked,
    )
