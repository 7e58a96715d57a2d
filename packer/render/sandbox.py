"""Where templates run: Jinja's immutable sandbox as transformers sets it up, with bounds, and with nothing of chance.

Beyond what Jinja's sandbox refuses: what is random (`lipsum`, `|random`), what would write the address of an object
(`{{ x.items }}` without a call, a filter's generator that nothing reads), methods that chat templates have no use
for, and every value beyond :mod:`packer.render.bounds`.
"""

import contextvars
import datetime as dt
import functools
import operator
import re
from collections.abc import Callable
from types import BuiltinMethodType, FunctionType, MethodType, MethodWrapperType
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.parser
import jinja2.runtime
import jinja2.sandbox
import jinja2.tests
import jinja2.utils
from jinja2 import nodes
from jinja2.exceptions import SecurityError

from packer.render.bounds import MAX_ITEMS, SCALARS, Bounds, check_items, check_search, check_settings, check_width
from packer.render.cacheable import AT, CACHED
from packer.render.filters import bounded_filters, listed
from packer.render.render_cache import at, cached
from packer.render.rewriting import operators, rewritten

MAX_DEPTH = 100
"""Macros, and loops over their own items, that stand within one another.

Python's own limit counts what called the template too, and so would depend on how packer was started.
"""

_FUNCTIONS = (BuiltinMethodType, MethodType, FunctionType, MethodWrapperType)
_NESTING = (jinja2.runtime.Macro, jinja2.runtime.LoopContext)
_OF_DICT = frozenset(dir(dict))
_WITH_METHODS = frozenset({str, dict, list})
_DATA = (str, dict, list, tuple, range, int, float)
_METHODS = frozenset(
    {"capitalize", "casefold", "center", "copy", "count", "endswith", "find", "format", "format_map", "get", "index"}
    | {"isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isprintable", "isspace"}
    | {"istitle", "isupper", "items", "join", "keys", "ljust", "lower", "lstrip", "partition", "removeprefix"}
    | {"removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines"}
    | {"startswith", "strip", "swapcase", "title", "upper", "values", "zfill"}
)
"""Of texts, lists and dicts; chat templates have no use for others."""

_COMPARING = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, jinja2.tests.test_in)
_PLAIN = frozenset({str, int, float, bool, type(None), list, dict})
"""What holds no more than itself."""

OPEN, CLOSE = "\ue0f2", "\ue0f3"
"""Stand where a `{% generation %}` block begins and ends while marks are looked for."""

marking: contextvars.ContextVar[bool] = contextvars.ContextVar("marking", default=False)


class Function:
    """Something a template may call, and cannot write: its text would hold an address."""

    __slots__ = ("_call", "_name")

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self._name = name
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __repr__(self) -> NoReturn:
        raise SecurityError(f"{self._name!r} is a function that the template writes without calling it")


class Context(jinja2.runtime.Context):
    """As Jinja's; counts how deep calls stand within one another."""

    depth = 0


