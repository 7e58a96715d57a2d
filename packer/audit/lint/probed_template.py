"""A tokenizer and its template under a recipe, and the conversations they are probed with by the stages of a build."""

import functools
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from packer.batches import Rejection, RowBatch, Sample, TurnBatch
from packer.model import TOKENIZER_FILE, Model
from packer.pipeline.stages import Stages, compile_template, turn_end_marker
from packer.recipe import Recipe, make_recipe, to_json
from packer.render import ChatTemplate, Renderer, RenderError, RenderRules
from packer.render.conversation import Conversation, Mode
from packer.render.message_form import renderable
from packer.source.schema import read_row
from packer.tokenize import ReferenceEncoder

Row = Mapping[str, Any]

QUESTION, ANSWER = "first question", "first answer"
NEXT_QUESTION, NEXT_ANSWER = "second question", "second answer"
REASONING, NEXT_REASONING = "first thoughts", "second thoughts"
SYSTEM = "rules of the row"
RESULT_TEXT = "sunny and mild"

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "name of a city"}}},
    },
}
_CALL_IDS = ("call00001", "call00002")


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def inline(reasoning: str, answer: str) -> str:
    return f"<think>\n{reasoning}\n</think>\n\n{answer}"


def _call(number: int, city: str) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": {"city": city}}
    return {"id": _CALL_IDS[number], "type": "function", "function": function}


def _result(number: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "name": "get_weather", "tool_call_id": _CALL_IDS[number], "content": content}


PLAIN: Row = {"messages": [user(QUESTION), assistant(ANSWER)]}
CHAT: Row = {"messages": [*PLAIN["messages"], user(NEXT_QUESTION), assistant(NEXT_ANSWER)]}
WITH_SYSTEM: Row = {"messages": [{"role": "system", "content": SYSTEM}, *PLAIN["messages"]]}
REASONED: Row = {"messages": [user(QUESTION), assistant(ANSWER, reasoning_content=REASONING)]}
REASONED_CHAT: Row = {
    "messages": [
        *REASONED["messages"],
        user(NEXT_QUESTION),
        assistant(NEXT_ANSWER, reasoning_content=NEXT_REASONING),
    ]
}
INLINE: Row = {"messages": [user(QUESTION), assistant(inline(REASONING, ANSWER))]}
INLINE_CHAT: Row = {
    "messages": [*INLINE["messages"], user(NEXT_QUESTION), assistant(inline(NEXT_REASONING, NEXT_ANSWER))]
}
TOOLS: Row = {"messages": PLAIN["messages"], "tools": [_TOOL]}
CALL: Row = {"messages": [user(QUESTION), assistant(None, tool_calls=[_call(0, "Paris")])], "tools": [_TOOL]}
CALL_AND_TEXT: Row = {
    "messages": [user(QUESTION), assistant("a word before", tool_calls=[_call(0, "Paris")])],
    "tools": [_TOOL],
}
PARALLEL: Row = {
    "messages": [user(QUESTION), assistant(None, tool_calls=[_call(0, "Paris"), _call(1, "Oslo")])],
    "tools": [_TOOL],
}
RESULT: Row = {
    "messages": [*CALL["messages"], _result(0, RESULT_TEXT), assistant(ANSWER)],
    "tools": [_TOOL],
}

_MARKS = "if a < b & \"c\" > 'd': \\n"
"""Letters that HTML or JSON escapes."""

ESCAPABLE: Row = {
    "messages": [
        {"role": "system", "content": f"{SYSTEM}: {_MARKS}"},
        user(f"{QUESTION}: {_MARKS}"),
        assistant(f"{ANSWER}: {_MARKS}"),
    ]
}

FIELD, TAGS = "reasoning in a field", "reasoning in <think> tags"

