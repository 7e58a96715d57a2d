"""The environment that templates run in: Jinja's immutable sandbox as transformers configures it, made deterministic.

In addition to what Jinja's sandbox refuses, it refuses randomness (`lipsum`, `|random`) and unbounded recursion of
macros. The time and memory of a rendering are limited by :mod:`packer.host.watchdog`.
"""

import datetime as dt
import functools
import json
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.parser
import jinja2.runtime
import jinja2.sandbox
import jinja2.utils
from jinja2.exceptions import SecurityError

from packer.render.clear.questions import FILTERS

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
        self.filters = {**self.filters, "random": _refuse_chance, "tojson": _tojson, **FILTERS}

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
