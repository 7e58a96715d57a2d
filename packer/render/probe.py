"""What a template does, seen on a conversation made for the purpose: the headers of its roles."""

import re
from collections.abc import Sequence

from packer.model import AddedToken
from packer.render.environment import ChatTemplate, RenderError

_MARKER = re.compile(r"<\|[^\s<>|]{1,60}\|>|<｜[^\s<>｜]{1,60}｜>|<(?:start|end)_of_turn>")
"""Text that is written like a control token."""

_USER = {"role": "user", "content": "ping"}
_ASSISTANT = {"role": "assistant", "content": "pong"}
_CHATS = (
    [{"role": "system", "content": "sys"}, _USER, _ASSISTANT, _USER],
    [_USER, _ASSISTANT, _USER],
    [_USER],
)


def role_markers(template: ChatTemplate, added_tokens: Sequence[AddedToken]) -> dict[str, int]:
    """Added tokens the template writes around plain user messages, with their ids: the headers of roles.

    Reasoning and tool tags stand around assistant text only; they are ordinary vocabulary.
    """
    text = "".join(_renders(template, prompt=False)[-1:])
    markers = (token for token in added_tokens if not token.content.strip().isalnum())
    return {token.content: token.id for token in markers if token.content in text}


def written_markers(template: ChatTemplate) -> tuple[str, ...]:
    """Texts the template writes that look like control tokens, in the order of their appearance."""
    texts = _renders(template, prompt=True)
    return tuple(dict.fromkeys(marker for text in texts for marker in _MARKER.findall(text)))


def _renders(template: ChatTemplate, *, prompt: bool) -> list[str]:
    texts = []
    for chat in _CHATS:
        try:
            texts.append(template.render(chat, add_generation_prompt=prompt))
        except RenderError:
            continue
    return texts
