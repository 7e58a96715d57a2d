"""Finds in a template's syntax tree with which values it compares a variable, and which words stand in for it."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard

from jinja2 import nodes

Value: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any]
"""Equal values may differ in type, and objects and lists have no hash."""

_PURE = (
    *(nodes.Name, nodes.Const, nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand, nodes.Test, nodes.Filter),
    *(nodes.CondExpr, nodes.List, nodes.Tuple, nodes.Concat, nodes.Getattr, nodes.Getitem, nodes.Call, nodes.Keyword),
)


_COMPARES = (nodes.Compare, nodes.Call, nodes.Test)
"""`x == 'a'`, `x.startswith('a')`, `x is eq('a')`."""

_FALLS_BACK = (nodes.Filter, nodes.Or, nodes.CondExpr)


def settings_of(parsed: nodes.Template, names: frozenset[str]) -> dict[str, tuple[Value, ...]]:
    """Return the values to try for each variable: those with which it is compared, or another made of nothing else.

    That is what tells them apart for the template. For a number the next one is a value, too, since more may be asked
    for. Where there are none, or truth values among them, both truth values are tried: the template may only test it.
    If it is the key of an object that is compared, the object is the value; and the empty one is, as the empty list is
    where something is looked for in a list. A word that stands in for a variable that is not set is a value, too: the
    template may only write it.
    """
    targets = [
        (each.target.name, each.node)
        for each in parsed.find_all(nodes.Assign)
        if isinstance(each.target, nodes.Name | nodes.NSRef)
    ]
    spaces = {target for target, node in targets if isinstance(node, nodes.Call) and _made_of(node.node) == frozenset()}
    assigned = [(target, _made_of(node)) for target, node in targets]
    fallbacks = [(_made_of(each), _fallbacks(each)) for each in parsed.find_all(_FALLS_BACK)]
    fallbacks += [(frozenset({target}), (node,)) for target, node in targets]
    compared = [(_made_of(each), tuple(_constants(each, spaces))) for each in parsed.find_all(_COMPARES)]
    found = {}
    for name in sorted(names):
        known, size = {name}, 0
        while len(known) > size:
            size = len(known)
            known |= {target for target, of in assigned if of and of <= known}
        values = [value for of, values in compared if of and of <= known for value in values]
        if not values or True in map(_is_truth, values):
            values = [True, False, *(value for value in values if not _is_truth(value))]
        values += [each.value for of, given in fallbacks if of and of <= known for each in given if _is_word(each)]
        found[name] = tuple({repr(value): value for value in values}.values())
    return found


def _fallbacks(node: nodes.Expr) -> Sequence[nodes.Node | None]:
    """Return what stands in for another value in `x | default('a')`, `x or 'a'`, `x if x is defined else 'a'`."""
    if isinstance(node, nodes.Filter):
        return node.args[:1] if node.name in ("default", "d") else ()
    if isinstance(node, nodes.Or):
        return (node.right,)
    branches = (node.expr1, node.expr2) if isinstance(node, nodes.CondExpr) else ()
    return branches if None not in branches and sum(map(_is_word, branches)) == 1 else ()


def _is_word(node: nodes.Node | None) -> TypeGuard[nodes.Const]:
    return isinstance(node, nodes.Const) and isinstance(node.value, str)


def _is_truth(value: Value) -> bool:
    return isinstance(value, bool)


def _constants(compare: nodes.Node, spaces: Collection[str]) -> Iterator[Value]:
    called = [call.node for call in (compare, *compare.find_all(nodes.Call)) if isinstance(call, nodes.Call)]
    keys = [
        each.attr if isinstance(each, nodes.Getattr) else each.arg
        for each in _members(compare)
        if each not in called and isinstance(each.node, nodes.Name) and each.node.name not in spaces
    ]
    names = [key.value if isinstance(key, nodes.Const) else key for key in keys]
    for value in _plain_constants(compare, keys):
        yield {name: value} if names and isinstance(name := names[0], str) else value
    if names:
        yield {}
    elif any(each.op in ("in", "notin") and _made_of(each.expr) for each in compare.find_all(nodes.Operand)):
        yield []


def _members(compare: nodes.Node) -> Iterator[nodes.Getattr | nodes.Getitem]:
    yield from compare.find_all(nodes.Getattr)
    yield from compare.find_all(nodes.Getitem)


def _plain_constants(compare: nodes.Node, keys: Sequence[Any]) -> Iterator[str | int | float]:
    for const in compare.find_all(nodes.Const):
        value: Any = const.value if const not in keys else None
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
