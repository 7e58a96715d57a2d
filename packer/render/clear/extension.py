"""Whether one rendering serves for others: the *extension property* of a template.

A template is compiled a second time, with a mark in front of each iteration of its loop over the messages and one
behind:

    OPENING {% for message in messages %} MARK BODY {% endfor %} MARK ENDING

The marks say where each message stands in a rendering. Cut at them, one rendering serves for all turns, if that of a
conversation begins with that of each of its beginnings, up to the mark (ChatML, Llama 3). Whether it does is tried on
small conversations, against the template itself. An answer may begin in another way while it belongs to the last
question, or is the last message (:class:`Opening`), if all else is the same.

Worked example: under ChatML the turn of message 1 of `user, assistant, user, assistant` is what stands in front of the
mark of message 2, and its prompt is what stands in front of its own mark, followed by `<|im_start|>assistant⏎`, the
*header*. That the header is the same behind every message of a role, in every mode, is part of what is tried.

A trial is one for all conversations of a :class:`Kind`. It proves nothing for others of that kind, which is why rows
are compared as well (:mod:`packer.render.clear`); that the texts make no difference is watched
(:mod:`packer.render.clear.watch`).
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jinja2
from jinja2 import nodes

from packer.batches import REASONING_FIELDS
from packer.host.watchdog import watched
from packer.render.clear.watch import FILTERS, LookedIntoError, Notes, NotWatchedError, noted, watch
from packer.render.environment import ChatTemplate, Environment, RenderError
from packer.render.reasoning import Message, reasoning_fields

MARK = "\ue0f5"
"""A private-use character in front of each message."""

_REASONING = frozenset(REASONING_FIELDS)
FEWEST = 16
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

    def of(self, k: int) -> str:
        """Return what is written for a message."""
        return self.text[self.places[k] : self.places[k + 1]]


class Kind(NamedTuple):
    """What a trial is for: all that conversations have in common with it."""

    tools: bool
    system: str
    """The role of the first message if it is neither a question nor an answer."""

    calls: bool
    """Whether they contain calls."""

    several: bool
    """Whether a message contains several calls."""

    nulls: bool
    """Whether calls without a text have null as their content."""

    reasoning: tuple[str, ...]
    """The fields that contain reasoning."""

    is_single: bool
    """Whether no question follows an answer: none is written otherwise because another question was asked."""

    size: int
    """The number of messages, rounded up: a template may count."""

    @property
    def rounds(self) -> list[str]:
        """The rounds of which its conversations consist: an answer and the next question, or calls and their results.

        `a` answers, `c` calls, `k` calls and has a text, `d` and `e` do the same with two calls at once; capitals have
        reasoning. `u` asks, `t` is a result, and `b` a blank one.
        """
        rounds = ["au"] * (not self.is_single) + ["ct", "cb", "kt", "kb"] * self.calls + ["dtt", "ett"] * self.several
        return rounds + [each[0].upper() + each[1:] for each in rounds] * bool(self.reasoning)


Form: TypeAlias = tuple[str, int, bool, bool]
"""What a message is: its role, the number of its calls (at most 2), whether it has a text, and reasoning."""


def neighbors(forms: Sequence[Form]) -> set[tuple[Form, ...]]:
    """Return which messages stand beside which: two by two, and three by three."""
    return {*itertools.pairwise(forms), *zip(forms, forms[1:], forms[2:], strict=False)}


class Opening(NamedTuple):
    """How an answer begins in a longer rendering, and in that of a turn.

    Qwen3 writes an empty block of reasoning before the last message, Qwen3.5 before each answer to the last question.
    """

    longer: str
    own: str


Key: TypeAlias = tuple[str, Form, bool, bool]
"""Role of the message before an answer, what the answer is, whether it belongs to the last question of the longer
rendering, and whether it is the last message of the turn's."""


Pair: TypeAlias = tuple[str, str] | None
"""What stands between a key and its value, and behind it."""


class Spelling(NamedTuple):
    """How a template writes the arguments of a call that it does not write as JSON."""

    between: str
    """What stands between a key and its value."""

    behind: str
    """What stands behind a value, up to what differs."""


class Headers(NamedTuple):
    """What the prompts behind messages of one role add."""

    added: tuple[str, ...]
    """In any mode, the longest first."""

    opening: frozenset[str]
    """Those that open a block of reasoning, which an answer has to close."""

    asking: frozenset[str]
    """Those to which others add an empty block, and none an open one."""

    closing: str
    """That of the default mode if it closes reasoning, or nothing."""


class Extension(NamedTuple):
    """What is known of the renderings of one kind, of which one serves for all turns."""

    openings: Mapping[Key, Opening]
    """How answers begin in a longer rendering, and in that of a turn to whose question they belong."""

    are_same: bool
    """Whether they begin alike in both."""

    headers: Mapping[str, Headers]
    """By the role of the message before."""

    spelling: Spelling | None
    neighbors: set[tuple[Form, ...]]
    """Which messages stood beside which; of others nothing is known."""

    sought: frozenset[str]
    """Texts that the template looked for in those of a prompt."""


class MarkedTemplate:
    """A template whose renderings say where each message stands, and do not depend on what texts say."""

    def __init__(self, template: ChatTemplate) -> None:
        self.plain = template

    @functools.cached_property
    def _marked(self) -> tuple[jinja2.Template, frozenset[str]] | None:
        return _marked(self.plain.environment, self.plain.source)

    @property
    def constants(self) -> frozenset[str] | None:
        """What it compares texts with; None if it has no loop over messages, or may ask anything."""
        return self._marked[1] if self._marked else None

    def pieces(
        self, messages: Sequence[Message], tools: Any, kwargs: Mapping[str, Any], *, prompt: bool = False
    ) -> Pieces:
        """Render messages; with `prompt`, the header of an answer, too.

        Raises:
            NotClearError: the template looked into a text, or did not write the messages one by one.
        """
        assert self._marked is not None
        marked = self._marked[0]
        try:
            text, notes = noted(
                lambda: self.plain.render(
                    messages, tools=tools, add_generation_prompt=prompt, kwargs=kwargs, compiled=marked
                )
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
def _marked(environment: Environment, source: str) -> tuple[jinja2.Template, frozenset[str]] | None:
    """Compile a template with marks and watched questions; return None if it has no loop over messages."""
    try:
        return watched(lambda: _compiled(environment, source))
    except (NotWatchedError, RecursionError, SyntaxError, jinja2.TemplateError):
        return None


def _compiled(environment: Environment, source: str) -> tuple[jinja2.Template, frozenset[str]] | None:
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
    environment.filters.update(FILTERS)
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


def questions(messages: Sequence[Message]) -> list[int]:
    """Return of each message the number of the question that it belongs to, which is a message, too."""
    numbers = [k if message["role"] == "user" else 0 for k, message in enumerate(messages)]
    return list(itertools.accumulate(numbers, max))


def form_of(message: Message) -> Form:
    """Return what a message is."""
    text = message.get("content")
    has_text = type(text) is str and text != "" and not text.isspace()
    if has_text and len(message) == 2:  # nearly always
        return message["role"], 0, True, False
    calls = message.get("tool_calls") or ()
    has_reasoning = not _REASONING.isdisjoint(message) and bool(reasoning_fields(message))
    return message["role"], min(len(calls), 2), has_text, has_reasoning


def size_of(num_messages: int) -> int:
    """Return a number of messages, rounded up to a power of two."""
    return max(FEWEST, 1 << (num_messages - 1).bit_length())
