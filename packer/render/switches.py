"""Learns by trial how a template shows reasoning, and which variables choose whether, and how much, to reason.

**Forms.** Messages have reasoning in the fields `reasoning_content` and `thinking`, where transformers puts it. Some
templates read another key (`reasoning`, as Solar; `thoughts`), or parts of the content (Ministral). So each key that a
template names and that has *think*, *thought* or *reason* in it is tried with made-up words, and parts are, too. The
first form in which the template shows them is the one in which it gets all reasoning. What the template writes around
the words are its own markers. A row that has its reasoning inline, in tags that are no markers of this template
(`<think>` under gpt-oss), would have it trained as letters of the answer.

**Switches.** What a variable is called tells nothing: `enable_thinking`, `reasoning_effort`, or any other. So each that
a caller can set is set to every value that may make a difference (:mod:`packer.render.settings`). Made-up answers are
rendered under each: a plain one, and some with reasoning in the forms that rows have. A setting is one of reasoning if
it changes which of them continue their prompt and show what they say, or whether the prompt opens or closes a block of
reasoning.

A value asks for reasoning if some shows under it. Where that is so for all values or for none, as with Mistral's
template, which only states the effort in front of the question, what a value means in English decides: the word, or
what a line that changes with it says. Of truth values, one also asks if only its prompt names the tags. A reasoned
answer is trained under no such value that asks for none, also if it is the one that the template uses by default.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from packer.batches import REASONING_FIELDS
from packer.render.reasoning import (
    ANY_TAG,
    CLOSING,
    OPENING,
    Message,
    closes_reasoning,
    closing_of,
    goes_on,
    has_tag,
    opened_by,
    opens_reasoning,
    reasoning_fields,
    shows_as_reasoning,
    tag_at_end,
    without_ending,
    without_tags,
)
from packer.render.settings import Value, means_none

WORD, ANSWER, KEY = "Zq0W", "Zq1W", "Zq2W"

_OF_REASONING = re.compile("think|thought|reason")

_OWN_CLOSING = re.compile(r"[<\[{(|]{1,3}/[^\s<>\[\]{}()/]{1,60}[>\]})|]{1,3}")


class Form(NamedTuple):
    """Where a message may have its reasoning."""

    change: Callable[[Message], Message] | None
    made_up: Message
    """An answer that has it there."""


@dataclass(frozen=True, slots=True)
class ReasoningForm:
    """How a template shows reasoning."""

    change: Callable[[Message], Message] | None = None
    """Puts the reasoning of a message where the template looks for it; None if that is where messages have it."""

    around: frozenset[tuple[str, str]] = frozenset()
    """What it writes in front of reasoning and behind it; nothing if it shows none."""

    @property
    def own_tags(self) -> frozenset[str]:
        """Tags that only this template has around reasoning: `</plan>`, which closes what a `<plan>` opens."""
        return frozenset(_closing_at(after) for before, after in self.around if _own_opening(before, after))

    def apply(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages with their reasoning where the template looks for it."""
        change = self.change
        if change is None:
            return messages
        return [change(message) if reasoning_fields(message) else message for message in messages]

    def tag_in_answer(self, prompt: str, completion: str, marks: str) -> str | None:
        """Return a tag of reasoning in what is trained, but for the template's own around one block at the beginning.

        Other tags within that block are text of the reasoning, unless it begins with one. `marks` is the source of the
        template. If it knows no tags, they are text of the answer, too, but for one that closes what nothing opens; so
        are tags in code that it does not know.
        """
        begin, end = self._block(prompt, completion, marks)
        twice = OPENING.match(completion[begin:end].lstrip())
        rest = completion[end:]
        found = twice or ANY_TAG.search(without_tags(rest, marks, in_code=True))
        if found is None or self.around or has_tag(marks) or CLOSING.fullmatch(found[0]):
            return found[0] if found else next((tag for tag in sorted(self.own_tags) if tag in rest), None)
        return None

    def _block(self, prompt: str, completion: str, marks: str) -> tuple[int, int]:
        """Return where the reasoning begins that a turn opens with, and where the template's markers close it."""
        opened, begun = opened_by(prompt), OPENING.match(completion.lstrip())
        if closes_reasoning(prompt):
            return 0, 0
        known = opened.open_tag if opened else begun[0] if begun and begun[0] in marks else ""
        for before, after in self.around or ([(known, closing_of(known))] if known else []):
            opening, closing = tag_at_end(before.rstrip()) or _own_opening(before, after), after.strip()
            skipped, is_written, _ = completion.partition(opening or closing)
            is_first = is_written and before.rstrip().endswith(f"{skipped.lstrip()}{opening}")
            is_open = is_first and not prompt.rstrip().endswith(closing)
            if closing in completion and (is_open or not opening or prompt.rstrip().endswith(opening)):
                begin = len(skipped + opening) if is_first and opening else 0
                return begin, completion.index(closing) + len(closing)
        return 0, 0

    @property
    def marks_otherwise(self) -> bool:
        """Whether the template marks reasoning, and not with the tags that `inline` would put around it."""
        return bool(self.around) and not any(before.rstrip().endswith("<think>") for before, _ in self.around)


