"""Sees to it that a rendering does not depend on what the row's texts say.

The fast way (:mod:`packer.render.clear`) takes one rendering for many, and what was tried on a few conversations for
true of all that are built alike. Both are right only as long as a template treats all texts the same. So in the fast
way's copy of a template every *question* about a text is watched, and a rendering in which one is answered with yes is
given up. Worked example: `{% if '/no_think' in message.content %}` is compiled to

    {% if '/no_think' in (message.content | holds('/no_think')) %}

and the filter raises :class:`LookedIntoError` if the text contains it. In all renderings that remain the answer was no:
the template took the same branches as for any other text. What it *does* with a text (cut white space, write it as
JSON, escape it) needs no watch: whether it stands in its place is checked in the finished rendering.

Watched are the operators and methods that search a text, slices, indices and loops over its characters, its length, and
comparisons of two values. Roles, names and ids are compared and measured, too, so single words may be; they are
noted, and no text of a clear row is one of them. Nor is any a constant of the template: comparisons with constants
are not watched, since every other line of a template is one (`message.role == 'user'`). A template that asks in other
ways (sorts by texts, say) is given up where it does.
"""

import contextvars
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.visitor import NodeTransformer


class LookedIntoError(Exception):
    """A template asked something of a text that not every text answers alike."""


class NotWatchedError(Exception):
    """A template may ask something of texts in a way that is not watched."""


_WRITES = frozenset(
    {"trim", "string", "safe", "e", "escape", "tojson", "default", "d", "upper", "lower", "title", "capitalize", "join"}
    | {"indent", "items", "dictsort", "format", "length", "count", "replace"}
)
"""Filters that change a text but tell nothing of it; `length` and `replace` are watched themselves."""

_OF_TEXTS = frozenset({"first", "last", "list", "reverse", "int", "float", "round", "abs", "batch", "slice"})
"""Filters that tell something of a text, and are fine for everything else."""

