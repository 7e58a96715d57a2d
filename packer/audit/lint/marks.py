"""The template's own `{% generation %}` marks, compared with what is learned.

Trainers that take their mask from the marks (`assistant_only_loss`, `return_assistant_tokens_mask`) render a
conversation once and learn what stands between the marks. packer learns what inference would be asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.probes import ANSWER, CHAT, NEXT_QUESTION, PLAIN, QUESTION
from packer.audit.lint.subject import LearnedTurn, Subject
from packer.render import ChatTemplate, RenderError
from packer.render.chat import Conversation

Range = tuple[int, int]

_HINT = "--set supervision.source=generation_tags learns by the marks instead"


def find_marks(subject: Subject) -> Iterator[LintFinding]:
    """Where marks and the rule differ, or that they agree."""
    template = subject.template
    if not template.has_marks:
        return
    try:
        answer = _marked(template, subject.conversation(subject.ask(PLAIN)))
        chat = _marked(template, subject.conversation(subject.ask(CHAT)))
    except RenderError as error:
        yield LintFinding(code="marks_missing", message=f"the generation marks cannot be read: {error}")
        return
    found = [*_of_answer(subject.plain, *answer), *_of_chat(*chat, any_marks=bool(answer[1]))]
    if not found and answer[0].startswith(subject.plain.text):
        yield LintFinding(
            code="marks_agree",
            message="the template has generation marks, and on plain chats they mark exactly what is learned",
        )
    is_rule = subject.recipe_given.supervision.source == "generation_tags"
    yield from (replace(each, hint=None) if is_rule else each for each in found)


def _of_answer(turn: LearnedTurn, text: str, ranges: Sequence[Range]) -> Iterator[LintFinding]:
    """Marks of a plain answer against what is learned of it."""
    if not text.startswith(turn.text):
        return  # the terminator is appended, or the prompt was made of two renderings: there is no place to compare
    start, end = turn.prompt_end, len(turn.text)
    asked = text.find(QUESTION) + len(QUESTION)
    touching = [(a, b) for a, b in ranges if b > asked and a < end and b > start]
    if touching:
        yield from _borders(text, (start, end), (touching[0][0], touching[-1][1]))
    else:
        yield _missing(text, (start, end), "an answer")


def _of_chat(text: str, ranges: Sequence[Range], *, any_marks: bool) -> Iterator[LintFinding]:
    """Marks of a chat of two turns: an earlier answer without, a question with."""
    first = text.find(ANSWER)
    if first >= 0 and any_marks and not any(a <= first < b for a, b in ranges):
        yield _missing(text, (first, first + len(ANSWER)), "an earlier answer of a chat")
    asked = [text.find(word) for word in (QUESTION, NEXT_QUESTION)]
    around = next((place for at in asked for place in ranges if place[0] <= at < place[1]), None)
    if around is not None:
        yield LintFinding(
            code="marks_elsewhere",
            message="generation marks stand around a question: trainers that go by them learn what users say",
            examples=(Example(label="chat", text=text, mark=around, note="marked"),),
        )


def _marked(template: ChatTemplate, conversation: Conversation) -> tuple[str, list[Range]]:
    text, ranges = template.render_marked(conversation.messages, tools=conversation.tools, kwargs=conversation.kwargs)
    return text, [(a, b) for a, b in ranges if a < b]


def _missing(text: str, place: Range, what: str) -> LintFinding:
    return LintFinding(
        code="marks_missing",
        message=f"{what} has no generation marks: trainers that go by them learn nothing of it",
        examples=(Example(label="turn", text=text, mark=place, note="not marked"),),
    )


def _borders(text: str, learned: Range, marked: Range) -> Iterator[LintFinding]:
    (start, end), (first, last) = learned, marked
    if first < start:
        yield LintFinding(
            code="marks_header",
            message="the generation marks begin before the answer: trainers that go by them learn text the prompt "
            "already holds",
            examples=(Example(label="turn", text=text, mark=(first, start), note="marked, but part of the prompt"),),
            hint=_HINT,
        )
    if first > start:
        yield LintFinding(
            code="marks_late",
            message="the generation marks begin after the answer does: trainers that go by them do not learn how it "
            "opens",
            examples=(Example(label="turn", text=text, mark=(start, first), note="not marked, but to be generated"),),
            hint=_HINT,
        )
    if last < end:
        yield LintFinding(
            code="marks_no_terminator",
            message="the generation marks end before the stop token: trainers that go by them do not learn to stop",
            examples=(Example(label="turn", text=text, mark=(last, end), note="not marked"),),
        )
    if last > end:
        yield LintFinding(
            code="marks_past_end",
            message="the generation marks go on after the stop token: trainers that go by them learn text that is "
            "never generated",
            examples=(Example(label="turn", text=text, mark=(end, last), note="marked, after the end"),),
        )
