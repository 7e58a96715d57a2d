"""Checks that ids decode to a text, allowing for what a tokenizer may do to white space; finds the ids of its parts.

Of a turn of which parts or spans are trained, the runs are found token by token, in place of one from prompt to stop.
A token belongs to the part in which it begins, white space at its beginning aside: that stands before words, which
spans of a text begin with. Worked example: of `Let me look.⏎<tool_call>…`, whose text ends at the full stop, a token
`.⏎` belongs to the text, and a token `⏎` to the call; to a span that begins with `look` belongs a token ` look`.
"""

import bisect
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from packer.batches import TokenBatch, TurnBatch
from packer.model.backend import definition_of, load_part
from packer.model.model import TOKENIZER_FILE, AddedToken, Model
from packer.model.token_bytes import SPACE, TokenBytes
from packer.model.tokenizer_folder import has_step

_WHITE_SPACE = "".join(c for c in map(chr, range(0x3001)) if c.isspace() and not "\x1c" <= c <= "\x1f")
"""White space as defined by Unicode and so by `tokenizers`; Python also counts four file and record separators."""

_SPACES = re.compile(b"(?:" + b"|".join(re.escape(character.encode()) for character in _WHITE_SPACE) + b")*+")


Runs: TypeAlias = list[tuple[int, int]]
"""Ranges of tokens that are trained, from the start of their sequence."""


