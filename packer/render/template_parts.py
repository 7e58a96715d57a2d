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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from packer.render.search_loops import LENGTH, PLACE, RENDERING, reduce_queries, remember_idle
from packer.render.syntax import all_of, attribute, filtered, is_namespace, names_in, root_names

IS_END, ENDINGS, ITEMS = " is end ", " endings ", " items "
"""Names of the filters that rewritten templates use; no template can contain such a name."""

STOP = "packer_stop"
"""Variable of a rewritten template: what it writes behind each iteration and each ending."""

_ENDING = "packer_ending"
_REFUSED: Any = (nodes.Block, nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport, nodes.EvalContextModifier)


class Halves(NamedTuple):
    """The part of a template before its loop, in two: the second depends on where the conversation ends."""

    first: jinja2.Template | None
    """None if the second is all of it."""

    second: jinja2.Template
    num_read: int
    """Number of messages that the first half may read."""

    num_loops: int
    """Number of loops in the second half that are not run for messages for which they do nothing."""

    names: tuple[str, ...]
    """Names that occur in the second half."""

    is_usual: bool
    """Whether all of it only does what is known of; otherwise the second half is all of it, and runs as it is."""


@dataclass(frozen=True, kw_only=True)
class TemplateParts:
    """The parts of a template.

    Attributes:
        environment: what the parts are compiled in.
        source: the template.
        place: index of the loop among the template's top-level statements.
        late: the changing variables that nothing before the ending reads.
        before: names that occur before the loop, and in what it runs over.
        names: variables that the loop, the ending and macros may read from what comes before, except for the messages.
        attributes: the attributes of namespaces that these may read; None if that is not known.
        transformer: applied to what is compiled, last of all.
    """

    environment: ImmutableSandboxedEnvironment
    source: str
    place: int
    late: tuple[str, ...]
    before: frozenset[str]
    names: tuple[str, ...]
    attributes: frozenset[str] | None
    transformer: NodeTransformer | None = None

    @functools.cached_property
    def halves(self) -> Halves:
        """The part before the loop."""
        parsed = self.environment.parse(self.source)
        statements, loop = parsed.body[: self.place], parsed.body[self.place]
        assert isinstance(loop, nodes.For)
        reduce_queries(statements)
        is_usual = self.attributes is not None and _is_usual(statements)
        cut, num_read = _num_fixed(statements) if is_usual else (0, 0)
        first, second = statements[:cut], statements[cut:]
        begin = _begin(loop.iter)
        again: list[nodes.Node] = []
        if first:
            # The halves are compiled by themselves. So the second one has the macros of the first, too, and begins with
            # a look at the names that both use: otherwise a name that is set in it would be undefined up to there.
            shared = root_names(first) & root_names(second, "store")
            looks = [nodes.Test(nodes.Name(name, "load"), "defined", [], [], None, None) for name in sorted(shared)]
            again = [nodes.If(look, [], [], []) for look in looks]
            again += [node for node in self.environment.parse(self.source).body[:cut] if isinstance(node, nodes.Macro)]
        num_loops = 0
        names = tuple(sorted(names_in([*again, *second, loop.iter]) - {"messages"}))
        if is_usual and self.transformer is None:  # what records a loop goes through it by itself
            macros = [node for node in [*again, *second] if isinstance(node, nodes.Macro)]
            num_loops = remember_idle(second, macros)
        earlier = self._compiled(nodes.Template([*first, _begin(nodes.Const(None))])) if first else None
        return Halves(
            earlier, self._compiled(nodes.Template([*again, *second, begin])), num_read, num_loops, names, is_usual
        )

    @functools.cached_property
    def whole(self) -> jinja2.Template:
        """The whole template, with the ending as another iteration of the loop."""
        parsed = self.environment.parse(self.source)
        loop, ending = parsed.body[self.place], parsed.body[self.place + 1 :]
        assert isinstance(loop, nodes.For)
        assert isinstance(loop.target, nodes.Name)
        reduce_queries(parsed.body[: self.place])
        item, rendering = nodes.Name(loop.target.name, "load"), nodes.Name(RENDERING, "load")
        targets = nodes.Tuple([nodes.Name(name, "store") for name in (_ENDING, *self.late)], "store")
        endings = nodes.For(targets, filtered(item, ENDINGS, rendering), ending, [], None, False)
        stop = nodes.Output([nodes.Name(STOP, "load")])
        # The body is not put in an else branch: names that it sets would be resolved differently before they are set.
        loop.body = [nodes.If(filtered(item, IS_END), [endings, stop, nodes.Continue()], [], []), *loop.body]
        loop.iter = filtered(loop.iter, ITEMS, rendering)
        parsed.body[self.place :] = [loop.set_lineno(loop.lineno)]
        return self._compiled(parsed)

    def _compiled(self, parsed: nodes.Template) -> jinja2.Template:
        if self.transformer is not None:
            self.transformer.visit(parsed)
        parsed.set_lineno(1)
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
    early, late = names_in([*opening, loop]), names_in(ending)
    own = names_in([loop.target, *loop.body], "store", "param") | {"loop"}
    # A macro within another scope may capture what differs from row to row, which its code does not show.
    if len(macros := all_of(opening, nodes.Macro)) > sum(isinstance(node, nodes.Macro) for node in opening):
        return None
    if _distinguishes_copies(parsed) or "loop" in names_in(loop.body, "store", "param"):
        return None
    if not isinstance(loop.target, nodes.Name) or loop.else_ or loop.test or loop.recursive:
        return None
    # The ending moves into the loop and runs once per rendering. So it must not read names that the loop sets, nor set
    # names that the rest of the template uses.
    if (
        own & late
        or names_in(ending, "store", "param") & early
        or (early | late) & {"self", RENDERING, PLACE, STOP, _ENDING}
    ):
        return None
    changing = tuple(sorted(set(variables) - early))
    attributes = _attributes_read(parsed, [loop, *ending, *macros])
    later = [[loop, *ending], *([macro] for macro in macros)]  # what follows changes them
    names = set[str]().union(*(_free(body, environment) for body in later)) - {"messages", *changing}
    return TemplateParts(
        environment=environment,
        source=source,
        place=place,
        late=changing,
        before=frozenset(names_in([*opening, loop.iter])),
        names=tuple(sorted(names)),
        attributes=attributes,
        transformer=transformer,
    )


