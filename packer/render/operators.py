"""The operators of a template within :mod:`packer.render.limits`, and the rewriting that puts them in.

An expression such as `a + b + c` is parsed and then turned into a filter of a name no template can write, which Jinja
compiles to a plain call. So nothing is computed with other operators, not even while constants are folded.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from packer.render.limits import MAX_SETTING, Limits, OverLimitError, check_bits, check_items, check_setting

_LISTS = (list, tuple, bytes)
_UNORDERED: tuple[Any, ...] = (type({}.keys()), type({}.items()))
_DIGITS = re.compile("[0-9]+")
_TEXT_FILTERS = frozenset({"lower", "upper", "trim", "string", "tojson", " ~ ", " text "})


class Operators:
    """`+`, `*`, `**`, `%`, `~`, and what is done to what a template writes or compares."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def table(self) -> dict[str, Callable[..., Any]]:
        """By the names that :func:`rewritten` gives them."""
        return {
            " + ": self.plus,
            " - ": self.minus,
            " * ": self.times,
            " ** ": self.power,
            " % ": self.modulo,
            " ~ ": self.joined,
            " text ": self.text,
            " small ": self.small,
        }

    def plus(self, *values: Any) -> Any:
        """The values added from the left. What is all text, nearly always, is joined at once."""
        length = 0
        for value in values:
            if type(value) is not str:
                break
            length += len(value)
        else:
            self._limits.check_text(length)
            return "".join(values)
        total = values[0]
        for value in values[1:]:
            if isinstance(total, str) and isinstance(value, str):
                self._limits.check_text(len(total) + len(value))
            elif isinstance(total, _LISTS) and isinstance(value, _LISTS):
                check_items(len(total) + len(value))
            total = total + value
        return total

    def minus(self, left: Any, right: Any) -> Any:
        if isinstance(left, _UNORDERED) or isinstance(right, _UNORDERED):
            raise jinja2.exceptions.SecurityError("keys less keys are a set, whose order is not always the same")
        return left - right

    def times(self, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            check_bits(left.bit_length() + right.bit_length())
        for repeated, number in ((left, right), (right, left)):
            if isinstance(repeated, str) and isinstance(number, int):
                self._limits.check_text(len(repeated) * number)
            elif isinstance(repeated, _LISTS) and isinstance(number, int):
                check_items(len(repeated) * number)
        return left * right

    def power(self, base: Any, exponent: Any) -> Any:
        if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and exponent > 0:
            check_bits(math.log2(abs(base)) * min(exponent, 2**60))
        return base**exponent

    def modulo(self, left: Any, right: Any) -> Any:
        """A remainder, or a text that is filled in."""
        if isinstance(left, str | bytes):
            self.check_filled(left, right)
        return left % right

    def check_filled(self, form: Any, values: Any) -> None:
        """Refuse `form % values` where it could be large."""
        form = form if isinstance(form, str) else repr(form)
        for width in _DIGITS.findall(form):
            check_setting(int(width) if len(width) < 9 else math.inf)
        if "*" in form:
            for value in values if isinstance(values, tuple) else (values,):
                check_setting(value if isinstance(value, int) else 0)
        self._limits.check_text(len(form) + form.count("%") * (2000 + self._limits.weigh(values)))

    def joined(self, *values: Any) -> str:
        texts = [value if type(value) is str else self.text(value) for value in values]
        self._limits.check_text(sum(map(len, texts)))
        return "".join(texts)

    def text(self, value: Any) -> str:
        """What `{{ value }}` writes."""
        if type(value) is str:
            return value
        self._limits.weigh(value)
        return str(value)

    def small(self, value: Any) -> Any:
        """A value that is to be compared or hashed, as it is."""
        self._limits.weigh(value)
        return value


class _Rewriter(NodeTransformer):
    """Puts :class:`Operators` in the place of Jinja's."""

    def visit_Add(self, node: nodes.Add) -> nodes.Node:  # noqa: N802 - the name Jinja looks for, as below
        operands: list[nodes.Expr] = []
        left: nodes.Expr = node
        while isinstance(left, nodes.Add):
            operands.append(left.right)
            left = left.left
        operands.append(left)
        if any(isinstance(each, nodes.Const) and isinstance(each.value, int | float) for each in operands):
            return self.generic_visit(node)  # a number adds to nothing but numbers
        return _call(" + ", node, [self.visit(each) for each in reversed(operands)])

    def visit_Sub(self, node: nodes.Sub) -> nodes.Node:  # noqa: N802
        if isinstance(node.right, nodes.Const):
            return self.generic_visit(node)
        return _call(" - ", node, [self.visit(node.left), self.visit(node.right)])

    def visit_Mul(self, node: nodes.Mul) -> nodes.Node:  # noqa: N802
        return _call(" * ", node, [self.visit(node.left), self.visit(node.right)])

    def visit_Pow(self, node: nodes.Pow) -> nodes.Node:  # noqa: N802
        return _call(" ** ", node, [self.visit(node.left), self.visit(node.right)])

    def visit_Mod(self, node: nodes.Mod) -> nodes.Node:  # noqa: N802
        if _is_number(node.left):
            return self.generic_visit(node)
        return _call(" % ", node, [self.visit(node.left), self.visit(node.right)])

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        return _call(" ~ ", node, [self.visit(each) for each in node.nodes])

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        changed = self.generic_visit(node)
        assert isinstance(changed, nodes.Filter)
        return _folded_if_short(changed)

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802
        node.nodes = [
            changed if _is_text(changed) else _call(" text ", changed, [changed])
            for changed in (self.visit(each) for each in node.nodes)
        ]
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        """What is looked up is hashed."""
        plain = _is_plain(node.arg) or isinstance(node.arg, nodes.Slice)
        changed = self.generic_visit(node)
        assert isinstance(changed, nodes.Getitem)
        if not plain:
            changed.arg = _call(" small ", changed.arg, [changed.arg])
        return changed

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        """Comparing with a text or a number is soon done; two lists may be large and equal."""
        operands = [node.expr, *(each.expr for each in node.ops)]
        plain = sum(not _is_plain(each) for each in operands) <= 1
        rewritten = [self.visit(each) if plain else _call(" small ", each, [self.visit(each)]) for each in operands]
        node.expr = rewritten[0]
        for each, operand in zip(node.ops, rewritten[1:], strict=True):
            each.expr = operand
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        """The keys of a dict are hashed."""
        key, value = self.visit(node.key), self.visit(node.value)
        node.key = key if _is_plain(node.key) else _call(" small ", node.key, [key])
        node.value = value
        return node


def _call(name: str, place: nodes.Node, arguments: Sequence[nodes.Expr]) -> nodes.Filter:
    made = nodes.Filter(
        arguments[0], name, list(arguments[1:]), [], None, None, lineno=place.lineno, environment=place.environment
    )
    return _folded_if_short(made)


def _folded_if_short(node: nodes.Filter) -> nodes.Filter:
    """What Jinja computes beforehand it writes out in the code it makes; a long list there takes Python for ever."""
    compute = node.as_const

    def as_const(eval_ctx: nodes.EvalContext | None = None) -> Any:
        value = compute(eval_ctx)
        if not isinstance(value, str | int | float) or len(str(value)) > MAX_SETTING:
            raise nodes.Impossible
        return value

    vars(node)["as_const"] = as_const
    return node


def _is_text(node: nodes.Node) -> bool:
    """Whether a rewritten expression surely gives text, or nothing at all."""
    if isinstance(node, nodes.Filter):
        operands = [node.node, *node.args]
        adds_text = any(isinstance(each, nodes.Const) and isinstance(each.value, str) for each in operands)
        return node.name in _TEXT_FILTERS or (node.name == " + " and adds_text)
    return isinstance(node, nodes.TemplateData | nodes.Const)


def _is_number(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Filter):
        return node.name in {"length", "count", "int", "float"}
    if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) and node.node.name == "loop":
        return node.attr in {"index", "index0", "revindex", "revindex0", "length", "depth"}
    return isinstance(node, nodes.Const) and isinstance(node.value, int | float)


