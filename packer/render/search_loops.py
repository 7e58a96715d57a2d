"""Loops before the loop over the messages that look for something in them, such as the last question.

Such a loop runs over all messages again with each rendering of a conversation. Two rewritings spare most of that:

- A loop that has found what it looks for, and does nothing more, is left.
- A loop is not run again for a message for which it did nothing, if it asked about this message only. To know that,
  everything an iteration does is *noted*, and so is everything it reads that may differ between two runs: namespaces,
  the number of the iteration, the list of messages, and names that are set beside the loop. What runs a rewritten loop
  is :class:`packer.render.opening.Opening`.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from packer.render.syntax import all_of, attribute, filtered, is_namespace, names_in, root_names

LENGTH, NOTED, WALK = " length ", " noted ", " walk "
"""Names of the filters that rewritten loops use; no template can contain such a name."""

RENDERING, PLACE = "packer_rendering", "packer_place"
"""Variables of a rewritten template: who runs it, and the number of an iteration."""

_NUMBERS = frozenset({"index0", "index"})
_COMPARED = frozenset({"gt", "gteq", "lt", "lteq", "eq", "ne"})


def reduce_queries(statements: Sequence[nodes.Node]) -> None:
    """Rewrite statements so that they read no more of the list of messages than they need."""
    for loop in all_of(statements, nodes.For):
        _stop_early(loop)
    for comparison in all_of(statements, nodes.Compare):
        _limit_count(comparison)


def remember_idle(statements: Sequence[nodes.Node], macros: Sequence[nodes.Macro]) -> int:
    """Rewrite the loops among statements so that they are not run again for messages for which they did nothing.

    Returns how many.

    Args:
        statements: of the top level. They use namespaces only to read and to set attributes.
        macros: those that they may call.
    """
    everything = [*statements, *macros]
    stored = root_names([node for node in statements if not isinstance(node, nodes.Macro)], "store")
    spaces = {node.name for node in all_of(everything, nodes.NSRef)}
    spaces |= {each.target.name for each in all_of(everything, nodes.Assign) if is_namespace(each.node)}
    counted = {each.target.name for each in all_of(everything, nodes.Assign) if _counts(each)}
    # With the class of dictionaries, a message could be read in a way that is not seen.
    varying = {"messages", PLACE, "dict", *stored, *spaces, *counted}
    lists = {"messages", *stored}
    loops = [node for node in statements if isinstance(node, nodes.For) and _may_be_idle(node, lists)]
    for number, loop in enumerate(loops):
        _Places().generic_visit(nodes.Template(loop.body))
        _Notes(varying, _guards(loop.body), writes=True).generic_visit(nodes.Template(loop.body))
        backwards = isinstance(loop.iter, nodes.Getitem)
        items = loop.iter.node if isinstance(loop.iter, nodes.Getitem) else loop.iter
        settings = nodes.Name(RENDERING, "load"), nodes.Const(number), nodes.Const(backwards)
        loop.iter = filtered(items, WALK, *settings)
        loop.target = nodes.Tuple([nodes.Name(PLACE, "store"), loop.target], "store")
        loop.set_lineno(loop.lineno)
    for macro in macros if loops else ():
        _Notes(varying, frozenset(), writes=False).generic_visit(macro)
        macro.set_lineno(macro.lineno)
    return len(loops)


def _may_be_idle(loop: nodes.For, lists: Collection[str]) -> bool:
    """Whether a loop runs over one of these lists, or one from its end, and uses no more of `loop` than numbers."""
    items = loop.iter
    if isinstance(items, nodes.Getitem) and _is_backwards(items.arg):
        items = items.node
    own = [node for statement in loop.body for node in _outside_loops(statement)]
    num_numbers = sum(_is_number(node) for node in own)
    return (
        isinstance(items, nodes.Name)
        and items.name in lists
        and isinstance(loop.target, nodes.Name)
        and not (loop.else_ or loop.test or loop.recursive)
        and sum(isinstance(node, nodes.Name) and node.name == "loop" for node in own) == num_numbers
    )


def _outside_loops(node: nodes.Node) -> Iterator[nodes.Node]:
    """Yield the nodes of a statement in which `loop` is that of the loop around it."""
    yield node
    for child in node.iter_child_nodes(exclude=("body", "target") if isinstance(node, nodes.For) else None):
        yield from _outside_loops(child)


class _Places(NodeTransformer):
    """Replaces `loop.index0` and `loop.index` of the loop around the statements."""

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802 - a name that Jinja calls
        if not _is_number(node):
            return self.generic_visit(node)
        place = nodes.Name(PLACE, "load")
        return place if node.attr == "index0" else nodes.Add(place, nodes.Const(1))

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - as above
        inner, node.body = node.body, []
        self.generic_visit(node)
        node.body = inner
        return node


class _Notes(NodeTransformer):
    """Has noted what iterations do, and what they read that may differ between two runs.

    Args:
        varying: names of what may differ.
        exempt: identities of nodes that are known to be true where an iteration goes on.
        writes: whether output is something that an iteration does; what a macro writes is a value.
    """

    def __init__(self, varying: Collection[str], exempt: Collection[int], *, writes: bool) -> None:
        self._varying, self._exempt, self._writes = varying, exempt, writes

    def visit_Name(self, node: nodes.Name) -> nodes.Node:  # noqa: N802 - a name that Jinja calls
        if node.ctx != "load" or node.name not in self._varying:
            return node
        return filtered(node, NOTED, nodes.Name(RENDERING, "load"))

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802 - as above
        return node if id(node) in self._exempt else self.generic_visit(node)

    def visit_Assign(self, node: nodes.Assign) -> Any:  # noqa: N802 - as above
        # What is counted is noted where it is read.
        return node if _counts(node) else self._with_note(node, isinstance(node.target, nodes.NSRef))

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> Any:  # noqa: N802 - as above
        return self._with_note(node, isinstance(node.target, nodes.NSRef))

    def visit_Output(self, node: nodes.Output) -> Any:  # noqa: N802 - as above
        return self._with_note(node, self._writes and not _is_blank(node))

    def visit_CallBlock(self, node: nodes.CallBlock) -> Any:  # noqa: N802 - as above
        return self._with_note(node, self._writes)

    def _with_note(self, node: nodes.Node, is_noted: bool) -> Any:  # noqa: FBT001 - one of two words
        visited = self.generic_visit(node)
        if not is_noted:
            return visited
        return [nodes.Output([filtered(nodes.Const(""), NOTED, nodes.Name(RENDERING, "load"))]), visited]


def _guards(body: Sequence[nodes.Node]) -> set[int]:
    """Return the identities of the conditions that hold in each iteration of a loop that is left where one does not."""
    end = body[0] if body and isinstance(body[0], nodes.If) else None
    flag = end.test.node if end and isinstance(end.test, nodes.Not) and isinstance(end.body[0], nodes.Break) else None
    name = None if flag is None else attribute(flag)
    if name is None or name[0] in names_in(body, "store", "param"):
        return set()
    first = [_first_condition(statement) for statement in body]
    return {id(each) for each in (flag, *first) if each is not None and attribute(each) == name}


def _stop_early(node: nodes.For) -> None:
    """Insert a `break` where all further iterations of a loop do nothing, if the loop has a recognizable form.

    Many templates search for the last question with `{% for message in messages[::-1] %}{% if ns.searching and …`. All
    statements of such a loop are guarded by the same namespace attribute, which only they themselves could set again;
    any others just compute an index.
    """
    flags = {_flag(each) for each in node.body if not _is_blank(each) and not _counts(each)}
    is_plain = isinstance(node.target, nodes.Name) and not node.else_ and node.test is None and not node.recursive
    if not is_plain or len(flags) != 1 or all_of([node.iter], nodes.Call | nodes.Filter):
        return
    (flag,) = flags
    if flag is not None and flag[0] not in names_in([node.target, *node.body], "store", "param") | {"loop"}:
        idle = nodes.Not(nodes.Getattr(nodes.Name(flag[0], "load"), flag[1], "load"))
        node.body.insert(0, nodes.If(idle, [nodes.Break()], [], []).set_lineno(node.lineno))


def _counts(node: nodes.Node) -> bool:
    """Whether a statement just sets a name to a sum of the iteration's number, that of messages, and constants."""
    return (
        isinstance(node, nodes.Assign)
        and isinstance(node.target, nodes.Name)
        and all(
            isinstance(each, nodes.Sub | nodes.Add)
            or (isinstance(each, nodes.Const) and type(each.value) is int)
            or (isinstance(each, nodes.Name) and each.name in {"loop", "messages", PLACE})
            or (isinstance(each, nodes.Filter) and each.name == "length")
            or _is_number(each)
            for each in all_of([node.node], nodes.Expr)
        )
    )


