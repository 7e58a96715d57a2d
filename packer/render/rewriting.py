"""The rewriting of a parsed template that keeps its operators within :mod:`packer.render.bounds`.

An operator becomes a filter of a name no template can write, which Jinja compiles to a plain call. So nothing is
computed without it, not even while constants are folded.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from packer.render.bounds import Bounds

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "-": operator.sub,
    "*": operator.mul,
    "**": operator.pow,
    "%": operator.mod,
}
_TEXT_FILTERS = frozenset({"lower", "upper", "trim", "string", "tojson", " ~ ", " text "})


def operators(bounds: Bounds) -> dict[str, Callable[..., Any]]:
    """By the names that :func:`rewritten` gives them."""

    def text(value: Any) -> str:
        """What `{{ value }}` writes."""
        if type(value) is str:
            return value
        bounds.weigh(value)
        return str(value)

    def small(value: Any) -> Any:
        """A value that is to be compared or hashed, as it is."""
        bounds.weigh(value)
        return value

    def joined(*values: Any) -> str:
        texts = [value if type(value) is str else text(value) for value in values]
        bounds.check_text(sum(map(len, texts)))
        return "".join(texts)

    def operated(symbol: str, left: Any, right: Any) -> Any:
        bounds.check_operation(symbol, left, right)
        return _OPERATIONS[symbol](left, right)

    return {
        **{f" {symbol} ": functools.partial(operated, symbol) for symbol in _OPERATIONS},
        " ~ ": joined,
        " small ": small,
        " text ": text,
    }


class _Rewriter(NodeTransformer):
    def visit_Sub(self, node: nodes.BinExpr) -> nodes.Node:  # noqa: N802 - the name Jinja looks for, as below
        changed = self.generic_visit(node)
        is_soon_done = _is_number(node.left) or (node.operator == "-" and _is_number(node.right))
        if is_soon_done and node.operator not in {"*", "**"}:
            return changed
        return _call(f" {node.operator} ", node.left, node.right)

    visit_Mul = visit_Pow = visit_Mod = visit_Sub  # noqa: N815

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        return _call(" ~ ", *(self.visit(each) for each in node.nodes))

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802
        changed = [self.visit(each) for each in node.nodes]
        node.nodes = [each if _is_text(each) else _call(" text ", each) for each in changed]
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        """Comparing with a text or a number is soon done; two lists may be large and equal."""
        operands = [node.expr, *(each.expr for each in node.ops)]
        is_soon_done = sum(not _is_plain(each) for each in operands) <= 1
        self.generic_visit(node)
        if not is_soon_done:
            node.expr = _small(node.expr)
            for each in node.ops:
                each.expr = _small(each.expr)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        """The keys of a dict are hashed."""
        self.generic_visit(node)
        node.key = _small(node.key)
        return node


def _small(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _call(" small ", node)


def _call(name: str, value: nodes.Expr, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(
        value, name, list(arguments), [], None, None, lineno=value.lineno, environment=value.environment
    )


def _is_text(node: nodes.Node) -> bool:
    """Whether a rewritten expression surely gives text, or nothing at all."""
    if isinstance(node, nodes.Add):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, nodes.Filter):
        return node.name in _TEXT_FILTERS
    return isinstance(node, nodes.TemplateData) or (isinstance(node, nodes.Const) and isinstance(node.value, str))


def _is_number(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Filter):
        return node.name in {"length", "count", "int", "float"}
    if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) and node.node.name == "loop":
        return node.attr in {"index", "index0", "revindex", "revindex0", "length", "depth"}
    return isinstance(node, nodes.Const) and isinstance(node.value, int | float)


def _is_plain(node: nodes.Node) -> bool:
    """Whether an expression is surely a text, a number or a truth value, or a list of constants."""
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(isinstance(each, nodes.Const) for each in node.items)
    if isinstance(node, nodes.Mod | nodes.Sub):
        return _is_number(node.left)
    plain = nodes.Const | nodes.Compare | nodes.Not | nodes.Test | nodes.Concat
    return isinstance(node, plain) or _is_text(node) or _is_number(node)


def rewritten(template: nodes.Template) -> nodes.Template:
    """A parsed template whose operators keep within bounds.

    Raises:
        jinja2.TemplateSyntaxError: it holds `self`, whose blocks have addresses.

    """
    for name in template.find_all(nodes.Name):
        if (name.name, name.ctx) == ("self", "load"):
            raise jinja2.TemplateSyntaxError("chat templates have no use for 'self'", name.lineno)
    changed = _Rewriter().visit(template)
    assert isinstance(changed, nodes.Template)
    return changed
