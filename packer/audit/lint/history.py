"""Checks of finished turns: what ends them, whether earlier answers change later, and generation marks.

Trainers that take their mask from the marks (`assistant_only_loss`, `return_assistant_tokens_mask`) render a
conversation once and train the text between the marks. packer trains what inference would generate.
"""

from collections.abc import Iterator, Mapping, Sequence

from packer.audit.findings import CodedFinding, Example, Level
from packer.audit.lint.codes import finding
from packer.audit.lint.probed_template import (
    ANSWER,
    CHAT,
    INLINE_CHAT,
    NEXT_QUESTION,
    PLAIN,
    QUESTION,
    REASONED_CHAT,
    REASONING,
    Outcome,
    Override,
    ProbedTemplate,
    Row,
    TrainedTurn,
)
from packer.render import RenderError
from packer.render.common_prefix import common_length

EXACT = Override("supervision.history_rewrite", "exact")
LAST = Override("supervision.history_rewrite", "last")
AS_RENDERED = Override("supervision.history_rewrite", "as_rendered")


def find_rewriting(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Compare the first answer of a plain chat, as it is trained, with its rendering when a second turn follows."""
    outcome = probed.outcome(CHAT)
    if outcome.num_documents < 2:
        return
    own, later = outcome.turns[0], outcome.turns[-1]
    stop = None if probed.turn_end is None else Override.stopping(probed.recipe_given, probed.turn_end)
    if stop is not None and probed.render(CHAT, EXACT, stop).num_documents == 1:
        assert probed.turn_end is not None
        at = own.text.rfind(probed.turn_end)
        yield finding(
            "turn_end_is_no_stop",
            f"'{probed.turn_end}' ends every turn in history but is not a stop token, so the model is trained to "
            f"run on to '{stop_of(probed, own)}', and history is rewritten",
            examples=(_trained(own, (at, len(own.text)), "trained"), _later(own, later)),
            hint=f"{stop} ends the trained answer there and nothing is rewritten; generation has to stop at it too "
            "(generation_config.json)",
        )
        return
    place = common_length(own.text, later.text)
    resumes = own.text.find(later.text[place : place + 8], place + 1)
    mark = (place, resumes if resumes > place else len(own.text))
    message = "an earlier answer changes when the conversation continues"
    yield _rewritten(probed, CHAT, "chat_rewritten", message, (_trained(own, mark), _later(own, later)))


def find_forgotten_reasoning(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Look for reasoning of a first answer that is trained, but missing once a second turn follows."""
    forgetting: dict[str, Row] = {}
    for label, row in (("a field", REASONED_CHAT), ("<think> tags", INLINE_CHAT)):
        turns = probed.outcome(row).turns
        if len(turns) == 2 and REASONING in turns[0].text and REASONING not in turns[1].text:
            forgetting[label] = row
    if not forgetting:
        return
    row = next(iter(forgetting.values()))
    own, later = probed.outcome(row).turns
    place = own.text.find(REASONING)
    shown = _trained(own, (place, place + len(REASONING)), "only while it is the last"), _later(own, later)
    where = " and in ".join(forgetting)
    message = f"the reasoning of earlier answers (in {where}) is gone when the conversation continues"
    yield _rewritten(probed, row, "reasoning_forgotten", message, shown)


def _rewritten(probed: ProbedTemplate, row: Row, code: str, message: str, shown: tuple[Example, ...]) -> CodedFinding:
    supervision = probed.recipe_given.supervision
    chosen = supervision.history_rewrite
    decided = None if chosen is None else f"supervision.history_rewrite={chosen}"
    if supervision.source == "generation_tags":
        decided = "supervision.source=generation_tags"
    switch = probed.keeps_history(row)
    ways = [f"{switch} keeps earlier turns as they are, right where inference is run with it too"] if switch else []
    if decided is None:
        message += "; each answer is trained as it was given, in a document of its own, which costs tokens"
        if probed.render(row, AS_RENDERED).num_documents == 1:
            ways.append(f"{AS_RENDERED} trains this chat in one document, earlier answers as history shows them")
        ways.append(f"{EXACT} trains every answer as it was given, a document for each")
        ways.append(f"{LAST} trains only the last document of each conversation")
    else:
        message += f"; the recipe says what is trained ({decided})"
    level: Level = "note" if decided else "warning"
    return finding(code, message, examples=shown, hint="; or ".join(ways) or None, level=level)


def _trained(turn: TrainedTurn, mark: tuple[int, int], note: str = "") -> Example:
    return Example(label="turn 1, trained", text=turn.text, mark=mark, note=note)


def _later(own: TrainedTurn, later: TrainedTurn) -> Example:
    place = common_length(own.text, later.text)
    end = later.text.find(NEXT_QUESTION)
    text = later.text[: end + len(NEXT_QUESTION)] if end >= 0 else later.text
    return Example(label="turn 1, later", text=text, mark=(place, place), note="differs from here")


def stop_of(probed: ProbedTemplate, turn: TrainedTurn) -> str:
    """Return the stop token a turn ends with; the longest if several match."""
    return max((stop for stop in probed.model.stops if turn.text.endswith(stop)), key=len, default="")


def find_terminators(probed: ProbedTemplate, shapes: Mapping[str, Outcome]) -> Iterator[CodedFinding]:
    """Report the stop tokens that turns end with, each with the first shape that does, and those never rendered."""
    endings: dict[str, tuple[str, TrainedTurn]] = {}
    for shape, outcome in shapes.items():
        for turn in outcome.turns:
            calls = outcome.sample.messages[turn.message].fields.get("tool_calls")
            endings.setdefault(stop_of(probed, turn), ("a tool call" if calls else shape, turn))
    stop, *others = endings
    message = f"a turn ends with {_named(probed, stop)}"
    text = probed.whole(probed.outcome(PLAIN), probed.plain)
    if stop not in text[max(text.rfind(ANSWER), 0) :]:
        message += ", appended or the header of the next message: the template writes no stop token after a turn"
    message += "".join(f"; {endings[other][0]} with {_named(probed, other)}" for other in others)
    written = "\0".join(turn.text for outcome in shapes.values() for turn in outcome.turns)
    never = [stop for stop in probed.model.stops if stop not in written]
    yield finding(
        "terminator",
        message + (f"; stop tokens never written: {', '.join(never)}" if never else ""),
        examples=tuple(
            Example(label=label, text=turn.text, mark=(len(turn.text) - len(stop), len(turn.text)), note="trained")
            for stop, (label, turn) in endings.items()
        ),
    )


def _named(probed: ProbedTemplate, stop: str) -> str:
    return f"'{stop}' (id {probed.model.control[stop]})" if stop in probed.model.control else f"'{stop}'"


Range = tuple[int, int]

_BY_MARKS = Override("supervision.source", "generation_tags")

_GIVEN, _UNMARKED = "marked, but not to be generated", "to be generated, but not marked"


def find_marks(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Report where the generation marks differ from what packer trains."""
    if not probed.template.has_marks:
        return
    is_rule = probed.recipe_given.supervision.source == "generation_tags"
    try:
        found = [*_of_answer(probed.plain, *_marked(probed, PLAIN)), *_of_chat(*_marked(probed, CHAT))]
    except RenderError as error:
        yield finding("marks_differ", f"the generation marks cannot be read: {error}")
        return
    if not found:
        return
    can_help = not is_rule and probed.kept_by_marks(PLAIN)
    texts = [each.text[slice(*each.mark)] for each in found if each.mark is not None]
    yield finding(
        "marks_differ",
        "the generation marks mark other text than inference asks for; "
        + ("the recipe goes by the marks" if is_rule else "packer does not go by them, trainers that do train this"),
        examples=tuple(found),
        hint=f"{_BY_MARKS} trains by the marks instead" if can_help else None,
        level="warning" if any(text.strip() for text in texts) else "note",
    )


def _of_answer(turn: TrainedTurn, text: str, ranges: Sequence[Range]) -> Iterator[Example]:
    """Compare the marks of a plain answer with the part of it that is trained."""
    if not text.startswith(turn.text):
        return  # the terminator was appended, or the prompt combines two renderings: positions are not comparable
    start, end = turn.prompt_end, len(turn.text)
    end_of_question = text.find(QUESTION) + len(QUESTION)
    touching = [(a, b) for a, b in ranges if b > end_of_question and a < end and b > start] or [(end, end)]
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
    """Look in a two-turn chat for an earlier answer without marks, and for a marked question."""
    places = [(text.find(word), word) for word in (ANSWER, QUESTION, NEXT_QUESTION)]
    around = [next((place for place in ranges if place[0] <= at < place[1]), None) for at, _ in places]
    if ranges and around[0] is None and places[0][0] >= 0:
        yield Example(label="chat", text=text, mark=(places[0][0], places[0][0] + len(ANSWER)), note=_UNMARKED)
    marked = next((each for each in around[1:] if each is not None), None)
    if marked is not None:
        yield Example(label="chat", text=text, mark=marked, note=_GIVEN)


def _marked(probed: ProbedTemplate, row: Row) -> tuple[str, list[Range]]:
    conversation = probed.conversation(probed.outcome(row))
    shown = probed.template.reasoning.apply(conversation.messages)
    text, ranges = probed.template.render_marked(shown, tools=conversation.tools, kwargs=conversation.kwargs)
    return text, [(a, b) for a, b in ranges if a < b]
