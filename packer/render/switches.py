"""Template variables that choose whether, and how much, to reason: `enable_thinking`, `reasoning_effort`, or any other.

What a variable is called tells nothing. So each that a caller can set is set to every value with which the template's
source compares it, or which it falls back on, and made-up answers are rendered: a plain one, and some with reasoning in
the forms that rows have. A setting is one of reasoning if it changes which of them continue their prompt and show what
they say, or whether the prompt opens or closes a block of reasoning.

A value asks for reasoning if some shows under it. Where that is so for all values or for none, as with Mistral's
template, which only states the effort in front of the question, what a value means in English decides: the word, or
what a line that changes with it says. Of truth values, one also asks if only its prompt names the tags. A reasoned
answer is trained under no such value that asks for none, also if it is the one that the template uses by default.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from packer.render.reasoning import closes_reasoning, goes_on, has_tag, opened_by, shows_as_reasoning, without_ending
from packer.render.reasoning_form import ANSWER, KEY, WORD, Form
from packer.render.settings import Value

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
    opened = opened_by(prompt)
    block = opened is not None and not opened.closed, closes_reasoning(prompt)
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
