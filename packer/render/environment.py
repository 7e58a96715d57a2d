"""Runs a chat template as Hugging Face transformers does (`apply_chat_template`), except for the clock and for chance.

The environment is Jinja2's immutable sandbox with `trim_blocks` and `lstrip_blocks`, loop controls, a `tojson` that
keeps Unicode and accepts transformers' arguments, `raise_exception`, and `{% generation %}` as a transparent block.
`strftime_now` returns the recipe's date: a cache that depended on the day it was built could not be reproduced. In
addition to what Jinja's sandbox refuses, it refuses randomness (`lipsum`, `|random`) and unbounded recursion of macros.
The time and memory of a rendering are limited by :mod:`packer.host.watchdog`.
"""

import datetime as dt
import functools
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
import jinja2.sandbox
import jinja2.utils
from jinja2.exceptions import SecurityError

from packer.host.watchdog import TemplateOverrunError, watched
from packer.render.settings import Value, keys_of, settings_of
from packer.render.switches import ReasoningForm, Switches, forms_of, learned_form, learned_switches

MAX_DEPTH = 100
"""Maximum nesting depth of macro calls and recursive loops.

Python's own limit includes the caller's stack, and so would depend on how packer was started.
"""

MAX_PRODUCT = 2**20
"""Maximum size of a result of `*` and `**`, in characters, items or bits."""

_NESTING = (jinja2.runtime.Macro, jinja2.runtime.LoopContext)
_OF_DICT = frozenset(dir(dict))
"""Attributes of every dict, which take precedence over its keys."""

_SCALARS = frozenset({str, int, bool})
_PLAIN = frozenset({str, int, float, bool, type(None), list, dict})
"""Types that no rule of the sandbox is about."""


class Context(jinja2.runtime.Context):
    """Jinja's context, with a counter of the nesting depth of calls."""

    depth = 0


class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Compiles and runs templates.

    Its shortcuts for attributes and macros give the same results as Jinja's sandbox in half the time.
    """

    context_class = Context
    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, **options: Any) -> None:
        # The optimizer would fold large constants into the code, which then takes Python long to compile.
        super().__init__(optimized=False, **options)
        self.filters = {**self.filters, "random": _refuse_chance, "tojson": _tojson}

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return `obj.attribute`; mostly `obj` is a namespace or a message."""
        if type(obj) is _Namespace:
            value = object.__getattribute__(obj, "_Namespace__attrs").get(attribute)
            if type(value) in _SCALARS:
                return value
        elif isinstance(obj, dict) and attribute not in _OF_DICT:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        try:
            value = getattr(obj, attribute)
        except AttributeError:
            return super().getattr(obj, attribute)
        return value if type(value) in _PLAIN and attribute[0] != "_" else super().getattr(obj, attribute)

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        """Return `left * right` or `left ** right`, the operations that cannot be interrupted once they have started.

        Raises:
            SecurityError: the result is too large.
        """
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            size = left.bit_length() * right if abs(left) > 1 else 0
        else:
            size = max(_repeated(left, right), _repeated(right, left))
        if size > MAX_PRODUCT:
            raise SecurityError(f"the template makes a value of more than {MAX_PRODUCT:,} characters, items or bits")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # noqa: N805, PYI063 - Jinja's names, which no keyword argument has
        if __obj is _Namespace:
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return _Namespace(*args, **kwargs)
        if not isinstance(__obj, _NESTING):
            return super().call(__context, __obj, *args, **kwargs)
        __context.depth += 1
        if __context.depth > MAX_DEPTH:
            raise SecurityError(f"macros or loops are nested more than {MAX_DEPTH} deep")
        try:
            if type(__obj) is jinja2.runtime.Macro:  # always safe; what else Jinja asks takes most of the time
                kwargs.pop("_loop_vars", None)
                kwargs.pop("_block_vars", None)
                return __obj(__context.eval_ctx, *args, **kwargs)
            return super().call(__context, __obj, *args, **kwargs)
        finally:
            __context.depth -= 1


class GenerationMarks(jinja2.ext.Extension):
    """The tag `{% generation %}` … `{% endgeneration %}`, with which templates mark answers: renders its body."""

    tags = {"generation"}  # noqa: RUF012 - the attribute Jinja reads

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        # As in transformers' call block, assignments inside have a scope of their own.
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


