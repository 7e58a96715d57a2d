"""Records what a template does with texts while a conversation of placeholder texts is rendered.

Each placeholder is passed to the template as a symbolic text (:mod:`packer.render.symbolic`), and the output shows
where it went. The same conversation was rendered in the regular environment before, under that one's limits.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import jinja2

from packer.render.environment import ChatTemplate, RenderError
from packer.render.symbolic import (
    Condition,
    OpaqueError,
    Piece,
    Questions,
    Slot,
    SymbolicText,
    joined,
    pieces_of,
    refuse_stand_ins,
)
from packer.render.symbolic_environment import ContainerQueries, SymbolicEnvironment, join_texts, symbolic_environment
from packer.watchdog import TemplateOverrunError, watched

T = TypeVar("T")

_MOST_CHARACTERS = 2**25
"""Characters of conversations whose renderings are kept; what is recorded of a message counts as a thousand."""

_MARK = "zqslot"
_MADE_UP = re.compile(rf"{_MARK}([0-9]{{6}})")
WRITTEN = re.compile(rf"{_MARK}([0-9]{{6}})s([0-9]{{3,}})x".encode())
"""Matches a placeholder in the output: its number, and the number of the way it was stripped."""


def placeholder_text(number: int) -> str:
    """Return a placeholder text, which occurs in no conversation except as a whole text."""
    return f"{_MARK}{number:06d}"


Recorded: TypeAlias = tuple[Sequence[Piece], Questions]
"""What a template writes for placeholders, and what it asks about them."""


class Renderings(Generic[T]):
    """Renderings of conversations that begin with the same messages again and again, kept by what is rendered."""

    def __init__(self) -> None:
        self._kept: dict[Any, T] = {}
        self._size = 0

    def of(
        self,
        messages: Sequence[Mapping[str, Any]],
        kwargs: Mapping[str, Any] | None,
        render: Callable[[], T],
        *,
        prompt: bool,
    ) -> T:
        """Return the rendering that is kept, or else make it. Errors are not kept, nor contents that are lists."""
        key = (tuple([tuple(message.items()) for message in messages]), prompt, repr(kwargs))
        try:
            found = self._kept.get(key)
        except TypeError:
            return render()
        if found is None:
            found = render()
            size = sum(len(value) for message in messages for value in message.values() if isinstance(value, str))
            size += 1000 * len(messages)
            self._size += size
            if self._size > _MOST_CHARACTERS:
                self._kept, self._size = {}, size
            self._kept[key] = found
        return found


class TrialTemplate:
    """Renders conversations without tools as :class:`ChatTemplate` does, and keeps what it has rendered."""

    def __init__(self, template: ChatTemplate) -> None:
        self.modes = template.modes
        self.takes_only_parts = template.takes_only_parts
        self.template = template
        self._rendered = Renderings[str]()
        self.recorded = Renderings[Recorded]()
        """What a :class:`TemplateRecorder` has rendered."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """As :meth:`ChatTemplate.render`."""
        assert not tools
        prompt = add_generation_prompt
        render = functools.partial(self.template.render, messages, add_generation_prompt=prompt, kwargs=kwargs)
        return self._rendered.of(messages, kwargs, render, prompt=prompt)


class TemplateRecorder:
    """Renders as :class:`ChatTemplate` does, and records the conditions under which the result holds for other texts.

    Conversations without placeholders are left to the template itself.
    """

    def __init__(self, trial: TrialTemplate) -> None:
        self.modes = trial.modes
        self.takes_only_parts = trial.takes_only_parts
        self._trial = trial
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
            return self._trial.render(messages, add_generation_prompt=add_generation_prompt, kwargs=kwargs)
        template = self._trial.template
        variables: dict[str, Any] = {"documents": None, **template.variables, **(kwargs or {}), "tools": None}
        variables["add_generation_prompt"] = add_generation_prompt
        record = functools.partial(_record, template, messages, variables)
        pieces, questions = self._trial.recorded.of(messages, kwargs, record, prompt=add_generation_prompt)
        self._questions += questions
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

    def _written(self, slot: Slot) -> str:
        if slot.changes not in self._changes:
            self._changes.append(slot.changes)
        return f"{placeholder_text(slot.number)}s{self._changes.index(slot.changes):03d}x"


def _record(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> Recorded:
    questions = Questions()
    symbolic = [{name: _symbolic(value, questions) for name, value in message.items()} for message in messages]
    pieces = pieces_of(_recorded(template, {**variables, "messages": symbolic}))
    if any(isinstance(piece, str) and _MARK in piece for piece in pieces):
        raise OpaqueError("the template writes what stands for texts")
    refuse_stand_ins(questions)
    return pieces, questions


def _symbolic(value: Any, questions: Questions) -> Any:
    match = _MADE_UP.fullmatch(value) if isinstance(value, str) else None
    if match is None and _MARK in str(value):
        raise OpaqueError("a text that was changed")
    return SymbolicText([Slot(int(match[1]))], questions) if match else value


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
