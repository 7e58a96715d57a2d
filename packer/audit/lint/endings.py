"""How a turn ends: its stop token, and what comes after."""

from collections.abc import Iterator, Mapping

from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.probes import ANSWER, CHAT, PLAIN
from packer.audit.lint.subject import LearnedTurn, Outcome, Subject


def find_terminators(subject: Subject, shapes: Mapping[str, Outcome]) -> Iterator[LintFinding]:
    """The stop tokens turns end with, by the first shape that does, and those no rendering holds."""
    endings: dict[str, tuple[str, LearnedTurn]] = {}
    written = ""
    for shape, outcome in shapes.items():
        for turn in outcome.turns:
            calls = outcome.sample.messages[turn.message].fields.get("tool_calls")
            label = "a tool call" if calls else shape
            if calls and turn.message + 1 < len(outcome.sample.messages):
                label = "a tool call before its result"
            endings.setdefault(_stop_of(subject, turn), (label, turn))
            written += f"{turn.text}\0"
    stop, *others = endings
    told = f"a turn ends with {_named(subject, stop)}{_how(subject, stop)}"
    told += "".join(f"; {endings[other][0]} with {_named(subject, other)}" for other in others)
    never = [stop for stop in subject.model.stops if stop not in written]
    yield LintFinding(
        code="terminator",
        message=told + (f"; stop tokens never written: {', '.join(never)}" if never else ""),
        examples=tuple(
            Example(label=label, text=turn.text, mark=(len(turn.text) - len(stop), len(turn.text)), note="learned")
            for stop, (label, turn) in endings.items()
        ),
    )


def _stop_of(subject: Subject, turn: LearnedTurn) -> str:
    return max((stop for stop in subject.model.stops if turn.text.endswith(stop)), key=len, default="")


def _named(subject: Subject, stop: str) -> str:
    return f"'{stop}' (id {subject.model.control[stop]})" if stop in subject.model.control else f"'{stop}'"


def _how(subject: Subject, stop: str) -> str:
    """Where the terminator is not the template's own of the turn, what it is; else what white space follows it."""
    text, end = _ending(subject, stop)
    if end is not None:
        blank = text[end:] and not text[end:].strip()
        return "; the white space the template writes after it is not learned" if blank else ""
    if subject.recipe.supervision.no_terminator == "append" and not _begins_header(subject, stop):
        return ", appended: the template writes no stop token of this tokenizer after a turn"
    return ", the header of the next message: the template writes no stop token of its own after a turn"


def _begins_header(subject: Subject, stop: str) -> bool:
    chat = subject.ask(CHAT).turns[-1].text
    return chat.startswith(stop, chat.find(ANSWER) + len(ANSWER))


def _ending(subject: Subject, stop: str) -> tuple[str, int | None]:
    """The rendering of a plain answer, and where in it the terminator ends; None where it holds none."""
    text = subject.whole(subject.ask(PLAIN), subject.plain)
    at = text.find(stop, max(text.rfind(ANSWER), 0))
    return text, at + len(stop) if at >= 0 else None


def find_after(subject: Subject) -> Iterator[LintFinding]:
    """Text, and not only white space, between the terminator and the end of the rendering."""
    text, end = _ending(subject, _stop_of(subject, subject.plain))
    if end is None or not text[end:].strip():
        return
    yield LintFinding(
        code="after_terminator",
        message="the template writes text after the stop token; it is never learned, since generation is over",
        examples=(Example(label="turn", text=text, mark=(end, len(text)), note="not learned"),),
    )
