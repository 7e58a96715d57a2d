"""Texts that show why a row is rejected: of the row, or of its rendering."""

from dataclasses import dataclass

from packer.batches import Rejection, Sample, says_something
from packer.render import Renderer, RenderError
from packer.render.message_form import renderable

_SHORT, _LONG = 300, 1000
"""Characters of an excerpt, and of one of a whole rendering."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A piece of text that helps to understand a rejection."""

    what: str
    """A label of a few words."""

    text: str
    """`[...]` stands where something was left out."""

    blamed: bool
    """Whether the rejection is about this text; else it stands around it."""


def excerpts_of(
    rejection: Rejection, *, sample: Sample | None, content: bytes | None, renderer: Renderer
) -> tuple[Excerpt, ...]:
    """What can be shown of a rejection; empty where nothing can."""
    if sample is None:
        text = (content or b"").decode("utf-8", "backslashreplace")
        return (_blamed("the row", _head(text)),) if text else ()
    if sample.kind != "chat":
        return ()
    try:
        return _of_chat(rejection.code, sample, rejection.message, renderer)
    except RenderError:
        return ()  # it cannot be rendered even for showing it


def _of_chat(code: str, sample: Sample, message: int | None, renderer: Renderer) -> tuple[Excerpt, ...]:
    """The start or the end of the rendering up to the first turn from the message on, where a rendering shows more."""
    if code in ("template_error", "nothing_trained"):
        roles = ", ".join(each.role for each in sample.messages)
        return (Excerpt(what="its messages are from", text=_head(roles), blamed=False),)
    if not code.startswith("dropped_") and code not in ("no_terminator", "prompt_diverges"):
        return ()
    conversation = renderer.conversation(sample)
    messages = conversation.messages
    first = message or 0
    turns = (k for k in range(first, len(messages)) if messages[k]["role"] == "assistant")
    last = next((k for k in turns if says_something(messages[k])), len(messages) - 1)
    rendered = renderable(conversation, last if message is None else message).render(messages[: last + 1], {})
    is_start = code in ("dropped_system", "dropped_tools")
    text, verb = (_head(rendered, _LONG), "begins") if is_start else (_tail(rendered, _LONG), "ends")
    what = f"the rendering up to messages[{last}]" + (f" {verb}" if text != rendered else "")
    if code == "prompt_diverges":
        prompt = next(prompt for prompt, _ in conversation.prompts(last))
        return (Excerpt(what="the prompt ends", text=_tail(prompt), blamed=False), _blamed(what, text))
    return (_blamed(what, text),)


def _blamed(what: str, text: str) -> Excerpt:
    return Excerpt(what=what, text=text, blamed=True)


def _head(text: str, length: int = _SHORT) -> str:
    return text if len(text) <= length else f"{text[:length]} [...]"


def _tail(text: str, length: int = _SHORT) -> str:
    return text if len(text) <= length else f"[...] {text[-length:]}"