def _is_plain(node: nodes.Node) -> bool:
    """Whether an expression is surely a text, a number or a truth value, or a list of constants."""
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(isinstance(each, nodes.Const) for each in node.items)
    if isinstance(node, nodes.Filter):
        return node.name in _TEXT_FILTERS or _is_number(node)
    if isinstance(node, nodes.Mod | nodes.Sub):
        return _is_number(node.left)
    plain = nodes.Const | nodes.Compare | nodes.Not | nodes.Test | nodes.Concat
    return isinstance(node, plain) or _is_number(node)


def rewritten(template: nodes.Template) -> nodes.Template:
    """A parsed template that computes with :class:`Operators`.

    Raises:
        jinja2.TemplateSyntaxError: it holds a number that it could not make; or `self`, whose blocks have addresses.

    """
    for constant in template.find_all(nodes.Const):
        if isinstance(constant.value, int):
            try:
                check_bits(constant.value.bit_length())
            except OverLimitError as error:
                raise jinja2.TemplateSyntaxError(str(error), constant.lineno) from None
    for name in template.find_all(nodes.Name):
        if (name.name, name.ctx) == ("self", "load"):
            raise jinja2.TemplateSyntaxError("chat templates have no use for 'self'", name.lineno)
    changed = _Rewriter().visit(template)
    assert isinstance(changed, nodes.Template)
    return changed
