"""Shapes of conversations: which are lost in part, refused, or given to the template in another form."""

import re
from collections.abc import Iterator, Mapping, Sequence

from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.probes import (
    ANSWER,
    CALL,
    CHAT,
    HOLDS,
    PLAIN,
    QUESTION,
    RESULT_LABEL,
    SHAPES,
    USUAL,
    Row,
    assistant,
    listed,
    user,
)
from packer.audit.lint.subject import LearnedTurn, Outcome, Subject
from packer.audit.lint.usable import parting, ways_out, with_override
from packer.render.readback import ESCAPE_OR_QUOTE

_PADDED = "\n  first answer  \n"


def ask_shapes(subject: Subject) -> dict[str, Outcome]:
    """What becomes of every shape, plain ones first."""
    return {label: subject.ask(row) for label, row in {"a plain answer": PLAIN, "a plain chat": CHAT, **SHAPES}.items()}


def _by_code(shapes: Mapping[str, Outcome]) -> dict[str, list[str]]:
    """Code of rejection → shapes that nothing is lost of; one that holds another is named only where it adds a code."""
    found: dict[str, list[str]] = {}
    for label, outcome in shapes.items():
        if outcome.rejection is not None and not outcome.rejection.code.startswith("dropped_"):
            held = {rejected.code for each in HOLDS.get(label, ()) if (rejected := shapes[each].rejection) is not None}
            known = bool(held) if label == RESULT_LABEL else outcome.rejection.code in held
            if not known:
                found.setdefault(outcome.rejection.code, []).append(label)
    return found


def find_refused(
    subject: Subject, shapes: Mapping[str, Outcome], lost: Mapping[str, list[str]]
) -> Iterator[LintFinding]:
    """Shapes that cannot be built for another reason than a loss, and rare ones that lose something."""
    rare: dict[str, str] = {}
    for kind, labels in lost.items():
        if not USUAL.intersection(labels):
            rare |= dict.fromkeys(labels, f"dropped_{kind}")
    for code, labels in _by_code(shapes).items():
        if code == "template_error":
            yield from _raising(labels, shapes)
        elif not USUAL.intersection(labels):
            rare |= {label: f"{code}: {_reason(shapes[label])}" for label in labels}
        else:
            yield LintFinding(
                code="shape_rejected",
                message=f"{_shapes(labels)} of conversation cannot be built: such rows are rejected as {code}",
                examples=(
                    *_grouped({label: _reason(shapes[label]) for label in labels}),
                    *_rendering(subject, labels, shapes),
                ),
                hint=_helps(subject, labels, shapes),
            )
    if rare:
        yield LintFinding(
            code="unusual_rejected",
            message=f"{_shapes(list(rare))} of conversation that few files hold cannot be built: such rows are "
            "rejected",
            examples=_grouped({label: rare[label] for label in shapes if label in rare}),
        )


_BROKEN = re.compile(r"[A-Za-z]*(?:Error|Exception)\b|.*(?:is undefined|has no attribute|has no element)", re.DOTALL)
"""Words of Python and of Jinja, not of a template: it did not expect what it was given."""


def _raising(labels: Sequence[str], shapes: Mapping[str, Outcome]) -> Iterator[LintFinding]:
    """Shapes the template raises on: where it means to, and where it breaks."""
    reasons = {label: _reason(shapes[label]) for label in labels}
    broken = {label: reason for label, reason in reasons.items() if _BROKEN.match(reason)}
    refused = {label: reason for label, reason in reasons.items() if label not in broken}
    if refused:
        yield LintFinding(
            code="shapes_refused",
            message=f"the template refuses {_shapes(list(refused))} of conversation in words of its own; such rows are "
            "rejected as template_error",
            examples=_grouped(refused),
        )
    if broken:
        yield LintFinding(
            code="shapes_fail",
            message=f"the template breaks on {_shapes(list(broken))} of conversation, as a program does on what it "
            "did not expect; such rows are rejected as template_error",
            examples=_grouped(broken),
            level="warning" if USUAL.intersection(broken) else "note",
        )


def _reason(outcome: Outcome) -> str:
    assert outcome.rejection is not None
    return re.sub(r"^messages\[[0-9]+\]: ", "", outcome.rejection.reason)


def _grouped(reasons: Mapping[str, str]) -> tuple[Example, ...]:
    """Why shapes are rejected, those with one reason together."""
    said: dict[str, list[str]] = {}
    for label, reason in reasons.items():
        said.setdefault(reason, []).append(label)
    return tuple(Example(label=listed(group), text=reason) for reason, group in said.items())


