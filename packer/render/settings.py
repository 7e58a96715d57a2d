"""Finds in a template's syntax tree whether setting a variable changes anything, and with which words it is compared.

Nearly all templates with a switch test for one of its values: `enable_thinking is defined and enable_thinking is
false`. The other value is then equivalent to the default, and its prompts need not be rendered.
"""

from typing import Any

from jinja2 import nodes

from packer.host.watchdog import TemplateOverrunError

_MISSING = object()
_SCALARS = (str, int, bool, type(None))

_PURE = (
    *(nodes.Name, nodes.Const, nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand, nodes.Test, nodes.Filter),
    *(nodes.CondExpr, nodes.List, nodes.Tuple),
)


def is_default(parsed: nodes.Template, name: str, value: Any) -> bool:
    """Whether a template treats this value of a variable as if the variable were undefined.

    That is so if every maximal subexpression built only from the variable and constants evaluates to the same result in
    both cases.
    """
    return not _is_stored(parsed, name) and _makes_none(parsed, name, value)


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


def _is_stored(parsed: nodes.Template, name: str) -> bool:
    return any(each.ctx != "load" for each in parsed.find_all(nodes.Name) if each.name == name)


def _makes_none(node: nodes.Node, name: str, value: Any) -> bool:
    """Whether setting the variable to the value makes no difference to this node."""
    if isinstance(node, nodes.Expr) and _is_made_of(node, {name}):
        without, given = _value(node, {}), _value(node, {name: value})
        if type(without) is type(given) and isinstance(given, _SCALARS) and without == given:
            return True
    if isinstance(node, nodes.Name):
        return node.name != name
    return all(_makes_none(child, name, value) for child in node.iter_child_nodes())


def _is_pure(node: nodes.Node) -> bool:
    return isinstance(node, _PURE) and all(map(_is_pure, node.iter_child_nodes()))


def _value(expression: nodes.Expr, variables: dict[str, Any]) -> Any:
    """Evaluate an expression; return a sentinel if it raises."""
    environment = expression.environment
    assert environment is not None
    assignment = nodes.Assign(nodes.Name("value", "store"), expression).set_lineno(1)
    program = nodes.Template([assignment], lineno=1)
    program.set_environment(environment)
    try:
        template = environment.from_string(program)
        context = template.new_context(variables)
        for _ in template.root_render_func(context):
            pass
    except TemplateOverrunError:
        raise
    except Exception:  # noqa: BLE001 - filters may raise anything for values they never see in practice
        return _MISSING
    return context.vars["value"]
