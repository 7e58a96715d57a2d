"""A tokenizer and template under a recipe, and probe conversations that are run through the stages of a build."""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from packer.batches import Rejection, RowBatch, Sample, TurnBatch
from packer.model.model import Model
from packer.pipeline.stages import Stages, compile_template, turn_end_marker
from packer.recipe.named_options import as_option
from packer.recipe.recipe import Recipe, make_recipe, to_json
from packer.render import ChatTemplate, Renderer
from packer.render.conversation import Conversation
from packer.render.message_form import renderable
from packer.source.schema import read_row

Row = Mapping[str, Any]

QUESTION, ANSWER = "first question", "first answer"
NEXT_QUESTION, NEXT_ANSWER = "second question", "second answer"
REASONING, NEXT_REASONING = "first thoughts", "second thoughts"


def _user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _assistant(content: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def _inline(reasoning: str, answer: str) -> str:
    return f"<think>\n{reasoning}\n</think>\n\n{answer}"


def _chat(*messages: dict[str, Any]) -> Row:
    return {"messages": [*messages]}


_PLAIN_TURN = (_user(QUESTION), _assistant(ANSWER))
_REASONED_TURN = (_user(QUESTION), _assistant(ANSWER, reasoning_content=REASONING))
_INLINE_TURN = (_user(QUESTION), _assistant(_inline(REASONING, ANSWER)))

PLAIN = _chat(*_PLAIN_TURN)
CHAT = _chat(*_PLAIN_TURN, _user(NEXT_QUESTION), _assistant(NEXT_ANSWER))
REASONED = _chat(*_REASONED_TURN)
REASONED_CHAT = _chat(*_REASONED_TURN, _user(NEXT_QUESTION), _assistant(NEXT_ANSWER, reasoning_content=NEXT_REASONING))
INLINE = _chat(*_INLINE_TURN)
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "name of a city"}}},
    },
}
TOOLS = {**PLAIN, "tools": [_TOOL]}

_PLAIN = re.compile(r"(?!(?:true|false|null|yes|no|on|off)\Z)[a-z][a-z0-9_]*")
"""Strings that YAML reads as strings without quotes."""


@dataclass(frozen=True, slots=True)
class Override:
    """A key of the recipe with a value to set."""

    key: str
    value: Any
    """A JSON value."""

    @classmethod
    def stopping(cls, recipe: Recipe, stop: str) -> "Override":
        """Add a stop token to those that the recipe names."""
        return cls("supervision.stop", list(dict.fromkeys((*recipe.supervision.stop, stop))))

    @classmethod
    def variable(cls, name: str, value: Any) -> "Override":
        """Set a template variable."""
        return cls(f"template.kwargs.{name}", value)

    @property
    def setting(self) -> str:
        """`KEY=VALUE`, the argument of `--set`."""
        return f"{self.key}={_written(self.value)}"

    def apply(self, recipe: Recipe) -> Recipe:
        """Return the recipe with this key set."""
        return make_recipe(to_json(recipe), [self.setting])

    def __str__(self) -> str:
        """Return the command line option: `--set supervision.on_prompt_mismatch=continue`."""
        return as_option(self.setting)


