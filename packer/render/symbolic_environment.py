"""The sandbox of templates, for symbolic texts: every operation on one is seen, or refused."""

import functools
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from typing import Any, Never, TypeVar

import jinja2
import jinja2.compiler
import jinja2.ext
import jinja2.nodes
import jinja2.visitor
from jinja2.tests import test_sequence

from packer.render.sandbox import Environment, GenerationMarks, environment_of
from packer.render.symbolic import SEEN_BLINDLY, OpaqueError, SymbolicText, Unknown, joined

_SCOPES = frozenset({"_loop_vars", "_block_vars"})
"""What Jinja passes to every call: the variables around it."""


class SymbolicEnvironment(Environment):
    """The sandbox of templates, except that symbolic texts cannot be passed to methods and lookups of other objects."""

    code_generator_class = jinja2.compiler.CodeGenerator  # without shortcuts, so that every operation on a text is seen
    concat = staticmethod(joined)  # for macros and captured blocks

    def call(self, context: Any, callee: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(callee, "__self__", None)
        if isinstance(owner, str) and not isinstance(owner, SymbolicText):
            refuse_unknown(*args, *(value for name, value in kwargs.items() if name not in _SCOPES))
        return super().call(context, callee, *args, **kwargs)

    def getitem(self, obj: Any, argument: Any) -> Any:
        refuse_unknown(argument)
        return super().getitem(obj, argument)


def refuse_unknown(*values: Any) -> None:
    """Refuse unknown values, also in containers: methods of other texts would not notice them."""
    for value in values:
        if isinstance(value, Unknown | Iterator):
            raise OpaqueError("something else is asked about an unknown value")
        if isinstance(value, list | tuple | ItemsView | ValuesView):
            refuse_unknown(*value)
        elif isinstance(value, dict):
            refuse_unknown(*value, *value.values())


Kind = TypeVar("Kind", bound=SymbolicEnvironment)


class ContainerQueries(jinja2.visitor.NodeTransformer):
    """Replaces the operator `in` by the test `in`, which handles symbolic texts."""

    def visit_ScopedEvalContextModifier(self, node: jinja2.nodes.Node) -> Never:  # noqa: N802 - the name Jinja calls
        del node
        raise OpaqueError("autoescape")

    def visit_Compare(self, node: jinja2.nodes.Compare) -> jinja2.nodes.Expr:  # noqa: N802 - the name Jinja calls
        self.generic_visit(node)
        if all(operand.op not in ("in", "notin") for operand in node.ops):
            return node
        if len(node.ops) > 1:
            raise OpaqueError("a chain of comparisons")
        asked = jinja2.nodes.Test(node.expr, "in", [node.ops[0].expr], [], None, None, lineno=node.lineno)
        return asked if node.ops[0].op == "in" else jinja2.nodes.Not(asked, lineno=node.lineno)


def join_texts(template: jinja2.Template) -> None:
    """Make the code of a template join symbolic texts, too."""
    template.root_render_func.__globals__.update(str_join=_text_join, markup_join=_text_join)


def _text_join(values: Iterable[Any]) -> str:
    return joined(map(str, values))


@functools.cache
def symbolic_environment(date: str, kind: type[Kind]) -> Kind:
    """Return the environment of this kind that is shared by all templates of a recipe."""
    usual = environment_of(date)
    environment = kind(
        trim_blocks=usual.trim_blocks,
        lstrip_blocks=usual.lstrip_blocks,
        extensions=[GenerationMarks, jinja2.ext.loopcontrols],
    )
    environment.globals.update(usual.globals)
    environment.filters = {name: _noticing(each) for name, each in usual.filters.items()}
    environment.filters |= {"join": _join, "replace": _replace, "trim": _trim}
    environment.filters |= dict.fromkeys(("safe", "e", "escape", "forceescape"), _mark_as_safe)
    environment.tests |= {"in": _is_in, "sameas": _is_same, "sequence": _is_sequence}
    return environment


def _mark_as_safe(value: Any) -> Never:
    del value
    raise OpaqueError("a text marked as safe, which compares before a symbolic one is asked")


def _noticing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a filter refuse to return a text in which it wrote what stands for a symbolic one."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        if type(value) is str and any(hidden in value for hidden in SEEN_BLINDLY):
            raise OpaqueError("code in C handled a symbolic text")
        return value

    return checked


def _replace(value: Any, old: Any, new: Any, count: int | None = None) -> str:
    """The filter `replace`, for symbolic texts too."""
    text = str(value)
    if not isinstance(text, SymbolicText):
        refuse_unknown(old, new)
    return text.replace(str(old), str(new), -1 if count is None else count)


def _trim(value: Any, letters: str | None = None) -> str:
    """The filter `trim`, for symbolic texts too."""
    text = value if isinstance(value, str) else str(value)
    if not isinstance(text, SymbolicText):
        refuse_unknown(letters)
    return text.strip(letters)


def _join(values: Iterable[Any], between: str = "", attribute: Any = None) -> str:
    """The filter `join`, for symbolic texts too."""
    if attribute is not None:
        raise OpaqueError("join by an attribute")
    parts = [part for value in map(str, values) for part in (str(between), value)]
    return joined(parts[1:])


def _is_in(value: Any, container: Any) -> bool:
    if isinstance(container, str) and not isinstance(container, SymbolicText):
        refuse_unknown(value)
    return value in container


def _is_same(value: Any, other: Any) -> bool:
    refuse_unknown(value, other)
    return value is other


def _is_sequence(value: Any) -> bool:
    # Unknown values refuse to tell their length, which the usual test takes for a no.
    return isinstance(value, Sequence | Mapping) or test_sequence(value)
