"""When a conversation goes on: whether earlier answers stay as they were learned."""

import json
import re
from collections.abc import Iterator

from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.probes import (
    ANSWER,
    CHAT,
    INLINE_CHAT,
    NEXT_QUESTION,
    QUESTION,
    REASONED_CHAT,
    REASONING,
    Row,
)
from packer.audit.lint.subject import LearnedTurn, Outcome, Subject

_EMPTY_REASONING = re.compile(r"<(think(?:ing)?)>\s*</\1>\s*")


def find_rewriting(subject: Subject) -> Iterator[LintFinding]:
    """The first answer of a plain chat, as it is learned and as the second turn shows it."""
    outcome = subject.ask(CHAT)
    if outcome.num_documents < 2:
        return
    own, later = outcome.turns[0], outcome.turns[-1]
    closing = subject.turn_end
    if closing is not None and subject.num_documents(CHAT, "exact", stop=closing) == 1:
        yield _no_stop(subject, own, later, closing)
        return
    what = _change(subject, own, later)
    cheap = subject.num_documents(CHAT, "as_rendered") == 1
    yield LintFinding(
        code="chat_rewritten",
        message=f"{what} when the conversation goes on: each stretch is a document of its own, and long plain chats "
        "cost several times their tokens",
        examples=_examples(own, later),
        hint=_switch(subject, CHAT)
        + "--set supervision.rewritten=as_rendered learns this chat in one document; =exact pays the price; =last "
        "learns only each conversation's last stretch"
        if cheap
        else _switch(subject, CHAT)
        + "--set supervision.rewritten=exact pays the price, =last learns only each conversation's last stretch; "
        "as_rendered does not help here",
        allowed=subject.recipe_given.supervision.rewritten is not None,
    )


def _no_stop(subject: Subject, own: LearnedTurn, later: LearnedTurn, closing: str) -> LintFinding:
    terminator = next(stop for stop in subject.model.stops if own.text.endswith(stop))
    at = own.text.rfind(closing)
    stop = (*subject.recipe.supervision.stop, closing)
    return LintFinding(
        code="turn_end_is_no_stop",
        message=f"'{closing}' ends every turn in history but is no stop token, so answers are learned to run on to "
        f"'{terminator}', and history is rewritten",
        examples=(
            Example(label="turn 1, learned", text=own.text, mark=(at, len(own.text)), note="learned"),
            _later(own, later),
        ),
        hint=f"--set 'supervision.stop={json.dumps(stop, ensure_ascii=False)}' learns to stop there and nothing is "
        "rewritten; generation has to stop at it too (generation_config.json)",
    )


def _change(subject: Subject, own: LearnedTurn, later: LearnedTurn) -> str:
    """What happens to the first answer, as the beginning of a sentence."""
    if subject.recipe.supervision.no_terminator == "append" and later.text.startswith(own.text[: _answer_end(own)]):
        return "the stop token that is appended to an earlier answer goes"
    shown = _shown(own, later)
    if _EMPTY_REASONING.search(own.text) and shown == _EMPTY_REASONING.sub("", _stretch(own.text)):
        return "the empty reasoning block of an earlier answer goes"
    if later.text.startswith(own.text[: _answer_end(own)]):
        return "what stands after an earlier answer changes"
    if own.text[: own.text.find(QUESTION)] != later.text[: later.text.find(QUESTION)]:
        return "what stands before the first question changes"
    return "an earlier answer changes"


def _answer_end(turn: LearnedTurn) -> int:
    return turn.text.rfind(ANSWER) + len(ANSWER)


def _stretch(text: str) -> str:
    """From the first question on."""
    return text[max(text.find(QUESTION), 0) :]


def _shown(own: LearnedTurn, later: LearnedTurn) -> str:
    """The first answer as the later text shows it, as long as what was learned of it would be."""
    shown = _stretch(later.text)
    end = shown.find(NEXT_QUESTION)
    ending = own.text[own.text.rfind(ANSWER) :]
    place = shown.find(ending, 0, end)
    return shown[: place + len(ending)] if place >= 0 else shown[:end]


def _difference(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _examples(own: LearnedTurn, later: LearnedTurn) -> tuple[Example, ...]:
    place = _difference(own.text, later.text)
    return (
        Example(label="turn 1, learned", text=own.text, mark=(place, _resumes(own.text, later.text, place))),
        _later(own, later),
    )


def _resumes(text: str, other: str, place: int) -> int:
    """Where `text` goes on as `other` does at `place`; the end where it does not."""
    rest = other[place : place + 8]
    found = text.find(rest, place) if rest else -1
    return found if found > place else len(text)


def _later(own: LearnedTurn, later: LearnedTurn) -> Example:
    place = _difference(own.text, later.text)
    end = later.text.find(NEXT_QUESTION)
    text = later.text[: end + len(NEXT_QUESTION)] if end >= 0 else later.text
    return Example(label="turn 1, later", text=text, mark=(place, place), note="differs from here")


def _switch(subject: Subject, row: Row) -> str:
    """The beginning of a hint, where the template has a variable that keeps history."""
    switch = subject.keeps_history(row)
    if switch is None:
        return ""
    return (
        f"--set 'template.kwargs={json.dumps(switch)}' keeps earlier turns as they are, right where inference is run "
        "with it too. Else: "
    )


def find_forgotten_reasoning(subject: Subject) -> Iterator[LintFinding]:
    """Reasoning of a first answer that is learned, and gone in the text of the second."""
    forgetting: dict[str, Outcome] = {}
    for label, row in (("a field", REASONED_CHAT), ("<think> tags", INLINE_CHAT)):
        outcome = subject.ask(row)
        if len(outcome.turns) == 2:
            own, later = outcome.turns
            if REASONING in own.text and REASONING not in later.text:
                forgetting[label] = outcome
    if not forgetting:
        return
    own, later = next(iter(forgetting.values())).turns
    place = own.text.find(REASONING)
    forms = " and in ".join(forgetting)
    yield LintFinding(
        code="reasoning_forgotten",
        message=f"the reasoning of earlier answers (in {forms}) is gone when the conversation goes on: every turn is "
        "learned with its own reasoning, in a document of its own",
        examples=(
            Example(
                label="turn 1, learned",
                text=own.text,
                mark=(place, place + len(REASONING)),
                note="only while it is the last",
            ),
            _later(own, later),
        ),
        hint=_switch(subject, REASONED_CHAT)
        + "--set supervision.rewritten=exact takes the price, =last learns only each conversation's last stretch; "
        "rows of one turn cost nothing",
        allowed=subject.recipe_given.supervision.rewritten is not None,
    )
