"""Template variables that choose whether, and how much, to reason: `enable_thinking`, `reasoning_effort`, or any other.

What a variable is called tells nothing. So each that a caller can set is set to every value that may make a difference:
the words and numbers near it in the template's syntax tree. A template compares a variable, looks it up, hands it to a
macro, or stores it under other names first, so all constants in an expression with the variable, or with what is made
of it, are values to try, and those of the lists and objects that such an expression names. Made-up answers are rendered
under each: a plain one, and some with reasoning in the forms that rows have. A setting is one of reasoning if it
changes which of them continue their prompt and show what they say, or whether the prompt opens or closes a block of
reasoning.

A value asks for reasoning if some shows under it. Where that is so for all values or for none, as with Mistral's
template, which only states the effort in front of the question, what a value means in English decides: the word, or
what a line that changes with it says. Of truth values, one also asks if only its prompt names the tags. A reasoned
answer is trained under no such value that asks for none, also if it is the one that the template uses by default.
"""

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from jinja2 import nodes

from packer.render.reasoning import (
    closes_reasoning,
    goes_on,
    has_tag,
    opens_reasoning,
    shows_as_reasoning,
    without_ending,
)
from packer.render.reasoning_form import ANSWER, KEY, WORD, Form

Value: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any]
"""Equal values may differ in type, and objects and lists have no hash."""

Flows: TypeAlias = Mapping[str, Collection[nodes.Node]]
"""What is stored under each name of a template; `ns.flag` is one."""

_OF_ROWS = frozenset({"messages", "tools", "documents"})
_UNITS = (nodes.Compare, nodes.Test, nodes.Call, nodes.Filter, nodes.Getitem, nodes.Or, nodes.CondExpr)
_WORD = re.compile(r"\w[\w .+-]{0,30}")
_MOST_VALUES = 64
"""More than a variable of any template has."""


def settings_of(parsed: nodes.Template, names: frozenset[str]) -> dict[str, tuple[Value, ...]]:
    """Return the values to try for each variable; the truth values are always among them.

    For a number its neighbors are values, too, since more or less may be asked for. If members of a variable are read,
    objects with one of them are values, and so is the empty one. If something is looked for in it, the empty list is.
    What is made of the messages is no variable.
    """
    flows = _flows(parsed)
    of_rows = _made_of(_OF_ROWS, flows)
    units = [(unit, frozenset(_reads(unit))) for unit in parsed.find_all(_UNITS)]
    stored = {name: each for name, each in flows.items() if name not in of_rows}
    return {name: _values(name, _made_of({name}, stored), units, stored) for name in sorted(names)}


def keys_of(parsed: nodes.Template) -> frozenset[str]:
    """Return the members that a template reads, and the words it names, among which others may be: `m.get("plan")`."""
    words = (each.value for each in parsed.find_all(nodes.Const) if isinstance(each.value, str))
    members = (each.attr for each in parsed.find_all(nodes.Getattr))
    return frozenset(word for word in (*members, *words) if word.isidentifier())


def _values(
    name: str, known: Collection[str], units: Collection[tuple[nodes.Expr, frozenset[str]]], flows: Flows
) -> tuple[Value, ...]:
    near = [(unit, read) for unit, read in units if not read.isdisjoint(known)]
    named = [node for _, read in near for other in sorted(read - {*known}) for node in flows.get(other, ())]
    own = [node for other in sorted(known) for node in flows.get(other, ()) if isinstance(node, nodes.Const)]
    constants = [*_constants(*(node for each, _ in near for node in _parts(each)), *named, *own), True, False]
    members = dict.fromkeys(member for unit, _ in near for member in _members(name, unit))
    values = [{member: each} for member in members for each in constants] if members else constants
    operands = (each for unit, _ in near for each in unit.find_all(nodes.Operand))
    is_searched = any(each.op in ("in", "notin") and name in _reads(each.expr) for each in operands)
    found = [*values, *([{}] if members else []), *([[]] if is_searched else [])]
    return tuple({repr(value): value for value in found}.values())[:_MOST_VALUES]


def _parts(unit: nodes.Expr) -> Sequence[nodes.Node | None]:
    """Return where the constants of an expression are: in all of it, or in what stands in for another value."""
    if not isinstance(unit, nodes.Or | nodes.CondExpr):
        return (unit,)
    both = (unit.left, unit.right) if isinstance(unit, nodes.Or) else (unit.expr1, unit.expr2)
    return both if None not in both and sum(isinstance(each, nodes.Const) for each in both) == 1 else ()


