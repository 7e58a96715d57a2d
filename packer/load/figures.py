"""How much a run has read and how fast: numbers for a logger, and one line of text."""

from collections import deque
from time import monotonic
from typing import NamedTuple

from packer.load.state import ReaderState

_LAST_STEPS = 32
"""Number of recent steps that speed is measured over."""


class Figures(NamedTuple):
    """Totals of a loader since the beginning, over all ranks and epochs, and its speed over the last 32 steps.

    ``_asdict()`` is for loggers, ``str()`` for people. Counts are the same on every rank; the two timings are
    this process's own.
    """

    steps: int
    epoch: float
    """Includes the fraction of the current epoch that was taken: 1.25 is a quarter into the second one."""

    rows: int
    """Blocks, or documents if steps consist of them."""

    tokens: int
    trained_tokens: int
    slots: int
    """Positions, including padding."""

    padding_share: float
    """Fraction of the positions that were padding, 0 to 1."""

    tokens_per_s: float
    """Over all ranks; 0 before the second step of an iteration."""

    waiting_share: float
    """Fraction of the time the training loop waited for a step, 0 to 1: above a few percent, reading is too slow."""

    def __str__(self) -> str:
        return (
            f"step {self.steps:,}, epoch {self.epoch:.3f}: {self.rows:,} rows, {self.tokens:,} tokens, "
            f"{self.trained_tokens:,} trained, {self.padding_share:.1%} padding; {self.tokens_per_s:,.0f} tokens/s, "
            f"{self.waiting_share:.1%} of the time waiting for data"
        )


class ThroughputMeter:
    """Records when steps are requested and returned; in between, training works on one and then waits for the next."""

    def __init__(self) -> None:
        # For each recent step: seconds until the next one, seconds of that spent waiting, and its tokens.
        self._spans: deque[tuple[float, float, int]] = deque(maxlen=_LAST_STEPS)
        self._requested_s = self._returned_s = 0.0
        self._tokens: int | None = None  # of the step being trained on

    def step_requested(self) -> None:
        """Record that the loop requests a step."""
        self._requested_s = monotonic()

    def step_returned(self, tokens: int) -> None:
        """Record that it gets one with this number of tokens."""
        now = monotonic()
        if self._tokens is not None:
            self._spans.append((now - self._returned_s, now - self._requested_s, self._tokens))
        self._returned_s, self._tokens = now, tokens

    def loop_ended(self) -> None:
        """Record the end of the loop: time until the next one is not work on a step."""
        self._tokens = None

    def speed(self) -> tuple[float, float]:
        """Return tokens per second, and the fraction of the time spent waiting."""
        seconds, waiting, tokens = (sum(column) for column in zip(*self._spans, (0.0, 0.0, 0), strict=True))
        return (tokens / seconds, waiting / seconds) if seconds else (0.0, 0.0)


def figures_of(state: ReaderState, num_rows: int, throughput: ThroughputMeter) -> Figures:
    """Return the figures at a state whose epoch has `num_rows` rows."""
    counters, (tokens_per_s, waiting_share) = state.counters, throughput.speed()
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
