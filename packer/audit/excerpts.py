"""Excerpts that explain why a row was rejected: the beginning of the row, or what its template made of it.

What is to blame for the rejection is marked.
"""

from packer.audit import Example
from packer.batches import Rejection, Sample, has_content
from packer.literals import common_length
from packer.render.conversation import renderable
from packer.render.environment import RenderError
from packer.render.renderer import Renderer

_SHORT, _LONG = 300, 1000
"""Maximum characters of an excerpt of a row, and of one of a rendering."""

_GAP = "[...]"


def excerpts_of(
    rejection: Rejection, *, sample: Sample | None, content: bytes | None, renderer: Renderer
) -> tuple[Example, ...]:
    """Return excerpts that explain a rejection; empty if nothing would help. What is to blame for it is marked."""
    if sample is None:
        text = _head((content or b"").decode("utf-8", "backslashreplace"), _SHORT)
        return (Example(label="the row", text=text, mark=(0, len(text))),) if text else ()
    if sample.kind != "chat":
        return ()
    try:
        return _of_chat(rejection.code, sample, rejection.message, renderer)
    except RenderError:
        return ()  # it cannot be rendered even for display


def _of_chat(code: str, sample: Sample, message: int | None, renderer: Renderer) -> tuple[Example, ...]:
    """Return the roles of a chat, or the start or end of its rendering up to the first turn from `message` on."""
    if code in ("template_error", "nothing_trained"):
        roles = ", ".join(each.role for each in sample.messages)
        return (Example(label="its messages are from", text=_head(roles, _SHORT)),)
    if not code.startswith(("dropped_", "mangled_")) and code not in (
        "no_terminator",
        "prompt_diverges",
        "part_not_found",
    ):
        return ()
    conversation = renderer.conversation(sample)
    messages = conversation.messages
    first = message or 0
    turns = (k for k in range(first, len(messages)) if messages[k]["role"] == "assistant")
    last = next((k for k in turns if has_content(messages[k])), len(messages) - 1)
    rendered = renderable(conversation, last if message is None else message).render(messages[: last + 1], {})
    label = f"the rendering up to messages[{last}]"
    if code == "prompt_diverges":
        prompts = conversation.prompts(last)
        prompt = next((prompt for prompt, mode in prompts if not mode), prompts[-1][0])  # the default one
        place = common_length(prompt, rendered)
        return (
            _end_of("the prompt", prompt, (place, len(prompt)), "only in the prompt"),
            _end_of(label, rendered, (place, place), "differs from here"),
        )
    if code in ("dropped_system", "dropped_tools"):
        text = _head(rendered, _LONG)
        return (Example(label=label, text=text, mark=(0, len(text))),)
    if code == "no_terminator":
        return (_end_of(label, rendered, (len(rendered), len(rendered)), "no stop token"),)
    return (_end_of(label, rendered, (0, len(rendered))),)


def _head(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]} {_GAP}"


def _end_of(label: str, text: str, mark: tuple[int, int], note: str = "") -> Example:
    if len(text) > _LONG:
        end = f"{_GAP} {text[-_LONG:]}"
        mark = (max(0, mark[0] - len(text) + len(end)), max(0, mark[1] - len(text) + len(end)))
        text = end
    return Example(label=label, text=text, mark=mark, note=note)