def _closing_at(after: str) -> str:
    found = _OWN_CLOSING.match(after.lstrip())
    return found[0] if found and not ANY_TAG.fullmatch(found[0]) else ""


def _own_opening(before: str, after: str) -> str:
    """Return the tag before reasoning that the one behind it closes; nothing if there is none, or it is a usual one."""
    opening = _closing_at(after).replace("/", "", 1)
    return opening if before.rstrip().endswith(opening) else ""


def learned_form(written: Iterable[Sequence[str | None]], forms: Sequence[Form]) -> ReasoningForm:
    """Choose the first form that shows; `written` has what the template made of each in each mode."""
    for form, texts in zip(forms, zip(*written, strict=True), strict=False):
        around = [found for text in texts if text is not None and (found := _around(text)) is not None]
        if around:
            return ReasoningForm(form.change, frozenset(around))
    return ReasoningForm()


def _around(text: str) -> tuple[str, str] | None:
    """Return what stands in front of the word and behind it, if that marks it off from the answer."""
    before, found, rest = text.partition(WORD)
    after, answered, _ = rest.partition(ANSWER)
    is_marked = found and answered and after.strip() and KEY not in text  # with it, the list is printed as it is
    return (before, after) if is_marked else None


def _under(key: str, message: Message) -> Message:
    return {**message, key: message[reasoning_fields(message)[0]]}


def _as_part(message: Message) -> Message:
    """Return a message with its reasoning as the first part of its content, as Mistral's API has it."""
    content = message.get("content")
    fields = reasoning_fields(message)
    part = {"type": "thinking", "thinking": message[fields[0]]}
    texts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    return {**{name: value for name, value in message.items() if name not in fields}, "content": [part, *texts]}


_FIELDS = {"role": "assistant", "content": ANSWER, **dict.fromkeys(REASONING_FIELDS[:2], WORD)}
_PARTS = _as_part(_FIELDS)
_IN_PARTS = {**_PARTS, "content": [{**_PARTS["content"][0], KEY: ""}, *_PARTS["content"][1:]]}
"""Its part of reasoning has a key that no template asks for."""


def forms_of(keys: Iterable[str]) -> tuple[Form, ...]:
    """Return the forms to try with a template that names some keys, in order."""
    named = [key for key in sorted(keys) if _OF_REASONING.search(key) and key not in REASONING_FIELDS[:2]]
    under = [functools.partial(_under, key) for key in named]
    return (Form(None, _FIELDS), *(Form(change, change(_FIELDS)) for change in under), Form(_as_part, _IN_PARTS))


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


def learned_switches(values: Mapping[str, Sequence[Value]], forms: Sequence[Form], render: Render) -> Switches:
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
