"""What expressions and statements of a template say, as far as several who read its syntax tree ask."""

from collections.abc import Iterable
from typing import Any

from jinja2 import nodes

MESSAGES = "messages"
"""The variable that holds the conversation."""

SHIFTS = {"index0": 0, "index": 1}
"""Names by which `loop` tells the number of an iteration, and by how much it is ahead of its place."""


def own_number(node: nodes.Node) -> str | None:
    """By which name an expression asks for the number of an iteration, if it does."""
    if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) and node.node.name == "loop":
        return node.attr if node.attr in SHIFTS else None
    return None


def is_plain(node: nodes.For) -> bool:
    """Whether a loop does nothing but to go through its items, by one name."""
    return isinstance(node.target, nodes.Name) and not node.else_ and node.test is None and not node.recursive


def all_of(node: nodes.Node, *kinds: type[nodes.Node]) -> list[Any]:
    """Nodes of some kinds within a node, and it too."""
    return [*([node] if isinstance(node, kinds) else []), *(each for kind in kinds for each in node.find_all(kind))]


def names(node: nodes.Node, *contexts: str) -> set[str]:
    """Names in a node: all, or those in some contexts; an attribute of a namespace that is set stores its name."""
    found = all_of(node, nodes.Name, nodes.NSRef)
    return {each.name for each in found if not contexts or getattr(each, "ctx", "store") in contexts}


def namespaces(body: Iterable[nodes.Node]) -> set[str]:
    """Names that are given namespaces outside loops."""
    found = set()
    for node in body:
        if isinstance(node, nodes.If):
            branches = [*node.body, *node.else_, *(each for other in node.elif_ for each in other.body)]
            found |= namespaces(branches)
        elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name):
            made = node.node.node if isinstance(node.node, nodes.Call) else None
            found |= {node.target.name} if isinstance(made, nodes.Name) and made.name == "namespace" else set()
    return found
