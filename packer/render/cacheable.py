"""Which loops of a template can be cached between renderings, as its syntax tree tells.

The definition renders a conversation again and again, each time with a message more. Iterations of a loop over its
messages are taken from an earlier rendering (:mod:`packer.render.render_cache`) if what an iteration writes, and leaves
in namespaces, depends on nothing but these, all of which are known when the loop begins, or are watched while it runs:

1. its item, the items before it, and its number: what `loop.index`, `loop.first` and `loop.previtem` say;
2. the next item, or that there is none: `loop.last`, `loop.nextitem`;
3. single messages, `messages[…]`, by a subscript that is watched;
4. what the namespaces named in it hold, by attributes that are named in it;
5. the values of all other names in it, or in a macro that it may call. An iteration cannot set a name for the next one:
   that is Jinja's rule. To know a value, the loop has to name it; where that would change what the name means, as it is
   only set later, the loop stays as it is.

A loop that asks for anything else (the number of its items, the list of messages or a namespace as a whole) stays as it
is. A number from outside with which an iteration compares its own is a *bound*: where it changes, the iterations on the
same side of both keep their outcome.

Nothing else reaches an iteration. The sandbox is immutable and has no chance in it. What counts by itself (`cycler`,
`joiner`), and what tells equal values apart (`sameas`), leaves the template as it is. That a namespace has one name,
and is left nothing that has a state of its own, is seen while the loop runs.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

from jinja2 import nodes
from jinja2.idtracking import symbols_for_node
from jinja2.visitor import NodeTransformer

from packer.render.early_exit import stop_early
from packer.render.syntax import MESSAGES, SHIFTS, all_of, is_plain, names, namespaces, own_number

AT = " at "
CACHED = " cached "
"""Filters by names that no template can write: a message by its number, and what is left of the items of a loop."""

CACHE = "packer_cache"
_LOOP = "packer_loop"

_BEHIND = {"index", "index0", "first", "previtem", "depth", "depth0"}
_AHEAD = {"last", "nextitem"}
_MIRRORED = {"gt": "lt", "gteq": "lteq", "lt": "gt", "lteq": "gteq", "eq": "eq", "ne": "ne"}

_NEVER = {CACHE, _LOOP, "self", "cycler", "joiner"}
"""Names that leave a template as it is."""

_IDENTITY = "sameas"
"""The test that tells equal values apart; so does a filter that is given its name."""

_NEVER_NODES: Any = (
    *(nodes.Block, nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport),
    *(nodes.ScopedEvalContextModifier, nodes.EvalContextModifier),
)


class Held(NamedTuple):
    """An attribute of a namespace."""

    space: str
    attribute: str


class Bound(NamedTuple):
    """A number that iterations compare with their own, as `loop.index0 > bound`."""

    source: str | Held
    operator: str
    shift: int
    """What an iteration takes for its number, less its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedLoop:
    """A loop that can go on.

    Attributes:
        number: its own among those of the template.
        looks_ahead: an iteration may depend on the next item.
        watches: it may look at single items, or messages, by a subscript.
        values: names from outside that iterations read, and that the statements around the loop know.
        resolved: others, which can be nothing but variables of the rendering.
        spaces: namespaces that they read or write.
        held: what they read or write of them.
        written: what they write of them.
        bounds: numbers from outside that they compare with their own.

    """

    number: int
    looks_ahead: bool
    watches: bool
    values: tuple[str, ...]
    resolved: tuple[str, ...]
    spaces: tuple[str, ...]
    held: tuple[Held, ...]
    written: tuple[Held, ...]
    bounds: tuple[Bound, ...]


def make_cacheable(template: nodes.Template) -> tuple[CachedLoop, ...]:
    """Change a parsed template so that its loops can go on, and do not run idle; return those that can go on."""
    macros = {node.name: node for node in template.body if isinstance(node, nodes.Macro)}
    hidden = len(list(template.find_all(nodes.Macro))) > len(macros)
    if hidden or template.find(_NEVER_NODES) or names(template) & _NEVER or names(template, "store") & set(macros):
        return ()
    if any(
        _IDENTITY in {getattr(node, "name", None), getattr(node, "value", None)}
        for node in all_of(template, nodes.Test, nodes.Const)
    ):
        return ()
    changing = _Changing(template, macros)
    changing.statements(template.body)
    if changing.sites and template.environment is not None:
        template.set_environment(template.environment)
    return tuple(changing.sites)


class _UnfitError(Exception):
    """A loop asks for what is not known when it begins."""


