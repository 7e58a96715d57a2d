"""Why a row is rejected, shown: short pieces of the row and of its rendering.

An excerpt is only what was really rendered or read. Where the reason says all there is to say, there is none.
"""

from dataclasses import dataclass

from packer.batches import Rejection, Sample
from packer.render import Renderer, RenderError
from packer.render.common_prefix import common_length
from packer.render.conversation import Conversation, Mode, says_something
from packer.render.message_form import renderable

_SHORT, _LONG = 300, 1000
"""Characters of an excerpt, and of one of a whole rendering."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A piece of text that helps to understand a rejection."""

    what: str
    """What it is, in a few words."""

    text: str
    """`[...]` stands where something was left out."""

    blamed: bool
    """Whether the rejection is about this text; else it stands around it."""


def excerpts_of(
    rejection: Rejection, *, sample: Sample | None, content: bytes | None, renderer: Renderer
) -> tuple[Excerpt, ...]:
    """What can be shown of a rejection; empty where nothing can.

    Args:
        rejection: why the row is not kept.
        sample: the row, where it was understood.
        content: the row's bytes.
        renderer: the one that rejected it.

    """
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
    if code in ("template_error", "nothing_trained"):
        roles = ", ".join(each.role for each in sample.messages)
        return (Excerpt(what="its messages are from", text=_head(roles), blamed=False),)
    conversation = renderer.conversation(sample)
    last = len(conversation.messages) - 1
    conversation = renderable(conversation, last if message is None else message)
    if code == "prompt_diverges" and message is not None:
        return _parting(conversation, message)
    if code.startswith("dropped_") or code == "no_terminator":
        return _rendered(conversation, message or 0, start=code in ("dropped_system", "dropped_tools"))
    return ()


def _parting(conversation: Conversation, message: int) -> tuple[Excerpt, ...]:
    """Of the prompts that the turn does not continue the one it follows longest, and where they part."""
    tried: list[tuple[int, str, str]] = []
    for prompt, mode in conversation.prompts(message):
        whole = _rendering(conversation, message, mode)
        if whole is not None:
            tried.append((common_length(prompt, whole), prompt, whole))
    if not tried:
        return ()
    at, prompt, whole = max(tried, key=lambda entry: entry[0])
    return (
        Excerpt(
            what="the prompt, and the turn as the template writes it, both begin", text=_tail(whole[:at]), blamed=False
        ),
        _blamed("there the prompt goes on", _head(prompt[at:])),
        _blamed("and the turn goes on", _head(whole[at:])),
    )


def _rendering(conversation: Conversation, message: int, mode: Mode) -> str | None:
    try:
        return conversation.render(conversation.messages[: message + 1], mode)
    except RenderError:
        return None


def _rendered(conversation: Conversation, message: int, *, start: bool) -> tuple[Excerpt, ...]:
    """The start or the end of the rendering up to the first turn from `message` on."""
    messages = conversation.messages
    turns = (k for k in range(message, len(messages)) if messages[k]["role"] == "assistant")
    last = next((k for k in turns if says_something(messages[k])), len(messages) - 1)
    rendered = conversation.render(messages[: last + 1], {})
    text, verb = (_head(rendered, _LONG), "begins") if start else (_tail(rendered, _LONG), "ends")
    what = f"the rendering up to messages[{last}]" + (f" {verb}" if text != rendered else "")
    return (_blamed(what, text),)


def _blamed(what: str, text: str) -> Excerpt:
    return Excerpt(what=what, text=text, blamed=True)


def _head(text: str, length: int = _SHORT) -> str:
    return text if len(text) <= length else f"{text[:length]} [...]"


def _tail(text: str, length: int = _SHORT) -> str:
    return text if len(text) <= length else f"[...] {text[-length:]}"
