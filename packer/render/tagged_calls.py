"""Calls whose arguments stand between tags, read back as a server does: up to the first closing tag.

Templates write the texts of arguments as they are: `<parameter=text>⏎…⏎</parameter>`. A text that holds such a tag
itself ends there for a server, and becomes another argument, or no call at all.

A null that is written as the text None is read as that text. Servers know a null by `null`, and the type of another
value by the schema of its tool.

Which tags close something is learned from the template: the call is rendered with words in place of its values, and
what stands behind them is the template's. If a rendering of the row has more of a tag than that, its values hold some.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from packer.render.conversation import Conversation, RenderedTurn
from packer.render.environment import RenderError
from packer.render.placeholders import with_words
from packer.render.readback import arguments_of, function_of, keys, strings

_CLOSING = re.compile(r"</[^<>\s]*?(\w+)>")


def tags_in(values: Any, marks: str) -> list[str]:
    """Return the closing tags in a JSON value that a template may write as well: named in its source, or as a key is.

    `marks` is the source.
    """
    found = [tag for text in strings([values]) if "</" in text for tag in _CLOSING.finditer(text)]
    names = {*keys(values)} if found else ()
    return [*dict.fromkeys(tag[0] for tag in found if tag[1] in marks or tag[1] in names)]


def tag_that_cuts(conversation: Conversation, turn: RenderedTurn, marks: str) -> str | None:
    """Return a tag that values of a turn's calls hold, and with which the template closes them, or None."""
    messages, k = conversation.messages[: turn.message + 1], turn.message
    calls = messages[k].get("tool_calls") or ()
    tags = tags_in([arguments_of(call) for call in calls], marks)
    if not tags:
        return None
    words, worded = with_words(calls)
    try:
        own = conversation.render(messages, turn.mode)
        messages[k] = {**messages[k], "tool_calls": worded}
        other = conversation.render(messages, turn.mode)
    except RenderError:
        return None
    places = [place for word in words if (place := other.find(word)) >= 0]
    behind = other[min(places) :] if places else ""
    names = "\0".join(name for call in calls for name in keys(arguments_of(call)))  # which no words replace
    closing = (tag for tag in tags if behind.count(tag) > names.count(tag))
    return next((tag for tag in closing if own.count(tag) > other.count(tag)), None)


def writes_null_as_text(conversation: Conversation, turn: RenderedTurn) -> bool:
    """Whether a turn would be the same if arguments of its calls were the text None in place of nulls."""
    messages, k = conversation.messages[: turn.message + 1], turn.message
    calls = messages[k].get("tool_calls") or ()
    worded = [_with_text(call) for call in calls]
    if "None" not in turn.text[turn.prompt_end :] or worded == [*calls]:  # nearly always
        return False
    messages[k] = {**messages[k], "tool_calls": worded}
    try:
        return conversation.render(messages, turn.mode).endswith(turn.whole[turn.prompt_end :])
    except RenderError:
        return False


def _with_text(call: Any) -> Any:
    function, arguments = function_of(call), arguments_of(call)
    if not isinstance(arguments, Mapping) or None not in arguments.values():
        return call
    texts = {key: "None" if value is None else value for key, value in arguments.items()}
    function = {**function, "arguments": json.dumps(texts) if isinstance(function["arguments"], str) else texts}
    return {**call, "function": function} if "function" in call else function
