"""What a template does, seen on a conversation made for the purpose: its role markers, and markers that fall apart."""

import re
from collections.abc import Mapping, Sequence

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


def split_markers(template: ChatTemplate, vocabulary: Mapping[str, int]) -> tuple[str, ...]:
    """Markers the template writes like control tokens but which are no single token of the vocabulary."""
    texts = _renders(template, prompt=True)
    found = dict.fromkeys(marker for text in texts for marker in _MARKER.findall(text))
    return tuple(marker for marker in found if marker not in vocabulary)


def _renders(template: ChatTemplate, *, prompt: bool) -> list[str]:
    texts = []
    for chat in _CHATS:
        try:
            texts.append(template.render(chat, add_generation_prompt=prompt))
        except RenderError:
            continue
    return texts
