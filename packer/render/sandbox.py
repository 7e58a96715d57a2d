"""Where templates run: Jinja's immutable sandbox as transformers sets it up, with limits, and with nothing of chance.

Beyond what Jinja's sandbox refuses: what is random (`lipsum`, `|random`), what would write the address of an object
(`{{ x.items }}` without a call, a filter's generator that nothing reads), methods that chat templates have no use
for, and every value beyond :mod:`packer.render.limits`.
"""

import contextvars
import datetime as dt
import functools
from collections.abc import Callable, Iterator
from types import BuiltinMethodType, FunctionType, MethodType, MethodWrapperType
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.parser
import jinja2.runtime
import jinja2.sandbox
import jinja2.utils
from jinja2 import nodes
from jinja2.exceptions import SecurityError

from packer.render.cacheable import AT, CACHED
from packer.render.filters import Filters
from packer.render.formatting import formatted
from packer.render.limits import Limits, check_setting, listed
from packer.render.methods import Methods
from packer.render.operators import Operators, rewritten
from packer.render.render_cache import at, cached

MAX_DEPTH = 100
"""Macros, and loops over their own items, that stand within one another.

Python's own limit counts what called the template too, and so would depend on how packer was started.
"""

_FUNCTIONS = (BuiltinMethodType, MethodType, FunctionType, MethodWrapperType)
_NESTING = (jinja2.runtime.Macro, jinja2.runtime.LoopContext)
_OF_DICT = frozenset(dir(dict))
_WITH_METHODS = frozenset({str, dict, list})
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


class Lazy:
    """What a filter gives item by item; a template may go through it, and cannot write it."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return self._items

    def __repr__(self) -> NoReturn:
        raise SecurityError("the template writes the result of a filter before it is a list (|list, |join)")


class Context(jinja2.runtime.Context):
    """As Jinja's; counts how deep calls stand within one another."""

    depth = 0


class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Compiles and runs templates of one date under one limit."""

    context_class = Context

    def __init__(self, limits: Limits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._methods = Methods(limits)
        operators = Operators(limits)
        self.filters = {**Filters(self.filters, limits, operators, Lazy).table(), **operators.table()}
        self.filters |= {AT: at, CACHED: cached}
        for name in ("eq", "==", "equalto", "ne", "!=", "lt", "<", "lessthan", "le", "<=", "gt", ">", "greaterthan"):
            self.tests[name] = self._bounded_test(self.tests[name])
        for name in ("ge", ">=", "in"):
            self.tests[name] = self._bounded_test(self.tests[name])

    def _bounded_test(self, test: Any) -> Callable[[Any, Any], bool]:
        def bounded(value: Any, other: Any) -> bool:
            self._limits.weigh(value)
            self._limits.weigh(other)
            answer: bool = test(value, other)
            return answer

        return bounded

    def parse(self, source: str, name: str | None = None, filename: str | None = None) -> nodes.Template:
        """Jinja's, with operators within the limits."""
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
        try:
            return obj[argument]
        except (TypeError, LookupError):
            value = super().getitem(obj, argument)
        return self._function(obj, str(argument), value) if isinstance(value, _FUNCTIONS) else value

    def _function(self, obj: Any, name: str, value: Callable[..., Any]) -> Any:
        call = self._methods.bounded(obj, name, value)
        if call is None:
            return self.unsafe_undefined(obj, name)
        return Function(name, call)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`text.format` and `text.format_map`, wherever a template finds them."""
        wrapped = super().wrap_str_format(value)
        return None if wrapped is None else formatted(self, self._limits, value)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # noqa: N805, PYI063 - Jinja's names, which no argument has
        kind = type(__obj)
        if args and type(args[0]) is tuple:
            __self._limits.weigh(args[0])  # the key of a dict, which is hashed
        if kind is Function:
            if kwargs:
                kwargs.pop("_loop_vars", None)
                kwargs.pop("_block_vars", None)
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


class _Dict:
    """`dict(…)` and `dict.fromkeys(…)` for templates, without the type's other attributes."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*map(self._bounded, args), **kwargs)

    def fromkeys(self, keys: Any, *value: Any) -> dict[Any, Any]:
        return dict.fromkeys(self._bounded(keys), *value)

    def __repr__(self) -> str:
        return "<class 'dict'>"

    def _bounded(self, items: Any) -> Any:
        """Keys are hashed."""
        items = items if isinstance(items, dict) else listed(items)
        self._limits.weigh(items)
        return items


class _Cycler(jinja2.utils.Cycler):
    """`cycler(…)`, whose text holds no address."""

    def __repr__(self) -> str:
        return "<cycler>"


class _Joiner(jinja2.utils.Joiner):
    """`joiner(…)`, the same."""

    def __repr__(self) -> str:
        return "<joiner>"


def hands_on(callee: Any) -> bool:
    """Whether a function of templates only keeps what it is given: `namespace(…)`, `dict(…)`."""
    return callee is _Namespace or isinstance(callee, _Dict)


@functools.cache
def environment_of(date: str, max_render_bytes: int) -> Environment:
    """The environment of every template of a recipe."""
    limits = Limits(max_render_bytes)
    environment = Environment(
        limits, trim_blocks=True, lstrip_blocks=True, extensions=[GenerationMarks, jinja2.ext.loopcontrols]
    )

    def raise_exception(message: Any) -> None:
        limits.weigh(message)
        raise jinja2.TemplateError(message)

    def strftime_now(form: str) -> str:
        check_setting(form)
        return dt.datetime.fromisoformat(date).strftime(form)

    functions: dict[str, Callable[..., Any]] = {
        "lipsum": _lipsum,
        "raise_exception": raise_exception,
        "range": jinja2.sandbox.safe_range,
        "strftime_now": strftime_now,
    }
    environment.globals.update({name: Function(name, call) for name, call in functions.items()})
    environment.globals.update(dict=_Dict(limits), namespace=_Namespace, cycler=_Cycler, joiner=_Joiner)
    return environment


def _lipsum(*_: Any, **__: Any) -> NoReturn:
    raise SecurityError("lipsum() writes by chance: a cache could not be built again")
