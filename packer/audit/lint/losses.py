"""What a template leaves out of a conversation without a word, or shows as if the model had said it."""

from collections.abc import Iterator, Mapping, Sequence

from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.override import Override
from packer.audit.lint.probes import (
    ANSWER,
    CALLS,
    FIELD,
    HOLDS,
    KINDS,
    PLAIN,
    QUESTION,
    RESULT_LABEL,
    RESULT_TEXT,
    SHAPES,
    SYSTEM,
    TAGS,
    TEXT_LABEL,
    USUAL,
    listed,
)
from packer.audit.lint.subject import Outcome, Subject
from packer.rejections import CODES
from packer.render import RenderError
from packer.render.chat import Conversation
from packer.render.parting import common_length
from packer.render.reasoning import ANY_TAG

WITHOUT = {
    "system": "the system message",
    "user": "the user message",
    "content": "the text",
    "reasoning": "the reasoning",
    "tool_call": "the call",
    "tool_result": "the result",
    "tools": "the tool definitions",
}
"""What rows are learned without, where a kind of loss is allowed."""

_OTHERS = {"system": "a system message", "developer": "a developer message", "tool": "a tool result"}
"""Roles of messages that are no answers, and what they are."""

_OTHER_TEXTS = (SYSTEM, RESULT_TEXT)


def lost_shapes(subject: Subject) -> dict[str, list[str]]:
    """Kind of loss → shapes; one that holds a simpler shape is named only for what that one does not lose too."""
    found: dict[str, list[str]] = {}
    losses = {label: subject.losses(row) for label, row in SHAPES.items()}
    for label, kinds in losses.items():
        known = {kind for held in HOLDS.get(label, ()) for kind in losses[held]}
        for kind in kinds:
            if kind not in known:
                found.setdefault(kind, []).append(label)
    return found


def find_losses(
    subject: Subject, shapes: Mapping[str, Outcome], lost: Mapping[str, list[str]]
) -> Iterator[LintFinding]:
    """What is not rendered, a finding for each kind; each is looked for while the ones before it are allowed."""
    for kind, labels in lost.items():
        if not USUAL.intersection(labels):
            continue
        allowed = kind in subject.allowed
        consequence = (
            "the recipe allows it: rows are learned without" if allowed else _consequence(kind, labels, shapes)
        )
        yield LintFinding(
            code=f"dropped_{kind}",
            message=f"{_lost(kind, labels)}; {consequence}",
            examples=tuple(_example(subject, kind, shapes[labels[0]])),
            hint=None if allowed else _hint(subject, kind, labels),
            level="note" if allowed else "warning",
        )


def _lost(kind: str, labels: Sequence[str]) -> str:
    if {KINDS.get(label) for label in labels} == {kind}:
        return f"the template does not render {listed(labels)}"
    return f"with {listed(labels)}, {CODES[f'dropped_{kind}']}"


def _consequence(kind: str, labels: Sequence[str], shapes: Mapping[str, Outcome]) -> str:
    """The code such rows are rejected as: that of the first loss of the row."""
    rejections = (shapes[label].rejection for label in labels)
    codes = dict.fromkeys(rejection.code for rejection in rejections if rejection is not None)
    code = f"dropped_{kind}"
    return f"such rows are rejected as {code if code in codes else next(iter(codes), code)}"


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
    ways = []
    if kind == "reasoning":
        ways += [way for form, label in (("inline", FIELD), ("field", TAGS)) if (way := _moved(subject, form, label))]
    allow = _allow(subject, kind, labels)
    return "; or ".join([*ways, *([allow] if allow else [])]) or None


def _moved(subject: Subject, form: str, label: str) -> str | None:
    """Reasoning given to the template in the other form, where that renders it."""
    row = SHAPES[label]
    override = Override("supervision.reasoning", form)
    if "reasoning" not in subject.losses(row) or subject.tried(row, override).rejection is not None:
        return None
    return f"{override} gives it to the template {'in <think> tags' if form == 'inline' else 'in a field'}"


def _allow(subject: Subject, kind: str, labels: Sequence[str]) -> str | None:
    """The losses to allow until a row of these shapes is kept, and what is learned then."""
    # An answer that is nothing but a call leaves nothing to learn: a row that goes on, or says a word, must be kept.
    for beside in ((RESULT_LABEL,), (TEXT_LABEL,)) if kind == "tool_call" else ((),):
        tried = dict.fromkeys((*labels, *beside))
        kinds = dict.fromkeys(lost for label in tried for lost in (*subject.losses(SHAPES[label]), kind))
        needed = [lost for lost in kinds if lost not in subject.allowed]
        override = Override.allowing(subject.recipe_given, needed)
        kept = {label: subject.tried(SHAPES[label], override).rejection is None for label in tried}
        if any(kept.values()):
            break
    else:
        return None
    told = f"{override} learns such rows without {listed([WITHOUT[lost] for lost in needed])}"
    if "tool_call" in needed and CALLS.intersection(labels):
        told += ": an answer that is nothing but a call is then not learned"
    rejected = [label for label in labels if not kept[label] and not ("tool_call" in needed and label in CALLS)]
    return told + (f"; {listed(rejected)} cannot be built even so" if rejected else "")


def find_others_as_answers(subject: Subject) -> Iterator[LintFinding]:
    """Messages that are no answers, written where the prompt for an answer has its header."""
    header = _header(subject)
    if not header:
        return
    shown: dict[str, Example] = {}
    for row in SHAPES.values():
        conversation = subject.conversation(subject.ask(row))
        roles = {message.fields.get("content"): message.role for message in subject.ask(row).sample.messages}
        for word in _OTHER_TEXTS:
            example = _under(conversation, header, word) if word in roles else None
            if example is not None:
                shown.setdefault(_OTHERS[roles[word]], example)
    if shown:
        verb = "is" if len(shown) == 1 else "are"
        yield LintFinding(
            code="role_as_answer",
            message=f"{listed(list(shown))} {verb} written under the header of an answer: it is not learned, but the "
            "model is shown it as words of its own",
            examples=tuple(shown.values()),
            hint="use another template for rows that have them, or correct this one",
        )


def _header(subject: Subject) -> str:
    """What add_generation_prompt puts behind a question, up to a tag of reasoning; empty where that is nothing."""
    conversation = subject.conversation(subject.ask(PLAIN))
    asked = conversation.messages[:1]
    try:
        prompt, without = conversation.render(asked, {}, prompt=True), conversation.render(asked, {})
    except RenderError:
        return ""
    added = prompt[common_length(prompt, without) :]
    return ANY_TAG.split(added)[0].strip()


def _under(conversation: Conversation, header: str, word: str) -> Example | None:
    try:
        text = conversation.render(conversation.messages, {})
    except RenderError:
        return None
    place = text.find(word)
    before = text[: max(place, 0)].rstrip()
    if not before.endswith(header):
        return None
    return Example(label="rendered", text=text, mark=(len(before) - len(header), len(before)), note="no answer follows")
