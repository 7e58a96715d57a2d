"""What is asked: a tokenizer and its template under a recipe, by way of the stages that build."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from packer.audit.lint.probes import PLAIN, Row
from packer.batches import Rejection, RowBatch, Sample
from packer.build.stages import FollowedRows, Stages, compile_template, turn_end_marker
from packer.model import TOKENIZER_FILE, Model
from packer.recipe import Recipe
from packer.render import ChatTemplate, Renderer, RenderError, RenderRules
from packer.render.chat import Conversation, Mode, renderable
from packer.render.documents import Rewritten
from packer.source.schema import read_row
from packer.supervise import Surface
from packer.tokenize import ReferenceEncoder


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedTurn:
    """An answer as it is learned."""

    message: int
    text: str
    """The text it is learned in, up to and including its terminator."""

    prompt_end: int
    """Characters of `text` that are the prompt."""

    merged: bool
    """The end of the prompt and the start of the completion make other ids together than apart."""

    document: int
    """Number of the text it is learned in."""

    @property
    def prompt(self) -> str:
        return self.text[: self.prompt_end]

    @property
    def completion(self) -> str:
        return self.text[self.prompt_end :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a row: learned turns in the order of its messages, or a rejection."""

    sample: Sample
    turns: tuple[LearnedTurn, ...]
    rejection: Rejection | None

    @property
    def num_documents(self) -> int:
        return len({turn.document for turn in self.turns})


class Subject:
    """A model under a recipe, asked by rows. Losses are noticed whatever the recipe allows."""

    def __init__(self, recipe: Recipe, model: Model) -> None:
        """Take a model with the role markers of its template.

        Raises:
            InputError: a kind of vocabulary whose ids cannot be proved.

        """
        rules = msgspec.structs.replace(
            recipe.supervision, turns="all", rewritten="exact", source="equivalence", allow_dropped=()
        )
        self.recipe_given = recipe
        self.recipe = msgspec.structs.replace(recipe, supervision=rules)
        self.allowed = frozenset(recipe.supervision.allow_dropped)
        self.model = model
        self.encoder = ReferenceEncoder(model.files[TOKENIZER_FILE])
        self._stages = Stages(self.recipe, model)
        self._outcomes: dict[int, tuple[Row, Outcome]] = {}

    def num_documents(
        self, row: Row, rewritten: Rewritten, *, stop: str | None = None, kwargs: Mode | None = None
    ) -> int:
        """Documents of a row where history is read in another way; with one more stop token, with more variables."""
        supervision = msgspec.structs.replace(self.recipe.supervision, rewritten=rewritten)
        template = self.recipe.template
        template = msgspec.structs.replace(template, kwargs={**template.kwargs, **(kwargs or {})})
        rules = RenderRules.of(msgspec.structs.replace(self.recipe, supervision=supervision, template=template))
        model = self.model
        if stop is not None:
            stop_id = next(token.id for token in model.added_tokens if token.content == stop)
            model = replace(model, stop_ids=tuple(sorted({*model.stop_ids, stop_id})))
        samples = (self.ask(row).sample,)
        turns = Renderer(model, rules).render(RowBatch(samples=samples, rejections=(), num_rows=1))
        return len(turns.text_offsets) - 1

    def ask(self, row: Row) -> Outcome:
        """What becomes of a row of schema `messages`; remembered for rows that stay."""
        known = self._outcomes.get(id(row))
        if known is None or known[0] is not row:
            sample = read_row(dict(row), number=0, schema="messages", columns={})
            followed = self._stages.follow(RowBatch(samples=(sample,), rejections=(), num_rows=1))
            rejections = followed.supervised.rejections
            rejection = rejections[0] if rejections else None
            turns = () if rejection else learned_turns(followed)
            known = self._outcomes[id(row)] = (row, Outcome(sample=sample, turns=turns, rejection=rejection))
        return known[1]

    @functools.cached_property
    def plain(self) -> LearnedTurn:
        """A plain answer to a question; whoever asks for it knows that it can be built."""
        return self.ask(PLAIN).turns[-1]

    @functools.cached_property
    def template(self) -> ChatTemplate:
        """The template of rows without tools; whoever asks for it knows that there is one."""
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

    def mode(self, outcome: Outcome, turn: LearnedTurn) -> Mode | None:
        """The prompt mode a turn is learned under; None where its prompt is no prompt of the template."""
        try:
            prompts = self.conversation(outcome).prompts(turn.message)
        except RenderError:
            return None
        return next((mode for prompt, mode in prompts if prompt == turn.prompt), None)

    def whole(self, outcome: Outcome, turn: LearnedTurn) -> str:
        """The rendering that ends with a turn, and what the template writes after its terminator."""
        conversation = self.conversation(outcome)
        return conversation.render(conversation.messages[: turn.message + 1], self.mode(outcome, turn) or {})

    def keeps_history(self, row: Row) -> dict[str, bool] | None:
        """A variable of the template that keeps what it would take from earlier turns; None where there is none."""
        names = [name for name in self.template.undeclared if name not in self.template.switches]
        for name in names:
            for value in (False, True):
                if self.num_documents(row, "exact", kwargs={name: value}) == 1:
                    return {name: value}
        return None

    def spelled(self, ids: list[int]) -> str:
        """The text that ids spell, as far as it is whole characters."""
        return Surface(self.model).spell(ids).replace("▁".encode(), b" ").decode(errors="ignore")

    def ids(self, text: str) -> list[int]:
        """Ids of a text as the stages encode it."""
        return [int(token_id) for token_id in self.encoder.encode([text])[0]]


def learned_turns(followed: FollowedRows) -> tuple[LearnedTurn, ...]:
    """The turns of a batch with their texts, in the order of rows and messages."""
    turns, tokens = followed.turns, followed.tokens
    texts = [
        turns.text[start:stop]
        for start, stop in zip(turns.text_offsets[:-1].tolist(), turns.text_offsets[1:].tolist(), strict=True)
    ]
    order: Sequence[int] = np.lexsort((turns.turn_message, turns.sample[turns.turn_text])).tolist()
    found = []
    for t in order:
        document = int(turns.turn_text[t])
        text = texts[document][: int(turns.completion_end[t])]
        found.append(
            LearnedTurn(
                message=int(turns.turn_message[t]),
                text=text.decode(),
                prompt_end=len(text[: int(turns.prompt_end[t])].decode()),
                merged=bool(tokens.merged[t]),
                document=document,
            )
        )
    return tuple(found)
