"""Tries whether one rendering of a template serves for others, on small conversations of one kind.

What is cut from marked renderings is compared with what the template writes by itself: every prompt in every mode, and
every turn. A conversation that the template does not take (two calls at once, say) is no part of the trial, and then
rows like it are not clear: they have neighbors that the trial had not.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packer.literals import common_length
from packer.render.clear.extension import (
    FEWEST,
    Extension,
    Form,
    Headers,
    Key,
    Kind,
    MarkedTemplate,
    Opening,
    Pair,
    Pieces,
    Spelling,
    form_of,
    neighbors,
    questions,
)
from packer.render.conversation import Conversation, renderable
from packer.render.environment import RenderError, made_up_tool
from packer.render.readback import arguments_of
from packer.render.reasoning import Message, closes_reasoning, opened_by


def tried(marked: MarkedTemplate, kind: Kind, kwargs: Mapping[str, Any]) -> Extension | None:
    """Try whether a rendering of a kind serves for its beginnings; None if it does not."""
    trial = _Trial(marked)
    for messages in _conversations(kind):
        tools = [made_up_tool("look", "place", "hour")] if kind.tools else None
        conversation = Conversation(marked.plain, messages, tools=tools, kwargs=kwargs)
        trial.add(renderable(conversation, len(messages) - 1))
    return trial.outcome(kind)


class _Trial:
    def __init__(self, marked: MarkedTemplate) -> None:
        self._marked = marked
        self._headers: dict[str, dict[int, str]] = {}
        self._agrees = True
        self._seen_calls = self._seen = False
        self._spellings: set[Spelling | None] = set()
        self._neighbors: set[tuple[Form, ...]] = set()
        self._openings: dict[Key, Opening] = {}
        self._sought: set[str] = set()

    def outcome(self, kind: Kind) -> Extension | None:
        is_seen = self._seen_calls if kind.calls else self._seen
        if not (is_seen and self._agrees):
            return None
        headers = {role: _headers(by_mode) for role, by_mode in self._headers.items()}
        spelling = next(iter(self._spellings)) if len(self._spellings) == 1 else None
        are_same = all(longer == own for longer, own in self._openings.values())
        return Extension(self._openings, are_same, headers, spelling, self._neighbors, frozenset(self._sought))

    def add(self, conversation: Conversation) -> None:
        """Compare what is cut from marked renderings with what the template writes."""
        messages = conversation.messages
        answers = [k for k, message in enumerate(messages) if message["role"] == "assistant"]
        try:
            conversation.render(messages[: answers[-1] + 1], {})
        except RenderError:
            return  # no conversation for this template
        try:
            self._compare(conversation, answers)
        except RenderError:
            self._agrees = False
        self._seen = True
        self._neighbors |= neighbors([form_of(message) for message in messages])
        self._seen_calls |= any("tool_calls" in message for message in messages)

    def _compare(self, conversation: Conversation, answers: Sequence[int]) -> None:
        messages = conversation.messages
        row = self._pieces(conversation, answers[-1])
        for k in answers:
            own = row if row.num_messages == k + 1 else self._pieces(conversation, k)
            self._agrees &= own.text == conversation.render(messages[: k + 1], {})
            self._agrees &= self._adds_headers(conversation, k, own)
            self._agrees &= own is row or self._is_held(messages, row, own)
            self._note_spelling(messages[k], own.text[own.places[k] :])

    def _is_held(self, messages: Sequence[Message], longer: Pieces, own: Pieces) -> bool:
        """Whether a longer rendering holds that of a turn, but for how answers to the last question begin."""
        end, last, asked = longer.num_messages - 1, own.num_messages - 1, questions(messages)
        start = own.places[asked[last]]
        if longer.places[asked[last]] != start or longer.text[:start] != own.text[:start]:
            return False
        for k in range(asked[last], last + 1):
            one, other = longer.of(k), own.of(k)
            if messages[k]["role"] == "assistant":
                key = messages[k - 1]["role"], form_of(messages[k]), asked[k] == asked[end], k == last
                if self._openings.setdefault(key, _opening(one, other)) != _opening(one, other):
                    return False
            elif one != other:
                return False
        return longer.ending == own.ending

    def _pieces(self, conversation: Conversation, k: int) -> Pieces:
        return self._marked.pieces(conversation.messages[: k + 1], conversation.tools, conversation.kwargs)

    def _adds_headers(self, conversation: Conversation, k: int, own: Pieces) -> bool:
        """Whether each mode's prompt is the turn up to its mark and a header, and no mode changes the turn."""
        messages = conversation.messages
        found = self._headers.setdefault(messages[k - 1]["role"], {})
        before = own.text[: own.places[k]]
        is_first = not found
        # Of what a template counts, all modes are taken to see the same.
        for number, mode in enumerate(conversation.modes if k < FEWEST else conversation.modes[:1]):
            try:
                prompt = conversation.render(messages[:k], mode, prompt=True)
            except RenderError:
                if number in found:
                    return False
                continue
            kwargs = {**conversation.kwargs, **mode}
            watched_prompt = self._marked.pieces(messages[:k], conversation.tools, kwargs, prompt=True)
            self._sought |= watched_prompt.notes.sought
            if any(part in str(message["content"]) for part in self._sought for message in messages[:k]):
                return False  # texts are compared with each other
            header = prompt[len(before) :]
            known = found.setdefault(number, header) if is_first else found.get(number)
            if not prompt.startswith(before) or header != known:
                return False
            if mode and conversation.render(messages[: k + 1], mode) != own.text:
                return False
        return bool(found)

    def _note_spelling(self, message: Message, written: str) -> None:
        calls: Sequence[Any] = message.get("tool_calls") or ()
        if len(calls) == 1:
            values = arguments_of(calls[0])
            pairs = [_spelling(key, values[key], written) for key in ("place", "hour")]
            self._spellings.add(_common(*pairs))


