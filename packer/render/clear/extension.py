"""How far one rendering serves for others: the *extension property* of a template.

A template is compiled a second time, with a mark in front of each iteration of its loop over the messages and one
behind:

    OPENING {% for message in messages %} MARK BODY {% endfor %} MARK ENDING

The marks say where each message stands in a rendering. Cut at them, one rendering holds others, if the template extends
what it wrote before. How far it does is tried on small conversations, against the template itself:

- ``row``: the rendering of a conversation begins with that of each of its beginnings, up to the mark; so one rendering
  serves for all turns (ChatML, Llama 3).
- ``question``: it does as far as the next message of the user. Earlier reasoning is left out from there on, say.
- ``turn``: a turn only begins with its own prompts. It is rendered by itself, and they are cut from it.

An answer may begin in another way while it is the last message (:class:`Opening`), if all else is the same.

Worked example: under ChatML the turn of message 1 of `user, assistant, user, assistant` is what stands in front of the
mark of message 2, and its prompt is what stands in front of its own mark, followed by `<|im_start|>assistant⏎`, the
*header*. That the header is the same behind every message of a role, in every mode, is part of what is tried.

A trial is one for all conversations of a :class:`Kind`. It proves nothing for others of that kind, which is why rows
are compared as well (:mod:`packer.render.clear.compared`); that the texts make no difference is watched
(:mod:`packer.render.clear.questions`).
"""

import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jinja2
from jinja2 import nodes

from packer.render.clear.questions import Constants, LookedIntoError, Notes, NotWatchedError, noted, watch
from packer.render.common_prefix import common_length
from packer.render.conversation import Conversation
from packer.render.environment import ChatTemplate, RenderError
from packer.render.message_form import renderable
from packer.render.readback import arguments_of
from packer.render.reasoning import reasoning_fields
from packer.render.sandbox import Environment
from packer.watchdog import watched

MARK = "\ue0f5"
"""A private-use character in front of each message."""

Reach: TypeAlias = Literal["row", "question", "turn"]
Message: TypeAlias = Mapping[str, Any]

_FEWEST = 16
"""Messages of the longest conversation in a trial for conversations that are no longer."""


class NotClearError(RenderError):
    """A rendering from which nothing can be cut."""


class Pieces(NamedTuple):
    """A rendering, and where its messages stand."""

    text: str
    places: list[int]
    """Where each message begins, and, as the last, where the last one ends."""

    notes: Notes

    @property
    def num_messages(self) -> int:
        return len(self.places) - 1

    @property
    def ending(self) -> str:
        return self.text[self.places[-1] :]


class Kind(NamedTuple):
    """What a trial is for: all that conversations have in common with it."""

    tools: bool
    system: str
    """The role of the first message if it is neither a question nor an answer."""

    calls: Literal["", "text", "values"]
    """Whether they contain calls, and whether the arguments are JSON or values."""

    several: bool
    """Whether a message contains several calls."""

    nulls: bool
    """Whether calls without a text have null as their content."""

    reasoning: tuple[str, ...]
    """The fields that contain reasoning."""

    size: int
    """The number of messages, rounded up: a template may count."""


Form: TypeAlias = tuple[str, int, bool, bool]
"""What a message is: its role, the number of its calls (at most 2), whether it has a text, and reasoning."""


def neighbors(forms: Sequence[Form]) -> set[tuple[Form, ...]]:
    """Return which messages stand beside which: two by two, and three by three."""
    return {*itertools.pairwise(forms), *zip(forms, forms[1:], forms[2:], strict=False)}


class Opening(NamedTuple):
    """What differs if an answer is not the last message: Qwen3 writes an empty block of reasoning if it is."""

    longer: str
    own: str


Key: TypeAlias = tuple[str, Form]
"""Role of the message before an answer, and what the answer is."""


Pair: TypeAlias = tuple[str, str] | None
"""What stands between a key and its value, and behind it."""


class Spelling(NamedTuple):
    """How a template writes the arguments of a call that it does not write as JSON."""

    between: str
    """What stands between a key and its value."""

    behind: str
    """What stands behind a value, up to what differs."""


class Extension(NamedTuple):
    """How far renderings of one kind serve."""

    reach: Reach
    openings: Mapping[Key, Opening]
    """How an answer begins in a longer rendering, and in that of its own turn."""

    headers: Mapping[str, tuple[str, ...]]
    """By the role of the message before: what a prompt adds in any mode, the longest first."""

    default: Mapping[str, str]
    """By the role of the message before: what it adds in the default mode."""

    spelling: Spelling | None
    neighbors: set[tuple[Form, ...]]
    """Which messages stood beside which; of others nothing is known."""

    sought: frozenset[str]
    """Texts that the template looked for in those of a prompt."""


