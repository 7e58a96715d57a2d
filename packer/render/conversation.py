"""One conversation: which of its answers are trained, and what a template renders of it, in which form of its messages
and in which modes.

A template may accept messages only with other nulls, arguments or contents than the row has (:func:`renderable`). A
*mode* is a setting of a variable that chooses between prompts with and without reasoning. A reasoned answer is trained
in none in which the template is asked for an answer without.
"""

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, TypeAlias

from packer.batches import Rejection, Sample
from packer.render.environment import ChatTemplate, RenderError
from packer.render.readback import num_garbled, strings
from packer.render.reasoning import reasoning_of

CONTRADICTS = "its reasoning contradicts"
"""In the reason of a rejection: variables of the row or the recipe contradict an answer."""

JSONMessage: TypeAlias = dict[str, Any]
Mode: TypeAlias = Mapping[str, Any]
Change: TypeAlias = tuple[Callable[[JSONMessage], JSONMessage], ...]
Turns = Literal["all", "last", "marked", "conversation"]

MAX_TURN_MESSAGES = 2**22
"""Largest product of a row's trained answers and the messages up to the last of them: about how many messages the
definition renders, for each mode of the template. That takes ten to twenty seconds."""

MAX_TOOLS_AND_CALLS = 2**12
"""Largest number of a row's tools and calls together: each is looked for in a prompt that has them all."""


def trained_turns(sample: Sample, turns: Turns) -> list[int]:
    """Return the numbers of the assistant messages to be trained. What a message itself says precedes the rule."""
    assistants = [k for k, message in enumerate(sample.messages) if message.fields["role"] == "assistant"]
    by_rule = {*{"last": assistants[-1:], "marked": []}.get(turns, assistants)}
    flags = [(k, sample.messages[k].trained) for k in assistants]
    return [k for k, trained in flags if (k in by_rule if trained is None else trained)]


def refusal_of_flags(sample: Sample, turns: Turns) -> Rejection | None:
    """Return why a row that leaves some of it untrained cannot be trained as a whole, or None."""
    for k, message in enumerate(sample.messages if turns == "conversation" else ()):
        if message.trained is False or message.spans is not None:
            reason = "the row says what of it is trained; supervision.turns=conversation trains all"
            return Rejection(row=sample.row, code="wrong_type", reason=f"messages[{k}]: {reason}", message=k)
    return None


def too_many(sample: Sample, trained: Sequence[int]) -> str | None:
    """Return what a row has too many of to be rendered in seconds, or None."""
    num_messages = trained[-1] + 1
    if len(trained) * num_messages > MAX_TURN_MESSAGES:
        return f"{len(trained)} trained answers among {num_messages} messages: each is rendered with all before it"
    number = len(sample.tools or ()) + sum(len(each.fields.get("tool_calls") or ()) for each in sample.messages)
    if number > MAX_TOOLS_AND_CALLS:
        return f"{number} tools and calls: each is looked for in the whole prompt"
    return None


def refuse_empty_question(sample: Sample) -> None:
    """Refuse to train an answer to an empty question: RenderError `no_content`."""
    for k, message in enumerate(sample.messages):
        if message.fields["role"] == "user" and not message.fields.get("content"):
            raise RenderError(f"messages[{k}]: the user message is empty", code="no_content", message=k)


def refuse_unread_variables(sample: Sample, template: ChatTemplate) -> None:
    """Refuse a row that gives the template a text, tools or documents in a variable that the template does not have."""
    for name, value in sample.template_kwargs.items():
        is_content = _is_prose(value) if isinstance(value, str) else bool(strings(value))
        if is_content and name not in template.read_variables:
            reason = f"`chat_template_kwargs` has {name!r}, which the template does not read"
            hides = "`columns: {chat_template_kwargs: null}` leaves out all variables of rows"
            raise RenderError(f"{reason}; {hides}", code="unread_content")


def _is_prose(text: str) -> bool:
    """Whether a text is more than a setting: several words, or letters of a script that may not separate words."""
    return len(text.split()) > 1 or not text.isascii()