class _Changing:
    """Goes through the statements whose text is written at once, in branches too.

    Args:
        template: whose statements they are.
        macros: all of it.

    """

    def __init__(self, template: nodes.Template, macros: Mapping[str, nodes.Macro]) -> None:
        self._template = template
        self._macros = macros
        self._spaces = namespaces(template.body)
        self._stored = names(template, "store")
        self._loaded = _loaded(template)
        self.sites: list[CachedLoop] = []

    def statements(self, body: list[nodes.Node]) -> None:
        for place, node in enumerate(body):
            if isinstance(node, nodes.If):
                for branch in (node.body, node.else_, *(other.body for other in node.elif_)):
                    self.statements(branch)
            elif isinstance(node, nodes.For):
                try:
                    body[place] = self._loop(node, body, place)
                except _UnfitError:
                    stop_early(node, self._spaces, self._stored)

    def _loop(self, node: nodes.For, body: list[nodes.Node], place: int) -> nodes.For:
        """The loop in a form that can go on.

        Args:
            node: the loop.
            body: the statements it is one of.
            place: which of them.

        Raises:
            _UnfitError: it cannot.

        """
        target = node.target
        if not is_plain(node) or not isinstance(target, nodes.Name):
            raise _UnfitError
        watched = {MESSAGES: 1}
        if isinstance(node.iter, nodes.Name):
            watched[node.iter.name] = 0
        facts = _Facts(self._macros, self._spaces, watched)
        facts.look_into(node.body)
        if target.name in facts.of_macros | self._spaces | set(self._macros) | set(watched):
            raise _UnfitError
        site = facts.site(len(self.sites), target.name, set(self._loaded))
        outside = nodes.List(
            [
                _loads(name for name in (MESSAGES,) if name in self._loaded),
                _loads(site.values),
                _loads(site.spaces),
                _loads(bound.source for bound in site.bounds if isinstance(bound.source, str)),
            ]
        )
        self._refuse_other_scope(outside, body, place)
        self.sites.append(site)
        given = [nodes.Name(CACHE, "load"), nodes.Const(site.number), outside]
        left = nodes.Filter(node.iter, CACHED, given, [], None, None)
        pair = nodes.Tuple([nodes.Name(target.name, "store"), nodes.Name(_LOOP, "store")], "store")
        changed = nodes.For(pair, left, [_Renaming(watched).visit(each) for each in node.body], [], None, False)
        changed.set_lineno(node.lineno)
        return changed

    def _refuse_other_scope(self, loads: nodes.Expr, body: list[nodes.Node], place: int) -> None:
        """Refuse to load names where that changes what they are: one that is only set later is not there before.

        Raises:
            _UnfitError: it does.

        """
        body.insert(place, nodes.Output([loads]))
        loaded = _loaded(self._template)
        del body[place]
        if any(loaded[name] != kind for name, kind in self._loaded.items()):
            raise _UnfitError


def _loads(names: Iterable[str]) -> nodes.List:
    return nodes.List([nodes.Name(name, "load") for name in names])


