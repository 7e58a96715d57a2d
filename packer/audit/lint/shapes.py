"""Shapes of conversations: which are lost in part, refused, or given to the template in another form."""

import re
from collections.abc import Iterator, Mapping, Sequence

from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.probes import (
    ANSWER,
    CALL,
    CHAT,
    FIELD,
    HOLDS,
    KINDS,
    PLAIN,
    QUESTION,
    RESULT_LABEL,
    SHAPES,
    TAGS,
    USUAL,
    Row,
    assistant,
    user,
)
from packer.audit.lint.subject import Outcome, Subject
from packer.audit.lint.usable import parting, ways_out
from packer.build.plan import load_recipe_model
from packer.rejections import CODES
from packer.render import RenderError

_PADDED = "\n  first answer  \n"


def ask_shapes(subject: Subject) -> dict[str, Outcome]:
    """What becomes of every shape, plain ones first."""
    return {label: subject.ask(row) for label, row in {"a plain answer": PLAIN, "a plain chat": CHAT, **SHAPES}.items()}


def find_losses(subject: Subject, shapes: Mapping[str, Outcome]) -> Iterator[LintFinding]:
    """What is not rendered, a finding for each code of rejection."""
    for code, labels in _by_code(shapes).items():
        if not code.startswith("dropped_") or not USUAL.intersection(labels):
            continue
        kind = code.removeprefix("dropped_")
        allowed = kind in subject.allowed
        yield LintFinding(
            code=code,
            message=_lost(code, labels)
            + (
                "; the recipe allows it: rows are learned without" if allowed else f"; such rows are rejected as {code}"
            ),
            examples=tuple(_lost_example(subject, kind, shapes[labels[0]])),
            hint=None if allowed else _loss_hint(kind, labels, shapes),
            allowed=allowed,
        )


def _lost(code: str, labels: Sequence[str]) -> str:
    kinds = {KINDS.get(label) for label in labels}
    if kinds == {code.removeprefix("dropped_")}:
        return f"the template does not render {_listed(labels)}"
    return f"with {_listed(labels)}, {CODES[code]}"


def _by_code(shapes: Mapping[str, Outcome]) -> dict[str, list[str]]:
    """Code of rejection → shapes; a shape that holds another one is named only where it adds a code."""
    found: dict[str, list[str]] = {}
    for label, outcome in shapes.items():
        if outcome.rejection is not None:
            held = {rejected.code for each in HOLDS.get(label, ()) if (rejected := shapes[each].rejection) is not None}
            known = bool(held) if label == RESULT_LABEL else outcome.rejection.code in held
            if not known:
                found.setdefault(outcome.rejection.code, []).append(label)
    return found


