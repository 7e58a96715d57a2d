"""Finds in a template's syntax tree with which values it compares a variable."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from jinja2 import nodes

Value: TypeAlias = str | int | float | bool

_PURE = (
    *(nodes.Name, nodes.Const, nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand, nodes.Test, nodes.Filter),
    *(nodes.CondExpr, nodes.List, nodes.Tuple, nodes.Concat, nodes.Getattr, nodes.Call, nodes.Keyword),
)


_COMPARES = (nodes.Compare, nodes.Call, nodes.Test)
"""`x == 'a'`, `x.startswith('a')`, `x is eq('a')`."""


def settings_of(parsed: nodes.Template, names: frozenset[str]) -> dict[str, tuple[Value, ...]]:
    """Return the values to try for each variable: those with which it is compared, or another made of nothing else.

    That is what tells them apart for the template. For a number the next one is a value, too, since more may be asked
    for. Where there are none, or truth values among them, both truth values are tried: the template may only test it.
    """
    assigned = [
        (each.target.name, _made_of(each.node))
        for each in parsed.find_all(nodes.Assign)
        if isinstance(each.target, nodes.Name | nodes.NSRef)
    ]
    compared = [(_made_of(each), tuple(_constants(each))) for each in parsed.find_all(_COMPARES)]
    found = {}
    for name in sorted(names):
        known, size = {name}, 0
        while len(known) > size:
            size = len(known)
            known |= {target for target, of in assigned if of and of <= known}
        values = [value for of, values in compared if of and of <= known for value in values]
        if not values or True in map(_is_truth, values):
            values = [True, False, *(value for value in values if not _is_truth(value))]
        found[name] = tuple(value for _, value in dict.fromkeys((type(value), value) for value in values))
    return found


def _is_truth(value: Value) -> bool:
    return isinstance(value, bool)


def _constants(compare: nodes.Node) -> Iterator[Value]:
    for const in compare.find_all(nodes.Const):
        value: Any = const.value
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str | int | float):
                yield each
                if not isinstance(each, str | bool):
                    yield each + 1


def _made_of(node: nodes.Node) -> frozenset[str]:
    """Return the variables that an expression is built from with constants; nothing if it is built from more."""
    if not _is_pure(node):
        return frozenset()
    own = [node] if isinstance(node, nodes.Name) else []
    return frozenset(each.name for each in (*own, *node.find_all(nodes.Name))) - {"namespace"}


def _is_pure(node: nodes.Node) -> bool:
    return isinstance(node, _PURE) and all(map(_is_pure, node.iter_child_nodes()))
