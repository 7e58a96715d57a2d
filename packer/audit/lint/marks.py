"""The template's own `{% generation %}` marks, compared with what is learned.

Trainers that take their mask from the marks (`assistant_only_loss`, `return_assistant_tokens_mask`) render a
conversation once and learn what stands between the marks. packer learns what inference would be asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from packer.audit.lint.codes import Level
from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.override import Override
from packer.audit.lint.probes import ANSWER, CHAT, NEXT_QUESTION, PLAIN, QUESTION
from packer.audit.lint.subject import LearnedTurn, Subject
from packer.render import ChatTemplate, RenderError
from packer.render.chat import Conversation

Range = tuple[int, int]

_BY_MARKS = Override("supervision.source", "generation_tags")
_IGNORED = "; packer does not go by them, tools that do"
"""Followed by what those tools do."""

_OWN: dict[str, tuple[Level, str]] = {
    "marks_header": ("warning", "text the prompt already holds is learned"),
    "marks_late": ("warning", "how an answer opens is not learned"),
    "marks_no_terminator": ("warning", "such rows are rejected as no_terminator"),
    "marks_past_end": ("note", "packer ends the answer at its stop token all the same"),
    "marks_missing": ("warning", "nothing of it is learned"),
    "marks_elsewhere": ("warning", "such rows are rejected as bad_marks"),
}
"""What becomes of it where the recipe goes by the marks."""


def find_marks(subject: Subject) -> Iterator[LintFinding]:
    """Where marks and the rule differ, or that they agree."""
    template = subject.template
    if not template.has_marks:
        return
    is_rule = subject.recipe_given.supervision.source == "generation_tags"
    if is_rule:
        yield LintFinding(
            code="marks_rule",
            message="supervision.source is generation_tags: what is learned is what the marks say, in one rendering of "
            "the conversation; the rest of this report shows what inference asks for",
        )
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
            message="the template has generation marks, and on plain chats they mark exactly what inference asks for",
        )
    hint = f"{_BY_MARKS} learns by the marks instead"
    by_marks = not is_rule and subject.kept_by_marks(PLAIN)
    for each in found:
        if is_rule:
            level, told = _OWN[each.code]
            yield replace(each, message=f"{each.message.partition(_IGNORED)[0]}: {told}", level=level)
        elif by_marks and each.code in ("marks_header", "marks_late"):
            yield replace(each, hint=hint)
        else:
            yield each


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
            message=f"generation marks stand around a question{_IGNORED} learn what users say",
            examples=(Example(label="chat", text=text, mark=around, note="marked"),),
        )


def _marked(template: ChatTemplate, conversation: Conversation) -> tuple[str, list[Range]]:
    text, ranges = template.render_marked(conversation.messages, tools=conversation.tools, kwargs=conversation.kwargs)
    return text, [(a, b) for a, b in ranges if a < b]


def _missing(text: str, place: Range, what: str) -> LintFinding:
    return LintFinding(
        code="marks_missing",
        message=f"{what} has no generation marks{_IGNORED} learn nothing of it",
        examples=(Example(label="turn", text=text, mark=place, note="not marked"),),
    )


def _borders(text: str, learned: Range, marked: Range) -> Iterator[LintFinding]:
    (start, end), (first, last) = learned, marked
    if first < start:
        yield LintFinding(
            code="marks_header",
            message=f"the generation marks begin before the answer{_IGNORED} learn text the prompt already holds",
            examples=(Example(label="turn", text=text, mark=(first, start), note="marked, but part of the prompt"),),
        )
    if first > start:
        yield LintFinding(
            code="marks_late",
            message=f"the generation marks begin after the answer does{_IGNORED} do not learn how it opens",
            examples=(Example(label="turn", text=text, mark=(start, first), note="not marked, but to be generated"),),
        )
    if last < end:
        yield LintFinding(
            code="marks_no_terminator",
            message=f"the generation marks end before the stop token{_IGNORED} do not learn to stop",
            examples=(Example(label="turn", text=text, mark=(last, end), note="not marked"),),
        )
    if last > end:
        yield LintFinding(
            code="marks_past_end",
            message=f"the generation marks go on after the stop token{_IGNORED} learn "
            + ("text" if text[end:last].strip() else "white space")
            + " that is never generated",
            examples=(Example(label="turn", text=text, mark=(end, last), note="marked, after the end"),),
        )
