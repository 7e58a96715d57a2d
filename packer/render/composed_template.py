"""A template for the renderings of one conversation: composed if possible, else rendered from the first message."""

from collections.abc import Mapping, Sequence
from typing import Any

from packer.render.environment import ChatTemplate
from packer.render.symbolic import OpaqueError

_NONE: Mapping[str, Any] = {}
"""One object, since a :class:`Composition` finds settings by the identity of the variables."""


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
        composition, prompt = self._composition, add_generation_prompt
        if composition is not None and messages:
            try:
                text = composition.text(
                    messages, tools, _NONE if kwargs is None else kwargs, add_generation_prompt=prompt
                )
            except OpaqueError:
                pass
            else:
                self._template.refuse_if_large(text)
                return text
        # If this raises, the template may take the messages in another form.
        rendered = self._template.render(messages, tools=tools, add_generation_prompt=prompt, kwargs=kwargs)
        if composition is not None and messages:
            composition.note_failure()
            self._composition = None
        return rendered
