"""Turns as the template's own `{% generation %}` blocks mark them (`supervision.source: generation_tags`).

The blocks decide where a turn's completion begins and that it is trained at all. Where it ends is not theirs to say: a
completion ends with its first stop token, since generation does; a block that holds none would teach the model never to
stop, and its row is refused.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from packer.render.chat import Conversation, RenderedTurn, TurnRules
from packer.render.environment import RenderError

Range = tuple[int, int]
"""Start and end of a block, in characters."""


def marked_turns(conversation: Conversation, weights: Mapping[int, float], rules: TurnRules) -> Iterator[RenderedTurn]:
    """The marked turns of the messages in `weights`, all cut from one rendering up to the last of them.

    Raises:
        RenderError: `bad_marks` where blocks cannot be told apart by message, or a message has several that do not
            touch; `no_terminator`; whatever the template raised.

    """
    last = max(weights)
    messages = conversation.messages[: last + 1]
    text, ranges = conversation.template.render_marked(messages, tools=conversation.tools, kwargs=conversation.kwargs)
    for k, own in sorted(_by_message(conversation, last, text, ranges).items()):
        if k not in weights:
            continue
        start, end = own[0][0], own[-1][1]
        if any(a[1] != b[0] for a, b in itertools.pairwise(own)):
            raise RenderError(f"messages[{k}]: its generation blocks do not touch each other", code="bad_marks")
        stop = rules.stops.search(text, start, end) if rules.stops else None
        if stop is None:
            raise RenderError(f"messages[{k}]: its generation block holds no stop token", code="no_terminator")
        yield RenderedTurn(
            message=k,
            text=text[: stop.end()],
            prompt_end=start,
            weight=weights[k],
            prompt_ends=(start,),
            whole=text,
            mode={},
        )


def _by_message(conversation: Conversation, last: int, text: str, ranges: Sequence[Range]) -> dict[int, list[Range]]:
    """The blocks that wrote something, by the assistant message they belong to.

    One for each assistant message is taken in order. Else a block belongs to the message in whose stretch it begins:
    what the text has in common with the rendering up to the message, and no more with that before it.
    """
    assistants = [k for k in range(last + 1) if conversation.messages[k]["role"] == "assistant"]
    if len(ranges) == len(assistants):
        return {k: [own] for k, own in zip(assistants, ranges, strict=True) if own[0] < own[1]}
    begins = {k: _common(conversation, k, text) for k in assistants}
    ends = {k: len(text) + 1 if k == last else _common(conversation, k + 1, text) for k in assistants}
    owned: dict[int, list[Range]] = {}
    for start, end in ranges:
        if start == end:
            continue
        owner = next((k for k in assistants if begins[k] <= start < ends[k]), None)
        if owner is None:
            raise RenderError("a generation block belongs to no assistant message", code="bad_marks")
        owned.setdefault(owner, []).append((start, end))
    return owned


def _common(conversation: Conversation, num_messages: int, text: str) -> int:
    """How many characters the rendering of the first messages has in common with the whole."""
    try:
        part = conversation.render(conversation.messages[:num_messages], {})
    except RenderError:
        return 0
    return next((i for i, (a, b) in enumerate(zip(part, text, strict=False)) if a != b), min(len(part), len(text)))
