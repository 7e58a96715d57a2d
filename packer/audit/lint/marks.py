"""The template's own `{% generation %}` marks, compared with what is learned.

Trainers that take their mask from the marks (`assistant_only_loss`, `return_assistant_tokens_mask`) render a
conversation once and learn what stands between the marks. packer learns what inference would be asked for.
"""

from collections.abc import Iterator, Sequence

from packer.audit.lint.lint_report import Example, LintFinding
from packer.audit.lint.override import Override
from packer.audit.lint.probes import ANSWER, CHAT, NEXT_QUESTION, PLAIN, QUESTION, Row
from packer.audit.lint.subject import LearnedTurn, Subject
from packer.render import RenderError

Range = tuple[int, int]

_BY_MARKS = Override("supervision.source", "generation_tags")

_GIVEN, _UNMARKED = "marked, but not to be generated", "to be generated, but not marked"


def find_marks(subject: Subject) -> Iterator[LintFinding]:
    """Where marks and the rule differ."""
    if not subject.template.has_marks:
        return
    is_rule = subject.recipe_given.supervision.source == "generation_tags"
    try:
        found = [*_of_answer(subject.plain, *_marked(subject, PLAIN)), *_of_chat(*_marked(subject, CHAT))]
    except RenderError as error:
        yield LintFinding(code="marks_differ", message=f"the generation marks cannot be read: {error}")
        return
    if not found:
        return
    can_help = not is_rule and subject.kept_by_marks(PLAIN)
    texts = [each.text[slice(*each.mark)] for each in found if each.mark is not None]
    yield LintFinding(
        code="marks_differ",
        message="the generation marks mark other text than inference asks for; "
        + ("the recipe goes by the marks" if is_rule else "packer does not go by them, trainers that do learn this"),
        examples=tuple(found),
        hint=f"{_BY_MARKS} learns by the marks instead" if can_help else None,
        level="warning" if any(text.strip() for text in texts) else "note",
    )


def _of_answer(turn: LearnedTurn, text: str, ranges: Sequence[Range]) -> Iterator[Example]:
    """Marks of a plain answer against what is learned of it."""
    if not text.startswith(turn.text):
        return  # the terminator is appended, or the prompt was made of two renderings: there is no place to compare
    start, end = turn.prompt_end, len(turn.text)
    asked = text.find(QUESTION) + len(QUESTION)
    touching = [(a, b) for a, b in ranges if b > asked and a < end and b > start] or [(end, end)]
    first, last = touching[0][0], touching[-1][1]
    for mark, note in (
        ((first, start), _GIVEN),
        ((start, first), _UNMARKED),
        ((last, end), _UNMARKED),
        ((end, last), _GIVEN),
    ):
        if mark[0] < mark[1]:
            yield Example(label="turn", text=text, mark=mark, note=note)


def _of_chat(text: str, ranges: Sequence[Range]) -> Iterator[Example]:
    """Marks of a chat of two turns: an earlier answer without, a question with."""
    places = [(text.find(word), word) for word in (ANSWER, QUESTION, NEXT_QUESTION)]
    around = [next((place for place in ranges if place[0] <= at < place[1]), None) for at, _ in places]
    if ranges and around[0] is None and places[0][0] >= 0:
        yield Example(label="chat", text=text, mark=(places[0][0], places[0][0] + len(ANSWER)), note=_UNMARKED)
    marked = next((each for each in around[1:] if each is not None), None)
    if marked is not None:
        yield Example(label="chat", text=text, mark=marked, note=_GIVEN)


def _marked(subject: Subject, row: Row) -> tuple[str, list[Range]]:
    conversation = subject.conversation(subject.ask(row))
    text, ranges = subject.template.render_marked(
        conversation.messages, tools=conversation.tools, kwargs=conversation.kwargs
    )
    return text, [(a, b) for a, b in ranges if a < b]
