"""The template's own `{% generation %}` marks, compared with what is learned.

Trainers that take their mask from the marks (`assistant_only_loss`, `return_assistant_tokens_mask`) render a
conversation once and learn what stands between the marks. packer learns what inference would be asked for.
"""

from collections.abc import Iterator, Sequence

from packer.audit.lint.lint_report import Example, LintFinding
from packer.audit.lint.override import Override
from packer.audit.lint.probes import ANSWER, CHAT, NEXT_QUESTION, PLAIN, QUESTION
from packer.audit.lint.subject import LearnedTurn, Subject
from packer.render import ChatTemplate, RenderError
from packer.render.conversation import Conversation

Range = tuple[int, int]

_BY_MARKS = Override("supervision.source", "generation_tags")

_HEADER, _LATE = "marked, but part of the prompt", "not marked, but to be generated"
_UNSTOPPED, _PAST_END = "the stop token is not marked", "marked, after the end"
_MISSING, _QUESTION = "an answer that is not marked", "a question that is marked"


def find_marks(subject: Subject) -> Iterator[LintFinding]:
    """Where marks and the rule differ."""
    template = subject.template
    if not template.has_marks:
        return
    is_rule = subject.recipe_given.supervision.source == "generation_tags"
    try:
        answer = _marked(template, subject.conversation(subject.ask(PLAIN)))
        chat = _marked(template, subject.conversation(subject.ask(CHAT)))
    except RenderError as error:
        yield LintFinding(code="marks_differ", message=f"the generation marks cannot be read: {error}")
        return
    found = [*_of_answer(subject.plain, *answer), *_of_chat(*chat, any_marks=bool(answer[1]))]
    if not found:
        return
    notes = {example.note for example in found}
    is_bad = notes & {_HEADER, _UNSTOPPED, _QUESTION} or (is_rule and notes != {_PAST_END})
    can_help = not is_rule and notes & {_HEADER, _LATE} and subject.kept_by_marks(PLAIN)
    yield LintFinding(
        code="marks_differ",
        message="the generation marks mark other text than inference asks for; "
        + ("the recipe goes by the marks" if is_rule else "packer does not go by them, trainers that do learn this"),
        examples=tuple(found),
        hint=f"{_BY_MARKS} learns by the marks instead" if can_help else None,
        level="warning" if is_bad else "note",
    )


def _of_answer(turn: LearnedTurn, text: str, ranges: Sequence[Range]) -> Iterator[Example]:
    """Marks of a plain answer against what is learned of it."""
    if not text.startswith(turn.text):
        return  # the terminator is appended, or the prompt was made of two renderings: there is no place to compare
    start, end = turn.prompt_end, len(turn.text)
    asked = text.find(QUESTION) + len(QUESTION)
    touching = [(a, b) for a, b in ranges if b > asked and a < end and b > start]
    if not touching:
        yield Example(label="turn", text=text, mark=(start, end), note=_MISSING)
        return
    first, last = touching[0][0], touching[-1][1]
    for is_so, mark, note in (
        (first < start, (first, start), _HEADER),
        (first > start, (start, first), _LATE),
        (last < end, (last, end), _UNSTOPPED),
        (last > end, (end, last), _PAST_END),
    ):
        if is_so:
            yield Example(label="turn", text=text, mark=mark, note=note)


def _of_chat(text: str, ranges: Sequence[Range], *, any_marks: bool) -> Iterator[Example]:
    """Marks of a chat of two turns: an earlier answer without, a question with."""
    first = text.find(ANSWER)
    if first >= 0 and any_marks and not any(a <= first < b for a, b in ranges):
        yield Example(label="chat", text=text, mark=(first, first + len(ANSWER)), note=_MISSING)
    asked = [text.find(word) for word in (QUESTION, NEXT_QUESTION)]
    around = next((place for at in asked for place in ranges if place[0] <= at < place[1]), None)
    if around is not None:
        yield Example(label="chat", text=text, mark=around, note=_QUESTION)


def _marked(template: ChatTemplate, conversation: Conversation) -> tuple[str, list[Range]]:
    text, ranges = template.render_marked(conversation.messages, tools=conversation.tools, kwargs=conversation.kwargs)
    return text, [(a, b) for a, b in ranges if a < b]
