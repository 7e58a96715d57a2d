"""Runs a chat template as Hugging Face transformers does (`apply_chat_template`), except for the clock.

The environment is sandboxed Jinja2 with `trim_blocks` and `lstrip_blocks`, loop controls, a `tojson` that keeps Unicode
and accepts transformers' arguments, `raise_exception`, and `{% generation %}` as a transparent block. `strftime_now`
returns the recipe's date: a cache that depended on the day it was built could not be reproduced.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import jinja2
import jinja2.meta
import jinja2.nodes

from packer.host.watchdog import TemplateOverrunError, watched
from packer.render import reasoning_form, switches
from packer.render.reasoning_form import ReasoningForm
from packer.render.sandbox import Context, Environment, environment_of
from packer.render.settings import Value, keys_of, settings_of
from packer.render.switches import Switches

_PARAMETERS = {
    "type": "object",
    "properties": {"key": {"type": "string", "description": "A key."}},
    "required": ["key"],
}
_ANY_TOOLS = [{"type": "function", "function": {"name": "any", "description": "A tool.", "parameters": _PARAMETERS}}]

_AT = " at 0x"
_GIVEN = frozenset({"messages", "tools", "documents", "add_generation_prompt"})

_ADDRESS = re.compile(" at (0x[0-9a-f]+)")


class RenderError(Exception):
    """A row cannot be rendered, or its rendering cannot be trained on.

    If the template raised, the text is its own message.
    """

    def __init__(
        self, reason: str, *, code: str = "template_error", message: int | None = None, refusal: bool = False
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.refusal = refusal
        """Whether the template refused deliberately, with `raise_exception`, rather than failed."""

        self.message = message
        """Number of the message that the error is about, or None."""


class ChatTemplate:
    """A compiled template, together with the variables that are the same for all rows."""

    def __init__(
        self,
        source: str,
        *,
        date: str,
        variables: Mapping[str, Any],
        max_bytes: int,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Compile `source`; `kwargs` are the recipe's variables, without which some templates render nothing."""
        self.source = source
        self.date = date
        self.max_bytes = max_bytes
        self._recipe_kwargs = kwargs or {}
        self.variables = dict(variables)
        """Variables that are the same for all rows."""

        environment = environment_of(date)
        self.environment = environment
        self.read_variables: frozenset[str]
        """All variables that the template reads, and some that it may define itself."""

        try:
            self._template, self.read_variables, self._values, keys = watched(lambda: _compiled(environment, source))
            self._forms = reasoning_form.forms_of(keys)
            read = self.read_variables - _GIVEN - set(variables)
            self._globals = dict(self._template.globals)  # lookups in a chain of maps are slow
        except TemplateOverrunError:
            raise
        except Exception as error:  # also from Python's compiler and constant folding
            line, what = getattr(error, "lineno", None), getattr(error, "message", None) or error
            raise RenderError(f"not a valid Jinja template{f' (line {line})' if line else ''}: {what}") from error
        self.undeclared = tuple(sorted(read))
        """Variables that the template reads and only `template.kwargs` or a row can define, and some that the template
        may define itself."""

    @functools.cached_property
    def switches(self) -> Switches:
        """The variables that choose between prompts with and without reasoning."""
        values = {name: self._values[name] for name in self.undeclared}
        return switches.learned(values, self._forms, self._with_recipe)

    @functools.cached_property
    def reasoning(self) -> ReasoningForm:
        """How the template shows reasoning."""
        return reasoning_form.learned(self.switches.written, self._forms)

    def _with_recipe(
        self, messages: Sequence[Mapping[str, Any]], kwargs: Mapping[str, Any], *, prompt: bool = False
    ) -> str | None:
        """Render messages as :meth:`attempt` does, with further variables than the recipe's."""
        return self.attempt(messages, add_generation_prompt=prompt, kwargs={**self._recipe_kwargs, **kwargs})

    @functools.cached_property
    def takes_only_parts(self) -> bool:
        """Whether the template raises on a string as content, or writes nothing of it, but writes a list of one part.

        Those of some vision models do.
        """
        for in_parts in (False, True):
            contents: list[Any] = [[{"type": "text", "text": word}] if in_parts else word for word in ("x", "y")]
            chats = ([{"role": role, "content": each} for role in ("user", "assistant")] for each in contents)
            texts = {self.attempt(chat) for chat in chats}
            if len(texts - {None}) == 2:
                return in_parts
        return False

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Render messages to text, perhaps with the header of an answer; `kwargs` are further variables.

        Raises:
            RenderError: the template raised (the text is its own message), or the output cannot be accepted.
            TemplateOverrunError: it takes too long or too much memory.
        """
        return self.run(
            self._template, messages, tools=tools, add_generation_prompt=add_generation_prompt, kwargs=kwargs
        )

    def attempt(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str | None:
        """Render made-up or changed messages to learn about the template; return None where :meth:`render` raises.

        Templates for calls may take no row without tools: where they raise, they get one.
        """
        for more in ({}, {"tools": _ANY_TOOLS}):
            with suppress(RenderError):
                return self.render(messages, **more | options)
        return None

    def run(
        self,
        template: jinja2.Template,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None,
    ) -> str:
        """Render messages with another compilation of the template; see :meth:`render`."""
        variables = {**self._globals, "documents": None, **self.variables, **(kwargs or {})}
        variables |= {"tools": tools, "add_generation_prompt": add_generation_prompt, "messages": messages}
        # What `Template.render` does, without collecting the globals each time.
        context = Context(template.environment, variables, template.name, template.blocks, self._globals)
        return self._checked(lambda: "".join(template.root_render_func(context)), (messages, tools, kwargs))

    def _checked(self, render: Callable[[], str], row: Any) -> str:
        """Run a rendering and return its text if the text is acceptable."""
        try:
            text = watched(render)
        except TemplateOverrunError:
            raise
        except Exception as error:
            raise RenderError(_explain(error), refusal=type(error) is jinja2.TemplateError) from error
        if len(text) * 4 > self.max_bytes and len(text.encode("utf-8", "surrogatepass")) > self.max_bytes:
            raise RenderError(f"rendered to more than {self.max_bytes} bytes", code="render_too_large")
        if _AT in text:
            self._refuse_addresses(text, row)
        return text

    def _refuse_addresses(self, text: str, row: Any) -> None:
        """Refuse a text such as `<function f at 0x7f…>` that occurs neither in the row nor in the template.

        A template writes it when it names a method without calling it (`{{ x.items }}`). The address differs in every
        process.
        """
        said = f"{row} {self.variables} {self.source}"
        written = {*_ADDRESS.findall(text)}.difference(_ADDRESS.findall(said))  # of thousands, hardly any are left
        if any(address not in said for address in written):
            raise RenderError("the template writes an object with its address, such as a method it does not call")


@functools.lru_cache(maxsize=256)
def _compiled(
    environment: Environment, source: str
) -> tuple[jinja2.Template, frozenset[str], Mapping[str, tuple[Value, ...]], frozenset[str]]:
    """Compile a template and analyze it.

    Cached, because a command uses the same template again and again and compiling takes much longer than rendering. An
    entry takes about ten times as much memory as the source.

    Returns:
        The template, the variables it reads but does not set, the values to try for each, and the keys and short texts
        that it names.
    """
    parsed = environment.parse(source)
    undeclared = frozenset(jinja2.meta.find_undeclared_variables(parsed))
    settings, keys = settings_of(parsed, undeclared - _GIVEN), keys_of(parsed)
    return environment.from_string(parsed), undeclared, settings, keys


_MAX_REASON = 2000
"""Maximum length of an error message, in characters: Jinja includes the value in which it did not find something."""


def _explain(error: Exception) -> str:
    message = str(error)[:_MAX_REASON] or type(error).__name__
    if isinstance(error, jinja2.UndefinedError) and re.fullmatch(r"'\w+' is undefined", message):
        message += " (template.kwargs, or the row's chat_template_kwargs, can give it)"
    return message if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {message}"