class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Compiles and runs templates of one date under one limit."""

    context_class = Context

    def __init__(self, bounds: Bounds, **options: Any) -> None:
        # Large constants would be written into the code, which Python then takes long to compile.
        super().__init__(optimized=False, **options)
        self._bounds = bounds
        checked = {name: functools.partial(_checked, check) for name, check in bounds.checks.items()}
        guards = checked | _OWN | {"join": functools.partial(_join, bounds)}
        self._methods = {name: guards.get(name) for name in _METHODS}
        self.filters = {**bounded_filters(self.filters, bounds), **operators(bounds), AT: at, CACHED: cached}
        self.tests |= {name: self._bounded(test) for name, test in self.tests.items() if test in _COMPARING}

    def _bounded(self, test: Any) -> Callable[[Any, Any], bool]:
        def bounded(value: Any, other: Any) -> bool:
            self._bounds.weigh(value)
            self._bounds.weigh(other)
            answer: bool = test(value, other)
            return answer

        return bounded

    def parse(self, source: str, name: str | None = None, filename: str | None = None) -> nodes.Template:
        """Jinja's, with operators within bounds."""
        return rewritten(super().parse(source, name, filename))

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`obj.attribute`: of a message, nearly always, of a loop or a namespace, or a method of a text."""
        kind = type(obj)
        if kind is dict and attribute not in _OF_DICT:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        try:
            value = getattr(obj, attribute)
        except AttributeError:
            return super().getattr(obj, attribute)
        if type(value) in _PLAIN and attribute[0] != "_":
            return value
        if kind in _WITH_METHODS and attribute not in {"format", "format_map"}:
            return self._function(obj, attribute, value)
        value = super().getattr(obj, attribute)
        return self._function(obj, attribute, value) if isinstance(value, _FUNCTIONS) else value

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`obj[argument]`."""
        if type(argument) is tuple:
            self._bounds.weigh(argument)  # it is hashed
        try:
            return obj[argument]
        except (TypeError, LookupError):
            value = super().getitem(obj, argument)
        return self._function(obj, str(argument), value) if isinstance(value, _FUNCTIONS) else value

    def _function(self, obj: Any, name: str, value: Callable[..., Any]) -> Any:
        if isinstance(obj, _DATA):
            if name not in self._methods:
                return self.unsafe_undefined(obj, name)
            guard = self._methods[name]
            if guard is not None:
                value = functools.partial(guard, obj, value)
        return Function(name, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`text.format` and `text.format_map`, wherever a template finds them."""
        wrapped = super().wrap_str_format(value)
        text = getattr(value, "__self__", None)
        if wrapped is None or type(text) is not str:
            return wrapped
        formatter, by_map = _Formatter(self, self._bounds), value.__name__ == "format_map"
        if by_map:
            return lambda named: formatter.vformat(text, (), named)
        return lambda *args, **kwargs: formatter.vformat(text, args, kwargs)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # noqa: N805, PYI063 - Jinja's names, which no argument has
        if type(__obj) is Function:
            if kwargs:
                kwargs.pop("_loop_vars", None)
                kwargs.pop("_block_vars", None)
                __self._bounds.weigh(kwargs)
            for each in args:
                if type(each) not in SCALARS:
                    __self._bounds.weigh(each)
            try:
                return __obj._call(*args, **kwargs)  # noqa: SLF001
            except StopIteration:
                return __self.undefined("value was undefined because a callable raised a StopIteration exception")
        if not isinstance(__obj, _NESTING):
            return super().call(__context, __obj, *args, **kwargs)
        __context.depth += 1
        if __context.depth > MAX_DEPTH:
            raise SecurityError(f"macros or loops stand in one another more than {MAX_DEPTH} deep")
        try:
            return super().call(__context, __obj, *args, **kwargs)
        finally:
            __context.depth -= 1


class _Formatter(jinja2.sandbox.SandboxedFormatter):
    """Fills in texts; each field is a step of its own."""

    def __init__(self, environment: Environment, bounds: Bounds) -> None:
        super().__init__(environment)
        self._bounds = bounds

    def format_field(self, value: Any, format_spec: str) -> Any:
        for width in re.findall("[0-9]+", format_spec):
            check_width(width)
        self._bounds.weigh(value)
        return super().format_field(value, format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        self._bounds.weigh(value)
        return super().convert_field(value, conversion)


def _checked(check: Callable[..., None], obj: Any, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    check(obj, *args, **kwargs)
    return method(*args, **kwargs)


def _split(text: str, method: Callable[..., Any], sep: Any = None, maxsplit: int = -1) -> Any:
    check_search(text, sep)
    parts = method(sep, min(maxsplit, MAX_ITEMS) if maxsplit >= 0 else MAX_ITEMS)
    check_items(len(parts))
    return parts


def _lines(text: str, method: Callable[..., Any], keepends: bool = False) -> Any:  # noqa: FBT001, FBT002 - Python's
    if len(text) > MAX_ITEMS:
        check_items(sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")))
    return method(keepends)


def _join(bounds: Bounds, text: str, method: Callable[..., Any], items: Any) -> Any:
    items = listed(items)
    bounds.check_text(len(text) * len(items) + bounds.weigh(items))
    return method(items)


_OWN: dict[str, Callable[..., Any]] = {"rsplit": _split, "split": _split, "splitlines": _lines}
"""Methods that look at what they are given before they call Python's."""


class GenerationMarks(jinja2.ext.Extension):
    """`{% generation %}` … `{% endgeneration %}`: renders its body."""

    tags = {"generation"}  # noqa: RUF012 - the attribute Jinja reads
    METHOD = "_render_body"

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        # A call block, as in transformers, and not the bare body: assignments inside keep their own scope.
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method(self.METHOD, [], [])
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render_body(self, caller: Any) -> str:
        text: str = caller()
        return f"{OPEN}{text}{CLOSE}" if marking.get() else text


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

    def __repr__(self) -> NoReturn:
        raise SecurityError("the template writes a namespace, and not what it holds")

    @staticmethod
    def _check(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace cannot hold the attribute {name!r}")


class _Cycler(jinja2.utils.Cycler):
    """`cycler(…)`, whose text holds no address."""

    def __repr__(self) -> str:
        return "<cycler>"


class _Joiner(jinja2.utils.Joiner):
    """`joiner(…)`, the same."""

    def __repr__(self) -> str:
        return "<joiner>"


def hands_on(callee: Any) -> bool:
    """Whether a function of templates only keeps what it is given: `namespace(…)`."""
    return callee is _Namespace


@functools.cache
def environment_of(date: str, max_render_bytes: int) -> Environment:
    """The environment of every template of a recipe."""
    environment = Environment(
        Bounds(max_render_bytes),
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationMarks, jinja2.ext.loopcontrols],
    )

    def raise_exception(message: Any) -> None:
        raise jinja2.TemplateError(message)

    def strftime_now(form: str) -> str:
        check_settings(None, form)
        return dt.datetime.fromisoformat(date).strftime(form)

    functions: dict[str, Callable[..., Any]] = {
        "dict": dict,
        "lipsum": _lipsum,
        "raise_exception": raise_exception,
        "range": jinja2.sandbox.safe_range,
        "strftime_now": strftime_now,
    }
    environment.globals.update({name: Function(name, call) for name, call in functions.items()})
    environment.globals.update(namespace=_Namespace, cycler=_Cycler, joiner=_Joiner)
    return environment


def _lipsum(*_: Any, **__: Any) -> NoReturn:
    raise SecurityError("lipsum() writes by chance: a cache could not be built again")
