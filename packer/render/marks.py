"""Turns as marked by the template's own `{% generation %}` blocks (`supervision.source: generation_tags`).

The blocks decide which turns are trained and where their completions begin, but not where these end: a completion ends
with its first stop token, as generation does. A block without a stop token would teach the model never to stop, so its
row is refused.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from packer.render.asked_modes import contradiction
from packer.render.common_prefix import common_length
from packer.render.conversation import Conversation, RenderedTurn, TurnRules
from packer.render.environment import ChatTemplate, RenderError

Range = tuple[int, int]
"""Start and end of a block, in characters."""


def marked_turns(conversation: Conversation, weights: Mapping[int, float], rules: TurnRules) -> Iterator[RenderedTurn]:
    """Yield the marked turns of the messages in `weights`, all cut from one rendering up to the last of these messages.

    Raises:
        RenderError: `bad_marks` if a block cannot be assigned to a message, or the blocks of a message are not
            adjacent; `no_terminator` if they contain no stop token; `prompt_diverges` if the template is asked for no
            reasoning and a message has some; whatever the template raised.
    """
    last = max(weights)
    messages = conversation.messages[: last + 1]
    assert isinstance(conversation.template, ChatTemplate)
    template = conversation.template
    shown = template.reasoning.apply(messages)
    text, ranges = template.render_marked(shown, tools=conversation.tools, kwargs=conversation.kwargs)
    for k, own in sorted(_by_message(conversation, last, text, ranges).items()):
        if k not in weights:
            continue
        if conversation.modes_of(k)[0]:  # the default is none of them
            raise contradiction(k, str(template.switches.refusing(conversation.kwargs)))
        start, end = own[0][0], own[-1][1]
        if any(a[1] != b[0] for a, b in itertools.pairwise(own)):
            reason = f"messages[{k}]: its generation blocks do not touch each other"
            raise RenderError(reason, code="bad_marks", message=k)
        stop = rules.stops.search(text, start, end) if rules.stops else None
        if stop is None:
            reason = f"messages[{k}]: its generation block contains no stop token"
            raise RenderError(reason, code="no_terminator", message=k)
        yield RenderedTurn(
            message=k,
            num_messages=last + 1,
            text=text[: stop.end()],
            prompt_end=start,
            weight=weights[k],
            prompt_ends=(start,),
            whole=text,
            mode={},
        )


def _by_message(conversation: Conversation, last: int, text: str, ranges: Sequence[Range]) -> dict[int, list[Range]]:
    """Assign each non-empty block to an assistant message.

    A block belongs to the message in whose range it begins. The range starts after the common prefix of the text and
    the rendering of all earlier messages, and ends with the common prefix of the text and the rendering up to the
    message. Where a later message changed a turn, its range ends too early. Then, if there are as many blocks as
    assistant messages, they are assigned in order, provided that none begins before its message.
    """
    assistants = [k for k in range(last + 1) if conversation.messages[k]["role"] == "assistant"]
    begins = {k: _common(conversation, k, text) for k in assistants}
    ends = {k: len(text) + 1 if k == last else _common(conversation, k + 1, text) for k in assistants}
    owners = [next((k for k in assistants if begins[k] <= start < ends[k]), None) for start, _ in ranges]
    if None in owners and len(ranges) == len(assistants):
        owners = [k if begins[k] <= start else None for k, (start, _) in zip(assistants, ranges, strict=True)]
    owned: dict[int, list[Range]] = {}
    for owner, (start, end) in zip(owners, ranges, strict=True):
        if start == end:
            continue
        if owner is None:
            raise RenderError("a generation block does not belong to any assistant message", code="bad_marks")
        owned.setdefault(owner, []).append((start, end))
    return owned


def _common(conversation: Conversation, num_messages: int, text: str) -> int:
    """Return the length of the common prefix of `text` and the rendering of the first messages; 0 if that raises."""
    try:
        return common_length(conversation.render(conversation.messages[:num_messages], {}), text)
    except RenderError:
        return 0