def _shapes(labels: Sequence[str]) -> str:
    return "a shape" if len(labels) == 1 else f"{len(labels)} shapes"


def _rendering(subject: Subject, labels: Sequence[str], shapes: Mapping[str, Outcome]) -> tuple[Example, ...]:
    """What is wrong with the first of the shapes that many files hold."""
    outcome = shapes[next(label for label in labels if label in USUAL)]
    conversation = subject.conversation(outcome)
    if outcome.rejection is not None and outcome.rejection.code == "prompt_diverges":
        return parting(conversation)
    text = conversation.render(conversation.messages, {})
    escape = ESCAPE_OR_QUOTE.search(text) if _is_mangled(outcome) else None
    return (Example(label="rendered", text=text, mark=escape.span() if escape else (len(text), len(text))),)


def _is_mangled(outcome: Outcome) -> bool:
    return outcome.rejection is not None and outcome.rejection.code.startswith("mangled_")


def _helps(subject: Subject, labels: Sequence[str], shapes: Mapping[str, Outcome]) -> str | None:
    """A key under which at least one of the shapes, and still a plain chat, can be built."""
    rejection = shapes[labels[0]].rejection
    assert rejection is not None
    for override in ways_out(subject, rejection):
        other = with_override(subject, override)
        if other.ask(CHAT).rejection is None:
            helped = [label for label in labels if other.ask(SHAPES[label]).rejection is None]
            if helped:
                return f"{override} builds {listed(helped)}"
    return None


def find_adapted(subject: Subject, shapes: Mapping[str, Outcome]) -> Iterator[LintFinding]:
    """Forms packer changes because the template raises on them, or prints them wrongly."""
    call = shapes["a tool call"]
    if call.turns:
        given = subject.conversation(call).messages[-1]
        arguments = given["tool_calls"][0]["function"]["arguments"]
        if isinstance(arguments, str):
            yield LintFinding(
                code="arguments_as_text",
                message="the template raises on the arguments of a tool call as an object, or garbles them, so packer "
                "gives it their JSON text",
                examples=(Example(label="given", text=arguments),),
            )
        if CALL["messages"][-1]["content"] is None and given["content"] == "":
            yield LintFinding(
                code="null_as_empty",
                message="beside a tool call a content of null makes the template raise, or print None; packer gives it "
                "an empty text",
            )


def find_changed_answers(subject: Subject) -> Iterator[LintFinding]:
    """White space around an answer that is not rendered as the row has it."""
    row: Row = {"messages": [user(QUESTION), assistant(_PADDED)]}
    outcome = subject.ask(row)
    if not outcome.turns:
        return
    turn, plain = outcome.turns[-1], subject.plain
    at = plain.completion.find(ANSWER)
    if at < 0:
        return
    opening, closing = plain.completion[:at], plain.completion[at + len(ANSWER) :]
    shown = turn.completion.removeprefix(opening).removesuffix(closing)
    if shown == _PADDED:
        return
    core = shown.find(ANSWER)
    space = len(_PADDED) - len(_PADDED.lstrip())
    sides = {
        "before": ((0, space), _PADDED[:space], shown[: max(core, 0)]),
        "after": (
            (space + len(ANSWER), len(_PADDED)),
            _PADDED[space + len(ANSWER) :],
            shown[max(core, 0) + len(ANSWER) :],
        ),
    }
    changed = {side: told for side, told in sides.items() if told[1] != told[2]}
    if core < 0 or not changed:
        return
    fates = {side: _fate(given, left) for side, (_, given, left) in changed.items()}
    told = (
        f"{next(iter(fates.values()))} {' and '.join(fates)} an answer"
        if len(set(fates.values())) == 1
        else " and ".join(f"{fate} {side} an answer" for side, fate in fates.items())
    )
    yield LintFinding(
        code="answer_changed",
        message=f"{told}: what is learned is not what the row says",
        examples=(
            *(
                Example(label="in the row", text=_PADDED, mark=place, note=fates[side])
                for side, (place, _, _) in changed.items()
            ),
            Example(label="learned", text=turn.text, mark=_around(turn, core, opening)),
        ),
    )


def _fate(given: str, left: str) -> str:
    """What became of white space beside an answer."""
    if not left:
        return "white space is removed"
    if left == given.replace("\n", ""):
        return "newlines are removed"
    return "white space is changed" if not left.strip() else "text is put"


def _around(turn: LearnedTurn, core: int, opening: str) -> tuple[int, int]:
    """Where the answer stands in the text it is learned in."""
    start = turn.prompt_end + (len(opening) if turn.completion.startswith(opening) else 0) + core
    return start, start + len(ANSWER)
