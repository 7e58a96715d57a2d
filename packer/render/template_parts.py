"""The parts of a template: what comes before its loop over the messages, the loop, and the ending.

Nearly all templates write something about the conversation as a whole, iterate over the messages in one loop, and
write an ending. Each part can be run on its own. The ending runs as another iteration of the loop, so that it sees what
the loop does:

    {% for message in messages %}BODY{% endfor %}ENDING
    {% for message in ITEMS %}
    {% if message is END %}{% for VARIABLES in … %}ENDING{% endfor %}STOP{% continue %}{% endif %}BODY{% endfor %}

The loop around the ending has one iteration. It sets the variables that only the ending reads, such as
`add_generation_prompt`.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

IS_END, ENDINGS, ITEMS, LENGTH = " is end ", " endings ", " items ", " length "
"""Names of the filters that rewritten templates use; no template can contain such a name."""

RENDERING, STOP = "packer_rendering", "packer_stop"
"""Variables of a rewritten template: who runs it, and what it writes behind each iteration and each ending."""

_ENDING = "packer_ending"
_REFUSED: Any = (nodes.Block, nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport, nodes.EvalContextModifier)
_NUMBERS = frozenset({"index0", "index"})
_COMPARED = frozenset({"gt", "gteq", "lt", "lteq", "eq", "ne"})


class Halves(NamedTuple):
    """The part of a template before its loop: what reads single messages from the start, and what may read them all."""

    first: jinja2.Template
    second: jinja2.Template
    num_read: int
    """Number of messages that the first half may read."""

    names: tuple[str, ...]
    """Names that occur in the second half, or in what the loop runs over."""


@dataclass(frozen=True, kw_only=True)
class TemplateParts:
    """The parts of a template.

    Attributes:
        environment: what the parts are compiled in.
        source: the template.
        place: index of the loop among the template's top-level statements.
        late: the changing variables that nothing before the ending reads.
        names: variables that the loop, the ending and macros may read from what comes before, except for the messages.
        attributes: the attributes of namespaces that these may read; None if that is not known.
        transformer: applied to what is compiled, last of all.
    """

    environment: ImmutableSandboxedEnvironment
    source: str
    place: int
    late: tuple[str, ...]
    names: tuple[str, ...]
    attributes: frozenset[str] | None
    transformer: NodeTransformer | None = None

    @functools.cached_property
    def opening(self) -> jinja2.Template:
        """The part before the loop."""
        return self._before_loop(0, self.place)

    @functools.cached_property
    def halves(self) -> "Halves | None":
        """The part before the loop in two; None if it cannot be cut: macros see what is set behind them."""
        body = self.environment.parse(self.source).body
        statements, loop = body[: self.place], body[self.place]
        assert isinstance(loop, nodes.For)
        if _all_of(statements, nodes.Macro | nodes.CallBlock):
            return None
        num_read, cut = 0, 0
        for statement in statements:
            read = [_fixed_index(node) for node in _all_of([statement], nodes.Getitem)]
            fixed = [index for index in read if index is not None]
            if [*(name.name for name in _all_of([statement], nodes.Name))].count("messages") > len(fixed):
                break
            num_read, cut = max(num_read, *(index + 1 for index in fixed), 0), cut + 1
        if not cut:
            return None
        names = tuple(sorted(_names([*statements[cut:], loop.iter]) - {"messages"}))
        return Halves(self._before_loop(0, cut), self._before_loop(cut, self.place), num_read, names)

    @functools.cached_property
    def whole(self) -> jinja2.Template:
        """The whole template, with the ending as another iteration of the loop."""
        parsed = self.environment.parse(self.source)
        loop, ending = parsed.body[self.place], parsed.body[self.place + 1 :]
        assert isinstance(loop, nodes.For)
        assert isinstance(loop.target, nodes.Name)
        _reduce_queries(parsed.body[: self.place])
        item, rendering = nodes.Name(loop.target.name, "load"), nodes.Name(RENDERING, "load")
        targets = nodes.Tuple([nodes.Name(name, "store") for name in (_ENDING, *self.late)], "store")
        endings = nodes.For(targets, _filtered(item, ENDINGS, rendering), ending, [], None, False)
        stop = nodes.Output([nodes.Name(STOP, "load")])
        # The body is not put in an else branch: names that it sets would be resolved differently before they are set.
        loop.body = [nodes.If(_filtered(item, IS_END), [endings, stop, nodes.Continue()], [], []), *loop.body]
        loop.iter = _filtered(loop.iter, ITEMS, rendering)
        parsed.body[self.place :] = [loop.set_lineno(loop.lineno)]
        return self._compiled(parsed)

    def _before_loop(self, first: int, end: int) -> jinja2.Template:
        """Compile some of the statements before the loop, and what begins the loop."""
        parsed = self.environment.parse(self.source)
        loop = parsed.body[self.place]
        assert isinstance(loop, nodes.For)
        body = parsed.body[first:end]
        _reduce_queries(body)
        items = loop.iter if end == self.place else nodes.Const(None)
        parsed.body = [*body, nodes.Output([_filtered(items, ITEMS, nodes.Name(RENDERING, "load"))]).set_lineno(1)]
        return self._compiled(parsed)

    def _compiled(self, parsed: nodes.Template) -> jinja2.Template:
        if self.transformer is not None:
            self.transformer.visit(parsed)
        parsed.set_environment(self.environment)
        return self.environment.from_string(parsed)


def template_parts(
    environment: ImmutableSandboxedEnvironment,
    source: str,
    variables: Sequence[str],
    transformer: NodeTransformer | None = None,
) -> TemplateParts | None:
    """Take a template apart; return None if it does not have the required form.

    `variables`: those whose values change between renderings of one conversation. `transformer` is applied in the end.
    """
    parsed = environment.parse(source)
    place = max((i for i, node in enumerate(parsed.body) if isinstance(node, nodes.For)), default=None)
    if place is None or parsed.find(_REFUSED):
        return None
    opening, loop, ending = parsed.body[:place], parsed.body[place], parsed.body[place + 1 :]
    assert isinstance(loop, nodes.For)
    early, late = _names([*opening, loop]), _names(ending)
    own = _names([loop.target, *loop.body], "store", "param") | {"loop"}
    if _distinguishes_copies(parsed) or "loop" in _names(loop.body, "store", "param"):
        return None
    if not isinstance(loop.target, nodes.Name) or loop.else_ or loop.test or loop.recursive:
        return None
    # The ending moves into the loop and runs once per rendering. So it must not read names that the loop sets, nor set
    # names that the rest of the template uses.
    if own & late or _names(ending, "store", "param") & early or (early | late) & {"self", RENDERING, STOP, _ENDING}:
        return None
    changing = tuple(sorted(set(variables) - early))
    macros = _all_of(opening, nodes.Macro)
    attributes = _attributes_read(parsed, [loop, *ending, *macros])
    later = [[loop, *ending], *([macro] for macro in macros)]  # what follows changes them
    names = set[str]().union(*(_free(body, environment) for body in later)) - {"messages", *changing}
    return TemplateParts(
        environment=environment,
        source=source,
        place=place,
        late=changing,
        names=tuple(sorted(names)),
        attributes=attributes,
        transformer=transformer,
    )


def _distinguishes_copies(template: nodes.Template) -> bool:
    """Whether the template may distinguish an object from an equal copy, or the list of messages from another list."""
    for node in _all_of([template], nodes.Test | nodes.Filter | nodes.Const):
        name = node.value if isinstance(node, nodes.Const) else node.name
        if name == "pprint" or (name == "sameas" and not _is_of_constant(node)):
            return True
    return False


def _is_of_constant(test: nodes.Node) -> bool:
    """Whether a test is for identity with a constant, such as `x is sameas true`; constants are singletons."""
    return isinstance(test, nodes.Test) and all(isinstance(value, nodes.Const) for value in test.args)


def _filtered(value: Any, name: str, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(arguments), [], None, None)


def _names(body: Iterable[nodes.Node], *contexts: str) -> set[str]:
    """Return the names that occur in statements: all of them, or those used in one of the given contexts."""
    return {name.name for name in _all_of(body, nodes.Name) if not contexts or name.ctx in contexts}


def _free(body: Sequence[nodes.Node], environment: ImmutableSandboxedEnvironment) -> set[str]:
    """Return the names that statements may read before they set them, or without doing so. Changes the statements."""
    part = nodes.Template(list(body))
    part.set_environment(environment)
    part = _InnerReads(environment).visit(part)
    return jinja2.meta.find_undeclared_variables(part) | (_names(body) & environment.globals.keys())


class _InnerReads(NodeTransformer):
    """Writes in front of each inner scope the names that are read in it.

    Jinja takes a name that a scope sets at its end for set, even where an inner scope reads it before.
    """

    def __init__(self, environment: ImmutableSandboxedEnvironment) -> None:
        self._environment = environment

    def _with_reads(self, scope: nodes.Node) -> list[nodes.Node]:
        self.generic_visit(scope)
        part = nodes.Template([scope])
        part.set_environment(self._environment)
        read = [nodes.Name(name, "load") for name in sorted(jinja2.meta.find_undeclared_variables(part))]
        return [nodes.Output(list[nodes.Expr](read)), scope]

    visit_For = visit_Macro = visit_CallBlock = visit_With = visit_FilterBlock = visit_AssignBlock = _with_reads  # noqa: N815 - names that Jinja calls
    visit_Scope = visit_ScopedEvalContextModifier = _with_reads  # noqa: N815 - as above


def _attributes_read(template: nodes.Template, later: Sequence[nodes.Node]) -> frozenset[str] | None:
    """Return the attributes that may be read of namespaces; None if one may be used in another way."""
    made = [node for node in template.find_all(nodes.Assign) if _is_namespace(node.node)]
    names = {node.target.name for node in made if isinstance(node.target, nodes.Name)}
    names |= {node.name for node in template.find_all(nodes.NSRef)}
    if len(made) != [*(node.name for node in template.find_all(nodes.Name))].count("namespace"):
        return None
    loaded = [node.name for node in template.find_all(nodes.Name) if node.ctx == "load" and node.name in names]
    read = [each for each in map(_attribute, template.find_all(nodes.Getattr)) if each is not None and each[0] in names]
    if len(loaded) != len(read):
        return None
    return frozenset(node.attr for node in _all_of(later, nodes.Getattr))


def _is_namespace(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name == "namespace"


def _all_of(body: Iterable[nodes.Node], kind: Any) -> list[Any]:
    return list(nodes.Template(list(body)).find_all(kind))


def _fixed_index(node: nodes.Getitem) -> int | None:
    """Return the number of a message that is read as in `messages[0]`; None for another expression."""
    if isinstance(node.node, nodes.Name) and node.node.name == "messages" and isinstance(node.arg, nodes.Const):
        return node.arg.value if type(node.arg.value) is int and node.arg.value >= 0 else None
    return None


def _attribute(node: nodes.Node) -> tuple[str, str] | None:
    """Return the two names of an expression `name.attribute`; None for any other node."""
    if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name):
        return node.node.name, node.attr
    return None


def _reduce_queries(opening: Sequence[nodes.Node]) -> None:
    """Rewrite statements so that they read no more of the list of messages than they need."""
    for loop in _all_of(opening, nodes.For):
        _stop_early(loop)
    for comparison in _all_of(opening, nodes.Compare):
        _limit_count(comparison)


def _stop_early(node: nodes.For) -> None:
    """Insert a `break` where all further iterations of a loop do nothing, if the loop has a recognizable form.

    Many templates search for the last question with `{% for message in messages[::-1] %}{% if ns.searching and …`. All
    statements of such a loop are guarded by the same namespace attribute, which only they themselves could set again;
    any others just compute an index.
    """
    flags = {_flag(each) for each in node.body if not _is_blank(each) and not _counts(each)}
    is_plain = isinstance(node.target, nodes.Name) and not node.else_ and node.test is None and not node.recursive
    if not is_plain or len(flags) != 1 or _all_of([node.iter], nodes.Call | nodes.Filter):
        return
    (flag,) = flags
    if flag is not None and flag[0] not in _names([node.target, *node.body], "store", "param") | {"loop"}:
        idle = nodes.Not(nodes.Getattr(nodes.Name(flag[0], "load"), flag[1], "load"))
        node.body.insert(0, nodes.If(idle, [nodes.Break()], [], []).set_lineno(node.lineno))


def _counts(node: nodes.Node) -> bool:
    """Whether a statement just sets a name to an expression of the iteration's number, lengths, names and constants."""
    return (
        isinstance(node, nodes.Assign)
        and isinstance(node.target, nodes.Name)
        and all(
            isinstance(each, nodes.Const | nodes.Name | nodes.Sub | nodes.Add)
            or (isinstance(each, nodes.Filter) and each.name == "length")
            or _attribute(each) in {("loop", name) for name in _NUMBERS}
            for each in _all_of([node.node], nodes.Expr)
        )
    )


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


def _is_blank(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Output) and all(
        isinstance(each, nodes.TemplateData) and not each.data for each in node.nodes
    )


def _flag(node: nodes.Node) -> tuple[str, str] | None:
    """Return the namespace attribute that guards a statement (the first operand of its condition), if any."""
    test = node.test if isinstance(node, nodes.If) and not node.elif_ and not node.else_ else None
    while isinstance(test, nodes.And):
        test = test.left
    return None if test is None else _attribute(test)
