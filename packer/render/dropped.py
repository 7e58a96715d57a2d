"""Detects silent loss: content of a row that its rendering lacks or garbles.

A text counts as rendered if the rendering contains it; a tool result, and the name and values of a call, also if they
are contained as JSON. Sometimes that proves nothing: a short text may occur by chance, a longer one because another
message contains it too. Sometimes it fails although nothing is lost, because the template reshaped the text. In both
cases the template is probed: the item is replaced by a placeholder word that occurs nowhere else, and the word must
show in the output. Rendered content must also read back (:mod:`packer.render.readback`): an escape that the row does
not contain is a loss, too.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from packer.batches import REASONING_FIELDS, tool_parameters
from packer.literals import common_length
from packer.render.conversation import Conversation, JSONMessage
from packer.render.environment import RenderError
from packer.render.placeholders import (
    KINDS,
    Loss,
    Placeholders,
    is_constant,
    probe_tools,
    tag_that_cuts,
    text_of,
    texts_of,
    tool_name,
    writes_null_as_text,
)
from packer.render.readback import (
    added_escape,
    arguments_of,
    contains_escaped,
    cuts_arguments,
    function_of,
    keys,
    leaves,
    quotes_call,
    read_as_python,
    spellings,
    strings,
)
from packer.render.reasoning import (
    ANY_TAG,
    MARKED_ANSWER,
    OPENING,
    Message,
    has_tag,
    reasoning_fields,
    split_inline,
    tag_at_end,
    without_tags,
)
from packer.render.turns import RenderedTurn, TurnRules, turn_of

_SHORT = 12
"""A text of fewer characters may occur in a rendering by chance."""

AS_TEXT = "writes reasoning, or a tag of it, as part of the answer"
"""What a template does with tags in a text or a field that are no markers of reasoning to it, or stand elsewhere."""

BEHIND = "behind the stop token that ends the turn, where nothing is trained"
"""Where some templates write the calls of a turn."""

_MAY_BE_JSON = frozenset({"tool_result", "tool_call"})
"""Kinds of items that templates may write as JSON."""


class _Item(NamedTuple):
    """A piece of a message that must be rendered."""

    loss: Loss
    texts: tuple[tuple[str, ...], ...]
    """Texts that must all show, each in one of its spellings."""

    may_probe: bool = True
    """Whether a missing text is excused if a placeholder in its place is rendered."""

    own: bool = False
    """Whether it must show in the completion, that is, in what is trained."""

    before: str = ""
    """The text of an answer in front of which it must show, as no placeholder tells the two apart."""

    def within(self, turn: RenderedTurn) -> str:
        """Return the part of a rendering in which it must show."""
        if not self.own:
            return turn.text
        completion = turn.text[turn.prompt_end :]
        front, found, _ = completion.rpartition(self.before) if self.before else ("", "", "")
        return front if found else completion

    def shows(self, text: str) -> bool:
        is_json = self.loss.kind in _MAY_BE_JSON
        return all(any(one in text or (is_json and contains_escaped(one, text)) for one in each) for each in self.texts)

    def shows_but_for_space(self, text: str) -> bool:
        """Whether a text shows the item when white space is ignored."""
        texts = tuple(tuple(map(_without_space, each)) for each in self.texts)
        return self._replace(texts=texts).shows(_without_space(text))

    def doubtful(self, occurs_twice: Callable[[str], bool]) -> bool:
        """Whether its text may occur in the rendering for another reason."""
        texts = [spellings[0] for spellings in self.texts]
        return self.may_probe and (any(len(text) < _SHORT for text in texts) or any(map(occurs_twice, texts)))


@dataclass
class ConversationLosses:
    """Checks the trained turns of one conversation, in the order of their messages."""

    rules: TurnRules
    conversation: Conversation
    _first: int = 0
    _replaced: Placeholders = field(default_factory=Placeholders)
    _as_python: dict[tuple[int, str], list[bool | None]] = field(default_factory=dict)
    """The last answer of :meth:`_reads_as_python`, which is asked for with every call that a template reshapes."""

    _read_text: str = ""
    """The last turn that was read back."""

    _read_ends: list[tuple[int, int]] = field(default_factory=list)
    """Where turns end in it, and the numbers of the messages behind them."""

    def find(self, turn: RenderedTurn) -> Loss | None:
        """Return the first loss in the rendering of `turn`, or None.

        Checked are the messages since the previous turn that was checked; for the first turn, the tools as well.
        """
        messages, allowed, k = self.conversation.messages, self.rules.may_drop, turn.message
        opening, first, self._first = self._first == 0, self._first, k + 1
        items = [item for number in range(first, k) for item in _items(messages[number], number, own=None)]
        items += _items(messages[k], k, own=turn)
        lost = self._loss_of_messages(turn, [item for item in items if item.loss.kind not in allowed], first)
        if lost is None:
            lost = next(
                (
                    part
                    for part in self._inline_losses(messages[turn.message], turn)
                    if part.kind not in allowed or part.how  # that is no loss to allow: it would be trained
                ),
                None,
            )
        if lost is None and opening and self.conversation.tools and "tools" not in allowed:
            lost = self.tools(turn)
        return lost or self._garbled(turn)

    def _inline_losses(self, message: Message, turn: RenderedTurn) -> Iterator[Loss]:
        """Yield what is lost of a text with tags of reasoning, or written as part of the answer."""
        text, marks, form = text_of(message), self.rules.marks, self.conversation.template.reasoning
        texts = (text, *(message[name] for name in reasoning_fields(message)))
        completion = turn.text[turn.prompt_end :]
        if not any(has_tag(each) or any(tag in each for tag in form.own_tags) for each in texts):
            return
        if self.rules.tags_are_text:
            completion = without_tags(completion, marks)
        inline = split_inline(text)
        tag = form.tag_in_answer(turn.text[: turn.prompt_end], completion, marks)
        if inline and tag is None and not self.rules.tags_are_text:
            marked = MARKED_ANSWER.fullmatch(inline.answer)
            tag = (
                marked["opening"]
                if marked and marked["opening"] in completion and marked["opening"] not in marks
                else None
            )
        if tag is not None and not turn.is_blank(self.rules.stops):
            yield Loss("reasoning", turn.message, f"{AS_TEXT}: {tag}")
        stray = ANY_TAG.search(inline.answer if inline else text)
        if stray and inline is None and not turn.is_blank(self.rules.stops):
            before, found, _ = turn.text[turn.prompt_end :].partition(text.strip())
            is_left_out = not found and "content" not in self.rules.may_drop
            if is_left_out or OPENING.fullmatch(tag_at_end(before.rstrip())):
                yield Loss("reasoning", turn.message, f"cuts its text at a tag of reasoning: {stray[0]}")
        for loss in _inline_parts(text, turn):
            if stray and loss.kind not in self.rules.may_drop:
                loss = Loss("reasoning", turn.message, f"cuts its text at a tag of reasoning: {stray[0]}")  # noqa: PLW2901
            yield loss

    def _garbled(self, turn: RenderedTurn) -> Loss | None:
        """Return the loss if the turn, or the prompt before it, cannot be read back."""
        conversation, own = self.conversation, self.conversation.messages[turn.message]
        prompt, completion = turn.text[: turn.prompt_end], turn.text[turn.prompt_end :]
        calls = own.get("tool_calls") or ()
        if added_escape(completion, [own], marks=self.rules.marks) or any(
            quotes_call(call, completion, [own]) if read is None else not read
            for call, read in zip(calls, self._reads_as_python(turn.message, completion), strict=True)
        ):
            return Loss("mangled_call" if calls else "mangled_text", turn.message)
        if (tag := tag_that_cuts(conversation, turn, self.rules.marks)) is not None:
            return Loss("mangled_call", turn.message, f"closes arguments with {tag}, which one of this call contains")
        if any(cuts_arguments(call, completion) for call in calls):
            return Loss("mangled_call", turn.message, "strips white space around an argument of this call")
        is_python = True in self._reads_as_python(turn.message, completion)  # in which None is a null
        if not is_python and writes_null_as_text(conversation, turn):
            return Loss("mangled_call", turn.message, "writes a null argument of this call as the text None")
        start, first = self._unread(prompt)
        context, given = conversation.messages[: turn.message], [conversation.tools, conversation.kwargs]
        values = context[first:] if first else [*context, *given]
        if added_escape(prompt[start:], values, marks=self.rules.marks, others=[*context, *given]):
            return Loss("mangled_text", turn.message)
        self._read_text = turn.text
        self._read_ends.append((len(turn.text), turn.message + 1))
        return None

    def _unread(self, prompt: str) -> tuple[int, int]:
        """Return where the part of a prompt begins that no earlier turn showed, and its first message.

        Every part is read back once: reading all of each prompt would take long conversations minutes.
        """
        shared = common_length(self._read_text, prompt)
        while self._read_ends and self._read_ends[-1][0] > shared:
            self._read_ends.pop()
        return self._read_ends[-1] if self._read_ends else (0, 0)

    def _loss_of_messages(self, turn: RenderedTurn, items: Sequence[_Item], first: int) -> Loss | None:
        probe = functools.partial(self._replaced.probe, self.conversation, turn, self.rules.stops, first=first)
        missing = [item for item in items if not item.shows(item.within(turn))]
        asked = probe() if missing else None
        if missing:
            really = [item for item in missing if not item.may_probe or asked is None or item.loss in asked]
            if really:
                loss = really[0].loss
                # Text after the terminator is not trained: some templates write a call after the stop token of a text.
                behind = really[0].own and really[0].shows(really[0].within(turn._replace(text=turn.whole)))
                return loss._replace(how=f"writes its {_named(loss)} {BEHIND}") if behind else loss
            garbled = next((item for item in missing if not self._shows_reshaped(item, turn)), None)
            if garbled is not None:
                return Loss(
                    "mangled_call" if garbled.loss.kind == "tool_call" else "mangled_text", garbled.loss.message
                )
        # Only doubtful items can be refused because of a probe, so for the others none is needed.
        doubtful = [item for item in items if item.may_probe and item.doubtful(self._occurs_twice)]
        if not doubtful:
            return None
        answer = (asked if missing else probe()) or ()  # if the template raised, nothing counts as lost
        return next((item.loss for item in doubtful if item.loss in answer), None)

    def _shows_reshaped(self, item: _Item, turn: RenderedTurn) -> bool:
        """Whether an item shows but for its white space, or as a part of a call in Python, with escapes of its own."""
        text = item.within(turn)
        return item.shows_but_for_space(text) or (
            item.loss.kind == "tool_call" and all(self._reads_as_python(item.loss.message, text))
        )

    def _reads_as_python(self, number: int, text: str) -> list[bool | None]:
        """Return whether each call of a message can be read from a text as Python; None if it is not so written."""
        if (number, text) not in self._as_python:
            message = self.conversation.messages[number]
            texts = [text_of(message), *(str(message[name]) for name in REASONING_FIELDS if message.get(name))]
            self._as_python = {(number, text): read_as_python(message.get("tool_calls") or (), text, texts)}
        return self._as_python[number, text]

    def _occurs_twice(self, text: str) -> bool:
        """Whether several values of messages and tools contain a text, or the source of the template does."""
        return text in self.rules.marks or text in self._values.partition(text)[2].partition("\0")[2]

    @functools.cached_property
    def _values(self) -> str:
        """All strings of the messages and tools, each followed by a character that few texts contain.

        Reasoning stored under several names counts once.
        """
        own = [
            {name: value for name, value in message.items() if name not in repeated}
            for message in self.conversation.messages
            for repeated in [reasoning_fields(message)[1:]]
        ]
        return "".join(f"{value}\0" for value in strings([*own, self.conversation.tools]))

    def tools(self, turn: RenderedTurn) -> Loss | None:
        """Return the loss if the tools, or the names of their parameters, are not rendered.

        Names of tools alone prove little, since calls contain them too. So the template is always probed.
        """
        tools = self.conversation.tools or ()
        parameters = (name for tool in tools for name in tool_parameters(function_of(tool)) or ())
        if not all(contains_escaped(name, turn.whole) for name in parameters):
            return Loss("tools")  # nothing reshapes the names of parameters
        asked = probe_tools(self.conversation, turn)
        is_missing = not all(contains_escaped(name, turn.whole) for name in map(tool_name, tools))
        return Loss("tools") if asked or (asked is None and is_missing) else None


def says_nothing(conversation: Conversation, turn: RenderedTurn, rules: TurnRules) -> bool:
    """Whether what is trained of a turn says nothing of the message, or stops where a call of it follows.

    All that it says may be lost. The template then writes the turn as it writes an empty answer: as nothing, or as
    markers with nothing in between. If a call is lost, the turn is the same without it.
    """
    if turn.is_blank(rules.stops):
        return True
    if not rules.may_drop:
        return False
    k, message = turn.message, conversation.messages[turn.message]
    calls = message.get("tool_calls")
    less: JSONMessage = {"role": "assistant", "content": ""}
    if calls:
        less = {**message, "content": message.get("content") or "", "tool_calls": calls[:-1]}
    shorter = replace(conversation, messages=[*conversation.messages[:k], less])
    if not calls:
        return turn.whole == shorter.attempt(shorter.messages, turn.mode)
    try:
        found = turn_of(shorter, k, rules)
    except RenderError:
        return False
    return found is not None and found.text == turn.text


def refusal(loss: Loss) -> RenderError:
    """Return the rejection of a row with this loss."""
    if loss.kind == "tools":
        reason = "the template does not render the tool definitions, or not all of their parameters"
        return RenderError(reason, code="dropped_tools")
    if loss.kind.startswith("mangled_"):
        what = "this call" if loss.kind == "mangled_call" else "this text, or one before it,"
        how = loss.how or f"writes {what} differently from the row"
        reason = f"messages[{loss.message}]: the template {how}"
        return RenderError(reason, code=loss.kind, message=loss.message)
    what = loss.how or f"does not render its {_named(loss)}"
    return RenderError(
        f"messages[{loss.message}]: the template {what}",
        code=f"dropped_{loss.kind}",
        message=loss.message,
    )


def _named(loss: Loss) -> str:
    return loss.kind.replace("_", " ")


def _items(message: Message, number: int, *, own: RenderedTurn | None) -> list[_Item]:
    """Return the items of message `number`.

    `own`: the turn of this message, if the rendering ends with it, so that its text must show.
    """
    role, text = message.get("role"), text_of(message).strip()
    if role != "assistant":
        texts = tuple((each.strip(),) for each in texts_of(message) if each.strip())
        return [_Item(Loss(KINDS.get(str(role), "user"), number), texts)] if texts else []
    items = []
    if own and text and not ANY_TAG.search(text):
        items.append(_Item(Loss("content", number), ((text,),), own=True))
    reasoning = [message[name].strip() for name in reasoning_fields(message)]
    if own and reasoning:
        # If packer continued the turn from the prompt, the template did not write the reasoning, and may not have it.
        may_probe, before = not own.continued, text if own.continued else ""
        items.append(_Item(Loss("reasoning", number), ((reasoning[0],),), may_probe=may_probe, own=True, before=before))
    for call in message.get("tool_calls") or ():
        items += _call_items(call, Loss("tool_call", number), own=own is not None)
    return items


def _inline_parts(text: str, turn: RenderedTurn) -> Iterator[Loss]:
    """Yield the parts of a text with inline reasoning tags that are missing from the completion, or out of order.

    The tags themselves and white space around them may be missing. Placeholders would prove nothing here, since
    templates cut such a text at its tags.
    """
    completion, at = turn.text[turn.prompt_end :], 0
    tags = ["", *ANY_TAG.findall(text), ""]
    for before, part, after in zip(tags, map(str.strip, ANY_TAG.split(text)), tags[1:], strict=False):
        place = completion.find(part, at)
        if place < 0:
            inside = OPENING.fullmatch(before) or (not before and not OPENING.fullmatch(after))
            yield Loss("reasoning" if inside else "content", turn.message)
        else:
            at = place + len(part)


def _call_items(call: Any, loss: Loss, *, own: bool) -> list[_Item]:
    """Return the items of a call: its name, its keys and every value.

    Placeholders cannot replace keys, nor true, false and null: their own text must show.
    """
    arguments = arguments_of(call)
    worded = [spellings(leaf) for leaf in leaves(arguments) if not is_constant(leaf)]
    fixed = [spellings(key) for key in keys(arguments)]
    fixed += [spellings(leaf) for leaf in leaves(arguments) if is_constant(leaf)]
    items = [_Item(loss, ((str(function_of(call).get("name", "")),), *worded), own=own)]
    return [*items, _Item(loss, tuple(fixed), may_probe=False, own=own)] if fixed else items


def _without_space(text: str) -> str:
    return "".join(text.split())
