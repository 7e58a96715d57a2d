"""What the poison test found: sequences, leaks between them, and what to do about them."""

from dataclasses import dataclass
from textwrap import fill

_MAX_LISTED = 6

_EARLIER_POSITIONS_HINT = (
    "what leaks comes from earlier in the row. Eager, SDPA and FlexAttention of transformers overlook boundaries "
    "beside a 2-D attention_mask or a key-value cache (use_cache=True); flash attention needs cu_seq_lens_* or, in a "
    "batch of 1, position_ids. model(**huggingface(micro_batch, model.config)) sees to it. A 4-D mask must have the "
    "model's dtype under eager attention: a bool mask hides nothing there"
)
_RECURRENT_STATE_HINT = (
    "layers that carry a state need the seq_idx that huggingface(micro_batch, model.config) gives, and their kernels; "
    "models that make no use of seq_idx (Mamba, Mamba-2, Jamba) need padded micro-batches, one document a row"
)
_PADDING_HINT = "padding is attended to: pass attention_mask, as model(**huggingface(micro_batch, model.config)) does"
_NOT_CAUSAL_HINT = (
    "what reaches earlier positions or other rows is not causal attention: a mean or a statistic over the whole "
    "micro-batch, attention in both directions (eager attention with a bool mask), or experts: of limited capacity, or "
    "rounding otherwise with other tokens beside them; if the differences are that small, say so with atol"
)
_UNMOVED_HINT = "look at what `logits` returns, and whether input_ids reach the model: the test shows nothing there"
_NOISE_HINT = (
    "nothing can be said: take deterministic kernels (torch.use_deterministic_algorithms), or allow it with atol"
)
_NAN_HINT = "find where it comes from first; a mask that hides everything from a position is the usual cause"
_ALONE_HINT = (
    "positions that do not restart (pass position_ids), a mask that hides too much, or a layer whose state does not "
    "restart at a boundary; in bfloat16 and float16 rounding may reach this far: run the test in float32"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The range of a sequence: positions ``[start, stop)`` of a row."""

    row: int
    start: int
    stop: int
    is_padding: bool
    """Whether ``attention_mask`` is 0 here. Padding at the end of a packed block counts as a document."""

    is_trained: bool
    """Whether some position has a label; in a micro-batch without labels, true for every sequence that is not padding.
    """

    def __str__(self) -> str:
        kind = "padding, " if self.is_padding else ""
        return f"{kind}row {self.row}, positions {self.start} to {self.stop - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Changing sequence `source` moved logits of sequence `target`."""

    source: int
    target: int
    difference: float
    """Largest difference of a logit."""

    is_forward: bool
    """Whether the source comes before the target in the same row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonReport:
    """True if the boundaries hold and the test was able to detect leaks; as text, a page of findings and advice.

    Sequences are identified by their index in `spans`.
    """

    spans: tuple[Span, ...]
    leaks: tuple[Leak, ...]
    unmoved: tuple[int, ...]
    """Trained sequences whose own logits did not change when they were changed: the model ignores them."""

    noise: float
    """Largest difference of a logit between two unchanged runs."""

    has_nan: bool
    """Whether a logit of the unchanged run, outside padding, is NaN."""

    atol: float
    alone: dict[int, float] | None
    """Largest difference of a logit between a sequence among the others and the same sequence run alone."""

    alone_tolerance: float
    """Rounding tolerance for `alone`: a fraction, depending on dtype, of the largest logit."""

    attention: str | None
    """``attn_implementation`` of a Hugging Face model."""

    @property
    def deviating(self) -> tuple[int, ...]:
        """Sequences whose logits differ when they are run alone."""
        return tuple(at for at, difference in (self.alone or {}).items() if not difference <= self.alone_tolerance)

    def __bool__(self) -> bool:
        return self._problem() is None

    def __str__(self) -> str:
        head, details, hints = self._problem() or (
            "boundaries hold: changing a sequence moved its own logits, and none of another",
            [],
            [],
        )
        if self.alone and not hints:
            largest, room = max(self.alone.values()), self.alone_tolerance
            details = [f"and each gives what it gives by itself, to {largest:.2g} (tolerance {room:.2g})"]
        more = [f"and {len(details) - _MAX_LISTED} more"] if len(details) > _MAX_LISTED else []
        used = f", attn_implementation {self.attention}" if self.attention else ""
        about = f"({len(self.spans)} sequences, atol {self.atol:g}{used})"
        lines = [head, *(f"  {line}" for line in (*details[:_MAX_LISTED], *more, about))]
        if hints:
            wrapped = (fill(hint, 100, initial_indent="  - ", subsequent_indent="    ") for hint in hints)
            lines += ["what to do:", *wrapped]
        return "\n".join(lines)

    def _problem(self) -> tuple[str, list[str], list[str]] | None:
        """Return what is wrong, the details, and what to do about it; root causes are checked first."""
        names = [f"{at} ({span})" for at, span in enumerate(self.spans)]
        if self.has_nan:
            return "logits are not numbers, before anything was changed", [], [_NAN_HINT]
        if self.noise > self.atol:
            return f"the model answers the same input in two ways, {self.noise:.2g} apart", [], [_NOISE_HINT]
        if self.unmoved:
            head = f"the model ignores {len(self.unmoved)} sequences: their logits do not depend on their ids"
            return head, [names[at] for at in self.unmoved], [_UNMOVED_HINT]
        if self.leaks:
            moved = len({leak.target for leak in self.leaks})
            head = f"boundaries leak: {moved} of {len(self.spans)} sequences moved when others were changed"
            lines = [
                f"{names[leak.source]} leaks into {leak.target}: by up to {leak.difference:.2g}" for leak in self.leaks
            ]
            hints = [_PADDING_HINT] if any(self.spans[leak.source].is_padding for leak in self.leaks) else []
            are_forward = all(leak.is_forward for leak in self.leaks)
            hints += [_EARLIER_POSITIONS_HINT, _RECURRENT_STATE_HINT] if are_forward else [_NOT_CAUSAL_HINT]
            return head, lines, hints
        if self.deviating:
            differences = self.alone or {}
            head = f"{len(self.deviating)} sequences give other logits by themselves"
            return head, [f"{names[at]}: {differences[at]:.2g}" for at in self.deviating], [_ALONE_HINT]
        return None
