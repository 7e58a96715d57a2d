"""One conversation and a template: the prompt and the turn of each assistant message.

The definition is in docs/explanation/supervision.md.

For assistant message k, preceded by the messages C, `P = render(C, add_generation_prompt=True)` is what inference
would see, and `Q = render(C + [turn])` is what the template makes of the turn. The part of Q after P is trained, up to
and including the first stop token. This module knows nothing of token ids; the tokenize stage has the final say on
boundaries.
"""

import functools
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from packer.render import asked_modes
from packer.render.asked_modes import Attempt, Mode
from packer.render.environment import ChatTemplate, RenderError
from packer.render.next_header import next_header
from packer.render.reasoning import (
    ANY_TAG,
    closes_reasoning,
    continuation,
    has_tag,
    opened_by,
    reasoning_of,
    shows_as_reasoning,
    split_inline,
    without_ending,
)

Turns = Literal["all", "last", "marked", "conversation"]
PromptMismatch = Literal["refuse", "continue"]
JSONMessage = dict[str, Any]


class RenderedTurn(NamedTuple):
    """A turn as the template writes it."""

    message: int
    text: str
    """Q up to and including the terminator."""

    prompt_end: int
    """Length of the prompt within `text`, in characters."""

    weight: float
    prompt_ends: tuple[int, ...]
    """Lengths of all modes' prompts that `text` begins with, longest first."""

    whole: str
    """Q, including what the template writes after the terminator."""

    mode: Mode
    continued: bool = False
    """Whether the turn was continued from a prompt with which the template itself does not begin it."""

    masked: tuple[tuple[int, int], ...] = ()
    """Ranges of `text`, in characters, of pieces of the turn that are not trained."""

    def is_blank(self, stops: re.Pattern[str] | None) -> bool:
        """Whether the template writes nothing to train on: all of that was dropped, as the recipe allows."""
        stop = stops.search(self.text, self.prompt_end) if stops else None
        end = stop.start() if stop else len(self.text)
        bounds = [self.prompt_end, *itertools.chain(*self.masked), end]
        written = "".join(self.text[a : min(b, end)] for a, b in zip(bounds[::2], bounds[1::2], strict=True))
        return not (ANY_TAG.sub("", written) if has_tag(written) else written).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRules:
    """The settings of a recipe that :meth:`Conversation.turn` depends on."""

    stops: re.Pattern[str] | None
    """Matches any stop token."""

    append: str | None
    """Text that closes a turn for which the template writes no stop token; None rejects such turns."""

    may_drop: frozenset[str] = frozenset()
    """Kinds of content without which an answer may be trained."""

    on_prompt_mismatch: PromptMismatch = "refuse"
    """What to do with a turn that continues no prompt: ``continue`` goes on from one that opens the reasoning, or has
    other text in its context."""


