"""Learns about a template from rendering small conversations: the headers of its roles, the markers it writes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from packer.model.model import AddedToken
from packer.render.environment import ChatTemplate, RenderError
from packer.render.reasoning import ANY_TAG

_MARKER = re.compile(r"<\|[^\s<>|]{1,60}\|?>|<[^\s<>|]{1,60}\|>|<｜[^\s<>｜]{1,60}｜>|<(?:start|end)_of_turn>")
"""Text that looks like a control token."""

_USER = {"role": "user", "content": "ping"}
_ASSISTANT = {"role": "assistant", "content": "pong"}
_CHATS = (
    [{"role": "system", "content": "sys"}, _USER, _ASSISTANT, _USER],
    [_USER, _ASSISTANT, _USER],
    [_USER],
)


def role_markers(
    template: ChatTemplate, added_tokens: Sequence[AddedToken], kwargs: Mapping[str, Any] | None = None
) -> dict[str, int]:
    """Return the added tokens that the template writes around plain messages (the headers of roles), with their ids.

    `kwargs` are the recipe's variables for the template, without which some templates render nothing.

    Paired tags that do not surround user messages structure an answer and are not role markers. Nor are tags of
    reasoning, even if instructions of the template's own name them (SmolLM3), nor added tokens that any text may
    contain.
    """
    contents = {token.content for token in added_tokens}
    around_user = "".join(_renders(template, kwargs, prompt=False)[-1:])
    anywhere = "".join(_renders(template, kwargs, prompt=True))
    return {
        token.content: token.id
        for token in added_tokens
        if not token.is_text
        and not ANY_TAG.fullmatch(token.content)
        and (token.content in around_user or (token.content in anywhere and not _partner(token.content) & contents))
    }


def _partner(content: str) -> set[str]:
    """Return the closing tag of an opening one, and vice versa: `<x>` and `</x>`, `[X]` and `[/X]`."""
    tag = re.fullmatch(r"([<\[])(/?)(.+)", content)
    return {f"{tag[1]}{'' if tag[2] else '/'}{tag[3]}"} if tag else set()


def written_markers(template: ChatTemplate, kwargs: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return the texts written by the template that look like control tokens, in order of appearance."""
    texts = _renders(template, kwargs, prompt=True)
    return tuple(dict.fromkeys(marker for text in texts for marker in _MARKER.findall(text)))


def _renders(template: ChatTemplate, kwargs: Mapping[str, Any] | None, *, prompt: bool) -> list[str]:
    texts = []
    for chat in _CHATS:
        try:
            texts.append(template.render(chat, add_generation_prompt=prompt, kwargs=kwargs))
        except RenderError:
            continue
    return texts