def _is_number(node: nodes.Node) -> bool:
    return attribute(node) in {("loop", name) for name in _NUMBERS}


def _limit_count(node: nodes.Compare) -> None:
    """Make the length in a comparison with a constant count no further than the comparison needs."""
    length, other = node.expr, node.ops[0].expr
    if (
        isinstance(length, nodes.Filter)
        and length.name in {"length", "count"}
        and len(node.ops) == 1
        and isinstance(other, nodes.Const)
        and type(other.value) is int
        and node.ops[0].op in _COMPARED
    ):
        length.name, length.args = LENGTH, [nodes.Const(max(other.value, 0) + 1)]


def _is_backwards(node: nodes.Node) -> bool:
    """Whether an index is that of `[::-1]`."""
    if not isinstance(node, nodes.Slice) or node.start is not None or node.stop is not None:
        return False
    step = node.step
    return isinstance(step, nodes.Neg) and isinstance(step.node, nodes.Const) and step.node.value == 1


def _is_blank(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Output) and all(
        isinstance(each, nodes.TemplateData) and not each.data for each in node.nodes
    )


def _flag(node: nodes.Node) -> tuple[str, str] | None:
    """Return the namespace attribute that guards a statement, if any."""
    condition = _first_condition(node)
    return None if condition is None else attribute(condition)


def _first_condition(node: nodes.Node) -> nodes.Node | None:
    """Return the first operand of a statement's condition; None if it has none, or other branches."""
    test = node.test if isinstance(node, nodes.If) and not node.elif_ and not node.else_ else None
    while isinstance(test, nodes.And):
        test = test.left
    return test