def _constants(*expressions: nodes.Node | None) -> Iterator[str | int | float]:
    """Yield the words and numbers of expressions, and the neighbors of the numbers; of objects, the keys."""
    for each in expressions:
        if isinstance(each, nodes.Const):
            yield from _plain(each.value)
        elif each is not None:
            yield from _constants(*([each.key] if isinstance(each, nodes.Pair) else each.iter_child_nodes()))


def _plain(value: Any) -> Iterator[str | int | float]:
    if isinstance(value, list | tuple | dict):
        yield from itertools.chain(*map(_plain, value))
    elif isinstance(value, str) and _WORD.fullmatch(value):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from (value, value + 1, value - 1)


def _members(name: str, unit: nodes.Expr) -> Iterator[str]:
    """Yield the keys under which an expression reads members of a variable, as in `x.a`, `x['a']` and `x.get('a')`."""
    methods = [call.node for call in (unit, *unit.find_all(nodes.Call)) if isinstance(call, nodes.Call)]
    inner: list[nodes.Node] = [unit, *unit.find_all((nodes.Getattr, nodes.Getitem, nodes.Call))]
    for each in inner:
        of: Any = getattr(each, "node", None)
        key: Any = getattr(each, "attr", getattr(each, "arg", None))
        if isinstance(each, nodes.Call) and isinstance(of, nodes.Getattr) and of.attr == "get" and each.args:
            of, key = of.node, each.args[0]
        key = key.value if isinstance(key, nodes.Const) else key
        if isinstance(of, nodes.Name) and of.name == name and isinstance(key, str) and each not in methods:
            yield key


def _flows(parsed: nodes.Template) -> Flows:
    """Return the expressions whose values are stored under each name: by `set`, in namespaces, by `for`, in macros."""
    found: defaultdict[str, list[nodes.Node]] = defaultdict(list)
    macros = {macro.name: [each.name for each in macro.args] for macro in parsed.find_all(nodes.Macro)}
    for assign in parsed.find_all(nodes.Assign):
        target, node = assign.target, assign.node
        name = f"{target.name}.{target.attr}" if isinstance(target, nodes.NSRef) else getattr(target, "name", "")
        if isinstance(node, nodes.Call) and getattr(node.node, "name", "") == "namespace":
            for keyword in node.kwargs:
                found[f"{name}.{keyword.key}"].append(keyword.value)
        else:
            found[name].append(node)
    for loop in parsed.find_all(nodes.For):
        for name in _reads(loop.target):
            found[name].append(loop.iter)
    for call in parsed.find_all(nodes.Call):
        if (parameters := macros.get(getattr(call.node, "name", ""))) is not None:
            given = [*zip(parameters, call.args, strict=False), *((each.key, each.value) for each in call.kwargs)]
            for name, value in given:
                found[name].append(value)
    return found


def _made_of(names: Collection[str], flows: Flows) -> frozenset[str]:
    """Return some names and those of what is made of them."""
    reads = {target: frozenset(read for node in stored for read in _reads(node)) for target, stored in flows.items()}
    known, size = {*names}, 0
    while len(known) > size:
        size = len(known)
        known |= {target for target, read in reads.items() if not read.isdisjoint(known)}
    return frozenset(known)


def _reads(node: nodes.Node) -> Iterator[str]:
    """Yield the names that an expression reads, and those of members: `ns` and `ns.flag`."""
    for each in (node, *node.find_all((nodes.Name, nodes.Getattr))):
        if isinstance(each, nodes.Name):
            yield each.name
        elif isinstance(each, nodes.Getattr) and isinstance(each.node, nodes.Name):
            yield f"{each.node.name}.{each.attr}"


Message: TypeAlias = Mapping[str, Any]


class Render(Protocol):
    """Renders messages with variables, and perhaps the header of an answer; returns None if the template raises."""

    def __call__(
        self, messages: Sequence[Message], kwargs: Mapping[str, Any], *, prompt: bool = False
    ) -> str | None: ...


_PLAIN: Message = {"role": "assistant", "content": ANSWER}
_INLINE: Message = {**_PLAIN, "content": f"<think>\n{WORD}\n</think>\n\n{ANSWER}"}
_CHATS: tuple[list[Message], ...] = (
    [{"role": "user", "content": "x"}],
    [{"role": "system", "content": "w"}, {"role": "user", "content": "x"}],
)

_EFFORT_LIKE = re.compile("think|reason|effort")
_LINE_END = re.compile(r"[\n<>\[\]]")
"""A marker ends a line, too."""

_SHORT = 40
"""Characters of a line that states a setting, and is no instruction."""

_NONE = re.compile(r"(?:no(?:t|n|ne)?(?:[ _-]?(?:think|reason)\w*)?|off|false|disabled?)", re.IGNORECASE)
"""Matches a word that means none: `none`, `no_think`, `off`."""