class _Namespace(jinja2.utils.Namespace):
    """Refuses names that reach into the interpreter, as transformers does."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *positional = args
        attributes = dict(*positional, **kwargs)
        for name in attributes:
            _Namespace._check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _Namespace._check(name)
        super().__setitem__(name, value)

    @staticmethod
    def _check(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace cannot hold the attribute {name!r}")


@functools.cache
def environment_of(date: str) -> Environment:
    """Return the environment shared by all templates of a recipe."""
    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationMarks, jinja2.ext.loopcontrols],
    )

    def raise_exception(message: Any) -> NoReturn:
        raise jinja2.TemplateError(message)

    def strftime_now(form: str) -> str:
        return dt.datetime.fromisoformat(date).strftime(form)

    environment.globals.update(
        lipsum=_refuse_chance, namespace=_Namespace, raise_exception=raise_exception, strftime_now=strftime_now
    )
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates may pass it by position
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - as above
) -> str:
    """Write a value as transformers' filter does."""
    if indent is None or separators is not None or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    compact = json.dumps(value, ensure_ascii=ensure_ascii, sort_keys=sort_keys)
    return _indented(compact, indent, ensure_ascii=bool(ensure_ascii))


@functools.lru_cache(maxsize=32)
def _indented(compact: str, indent: int | str, *, ensure_ascii: bool) -> str:
    """Indent JSON, which takes Python twenty times as long as to write it compactly; rows share their tools."""
    return json.dumps(json.loads(compact), ensure_ascii=ensure_ascii, indent=indent)


def _repeated(value: Any, number: Any) -> int:
    return len(value) * number if isinstance(value, str | list | tuple) and isinstance(number, int) else 0


def _refuse_chance(*_: Any, **__: Any) -> NoReturn:
    raise SecurityError("lipsum() and |random give random results: a build could not be repeated")


def made_up_tool(name: str, *parameters: str) -> dict[str, Any]:
    """Return a tool to try templates with, of which the first parameter is required."""
    properties = {each: {"type": "string", "description": "A key."} for each in parameters}
    schema = {"type": "object", "properties": properties, "required": [*parameters[:1]]}
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema}}


_ANY_TOOLS = [made_up_tool("any", "key")]

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

        environment = self.environment = environment_of(date)
        try:
            self._template, self.read_variables, self._values, keys = watched(lambda: _compiled(environment, source))
        except TemplateOverrunError:
            raise
        except Exception as error:  # also from Python's compiler and constant folding
            line, what = getattr(error, "lineno", None), getattr(error, "message", None) or error
            raise RenderError(f"not a valid Jinja template{f' (line {line})' if line else ''}: {what}") from error
        self._forms = forms_of(keys)
        self._globals = dict(self._template.globals)  # lookups in a chain of maps are slow
        self.undeclared = tuple(sorted(self.read_variables - _GIVEN - set(variables)))
        """Variables that the template reads and only `template.kwargs` or a row can define, and some that the template
        may define itself."""

    @functools.cached_property
    def switches(self) -> Switches:
        """The variables that choose between prompts with and without reasoning."""
        values = {name: self._values[name] for name in self.undeclared}
        return learned_switches(values, self._forms, self._with_recipe)

    @functools.cached_property
    def reasoning(self) -> ReasoningForm:
        """How the template shows reasoning."""
        return learned_form(self.switches.written, self._forms)

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
        compiled: jinja2.Template | None = None,
    ) -> str:
        """Render messages to text, perhaps with the header of an answer; `kwargs` are further variables.

        `compiled`: another compilation of the template.

        Raises:
            RenderError: the template raised (the text is its own message), or the output cannot be accepted.
            TemplateOverrunError: it takes too long or too much memory.
        """
        template = compiled or self._template
        variables = {**self._globals, "documents": None, **self.variables, **(kwargs or {})}
        variables |= {"tools": tools, "add_generation_prompt": add_generation_prompt, "messages": messages}
        # What `Template.render` does, without collecting the globals each time.
        context = Context(template.environment, variables, template.name, template.blocks, self._globals)
        try:
            text = watched(lambda: "".join(template.root_render_func(context)))
        except TemplateOverrunError:
            raise
        except Exception as error:
            raise RenderError(_explain(error), refusal=type(error) is jinja2.TemplateError) from error
        if len(text) * 4 > self.max_bytes and len(text.encode("utf-8", "surrogatepass")) > self.max_bytes:
            raise RenderError(f"rendered to more than {self.max_bytes} bytes", code="render_too_large")
        if _AT in text:
            self._refuse_addresses(text, (messages, tools, kwargs))
        return text

    def attempt(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str | None:
        """Render made-up or changed messages to learn about the template; return None where :meth:`render` raises.

        Templates for calls may take no row without tools: where they raise, they get one.
        """
        for more in ({}, {"tools": _ANY_TOOLS}):
            with suppress(RenderError):
                return self.render(messages, **more | options)
        return None

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
