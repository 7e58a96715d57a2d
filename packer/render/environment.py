"""A chat template, run as Hugging Face transformers runs it (`apply_chat_template`), but for the clock.

Sandboxed Jinja2 with `trim_blocks` and `lstrip_blocks`, loop controls, a `tojson` that keeps Unicode and takes its
arguments, `raise_exception`, and `{% generation %}` as a transparent block. `strftime_now` sees the recipe's date: a
cache that depended on the day it was built could not be built again.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
import jinja2.meta
import jinja2.nodes

from packer.render.incremental import NotIncrementalError, Renderings, loop_of
from packer.render.sandbox import CLOSE, OPEN, Context, Environment, environment_of, marking
from packer.render.settings import is_default
from packer.render.stoppable import Stoppable, stoppable
from packer.watchdog import TemplateOverrunError, watched

MODE_SWITCHES = ("enable_thinking", "thinking")
"""Template variables known to choose between a thinking and a plain prompt."""

WORTH_COMPILING = 8192
"""Messages that are rendered in about the time in which a template is compiled; each as often as one follows it."""

FEW_MESSAGES = 16
"""Conversations of so many are rendered from the first at least as fast as going on: tools under the templates of Llama
3.1 and Qwen3 take 0.8 to 1.0 times as long."""

_FEWEST = 3
"""So many messages of a longer conversation are rendered from the first as well."""

_GIVEN = frozenset({"messages", "tools", "documents", "add_generation_prompt"})

_AT = " at 0x"
_ADDRESS = re.compile(" at (0x[0-9a-f]+)")

_SWITCH_LIKE = re.compile("think|reason")


class RenderError(Exception):
    """The template raised, or wrote more than the limit; the reason is the template's own."""

    def __init__(
        self, reason: str, *, code: str = "template_error", message: int | None = None, refusal: bool = False
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.refusal = refusal
        """Whether the template says no in words of its own, and does not break."""

        self.message = message
        """Number of the message the reason is about, where it is about one."""


class ChatTemplate:
    """One compiled template with the variables that never change between rows."""

    def __init__(self, source: str, *, date: str, variables: Mapping[str, Any], max_bytes: int) -> None:
        """Compile `source`.

        Raises:
            RenderError: the template is not valid Jinja.

        """
        self.source = source
        self.date = date
        self.max_bytes = max_bytes
        self._num_rendered = 0
        self.variables = dict(variables)
        """Those that never change between rows."""

        environment = environment_of(date)
        self.has_marks: bool
        """Whether the template has `{% generation %}` blocks."""
        self.constants: tuple[str, ...]
        """Texts that stand in its expressions, in their order."""

        try:
            self._template, undeclared, self._defaults, self.has_marks, self.constants = watched(
                lambda: _compiled(environment, source)
            )
            read = undeclared - _GIVEN - set(variables)
            self._globals = dict(self._template.globals)  # looking through a chain of maps is slow
        except TemplateOverrunError:
            raise
        except Exception as error:  # Jinja lets Python's compiler speak, and what it computes beforehand
            line = getattr(error, "lineno", None)
            raise RenderError(f"not a valid Jinja template{f' (line {line})' if line else ''}: {error}") from error
        self.undeclared = tuple(sorted(read))
        """Variables it reads that only `template.kwargs` or a row can give, and some that it may set itself."""

        self._switches = sorted(filter(_is_switch, read))

    @functools.cached_property
    def modes(self) -> tuple[tuple[str, bool], ...]:
        """Settings of one variable each that choose the prompt, but for those that the template takes anyway.

        Known switches it reads, on and off; and what is found by trying variables of like names: a value that changes
        the prompt for an answer, and neither the chat before it nor an answer to it.
        """
        return tuple(pair for pair in self._settings if pair not in self._defaults)

    @functools.cached_property
    def _settings(self) -> tuple[tuple[str, bool], ...]:
        tried = ((name, value) for name in self._switches for value in (True, False))
        return tuple(pair for pair in tried if pair[0] in MODE_SWITCHES or self._changes_prompt_alone(*pair))

    @property
    def switches(self) -> tuple[str, ...]:
        """The variables that choose the prompt."""
        return tuple(dict.fromkeys(name for name, _ in self._settings))

    def _changes_prompt_alone(self, name: str, value: bool) -> bool:  # noqa: FBT001 - a variable's value
        asked = [{"role": "user", "content": "x"}]
        answered = [*asked, {"role": "assistant", "content": "y"}]
        kwargs = {name: value}
        try:
            same = all(self.render(chat) == self.render(chat, kwargs=kwargs) for chat in (asked, answered))
            plain = self.render(asked, add_generation_prompt=True)
            return same and plain != self.render(asked, add_generation_prompt=True, kwargs=kwargs)
        except RenderError:
            return False

    @functools.cached_property
    def takes_only_parts(self) -> bool:
        """Whether it raises on a text as content and takes a list of one part: templates of some vision models."""
        for content in ("x", [{"type": "text", "text": "x"}]):
            try:
                self.render([{"role": "user", "content": content}, {"role": "assistant", "content": content}])
            except RenderError:
                continue
            return not isinstance(content, str)
        return False

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None = None,
        renderings: Renderings | None = None,
    ) -> str:
        """Render messages to text.

        Args:
            messages: the conversation, or its beginning.
            tools: definitions of tools.
            add_generation_prompt: end with what the model goes on from.
            kwargs: further variables.
            renderings: of :meth:`new_renderings`, of the same conversation; what is given must stay as it is.

        Raises:
            RenderError: whatever the template raised, in its own words.
            NotIncrementalError: it cannot go on from them.
            TemplateOverrunError: it takes too long, or too much memory.

        """
        variables = self._variables(tools, kwargs, add_generation_prompt=add_generation_prompt)
        if renderings is not None:
            return self._checked(lambda: renderings.text(messages, variables), (messages, tools, kwargs))
        template, variables["messages"] = self._template, messages
        context = self._context(template, variables)
        return self._checked(lambda: "".join(template.root_render_func(context)), (messages, tools, kwargs))

    def _variables(
        self, tools: Any, kwargs: Mapping[str, Any] | None, *, add_generation_prompt: bool
    ) -> dict[str, Any]:
        """All but the messages."""
        variables = {"documents": None, **self.variables, **(kwargs or {})}
        return variables | {"tools": tools, "add_generation_prompt": add_generation_prompt}

    def _context(self, template: jinja2.Template, variables: Mapping[str, Any]) -> Context:
        """What `Template.render` does, without gathering the globals every time."""
        everything = {**self._globals, **variables}
        return Context(template.environment, everything, template.name, template.blocks, self._globals)

    def _checked(self, render: Callable[[], str], row: Any) -> str:
        """What a rendering writes, if it may.

        Raises:
            RenderError: whatever the template raised, or it writes too much or an address.

        """
        try:
            text = watched(render)
        except (TemplateOverrunError, NotIncrementalError):
            raise
        except Exception as error:
            raise RenderError(_explain(error), refusal=type(error) is jinja2.TemplateError) from error
        if len(text) * 4 > self.max_bytes and len(text.encode("utf-8", "surrogatepass")) > self.max_bytes:
            raise RenderError(f"rendered to more than {self.max_bytes} bytes", code="render_too_large")
        if _AT in text:
            self._refuse_addresses(text, row)
        return text

    def _refuse_addresses(self, text: str, row: Any) -> None:
        """Refuse a text such as `<function f at 0x7f…>` that neither the row nor the template holds.

        Templates write it that do not call what they name (`{{ x.items }}`); it is another in every process.

        Raises:
            RenderError: there is one.

        """
        said = f"{row} {self.variables} {self.source}"
        if any(address not in said for address in _ADDRESS.findall(text)):
            raise RenderError("the template writes an object with its address, such as a method it does not call")

    def new_renderings(self, num_messages: int) -> Renderings | None:
        """For the renderings of one conversation, that go on from each other.

        None for templates of other forms, for short conversations, and until there were enough of them for the time
        that it takes to compile the template a second time.
        """
        if num_messages <= FEW_MESSAGES:
            return None
        self._num_rendered += num_messages**2
        if self._num_rendered < WORTH_COMPILING or self._stoppable is None:
            return None
        return Renderings(self._stoppable, self._context)

    @functools.cached_property
    def _stoppable(self) -> Stoppable | None:
        environment = self._template.environment
        assert isinstance(environment, Environment)
        try:
            return watched(lambda: _compiled_stoppable(environment, self.source, self.switches))
        except (RecursionError, SyntaxError, jinja2.TemplateError):  # less of the stack is left than the first time
            return None

    def render_marked(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[str, tuple[tuple[int, int], ...]]:
        """The text of :meth:`render`, and the character ranges that `{% generation %}` blocks wrote, in their order.

        Each block writes a private-use character before and after what is in it; they are taken out again. So a block
        inside a macro or a captured variable is found where its text ends up.

        Raises:
            RenderError: whatever the template raised; or the marks change what it writes.

        """
        token = marking.set(True)
        try:
            marked = self.render(messages, tools=tools, kwargs=kwargs)
        finally:
            marking.reset(token)
        text = self.render(messages, tools=tools, kwargs=kwargs)
        if marked.replace(OPEN, "").replace(CLOSE, "") != text or OPEN in text or CLOSE in text:
            raise RenderError("the generation marks of the template cannot be distinguished from its text")
        ranges: list[tuple[int, int]] = []
        begun: list[int] = []
        for number, match in enumerate(re.finditer(f"[{OPEN}{CLOSE}]", marked)):
            place = match.start() - number
            if match[0] == OPEN:
                begun.append(place)
            elif begun:
                ranges.append((begun.pop(), place))
        return text, tuple(sorted(ranges))


class IncrementalTemplate:
    """A template for the renderings of one conversation, each of which goes on from an earlier one where it can.

    Args:
        template: what is rendered.
        num_messages: of the conversation.

    """

    def __init__(self, template: ChatTemplate, num_messages: int) -> None:
        self.modes = template.modes
        self.takes_only_parts = template.takes_only_parts
        self._template = template
        self._renderings = template.new_renderings(num_messages)
        self._first: Mapping[str, Any] | None = None
        """The first message of what prompts are made of; few other renderings go on from each other."""

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
                pass  # the error is the one of a whole rendering
        return render()


@functools.lru_cache(maxsize=256)
def _compiled(
    environment: Environment, source: str
) -> tuple[jinja2.Template, frozenset[str], frozenset[tuple[str, bool]], bool, tuple[str, ...]]:
    """A template, what it reads without having set it, settings of switches it takes anyway, whether it has marks, and
    the texts in its expressions.

    Kept, as a command asks for the same template again and again, and compiling takes much longer than rendering. What
    is kept is about ten times as large as the source.
    """
    parsed = environment.parse(source)
    calls = parsed.find_all(jinja2.nodes.Call)
    has_marks = any(isinstance(call.node, jinja2.nodes.ExtensionAttribute) for call in calls)
    undeclared = frozenset(jinja2.meta.find_undeclared_variables(parsed))
    settings = ((name, value) for name in filter(_is_switch, undeclared) for value in (True, False))
    defaults = frozenset(pair for pair in settings if is_default(parsed, *pair))
    texts = (each.value for each in parsed.find_all(jinja2.nodes.Const) if isinstance(each.value, str))
    constants = tuple(dict.fromkeys(texts))
    return environment.from_string(parsed), undeclared, defaults, has_marks, constants


def _is_switch(name: str) -> bool:
    return name in MODE_SWITCHES or _SWITCH_LIKE.search(name) is not None


@functools.lru_cache(maxsize=256)
def _compiled_stoppable(environment: Environment, source: str, switches: tuple[str, ...]) -> Stoppable | None:
    found = stoppable(environment, source, ("add_generation_prompt", *switches))
    if found is not None:
        found.template.root_render_func.__globals__["LoopContext"] = loop_of
    return found


_MAX_REASON = 2000
"""Most characters of a reason, since Jinja puts what it did not find into it."""


def _explain(error: Exception) -> str:
    message = str(error)[:_MAX_REASON] or type(error).__name__
    if isinstance(error, jinja2.UndefinedError) and re.fullmatch(r"'\w+' is undefined", message):
        message += " (template.kwargs, or the row's chat_template_kwargs, can give it)"
    return message if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {message}"
