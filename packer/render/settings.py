"""The values of a template's variables that may make a difference: the words and numbers near each in its syntax tree.

A template compares a variable, looks it up, hands it to a macro, or stores it under other names first, so all constants
in an expression with the variable, or with what is made of it, are values to try, and those of the lists and objects
that such an expression names.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from jinja2 import nodes

Value: TypeAlias = str | int | float | bool
"""Equal values may differ in type."""

Flows: TypeAlias = Mapping[str, Collection[nodes.Node]]
"""What is stored under each name of a template; `ns.flag` is one."""

_OF_ROWS = frozenset({"messages", "tools", "documents"})
_UNITS = (nodes.Compare, nodes.Test, nodes.Call, nodes.Filter, nodes.Getitem, nodes.Or, nodes.CondExpr)
_WORD = re.compile(r"\w[\w .+-]{0,30}")
_MOST_VALUES = 64
"""More than a variable of any template has."""


_NONE = re.compile(r"(?:no(?:t|n|ne)?(?:[ _-]?(?:think|reason)\w*)?|off|false|disabled?)", re.IGNORECASE)
"""Matches a word that means none: `none`, `no_think`, `off`."""


def means_none(word: Value) -> bool:
    """Whether a value is a word that asks for no reasoning."""
    return isinstance(word, str) and _NONE.fullmatch(word) is not None


def settings_of(parsed: nodes.Template, names: frozenset[str]) -> dict[str, tuple[Value, ...]]:
    """Return the values to try for each variable; the truth values are always among them.

    For a number its neighbors are values, too, since more or less may be asked for. What is made of the messages is no
    variable, and objects and lists are not tried.
    """
    flows = _flows(parsed)
    of_rows = _made_of(_OF_ROWS, flows)
    units = [(unit, frozenset(_reads(unit))) for unit in parsed.find_all(_UNITS)]
    stored = {name: each for name, each in flows.items() if name not in of_rows}
    return {name: _values(_made_of({name}, stored), units, stored) for name in sorted(names)}


def keys_of(parsed: nodes.Template) -> frozenset[str]:
    """Return the members that a template reads, and the words it names, among which others may be: `m.get("plan")`."""
    words = (each.value for each in parsed.find_all(nodes.Const) if isinstance(each.value, str))
    members = (each.attr for each in parsed.find_all(nodes.Getattr))
    return frozenset(word for word in (*members, *words) if word.isidentifier())


def _values(
    known: Collection[str], units: Collection[tuple[nodes.Expr, frozenset[str]]], flows: Flows
) -> tuple[Value, ...]:
    near = [(unit, read) for unit, read in units if not read.isdisjoint(known)]
    named = [node for _, read in near for other in sorted(read - {*known}) for node in flows.get(other, ())]
    own = [node for other in sorted(known) for node in flows.get(other, ()) if isinstance(node, nodes.Const)]
    found = [*_constants(*(node for unit, _ in near for node in _parts(unit)), *named, *own), True, False]
    return tuple({repr(value): value for value in found}.values())[:_MOST_VALUES]


def _parts(unit: nodes.Expr) -> Sequence[nodes.Node | None]:
    """Return where the constants of an expression are: in all of it, or in what stands in for another value."""
    if not isinstance(unit, nodes.Or | nodes.CondExpr):
        return (unit,)
    both = (unit.left, unit.right) if isinstance(unit, nodes.Or) else (unit.expr1, unit.expr2)
    return both if None not in both and sum(isinstance(each, nodes.Const) for each in both) == 1 else ()


def _constants(*expressions: nodes.Node | None) -> Iterator[str | int | float]:
    """Yield the words and numbers of expressions, and the neighbors of the numbers; of objects, the keys."""
    for each in expressions:
        if isinstance(each, nodes.Const):
            yield from _plain(each.value)
        elif each is not None:
            yield from _constants(*([each.key] if isinstance(each, nodes.Pair) else each.iter_child_nodes()))


def _plain(value: Any) -> Iterator[str | int | float]:
    if isinstance(value, list | tuple | dict):
        yield from itertools.chain(*map(_plain, value))
    elif isinstance(value, str) and _WORD.fullmatch(value):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from (value, value + 1, value - 1)


def _flows(parsed: nodes.Template) -> Flows:
    """Return the expressions whose values are stored under each name: by `set`, in namespaces, by `for`, in macros."""
    found: defaultdict[str, list[nodes.Node]] = defaultdict(list)
    macros = {macro.name: [each.name for each in macro.args] for macro in parsed.find_all(nodes.Macro)}
    for assign in parsed.find_all(nodes.Assign):
        target, node = assign.target, assign.node
        name = f"{target.name}.{target.attr}" if isinstance(target, nodes.NSRef) else getattr(target, "name", "")
        if isinstance(node, nodes.Call) and getattr(node.node, "name", "") == "namespace":
            for keyword in node.kwargs:
                found[f"{name}.{keyword.key}"].append(keyword.value)
        else:
            found[name].append(node)
    for loop in parsed.find_all(nodes.For):
        for name in _reads(loop.target):
            found[name].append(loop.iter)
    for call in parsed.find_all(nodes.Call):
        if (parameters := macros.get(getattr(call.node, "name", ""))) is not None:
            given = [*zip(parameters, call.args, strict=False), *((each.key, each.value) for each in call.kwargs)]
            for name, value in given:
                found[name].append(value)
    return found


def _made_of(names: Collection[str], flows: Flows) -> frozenset[str]:
    """Return some names and those of what is made of them."""
    reads = {target: frozenset(read for node in stored for read in _reads(node)) for target, stored in flows.items()}
    known, size = {*names}, 0
    while len(known) > size:
        size = len(known)
        known |= {target for target, read in reads.items() if not read.isdisjoint(known)}
    return frozenset(known)


def _reads(node: nodes.Node) -> Iterator[str]:
    """Yield the names that an expression reads, and those of members: `ns` and `ns.flag`."""
    for each in (node, *node.find_all((nodes.Name, nodes.Getattr))):
        if isinstance(each, nodes.Name):
            yield each.name
        elif isinstance(each, nodes.Getattr) and isinstance(each.node, nodes.Name):
            yield f"{each.node.name}.{each.attr}"