def _listed(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def _lost_example(subject: Subject, kind: str, outcome: Outcome) -> Iterator[Example]:
    conversation = subject.conversation(outcome)
    try:
        text = conversation.render(conversation.messages, {})
    except RenderError:
        return
    place = text.find(QUESTION if kind in ("system", "user", "tools") else ANSWER)
    place = place if place >= 0 else len(text)
    yield Example(label="rendered", text=text, mark=(place, place), note="nothing of it")


def _loss_hint(kind: str, labels: Sequence[str], shapes: Mapping[str, Outcome]) -> str:
    allow = f"--set 'supervision.allow_dropped=[{kind}]' learns such rows without it"
    if kind != "reasoning":
        return allow
    if FIELD in labels and shapes[TAGS].rejection is None:
        return f"--set supervision.reasoning=inline gives it to the template in <think> tags; {allow}"
    if TAGS in labels and shapes[FIELD].rejection is None:
        return f"--set supervision.reasoning=field gives it to the template in a field; {allow}"
    return allow


def find_refused(subject: Subject, shapes: Mapping[str, Outcome]) -> Iterator[LintFinding]:
    """Shapes that fail for another reason than a loss, and shapes the template raises on in its own words."""
    unusual: list[str] = []
    for code, labels in _by_code(shapes).items():
        if code != "template_error" and not USUAL.intersection(labels):
            unusual += labels
            continue
        if code.startswith("dropped_"):
            continue
        examples = _reasons(labels, shapes)
        if code == "template_error":
            yield LintFinding(
                code="shapes_refused",
                message=f"the template refuses {_shapes(labels)} of conversation in its own words; such rows are "
                "rejected as template_error",
                examples=examples,
            )
        else:
            yield LintFinding(
                code="shape_rejected",
                message=f"{_shapes(labels)} of conversation cannot be built: such rows are rejected as {code}",
                examples=(*examples, *_rendering(subject, labels, shapes)),
                hint=_helps(subject, labels, shapes),
            )
    if unusual:
        yield LintFinding(
            code="unusual_rejected",
            message=f"{_shapes(unusual)} of conversation that few files hold cannot be built: such rows are rejected",
            examples=_reasons(unusual, shapes, with_code=True),
        )


def _reasons(labels: Sequence[str], shapes: Mapping[str, Outcome], *, with_code: bool = False) -> tuple[Example, ...]:
    """Why shapes are rejected, those with one reason together."""
    said: dict[str, list[str]] = {}
    for label in labels:
        rejection = shapes[label].rejection
        assert rejection is not None
        reason = re.sub(r"^messages\[[0-9]+\]: ", "", rejection.reason)
        if with_code:
            reason = rejection.code if rejection.code.startswith("dropped_") else f"{rejection.code}: {reason}"
        said.setdefault(reason, []).append(label)
    return tuple(Example(label=_listed(group), text=reason) for reason, group in said.items())


def _shapes(labels: Sequence[str]) -> str:
    return "a shape" if len(labels) == 1 else f"{len(labels)} shapes"


def _rendering(subject: Subject, labels: Sequence[str], shapes: Mapping[str, Outcome]) -> tuple[Example, ...]:
    """What is wrong with the first of the shapes that many files hold."""
    outcome = shapes[next(label for label in labels if label in USUAL)]
    conversation = subject.conversation(outcome)
    if outcome.rejection is not None and outcome.rejection.code == "prompt_diverges":
        return parting(conversation)
    text = conversation.render(conversation.messages, {})
    return (Example(label="rendered", text=text, mark=(len(text), len(text))),)


def _helps(subject: Subject, labels: Sequence[str], shapes: Mapping[str, Outcome]) -> str | None:
    """A key under which at least one of the shapes, and still a plain chat, can be built."""
    rejection = shapes[labels[0]].rejection
    assert rejection is not None
    for key, value, recipe in ways_out(subject, rejection):
        other = Subject(recipe, load_recipe_model(recipe))
        if other.ask(CHAT).rejection is None:
            helped = [label for label in labels if other.ask(SHAPES[label]).rejection is None]
            if helped:
                return f"--set '{key}={value}' builds {_listed(helped)}"
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
                message="the template raises on the arguments of a tool call as an object, so packer gives it their "
                "JSON text",
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
    before, after = shown[: max(core, 0)], shown[max(core, 0) + len(ANSWER) :]
    place = _PADDED.find(ANSWER)
    kept_before, kept_after = before == _PADDED[:place], after == _PADDED[place + len(ANSWER) :]
    sides = "before and after" if not kept_before and not kept_after else "after" if kept_before else "before"
    is_cut = before in ("", _PADDED[:place]) and after in ("", _PADDED[place + len(ANSWER) :])
    yield LintFinding(
        code="answer_changed",
        message=f"white space {sides} an answer {'is cut off' if is_cut else 'changes'}: what is learned is not what "
        "the row says",
        examples=(
            Example(label="in the row", text=_PADDED, mark=(0, len(_PADDED))),
            Example(label="learned", text=turn.text, mark=(turn.prompt_end, len(turn.text))),
        ),
    )