def _headers(by_mode: Mapping[int, str]) -> Headers:
    added = tuple(sorted(set(by_mode.values()), key=len, reverse=True))
    opened = {each: block.closed for each in added if (block := opened_by(each)) is not None}
    closing = {each: [other for other in added if other != each and other.startswith(each)] for each in added}
    default = by_mode.get(0, "")
    return Headers(
        added,
        frozenset(each for each, is_closed in opened.items() if not is_closed),
        frozenset(
            each
            for each, longer in closing.items()
            if any(map(closes_reasoning, longer)) and not any(opened.get(other) is False for other in longer)
        ),
        default if closes_reasoning(default) else "",
    )


def _opening(longer: str, own: str) -> Opening:
    """Return what an answer begins with in two renderings, up to where they are alike."""
    if longer == own:
        return Opening("", "")
    num_common = common_length(longer[::-1], own[::-1])
    return Opening(longer[: len(longer) - num_common], own[: len(own) - num_common])


def _spelling(key: str, value: str, written: str) -> Pair:
    _, found, rest = written.partition(key)
    between, found_value, behind = rest.partition(value)
    return (between, behind) if found and found_value else None


def _common(one: Pair, other: Pair) -> Spelling | None:
    """Return how two pairs of key and value are written, if alike."""
    if one is None or other is None:
        return None
    behind = "".join(
        a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one[1], other[1], strict=False))
    )
    return Spelling(one[0], behind) if one[0] == other[0] and one[0] and behind else None


def _conversations(kind: Kind) -> Iterator[list[dict[str, Any]]]:
    """Yield conversations of a kind in which each round comes behind each, and some that are as long as can be.

    A letter is a message, as :attr:`Kind.rounds` has it.
    """
    rounds = kind.rounds
    ends = ["a", "A"] if kind.is_single and kind.reasoning else ["a"]
    for one, other, end in itertools.product(rounds or [""], rounds or [""], ends):
        yield _messages(kind, f"u{one}{other}{end}")
    every = "".join(rounds)
    yield _messages(kind, "u" + every * (kind.size // max(1, len(every)) + 1) + "a")
    if kind.calls:
        yield _messages(kind, "u" + "ct" * (kind.size // 2) + "a")


def _messages(kind: Kind, plan: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if kind.system:
        made.append({"role": kind.system, "content": "Be kind in all of this."})
    unanswered: list[int] = []
    for number, letter in enumerate(plan):
        if letter == "u":
            made.append({"role": "user", "content": f"What of question {number}?"})
        elif letter in "tb":
            answered = f"call{unanswered.pop(0):05d}"
            content = f'{{"found": "number {number}"}}' if letter == "t" else ""
            made.append({"role": "tool", "content": content, "tool_call_id": answered, "name": "look"})
        else:
            unanswered = [] if letter in "aA" else [2 * number, 2 * number + 1][: 1 + (letter in "dDeE")]
            made.append(_answer(kind, number, letter, unanswered))
    return made


def _answer(kind: Kind, number: int, letter: str, calls: Sequence[int]) -> dict[str, Any]:
    blank = None if kind.nulls else ""
    says = letter.lower() in "ake"
    message: dict[str, Any] = {"role": "assistant", "content": f"This is answer {number}." if says else blank}
    if letter.isupper():
        message |= dict.fromkeys(kind.reasoning, f"This is thought {number}.")
    if calls:
        message["tool_calls"] = [_call(each) for each in calls]
    return message


def _call(number: int) -> dict[str, Any]:
    values = {"place": f"Paris{number}", "hour": f"Night{number}"}
    return {"id": f"call{number:05d}", "type": "function", "function": {"name": "look", "arguments": values}}
