"""What of a row is to be trained, and what a row is refused for before it is rendered.

ms-swift and LLaMA-Factory write a text and each of its calls as messages, each with its own flag. The model generates
them in one turn. As turns of their own, each would teach the model to stop where it goes on. So the whole turn is
rendered, and the pieces without loss are masked in it (:mod:`packer.render.parts`).
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from packer.batches import Rejection, Sample
from packer.recipe.groups import Part
from packer.render.conversation import Turns
from packer.render.environment import ChatTemplate, RenderError
from packer.render.parts import parts_of
from packer.render.readback import strings

Piece: TypeAlias = tuple[int, bool]
"""The number of calls that the turn has up to the end of a piece, and whether the piece is trained."""

_NOTHING = 2.0**-150
"""The largest number that is stored as zero."""

MAX_TURN_MESSAGES = 2**22
"""Largest product of a row's trained answers and the messages up to the last of them: about how many messages the
definition renders, for each mode of the template. That takes ten to twenty seconds."""

MAX_TOOLS_AND_CALLS = 2**12
"""Largest number of a row's tools and calls together: each is looked for in a prompt that has them all."""


def turn_weights(sample: Sample, turns: Turns, parts: Collection[Part] | None) -> dict[int, float]:
    """Return the loss weight of every assistant message to be trained, by message number.

    A message's own weight takes precedence over the rule; one that has none of the parts is not trained, nor is one
    with spans, which are of its text, unless that is one of them.
    """
    weights = {k: max([weight for _, weight in pieces]) for k, pieces in _weights_of_pieces(sample, turns)}
    weights = {k: weight for k, weight in weights.items() if weight > _NOTHING}
    if parts is None:
        return weights
    own = {k: {"text"} if sample.messages[k].spans else parts_of(sample.messages[k].fields) for k in weights}
    return {k: weights[k] for k, each in own.items() if not each.isdisjoint(parts)}


def _weights_of_pieces(sample: Sample, turns: Turns) -> Iterator[tuple[int, list[tuple[int, float]]]]:
    """Yield the number of every assistant message, and its pieces with their weights; most have one."""
    assistants = [k for k, message in enumerate(sample.messages) if message.fields["role"] == "assistant"]
    by_rule = {*{"last": assistants[-1:], "marked": []}.get(turns, assistants)}
    for k in assistants:
        message = sample.messages[k]
        pieces = message.pieces or ((0, message.weight),)
        yield k, [(num_calls, float(k in by_rule) if own is None else own) for num_calls, own in pieces]


def refusal_of_weights(sample: Sample, turns: Turns) -> Rejection | None:
    """Return why a row that says itself what is trained of it is not trained whole."""
    for k, message in enumerate(sample.messages if turns == "conversation" else ()):
        if message.weight not in (None, 1) or message.pieces or message.spans is not None:
            reason = f"messages[{k}]: the row says what of it is trained; supervision.turns=conversation trains all"
            return Rejection(row=sample.row, code="wrong_type", reason=reason, message=k)
    return None


def masked_pieces(sample: Sample, turns: Turns) -> dict[int, list[Piece]]:
    """Return the pieces of each message of which some are trained and some are not."""
    masked = {}
    for k, pieces in _weights_of_pieces(sample, turns):
        weights = {weight for _, weight in pieces}
        if len(weights - {0.0}) > 1:
            reason = f"messages[{k}]: its text and its calls have different weights; they are one turn"
            raise RenderError(reason, code="wrong_type", message=k)
        if len(weights) > 1:
            masked[k] = [(num_calls, weight > 0) for num_calls, weight in pieces]
    return masked


def too_many(sample: Sample, weights: Mapping[int, float]) -> str | None:
    """Return what a row has too many of to be rendered in seconds, or None."""
    num_messages = max(weights) + 1
    if len(weights) * num_messages > MAX_TURN_MESSAGES:
        return f"{len(weights)} trained answers among {num_messages} messages: each is rendered with all before it"
    number = len(sample.tools or ()) + sum(len(each.fields.get("tool_calls") or ()) for each in sample.messages)
    if number > MAX_TOOLS_AND_CALLS:
        return f"{number} tools and calls: each is looked for in the whole prompt"
    return None


def refuse_empty_question(sample: Sample) -> None:
    """Refuse to train an answer to an empty question: RenderError `no_content`."""
    for k, message in enumerate(sample.messages):
        if message.fields["role"] == "user" and not message.fields.get("content"):
            raise RenderError(f"messages[{k}]: the user message is empty", code="no_content", message=k)


def refuse_unread_variables(sample: Sample, template: ChatTemplate) -> None:
    """Refuse a row that gives the template a text, tools or documents in a variable that the template does not have."""
    for name, value in sample.template_kwargs.items():
        is_content = _is_prose(value) if isinstance(value, str) else bool(strings(value))
        if is_content and name not in template.read_variables:
            reason = f"`chat_template_kwargs` has {name!r}, which the template does not read"
            hides = "`columns: {chat_template_kwargs: null}` leaves out all variables of rows"
            raise RenderError(f"{reason}; {hides}", code="unread_content")


def _is_prose(text: str) -> bool:
    """Whether a text is more than a setting: several words, or letters of a script that may not separate words."""
    return len(text.split()) > 1 or not text.isascii()
