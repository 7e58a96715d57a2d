"""What a run has read and how fast: numbers for a logger, and one line of them."""

from collections import deque
from time import monotonic
from typing import NamedTuple

from packer.load.state import ReaderState

_LAST_STEPS = 32
"""Steps that speed is measured over."""


class Figures(NamedTuple):
    """What a loader has given since the beginning, over all ranks and epochs, and its speed over the last 32 steps.

    ``_asdict()`` is for loggers, ``str()`` for people. Counts are the same on every rank; the two figures of time are
    this process's own.
    """

    steps: int
    epoch: float
    """With the share of the current epoch that was taken: 1.25 is a quarter of the second one."""

    rows: int
    """Blocks, or documents where steps are made of them."""

    tokens: int
    trained_tokens: int
    slots: int
    """Positions, padding included."""

    padding_share: float
    """Share of the positions that held no token, 0 to 1."""

    tokens_per_s: float
    """Over all ranks; 0 before the second step of an iteration."""

    waiting_share: float
    """Share of the time that the training loop waited for a step, 0 to 1: above a few percent, reading is too slow."""

    def __str__(self) -> str:
        return (
            f"step {self.steps:,}, epoch {self.epoch:.3f}: {self.rows:,} rows, {self.tokens:,} tokens, "
            f"{self.trained_tokens:,} trained, {self.padding_share:.1%} padding; {self.tokens_per_s:,.0f} tokens/s, "
            f"{self.waiting_share:.1%} of the time waiting for data"
        )


class Pace:
    """When steps were asked for and given: in between, training works on the one and waits for the other."""

    def __init__(self) -> None:
        # Of the last steps: seconds from one to the next, those of them spent waiting, and the tokens worked on.
        self._spans: deque[tuple[float, float, int]] = deque(maxlen=_LAST_STEPS)
        self._asked = self._given = 0.0
        self._tokens: int | None = None  # of the step that is worked on

    def ask(self) -> None:
        """The loop asks for a step."""
        self._asked = monotonic()

    def give(self, tokens: int) -> None:
        """It is given one of so many tokens."""
        now = monotonic()
        if self._tokens is not None:
            self._spans.append((now - self._given, now - self._asked, self._tokens))
        self._given, self._tokens = now, tokens

    def end(self) -> None:
        """The loop has ended: what comes before the next one is no work on a step."""
        self._tokens = None

    def speed(self) -> tuple[float, float]:
        """Tokens a second, and the share of the time that was spent on waiting."""
        whole, waiting, tokens = (sum(column) for column in zip(*self._spans, (0.0, 0.0, 0), strict=True))
        return (tokens / whole, waiting / whole) if whole else (0.0, 0.0)


def figures_of(state: ReaderState, num_rows: int, pace: Pace) -> Figures:
    """The figures at a state, of whose epoch the number of rows is given."""
    counters, (tokens_per_s, waiting_share) = state.counters, pace.speed()
    return Figures(
        steps=counters.steps,
        epoch=state.epoch + state.cursor / num_rows,
        rows=counters.rows,
        tokens=counters.tokens,
        trained_tokens=counters.trained,
        slots=counters.slots,
        padding_share=counters.padding_share,
        tokens_per_s=tokens_per_s,
        waiting_share=waiting_share,
    )
