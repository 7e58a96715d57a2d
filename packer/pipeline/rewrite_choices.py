"""What to do where a template rewrites history: each choice tried on the first rows, and one of them recommended."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import msgspec

from packer.batches import RowBatch, Sample
from packer.model import Model
from packer.pipeline.input_resolution import source_files
from packer.pipeline.inputs import open_inputs
from packer.pipeline.stages import turn_end_marker
from packer.progress import Silent
from packer.recipe import Recipe
from packer.render import Renderer, RenderRules
from packer.render.reasoning import reasoning_of

CHEAPER = 0.9
"""Of the tokens of `exact`: below, `as_rendered`, which learns the same answers, is recommended."""

_ROWS, _MOST_ROWS = 64, 256
"""Examined: so many rows of an input, and of all together. Rows with tools take some milliseconds a choice."""

Choice = Literal["exact", "as_rendered", "last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a choice makes of the rows examined."""

    num_answers: int
    """Answers that are learned."""

    num_bytes: int
    """Of the texts they are learned in."""


def choices_hint(model: Model, recipe: Recipe) -> str:
    """What the first rows hold, which choice suits them, and what each of the others would train.

    Args:
        model: with the role markers of its template.
        recipe: names the inputs.

    Raises:
        InputError: an input cannot be read.

    """
    samples = list(islice(_first_samples(recipe), _MOST_ROWS))
    tried = {choice: _tried(samples, model, recipe, choice) for choice in ("exact", "as_rendered", "last")}
    exact, rendered, last = tried["exact"], tried["as_rendered"], tried["last"]
    least = max(last.num_bytes, 1)
    told = {
        "as_rendered": "learns every answer, earlier ones as the template shows them later on, without an empty "
        f"reasoning block ({rendered.num_bytes / least:.1f} times the tokens)",
        "exact": "learns every answer as inference asks for it, in as many documents as that takes "
        f"({exact.num_bytes / least:.1f} times the tokens)",
        "last": f"learns the end of each conversation alone ({last.num_answers:,} of {exact.num_answers:,} answers)",
    }
    closing = turn_end_marker(model, recipe)
    if closing is not None:
        best = f"--set 'supervision.stop=[\"{closing}\"]'"
        why = f"this template writes {closing} after every turn, and where generation stops at it nothing is rewritten"
    else:
        choice: Choice = "as_rendered" if rendered.num_bytes < CHEAPER * exact.num_bytes else "exact"
        best = f"--set supervision.history_rewrite={choice}"
        why = f"it {told.pop(choice)}"
        told.pop("as_rendered", None)  # nothing is gained by it
    others = "; ".join(f"={choice} {what}" for choice, what in told.items())
    return f"{_held(samples)}; {best} suits them: {why}. Else history_rewrite{others}"


def _held(samples: list[Sample]) -> str:
    """How many answers the rows have, and how many of these have reasoning."""
    answers = [message for sample in samples for message in sample.messages if message.role == "assistant"]
    reasoned = sum(bool(reasoning_of(message.fields)) for message in answers)
    thought = "none with reasoning" if not reasoned else f"{reasoned / len(answers):.0%} of them with reasoning"
    return f"the first {len(samples):,} rows have {len(answers) / max(len(samples), 1):.1f} answers each, {thought}"


def _first_samples(recipe: Recipe) -> Iterator[Sample]:
    files = [file for source in recipe.sources for file in source_files(source)]
    for _, entry in open_inputs(files, recipe, Silent().note):
        for row in islice(entry.rows(), _ROWS):
            yield from (sample for sample in row.batch.samples if sample.kind == "chat")


def _tried(samples: list[Sample], model: Model, recipe: Recipe, choice: Choice) -> Tried:
    supervision = msgspec.structs.replace(recipe.supervision, history_rewrite=choice)
    renderer = Renderer(model, RenderRules.of(msgspec.structs.replace(recipe, supervision=supervision)))
    turns = renderer.render(RowBatch(samples=tuple(samples), rejections=(), num_rows=len(samples)))
    return Tried(num_answers=len(turns.turn_text), num_bytes=len(turns.text))
