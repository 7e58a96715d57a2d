"""The trained runs of turns of which pieces are masked: token by token, in place of one run from prompt to stop.

A token belongs to the piece in which it begins. Worked example: of `Let me look.⏎<tool_call>…`, whose first piece ends
at the full stop, a token `.⏎` belongs to the first piece, and a token `⏎` to the second.
"""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from packer.batches import TokenBatch, TurnBatch
from packer.supervise.round_trip import RoundTrip

Runs: TypeAlias = list[tuple[int, int]]
"""Ranges of tokens, from the start of their sequence."""


def runs_of_masked_turns(turns: TurnBatch, tokens: TokenBatch, round_trip: RoundTrip) -> dict[int, Runs | None]:
    """Return the trained runs of each turn with masked pieces, by its number; None if its ids show no pieces."""
    texts = np.searchsorted(turns.text_offsets, turns.masked[:, 0], side="right") - 1
    starts = turns.masked[:, 0] - turns.text_offsets[texts]
    owners: dict[int, Runs] = {}
    for text, start, masked in zip(texts.tolist(), starts.tolist(), turns.masked.tolist(), strict=True):
        is_own = (turns.turn_text == text) & (turns.prompt_end <= start) & (start < turns.completion_end)
        for turn in np.flatnonzero(is_own).tolist():
            owners.setdefault(turn, []).append((masked[0], masked[1]))
    return {turn: _runs(turns, tokens, turn, masked, round_trip) for turn, masked in owners.items()}


def _runs(turns: TurnBatch, tokens: TokenBatch, turn: int, masked: Runs, round_trip: RoundTrip) -> Runs | None:
    first, end = int(tokens.prompt_tokens[turn]), int(tokens.completion_tokens[turn])
    offset = int(tokens.offsets[tokens.turn_sequence[turn]])
    ids, after = tokens.ids[offset + first : offset + end].tolist(), tokens.ids[offset + first - 1] if first else None
    text = int(turns.text_offsets[turns.turn_text[turn]])
    begin = text + int(turns.prompt_end[turn])
    completion = turns.text[begin : text + int(turns.completion_end[turn])]
    places = [place - begin for each in masked for place in each]
    counts = [
        round_trip.num_begun(ids, completion, place, after=None if after is None else int(after)) for place in places
    ]
    if None in counts:
        return None
    bounds = [max(1, first), *(first + count for count in counts if count is not None), end]
    return [*_not_empty(list(zip(bounds[::2], bounds[1::2], strict=True)))]


def _not_empty(ranges: Runs) -> Iterator[tuple[int, int]]:
    yield from ((start, end) for start, end in ranges if start < end)
