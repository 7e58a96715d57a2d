"""The trained runs of turns of which pieces are masked: token by token, in place of one run from prompt to stop.

A token belongs to the piece in which it begins, white space at its beginning aside: that stands before words, which
spans of a text begin with. Worked example: of `Let me look.⏎<tool_call>…`, whose first piece ends at the full stop, a
token `.⏎` belongs to the first piece, and a token `⏎` to the second; to a piece that begins with `look` belongs a token
` look`.
"""

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
    first_turns, last_turns = (np.searchsorted(turns.turn_text, texts, side) for side in ("left", "right"))
    own_turns = zip(first_turns.tolist(), last_turns.tolist(), strict=True)
    for (first, last), start, masked in zip(own_turns, starts.tolist(), turns.masked.tolist(), strict=True):
        for turn in range(first, last):
            if turns.prompt_end[turn] <= start < turns.completion_end[turn]:
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
    counts = _num_begun(ids, completion, places, None if after is None else int(after), round_trip)
    if counts is None:
        return None
    bounds = [max(1, first), *(first + count for count in counts), end]
    return [(start, end) for start, end in zip(bounds[::2], bounds[1::2], strict=True) if start < end]


def _num_begun(
    ids: list[int], text: bytes, places: list[int], after: int | None, round_trip: RoundTrip
) -> list[int] | None:
    """Return how many of the ids of a text belong before each place in it; None if they are not its ids."""
    is_start = after is None or bool(round_trip.token_bytes.is_added[after])
    spelled = round_trip.token_bytes.spell(np.array(ids, np.int32), np.array([0, len(ids)]), np.array([is_start]))
    around = [(len(text[:place].rstrip()), place, _behind(text, place)) for place in places]
    if spelled.known[0] and spelled.decoded.tobytes() == text:  # nearly always
        counts = np.searchsorted(spelled.ends[:-1], around).tolist()
    else:
        counts = [[round_trip.num_begun(ids, text, place, after=after) for place in each] for each in around]
    if any(None in each for each in counts):
        return None
    # Of the ids that begin before a place, the last one has only white space there if it begins in it, and if none
    # begins at the place.
    pairs = zip(places, counts, strict=True)
    return [at - (before < at == behind and place < len(text)) for place, (before, at, behind) in pairs]


def _behind(text: bytes, place: int) -> int:
    """Return where the character at a place ends."""
    return next((end for end in range(place + 1, len(text)) if text[end] & 0xC0 != 0x80), len(text))