def means_none(word: Value) -> bool:
    """Whether a value is a word that asks for no reasoning."""
    return isinstance(word, str) and _NONE.fullmatch(word) is not None


def _states_none(prompt: str, prompts: Sequence[str], *, is_effort: bool) -> bool:
    """Whether a short line of a prompt, but not of all, says that there is no reasoning, such as `Effort: none`.

    What the line is about, it says itself, or the name of the variable does.
    """
    lines = (line for line in _LINE_END.split(prompt) if not all(line in each for each in prompts))
    short = (line.lower() for line in lines if len(line) <= _SHORT)
    stated = (line for line in short if is_effort or _EFFORT_LIKE.search(line))
    return any(means_none(word) for line in stated for word in re.findall(r"[\w-]+", line))


class _Look(NamedTuple):
    """What a template does with made-up answers under some variables."""

    prompt: str
    block: tuple[bool, bool]
    """Whether it opens a block of reasoning, and whether it ends with a closed one."""

    fits: tuple[bool, ...]
    """Whether each answer continues its prompt, and shows its reasoning."""

    written: tuple[str | None, ...]
    """What the template makes of each answer."""

    def says(self, value: Value) -> bool:
        """Whether a truth value is written into an answer: then the template takes the variable for its own text."""
        text = self.written[0] or ""
        return isinstance(value, bool) and text.count(str(value)) > self.prompt.count(str(value))

    def asks(self, form: int) -> bool:
        """Whether reasoning is asked for: it shows in a form, the first that shows at all; 0 if none does."""
        return self.fits[form] if form else self.block[0]

    def is_another(self, own: "_Look") -> bool:
        """Whether something else can be trained than under the default."""
        return self.block != own.block or (any(self.fits) and self.fits != own.fits)


@dataclass(frozen=True, slots=True)
class Switches:
    """The variables of a template that choose between prompts with and without reasoning."""

    written: tuple[tuple[str | None, ...], ...] = ()
    """What the template makes of made-up answers with reasoning, by default and under each setting of one."""

    modes: tuple[tuple[str, Value], ...] = ()
    """Those under which any answer may be trained."""

    none: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """By variable, the words and numbers that ask for no reasoning."""

    none_by_default: frozenset[str] = frozenset()
    """The variables that mean none if nothing sets them."""

    asking: tuple[tuple[str, Value], ...] = ()
    """Of these, the words with which the template asks for reasoning; a number of tokens is not to be guessed."""

    off: frozenset[tuple[str, Value | None]] = frozenset()
    """The truth values under which reasoning is not asked for, and would be under others; None is no value."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables that select the prompt."""
        return tuple(dict.fromkeys(name for name, _ in self.modes))

    def asks_under(self, name: str, value: Value) -> bool:
        """Whether a value of a variable asks for reasoning, of which another value, or none, asks for none."""
        values = [*self.none.get(name, ()), *(off for of, off in self.off if of == name)]
        return bool(values) and not any(
            _folded(value) == _folded(each) and type(value) is type(each) for each in values
        )

    def refusing(self, kwargs: Mapping[str, Any]) -> str | None:
        """Return by which variable a template asks for no reasoning if it is given these; None if by none."""
        for name, words in self.none.items():
            value = kwargs.get(name)
            if any(_folded(value) == _folded(word) and type(value) is type(word) for word in words):
                return f"{name}={json.dumps(value) if isinstance(value, bool) else value}"
            if value is None and name in self.none_by_default:
                return f"{name}, which means none by default"
        return None

    def contradicting(self, kwargs: Mapping[str, Any]) -> str:
        """Return the switches, as they are set, that leave a template without reasoning; nothing if none do."""
        off = [name for name, value in kwargs.items() if isinstance(value, bool) and (name, value) in self.off]
        return " and ".join(f"{name}={json.dumps(kwargs[name])}" for name in off)

    def is_off(self, kwargs: Mapping[str, Any]) -> bool:
        """Whether no switch asks for reasoning."""
        values = {name: kwargs.get(name) for name, value in self.off if value is None}
        return bool(values) and all(
            value in (None, False, True) and (name, value) in self.off for name, value in values.items()
        )


