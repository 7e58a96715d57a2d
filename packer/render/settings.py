"""Finds in a template's syntax tree with which words it compares a variable."""

from jinja2 import nodes

_PURE = (
    *(nodes.Name, nodes.Const, nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand, nodes.Test, nodes.Filter),
    *(nodes.CondExpr, nodes.List, nodes.Tuple),
)


def compared_words(parsed: nodes.Template, name: str) -> tuple[str, ...]:
    """Return the words with which a template compares a variable, or another that it derives from nothing else."""
    names = {name}
    assigned = [*parsed.find_all(nodes.Assign)]
    for _ in assigned:
        made = [each.target for each in assigned if _is_made_of(each.node, names)]
        names |= {target.name for target in made if isinstance(target, nodes.Name)}
    constants = [
        const.value
        for compare in parsed.find_all(nodes.Compare)
        if _is_made_of(compare, names)
        for const in compare.find_all(nodes.Const)
    ]
    words = [each for value in constants for each in (value if isinstance(value, list | tuple) else [value])]
    return tuple(dict.fromkeys(word for word in words if isinstance(word, str)))


def _is_made_of(node: nodes.Node, names: set[str]) -> bool:
    """Whether an expression is built only from some of the variables, at least one, and constants."""
    own = [node] if isinstance(node, nodes.Name) else []
    found = {each.name for each in (*own, *node.find_all(nodes.Name))}
    return bool(found) and found <= names and _is_pure(node)


def _is_pure(node: nodes.Node) -> bool:
    return isinstance(node, _PURE) and all(map(_is_pure, node.iter_child_nodes()))