def _distinguishes_copies(template: nodes.Template) -> bool:
    """Whether the template may distinguish an object from an equal copy, or the list of messages from another list."""
    for node in all_of([template], nodes.Test | nodes.Filter | nodes.Const):
        name = node.value if isinstance(node, nodes.Const) else node.name
        if name == "pprint" or (name == "sameas" and not _is_of_constant(node)):
            return True
    return False


def _is_of_constant(test: nodes.Node) -> bool:
    """Whether a test is for identity with a constant, such as `x is sameas true`; constants are singletons."""
    return isinstance(test, nodes.Test) and all(isinstance(value, nodes.Const) for value in test.args)


def _free(body: Sequence[nodes.Node], environment: ImmutableSandboxedEnvironment) -> set[str]:
    """Return the names that statements may read before they set them, or without doing so. Changes the statements."""
    part = nodes.Template(list(body))
    part.set_environment(environment)
    part = _InnerReads(environment).visit(part)
    return jinja2.meta.find_undeclared_variables(part) | (names_in(body) & environment.globals.keys())


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
    made = [node for node in template.find_all(nodes.Assign) if is_namespace(node.node)]
    names = {node.target.name for node in made if isinstance(node.target, nodes.Name)}
    names |= {node.name for node in template.find_all(nodes.NSRef)}
    if len(made) != [*(node.name for node in template.find_all(nodes.Name))].count("namespace"):
        return None
    loaded = [node.name for node in template.find_all(nodes.Name) if node.ctx == "load" and node.name in names]
    read = [each for each in map(attribute, template.find_all(nodes.Getattr)) if each is not None and each[0] in names]
    if len(loaded) != len(read):
        return None
    return frozenset(node.attr for node in all_of(later, nodes.Getattr))


