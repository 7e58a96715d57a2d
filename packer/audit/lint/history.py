"""Checks of finished turns: what ends them, and whether earlier answers change later."""

from collections.abc import Iterator

from packer.audit.findings import CodedFinding, Example, Level
from packer.audit.lint.codes import finding
from packer.audit.lint.probed_template import (
    CHAT,
    NEXT_QUESTION,
    REASONED_CHAT,
    REASONING,
    Override,
    ProbedTemplate,
    Row,
    TrainedTurn,
)
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
            f"run on to '{_stop_of(probed, own)}', and history is rewritten",
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
    turns = probed.outcome(REASONED_CHAT).turns
    if len(turns) != 2 or REASONING not in turns[0].text or REASONING in turns[1].text:
        return
    own, later = turns
    place = own.text.find(REASONING)
    shown = _trained(own, (place, place + len(REASONING)), "only while it is the last"), _later(own, later)
    message = "the reasoning of earlier answers is gone when the conversation continues"
    yield _rewritten(probed, REASONED_CHAT, "reasoning_forgotten", message, shown)


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


def _stop_of(probed: ProbedTemplate, turn: TrainedTurn) -> str:
    """Return the stop token a turn ends with; the longest if several match."""
    return max((stop for stop in probed.model.stops if turn.text.endswith(stop)), key=len, default="")
