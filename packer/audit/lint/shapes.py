"""Shapes of conversations: what a template leaves out of them without a word, and which it cannot build."""

import re
from collections.abc import Iterator, Mapping, Sequence

from packer.audit.lint.codes import CODES
from packer.audit.lint.lint_report import Example, LintFinding
from packer.audit.lint.override import Override
from packer.audit.lint.probes import (
    ANSWER,
    CHAT,
    FIELD,
    HOLDS,
    QUESTION,
    RESULT_LABEL,
    SHAPES,
    TAGS,
    TEXT_LABEL,
    USUAL,
    listed,
)
from packer.audit.lint.subject import Outcome, Subject
from packer.audit.lint.usable import suggestions, with_override
from packer.render import RenderError

_WITHOUT = {
    "system": "the system message",
    "user": "the user message",
    "content": "the text",
    "reasoning": "the reasoning",
    "tool_call": "the call",
    "tool_result": "the result",
    "tools": "the tool definitions",
}
"""What rows are learned without, where a kind of loss is allowed."""


def find_losses(subject: Subject) -> Iterator[LintFinding]:
    """What is not rendered, a finding for each kind; each is looked for while the ones before it are allowed."""
    for kind, labels in _lost_shapes(subject).items():
        if not USUAL.intersection(labels):
            continue
        allowed = kind in subject.allowed
        code = f"dropped_{kind}"
        yield LintFinding(
            code=code,
            message=f"{CODES[code].meaning} ({listed(labels)}); "
            + ("the recipe allows it: rows are learned without" if allowed else "such rows are rejected"),
            examples=tuple(_example(subject, kind, subject.ask(SHAPES[labels[0]]))),
            hint=None if allowed else _hint(subject, kind, labels),
            level="note" if allowed else "warning",
        )


def _lost_shapes(subject: Subject) -> dict[str, list[str]]:
    """Kind of loss → shapes; one that holds a simpler shape is named only for what that one does not lose too."""
    found: dict[str, list[str]] = {}
    losses = {label: subject.losses(row) for label, row in SHAPES.items()}
    for label, kinds in losses.items():
        known = {kind for held in HOLDS.get(label, ()) for kind in losses[held]}
        for kind in kinds:
            if kind not in known:
                found.setdefault(kind, []).append(label)
    return found


def _example(subject: Subject, kind: str, outcome: Outcome) -> Iterator[Example]:
    conversation = subject.conversation(outcome)
    try:
        text = conversation.render(conversation.messages, {})
    except RenderError:
        return
    place = text.find(QUESTION if kind in ("system", "user", "tools") else ANSWER)
    place = place if place >= 0 else len(text)
    yield Example(label="rendered", text=text, mark=(place, place), note="nothing of it")


def _hint(subject: Subject, kind: str, labels: Sequence[str]) -> str | None:
    """The other form of reasoning, where that is rendered; the losses to allow, where a row is kept then."""
    ways = []
    if kind == "reasoning":
        for form, label, what in (("inline", FIELD, "<think> tags"), ("field", TAGS, "a field")):
            override, row = Override("supervision.reasoning", form), SHAPES[label]
            if "reasoning" in subject.losses(row) and subject.tried(row, override).rejection is None:
                ways.append(f"{override} gives it to the template in {what}")
    # An answer that is nothing but a call leaves nothing to learn: a row that goes on, or says a word, must be kept.
    for beside in ((*labels, RESULT_LABEL), (*labels, TEXT_LABEL)) if kind == "tool_call" else (labels,):
        kinds = dict.fromkeys(lost for label in beside for lost in (*subject.losses(SHAPES[label]), kind))
        needed = [lost for lost in kinds if lost not in subject.allowed]
        override = Override.allowing(subject.recipe_given, needed)
        if any(subject.tried(SHAPES[label], override).rejection is None for label in beside):
            without = listed([_WITHOUT[lost] for lost in needed])
            calls = ": an answer that is nothing but a call is then not learned" if "tool_call" in needed else ""
            ways.append(f"{override} learns such rows without {without}{calls}")
            break
    return "; or ".join(ways) or None


def find_rejected_shapes(subject: Subject, shapes: Mapping[str, Outcome]) -> Iterator[LintFinding]:
    """Shapes that cannot be built; common ones that lose something have a finding of their own."""
    rejected: dict[str, list[str]] = {}
    for label, outcome in shapes.items():
        if outcome.rejection is None or (outcome.rejection.code.startswith("dropped_") and label in USUAL):
            continue
        held = [rejection for each in HOLDS.get(label, ()) if (rejection := shapes[each].rejection) is not None]
        if outcome.rejection.code not in {rejection.code for rejection in held}:
            reason = re.sub(r"^messages\[[0-9]+\]: ", "", outcome.rejection.reason)
            rejected.setdefault(f"{outcome.rejection.code}: {reason}", []).append(label)
    labels = [label for group in rejected.values() for label in group]
    if labels:
        codes = list(dict.fromkeys(reason.partition(":")[0] for reason in rejected))
        count = "a shape" if len(labels) == 1 else f"{len(labels)} shapes"
        yield LintFinding(
            code="shapes_rejected",
            message=f"{count} of conversation cannot be built: such rows are rejected as {listed(codes)}",
            examples=tuple(Example(label=listed(group), text=reason) for reason, group in rejected.items()),
            hint=_helps(subject, labels),
            level="warning" if USUAL.intersection(labels) else "note",
        )


def _helps(subject: Subject, labels: Sequence[str]) -> str | None:
    """A key under which at least one of the shapes, and still a plain chat, can be built."""
    rejections = [subject.ask(SHAPES[label]).rejection for label in labels]
    for rejection in {each.code: each for each in rejections if each is not None}.values():
        for override in suggestions(subject, rejection):
            other = with_override(subject, override)
            helped = [label for label in labels if other.ask(SHAPES[label]).rejection is None]
            if helped and other.ask(CHAT).rejection is None:
                return f"{override} builds {listed(helped)}"
    return None
