"""What a row is refused for before it is rendered: an empty question, its size, or variables that nothing reads."""

from collections.abc import Mapping

from packer.batches import Sample
from packer.render.environment import ChatTemplate, RenderError
from packer.render.readback import strings

MAX_TURN_MESSAGES = 2**22
"""Largest product of a row's trained answers and the messages up to the last of them: about how many messages the
definition renders, for each mode of the template. That takes ten to twenty seconds."""

MAX_TOOLS_AND_CALLS = 2**12
"""Largest number of a row's tools and calls together: each is looked for in a prompt that has them all."""


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