class _Facts:
    """What iterations of a loop depend on.

    Args:
        macros: all of the template.
        spaces: names of namespaces.
        watched: names of lists whose subscripts are watched.

    """

    def __init__(self, macros: Mapping[str, nodes.Macro], spaces: AbstractSet[str], watched: Mapping[str, int]) -> None:
        self._macros = macros
        self._spaces = spaces
        self._watched = watched
        self._ahead = False
        self._watches = False
        self._within: nodes.Macro | None = None
        self._names: set[str] = set()
        self._called: set[str] = set()
        self._read: set[Held] = set()
        self._written: set[Held] = set()
        self._bounds: set[Bound] = set()

    @property
    def of_macros(self) -> set[str]:
        """Names that stand in macros which iterations may call."""
        return {name for macro in self._called for name in names(self._macros[macro]) - _given(self._macros[macro])}

    def site(self, number: int, target: str, loaded: AbstractSet[str]) -> CachedLoop:
        """The loop.

        Args:
            number: its own among those of the template.
            target: the name of its item.
            loaded: names that are there where the loop begins; others are the context's, or the iteration's own.

        """
        read = self._read | self._written
        names = self._names | {b.source for b in self._bounds if isinstance(b.source, str) and b.source not in loaded}
        bounds = {bound for bound in self._bounds if bound.source not in names | read}
        held = read | {bound.source for bound in bounds if isinstance(bound.source, Held)}
        return CachedLoop(
            number=number,
            looks_ahead=self._ahead,
            watches=self._watches,
            values=tuple(sorted(names & loaded - {target})),
            resolved=tuple(sorted(names - loaded - {target})),
            spaces=tuple(sorted({each.space for each in held})),
            held=tuple(sorted(read)),
            written=tuple(sorted(self._written)),
            bounds=tuple(sorted(bounds, key=repr)),
        )

    def look_into(self, body: Iterable[nodes.Node], *, own: bool = True) -> None:
        """Gather what statements ask for.

        Args:
            body: the statements.
            own: `loop` is the loop they are looked at for, and not one within it.

        Raises:
            _UnfitError: they ask for what is not known when the loop begins.

        """
        for node in body:
            self._look(node, own=own)

    def _look(self, node: nodes.Node, *, own: bool) -> None:
        if isinstance(node, nodes.Compare) and own and not self._within and (bound := self._bound(node)):
            self._bounds.add(bound)
        elif isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name):
            self._attribute(node.node, node.attr, own=own)
        elif isinstance(node, nodes.Getitem) and _is_watched(node, self._watched) and not self._within:
            self._watches = True
            self._look(node.arg, own=own)
        elif isinstance(node, nodes.NSRef):
            self._write(node)
        elif isinstance(node, nodes.Name):
            self._name(node.name, own=own)
        elif isinstance(node, nodes.For):
            if "loop" in {name for each in node.else_ for name in names(each)}:
                raise _UnfitError
            self.look_into([node.target, node.iter, *([node.test] if node.test else []), *node.else_], own=own)
            self.look_into(node.body, own=False)
        else:
            self.look_into(node.iter_child_nodes(), own=own)

    def _name(self, name: str, *, own: bool) -> None:
        if self._within and name in _given(self._within):
            return
        if name == "loop":
            if own:
                raise _UnfitError
        elif name in self._watched or name in self._spaces:
            raise _UnfitError
        elif name in self._macros:
            if name not in self._called:
                self._called.add(name)
                before, self._within = self._within, self._macros[name]
                self.look_into(self._macros[name].iter_child_nodes())
                self._within = before
        else:
            self._names.add(name)

    def _attribute(self, name: nodes.Name, attribute: str, *, own: bool) -> None:
        if name.name == "loop" and own and not self._within:
            if attribute not in _BEHIND | _AHEAD:
                raise _UnfitError
            self._ahead |= attribute in _AHEAD
        elif name.name in self._spaces and not (self._within and name.name in _given(self._within)):
            self._read.add(Held(name.name, attribute))
        else:
            self._look(name, own=own)

    def _write(self, node: nodes.NSRef) -> None:
        if node.name in self._spaces:
            self._written.add(Held(node.name, node.attr))
        else:
            self._names.add(node.name)  # one of the iteration's own, or what has to be found when the loop begins

    def _bound(self, node: nodes.Compare) -> Bound | None:
        """The bound of a comparison, if it is one of a number of the loop and something from outside."""
        if len(node.ops) != 1 or node.ops[0].op not in _MIRRORED:
            return None
        for sides, operator in (
            ((node.expr, node.ops[0].expr), node.ops[0].op),
            ((node.ops[0].expr, node.expr), _MIRRORED[node.ops[0].op]),
        ):
            source, number = self._source(sides[1]), own_number(sides[0])
            if source is not None and number is not None:
                return Bound(source, operator, SHIFTS[number])
        return None

    def _source(self, node: nodes.Node) -> str | Held | None:
        if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) and node.node.name in self._spaces:
            return Held(node.node.name, node.attr)
        others = {"loop", *self._watched, *self._spaces, *self._macros}
        return node.name if isinstance(node, nodes.Name) and node.name not in others else None


class _Renaming(NodeTransformer):
    """Gives `loop` of a body its own name, and has its subscripts watched; loops within have a `loop` of theirs."""

    def __init__(self, watched: Mapping[str, int], *, own: bool = True) -> None:
        self._watched = watched
        self._own = own

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - the name Jinja calls, as below
        within = _Renaming(self._watched, own=False)
        node.iter = self.visit(node.iter)
        node.test = self.visit(node.test) if node.test else None
        node.body = [within.visit(each) for each in node.body]
        node.else_ = [self.visit(each) for each in node.else_]
        return node

    def visit_Name(self, node: nodes.Name) -> nodes.Name:  # noqa: N802
        return nodes.Name(_LOOP, node.ctx, lineno=node.lineno) if self._own and node.name == "loop" else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        if not _is_watched(node, self._watched):
            return node
        assert isinstance(node.node, nodes.Name)
        given = [node.arg, nodes.Name(_LOOP, "load"), nodes.Const(self._watched[node.node.name])]
        return nodes.Filter(node.node, AT, given, [], None, None, lineno=node.lineno)


def _is_watched(node: nodes.Getitem, watched: Mapping[str, int]) -> bool:
    return isinstance(node.node, nodes.Name) and node.node.name in watched and not isinstance(node.arg, nodes.Slice)


def _loaded(template: nodes.Template) -> dict[str, str]:
    """Names that the statements of a template know, outside its loops and macros, and where they come from."""
    symbols = symbols_for_node(template)
    return {name: symbols.loads[target][0] for name, target in symbols.refs.items() if target in symbols.loads}


def _given(macro: nodes.Macro) -> set[str]:
    """Names of what a macro is called with; not those that stand in what it takes by default."""
    return {name.name for name in macro.args} - {name for default in macro.defaults for name in names(default)}