def _begin(items: nodes.Node) -> nodes.Output:
    """Return a statement that tells what runs the template that its loop over `items` begins."""
    return nodes.Output([filtered(items, ITEMS, nodes.Name(RENDERING, "load"))])


_TESTS = frozenset(
    {"defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "boolean", "true", "false", "number"}
    | {"in", "eq", "equalto", "==", "ne", "!="}
)
_FILTERS = frozenset(
    {"length", "count", LENGTH, "trim", "tojson", "string", "lower", "upper", "title", "capitalize", "replace", "join"}
    | {"list", "first", "last", "safe", "default", "d", "items"}
)
"""Tests and filters that refuse what stands for the number of messages, or treat it as the number."""

_NAMING = {
    "map": (0, _FILTERS),
    "select": (0, _TESTS),
    "reject": (0, _TESTS),
    "selectattr": (1, _TESTS),
    "rejectattr": (1, _TESTS),
}
"""Filters that apply another filter or test: which argument has its name, and what that may be."""


def _is_usual(statements: Sequence[nodes.Node]) -> bool:
    """Whether statements use only filters and tests that are known, and macros only to call them by their own names."""
    macros = [node for node in statements if isinstance(node, nodes.Macro)]
    names = {macro.name for macro in macros}
    called = [call.node for call in all_of(statements, nodes.Call) if isinstance(call.node, nodes.Name)]
    used = [name for name in all_of(statements, nodes.Name) if name.name in names]
    return (
        len(names) == len(macros) == len(all_of(statements, nodes.Macro))
        and len(used) == sum(name.name in names for name in called)
        and {test.name for test in all_of(statements, nodes.Test)} <= _TESTS
        and all(map(_is_known, all_of(statements, nodes.Filter)))
        and not all_of(statements, nodes.FilterBlock)
    )


def _is_known(node: nodes.Filter) -> bool:
    """Whether a filter is one that is known, or applies one, or a test."""
    if node.name not in _NAMING:
        return node.name in _FILTERS
    place, known = _NAMING[node.name]
    named = node.args[place] if len(node.args) > place else None
    is_named = named is None or (isinstance(named, nodes.Const) and named.value in known)
    return is_named and node.dyn_args is None


def _num_fixed(statements: Sequence[nodes.Node]) -> tuple[int, int]:
    """Return how many statements, from the first on, depend on no more messages than a fixed number, and that number.

    Zero if that is all of them, or if names make it impossible to run the others by themselves.
    """
    num_read = cut = 0
    for statement in statements:
        reads = [*_fixed_reads(statement)]
        if sum(name.name == "messages" for name in all_of([statement], nodes.Name)) > len(reads):
            break
        num_read, cut = max(num_read, *reads, 0), cut + 1
    first, second = statements[:cut], statements[cut:]
    inner = names_in(first) - root_names(first)
    if not second or inner & root_names(second, "store"):
        return 0, 0
    return cut, num_read


def _fixed_reads(statement: nodes.Node) -> Iterator[int]:
    """Yield, for each use of the list of messages that only reads its beginning, how many messages it reads."""
    tested = [node.test for node in all_of([statement], nodes.If | nodes.CondExpr)]
    tested += [node.node for node in all_of([statement], nodes.Not)]
    yield from (
        1 for node in {id(node): node for each in tested for node in _operands(each)}.values() if _is_list(node)
    )
    for count in all_of([statement], nodes.Filter):
        if count.name == LENGTH and _is_list(count.node):
            yield count.args[0].value
    for item in all_of([statement], nodes.Getitem):
        number = item.arg.value if _is_list(item.node) and isinstance(item.arg, nodes.Const) else None
        if type(number) is int and number >= 0:
            yield number + 1


def _operands(test: nodes.Node) -> Iterator[nodes.Node]:
    """Yield the parts of a condition of which only the truth matters."""
    if isinstance(test, nodes.And | nodes.Or):
        yield from (*_operands(test.left), *_operands(test.right))
    else:
        yield test


def _is_list(node: nodes.Node | None) -> bool:
    return isinstance(node, nodes.Name) and node.name == "messages"
