"""Shapes of conversations: what a template leaves out of them without a word, and which it cannot build."""

import re
from collections.abc import Iterator, Mapping, Sequence

from packer.audit.lint.lint_report import CODES, Example, LintFinding
from packer.audit.lint.probes import ANSWER, FIELD, QUESTION, SHAPES, TAGS, USUAL, listed
from packer.audit.lint.subject import Outcome, Override, Subject
from packer.rejections import rejection_hint
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
"""Kind of loss → the part that rows are learned without where it is allowed."""


def find_losses(subject: Subject) -> Iterator[LintFinding]:
    """Report parts that are not rendered, by kind; each kind is looked for while the ones before it are allowed."""
    found: dict[str, list[str]] = {}
    for label, row in SHAPES.items():
        for kind in subject.losses(row):
            found.setdefault(kind, []).append(label)
    for kind, labels in found.items():
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


def _example(subject: Subject, kind: str, outcome: Outcome) -> Iterator[Example]:
    conversation = subject.conversation(outcome)
    try:
        text = conversation.render(conversation.messages, {})
    except RenderError:
        return
    place = text.find(QUESTION if kind in ("system", "user", "tools") else ANSWER)
    place = place if place >= 0 else len(text)
    yield Example(label="rendered", text=text, mark=(place, place), note="nothing of it")


def _hint(subject: Subject, kind: str, labels: Sequence[str]) -> str:
    """The other form of reasoning, where that is rendered; the losses to allow."""
    ways = []
    if kind == "reasoning":
        for form, label, what in (("inline", FIELD, "<think> tags"), ("field", TAGS, "a field")):
            override, row = Override("supervision.reasoning", form), SHAPES[label]
            if "reasoning" in subject.losses(row) and subject.tried(row, override).rejection is None:
                ways.append(f"{override} gives it to the template in {what}")
    lost = [other for other in subject.losses(SHAPES[labels[0]]) if other not in subject.allowed]
    override = Override.allowing(subject.recipe_given, lost)
    ways.append(f"{override} learns such rows without {listed([_WITHOUT[each] for each in lost])}")
    return "; or ".join(ways)


def find_rejected_shapes(shapes: Mapping[str, Outcome]) -> Iterator[LintFinding]:
    """Shapes that cannot be built; common ones that lose something have a finding of their own."""
    rejected: dict[tuple[str, str], list[str]] = {}
    for label, outcome in shapes.items():
        rejection = outcome.rejection
        if rejection is not None and not (rejection.code.startswith("dropped_") and label in USUAL):
            reason = re.sub(r"^messages\[[0-9]+\]: ", "", rejection.reason)
            rejected.setdefault((rejection.code, reason), []).append(label)
    labels = [label for group in rejected.values() for label in group]
    if labels:
        codes = list(dict.fromkeys(code for code, _ in rejected))
        count = "a shape" if len(labels) == 1 else f"{len(labels)} shapes"
        yield LintFinding(
            code="shapes_rejected",
            message=f"{count} of conversation cannot be built: such rows are rejected as {listed(codes)}",
            examples=tuple(
                Example(label=listed(group), text=f"{code}: {reason}") for (code, reason), group in rejected.items()
            ),
            hint=next((rejection_hint(code) for code in codes if code.startswith("mangled_")), None),
            level="warning" if USUAL.intersection(labels) else "note",
        )
