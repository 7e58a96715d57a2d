"""What a template makes of texts it does not look into: a rendering with slots in it, and on what it rests.

A template is run once with *traced* texts in place of the words of a conversation. A traced text counts as some text,
not blank, of which nothing else is known. The template may write it, strip it, join it to others and hand it on; every
question it asks about the text is answered as for plain words ("is `</think>` in it?" no) and noted down as a
condition. Whatever cannot be answered so ends the trace: its length, its letters, a filter that reads it.

So a trace proves: for all texts that are not blank and meet its conditions, the template takes the same way through its
source, and writes the same with the texts in the slots. That rests on traced texts being the only way by which words
reach the template, and on this:

- Operators and methods of a traced text are its own. Those that are not written end the trace.
- Jinja's code hands texts to the interpreter in more ways: filters, tests, calls, subscripts, joins (`~`, macros,
  captured blocks), and the operators `%` and `in`, which belong to what stands on the other side. All of them are the
  tracing environment's. It lets a traced text through where what is behind does not look into it, joins traced texts to
  traced texts, and ends the trace else.
- Texts marked as safe compare and join before a traced one is asked. So there are none: what makes one ends the trace.

What the sandbox refuses besides, and the limits it keeps, a trace does not know; see :mod:`packer.render.trial`.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Never

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.runtime
import jinja2.sandbox
import jinja2.visitor
import markupsafe
from jinja2.filters import FILTERS
from jinja2.tests import TESTS

from packer.render.bounds import Bounds
from packer.render.environment import RenderError
from packer.render.rewriting import operators
from packer.render.sandbox import GenerationMarks, environment_of, hands_on
from packer.render.slots import Piece, UntraceableError, refuse
from packer.render.traced import Traced, joined, may_hold, pieces_of, text_join
from packer.render.watchdog import TemplateOverrunError, watched

_BLIND_FILTERS = {
    *("trim", "string", "default", "d", "length", "count", "first", "last", "list", "reverse"),
    *("map", "select", "reject", "selectattr", "rejectattr"),
}
"""Filters that hand texts on, or ask them by their own methods, or look at the lists that texts are in."""

_OF_TEXTS = {
    "string": True,
    "iterable": True,
    "sequence": True,
    "defined": True,
    "undefined": False,
    "none": False,
    "mapping": False,
    "number": False,
    "integer": False,
    "float": False,
    "boolean": False,
    "true": False,
    "false": False,
    "callable": False,
}
"""Tests whose answer is the same for every text."""


def _filter(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    if name in _BLIND_FILTERS:
        return own
    if name == "join":
        return _join

    @functools.wraps(own)  # with the mark of what Jinja passes first
    def checked(*args: Any, **kwargs: Any) -> Any:
        passed = args[1:] if hasattr(own, "jinja_pass_arg") else args
        if any(map(may_hold, passed)) or any(map(may_hold, kwargs.values())):
            refuse(f"the filter {name}")
        value = own(*args, **kwargs)
        return refuse("a text marked as safe") if isinstance(value, markupsafe.Markup) else value

    return checked


def _join(values: Iterable[Any], between: str = "", attribute: Any = None) -> str:
    """The filter `join`, where nothing is escaped."""
    if attribute is not None or type(between) is not str:
        refuse("join by an attribute")
    parts = [part for value in map(str, values) for part in (between, value)]
    return joined(parts[1:])


def _is_in(value: Any, container: Any) -> bool:
    """The operator `in`: lists compare by the operators of what is in them, mappings by hashes, which texts refuse."""
    if isinstance(value, Traced) and isinstance(container, str):
        refuse("in a text")
    return value in container


def _test(name: str, own: Any) -> Callable[..., Any]:
    if name == "in":
        return _is_in

    @functools.wraps(own)
    def checked(*args: Any, **kwargs: Any) -> Any:
        passed = args[1:] if hasattr(own, "jinja_pass_arg") else args
        if name in _OF_TEXTS:
            return _OF_TEXTS[name] if isinstance(passed[0], Traced) else own(*args, **kwargs)
        if any(map(may_hold, passed)) or any(map(may_hold, kwargs.values())):
            refuse(f"the test {name}")
        return own(*args, **kwargs)

    return checked


class _TracingEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox of templates, where nothing that reads a text gets hold of a traced one."""

    intercepted_binops = frozenset({"%", "*", "**"})
    concat = staticmethod(joined)  # of macros and captured blocks

    def __init__(self, bounds: Bounds, **options: Any) -> None:
        super().__init__(**options)
        own = operators(bounds)
        self.binop_table = {
            **self.binop_table,
            "%": own[" % "],
            "*": own[" * "],
            "**": own[" ** "],
        }

    def call(self, context: Any, callee: Any, *args: Any, **kwargs: Any) -> Any:
        passed = [*args, *(value for name, value in kwargs.items() if name not in _JINJAS_OWN)]
        if any(map(may_hold, passed)) and not _is_blind(callee):
            refuse("a call")
        return super().call(context, callee, *args, **kwargs)

    def getitem(self, value: Any, place: Any) -> Any:
        if isinstance(place, Traced):
            refuse("a subscript")
        return super().getitem(value, place)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and (may_hold(left) or may_hold(right)):
            refuse("the operator %")
        return super().call_binop(context, operator, left, right)