SHAPES: dict[str, Row] = {
    "a system message": WITH_SYSTEM,
    "a system message later on": {
        "messages": [
            *PLAIN["messages"],
            {"role": "system", "content": SYSTEM},
            user(NEXT_QUESTION),
            assistant(NEXT_ANSWER),
        ]
    },
    "a developer message": {"messages": [{"role": "developer", "content": SYSTEM}, *PLAIN["messages"]]},
    "two questions in a row": {"messages": [user(QUESTION), user(NEXT_QUESTION), assistant(ANSWER)]},
    "two answers in a row": {"messages": [user(QUESTION), assistant(ANSWER), assistant(NEXT_ANSWER)]},
    "an answer at the start": {"messages": [assistant(ANSWER), user(NEXT_QUESTION), assistant(NEXT_ANSWER)]},
    FIELD: REASONED,
    TAGS: INLINE,
    "two turns with reasoning in fields": REASONED_CHAT,
    "two turns with reasoning in <think> tags": INLINE_CHAT,
    "tool definitions": TOOLS,
    "a tool call": CALL,
    "text beside a tool call": CALL_AND_TEXT,
    "two tool calls at once": PARALLEL,
    "a tool result": RESULT,
    "quotes and angle brackets": ESCAPABLE,
}
"""Shapes that real rows have, by what is special about them."""

USUAL = frozenset({"a system message", *list(SHAPES)[6:]})
"""Shapes that many files hold; the others are seen now and then."""


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


_PLAIN = re.compile(r"(?!(?:true|false|null|yes|no|on|off)\Z)[a-z][a-z0-9_]*")
"""Words that YAML takes for text without quotes."""


@dataclass(frozen=True, slots=True)
class Override:
    """One key of the recipe with a value."""

    key: str
    value: Any
    """As JSON has it."""

    @classmethod
    def allowing(cls, recipe: Recipe, kinds: Iterable[str]) -> "Override":
        """Losses the recipe allows already, and these."""
        merged = dict.fromkeys((*recipe.supervision.allow_dropped, *kinds))
        return cls("supervision.allow_dropped", list(merged))

    @classmethod
    def stopping(cls, recipe: Recipe, stop: str) -> "Override":
        """Stop tokens the recipe names already, and this."""
        return cls("supervision.stop", list(dict.fromkeys((*recipe.supervision.stop, stop))))

    @classmethod
    def variable(cls, name: str, value: Any) -> "Override":
        """A variable of the template."""
        return cls(f"template.kwargs.{name}", value)

    @property
    def setting(self) -> str:
        """`KEY=VALUE`, as `--set` takes it."""
        return f"{self.key}={_written(self.value)}"

    def apply(self, recipe: Recipe) -> Recipe:
        """The recipe as it is with `--set`."""
        return make_recipe(to_json(recipe), [self.setting])

    def __str__(self) -> str:
        """As it is typed: `--set supervision.on_prompt_mismatch=continue`."""
        return f"--set {shlex.quote(self.setting)}"