_OF_ITEMS = {"map": 0, "select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}
"""Filters that apply another one, or a test, to items: the number of the argument that names it."""

_KINDS = frozenset(
    {"defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float"}
    | {"boolean", "true", "false", "callable"}
)
"""Tests for what a value is, not for what it says."""

_COMPARES = frozenset({"equalto", "eq", "==", "ne", "!="})

_NO = {"find": -1, "rfind": -1, "count": 0}
_METHODS = frozenset(
    {"startswith", "endswith", "find", "rfind", "index", "rindex", "count", "split", "rsplit", "splitlines"}
    | {"partition", "rpartition", "strip", "lstrip", "rstrip", "replace", "removeprefix", "removesuffix"}
    | {name for name in dir(str) if name.startswith("is")}
)
"""Methods of texts that tell something of them; those that cut or replace only do if nothing is left."""

_HOLDS, _PLAIN, _ANSWERS, _MEASURED, _EQUAL, _REFUSED = (f" {name} " for name in ("in", "as", "of", "len", "eq", "no"))
"""Names of the filters; no template can contain such a name."""


class Notes:
    """What a rendering asked without being given up."""

    def __init__(self) -> None:
        self.words: set[str] = set()
        """Single words that were compared or measured: no text may be one of them."""

        self.sought: set[str] = set()
        """What was sought in texts, or compared with them, and not found."""


_notes: contextvars.ContextVar[Notes | None] = contextvars.ContextVar("notes", default=None)


def noted(render: Callable[[], str]) -> tuple[str, Notes]:
    """Render, and also return what was asked meanwhile."""
    notes = Notes()
    token = _notes.set(notes)
    try:
        return render(), notes
    finally:
        _notes.reset(token)


def _holds(value: Any, part: Any = None) -> Any:
    """Watch `part in value`; None for a part that is put together."""
    if type(value) is str and value:
        if type(part) is not str or part in value:
            raise LookedIntoError
        _note(part)
    elif type(value) is list and type(part) is str:
        _note_compared(part, same=part in value)
    return value


def _plain(value: Any) -> Any:
    """Watch a value that is looked into in some other way."""
    if type(value) is str and value and not value.isspace():
        raise LookedIntoError
    return value


def _measured(value: Any) -> Any:
    """Watch a value whose length is asked for; ids have one, too."""
    if type(value) is str and value and not value.isspace():
        _note_compared(value, same=True)
    return value


def _equal(value: Any, other: Any) -> bool:
    """Watch a comparison of two values; roles, names and ids may be equal."""
    if type(value) in (dict, list) and type(other) in (dict, list):
        raise LookedIntoError
    same = bool(value == other)
    if type(value) is str and type(other) is str and value:
        _note_compared(value, same=same)
        _note_compared(other, same=same)
    return same


def _note_compared(value: str, *, same: bool) -> None:
    """Note what was compared or measured: a single word may be a role, a name or an id, and anything else is a text."""
    notes = _notes.get()
    if notes is not None and value.replace("_", "").replace("-", "").isalnum():
        notes.words.add(value)
    elif same:
        raise LookedIntoError
    else:
        _note(value)


def _answers(value: Any, name: str, *args: Any) -> Any:
    """Watch a method of texts."""
    if type(value) is list and name in ("count", "index"):
        return getattr(value, name)(*args)
    if type(value) is not str:
        raise LookedIntoError
    answer = getattr(value, name)(*args)
    if type(answer) is str:  # what is cut or replaced
        is_no = bool(answer.strip()) or not value.strip()
    elif isinstance(answer, list):
        is_no = len(answer) == 1 or not value
    elif isinstance(answer, tuple):
        is_no = value in answer
    else:
        is_no = answer == _NO.get(name, False)
    if not is_no:
        raise LookedIntoError
    for part in args:
        for each in part.split() if name.endswith("strip") and type(part) is str else [part]:
            _note(each)
    return answer


def _note(part: Any) -> None:
    notes = _notes.get()
    if notes is not None and type(part) is str:
        notes.sought.add(part)


def _refused(_: Any) -> NoReturn:
    """What is asked here is not watched: whoever runs it is given up."""
    raise LookedIntoError


FILTERS = {_REFUSED: _refused, _HOLDS: _holds, _PLAIN: _plain, _ANSWERS: _answers, _MEASURED: _measured, _EQUAL: _equal}


def watch(parsed: nodes.Template) -> frozenset[str]:
    """Rewrite a template so that questions about texts are watched; return what it compares them with, in one case.

    Raises:
        NotWatchedError: it may ask in another way.
    """
    constants = [each.value for each in parsed.find_all(nodes.Const) if isinstance(each.value, str)]
    _Watcher().visit(parsed)
    return frozenset(each.strip().casefold() for each in constants) - {""}


class _Watcher(NodeTransformer):
    """Wraps the operands of questions into the filters above. Names of methods are those that Jinja calls."""

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        if len(node.ops) != 1:
            raise NotWatchedError
        (operand,) = node.ops
        counted: Any = node.expr
        if _is_length(counted) and isinstance(operand.expr, nodes.Const) and operand.expr.value == 0:
            counted.node = self.visit(counted.node)  # whether there is any text is part of a row's form
            return node
        self.generic_visit(node)
        left, right = node.expr, operand.expr
        if operand.op in ("in", "notin"):
            if not isinstance(right, nodes.List | nodes.Tuple | nodes.Dict):
                operand.expr = _filtered(right, _HOLDS, [left] if _is_constant(left) or _is_looked_up(left) else [])
        elif operand.op in ("eq", "ne"):
            if not (_is_constant(left) and _is_looked_up(right)) and not (_is_constant(right) and _is_looked_up(left)):
                same = _filtered(left, _EQUAL, [right])
                return same if operand.op == "eq" else nodes.Not(same).set_lineno(node.lineno)
        else:
            node.expr = left if _is_number(left) else _filtered(left, _PLAIN)
            operand.expr = right if _is_number(right) else _filtered(right, _PLAIN)
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.node is None:  # of a filter block
            if node.name not in _WRITES:
                raise NotWatchedError
            return node
        if node.name in ("length", "count"):
            node.node = _filtered(node.node, _MEASURED)
        elif node.name == "replace" or (node.name == "trim" and (node.args or node.kwargs)):
            if node.kwargs or node.dyn_args or node.dyn_kwargs:
                return _filtered(node.node, _REFUSED)
            method = nodes.Const("strip" if node.name == "trim" else "replace")
            return _filtered(node.node, _ANSWERS, [method, *node.args])
        elif node.name in _OF_ITEMS:
            if not _asks_for_kinds(node):
                return _filtered(node.node, _REFUSED)
        elif node.name in _OF_TEXTS:
            node.node = _filtered(node.node, _PLAIN)
        elif node.name not in _WRITES and node.name not in FILTERS:
            return _filtered(node.node, _REFUSED)
        return node

    def visit_Test(self, node: nodes.Test) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return node if node.name in _KINDS else _filtered(node.node, _REFUSED)

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        method = node.node
        if not isinstance(method, nodes.Getattr) or method.attr not in _METHODS:
            return node
        if node.kwargs or node.dyn_args or node.dyn_kwargs:
            return _filtered(method.node, _REFUSED)
        if method.attr.endswith("strip") and not node.args:
            return node
        return _filtered(method.node, _ANSWERS, [nodes.Const(method.attr), *node.args])

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.attr == "changed":  # of a loop: compares values
            node.node = _filtered(node.node, _REFUSED)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if not (isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str)):
            node.node = _filtered(node.node, _PLAIN)
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _PLAIN)
        return node


def _filtered(node: nodes.Node, name: str, args: Sequence[nodes.Expr] = ()) -> nodes.Filter:
    found = nodes.Filter(node, name, list(args), [], None, None)
    found.set_lineno(node.lineno)
    return found


def _is_length(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Filter) and node.name in ("length", "count") and node.node is not None


def _is_constant(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const | nodes.Neg | nodes.List | nodes.Tuple)


def _is_looked_up(node: nodes.Node) -> bool:
    """Whether an expression is a value of the row, or of a name: nothing that is put together."""
    return isinstance(node, nodes.Name | nodes.Getattr | nodes.Getitem) or _is_number(node)


def _is_number(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Getattr):
        return isinstance(node.node, nodes.Name) and node.node.name == "loop"
    if isinstance(node, nodes.Const):
        return not isinstance(node.value, str)
    return isinstance(node, nodes.Sub | nodes.Mod | nodes.FloorDiv | nodes.Neg) or _is_length(node)


def _asks_for_kinds(node: nodes.Filter) -> bool:
    """Whether a filter of items asks what they are, changes them, or compares them with a constant."""
    names = node.args[_OF_ITEMS[node.name] :]
    if not names:
        return True  # an attribute, or whether there is one
    name = names[0].value if isinstance(names[0], nodes.Const) else None
    known = _WRITES - {"length", "count", "replace"} if node.name == "map" else _KINDS | _COMPARES
    return name in known and all(isinstance(each, nodes.Const) for each in names[1:])
