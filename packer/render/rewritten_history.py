"""Decides which texts of a conversation are kept (the maximal ones), and which turns are trained in each.

A template that only appends yields one text per conversation. One that rewrites history (drops earlier reasoning, say)
yields one text per rewriting, so that every turn keeps the context that inference would give it. A turn is trained in
the last text that begins with it. `last` and `as_rendered` are the cheaper ways to treat rewritten history; see
docs/explanation/supervision.md.

Turns are assigned to texts while they are rendered, and a text that is a prefix of the next one is freed. So a long
conversation is held in memory once, not once per turn.
"""

import bisect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from packer.batches import Rejection, TurnBatch
from packer.layout import offsets_of
from packer.media.carried import DrawnImage
from packer.render.conversation import Mode
from packer.render.environment import RenderError
from packer.render.reasoning import empty_block
from packer.render.turns import RenderedTurn, TurnRules

Range: TypeAlias = tuple[int, int]

Mask: TypeAlias = Callable[[RenderedTurn], RenderedTurn]
"""Adds the ranges of a turn that are not trained."""

EncodedTurn: TypeAlias = tuple[int, int, int]
"""Message, end of the prompt, end of the completion."""


class EncodedText(NamedTuple):
    """A text to be tokenized, as UTF-8; positions are in bytes."""

    content: bytes
    turns: tuple[EncodedTurn, ...]
    raw: bool = False
    guarded: tuple[Range, ...] = ()
    masked: tuple[Range, ...] = ()
    images: tuple[DrawnImage, ...] = ()

    def moved(self, to: Callable[[int], int], content: bytes) -> "EncodedText":
        """Return a text with other content, whose positions `to` gives."""
        return self._replace(
            content=content,
            turns=tuple([(message, to(a), to(b)) for message, a, b in self.turns]),
            guarded=tuple([(to(a), to(b)) for a, b in self.guarded]),
            masked=tuple([(to(a), to(b)) for a, b in self.masked]),
        )


def encoded(
    text: str,
    turns: Iterable[EncodedTurn],
    *,
    raw: bool = False,
    guarded: Iterable[Range] = (),
    masked: Iterable[Range] = (),
) -> EncodedText:
    """Encode a text as UTF-8, and convert positions from characters to bytes."""
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise RenderError("half of a surrogate pair in the rendering", code="not_utf8") from None
    found = EncodedText(content, tuple(turns), raw, tuple(guarded), tuple(masked))
    if len(content) == len(text):
        return found
    places = {place for _, *each in found.turns for place in each}
    places |= {place for each in (*found.guarded, *found.masked) for place in each}
    in_bytes: dict[int, int] = {}
    num_bytes = last = 0
    for place in sorted(places):
        num_bytes = len(content) if place == len(text) else num_bytes + len(text[last:place].encode())
        in_bytes[place], last = num_bytes, place
    return found.moved(in_bytes.__getitem__, content)


class RenderedRow(NamedTuple):
    """The rendering of one row."""

    texts: tuple[EncodedText, ...]
    num_skipped: int
    """Number of answers that should have been trained but are not: they are empty, the template writes nothing for
    them, or it has no prompt or no mark for them."""