class MarkedTemplate:
    """A template whose renderings say where each message stands, and do not depend on what texts say."""

    def __init__(self, template: ChatTemplate) -> None:
        self.plain = template
        self._marked = _marked(template.environment, template.source)

    @property
    def constants(self) -> Constants | None:
        """What it compares texts with; None if it has no loop over messages, or may ask anything."""
        return self._marked[1] if self._marked else None

    def pieces(
        self, messages: Sequence[Message], tools: Any, kwargs: Mapping[str, Any], *, prompt: bool = False
    ) -> Pieces:
        """Render messages; with `prompt`, the header of an answer, too.

        Raises:
            NotClearError: the template looked into a text, or did not write the messages one by one.
            RenderError: the template raised.
        """
        assert self._marked is not None
        marked = self._marked[0]
        try:
            text, notes = noted(
                lambda: self.plain.run(marked, messages, tools=tools, add_generation_prompt=prompt, kwargs=kwargs)
            )
        except RenderError as error:
            if isinstance(error.__cause__, LookedIntoError):
                raise NotClearError("the template looks into a text") from error
            raise
        pieces = text.split(MARK)
        places = [0, *itertools.accumulate(map(len, pieces))]
        # The loop may leave out the first message, which then stands in front of it.
        num_outside = len(messages) + 2 - len(pieces)
        if num_outside not in (0, 1):
            raise NotClearError("the template does not write the messages one by one")
        return Pieces("".join(pieces), places[1 - num_outside : -1], notes)


@functools.lru_cache(maxsize=256)
def _marked(environment: Environment, source: str) -> tuple[jinja2.Template, Constants] | None:
    """Compile a template with marks and watched questions; return None if it has no loop over messages."""
    try:
        return watched(lambda: _compiled(environment, source))
    except (NotWatchedError, RecursionError, SyntaxError, jinja2.TemplateError):
        return None


def _compiled(environment: Environment, source: str) -> tuple[jinja2.Template, Constants] | None:
    parsed = environment.parse(source)
    loops = list(_loops(parsed.body))
    if not loops:
        return None
    body, loop = loops[-1]
    if loop.test or loop.recursive or loop.else_:
        return None
    asked = watch(parsed)
    loop.body.insert(0, nodes.Output([nodes.TemplateData(MARK)]))
    body.insert(body.index(loop) + 1, nodes.Output([nodes.TemplateData(MARK)]))
    parsed.set_lineno(1)
    parsed.set_environment(environment)
    return environment.from_string(parsed), asked


def _loops(body: list[nodes.Node]) -> Iterator[tuple[list[nodes.Node], nodes.For]]:
    """Yield the loops that write something where it stays, each with the statements that it is one of."""
    for node in body:
        if isinstance(node, nodes.For) and any(_writes(each) for each in node.find_all(nodes.Output)):
            yield body, node
        elif isinstance(node, nodes.If):
            for part in (node.body, node.else_, *(each.body for each in node.elif_)):
                yield from _loops(part)


def _writes(node: nodes.Output) -> bool:
    return any(not isinstance(each, nodes.TemplateData) or each.data.strip() for each in node.nodes)


def tried(marked: MarkedTemplate, kind: Kind, kwargs: Mapping[str, Any]) -> Extension | None:
    """Try how far renderings of a kind serve; None if not even for the prompts of a turn."""
    trial = _Trial(marked)
    for messages in _conversations(kind):
        tools = _TOOLS if kind.tools else None
        conversation = Conversation(marked.plain, messages, tools=tools, kwargs=kwargs)
        trial.add(renderable(conversation, len(messages) - 1))
    return trial.outcome(kind)


