"""A template for the renderings of one conversation, by the fastest way that serves."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from packer.render.environment import FEW_MESSAGES, ChatTemplate, RenderError
from packer.render.opening import NotIncrementalError
from packer.render.symbolic import OpaqueError

_FEWEST = 3
"""Prefixes of up to this many messages of a longer conversation are rendered from the first message, too."""


class IncrementalTemplate:
    """A template for all renderings of one conversation; each continues an earlier one if possible."""

    def __init__(self, template: ChatTemplate, num_messages: int) -> None:
        self.modes = template.modes
        self.takes_only_parts = template.takes_only_parts
        self._template = template
        self._composition = template.new_composition(num_messages)
        self._renderings = template.new_renderings(num_messages)
        self._first: Mapping[str, Any] | None = None
        """The first message of the last prompt; renderings that begin with another message rarely continue each other.
        """

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
        if self._composition is not None and messages:
            try:
                text: str = self._composition.text(
                    messages, tools, kwargs or {}, add_generation_prompt=add_generation_prompt
                )
            except OpaqueError:
                text = render()  # if it raises, the template may take the messages in another form
                self._composition.note_failure()
                self._composition = None
            self._template.refuse_if_large(text)
            return text
        if add_generation_prompt and messages:
            self._first = messages[0]
        is_own = bool(messages) and messages[0] is self._first
        few = _FEWEST if is_own else 2 * FEW_MESSAGES
        if len(messages) > few and self._renderings is not None:
            try:
                return render(renderings=self._renderings)
            except NotIncrementalError:
                self._renderings = None
            except RenderError:
                pass  # report the error of a full rendering
        return render()
