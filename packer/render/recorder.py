"""Records what a template does with texts while a conversation of placeholder texts is rendered.

Each placeholder is passed to the template as a symbolic text (:mod:`packer.render.symbolic`), and the output shows
where it went. The same conversation was rendered in the regular environment before, under that one's limits.
"""

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from packer.render.environment import ChatTemplate, RenderError
from packer.render.symbolic import (
    Condition,
    OpaqueError,
    Questions,
    Slot,
    SymbolicText,
    joined,
    pieces_of,
    refuse_stand_ins,
)
from packer.render.symbolic_environment import ContainerQueries, SymbolicEnvironment, join_texts, symbolic_environment
from packer.watchdog import TemplateOverrunError, watched

_MARK = "zqslot"
_MADE_UP = re.compile(rf"{_MARK}([0-9]{{6}})")
WRITTEN = re.compile(rf"{_MARK}([0-9]{{6}})s([0-9]{{3,}})x".encode())
"""Matches a placeholder in the output: its number, and the number of the way it was stripped."""


def placeholder_text(number: int) -> str:
    """Return a placeholder text, which occurs in no conversation except as a whole text."""
    return f"{_MARK}{number:06d}"


class TemplateRecorder:
    """Renders as :class:`ChatTemplate` does, and records the conditions under which the result holds for other texts.

    Conversations without placeholders are left to the template itself.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self.modes = template.modes
        self.takes_only_parts = template.takes_only_parts
        self._template = template
        self._questions = Questions()
        self._changes: list[tuple[Any, ...]] = []
        self._prompts: dict[int, list[Counter[Slot]]] = {}
        self._turns: list[int] = []

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Render as :meth:`ChatTemplate.render` does; each placeholder in the output shows how it was stripped.

        Raises:
            OpaqueError: the template looks into a text.
            RenderError: the template raises.
        """
        if tools:
            raise OpaqueError("tools")
        if _MARK not in str(messages):
            return self._template.render(messages, add_generation_prompt=add_generation_prompt, kwargs=kwargs)
        symbolic = [{name: self._symbolic(value) for name, value in message.items()} for message in messages]
        variables: dict[str, Any] = {"documents": None, **self._template.variables, **(kwargs or {}), "tools": None}
        variables |= {"messages": symbolic, "add_generation_prompt": add_generation_prompt}
        pieces = pieces_of(_recorded(self._template, variables))
        if any(isinstance(piece, str) and _MARK in piece for piece in pieces):
            raise OpaqueError("the template writes what stands for texts")
        refuse_stand_ins(self._questions)
        if add_generation_prompt:
            slots = Counter(piece for piece in pieces if isinstance(piece, Slot))
            self._prompts.setdefault(len(messages), []).append(slots)
        elif self._prompts:
            self._turns.append(len(messages))
        return "".join(piece if isinstance(piece, str) else self._written(piece) for piece in pieces)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What texts must not contain, start with, end with or equal."""
        return tuple(dict.fromkeys(self._questions))

    @property
    def rendered_each_turn_once(self) -> bool:
        """Whether every turn was rendered once (the first mode fitted), after prompts that contain the same slots."""
        alike = all(prompt == prompts[0] for prompts in self._prompts.values() for prompt in prompts)
        prompted = all(number - 1 in self._prompts for number in self._turns)  # else only to find the next header
        return alike and prompted and len(set(self._turns)) == len(self._turns)

    def slot(self, written: re.Match[bytes]) -> Slot:
        """Return the slot of a placeholder in the output."""
        return Slot(int(written[1]), self._changes[int(written[2])])

    def _symbolic(self, value: Any) -> Any:
        match = _MADE_UP.fullmatch(value) if isinstance(value, str) else None
        if match is None and _MARK in str(value):
            raise OpaqueError("a text that was changed")
        return SymbolicText([Slot(int(match[1]))], self._questions) if match else value

    def _written(self, slot: Slot) -> str:
        if slot.changes not in self._changes:
            self._changes.append(slot.changes)
        return f"{placeholder_text(slot.number)}s{self._changes.index(slot.changes):03d}x"


def _recorded(template: ChatTemplate, variables: dict[str, Any]) -> str:
    try:
        compiled = watched(lambda: _compiled(symbolic_environment(template.date, SymbolicEnvironment), template.source))
        return watched(lambda: joined(compiled.root_render_func(compiled.new_context(variables))))
    except TemplateOverrunError as error:
        raise OpaqueError("recording takes too long") from error
    except OpaqueError:
        raise
    except Exception as error:
        raise RenderError(str(error)) from error


@functools.lru_cache(maxsize=16)
def _compiled(environment: SymbolicEnvironment, source: str) -> jinja2.Template:
    """Compile a template for recording; cached for the reason given in :mod:`packer.render.environment`."""
    template = environment.from_string(ContainerQueries().visit(environment.parse(source)))
    join_texts(template)
    return template
