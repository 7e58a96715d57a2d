"""What the rewriting of templates asks of Jinja's syntax trees."""

from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import nodes


def all_of(body: Iterable[nodes.Node], kind: Any) -> list[Any]:
    """Return all nodes of a kind in some statements or expressions."""
    return list(nodes.Template(list(body)).find_all(kind))


def names_in(body: Iterable[nodes.Node], *contexts: str) -> set[str]:
    """Return the names that occur in statements: all of them, or those used in one of the given contexts."""
    return {name.name for name in all_of(body, nodes.Name) if not contexts or name.ctx in contexts}


def root_names(body: Iterable[nodes.Node], *contexts: str) -> set[str]:
    """Return the names that statements use outside inner scopes, as `names_in` does; macros are names that are set."""
    return {
        name for statement in body for name, context in _root_names(statement) if not contexts or context in contexts
    }


def _root_names(node: nodes.Node) -> Iterator[tuple[str, str]]:
    if isinstance(node, nodes.Name):
        yield node.name, node.ctx
    if isinstance(node, nodes.Macro):
        yield node.name, "store"
    for kind, fields in _OUTSIDE.items():
        if isinstance(node, kind):
            children = node.iter_child_nodes(only=fields)
            break
    else:
        children = node.iter_child_nodes()
    for child in children:
        yield from _root_names(child)


_OUTSIDE: dict[type[nodes.Node], tuple[str, ...]] = {
    nodes.For: ("iter",),
    nodes.Macro: (),
    nodes.CallBlock: ("call",),
    nodes.FilterBlock: ("filter",),
    nodes.With: ("values",),
    nodes.AssignBlock: ("target", "filter"),
    nodes.Scope: (),
}
"""What of a statement with a scope of its own belongs to the scope around it."""


def filtered(value: Any, name: str, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(arguments), [], None, None)


def is_namespace(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name == "namespace"


def attribute(node: nodes.Node) -> tuple[str, str] | None:
    """Return the two names of an expression `name.attribute`; None for any other node."""
    if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name):
        return node.node.name, node.attr
    return None