class RoundTrip:
    """Decides whether ids decode to a text under one model."""

    def __init__(self, model: Model, token_bytes: TokenBytes) -> None:
        definition = definition_of(model.files[TOKENIZER_FILE])
        self.token_bytes = token_bytes
        self._normalizer = load_part(model.files[TOKENIZER_FILE], "normalizer").normalizer
        self._prepends = has_step(definition.get("normalizer"), "Prepend")
        self._added: dict[int, AddedToken] = {token.id: token for token in model.added_tokens}

    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the concatenated raw bytes of the ids; unknown ids have none."""
        return self.token_bytes.decode(ids)

    def decodes_to(self, ids: Sequence[int], text: bytes, *, after: int | None = None) -> bool:
        """Whether ids are a tokenization of `text`, as far as normalization and dummy spaces allow to tell.

        Ids are read as segments between added tokens. If the tokenizer puts a space before words at the start of
        a text or after an added token, a segment may begin with one that the text lacks; added tokens that strip may
        replace the white space beside them; the text may be compared in its normalized form. `after` is the id before
        the ids, None at the start of a text.
        """
        return self._decoded_form(ids, text, after) is not None

    def num_begun(self, ids: Sequence[int], text: bytes, place: int, *, after: int | None = None) -> int | None:
        """Return how many of the ids begin before a place of the text that they decode to; None if they do not."""
        form = self._decoded_form(ids, text, after)
        if form is None:
            return None
        at, whole = len(form(text[:place])), form(text)
        segments = functools.partial(self._segments, dummy_space=self._may_insert_space(after))
        # How far the first n ids reach grows with n.
        return bisect.bisect_left(range(len(ids)), at, key=lambda n: _reached(list(segments(ids[:n])), whole))

    def _decoded_form(self, ids: Sequence[int], text: bytes, after: int | None) -> Callable[[bytes], bytes] | None:
        """Return the form of a text, as a function of it and of its beginnings, that ids decode to; None if to none."""
        if any(self.token_bytes.table[i] is None for i in ids):
            return None
        before = None if after is None else self._added.get(after)
        skipped = _skip_space(text, 0) if before is not None and before.rstrip else 0
        segments = list(self._segments(ids, dummy_space=self._may_insert_space(after)))

        def plain(part: bytes) -> bytes:
            return self._plain_spaces(part[skipped:])

        def normalized(part: bytes) -> bytes:
            assert self._normalizer is not None
            shown: bytes = self._normalizer.normalize_str(part[skipped:].decode()).encode()
            if self._prepends:  # a segment may begin with a dummy space anyway; it must not count twice
                shown = shown.removeprefix(SPACE.encode())
            return self._plain_spaces(shown)

        forms: list[Callable[[bytes], bytes]] = [plain, *([normalized] if self._normalizer is not None else [])]
        return next((form for form in forms if _reached(segments, form(text)) == len(form(text))), None)

    def _may_insert_space(self, after: int | None) -> bool:
        return after is None or after in self._added

    def _plain_spaces(self, text: bytes) -> bytes:
        return text if self.token_bytes.byte_level else text.replace(SPACE.encode(), b" ")

    def _segments(self, ids: Sequence[int], *, dummy_space: bool) -> Iterator["_Segment"]:
        """Yield segments; with `dummy_space`, the first may begin with one, as those after added tokens may."""
        for token, run in itertools.groupby(ids, self._added.get):
            if token is None:
                decoded = self._plain_spaces(self.decode([*run]))  # bytes of single ids may make a ▁
                yield _Segment(decoded, dummy_space and self.token_bytes.inserts_space, None)
            else:
                yield from (_Segment(self.decode([token_id]), False, token) for token_id in run)
            dummy_space = True


class _Segment(NamedTuple):
    """The bytes of ordinary ids up to the next added token, or of one added token."""

    decoded: bytes
    dummy_space: bool
    """Whether its first space may have been inserted by the tokenizer."""

    token: AddedToken | None


def _reached(segments: Sequence[_Segment], text: bytes) -> int:
    """Return how far into the text the segments, concatenated, lead; -1 if they do not spell it."""
    at = 0
    for decoded, dummy_space, token in segments:
        if token is not None and token.lstrip:
            at = _skip_space(text, at)
        if text.startswith(decoded, at):
            at += len(decoded)
        elif dummy_space and decoded.startswith(b" ") and text.startswith(decoded[1:], at):
            at += len(decoded) - 1
        else:
            return -1
        if token is not None and token.rstrip:
            at = _skip_space(text, at)
    return at


def _skip_space(text: bytes, at: int) -> int:
    found = _SPACES.match(text, at)
    return found.end() if found else at


def runs_of_masked_turns(turns: TurnBatch, tokens: TokenBatch, round_trip: RoundTrip) -> dict[int, Runs | None]:
    """Return the trained runs of each turn with masked pieces, by its number; None if its ids show no pieces."""
    texts = np.searchsorted(turns.text_offsets, turns.masked[:, 0], side="right") - 1
    starts = turns.masked[:, 0] - turns.text_offsets[texts]
    masked_of: dict[int, list[tuple[int, int]]] = {}
    first_turns, last_turns = (np.searchsorted(turns.turn_text, texts, side) for side in ("left", "right"))
    own_turns = zip(first_turns.tolist(), last_turns.tolist(), strict=True)
    for (first, last), start, masked in zip(own_turns, starts.tolist(), turns.masked.tolist(), strict=True):
        for turn in range(first, last):
            if turns.prompt_end[turn] <= start < turns.completion_end[turn]:
                masked_of.setdefault(turn, []).append((masked[0], masked[1]))
    return {turn: _trained_runs(turns, tokens, turn, masked, round_trip) for turn, masked in masked_of.items()}


def _trained_runs(
    turns: TurnBatch, tokens: TokenBatch, turn: int, masked: Sequence[tuple[int, int]], round_trip: RoundTrip
) -> Runs | None:
    """Return what the `masked` byte ranges of the batch's text leave of a turn's completion."""
    first, end = int(tokens.prompt_tokens[turn]), int(tokens.completion_tokens[turn])
    offset = int(tokens.offsets[tokens.turn_sequence[turn]])
    ids, after = tokens.ids[offset + first : offset + end].tolist(), tokens.ids[offset + first - 1] if first else None
    text = int(turns.text_offsets[turns.turn_text[turn]])
    begin = text + int(turns.prompt_end[turn])
    completion = turns.text[begin : text + int(turns.completion_end[turn])]
    places = [place - begin for each in masked for place in each]
    counts = _num_before(ids, completion, places, None if after is None else int(after), round_trip)
    if counts is None:
        return None
    bounds = [max(1, first), *(first + count for count in counts), end]
    return [(start, end) for start, end in zip(bounds[::2], bounds[1::2], strict=True) if start < end]


def _num_before(
    ids: list[int], text: bytes, places: list[int], after: int | None, round_trip: RoundTrip
) -> list[int] | None:
    """Return how many of the ids of a text belong before each place in it; None if they are not its ids."""
    is_start = after is None or bool(round_trip.token_bytes.is_added[after])
    spelled = round_trip.token_bytes.spell(np.array(ids, np.int32), np.array([0, len(ids)]), np.array([is_start]))
    # For each place: the end of the text before it without white space, the place itself, and where its character ends.
    around = [(len(text[:place].rstrip()), place, _behind(text, place)) for place in places]
    if spelled.known[0] and spelled.decoded.tobytes() == text:  # nearly always
        counts = np.searchsorted(spelled.ends[:-1], around).tolist()
    else:
        counts = [[round_trip.num_begun(ids, text, at, after=after) for at in each] for each in around]
    if any(None in each for each in counts):
        return None
    # Of the ids that begin before a place, the last one has only white space there if it begins in it, and if none
    # begins at the place.
    pairs = zip(places, counts, strict=True)
    return [num - (before < num == behind and place < len(text)) for place, (before, num, behind) in pairs]


def _behind(text: bytes, place: int) -> int:
    """Return where the character at a place ends."""
    return next((end for end in range(place + 1, len(text)) if text[end] & 0xC0 != 0x80), len(text))