class Conversation:
    """The messages of one conversation and its template: renders prompts and turns."""

    def __init__(
        self,
        template: ChatTemplate,
        messages: Sequence[JSONMessage],
        *,
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],
    ) -> None:
        self.template = template
        self.messages = list(messages)
        self.tools = tools or None
        self.kwargs = dict(kwargs)
        self._merged: dict[int, tuple[Mode, Mapping[str, Any]]] = {}
        self._reasonings: dict[int, str] = {}
        self.modes = asked_modes.modes_of(template, kwargs)

    def render(self, messages: Sequence[Mapping[str, Any]], mode: Mode, *, prompt: bool = False) -> str:
        merged = self._merged.get(id(mode))
        if merged is None:
            merged = self._merged[id(mode)] = mode, {**self.kwargs, **mode}
        shown = self.template.reasoning.apply(messages)
        return self.template.render(shown, tools=self.tools, add_generation_prompt=prompt, kwargs=merged[1])

    def attempt(self, messages: Sequence[Mapping[str, Any]], mode: Mode, *, prompt: bool = False) -> str | None:
        """Render changed messages, to compare what the template makes of them; return None if it raises."""
        try:
            return self.render(messages, mode, prompt=prompt)
        except RenderError:
            return None

    def with_messages(self, messages: Sequence[JSONMessage]) -> "Conversation":
        """Return the same conversation with other messages."""
        return Conversation(self.template, messages, tools=self.tools, kwargs=self.kwargs)

    def modes_of(self, k: int) -> Sequence[Mode]:
        """Return the modes that message k may be trained in, see `asked_modes.asking_modes`."""
        is_reasoned = bool(self.template.switches.none) and self._reasoning_of(k)
        return asked_modes.asking_modes(self.template, self.kwargs, self.modes, k) if is_reasoned else self.modes

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

    def turn(self, k: int, weight: float, rules: TurnRules) -> RenderedTurn | None:
        """Return the turn of message k, or None for an opening message whose prompt the template cannot render."""
        try:
            prompts = self.prompts(k)
        except RenderError:
            if any(message["role"] == "user" for message in self.messages[:k]):
                raise
            return None
        tried, failure = self._try_modes(k, prompts)
        may_lack = "reasoning" in rules.may_drop
        fits = any(attempt.fits and (may_lack or not self._lacks_reasoning(k, attempt)) for attempt in tried)
        contradicting = "" if fits or not self._reasoning_of(k) else self.template.switches.contradicting(self.kwargs)
        if contradicting:
            raise asked_modes.contradiction(k, contradicting)
        chosen = self._choose(k, tried, rules)
        if chosen is None:
            raise failure or asked_modes.divergence(k, is_open=any(attempt.is_open for attempt in tried))
        (prompt, whole, mode, *_), continued = chosen
        asked_modes.refuse_several_efforts(self.template, prompts, mode, k)
        text = self.terminated(k, len(prompt), whole, mode, rules)
        return RenderedTurn(
            message=k,
            text=text,
            prompt_end=len(prompt),
            weight=weight,
            prompt_ends=tuple(dict.fromkeys(len(other) for other, _ in prompts if text.startswith(other))),
            whole=whole,
            mode=mode,
            continued=continued,
        )

    def _try_modes(self, k: int, prompts: Sequence[tuple[str, Mode]]) -> tuple[list[Attempt], RenderError | None]:
        """Render prompt and turn mode by mode, longest prompt first, until no further mode is needed.

        If the prompts differ only in their endings, the longest one that its turn continues leaves the least to write,
        so the search ends there, unless that turn lacks its reasoning, or has none to be asked for. If a mode also
        changes the context, all modes are rendered.
        """
        tried: list[Attempt] = []
        failure: RenderError | None = None
        longest = prompts[0][0]
        same_context = all(longest.startswith(without_ending(prompt)) for prompt, _ in prompts[1:])
        is_reasoned = bool(self._reasoning_of(k))
        for prompt, mode in prompts:
            try:
                whole = self.render(self.messages[: k + 1], mode)
                tried.append(Attempt.of(prompt, whole, mode, is_reasoned=is_reasoned))
            except RenderError as error:
                failure = error if failure is None or not mode else failure  # prefer the default mode's reason
                continue
            is_own = is_reasoned or not _opens_reasoning(prompt)
            if tried[-1].fits and is_own and same_context and not self._lacks_reasoning(k, tried[-1]):
                break
        return tried, failure

    def _choose(self, k: int, tried: Sequence[Attempt], rules: TurnRules) -> tuple[Attempt, bool] | None:
        """Choose the mode to train a turn in, and whether packer has to continue it (:meth:`_continued_turn`)."""
        is_reasoned = bool(self._reasoning_of(k))
        fitting = sorted(  # SmolLM3 writes a plain answer in both modes, and says only in words that it is to reason
            (entry for entry in tried if entry.fits),
            key=lambda entry: (
                entry.turn_length,
                not is_reasoned and not closes_reasoning(entry.prompt),
                bool(entry.mode),
            ),
        )
        if not is_reasoned:  # Reka writes the empty block that a prompt with reasoning opens, and none by default
            fitting = [entry for entry in fitting if not _opens_reasoning(entry.prompt)] or fitting
        shown = [entry for entry in fitting if not self._lacks_reasoning(k, entry)]
        if is_reasoned and not all(self._is_off(entry) for entry in shown):
            shown = [entry for entry in shown if not self._is_off(entry)]
        default = next((entry for entry in tried if not entry.mode), None)
        is_plain = not shown or not is_reasoned
        if is_plain and default is not None and not default.fits and closes_reasoning(default.prompt):
            # A prompt that asks for reasoning is not the one of an answer whose own prompt closes it (Gemma 4).
            fitting = [entry for entry in fitting if closes_reasoning(entry.prompt)]
            shown = [entry for entry in fitting if not self._lacks_reasoning(k, entry)]
        if rules.on_prompt_mismatch == "continue":
            if not shown and (found := self._continued_turn(k, tried)) is not None:
                return found, True
            if not fitting and (found := self._moved_turn(k, tried)) is not None:
                return found, True
        fitting = shown or fitting
        closed = self._closed_turn(fitting[0], tried) if fitting and not is_reasoned else None
        return (closed, True) if closed else (fitting[0], False) if fitting else None

    @staticmethod
    def _closed_turn(chosen: Attempt, tried: Sequence[Attempt]) -> Attempt | None:
        """Return a turn without reasoning continued from a mode's prompt that adds an empty block to the chosen one.

        Qwen3 writes such blocks only behind a question, so not in an opening answer. Where an answer without reasoning
        is asked for, a server writes one there, too, and the chosen prompt asks for reasoning, unless another opens it.
        """
        answer = chosen.whole[len(chosen.prompt) :]
        longer = [each for each in tried if each.prompt.startswith(chosen.prompt) and each.prompt != chosen.prompt]
        closed = next((each for each in longer if closes_reasoning(each.prompt)), None)
        if closed is None or ANY_TAG.match(answer.lstrip()) or any(_opens_reasoning(each.prompt) for each in longer):
            return None
        return Attempt.of(closed.prompt, closed.prompt + answer, closed.mode)

    def _is_off(self, tried: Attempt) -> bool:
        return self.template.switches.is_off({**self.kwargs, **tried.mode})

    def _render_with_words(self, k: int, mode: Mode) -> tuple[str, str]:
        """Render prompt and turn with a word in place of each text of the context; empty if the template raises."""
        context = [
            {**message, "content": _word(number)}
            if message.get("content") and type(message["content"]) is str
            else message
            for number, message in enumerate(self.messages[:k])
        ]
        prompt, whole = self.attempt(context, mode, prompt=True), self.attempt([*context, self.messages[k]], mode)
        return prompt or "", whole or ""

    def _moved_turn(self, k: int, tried: Sequence[Attempt]) -> Attempt | None:
        """Return the turn continued from a prompt whose context the template writes differently once it is answered.

        Several of Mistral's templates write the system message before the last question, but only if that is the last
        message; those of Hermes write a newline after the last result of a tool, but only once it is answered. Prompt
        and turn then have the text of that message in common, its end, and the header of the answer, white space aside.
        With words in place of the texts, the answer is what follows the word and this header.
        """
        content = self.messages[k - 1].get("content") if k else None
        if not isinstance(content, str) or not content.strip():
            return None
        moved = []
        for attempt in tried:
            prompt, whole, mode = attempt.prompt, attempt.whole, attempt.mode
            worded_prompt, worded_whole = self._render_with_words(k, mode)
            word = _word(k - 1)
            tail, rest = worded_prompt.partition(word)[2], worded_whole.partition(word)[2]
            answer = _after(tail, rest) if tail.strip() and rest else None
            if answer is None or word in answer:
                continue
            texts = (content.lstrip(), content.strip(), json.dumps(content, ensure_ascii=False)[1:-1])
            if any(prompt.endswith(text + tail) and whole.endswith(text + rest) for text in texts):
                moved.append(Attempt.of(prompt, prompt + answer, mode))
        return min(moved, key=lambda each: each.turn_length, default=None)

    def _reasoning_of(self, k: int) -> str:
        """Return the reasoning of message k, which is asked for several times."""
        if k not in self._reasonings:
            self._reasonings[k] = reasoning_of(self.messages[k])
        return self._reasonings[k]

    def _lacks_reasoning(self, k: int, tried: Attempt) -> bool:
        """Whether a message has reasoning that its turn does not show, as reasoning, before the answer."""
        reasoning = self._reasoning_of(k)
        if not reasoning:
            return False
        completion = tried.whole[len(tried.prompt) :]
        inline = split_inline(self.messages[k].get("content"))
        text = (inline.answer if inline else str(self.messages[k].get("content") or "")).strip()
        before, found, _ = completion.rpartition(text) if text else ("", "", "")
        return not shows_as_reasoning(reasoning, tried.prompt, before if found else completion)

    def _continued_turn(self, k: int, tried: Sequence[Attempt]) -> Attempt | None:
        """Return the turn continued from a prompt that opens the reasoning, if the template begins the turn earlier.

        A turn without reasoning continues from a prompt that also closes the block, if a mode has one.
        """
        inline = split_inline(self.messages[k].get("content"))
        found: Attempt | None = None
        for attempt in tried:
            prompt, whole, mode = attempt.prompt, attempt.whole, attempt.mode
            opened = opened_by(prompt)
            if opened is None or not whole.startswith(prompt[: opened.start]):
                continue
            reasoning, answer = self._reasoning_of(k), whole[len(prompt) if attempt.is_open else opened.start :]
            before, written, rest = (
                answer.partition(inline.block) if inline and split_inline(answer) is None else ("",) * 3
            )
            if written and not closes_reasoning(before):
                reasoning = ""  # the template treats the block as part of the text
            elif inline:  # newlines separated the text from the block, which is gone or stands behind an empty one
                answer = (rest if written else answer).lstrip("\n")
            if opened.closed and reasoning:
                continue  # this prompt announces that there is no reasoning
            continued = Attempt.of(prompt, prompt + continuation(opened, reasoning, answer), mode)
            if opened.closed:
                return continued
            found = found or continued
        return found

    def says_nothing(self, turn: RenderedTurn, rules: TurnRules) -> bool:
        """Whether what is trained of a turn says nothing of the message, or stops where a call of it follows.

        All that it says may be lost. The template then writes the turn as it writes an empty answer: as nothing, or as
        markers with nothing in between. If a call is lost, the turn is the same without it.
        """
        if turn.is_blank(rules.stops):
            return True
        if not rules.may_drop:
            return False
        k, message = turn.message, self.messages[turn.message]
        calls = message.get("tool_calls")
        less: JSONMessage = {"role": "assistant", "content": ""}
        if calls:
            less = {**message, "content": message.get("content") or "", "tool_calls": calls[:-1]}
        shorter = self.with_messages([*self.messages[:k], less])
        if not calls:
            return turn.whole == shorter.attempt(shorter.messages, turn.mode)
        try:
            found = shorter.turn(k, turn.weight, rules)
        except RenderError:
            return False
        return found is not None and found.text == turn.text

    def terminated(self, k: int, prompt_end: int, whole: str, mode: Mode, rules: TurnRules) -> str:
        """Return the turn up to and including its stop token."""
        stop = rules.stops.search(whole, prompt_end) if rules.stops else None
        if stop is not None:
            return whole[: stop.end()]
        if rules.stops:
            self._refuse_unfinished(k, whole, mode, rules.stops)
            header = next_header(functools.partial(self.attempt, mode=mode), self.messages, k, whole, rules.stops)
            if header is not None:
                return whole + header
        if rules.append is not None:
            return whole + rules.append
        reason = f"messages[{k}]: the template writes no stop token after this turn"
        raise RenderError(reason, code="no_terminator", message=k)

    def _refuse_unfinished(self, k: int, whole: str, mode: Mode, stops: re.Pattern[str]) -> None:
        """Refuse a turn that stays open for a flag of its message, such as `prefix` of one that is to be continued."""
        message = self.messages[k]
        for name in (name for name, value in message.items() if value is True):
            plain = {key: value for key, value in message.items() if key != name}
            closed = self.render([*self.messages[:k], plain], mode)
            if closed.startswith(whole) and stops.search(closed, len(whole)):
                reason = f"messages[{k}]: the template leaves this turn open because `{name}` is true"
                raise RenderError(reason, code="no_terminator", message=k)


def _opens_reasoning(prompt: str) -> bool:
    opened = opened_by(prompt)
    return opened is not None and not opened.closed


def _after(tail: str, rest: str) -> str | None:
    """Return what follows `tail` in a text that begins with it, white space aside but for that at its end; or None."""
    end = tail[len(tail.rstrip()) :]
    tail_pattern = r"\s*".join(map(re.escape, "".join(tail.split())))
    found = re.match(rf"\s*{tail_pattern}{re.escape(end)}", rest)
    return None if found is None else rest[found.end() :]


def _word(number: int) -> str:
    """Return a word in place of the text of a message."""
    return f"Zq{number}W"