_JINJAS_OWN = frozenset({"_loop_vars", "_block_vars"})


def _is_blind(callee: Any) -> bool:
    """Whether a call only hands on what it is given, or asks a traced text by its own methods."""
    owner = getattr(callee, "__self__", None)
    return isinstance(callee, jinja2.runtime.Macro) or hands_on(callee) or isinstance(owner, Traced | GenerationMarks)


class _Asking(jinja2.visitor.NodeTransformer):
    """Makes the operator `in` the test of that name: the operator asks what stands behind it."""

    def visit_ScopedEvalContextModifier(self, node: jinja2.nodes.Node) -> Never:  # noqa: N802 - the name Jinja calls
        del node
        refuse("autoescape")

    def visit_Compare(self, node: jinja2.nodes.Compare) -> jinja2.nodes.Expr:  # noqa: N802 - the name Jinja calls
        self.generic_visit(node)
        if all(operand.op not in ("in", "notin") for operand in node.ops):
            return node
        if len(node.ops) > 1:
            refuse("a chain of comparisons")
        asked = jinja2.nodes.Test(node.expr, "in", [node.ops[0].expr], [], None, None, lineno=node.lineno)
        return asked if node.ops[0].op == "in" else jinja2.nodes.Not(asked, lineno=node.lineno)


class Tracer:
    """A chat template that renders traced texts.

    Args:
        source: of the template.
        date: of the recipe.
        variables: those that never change between rows.
        max_bytes: what a rendering may come to.

    Raises:
        UntraceableError: it has an expression that cannot be traced.

    """

    def __init__(self, source: str, *, date: str, variables: Mapping[str, Any], max_bytes: int) -> None:
        environment = _tracing_environment(date, max_bytes)
        try:
            self._template = watched(lambda: _compiled(environment, source))
        except UntraceableError:
            raise
        except Exception as error:  # the sandbox compiles long sums and large constants in a form of its own
            raise UntraceableError("it does not compile") from error
        self._variables = dict(variables)

    def render(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """What the template writes; traced texts among the variables come out as their slots.

        Raises:
            UntraceableError: it looks into a traced text.
            RenderError: it raised.

        """
        context = self._template.new_context({**self._variables, **variables})
        try:
            text = watched(lambda: joined(self._template.root_render_func(context)))
        except TemplateOverrunError as error:
            raise UntraceableError("tracing takes too long") from error
        except UntraceableError:
            raise
        except Exception as error:
            raise RenderError(str(error)) from error
        return pieces_of(text)


@functools.lru_cache(maxsize=256)
def _compiled(environment: _TracingEnvironment, source: str) -> jinja2.Template:
    """Kept for the reason the plain form is."""
    template = environment.from_string(_Asking().visit(environment.parse(source)))
    template.root_render_func.__globals__.update(str_join=text_join, markup_join=text_join)
    return template


@functools.cache
def _tracing_environment(date: str, max_bytes: int) -> _TracingEnvironment:
    usual = environment_of(date, max_bytes)
    environment = _TracingEnvironment(
        Bounds(max_bytes),
        trim_blocks=usual.trim_blocks,
        lstrip_blocks=usual.lstrip_blocks,
        extensions=[GenerationMarks, jinja2.ext.loopcontrols],
    )
    environment.globals.update(usual.globals)
    filters = {**usual.filters, **{name: FILTERS[name] for name in _BLIND_FILTERS}}
    environment.filters = {name: _filter(name, own) for name, own in filters.items()}
    environment.tests = {name: _test(name, own) for name, own in TESTS.items()}
    return environment