def _written(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    if isinstance(value, list):  # without spaces, so that no line break splits it
        return f"[{','.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTurn:
    """An answer as it is trained."""

    message: int
    text: str
    """The text it is trained in, up to and including its terminator."""

    prompt_end: int
    """Characters of `text` that are the prompt."""

    document: int
    """Index of the document it is trained in."""

    @property
    def prompt(self) -> str:
        return self.text[: self.prompt_end]

    @property
    def completion(self) -> str:
        return self.text[self.prompt_end :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a row: trained turns in the order of its messages, or a rejection."""

    sample: Sample
    turns: tuple[TrainedTurn, ...]
    rejection: Rejection | None

    @property
    def num_documents(self) -> int:
        return len({turn.document for turn in self.turns})


class RenderOutcome(NamedTuple):
    """The result of rendering a row."""

    rejection: Rejection | None
    num_documents: int


class ProbedTemplate:
    """A model under a recipe, probed with rows."""

    def __init__(self, recipe: Recipe, model: Model) -> None:
        """Take a model that includes the role markers of its template.

        Raises:
            InputError: the ids of this kind of vocabulary cannot be verified.
        """
        rules = msgspec.structs.replace(
            recipe.supervision, turns="all", parts=None, history_rewrite="exact", source="chat_server"
        )
        self.recipe_given = recipe
        self.recipe = msgspec.structs.replace(recipe, supervision=rules)
        self.model = model
        self._stages = Stages(self.recipe, model)
        self._stages.renderer = self._stages.renderer.by_reference()  # of a single row, each is compared with it anyway
        self._outcomes: dict[int, Outcome] = {}
        self._renderers: dict[tuple[bytes, tuple[int, ...]], Renderer] = {}

    def render(self, row: Row, *overrides: Override) -> RenderOutcome:
        """Render a row, training every turn, under the recipe as given plus some overrides."""
        recipe = functools.reduce(lambda changed, override: override.apply(changed), overrides, self.recipe_given)
        supervision = msgspec.structs.replace(recipe.supervision, turns="all", parts=None, source="chat_server")
        return self._rendered(row, msgspec.structs.replace(recipe, supervision=supervision))

    def kept_by_marks(self, row: Row) -> bool:
        """Whether a row can be rendered when the template's generation marks decide what is trained."""
        return (
            self._rendered(row, Override("supervision.source", "generation_tags").apply(self.recipe)).rejection is None
        )

    def _rendered(self, row: Row, recipe: Recipe) -> RenderOutcome:
        model = self.model.with_stop(*recipe.supervision.stop)
        key = (msgspec.json.encode(recipe), model.stop_ids)
        if key not in self._renderers:
            self._renderers[key] = Renderer(model, recipe).by_reference()
        samples = (self.outcome(row).sample,)
        turns = self._renderers[key].render(RowBatch(samples=samples, rejections=(), num_rows=1))
        return RenderOutcome(next(iter(turns.rejections), None), len(turns.text_offsets) - 1)

    def outcome(self, row: Row) -> Outcome:
        """Run a probe row through the stages; the outcome is cached."""
        if id(row) not in self._outcomes:
            sample = read_row(dict(row), number=0, schema="messages", columns={})
            rows = RowBatch(samples=(sample,), rejections=(), num_rows=1)
            rendered = self._stages.render(rows)
            rejection = next(iter(self._stages.run(rows, rendered).rejections), None)
            turns = () if rejection else _learned_turns(rendered)
            self._outcomes[id(row)] = Outcome(sample=sample, turns=turns, rejection=rejection)
        return self._outcomes[id(row)]

    @functools.cached_property
    def plain(self) -> TrainedTurn:
        """The trained turn of a plain question and answer. Only valid if it can be built."""
        return self.outcome(PLAIN).turns[-1]

    @functools.cached_property
    def template(self) -> ChatTemplate:
        """The compiled template for rows without tools. Only valid if the model has one."""
        assert self.model.template is not None
        return compile_template(self.model.template, self.model, self.recipe)

    @functools.cached_property
    def turn_end(self) -> str | None:
        """The token that ends a turn without being a stop token; None if there is none."""
        return turn_end_marker(self.model, self.recipe)

    def conversation(self, outcome: Outcome) -> Conversation:
        """Return the row in the form in which the template receives it."""
        conversation = self._stages.renderer.conversation(outcome.sample)
        return renderable(conversation, len(conversation.messages) - 1)

    def keeps_history(self, row: Row) -> Override | None:
        """Return a template variable that stops the template from changing earlier turns; None if there is none."""
        names = [name for name in self.template.undeclared if name not in self.template.switches.names]
        exact = Override("supervision.history_rewrite", "exact")
        tried = (Override.variable(name, value) for name in names for value in (False, True))
        return next((switch for switch in tried if self.render(row, exact, switch).num_documents == 1), None)


def _learned_turns(turns: TurnBatch) -> tuple[TrainedTurn, ...]:
    """Return the turns of one row with their texts, in the order of its messages."""
    texts = [turns.text[start:stop] for start, stop in pairwise(turns.text_offsets.tolist())]
    found = []
    for t in np.argsort(turns.turn_message, kind="stable").tolist():
        document = int(turns.turn_text[t])
        text = texts[document][: int(turns.completion_end[t])]
        found.append(
            TrainedTurn(
                message=int(turns.turn_message[t]),
                text=text.decode(),
                prompt_end=len(text[: int(turns.prompt_end[t])].decode()),
                document=document,
            )
        )
    return tuple(found)