class PlacedTurn(NamedTuple):
    """A turn and its position in the text that it is trained in, in characters."""

    message: int
    mode: Mode
    prompt_end: int
    completion_end: int
    prompt_ends: tuple[int, ...]
    """As in :class:`RenderedTurn`, for the turn's own rendering."""

    masked: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text and the turns trained in it."""

    text: str
    last: int
    """The last message of the rendering it was cut from."""

    mode: Mode
    """The mode it was rendered in."""

    placed: tuple[PlacedTurn, ...]

    @property
    def turns(self) -> list[EncodedTurn]:
        """The turns; positions are in characters."""
        return [(turn.message, turn.prompt_end, turn.completion_end) for turn in self.placed]

    @property
    def masked(self) -> list[Range]:
        return [each for turn in self.placed for each in turn.masked]


@dataclass(slots=True)
class _Kept:
    """A text that is maximal so far, and its turns in the order of their ends."""

    text: str
    placed: list[PlacedTurn]
    _num_bytes: int | None = None

    @property
    def num_bytes(self) -> int:
        """Size of the text in UTF-8; kept, because it is asked for with every later turn."""
        if self._num_bytes is None:
            self._num_bytes = len(self.text.encode("utf-8", "surrogatepass"))
        return self._num_bytes

    def extend(self, text: str, turn: PlacedTurn) -> None:
        """Become a text that begins with this one, with one more turn."""
        self.text, self._num_bytes = text, None
        self.placed.append(turn)

    def yield_to(self, text: str) -> list[PlacedTurn]:
        """Remove and return the turns that `text` begins with: the first ones, as each is a prefix of the next."""
        if text.startswith(self.text):
            number = len(self.placed)
        elif self.placed[0].completion_end == len(self.text):
            number = 0
        else:
            number = bisect.bisect_left(
                self.placed, 1, key=lambda turn: not text.startswith(self.text[: turn.completion_end])
            )
        given, self.placed = self.placed[:number], self.placed[number:]
        return given


@dataclass(slots=True)
class TurnAssigner:
    """Assigns each turn of one conversation to a text; accepts the turns in the order of their messages."""

    rules: TurnRules
    _kept: list[_Kept] = field(default_factory=list)

    def add(self, turn: RenderedTurn) -> None:
        """Add the next turn; earlier turns that its text begins with move to that text."""
        text, placed = turn.text, (turn.prompt_end, len(turn.text), turn.prompt_ends, turn.masked)
        own = PlacedTurn(turn.message, turn.mode, *placed)
        if len(self._kept) == 1 and text.startswith(self._kept[0].text):  # nearly always
            self._kept[0].extend(text, own)
            return
        moved = [place for kept in self._kept for place in kept.yield_to(turn.text)]
        if len(self._kept) > 1:
            moved.sort(key=lambda place: (place.completion_end, place.message))
        self._kept = [kept for kept in self._kept if kept.placed]
        self._kept.append(_Kept(turn.text, [*moved, own]))
        if len(self._kept) > 1 and self._num_bytes() > self.rules.max_bytes:
            raise RenderError(
                f"rewritten history makes texts of more than {self.rules.max_bytes} bytes", code="render_too_large"
            )

    def documents(self) -> tuple[Document, ...]:
        """Return the texts with their turns, ordered by the messages they end with."""
        if self.rules.history_rewrite == "as_rendered" and len(self._kept) > 1:
            return _as_rendered(self._kept, self.rules.stops)
        kept = self._kept[-1:] if self.rules.history_rewrite == "last" else self._kept
        return tuple(_document(each.text, each.placed) for each in kept)

    def _num_bytes(self) -> int:
        most = 4 * sum(len(kept.text) for kept in self._kept)
        if most <= self.rules.max_bytes:
            return most
        return sum(kept.num_bytes for kept in self._kept)


def _document(text: str, placed: Sequence[PlacedTurn], base: PlacedTurn | None = None) -> Document:
    base = base or placed[-1]
    in_order = sorted(placed, key=lambda place: place.message)
    return Document(text=text, last=base.message, mode=base.mode, placed=tuple(in_order))


def _as_rendered(kept: Sequence[_Kept], stops: re.Pattern[str] | None) -> tuple[Document, ...]:
    """From the last text backwards, give each text the turns that it begins with or shows without an empty block."""
    left = sorted(((place, each.text) for each in kept for place in each.placed), key=lambda pair: pair[0].message)
    documents: list[Document] = []
    while left:
        base, home = left[-1]
        text = home[: base.completion_end]
        shown = [_shown(place, own, text, stops) for place, own in left]
        documents.append(_document(text, [place for place in shown if place is not None], base))
        left = [pair for pair, place in zip(left, shown, strict=True) if place is None]
    return tuple(reversed(documents))


def _shown(turn: PlacedTurn, home: str, text: str, stops: re.Pattern[str] | None) -> PlacedTurn | None:
    """Return the turn, cut from the text `home`, at its position in `text`; None if `text` does not show it."""
    own = home[: turn.completion_end]
    if text.startswith(own):
        return turn
    for prompt_end in turn.prompt_ends:
        stop = stops.search(text, prompt_end) if stops and text.startswith(own[:prompt_end]) else None
        if stop is None:
            continue
        if not turn.masked and _shows_without_block(own[prompt_end:], text[prompt_end : stop.end()]):
            return turn._replace(prompt_end=prompt_end, completion_end=stop.end())
    return None


def _shows_without_block(own: str, shown: str) -> bool:
    """Whether `shown` is `own` without its first empty block of reasoning.

    White space in place of the block counts as part of the block: `<think></think>⏎⏎Hello` may be shown as `⏎Hello`. It
    cannot be told whether that newline belongs to the answer.
    """
    block = empty_block(own)
    if block is None:
        return shown == own
    before, behind = own[: block[0]], own[block[1] :]
    return shown.startswith(before) and shown[len(before) :].lstrip() == behind


def turn_batch(
    texts: Sequence[EncodedText], owners: Sequence[int], skipped: Sequence[int], rejections: Sequence[Rejection]
) -> TurnBatch:
    """Concatenate the texts, and shift the positions of their turns and ranges accordingly."""
    offsets = offsets_of([len(text.content) for text in texts])
    starts = offsets.tolist()
    guarded = [(starts[n] + a, starts[n] + b) for n, text in enumerate(texts) for a, b in text.guarded]
    masked = [(starts[n] + a, starts[n] + b) for n, text in enumerate(texts) for a, b in text.masked]
    turns = [(number, *turn) for number, text in enumerate(texts) for turn in text.turns]
    columns = list(zip(*turns, strict=True)) if turns else [()] * 4
    return TurnBatch(
        text=b"".join([text.content for text in texts]),
        text_offsets=offsets,
        raw=np.array([text.raw for text in texts], np.bool_),
        sample=np.array(owners, np.int32),
        turn_text=np.array(columns[0], np.int32),
        turn_message=np.array(columns[1], np.int32),
        prompt_end=np.array(columns[2], np.int64),
        completion_end=np.array(columns[3], np.int64),
        skipped=np.array(skipped, np.int32),
        guarded=np.array(guarded, np.int64).reshape(-1, 2),
        masked=np.array(masked, np.int64).reshape(-1, 2),
        rejections=tuple(rejections),
        images={number: text.images for number, text in enumerate(texts) if text.images},
    )
