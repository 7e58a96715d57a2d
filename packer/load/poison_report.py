"""What a poison test found, and what to do about it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from textwrap import fill

from packer.load.attention import Span

MAX_LISTED = 6
"""Lines about single sequences on the page of a report."""

BEFORE = (
    "what leaks is what stands before in the row. Eager, SDPA and FlexAttention of transformers overlook the borders "
    "beside a 2-D attention_mask or a key-value cache (use_cache=True); flash attention needs cu_seq_lens_* or, in a "
    "batch of 1, position_ids. model(**huggingface(micro_batch)) sees to it"
)
BOOL_MASK = "an explicit 4-D mask must have the model's dtype under eager attention: a bool mask hides nothing there"
STATE = (
    "convolution and state space layers need huggingface(micro_batch, seq_idx=True) and their kernels; models that "
    "make no use of seq_idx (Mamba, Mamba-2, Jamba) need padded micro-batches, one document a row"
)
PADDING = "padding is attended to: pass attention_mask, as model(**huggingface(micro_batch)) does"
ELSEWHERE = (
    "what reaches earlier positions or other rows is no causal attention: a mean or a statistic over the whole "
    "micro-batch, attention in both directions, or experts of limited capacity"
)
ROUNDING = (
    "differences this small may be rounding, in models whose inner shapes depend on the ids (mixture of experts): "
    "say with atol which difference is none"
)
UNMOVED = "look at what `logits` returns, and whether input_ids reach the model: as it is, the test shows nothing there"
NOISY = "nothing can be told: take deterministic kernels (torch.use_deterministic_algorithms), or allow it with atol"
NOT_A_NUMBER = "find where it comes from first; a mask that hides everything from a position is the usual cause"
NOT_ALONE = (
    "positions that do not restart (pass position_ids), a mask that hides too much, or a layer whose state does not "
    "start anew at a border"
)
FEW_BITS = "in bfloat16 and float16 rounding may reach this far in a deep model: run the test in float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Sequence `source`, poisoned by itself, moved logits of sequence `target`."""

    source: int
    target: int
    difference: float
    """The largest of a logit."""

    num_positions: int
    is_forward: bool
    """The source stands before the target in the same row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Logits of each sequence among the others against those of the sequence run by itself."""

    differences: tuple[tuple[int, float], ...]
    """Sequence and largest difference, of every sequence that is not padding."""

    tolerance: float
    """Room for rounding: a share, by dtype, of the largest logit."""

    @property
    def largest_difference(self) -> float:
        return max(difference for _, difference in self.differences)

    @property
    def deviating(self) -> tuple[int, ...]:
        return tuple(sequence for sequence, difference in self.differences if not difference <= self.tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonReport:
    """True where the borders hold and the test could have shown otherwise; as text, a page that says what to do.

    Sequences go by their number in `spans`.
    """

    spans: tuple[Span, ...]
    leaks: tuple[Leak, ...]
    """Traced to their source; of many, some."""

    leaked_into: tuple[int, ...]
    """Every sequence that moved when others were poisoned."""

    unmoved: tuple[int, ...]
    """Trained sequences whose own logits did not move when they were poisoned: the model ignores them."""

    largest_difference: float
    """Of a logit of a sequence that was left alone."""

    num_moved: int
    """Positions that moved though their sequence was left alone."""

    num_runs: int
    noise: float
    """Largest difference between two clean runs."""

    has_nan: bool
    """A logit of the clean run, outside padding, is not a number."""

    rounding: float
    """A difference of this size may be rounding: a few units in the last place of the largest logit."""

    atol: float
    alone: Alone | None
    attention: str | None
    """``attn_implementation`` of a Hugging Face model."""

    def __bool__(self) -> bool:
        return not self._findings()

    def __str__(self) -> str:
        findings = self._findings()
        lines = [line for found, _ in findings for line in found] or list(self._all_is_well())
        used = f", attn_implementation {self.attention}" if self.attention else ""
        lines.append(f"  ({len(self.spans)} sequences, {self.num_runs} runs, atol {self.atol:g}{used})")
        if findings:
            lines += ["what to do:", *(_wrapped(hint) for _, hints in findings for hint in hints)]
        return "\n".join(lines)

    def _all_is_well(self) -> Iterator[str]:
        yield "borders hold: poison in a sequence moved its own logits, and none of another"
        if self.alone is not None:
            yield (
                f"  and each gives what it gives by itself, to {self.alone.largest_difference:.2g} "
                f"(tolerance {self.alone.tolerance:.2g})"
            )

    def _findings(self) -> list[tuple[list[str], list[str]]]:
        """What is wrong, worst first, each with what to do."""
        if self.has_nan:
            return [(["logits are not numbers, before anything was poisoned"], [NOT_A_NUMBER])]
        if self.noise > self.atol:
            return [([f"the model answers the same input in two ways, {self.noise:.2g} apart"], [NOISY])]
        findings = []
        if self.unmoved:
            findings.append((self._about_unmoved(), [UNMOVED]))
        if self.leaked_into:
            findings.append((self._about_leaks(), self._hints_on_leaks()))
        elif self.alone is not None and self.alone.deviating:  # a leak would explain it
            findings.append((self._about_alone(self.alone), [NOT_ALONE, FEW_BITS]))
        return findings

    def _about_unmoved(self) -> list[str]:
        if all(at in self.unmoved for at, span in enumerate(self.spans) if span.is_trained):
            return ["the model ignores its input: no logit moved when its own sequence was poisoned"]
        head = f"the model ignores {len(self.unmoved)} of the sequences: their logits do not depend on their ids"
        return [head, *_listed([f"  {self._name(at)}" for at in self.unmoved])]

    def _about_leaks(self) -> list[str]:
        head = (
            f"borders leak: {len(self.leaked_into)} of {len(self.spans)} sequences moved when others were poisoned, "
            f"at {self.num_moved} positions, by up to {self.largest_difference:.2g}"
        )
        lines = []
        for source, group in groupby(self.leaks, key=lambda leak: leak.source):
            leaks = list(group)
            targets = ", ".join(str(leak.target) for leak in leaks[:MAX_LISTED])
            more = ", …" if len(leaks) > MAX_LISTED else ""
            largest = max(leak.difference for leak in leaks)
            lines.append(f"  {self._name(source)} leaks into {targets}{more}: by up to {largest:.2g}")
        return [head, *_listed(lines)]

    def _hints_on_leaks(self) -> list[str]:
        hints = [ROUNDING] if self.largest_difference <= self.rounding else []
        if any(self.spans[leak.source].is_padding for leak in self.leaks):
            hints.append(PADDING)
        if not self.leaks or not all(leak.is_forward for leak in self.leaks):
            hints.append(ELSEWHERE)
        if all(leak.is_forward for leak in self.leaks):
            hints += [BEFORE, BOOL_MASK, STATE]
        return hints

    def _about_alone(self, alone: Alone) -> list[str]:
        head = (
            f"{len(alone.deviating)} sequences give other logits by themselves, by up to "
            f"{alone.largest_difference:.2g} (tolerance {alone.tolerance:.2g})"
        )
        return [head, *_listed([f"  {self._name(at)}" for at in alone.deviating])]

    def _name(self, sequence: int) -> str:
        return f"{sequence} ({self.spans[sequence]})"


def _wrapped(hint: str) -> str:
    return fill(hint, 100, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)


def _listed(lines: list[str]) -> list[str]:
    return lines if len(lines) <= MAX_LISTED else [*lines[:MAX_LISTED], f"  and {len(lines) - MAX_LISTED} more"]
