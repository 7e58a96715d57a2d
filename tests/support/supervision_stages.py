"""The supervision path put together by hand, for tests: samples in, documents or the code of a rejection out."""

import copy
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from packer.batches import Message, RowBatch, Sample, TokenBatch, TurnBatch
from packer.layout import document_labels
from packer.model.model import TOKENIZER_FILE, Model, load_model
from packer.model.token_bytes import TokenBytes
from packer.pipeline.stages import encoder_of
from packer.recipe.recipe import Recipe, make_recipe
from packer.render.environment import ChatTemplate
from packer.render.renderer import Renderer
from packer.render.wrappers import role_markers
from packer.supervise.round_trip import RoundTrip
from packer.supervise.supervisor import Supervised, Supervisor
from packer.tokenize.tokenizing import TurnTokenizer

Document: TypeAlias = tuple[list[int], list[int]]
"""input_ids and labels."""

Outcome: TypeAlias = list[Document] | str
"""Documents of a row, or the code of its rejection."""

ALLOW_ALL = "supervision.allow_dropped=[system,user,content,reasoning,tool_call,tool_result,tools]"
"""Nothing that a template drops rejects a row."""

REASONING = ("reasoning_content", "thinking", "reasoning")


class Stages:
    """The three stages for one model and one recipe."""

    def __init__(self, model: Model, recipe: Recipe | None = None) -> None:
        recipe = recipe or make_recipe({})
        if model.template is not None:
            template = ChatTemplate(
                model.template, date=recipe.template.date, variables=model.named_tokens, max_bytes=2**26
            )
            model = model.with_control(role_markers(template, model.added_tokens))
        self.model = model
        self.renderer = Renderer(model, recipe)
        self.tokenizing = TurnTokenizer(model, encoder_of(recipe.engine, model.files[TOKENIZER_FILE]))
        self.round_trip = RoundTrip(model, TokenBytes(model))
        self.supervisor = Supervisor(model, whole=recipe.supervision.turns == "conversation")

    @classmethod
    def load(cls, folder: Path, *overrides: str, template: Path | None = None, stop: Sequence[str] = ()) -> "Stages":
        return cls(load_model(folder, template=template, stop=stop), _recipe_of(overrides))

    def with_engine(self, engine: str) -> "Stages":
        other = copy.copy(self)
        other.tokenizing = TurnTokenizer(self.model, encoder_of(engine, self.model.files[TOKENIZER_FILE]))
        return other

    def by_reference(self) -> "Stages":
        """The same, rendered by the letter of the definition alone."""
        other = copy.copy(self)
        other.renderer = self.renderer.by_reference()
        return other

    def with_template(self, source: str, recipe: Recipe) -> "Stages":
        """The same tokenizer under another template, without loading it again; not for typed control tokens."""
        other = copy.copy(self)
        other.model = replace(self.model, template=source)
        other.renderer = Renderer(other.model, recipe)
        return other

    def render(self, samples: Sequence[Sample]) -> TurnBatch:
        return self.renderer.render(RowBatch(samples=tuple(samples), rejections=(), num_rows=len(samples)))

    def turns(self, sample: Sample) -> list[tuple[str, str]]:
        """Prompt and completion of every turn in its order, as the render stage cuts them."""
        batch = self.render([sample])
        assert not batch.rejections, batch.rejections
        texts = [batch.text[start:end] for start, end in itertools.pairwise(batch.text_offsets)]
        places = zip(batch.turn_message, batch.turn_text, batch.prompt_end, batch.completion_end, strict=True)
        return [(texts[n][:start].decode(), texts[n][start:end].decode()) for _, n, start, end in sorted(places)]

    def supervise(self, samples: Sequence[Sample]) -> tuple[TurnBatch, TokenBatch, Supervised]:
        turns = self.render(samples)
        tokens = self.tokenizing.tokenize(turns)
        return turns, tokens, self.supervisor.supervise(turns, tokens, {sample.row: None for sample in samples})

    def outcomes(self, samples: Sequence[Sample]) -> list[Outcome]:
        """What becomes of each sample, in their order; every sample is either kept or rejected, never both."""
        turns, _, supervised = self.supervise(samples)
        return self.outcomes_of(samples, turns, supervised)

    @staticmethod
    def outcomes_of(samples: Sequence[Sample], turns: TurnBatch, supervised: Supervised) -> list[Outcome]:
        documents, labels = supervised.documents, document_labels(supervised.documents)
        rejected = {rejection.row: rejection.code for rejection in (*turns.rejections, *supervised.rejections)}
        kept: dict[int, list[Document]] = {}
        for d, row in enumerate(documents.sample.tolist()):
            span = slice(documents.offsets[d], documents.offsets[d + 1])
            kept.setdefault(row, []).append((documents.input_ids[span].tolist(), labels[span].tolist()))
        assert not set(kept) & set(rejected), "a row is kept and rejected"
        return [rejected[sample.row] if sample.row in rejected else kept[sample.row] for sample in samples]

    def document(self, sample: Sample) -> Document:
        """The one document of a sample that has one."""
        (outcome,) = self.outcomes([sample])
        assert not isinstance(outcome, str), outcome
        (document,) = outcome
        return document

    def reasons(self, samples: Sequence[Sample]) -> list[tuple[str, str]]:
        """Code and reason of every rejection."""
        turns, _, supervised = self.supervise(samples)
        return [(rejection.code, rejection.reason) for rejection in (*turns.rejections, *supervised.rejections)]


@functools.cache
def _recipe_of(overrides: tuple[str, ...]) -> Recipe:
    return make_recipe({}, overrides)


def chat(
    *messages: Mapping[str, Any],
    row: int = 0,
    tools: list[Any] | None = None,
    flags: Mapping[int, bool] | None = None,
    **template_kwargs: Any,
) -> Sample:
    """A sample of chat messages."""
    return Sample(
        kind="chat",
        row=row,
        messages=tuple(
            Message(fields=aliased(message), trained=(flags or {}).get(k)) for k, message in enumerate(messages)
        ),
        tools=tools,
        template_kwargs=template_kwargs,
    )


def samples(conversations: Iterable[Sequence[Mapping[str, Any]]]) -> list[Sample]:
    return [chat(*messages, row=row) for row, messages in enumerate(conversations)]


def aliased(message: Mapping[str, Any]) -> dict[str, Any]:
    """Reasoning under both names templates read, as transformers and packer's source stage give it."""
    reasoning = next((message[name] for name in REASONING if message.get(name) is not None), None)
    if reasoning is None:
        return dict(message)
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def system(content: str) -> dict[str, Any]:
    return {"role": "system", "content": content}


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def result(content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content}
