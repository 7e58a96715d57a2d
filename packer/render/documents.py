"""The texts to be kept of a conversation: the maximal ones, each turn in the last that begins with it.

A template that only appends gives one text per conversation. One that rewrites history (drops earlier reasoning, say)
gives one text per rewritten stretch, so that every turn keeps the context inference would give it. `last` and
`as_rendered` are the cheaper readings of rewritten history; see docs/explanation/supervision.md.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from packer.render.chat import RenderedTurn

_EMPTY_REASONING = re.compile(r"<think(?:ing)?>\s*</think(?:ing)?>\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTurn:
    """A turn and where it is trained, in characters of its text."""

    turn: RenderedTurn
    prompt_end: int
    completion_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text and the turns trained in it."""

    base: RenderedTurn
    """The turn the text ends with."""

    placed: tuple[PlacedTurn, ...]


def documents_of(
    turns: Sequence[RenderedTurn], *, rewritten: str, stops: re.Pattern[str] | None
) -> tuple[Document, ...]:
    """Deal the turns of one conversation to texts.

    Args:
        turns: in the order of their messages.
        rewritten: `exact` keeps every maximal text; `last` only the last; `as_rendered` trains a turn also where a
            later text shows it with no more than an empty reasoning block taken away.
        stops: matches any stop token.

    """
    if rewritten == "as_rendered":
        return _as_rendered(turns, stops)
    documents = _exact(turns)
    return documents[-1:] if rewritten == "last" else documents


def _exact(turns: Sequence[RenderedTurn]) -> tuple[Document, ...]:
    """Maximal texts under the prefix relation; each turn in the last that begins with its text."""
    home = [max(j for j, other in enumerate(turns) if other.text.startswith(turn.text)) for turn in turns]
    maximal = [j for j in range(len(turns)) if home[j] == j]
    placed: dict[int, list[PlacedTurn]] = {j: [] for j in maximal}
    for turn, j in zip(turns, home, strict=True):
        placed[j].append(PlacedTurn(turn=turn, prompt_end=turn.prompt_end, completion_end=len(turn.text)))
    return tuple(Document(base=turns[j], placed=tuple(placed[j])) for j in maximal)


def _as_rendered(turns: Sequence[RenderedTurn], stops: re.Pattern[str] | None) -> tuple[Document, ...]:
    """From the last text back: a text takes every turn it begins with, or shows without its empty reasoning."""
    left = list(turns)
    documents: list[Document] = []
    while left:
        base = left[-1]
        placed = {turn.message: _shown(turn, base.text, stops) for turn in left}
        here = [place for place in placed.values() if place is not None]
        documents.append(Document(base=base, placed=tuple(here)))
        left = [turn for turn in left if placed[turn.message] is None]
    return tuple(reversed(documents))


def _shown(turn: RenderedTurn, text: str, stops: re.Pattern[str] | None) -> PlacedTurn | None:
    if text.startswith(turn.text):
        return PlacedTurn(turn=turn, prompt_end=turn.prompt_end, completion_end=len(turn.text))
    for prompt in turn.prompts:
        if not (text.startswith(prompt) and turn.text.startswith(prompt)):
            continue
        stop = stops.search(text, len(prompt)) if stops else None
        if stop is None:
            continue
        shown, own = text[len(prompt) : stop.end()], turn.text[len(prompt) :]
        if shown == _EMPTY_REASONING.sub("", own, count=1):
            return PlacedTurn(turn=turn, prompt_end=len(prompt), completion_end=stop.end())
    return None
