"""A chat template that renders one conversation again and again, and remembers what its loops came to."""

from collections.abc import Mapping, Sequence
from typing import Any

from packer.render.environment import ChatTemplate, RenderError
from packer.render.resuming import Memory, UnresumableError

_FEW = 4
"""A conversation shorter than this is rendered in the time that looking up what is remembered of it takes."""

_MAX_FAILED = 2
"""Renderings that could not go on, and were done twice, before a conversation is rendered as it is."""


class RememberingTemplate:
    """A template, for one conversation.

    Args:
        template: renders what is new.

    """

    def __init__(self, template: ChatTemplate) -> None:
        self.modes = template.modes
        self.takes_only_parts = template.takes_only_parts
        self._template = template
        self._memory: Memory | None = None
        self._num_failed = 0

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """As :meth:`ChatTemplate.render`."""
        if len(messages) >= _FEW and self._memory is None:
            self._memory = self._template.memory_for(len(messages))
        if len(messages) >= _FEW and self._memory is not None and self._num_failed < _MAX_FAILED:
            try:
                return self._template.render(
                    messages,
                    tools=tools,
                    add_generation_prompt=add_generation_prompt,
                    kwargs=kwargs,
                    memory=self._memory,
                )
            except UnresumableError:
                self._num_failed = _MAX_FAILED
                self._template.forget_memories()
            except RenderError:
                self._num_failed += 1  # it is told as the template by itself puts it
        return self._template.render(messages, tools=tools, add_generation_prompt=add_generation_prompt, kwargs=kwargs)
