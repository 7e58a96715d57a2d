"""A tokenizer and template under a recipe, and probe conversations that are run through the stages of a build."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from packer.audit.excerpts import excerpts_of
from packer.audit.findings import Example
from packer.batches import Rejection, RowBatch, Sample, TurnBatch
from packer.model.model import Model
from packer.pipeline.stages import Stages, compile_template
from packer.recipe.recipe import Recipe, make_recipe, to_json
from packer.source.schema import read_row

Row = Mapping[str, Any]

QUESTION, ANSWER = "first question", "first answer"
NEXT_QUESTION, NEXT_ANSWER = "second question", "second answer"
REASONING, NEXT_REASONING = "first thoughts", "second thoughts"


def _chat(*answers: Mapping[str, Any]) -> Row:
    asked = ({"role": "user", "content": text} for text in (QUESTION, NEXT_QUESTION))
    said = ({"role": "assistant", **answer} for answer in answers)
    return {"messages": [message for turn in zip(asked, said, strict=False) for message in turn]}


PLAIN = _chat({"content": ANSWER})
CHAT = _chat({"content": ANSWER}, {"content": NEXT_ANSWER})
REASONED_CHAT = _chat(
    {"content": ANSWER, "reasoning_content": REASONING}, {"content": NEXT_ANSWER, "reasoning_content": NEXT_REASONING}
)

EXACT = "supervision.history_rewrite=exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTurn:
    """An answer as it is trained."""

    text: str
    """The text it is trained in, up to and including its terminator."""

    prompt_end: int
    """Characters of `text` that are the prompt."""

    document: int
    """Index of the document it is trained in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a row: trained turns in the order of its messages, or a rejection."""

    sample: Sample
    turns: tuple[TrainedTurn, ...]
    rejection: Rejection | None

    @property
    def num_documents(self) -> int:
        return len({turn.document for turn in self.turns})


class ProbedTemplate:
    """A model under a recipe, probed with rows of which every turn is trained, as a chat server would prompt it."""

    def __init__(self, recipe: Recipe, model: Model) -> None:
        """Take a model that includes the role markers of its template.

        Raises:
            InputError: the ids of this kind of vocabulary cannot be verified.
        """
        self.recipe, self.model = recipe, model
        rules = msgspec.structs.replace(recipe.supervision, turns="all", parts=None)
        self._values = to_json(msgspec.structs.replace(recipe, supervision=rules))
        self._stages = functools.cache(self._stages_under)
        self._outcomes: dict[tuple[int, tuple[str, ...]], Outcome] = {}

    def outcome(self, row: Row, *settings: str) -> Outcome:
        """Run a probe row through the stages under the recipe and further settings `KEY=VALUE`; cached."""
        key = id(row), settings
        if key not in self._outcomes:
            stages, rows = self._stages(*settings), rows_of(row)
            rendered = stages.render(rows)
            rejection = next(iter(stages.run(rows, rendered).rejections), None)
            turns = () if rejection else _learned_turns(rendered)
            self._outcomes[key] = Outcome(sample=rows.samples[0], turns=turns, rejection=rejection)
        return self._outcomes[key]

    def _stages_under(self, *settings: str) -> Stages:
        recipe = make_recipe(self._values, settings)
        stages = Stages(recipe, self.model.with_stop(*recipe.supervision.stop))
        stages.renderer = stages.renderer.by_reference()  # of a single row, each is compared with it anyway
        return stages

    def excerpts(self, row: Row, rejection: Rejection) -> tuple[Example, ...]:
        """Return excerpts that explain why a row is rejected."""
        sample = self.outcome(row, EXACT).sample
        return excerpts_of(rejection, sample=sample, content=None, renderer=self._stages(EXACT).renderer)

    def keeps_history(self, row: Row) -> str | None:
        """Return the setting of a template variable that keeps the template from changing earlier turns, or None."""
        assert self.model.template is not None
        template = compile_template(self.model.template, self.model, self.recipe)
        names = [name for name in template.undeclared if name not in template.switches.names]
        tried = (f"template.kwargs.{name}={value}" for name in names for value in ("false", "true"))
        return next((switch for switch in tried if self.outcome(row, EXACT, switch).num_documents == 1), None)


def rows_of(row: Row) -> RowBatch:
    """Return a batch of one row of messages."""
    sample = read_row(dict(row), number=0, schema="messages", columns={})
    return RowBatch(samples=(sample,), rejections=(), num_rows=1)


def _learned_turns(turns: TurnBatch) -> tuple[TrainedTurn, ...]:
    """Return the turns of one row with their texts, in the order of its messages."""
    texts = [turns.text[start:stop] for start, stop in pairwise(turns.text_offsets.tolist())]
    found = []
    for t in np.argsort(turns.turn_message, kind="stable").tolist():
        document = int(turns.turn_text[t])
        text = texts[document][: int(turns.completion_end[t])]
        prompt_end = len(text[: int(turns.prompt_end[t])].decode())
        found.append(TrainedTurn(text=text.decode(), prompt_end=prompt_end, document=document))
    return tuple(found)