def _folded(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def learned(values: Mapping[str, Sequence[Value]], forms: Sequence[Form], render: Render) -> Switches:
    """Learn what variables do.

    Args:
        values: by variable, the values to try.
        forms: in which answers may have their reasoning.
        render: renders small chats.
    """
    answers = (_PLAIN, *(form.made_up for form in forms), _INLINE)
    looks_of = [(chat, look) for chat in _CHATS if (look := _look(render, chat, answers, {})) is not None]
    if not looks_of:
        return Switches()
    chat, own = looks_of[0]
    looks = []
    for name, tried in values.items():
        found = [(value, look) for value in tried if (look := _look(render, chat, answers, {name: value})) is not None]
        looks += [(name, *each) for each in _telling([each for each in found if not each[1].says(each[0])], own)]
    none, by_default, asking, off = {}, set(), [], set()
    for name in values:
        is_effort = _EFFORT_LIKE.search(name) is not None  # other settings may leave no answer as it is: `tool_choice`
        usable = [(value, look) for of, value, look in looks if of == name and (is_effort or any(look.fits))]
        fits = zip(own.fits, *(look.fits for _, look in usable), strict=True)
        form = next((form for form, shown in enumerate(fits) if form and any(shown)), 0)
        silent = [value for value, look in usable if not look.asks(form)]
        is_default = not own.asks(form)
        is_word = False
        if len(silent) + is_default in (0, len(usable) + 1):
            prompts = [look.prompt for _, look in usable]
            silent = [value for value, _ in usable if is_effort and means_none(value)]
            stated = [value for value, look in usable if _states_none(look.prompt, prompts, is_effort=is_effort)]
            truths = [(value, look.prompt) for value, look in usable if isinstance(value, bool)]
            untold: list[Value] = [value for value, prompt in truths if not has_tag(without_ending(prompt))]
            silent = silent or stated or (untold if len(untold) < len(truths) else [])
            is_default = own.prompt in [look.prompt for value, look in usable if value in silent]
            is_word = True  # and a truth value is told like one
        off |= {(name, value) for value in (*silent, *[None] * is_default) if value is None or isinstance(value, bool)}
        words = [(value, look) for value, look in usable if is_word or not isinstance(value, bool)]
        said = tuple(value for value, _ in words if value in silent)
        if words and (said or is_default):
            none[name] = said
        if words and is_default:
            by_default.add(name)
            asking += [
                (name, value)
                for value, look in words
                if isinstance(value, str | bool) and value not in said and look != own
            ]
    of_look = {(name, look): value for name, value, look in reversed(looks) if look.is_another(own)}
    modes = [
        (name, value) for (name, _), value in of_look.items() if isinstance(value, bool) or value in none.get(name, ())
    ]
    shown = [own, *(look for name, value, look in looks if look.is_another(own) or (name, value) in asking)]
    written = tuple(look.written[1:-1] for look in shown)
    return Switches(written, tuple(modes), none, frozenset(by_default), tuple(asking), frozenset(off))


def _telling(looks: Sequence[tuple[Value, _Look]], own: _Look) -> list[tuple[Value, _Look]]:
    """Leave out truth values if they do the same, are shown, or there are numbers; else words that do as they do.

    None is left out if no answer can be trained by default or under a word.
    """
    truths = {str(value): look for value, look in looks if isinstance(value, bool)}
    others = [value for value, _ in looks if not isinstance(value, bool)]
    is_shown = any(truth in look.prompt and truth not in own.prompt for truth, look in truths.items())
    is_number = any(isinstance(value, int | float) for value in others)
    is_truth = len({*truths.values()}) == 2 and not is_number and not (others and is_shown)
    if not any(own.fits) and not any(any(look.fits) for value, look in looks if not isinstance(value, bool)):
        return [*looks]  # a truth value stands for anything but the words that the template knows
    return [
        (value, look)
        for value, look in looks
        if (is_truth if isinstance(value, bool) else not is_truth or look not in truths.values())
    ]


def _look(
    render: Render, chat: Sequence[Message], answers: Sequence[Message], kwargs: Mapping[str, Any]
) -> _Look | None:
    prompt = render(chat, kwargs, prompt=True)
    if prompt is None:
        return None
    block = opens_reasoning(prompt), closes_reasoning(prompt)
    written = tuple(render([*chat, answer], kwargs) for answer in answers)
    fits = tuple(_continues(prompt, *each) for each in zip(written, answers, strict=True))
    return _Look(prompt, block, fits, written)


def _continues(prompt: str, whole: str | None, answer: Message) -> bool:
    """Whether an answer continues its prompt, and its reasoning shows before the text, but not as a printed list."""
    is_reasoned = answer is not _PLAIN
    if whole is None or not whole.startswith(prompt) or KEY in whole:
        return False
    completion = whole[len(prompt) :]
    if not goes_on(prompt, completion, is_reasoned=is_reasoned):
        return False
    is_shown = ANSWER in completion.partition(WORD)[2] and shows_as_reasoning(WORD, prompt, completion)
    return is_shown or not is_reasoned