def _written(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    if isinstance(value, list):  # without a space, where a line would be broken
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
    """Number of the text it is trained in."""

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


class Tried(NamedTuple):
    """What rendering made of a row."""

    rejection: Rejection | None
    num_documents: int


class Subject:
    """A model under a recipe, asked by rows. Losses are noticed whatever the recipe allows."""

    def __init__(self, recipe: Recipe, model: Model) -> None:
        """Take a model with the role markers of its template.

        Raises:
            InputError: a kind of vocabulary whose ids cannot be proved.

        """
        rules = msgspec.structs.replace(
            recipe.supervision, turns="all", history_rewrite="exact", source="chat_server", allow_dropped=()
        )
        self.recipe_given = recipe
        self.recipe = msgspec.structs.replace(recipe, supervision=rules)
        self.allowed = frozenset(recipe.supervision.allow_dropped)
        self.model = model
        self.encoder = ReferenceEncoder(model.files[TOKENIZER_FILE])
        self._stages = Stages(self.recipe, model)
        self._outcomes: dict[int, Outcome] = {}
        self._renderers: dict[tuple[bytes, tuple[int, ...]], Renderer] = {}

    def tried(self, row: Row, *overrides: Override) -> Tried:
        """What rendering makes of a row under the recipe as given with some keys more; every turn is asked for."""
        recipe = functools.reduce(lambda changed, override: override.apply(changed), overrides, self.recipe_given)
        supervision = msgspec.structs.replace(recipe.supervision, turns="all", source="chat_server")
        return self._rendered(row, msgspec.structs.replace(recipe, supervision=supervision))

    def losses(self, row: Row) -> tuple[str, ...]:
        """The kinds of what is lost of a row: each found while the ones before it are allowed."""
        kinds: list[str] = []
        rejection = self.ask(row).rejection
        while rejection is not None and rejection.code.startswith("dropped_"):
            kinds.append(rejection.code.removeprefix("dropped_"))
            allowed = Override("supervision.allow_dropped", kinds).apply(self.recipe)
            rejection = self._rendered(row, allowed).rejection
        return tuple(kinds)

    def kept_by_marks(self, row: Row) -> bool:
        """Whether the generation marks of the template say what is trained of a row."""
        return (
            self._rendered(row, Override("supervision.source", "generation_tags").apply(self.recipe)).rejection is None
        )

    def _rendered(self, row: Row, recipe: Recipe) -> Tried:
        model = self.model
        missing = [token.id for token in model.added_tokens if token.content in recipe.supervision.stop]
        model = replace(model, stop_ids=tuple(sorted({*model.stop_ids, *missing})))
        key = (msgspec.json.encode(recipe), model.stop_ids)
        if key not in self._renderers:
            self._renderers[key] = Renderer(model, RenderRules.of(recipe))
        samples = (self.ask(row).sample,)
        turns = self._renderers[key].render(RowBatch(samples=samples, rejections=(), num_rows=1))
        return Tried(next(iter(turns.rejections), None), len(turns.text_offsets) - 1)

    def ask(self, row: Row) -> Outcome:
        """Take a row of the probes through the stages, once."""
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
        """A plain answer to a question. Only for callers that know it can be built."""
        return self.ask(PLAIN).turns[-1]

    @functools.cached_property
    def template(self) -> ChatTemplate:
        """The template of rows without tools. Only for callers that know there is one."""
        assert self.model.template is not None
        return compile_template(self.model.template, self.model, self.recipe)

    @functools.cached_property
    def turn_end(self) -> str | None:
        """The token that ends a turn but is no stop token."""
        return turn_end_marker(self.model, self.recipe)

    def conversation(self, outcome: Outcome) -> Conversation:
        """The row as the template is given it."""
        conversation = self._stages.renderer.conversation(outcome.sample)
        return renderable(conversation, len(conversation.messages) - 1)

    def mode(self, outcome: Outcome, turn: TrainedTurn) -> Mode | None:
        """The prompt mode a turn is trained under, the default before its equals; None where it is no mode's prompt."""
        try:
            prompts = self.conversation(outcome).prompts(turn.message)
        except RenderError:
            return None
        return next((mode for prompt, mode in prompts if prompt == turn.prompt), None)

    def whole(self, outcome: Outcome, turn: TrainedTurn) -> str:
        """The rendering that ends with a turn, and what the template writes after its terminator."""
        conversation = self.conversation(outcome)
        return conversation.render(conversation.messages[: turn.message + 1], self.mode(outcome, turn) or {})

    def keeps_history(self, row: Row) -> Override | None:
        """A variable of the template that keeps what it would take from earlier turns; None where there is none."""
        names = [name for name in self.template.undeclared if name not in self.template.switches]
        exact = Override("supervision.history_rewrite", "exact")
        tried = (Override.variable(name, value) for name in names for value in (False, True))
        return next((switch for switch in tried if self.tried(row, exact, switch).num_documents == 1), None)

    def ids(self, text: str) -> list[int]:
        """Ids of a text as the stages encode it."""
        return [int(token_id) for token_id in self.encoder.encode([text])[0]]


def mode_name(mode: Mode | None) -> str:
    """`enable_thinking=False`, or in words."""
    if mode is None:
        return "no prompt of the template's own"
    return " ".join(f"{name}={value}" for name, value in mode.items()) or "the default prompt"


def _learned_turns(turns: TurnBatch) -> tuple[TrainedTurn, ...]:
    """The turns of one row with their texts, in the order of its messages."""
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
