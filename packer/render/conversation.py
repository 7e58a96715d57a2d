"""One conversation and a template: the prompt and the turn of each assistant message.

The definition is the one of docs/explanation/supervision.md.

For the assistant message k with the messages C before it, `P = render(C, add_generation_prompt=True)` is what
inference would see and `Q = render(C + [turn])` is what the template makes of the turn. The turn is trained as the part
of Q after P, up to and including the first stop token. Nothing here knows of ids; the tokenize stage has the last word
on borders.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from packer.batches import REASONING_FIELDS, Sample
from packer.render.common_prefix import common_length
from packer.render.environment import RenderError
from packer.render.reasoning import ANY_TAG, continuation, opened_by, reasoning_of, split_inline

_NO_LETTER = "\ue0f4"
"""A private-use character that no prompt holds."""

Mode = Mapping[str, Any]
Turns = Literal["all", "last", "marked"]
PromptMismatch = Literal["refuse", "common_prefix", "continue"]
JSONMessage = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedTurn:
    """A turn as the template writes it."""

    message: int
    num_messages: int
    """Messages that `whole` renders: up to this one, or more where all turns are cut from one rendering."""

    text: str
    """Q up to and including the terminator."""

    prompt_end: int
    """Characters of `text` that are the prompt."""

    weight: float
    prompt_ends: tuple[int, ...]
    """Lengths of the prompts, of all modes, that `text` begins with; the longest first."""

    whole: str
    """Q, with what the template writes after the terminator."""

    mode: Mode
    continued: bool = False
    """The prompt opens the reasoning and the template does not go on from there; see :func:`continuation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRules:
    """What :meth:`Conversation.turn` needs of the recipe."""

    stops: re.Pattern[str] | None
    """Matches any stop token."""

    append: str | None
    """Text to close a turn with where the template writes no stop token; None refuses it."""

    on_prompt_mismatch: PromptMismatch = "refuse"
    """Where no prompt is continued: ``common_prefix`` takes what prompt and turn have in common as the prompt;
    ``continue`` goes on from a prompt that opens the reasoning."""


class _Tried(NamedTuple):
    """A prompt and a turn that one mode renders."""

    prompt: str
    whole: str
    mode: Mode

    @property
    def fits(self) -> bool:
        return self.whole.startswith(self.prompt)

    @property
    def left(self) -> int:
        """Characters the turn has after the prompt."""
        return len(self.whole) - len(self.prompt)


class Template(Protocol):
    """What renders a conversation: a :class:`ChatTemplate`, or what stands for one."""

    @property
    def modes(self) -> tuple[tuple[str, bool], ...]:
        """As :attr:`ChatTemplate.modes`."""

    @property
    def takes_only_parts(self) -> bool:
        """As :attr:`ChatTemplate.takes_only_parts`."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """As :meth:`ChatTemplate.render`."""


class Conversation:
    """Messages under one template, with its prompts and turns."""

    def __init__(
        self,
        template: Template,
        messages: Sequence[JSONMessage],
        *,
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],
    ) -> None:
        self.template = template
        self.messages = list(messages)
        self.tools = tools or None
        self.kwargs = dict(kwargs)
        self.modes: tuple[Mode, ...] = ({}, *({name: value} for name, value in template.modes if name not in kwargs))

    def render(self, messages: Sequence[Mapping[str, Any]], mode: Mode, *, prompt: bool = False) -> str:
        kwargs = {**self.kwargs, **mode}
        return self.template.render(messages, tools=self.tools, add_generation_prompt=prompt, kwargs=kwargs)

    def prompts(self, k: int) -> list[tuple[str, Mode]]:
        """P of message k in every mode that renders, the longest first, the default before its equals.

        Raises:
            RenderError: no mode renders; the message is the default mode's.

        """
        rendered: list[tuple[str, Mode]] = []
        failure: RenderError | None = None
        for mode in self.modes:  # the default first
            try:
                rendered.append((self.render(self.messages[:k], mode, prompt=True), mode))
            except RenderError as error:
                failure = failure or error
        if not rendered:
            assert failure is not None
            raise failure
        return sorted(rendered, key=lambda entry: -len(entry[0]))

    def turn(self, k: int, weight: float, rules: TurnRules) -> RenderedTurn | None:
        """The turn of message k; None where it is an opening whose prompt the template cannot render.

        Raises:
            RenderError: with the code of the rejection.

        """
        try:
            prompts = self.prompts(k)
        except RenderError:
            if any(message["role"] == "user" for message in self.messages[:k]):
                raise
            return None
        tried, failure = self._try_modes(k, prompts, patient=rules.on_prompt_mismatch == "continue")
        chosen = self._choose(k, tried, rules)
        if chosen is None and failure is not None:
            raise failure
        if chosen is None:
            raise RenderError(
                f"messages[{k}]: the template's prompt is not how it begins this turn",
                code="prompt_diverges",
                message=k,
            )
        tried_turn, continued = chosen
        return self._close(k, tried_turn, weight=weight, prompts=prompts, rules=rules, continued=continued)

    def _try_modes(
        self, k: int, prompts: Sequence[tuple[str, Mode]], *, patient: bool
    ) -> tuple[list[_Tried], RenderError | None]:
        """Prompt and turn in every mode that renders, the longest prompt first; no more modes than are needed.

        Where prompts differ in their ends alone, the longest that its turn continues leaves the least to be written.
        Where a mode changes the context too, all have to be seen. `patient`: a turn that fits may still be refused.
        """
        tried: list[_Tried] = []
        failure: RenderError | None = None
        default = next((prompt for prompt, mode in prompts if not mode), None)
        for prompt, mode in prompts:
            try:
                tried.append(_Tried(prompt, self.render(self.messages[: k + 1], mode), mode))
            except RenderError as error:
                failure = error if failure is None or not mode else failure  # the default mode's reason, if it has one
                continue
            same_context = default is None or prompt.startswith(default)
            if tried[-1].fits and same_context and not (patient and self._lacks_reasoning(k, tried[-1])):
                break
        return tried, failure

    def _choose(self, k: int, tried: Sequence[_Tried], rules: TurnRules) -> tuple[_Tried, bool] | None:
        """The mode a turn is trained in, and whether it goes on where the template does not."""
        fitting = sorted((entry for entry in tried if entry.fits), key=lambda entry: (entry.left, bool(entry.mode)))
        if rules.on_prompt_mismatch == "continue":
            shown = [entry for entry in fitting if not self._lacks_reasoning(k, entry)]
            if not shown and (found := self._going_on(k, tried)) is not None:
                return found, True
            fitting = shown or fitting
        if fitting:
            return fitting[0], False
        default = next((entry for entry in tried if not entry.mode), None)
        if (
            rules.on_prompt_mismatch == "common_prefix"
            and default is not None
            and not self._cuts_context(k, default.mode)
        ):
            return self._cut(k, default), False
        return None

    def _cut(self, k: int, tried: _Tried) -> _Tried:
        """With the prompt cut to what it has in common with the turn, whatever the turn's first letter is.

        The first letters of an answer, or of its reasoning, may happen to be those the prompt goes on with. So the turn
        is rendered once more with a letter before them that no prompt has.
        """
        message = dict(self.messages[k])
        for name in ("content", *REASONING_FIELDS):
            if isinstance(message.get(name), str) and message[name]:
                message[name] = _NO_LETTER + message[name]
        lengths = [common_length(tried.prompt, tried.whole)]
        try:
            lengths.append(common_length(tried.prompt, self.render([*self.messages[:k], message], tried.mode)))
        except RenderError:
            lengths += [tag.start() for tag in ANY_TAG.finditer(tried.prompt) if tag.start() < lengths[0] < tag.end()]
        return tried._replace(prompt=tried.prompt[: min(lengths)])

    def _cuts_context(self, k: int, mode: Mode) -> bool:
        """Whether prompt and turn part before the text of a message of the context, which would be trained.

        Templates do so that write the system message into the last question, where it is the last message.
        """
        words = {number: f"Zq{number}W" for number, message in enumerate(self.messages[:k]) if message.get("content")}
        context = [
            {**message, "content": words[number]}
            if isinstance(message.get("content"), str) and number in words
            else message
            for number, message in enumerate(self.messages[:k])
        ]
        try:
            prompt = self.render(context, mode, prompt=True)
            whole = self.render([*context, self.messages[k]], mode)
        except RenderError:
            return False  # it takes no other texts than the row's
        left = prompt[common_length(prompt, whole) :]
        return any(word in left for word in words.values())

    def _lacks_reasoning(self, k: int, tried: _Tried) -> bool:
        """Whether a message has reasoning that its turn does not show before its text."""
        reasoning, completion = reasoning_of(self.messages[k]), tried.whole[len(tried.prompt) :]
        inline = split_inline(self.messages[k].get("content"))
        text = (inline[2] if inline else str(self.messages[k].get("content") or "")).strip()
        before, found, _ = completion.rpartition(text) if text else ("", "", "")
        return bool(reasoning) and reasoning not in (before if found else completion)

    def _going_on(self, k: int, tried: Sequence[_Tried]) -> _Tried | None:
        """The turn as it goes on from a prompt that opens the reasoning, where the template begins it before that.

        A turn without reasoning goes on from a prompt that closes it at once, if a mode has one.
        """
        inline = split_inline(self.messages[k].get("content"))
        found: _Tried | None = None
        for prompt, whole, mode in tried:
            opened = opened_by(prompt)
            if opened is None or not whole.startswith(prompt[: opened.start]):
                continue
            reasoning, answer = reasoning_of(self.messages[k]), whole[opened.start :]
            if inline and inline[0] in answer and split_inline(answer) is None:
                reasoning = ""  # the template takes the block for part of the text
            elif inline:
                answer = answer.lstrip("\n")  # they stood between the block, which is gone, and the text
            if opened.closed and reasoning:
                continue  # this prompt says that there is none
            going_on = _Tried(prompt, prompt + continuation(opened, reasoning, answer), mode)
            if opened.closed:
                return going_on
            found = found or going_on
        return found

    def _close(
        self,
        k: int,
        tried: _Tried,
        *,
        weight: float,
        prompts: Sequence[tuple[str, Mode]],
        rules: TurnRules,
        continued: bool,
    ) -> RenderedTurn:
        prompt, whole, mode = tried
        text = self._terminated(k, len(prompt), whole, mode, rules)
        return RenderedTurn(
            message=k,
            num_messages=k + 1,
            text=text,
            prompt_end=len(prompt),
            weight=weight,
            prompt_ends=tuple(dict.fromkeys(len(other) for other, _ in prompts if text.startswith(other))),
            whole=whole,
            mode=mode,
            continued=continued,
        )

    def _terminated(self, k: int, prompt_end: int, whole: str, mode: Mode, rules: TurnRules) -> str:
        stop = rules.stops.search(whole, prompt_end) if rules.stops else None
        if stop is not None:
            return whole[: stop.end()]
        if rules.stops:
            header = self._next_header(k, whole, mode, rules.stops)
            if header is not None:
                return whole + header
        if rules.append is not None:
            return whole + rules.append
        reason = f"messages[{k}]: the template writes no stop token after this turn"
        raise RenderError(reason, code="no_terminator", message=k)

    def _next_header(self, k: int, whole: str, mode: Mode, stops: re.Pattern[str]) -> str | None:
        """The stop token that the header of the message after turn k begins with (GLM closes turns so)."""
        turn = self.messages[k]
        calls = bool(turn.get("tool_calls"))
        after: JSONMessage = {"role": "tool", "content": "?"} if calls else {"role": "user", "content": "?"}
        following = self.messages[k + 1] if k + 1 < len(self.messages) else after
        try:
            longer = self.render([*self.messages[: k + 1], following], mode)
        except RenderError:
            longer = ""
        if not longer.startswith(whole):
            # The next message rewrites this turn: ask the same of a conversation with nothing to rewrite.
            plain: list[JSONMessage] = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
            if calls:
                plain[1] = {**plain[1], "tool_calls": turn["tool_calls"]}
            try:
                whole, longer = self.render(plain, mode), self.render([*plain, after], mode)
            except RenderError:
                return None
        match = stops.match(longer, len(whole)) if longer.startswith(whole) else None
        return match[0] if match else None


def turn_weights(sample: Sample, turns: Turns) -> dict[int, float]:
    """Message number → loss weight of every assistant message that is to be trained.

    A message's own weight wins over the rule.
    """
    assistants = [k for k, message in enumerate(sample.messages) if message.role == "assistant"]
    by_rule = {"all": assistants, "last": assistants[-1:], "marked": []}[turns]
    weights = {}
    for k in assistants:
        message = sample.messages[k]
        weight = message.weight if message.weight is not None else float(k in by_rule)
        if np.float32(weight) > 0:
            weights[k] = weight
    return weights