class _Trial:
    def __init__(self, marked: MarkedTemplate) -> None:
        self._marked = marked
        self._left: list[Reach] = ["row", "question", "turn"]
        self._headers: dict[str, dict[int, str]] = {}
        self._agrees = True
        self._seen_calls = self._seen = False
        self._spellings: set[Spelling | None] = set()
        self._neighbors: set[tuple[Form, ...]] = set()
        self._openings: dict[Reach, dict[Key, Opening | None]] = {"row": {}, "question": {}, "turn": {}}
        self._sought: set[str] = set()

    def outcome(self, kind: Kind) -> Extension | None:
        is_seen = self._seen_calls if kind.calls else self._seen
        if not (is_seen and self._agrees and self._left):
            return None
        headers = {
            role: tuple(sorted(set(by_mode.values()), key=len, reverse=True)) for role, by_mode in self._headers.items()
        }
        default = {role: by_mode[0] for role, by_mode in self._headers.items() if 0 in by_mode}
        spelling = next(iter(self._spellings)) if len(self._spellings) == 1 else None
        reach = self._left[0]
        openings = {key: opening for key, opening in self._openings[reach].items() if opening is not None}
        return Extension(reach, openings, headers, default, spelling, self._neighbors, frozenset(self._sought))

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
        ends = ends_of_questions(messages, answers)
        question = row
        for k in answers:
            if k == answers[0] or question.num_messages <= k:
                question = self._pieces(conversation, next(end for end in ends if end >= k))
            own = next((each for each in (row, question) if each.num_messages == k + 1), None)
            own = own or self._pieces(conversation, k)
            self._agrees &= own.text == conversation.render(messages[: k + 1], {})
            self._agrees &= self._adds_headers(conversation, k, own)
            self._note_spelling(messages[k], own.text[own.places[k] :])
            key = key_of(messages, k)
            longer_ones: tuple[tuple[Reach, Pieces], ...] = (("row", row), ("question", question))
            for reach, longer in longer_ones:
                opening = _opening(longer, own, k)
                known = opening if longer is own else self._openings[reach].setdefault(key, opening)
                if reach in self._left and (opening is None or opening != known):
                    self._left.remove(reach)

    def _pieces(self, conversation: Conversation, k: int) -> Pieces:
        return self._marked.pieces(conversation.messages[: k + 1], conversation.tools, conversation.kwargs)

    def _adds_headers(self, conversation: Conversation, k: int, own: Pieces) -> bool:
        """Whether each mode's prompt is the turn up to its mark and a header, and no mode changes the turn."""
        messages = conversation.messages
        found = self._headers.setdefault(messages[k - 1]["role"], {})
        before = own.text[: own.places[k]]
        is_first = not found
        for number, mode in enumerate(conversation.modes):
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
            if not prompt.startswith(before) or header != known or watched_prompt.text != prompt:
                return False
            if mode and conversation.render(messages[: k + 1], mode) != own.text:
                return False
        return bool(found)

    def _note_spelling(self, message: Message, written: str) -> None:
        calls: Sequence[Any] = message.get("tool_calls") or ()
        if len(calls) == 1:
            values = arguments_of(calls[0])
            pairs = [_spelling(key, values[key], written) for key in ("place", "period")]
            self._spellings.add(_common(*pairs))


def key_of(messages: Sequence[Message], k: int) -> Key:
    """Return what the opening of an answer depends on."""
    return messages[k - 1]["role"], form_of(messages[k])


def _opening(longer: Pieces, own: Pieces, k: int) -> Opening | None:
    """Return what a longer rendering has in place of what the turn of message k begins with; None if more differs."""
    start, end = own.places[k], own.places[-1]
    if longer.places[: k + 1] != own.places[:-1] or longer.text[:start] != own.text[:start]:
        return None
    if longer.ending != own.ending:
        return None
    one, other = longer.text[start : longer.places[k + 1]], own.text[start:end]
    if one == other:
        return Opening("", "")
    num_common = common_length(one[::-1], other[::-1])
    return Opening(one[: len(one) - num_common], other[: len(other) - num_common])


def ends_of_questions(messages: Sequence[Message], answers: Sequence[int]) -> list[int]:
    """Return of each question the last answer, given the numbers of all answers."""
    asked = list(itertools.accumulate(message["role"] == "user" for message in messages))
    return [
        k for k, after in zip(answers, [*answers[1:], None], strict=True) if after is None or asked[after] > asked[k]
    ]


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


_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks.",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "period": {"type": "string"}},
                "required": ["place"],
            },
        },
    }
]


def _conversations(kind: Kind) -> Iterator[list[dict[str, Any]]]:
    """Yield conversations of a kind in which each round comes behind each, and some that are as long as can be.

    A round is an answer and the next question, or calls and their results: `a` answers, `c` calls, `k` calls and has a
    text, `d` and `e` do the same with two calls at once; capitals have reasoning. `u` asks, `t` is a result, and `b` a
    blank one.
    """
    kinds = ["au"] + ["ct", "cb", "kt", "kb"] * bool(kind.calls) + ["dtt", "ett"] * kind.several
    rounds = kinds + [each[0].upper() + each[1:] for each in kinds] * bool(kind.reasoning)
    for one, other in itertools.product(rounds, rounds):
        yield _messages(kind, f"u{one}{other}a")
    every = "".join(rounds)
    yield _messages(kind, "u" + every * (kind.size // len(every) + 1) + "a")
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
        message["tool_calls"] = [_call(kind, each) for each in calls]
    return message


def _call(kind: Kind, number: int) -> dict[str, Any]:
    values = {"place": f"Paris{number}", "period": f"Night{number}"}
    arguments = json.dumps(values) if kind.calls == "text" else values
    return {"id": f"call{number:05d}", "type": "function", "function": {"name": "look", "arguments": arguments}}


def form_of(message: Message) -> Form:
    """Return what a message is."""
    calls, text = message.get("tool_calls") or (), message.get("content")
    has_text = type(text) is str and text != "" and not text.isspace()
    return message["role"], min(len(calls), 2), has_text, len(message) > 2 and bool(reasoning_fields(message))


def size_of(num_messages: int) -> int:
    """Return a number of messages, rounded up to a power of two."""
    return max(_FEWEST, 1 << (num_messages - 1).bit_length())
