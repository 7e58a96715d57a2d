"""Refuses rows that give their template a text in a variable that it does not read."""

from packer.batches import Sample
from packer.render.environment import ChatTemplate, RenderError
from packer.render.readback import strings


def refuse_unread_variables(sample: Sample, template: ChatTemplate) -> None:
    """Refuse a row that gives the template a text, tools or documents in a variable that the template does not have.

    Raises:
        RenderError: `unread_content`.
    """
    for name, value in sample.template_kwargs.items():
        is_content = _is_prose(value) if isinstance(value, str) else bool(strings(value))
        if is_content and name not in template.read_variables:
            reason = f"`chat_template_kwargs` has {name!r}, which the template does not read"
            hides = "`columns: {chat_template_kwargs: null}` leaves out all variables of rows"
            raise RenderError(f"{reason}; {hides}", code="unread_content")


def _is_prose(text: str) -> bool:
    """Whether a text is more than a setting: several words, or letters of a script that may not separate words."""
    return len(text.split()) > 1 or not text.isascii()
