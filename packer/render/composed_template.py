"""A template for the renderings of one conversation: composed if possible, else rendered from the first message."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from packer.render.environment import ChatTemplate
from packer.render.symbolic import OpaqueError


class ComposedTemplate:
    """A template for all renderings of one conversation."""

    def __init__(self, template: ChatTemplate, num_messages: int) -> None:
        self.modes = template.modes
        self.takes_only_parts = template.takes_only_parts
        self._template = template
        self._composition = template.new_composition(num_messages)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """As :meth:`ChatTemplate.render`."""
        render = functools.partial(
            self._template.render, messages, tools=tools, add_generation_prompt=add_generation_prompt, kwargs=kwargs
        )
        if self._composition is None or not messages:
            return render()
        try:
            text = self._composition.text(messages, tools, kwargs or {}, add_generation_prompt=add_generation_prompt)
        except OpaqueError:
            rendered = render()  # if it raises, the template may take the messages in another form
            self._composition.note_failure()
            self._composition = None
            return rendered
        self._template.refuse_if_large(text)
        return text