@dataclass(eq=False)
class Conversation:
    """The messages of one conversation and its template: renders prompts and turns."""

    template: ChatTemplate
    messages: list[JSONMessage]
    _: KW_ONLY
    tools: Sequence[Any] | None
    kwargs: Mapping[str, Any]
    write: Callable[..., str] | None = None
    """Renders in place of the template."""

    @functools.cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The default, and each setting of a switch if no variable sets one.

        Switches may be names of one thing: DeepSeek's templates read `thinking` and `enable_thinking`.
        """
        switches = self.template.switches
        is_set = bool(self.kwargs) and not self.kwargs.keys().isdisjoint(switches.names)
        return ({}, *({name: value} for name, value in switches.modes if not is_set))

    def render(self, messages: Sequence[Mapping[str, Any]], mode: Mode, *, prompt: bool = False) -> str:
        shown = self.template.reasoning.apply(messages)
        write = self.write or self.template.render
        return write(shown, tools=self.tools or None, add_generation_prompt=prompt, kwargs={**self.kwargs, **mode})

    def attempt(self, messages: Sequence[Mapping[str, Any]], mode: Mode, *, prompt: bool = False) -> str | None:
        """Render changed messages, to compare what the template makes of them; return None if it raises."""
        try:
            return self.render(messages, mode, prompt=prompt)
        except RenderError:
            return None

    def modes_of(self, k: int) -> Sequence[Mode]:
        """Return the modes that message k may be trained in.

        For a reasoned one also those that only a word for the effort selects, and none that asks for no reasoning.
        """
        switches = self.template.switches
        if not switches.none or not reasoning_of(self.messages[k]):
            return self.modes
        asking = [{name: word} for name, word in switches.asking if name not in self.kwargs]
        left = [mode for mode in (*self.modes, *asking) if not switches.refusing({**self.kwargs, **mode})]
        if not left:
            raise contradiction(k, str(switches.refusing(self.kwargs)))
        return left

    def prompts(self, k: int) -> list[tuple[str, Mode]]:
        """Render prompt P of message k in every mode that does not raise: longest first, the default first if equal.

        Raises:
            RenderError: every mode raises; the error is the default mode's.
        """
        rendered: list[tuple[str, Mode]] = []
        failure: RenderError | None = None
        for mode in self.modes_of(k):  # the default first
            try:
                rendered.append((self.render(self.messages[:k], mode, prompt=True), mode))
            except RenderError as error:
                failure = failure or error
        if not rendered:
            assert failure is not None
            raise failure
        return sorted(rendered, key=lambda entry: -len(entry[0]))


def contradiction(k: int, refusing: str) -> RenderError:
    """Return the rejection of a reasoned answer under variables that ask for an answer without reasoning."""
    return RenderError(f"messages[{k}]: {CONTRADICTS} {refusing}", code="prompt_diverges", message=k)


def renderable(conversation: Conversation, last: int) -> Conversation:
    """Return the conversation in a form that the template accepts, tried on messages up to `last`.

    The forms, in order: as the row has it; null contents as empty strings; tool-call arguments as JSON strings; both.
    For templates of some vision models each is tried with contents as lists of one part first. Leaving null contents as
    they are is not accepted if the template prints them as the word None.

    Of the accepted forms, the first whose calls can be read back from the rendering is chosen, or else the first that
    garbles the fewest calls. If none is accepted, the first that the template refuses deliberately is returned, so that
    the rejection has its reason; else the conversation as the row has it.
    """
    messages = conversation.messages
    nulls = any(message.get("content", "") is None for message in messages)
    calls = any(message.get("tool_calls") for message in messages)
    parts = conversation.template.takes_only_parts
    if not nulls and not calls and not parts:
        return conversation
    changes = changes_of(nulls=nulls, calls=calls)
    if parts:
        changes = [*((*change, _text_parts) for change in changes), *changes]
    best: Conversation | None = None
    refused: Conversation | None = None
    fewest = math.inf
    for change in changes:
        tried = changed(conversation, change)
        try:
            text = tried.render(tried.messages[: last + 1], {})
        except RenderError as error:
            refused = refused or (tried if error.refusal else None)
            continue
        if nulls and _without_null not in change and prints_none(tried, text, last):
            continue
        garbled = num_garbled(messages[: last + 1], text, tools=conversation.tools) if calls else 0
        if garbled < fewest:
            best, fewest = tried, garbled
        if not garbled:
            break
    return best or refused or conversation


def changed(conversation: Conversation, change: Change) -> Conversation:
    """Return a conversation with its messages changed step by step."""
    if not change:
        return conversation
    messages = [functools.reduce(lambda message, step: step(message), change, each) for each in conversation.messages]
    return replace(conversation, messages=messages)


def changes_of(*, nulls: bool, calls: bool) -> list[Change]:
    """Return the forms of messages in the order in which they are tried: what is changed, step by step."""
    changes: list[Change] = [()]
    changes += [(_without_null,)] * nulls + [(_string_arguments,)] * calls
    return changes + [(_without_null, _string_arguments)] * (nulls and calls)


def prints_none(conversation: Conversation, text: str, last: int) -> bool:
    """Whether the text, the rendering of messages up to `last`, contains null contents as the word None."""
    if "None" not in text:
        return False
    empty = conversation.attempt([_without_null(message) for message in conversation.messages[: last + 1]], {})
    return empty is not None and text.count("None") > empty.count("None")


def _without_null(message: JSONMessage) -> JSONMessage:
    """Return the message with null content replaced by an empty string."""
    return {**message, "content": ""} if message.get("content", "") is None else message


def _text_parts(message: JSONMessage) -> JSONMessage:
    content = message.get("content")
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


def _string_arguments(message: JSONMessage) -> JSONMessage:
    """Return the message with the arguments of its calls as JSON strings."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [_string_call(call) for call in calls]} if calls else message


def _string_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or isinstance(function.get("arguments"), str | None):
        return call
    return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}
