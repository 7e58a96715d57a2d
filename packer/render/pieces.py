"""A turn that the row gives in pieces, of which some are trained and some are not: one turn with a mask.

ms-swift and LLaMA-Factory write a text and each of its calls as messages, each with its own flag. The model generates
them in one turn. As turns of their own, each would teach the model to stop where it goes on. So the whole turn is
rendered, and the pieces without loss are masked in it; its stop token belongs to the last piece.

Where a piece ends is read off the template: the turn is rendered up to that piece as well, and both renderings agree
until the shorter one closes. Worked example: `Let me look.<|im_end|>` and `Let me look.⏎<tool_call>…` agree up to the
full stop, since the shorter one closes there. The `<` with which two tags begin belongs to neither piece's end.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from packer.batches import Rejection, Sample, has_content
from packer.literals import common_length
from packer.recipe.supervision import Part
from packer.render.conversation import Conversation, RenderedTurn, TurnRules, Turns
from packer.render.dropped import shows_message
from packer.render.environment import RenderError
from packer.render.parts import parts_of
from packer.render.placeholders import text_of

Piece: TypeAlias = tuple[int, bool]
"""The number of calls that the turn has up to the end of a piece, and whether the piece is trained."""

_BEGUN = re.compile(r"[<\[][^<>\[\]\s]*\Z")
"""Matches a tag that only began."""

_NOTHING = 2.0**-150
"""The largest number that is stored as zero."""


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


def with_mask(
    turn: RenderedTurn, conversation: Conversation, pieces: Sequence[Piece], rules: TurnRules
) -> RenderedTurn:
    """Return a turn with the ranges of its text that are not trained."""
    starts = [turn.prompt_end, *(_end(turn, conversation, num_calls, rules) for num_calls, _ in pieces[:-1])]
    ranges = zip(starts, [*starts[1:], len(turn.text)], pieces, strict=True)
    return turn._replace(masked=tuple((start, end) for start, end, (_, trained) in ranges if not trained))


def _end(turn: RenderedTurn, conversation: Conversation, num_calls: int, rules: TurnRules) -> int:
    """Return where a turn has its text and the first `num_calls` of its calls behind it, in characters."""
    k = turn.message
    message = {name: value for name, value in conversation.messages[k].items() if name != "tool_calls" or num_calls}
    if num_calls:
        message["tool_calls"] = message["tool_calls"][:num_calls]
    if not has_content(message):
        return turn.prompt_end
    messages = [*conversation.messages[:k], message, *conversation.messages[k + 1 :]]
    upto = Conversation(conversation.template, messages, tools=conversation.tools, kwargs=conversation.kwargs)
    shorter = upto.turn(k, turn.weight, rules)
    if shorter is not None:
        end = common_length(shorter.text, turn.text)
        stop = rules.stops.search(shorter.text, shorter.prompt_end) if rules.stops else None
        end = min(end, stop.start()) if stop else end
        if (begun := _BEGUN.search(turn.text, turn.prompt_end, end)) and not text_of(message).endswith(begun[0]):
            end = begun.start()
        if end >= turn.prompt_end == shorter.prompt_end and shows_message(message, k, shorter, end):
            return end
    reason = f"messages[{k}]: parts of this turn are trained and others are not, but the template does not write them"
    raise RenderError(f"{reason} one after the other; give them the same flag", code="wrong_type", message=k)
