"""Loops that have found what they look for: the rest of their iterations does nothing, and need not run.

Many templates look so for the last question, from the end of a conversation to its beginning: `for message in
messages[::-1]`, `if ns.searching and …`. Such a loop ends before the first iteration in which it, and each that
follows, does nothing: its statements all wait for the same attribute of a namespace, which only they could set again,
or count. Going through the messages, or a slice of them, has no effect of its own and does not fail.

A tool dialogue of 400 messages renders 1.4 times as fast with it under Qwen3, one of 20 no faster.
"""

from collections.abc import Set as AbstractSet

from jinja2 import nodes

from packer.render.syntax import MESSAGES, all_of, is_plain, own_number


def stop_early(node: nodes.For, spaces: AbstractSet[str], stored: AbstractSet[str]) -> None:
    """Have a loop end there, if it is such a loop.

    Args:
        node: the loop, which is changed in place.
        spaces: names of namespaces.
        stored: names that the template sets.

    """
    flags = {_flag(each) for each in node.body if not _counts(each)}
    if not is_plain(node) or not _is_of_messages(node.iter) or len(flags) != 1:
        return
    (flag,) = flags
    own = {name.name for each in [node.target, *node.body] for name in all_of(each, nodes.Name) if name.ctx == "store"}
    if flag is not None and flag[0] in spaces - own and not {MESSAGES, "loop"} & stored:
        idle = nodes.Not(nodes.Getattr(nodes.Name(flag[0], "load"), flag[1], "load"))
        node.body.insert(0, nodes.If(idle, [nodes.Break()], [], [], lineno=node.lineno))


def _flag(node: nodes.Node) -> tuple[str, str] | None:
    """The namespace and the attribute of it that a statement waits for."""
    if not isinstance(node, nodes.If) or node.elif_ or node.else_:
        return None
    test = node.test
    while isinstance(test, nodes.And):
        test = test.left
    if isinstance(test, nodes.Getattr) and isinstance(test.node, nodes.Name):
        return test.node.name, test.attr
    return None


def _counts(node: nodes.Node) -> bool:
    """Whether a statement sets a name to a number made of those of the loop and of the messages, which never fails."""
    if isinstance(node, nodes.Output):
        return all(isinstance(each, nodes.TemplateData) and not each.data for each in node.nodes)
    return isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name) and _is_count(node.node)


def _is_count(node: nodes.Node | None) -> bool:
    if isinstance(node, nodes.Const):
        return type(node.value) is int
    if isinstance(node, nodes.Filter) and not node.kwargs and node.name == "length":
        return isinstance(node.node, nodes.Name) and node.node.name == MESSAGES and not node.args
    if isinstance(node, nodes.Sub | nodes.Add):
        return _is_count(node.left) and _is_count(node.right)
    return node is not None and own_number(node) is not None


def _is_of_messages(node: nodes.Node) -> bool:
    """Whether an expression is the list of messages, or a slice of it, which never fails."""
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        steps = (node.arg.start, node.arg.stop, node.arg.step)
        return _is_of_messages(node.node) and all(step is None or _is_number(step) for step in steps)
    return isinstance(node, nodes.Name) and node.name == MESSAGES


def _is_number(node: nodes.Expr) -> bool:
    if isinstance(node, nodes.Neg):
        return _is_number(node.node)
    return isinstance(node, nodes.Const) and type(node.value) is int and node.value != 0
