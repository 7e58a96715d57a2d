"""When a conversation goes on: whether earlier answers stay as they were learned."""

from collections.abc import Iterator

from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.override import Override
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
from packer.render.parting import common_length
from packer.render.reasoning import EMPTY_BLOCK


def find_rewriting(subject: Subject) -> Iterator[LintFinding]:
    """The first answer of a plain chat, as it is learned and as the second turn shows it."""
    outcome = subject.ask(CHAT)
    if outcome.num_documents < 2:
        return
    own, later = outcome.turns[0], outcome.turns[-1]
    closing = subject.turn_end
    if closing is not None:
        stop = Override.stopping(subject.recipe_given, closing)
        if subject.tried(CHAT, _rewritten("exact"), stop).num_documents == 1:
            yield _no_stop(subject, own, later, closing, stop)
            return
    told = _told(subject, CHAT)
    yield LintFinding(
        code="chat_rewritten",
        message=f"{_change(subject, own, later)} when the conversation goes on; "
        + (
            told
            or "each answer is learned as it was given, in a document of its own, and long chats cost several "
            "times their tokens"
        ),
        examples=_examples(own, later),
        hint=_ways(subject, CHAT, told),
        level="note" if told else "warning",
    )


def _rewritten(value: str) -> Override:
    return Override("supervision.rewritten", value)


def _told(subject: Subject, row: Row) -> str | None:
    """What the recipe makes of rewritten history, where it says so."""
    supervision = subject.recipe_given.supervision
    if supervision.source == "generation_tags":
        return "what the marks of one rendering mark is learned (supervision.source=generation_tags)"
    if supervision.rewritten is None:
        return None
    given = f"(supervision.rewritten={supervision.rewritten})"
    if supervision.rewritten == "exact":
        return f"each answer is learned as it was given, in a document of its own {given}"
    if supervision.rewritten == "last":
        return f"only the last document of a conversation is learned, with the earlier answers it leaves alone {given}"
    if subject.tried(row).num_documents == 1:
        return f"earlier answers are learned as history shows them, in one document {given}"
    return f"more than an empty reasoning block changes, so each answer still has a document of its own {given}"


def _ways(subject: Subject, row: Row, told: str | None) -> str | None:
    """What there is to choose from; where the recipe has chosen, only a variable that makes the choice needless."""
    switch = subject.keeps_history(row)
    kept = f"{switch} keeps earlier turns as they are, right where inference is run with it too" if switch else None
    if told is not None:
        return kept
    as_rendered = _rewritten("as_rendered")
    cheap = subject.tried(row, as_rendered).num_documents == 1
    ways = [kept] if kept else []
    if cheap:
        ways.append(f"{as_rendered} learns this chat in one document, earlier answers as history shows them")
    ways.append(f"{_rewritten('exact')} learns every answer as it was given, a document for each")
    ways.append(f"{_rewritten('last')} learns only the last document of each conversation")
    return "; or ".join(ways) + ("" if cheap else "; as_rendered does not help here")


def _no_stop(subject: Subject, own: LearnedTurn, later: LearnedTurn, closing: str, override: Override) -> LintFinding:
    terminator = next(stop for stop in subject.model.stops if own.text.endswith(stop))
    at = own.text.rfind(closing)
    return LintFinding(
        code="turn_end_is_no_stop",
        message=f"'{closing}' ends every turn in history but is no stop token, so answers are learned to run on to "
        f"'{terminator}', and history is rewritten",
        examples=(
            Example(label="turn 1, learned", text=own.text, mark=(at, len(own.text)), note="learned"),
            _later(own, later),
        ),
        hint=f"{override} learns to stop there and nothing is rewritten; generation has to stop at it too "
        "(generation_config.json)",
    )


def _change(subject: Subject, own: LearnedTurn, later: LearnedTurn) -> str:
    """What happens to the first answer, as the beginning of a sentence."""
    if subject.recipe.supervision.no_terminator == "append" and later.text.startswith(own.text[: _answer_end(own)]):
        return "the stop token that is appended to an earlier answer goes"
    shown = _shown(own, later)
    if EMPTY_BLOCK.search(own.text) and shown == EMPTY_BLOCK.sub("", _from_question(own.text)):
        return "the empty reasoning block of an earlier answer goes"
    if later.text.startswith(own.text[: _answer_end(own)]):
        return "what stands after an earlier answer changes"
    if own.text[: own.text.find(QUESTION)] != later.text[: later.text.find(QUESTION)]:
        return "what stands before the first question changes"
    return "an earlier answer changes"


def _answer_end(turn: LearnedTurn) -> int:
    return turn.text.rfind(ANSWER) + len(ANSWER)


def _from_question(text: str) -> str:
    """From the first question on."""
    return text[max(text.find(QUESTION), 0) :]


def _shown(own: LearnedTurn, later: LearnedTurn) -> str:
    """The first answer as the later text shows it, as long as what was learned of it would be."""
    shown = _from_question(later.text)
    end = shown.find(NEXT_QUESTION)
    ending = own.text[own.text.rfind(ANSWER) :]
    place = shown.find(ending, 0, end)
    return shown[: place + len(ending)] if place >= 0 else shown[:end]


def _examples(own: LearnedTurn, later: LearnedTurn) -> tuple[Example, ...]:
    place = common_length(own.text, later.text)
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
    place = common_length(own.text, later.text)
    end = later.text.find(NEXT_QUESTION)
    text = later.text[: end + len(NEXT_QUESTION)] if end >= 0 else later.text
    return Example(label="turn 1, later", text=text, mark=(place, place), note="differs from here")


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
    told = _told(subject, REASONED_CHAT if "a field" in forgetting else INLINE_CHAT)
    yield LintFinding(
        code="reasoning_forgotten",
        message=f"the reasoning of earlier answers (in {forms}) is gone when the conversation goes on; "
        + (told or "every answer is learned with its own reasoning, in a document of its own"),
        examples=(
            Example(
                label="turn 1, learned",
                text=own.text,
                mark=(place, place + len(REASONING)),
                note="only while it is the last",
            ),
            _later(own, later),
        ),
        hint=_ways(subject, REASONED_CHAT if "a field" in forgetting else INLINE_CHAT, told),
        level="note" if told else "warning",
    )
