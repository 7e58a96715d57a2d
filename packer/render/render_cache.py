"""The render cache of a conversation: iterations of loops that earlier renderings of it went through already.

A *run* is how a loop went: its items, what it found outside when it began, and of each iteration the text, what it left
in namespaces, and its *reach*: the last item, and the last message, that it looked at. Iterations are taken from a run,
from the first on, where a later rendering begins with the same items, finds the same outside, and each of them looked
at nothing that is another now. So what is written is the same, byte for byte; why nothing else can make a difference
stands in :mod:`packer.render.cacheable`.

Items are the same by identity: a run keeps them, and a template cannot change them. What is found outside is the same
by identity too, or as a text, a number or a list of such.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import is_
from typing import Any

import jinja2
import jinja2.runtime
import jinja2.utils
from jinja2 import pass_context, pass_environment

from packer.render.cacheable import Bound, CachedLoop, Held
from packer.render.syntax import MESSAGES

_MAX_RUNS = 4
"""Of one loop that are kept: of messages as they are and with made-up words, each for prompts and for turns."""

_MAX_ITEMS = 64
"""Of a list that is compared item by item."""

_SCALARS = frozenset({str, int, bool, type(None)})
_DATA = frozenset({float, range, jinja2.Undefined})
"""What a loop may go through without an end to fear; Undefined is empty."""

_NESTED = frozenset({list, tuple, dict})
"""Beside the scalars, what has no state and holds nothing."""

_FINITE = (list, tuple, dict, str, range, jinja2.Undefined)
_MISSING = object()
_EVERYTHING = 2**62


class UncacheableError(Exception):
    """A loop found something that it cannot go on with."""


class _Loop:
    """What `loop` says in an iteration; `reaches` is written by those who look."""

    __slots__ = ("_items", "_undefined", "first", "index", "index0", "last", "reaches")
    first: bool
    index: int
    index0: int
    last: bool
    depth, depth0 = 1, 0

    def __init__(self, items: Sequence[Any], undefined: Any) -> None:
        self._items = items
        self._undefined = undefined
        self.reaches = [-1, -1]

    @property
    def previtem(self) -> Any:
        if self.first:
            return self._undefined("there is no previous item")
        return self._items[self.index0 - 1]

    @property
    def nextitem(self) -> Any:
        if self.last:
            return self._undefined("there is no next item")
        return self._items[self.index]


class _Run:
    """How a loop went, as far as it went."""

    __slots__ = ("bounds", "held", "items", "messages", "outside", "reaches", "texts")

    def __init__(self, items: list[Any], messages: list[Any], outside: Sequence[Any], bounds: Sequence[Any]) -> None:
        self.items = items
        self.messages = messages
        self.outside = outside
        """Values, and what namespaces held, before the first iteration."""

        self.bounds = bounds
        self.texts: list[str] = []
        self.held: list[tuple[Any, ...]] = []
        self.reaches: tuple[list[int], list[int]] = ([], [])
        """The farthest item, and message, that an iteration or one before it looked at, where it is watched."""

    def take(self, earlier: "_Run", number: int) -> None:
        """Begin as an earlier run did, which is of no further use."""
        self.texts, self.held, self.reaches = earlier.texts, earlier.held, earlier.reaches
        for each in (self.texts, self.held, *self.reaches):
            del each[number:]

    def copy(self, earlier: "_Run", number: int) -> None:
        """Begin as an earlier run did."""
        self.texts, self.held = earlier.texts[:number], earlier.held[:number]
        self.reaches = earlier.reaches[0][:number], earlier.reaches[1][:number]


class RenderCache:
    """What is remembered of the renderings of one conversation under one template.

    Args:
        sites: the loops that can go on.

    """

    def __init__(self, sites: Sequence[CachedLoop]) -> None:
        self._sites = sites
        self._runs: list[list[_Run]] = [[] for _ in sites]
        self._written: list[str] = []
        self._data: dict[int, Any] = {}
        """Lists and objects that hold nothing but data; kept, so that no other has their identity."""

    def joined(self, pieces: Iterable[str]) -> str:
        """The text of a rendering, whose pieces come while its loops run."""
        self._written = written = []
        for piece in pieces:
            written.append(piece)  # noqa: PERF402 - loops look at it while it grows
        return "".join(written)

    def items(
        self, context: jinja2.runtime.Context, number: int, items: Any, outside: Sequence[Any]
    ) -> Iterator[tuple[Any, _Loop]]:
        """The items of a loop that an earlier run does not tell, after the text of those it does.

        Args:
            context: of the rendering.
            number: of the loop.
            items: all of them.
            outside: the list of messages, in a list that is empty where it is the context's; the values of the names in
                :attr:`CachedLoop.values`; the namespaces in :attr:`CachedLoop.spaces`; and the values of those of
                :attr:`CachedLoop.bounds` that are names.

        Raises:
            UncacheableError: there is something that it cannot go on with.

        """
        known, values, spaces, bounds = outside
        messages = known[0] if known else context.resolve(MESSAGES)
        if type(messages) is not list or not isinstance(items, _FINITE):
            raise UncacheableError
        if type(items) is not list:
            items = list(items)
        site = self._sites[number]
        values += map(context.resolve_or_missing, site.resolved)
        attributes = {}
        if spaces:
            if len(set(map(id, spaces))) < len(spaces):
                raise UncacheableError  # one namespace by two names
            attributes = dict(zip(site.spaces, map(_attributes, spaces), strict=True))
            values += [attributes[held.space].get(held.attribute, _MISSING) for held in site.held]
            bounds = list(_bounds(site, attributes, bounds))
        if any(isinstance(value, jinja2.utils.Namespace) for value in values):
            raise UncacheableError
        run = _Run(items, messages, values, bounds)
        self._begin(site, run)
        if run.texts:
            self._written += run.texts
            if site.written:
                for held, value in zip(site.written, run.held[-1], strict=True):
                    if value is not _MISSING:
                        attributes[held.space][held.attribute] = value
        return self._left(site, run, attributes, _Loop(items, context.environment.undefined))

    def _left(
        self, site: CachedLoop, run: _Run, attributes: dict[str, dict[str, Any]], loop: _Loop
    ) -> Iterator[tuple[Any, _Loop]]:
        """Iterations that have to run; each is remembered when it is done."""
        written, items, texts, (by_item, by_message) = self._written, run.items, run.texts, run.reaches
        begin, number, reaches = len(written), len(items), loop.reaches
        if by_item:
            reaches[:] = by_item[-1], by_message[-1]
        for i in range(len(texts), number):
            loop.index0, loop.index, loop.first, loop.last = i, i + 1, i == 0, i + 1 == number
            yield items[i], loop
            if site.written:
                left = tuple(attributes[held.space].get(held.attribute, _MISSING) for held in site.written)
                if not all(map(self._is_data, left)):
                    raise UncacheableError  # what has a state of its own may be in another when it is looked at again
                run.held.append(left)
            text = "".join(written[begin:])
            written[begin:] = (text,)
            begin += 1
            texts.append(text)
            if site.watches:
                by_item.append(reaches[0])
                by_message.append(reaches[1])

    def _is_data(self, value: Any) -> bool:
        """Whether a value is a text, a number, or lists and objects of such, which a template cannot change."""
        kind = type(value)
        if kind in _SCALARS or kind in _DATA or value is _MISSING or id(value) in self._data:
            return True
        if kind not in _NESTED or not all(map(self._is_data, value.values() if kind is dict else value)):
            return False
        self._data[id(value)] = value
        return True

    def _begin(self, site: CachedLoop, run: _Run) -> None:
        """Take from the runs there are what holds for this one, and keep it beside them, or in place of one."""
        runs = self._runs[site.number]
        best, number = None, 0
        for earlier in reversed(runs):
            reusable = _reusable(site, earlier, run)
            if reusable > number:
                best, number = earlier, reusable
                if number == len(run.items):
                    break
        if best is not None:
            if number == len(run.items) < len(best.texts):
                run.copy(best, number)
                runs.remove(best)
                runs.append(best)  # it tells all that this one does
                return
            if number + 1 >= len(best.texts):
                run.take(best, number)
                runs.remove(best)
            else:
                run.copy(best, number)
        runs.append(run)
        if len(runs) > _MAX_RUNS:
            del runs[0]


def _reusable(site: CachedLoop, earlier: _Run, run: _Run) -> int:
    """How many iterations of an earlier run, from the first on, hold for another."""
    if not earlier.texts or not run.items or earlier.items[0] is not run.items[0]:
        return 0
    for before, now in zip(earlier.outside, run.outside, strict=True):
        if before is not now and not same(before, now):
            return 0
    number = len(earlier.texts)
    for bound, before, now in zip(site.bounds, earlier.bounds, run.bounds, strict=True):
        number = min(number, _unmoved(bound, before, now))
    common = _common(earlier.items, run.items)
    is_whole = common == len(earlier.items) == len(run.items)
    number = min(number, common if is_whole else common - site.looks_ahead)
    if site.watches and number > 0:
        if not is_whole:
            number = min(number, bisect_left(earlier.reaches[0], common))
        common = _common(earlier.messages, run.messages)
        if not common == len(earlier.messages) == len(run.messages):
            number = min(number, bisect_left(earlier.reaches[1], common))
    return number


def _common(first: Sequence[Any], second: Sequence[Any]) -> int:
    """How many items, from the first on, are the same."""
    if all(map(is_, first, second)):
        return min(len(first), len(second))
    return next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a is not b)


def _unmoved(bound: Bound, before: Any, now: Any) -> int:
    """The place of the first iteration that a bound tells something else now."""
    if type(before) is not int or type(now) is not int:
        return _EVERYTHING if same(before, now) else 0
    if before == now:
        return _EVERYTHING
    # Between the two the answers differ; at the lower one itself only if that is where they begin to.
    first = min(before, now) + (bound.operator in {"gt", "lteq"}) - bound.shift
    return max(first, 0)


def same(first: Any, second: Any, depth: int = 2) -> bool:
    """Whether a template cannot distinguish two values, except by `sameas`, which none here has."""
    if first is second:
        return True
    kind = type(first)
    if kind is not type(second):
        return False
    if kind in _SCALARS:
        return bool(first == second)
    if kind is jinja2.Undefined:
        return bool(
            first._undefined_obj is second._undefined_obj  # noqa: SLF001 - nothing else tells what is undefined
            and first._undefined_name == second._undefined_name  # noqa: SLF001
            and first._undefined_hint == second._undefined_hint  # noqa: SLF001
        )
    if kind is float:
        return repr(first) == repr(second)  # of 0.0 there are two
    if kind is list and depth and len(first) == len(second) <= _MAX_ITEMS:
        return all(same(a, b, depth - 1) for a, b in zip(first, second, strict=True))
    return False


def _attributes(space: Any) -> dict[str, Any]:
    """What a namespace holds.

    Raises:
        UncacheableError: it is none.

    """
    if not isinstance(space, jinja2.utils.Namespace):
        raise UncacheableError
    attributes: dict[str, Any] = object.__getattribute__(space, "_Namespace__attrs")
    return attributes


def _bounds(site: CachedLoop, attributes: dict[str, dict[str, Any]], given: Sequence[Any]) -> Iterator[Any]:
    of_names = iter(given)
    for bound in site.bounds:
        source = bound.source
        yield attributes[source.space].get(source.attribute, _MISSING) if isinstance(source, Held) else next(of_names)


@pass_context
def cached(
    context: jinja2.runtime.Context, items: Any, cache: RenderCache, number: int, outside: Sequence[Any]
) -> Iterator[tuple[Any, _Loop]]:
    """The filter that stands in place of the items of a loop: see :meth:`RenderCache.items`."""
    return cache.items(context, number, items, outside)


@pass_environment
def at(environment: Any, items: Any, place: Any, loop: _Loop, which: int) -> Any:
    """`items[place]` in an iteration, which notes how far it looked."""
    reaches = loop.reaches
    if type(place) is not int or place < 0 or type(items) is not list:
        reaches[which] = _EVERYTHING
    elif place > reaches[which]:
        reaches[which] = place
    return environment.getitem(items, place)
