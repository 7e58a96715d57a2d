"""Real rows under the template: what is rejected, what it costs, which prompts answers take."""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from packer.audit.lint.findings import LookedAt
from packer.audit.lint.probes import INLINE, PLAIN, REASONED
from packer.audit.lint.subject import LearnedTurn, Subject, learned_turns, mode_name, mode_of
from packer.batches import Rejection, RowBatch, Sample
from packer.build.inputs import open_inputs
from packer.build.plan import load_recipe_model, resolve_sources
from packer.build.price import last_tokens
from packer.build.progress import Silent
from packer.build.stages import FollowedRows, Stages, overruns_at
from packer.errors import TemplateError
from packer.model import Model
from packer.recipe import Recipe
from packer.render import RenderError
from packer.render.chat import renderable
from packer.render.control import control_pattern, typed_fields
from packer.render.reasoning import opened_by, reasoning_of

_BATCH_ROWS = 100


class PromptUse(NamedTuple):
    """A prompt that answers are learned under: its mode in words, and how it ends."""

    mode: str
    ending: str


@dataclass(slots=True, kw_only=True)
class FileTally:
    """What the first rows of one file came to."""

    path: str
    name: str
    """Names the file in the report: the last part of its path, where no other input has the same."""

    schema: str
    batches: list[RowBatch]
    is_whole: bool
    rejected: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    """Place and reason of the first rejection of each code."""

    prompts: Counter[PromptUse] = field(default_factory=Counter)
    control: Counter[str] = field(default_factory=Counter)
    num_skipping: int = 0
    """Answers without reasoning that are learned under the prompt of those with it."""

    first_skipping: str = ""
    num_kept: int = 0
    num_turns: int = 0
    num_merged: int = 0
    num_tokens: int = 0
    num_last_tokens: int = 0

    @property
    def num_rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    @property
    def price(self) -> float:
        return self.num_tokens / self.num_last_tokens if self.num_last_tokens else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The first rows of every input, through the stages under one recipe."""

    files: tuple[FileTally, ...]
    num_kept_given: tuple[int, ...] | None
    """Of each file, rows kept under the recipe as given; None where a build of it would not begin."""

    def total(self, name: str) -> int:
        return sum(int(getattr(each, name)) for each in self.files)

    def counted(self, name: str) -> Counter[Any]:
        return sum((getattr(each, name) for each in self.files), Counter())

    def looked_at(self, *, assumed: bool) -> tuple[LookedAt, ...]:
        given = self.num_kept_given or (None,) * len(self.files)
        return tuple(
            LookedAt(
                path=each.path,
                schema=each.schema,
                num_rows=each.num_rows,
                is_whole=each.is_whole,
                num_kept=kept,
                num_kept_assumed=each.num_kept if assumed else None,
                num_turns=each.num_turns,
            )
            for each, kept in zip(self.files, given, strict=True)
        )


def look_at_rows(recipe: Recipe, model: Model, given: Recipe, subject: Subject | None, *, num_rows: int) -> Rows:
    """Take the first rows of each input of the recipe through the stages.

    Args:
        recipe: names the inputs; with what is assumed.
        model: with the role markers of its template.
        given: the recipe without what is assumed.
        subject: the template, where plain chats can be built.
        num_rows: rows of each input at most.

    Raises:
        InputError: an input cannot be read.

    """
    stages = Stages(recipe, model)
    pattern = control_pattern(model.control)
    files = _read(recipe, num_rows)
    by_mode = _Modes(stages, subject)
    for tally in files:
        for batch in _grouped(tally.batches):
            if pattern is not None:
                for sample in batch.samples:
                    tally.control.update(_typed(sample, pattern))
            with overruns_at(functools.partial(_named, tally.path)):
                followed = stages.follow(batch)
                _count(tally, followed)
                by_mode.count(tally, batch, followed)
    kept = tuple(each.num_kept for each in files) if given == recipe else _kept(given, files)
    return Rows(files=tuple(files), num_kept_given=kept)


def price_under(recipe: Recipe, model: Model, rows: Rows) -> float:
    """The price of rewritten history under another recipe."""
    stages, paid, last = Stages(recipe, model), 0, 0
    for tally in rows.files:
        for batch in _grouped(tally.batches):
            documents = stages.run(batch).documents
            paid += len(documents.input_ids)
            last += last_tokens(documents) if documents.num_documents else 0
    return paid / last if last else 1.0


def rejections_under(recipe: Recipe, model: Model, rows: Rows) -> Counter[str]:
    """Codes of rejection under another recipe."""
    stages = Stages(recipe, model)
    codes: Counter[str] = Counter()
    for tally in rows.files:
        for batch in _grouped(tally.batches):
            codes.update(rejection.code for rejection in stages.run(batch).rejections)
    return codes


def _read(recipe: Recipe, num_rows: int) -> list[FileTally]:
    inputs = [entry for _, entry in open_inputs(resolve_sources(recipe), recipe, Silent().note)]
    names = Counter(PurePosixPath(entry.name).name for entry in inputs)
    files = []
    for entry in inputs:
        rows = list(islice(entry.rows(), num_rows + 1))
        files.append(
            FileTally(
                path=entry.name,
                name=_name(entry.name, names),
                schema=entry.schema,
                batches=[row.batch for row in rows[:num_rows]],
                is_whole=len(rows) <= num_rows,
            )
        )
    return files


def _named(path: str, row: int) -> str:
    return path if row < 0 else f"{path} (row {row})"


def _name(path: str, names: Mapping[str, int]) -> str:
    name = PurePosixPath(path).name
    return name if names[name] == 1 else path


def _kept(given: Recipe, files: Sequence[FileTally]) -> tuple[int, ...] | None:
    """Rows of each file that the recipe as given keeps; None where its template is refused."""
    try:
        stages = Stages(given, load_recipe_model(given))
    except TemplateError:
        return None
    return tuple(
        sum(len(set(stages.run(batch).documents.sample.tolist())) for batch in _grouped(each.batches)) for each in files
    )


def _grouped(batches: Sequence[RowBatch]) -> Iterator[RowBatch]:
    """Batches of one row, joined to larger ones."""
    for start in range(0, len(batches), _BATCH_ROWS):
        part = batches[start : start + _BATCH_ROWS]
        yield RowBatch(
            samples=tuple(sample for batch in part for sample in batch.samples),
            rejections=tuple(rejection for batch in part for rejection in batch.rejections),
            num_rows=sum(batch.num_rows for batch in part),
        )


def _count(tally: FileTally, followed: FollowedRows) -> None:
    documents = followed.supervised.documents
    rejections: Sequence[Rejection] = followed.supervised.rejections
    for rejection in rejections:
        tally.rejected[rejection.code] += 1
        tally.first.setdefault(rejection.code, f"{tally.name}:{rejection.row}: {rejection.reason}")
    tally.num_kept += len(set(documents.sample.tolist()))
    tally.num_turns += len(documents.run_start)
    tally.num_merged += followed.supervised.num_merged
    tally.num_tokens += len(documents.input_ids)
    tally.num_last_tokens += last_tokens(documents) if documents.num_documents else 0


class _Modes:
    """Counts the prompts that answers are learned under, where the template knows several."""

    def __init__(self, stages: Stages, subject: Subject | None) -> None:
        self._stages = stages
        self._switches = subject.template.switches if subject is not None else ()
        self._thinking: str | None = None
        """The mode of answers with reasoning, where plain answers have another."""
        if subject is not None and self._switches:
            reasoned = [subject.ask(row) for row in (REASONED, INLINE) if subject.ask(row).turns]
            names = [mode_name(subject.mode(each, each.turns[-1])) for each in (subject.ask(PLAIN), *reasoned[:1])]
            self._thinking = names[-1] if len(set(names)) == 2 else None

    def count(self, tally: FileTally, batch: RowBatch, followed: FollowedRows) -> None:
        if self._stages.by_marks or not self._switches:
            return
        samples = {sample.row: sample for sample in batch.samples if sample.kind == "chat"}
        kept = set(followed.supervised.documents.sample.tolist())
        for turn in learned_turns(followed):
            if turn.row in samples and turn.row in kept:
                self._turn(tally, samples[turn.row], turn)

    def _turn(self, tally: FileTally, sample: Sample, turn: LearnedTurn) -> None:
        conversation = self._stages.renderer.conversation(sample)
        try:
            conversation = renderable(conversation, turn.message)
        except RenderError:
            return
        mode = mode_of(conversation, turn)
        if mode is not None:  # a switch the row or the recipe sets is part of it
            mode = {
                **{name: conversation.kwargs[name] for name in self._switches if name in conversation.kwargs},
                **mode,
            }
        name = mode_name(mode)
        asked = conversation.messages[turn.message - 1].get("content") if turn.message else None
        place = turn.prompt.rfind(asked) + len(asked) if isinstance(asked, str) and asked in turn.prompt else -40
        tally.prompts[PromptUse(name, turn.prompt[place:])] += 1
        opened = opened_by(turn.prompt)
        opens = opened is not None and not opened.closed
        if not reasoning_of(conversation.messages[turn.message]) and (opens or name == self._thinking):
            tally.num_skipping += 1
            tally.first_skipping = tally.first_skipping or f"{tally.name}:{turn.row}"


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
