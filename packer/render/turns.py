"""The turn of an assistant message: in which mode it is trained, what of it continues its prompt, and where it ends.

The definition is in docs/explanation/supervision.md.

For assistant message k, preceded by the messages C, `P = render(C, add_generation_prompt=True)` is what inference
would see, and `Q = render(C + [turn])` is what the template makes of the turn. The part of Q after P is trained, up to
and including the first stop token. This module knows nothing of token ids; the tokenize stage has the final say on
boundaries.
"""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from packer.render.conversation import Conversation, JSONMessage, Mode, contradiction
from packer.render.environment import RenderError
from packer.render.reasoning import (
    ANY_TAG,
    closes_reasoning,
    continuation,
    goes_on,
    has_tag,
    opened_by,
    opens_reasoning,
    reasoning_of,
    shows_as_reasoning,
    split_inline,
    without_ending,
)

PromptMismatch = Literal["refuse", "continue"]
HistoryRewrite = Literal["exact", "last", "as_rendered"]

SEVERAL_EFFORTS = "it has reasoning, for which the template is asked in several ways"

_WORD = "Zq0W"
"""A word in place of an answer."""


class RenderedTurn(NamedTuple):
    """A turn as the template writes it."""

    message: int
    text: str
    """Q up to and including the terminator."""

    prompt_end: int
    """Length of the prompt within `text`, in characters."""

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
    """What turns depend on, of a recipe and its model."""

    stops: re.Pattern[str] | None
    """Matches any stop token."""

    append: str | None
    """Text that closes a turn for which the template writes no stop token; None rejects such turns."""

    may_drop: frozenset[str] = frozenset()
    """Kinds of content that may be lost."""

    on_prompt_mismatch: PromptMismatch = "refuse"
    """What to do with a turn that continues no prompt: ``continue`` goes on from one that opens the reasoning, or has
    other text in its context."""

    history_rewrite: HistoryRewrite = "exact"
    """`exact` keeps every maximal text of a conversation; `last` only the last; `as_rendered` trains a turn also in a
    later text that shows it unchanged except for an empty reasoning block."""

    max_bytes: int
    """Maximum total size of a conversation's texts that are kept at a time."""

    marks: str
    """The source of the templates; a text that it contains may occur in any rendering."""

    tags_are_text: bool = False
    """Whether tags of reasoning that the template does not know are text, since the recipe wants reasoning inline."""


class _Attempt(NamedTuple):
    """Prompt and turn as rendered in one mode."""

    prompt: str
    whole: str
    mode: Mode
    fits: bool
    """Whether the turn continues the prompt."""

    is_open: bool
    """Whether the turn begins with a prompt that opens the reasoning, and goes on as if it did not."""

    @classmethod
    def of(cls, prompt: str, whole: str, mode: Mode, *, is_reasoned: bool = True) -> Self:
        begins = whole.startswith(prompt)
        fits = begins and goes_on(prompt, whole[len(prompt) :], is_reasoned=is_reasoned)
        return cls(prompt, whole, mode, fits, begins and not fits)

    @property
    def completion(self) -> str:
        """The turn after the prompt."""
        return self.whole[len(self.prompt) :]


def turn_of(conversation: Conversation, k: int, rules: TurnRules) -> RenderedTurn | None:
    """Return the turn of message k, or None for an opening message whose prompt the template cannot render."""
    try:
        prompts = conversation.prompts(k)
    except RenderError:
        if any(message["role"] == "user" for message in conversation.messages[:k]):
            raise
        return None
    answer, switches = _Answer(conversation, k), conversation.template.switches
    tried, failure = answer.attempts(prompts)
    may_lack = "reasoning" in rules.may_drop
    fits = any(attempt.fits and (may_lack or not answer.lacks_reasoning(attempt)) for attempt in tried)
    contradicting = "" if fits or not answer.reasoning else switches.contradicting(conversation.kwargs)
    if contradicting:
        raise contradiction(k, contradicting)
    chosen = answer.chosen(tried, rules)
    if chosen is None:
        how = "does not begin this turn with its own prompt"
        if any(attempt.is_open for attempt in tried):
            how = "does not close the reasoning that this turn's prompt opens, or opens it once more"
        raise failure or RenderError(f"messages[{k}]: the template {how}", code="prompt_diverges", message=k)
    (prompt, whole, mode, *_), continued = chosen
    _refuse_several_efforts(conversation, prompts, mode, k)
    text = terminated(conversation, k, len(prompt), whole, mode, rules=rules)
    return RenderedTurn(
        message=k,
        text=text,
        prompt_end=len(prompt),
        prompt_ends=tuple(dict.fromkeys(len(other) for other, _ in prompts if text.startswith(other))),
        whole=whole,
        mode=mode,
        continued=continued,
    )


def _refuse_several_efforts(
    conversation: Conversation, prompts: Sequence[tuple[str, Mode]], chosen: Mode, k: int
) -> None:
    """Refuse a reasoned answer for which the template has to be asked, and can be asked in more than one way."""
    asking = conversation.template.switches.asking
    words = {setting: prompt for prompt, mode in prompts for setting in mode.items() if setting in asking}
    if len({*words.values()}) > 1 and any(setting in [*words] for setting in chosen.items()):
        ways = " or ".join(f"{name}={word}" for name, word in asking)
        reason = f"messages[{k}]: {SEVERAL_EFFORTS}: {ways}"
        raise RenderError(reason, code="prompt_diverges", message=k)


class _Answer:
    """Message k of a conversation, of which the mode to train it in is chosen."""

    def __init__(self, conversation: Conversation, k: int) -> None:
        self._conversation = conversation
        self._k = k
        self._content = conversation.messages[k].get("content")
        self.reasoning = reasoning_of(conversation.messages[k])

    def attempts(self, prompts: Sequence[tuple[str, Mode]]) -> tuple[list[_Attempt], RenderError | None]:
        """Render prompt and turn mode by mode, longest prompt first, until no further mode is needed.

        If the prompts differ only in their endings, the longest one that its turn continues leaves the least to write,
        so the search ends there, unless that turn lacks its reasoning, or has none to be asked for. If a mode also
        changes the context, all modes are rendered.
        """
        tried: list[_Attempt] = []
        failure: RenderError | None = None
        longest = prompts[0][0]
        same_context = all(longest.startswith(without_ending(prompt)) for prompt, _ in prompts[1:])
        is_reasoned = bool(self.reasoning)
        for prompt, mode in prompts:
            try:
                whole = self._conversation.render(self._conversation.messages[: self._k + 1], mode)
                tried.append(_Attempt.of(prompt, whole, mode, is_reasoned=is_reasoned))
            except RenderError as error:
                failure = error if failure is None or not mode else failure  # prefer the default mode's reason
                continue
            is_own = is_reasoned or not opens_reasoning(prompt)
            if tried[-1].fits and is_own and same_context and not self.lacks_reasoning(tried[-1]):
                break
        return tried, failure

    def chosen(self, tried: Sequence[_Attempt], rules: TurnRules) -> tuple[_Attempt, bool] | None:
        """Choose the mode to train a turn in, and whether packer has to continue it (:meth:`_continued`)."""
        is_reasoned = bool(self.reasoning)
        fitting = sorted(  # SmolLM3 writes a plain answer in both modes, and says only in words that it is to reason
            (entry for entry in tried if entry.fits),
            key=lambda entry: (
                len(entry.completion),
                not is_reasoned and not closes_reasoning(entry.prompt),
                bool(entry.mode),
            ),
        )
        if not is_reasoned:  # Reka writes the empty block that a prompt with reasoning opens, and none by default
            fitting = [entry for entry in fitting if not opens_reasoning(entry.prompt)] or fitting
        shown = [entry for entry in fitting if not self.lacks_reasoning(entry)]
        if is_reasoned and not all(self._is_off(entry) for entry in shown):
            shown = [entry for entry in shown if not self._is_off(entry)]
        default = next((entry for entry in tried if not entry.mode), None)
        is_plain = not shown or not is_reasoned
        if is_plain and default is not None and not default.fits and closes_reasoning(default.prompt):
            # A prompt that asks for reasoning is not the one of an answer whose own prompt closes it (Gemma 4).
            fitting = [entry for entry in fitting if closes_reasoning(entry.prompt)]
            shown = [entry for entry in fitting if not self.lacks_reasoning(entry)]
        if rules.on_prompt_mismatch == "continue":
            if not shown and (found := self._continued(tried)) is not None:
                return found, True
            if not fitting and (found := self._moved(tried)) is not None:
                return found, True
        fitting = shown or fitting
        closed = _closed(fitting[0], tried) if fitting and not is_reasoned else None
        return (closed, True) if closed else (fitting[0], False) if fitting else None

    def _is_off(self, tried: _Attempt) -> bool:
        return self._conversation.template.switches.is_off({**self._conversation.kwargs, **tried.mode})

    def lacks_reasoning(self, tried: _Attempt) -> bool:
        """Whether the message has reasoning that its turn does not show, as reasoning, before the answer."""
        if not self.reasoning:
            return False
        inline = split_inline(self._content)
        text = (inline.answer if inline else str(self._content or "")).strip()
        before, found, _ = tried.completion.rpartition(text) if text else ("", "", "")
        return not shows_as_reasoning(self.reasoning, tried.prompt, before if found else tried.completion)

    def _moved(self, tried: Sequence[_Attempt]) -> _Attempt | None:
        """Return the turn continued from a prompt whose context the template writes differently once it is answered.

        Several of Mistral's templates write the system message before the last question, but only if that is the last
        message; those of Hermes write a newline after the last result of a tool, but only once it is answered. Prompt
        and turn then have the text of that message in common, its end, and the header of the answer, white space aside.
        With words in place of the texts, the answer is what follows the word and this header.
        """
        conversation, k = self._conversation, self._k
        content = conversation.messages[k - 1].get("content") if k else None
        if not isinstance(content, str) or not content.strip():
            return None
        context = [
            {**message, "content": f"Zq{number}W"}
            if message.get("content") and type(message["content"]) is str
            else message
            for number, message in enumerate(conversation.messages[:k])
        ]
        moved, word = [], f"Zq{k - 1}W"
        for prompt, whole, mode, *_ in tried:
            worded_prompt = conversation.attempt(context, mode, prompt=True) or ""
            worded_whole = conversation.attempt([*context, conversation.messages[k]], mode) or ""
            tail, rest = worded_prompt.partition(word)[2], worded_whole.partition(word)[2]
            answer = _after(tail, rest) if tail.strip() and rest else None
            if answer is None or word in answer:
                continue
            texts = (content.lstrip(), content.strip(), json.dumps(content, ensure_ascii=False)[1:-1])
            if any(prompt.endswith(text + tail) and whole.endswith(text + rest) for text in texts):
                moved.append(_Attempt.of(prompt, prompt + answer, mode))
        return min(moved, key=lambda each: len(each.completion), default=None)

    def _continued(self, tried: Sequence[_Attempt]) -> _Attempt | None:
        """Return the turn continued from a prompt that opens the reasoning, if the template begins the turn earlier.

        A turn without reasoning continues from a prompt that also closes the block, if a mode has one.
        """
        inline = split_inline(self._content)
        found: _Attempt | None = None
        for attempt in tried:
            prompt, whole, mode = attempt.prompt, attempt.whole, attempt.mode
            opened = opened_by(prompt)
            if opened is None or not whole.startswith(prompt[: opened.start]):
                continue
            reasoning, answer = self.reasoning, whole[len(prompt) if attempt.is_open else opened.start :]
            before, written, rest = (
                answer.partition(inline.block) if inline and split_inline(answer) is None else ("",) * 3
            )
            if written and not closes_reasoning(before):
                reasoning = ""  # the template treats the block as part of the text
            elif inline:  # newlines separated the text from the block, which is gone or stands behind an empty one
                answer = (rest if written else answer).lstrip("\n")
            if opened.closed and reasoning:
                continue  # this prompt announces that there is no reasoning
            continued = _Attempt.of(prompt, prompt + continuation(opened, reasoning, answer), mode)
            if opened.closed:
                return continued
            found = found or continued
        return found


def _closed(chosen: _Attempt, tried: Sequence[_Attempt]) -> _Attempt | None:
    """Return a turn without reasoning continued from a mode's prompt that adds an empty block to the chosen one.

    Qwen3 writes such blocks only behind a question, so not in an opening answer. Where an answer without reasoning
    is asked for, a server writes one there, too, and the chosen prompt asks for reasoning, unless another opens it.
    """
    answer = chosen.completion
    longer = [each for each in tried if each.prompt.startswith(chosen.prompt) and each.prompt != chosen.prompt]
    closed = next((each for each in longer if closes_reasoning(each.prompt)), None)
    if closed is None or ANY_TAG.match(answer.lstrip()) or any(opens_reasoning(each.prompt) for each in longer):
        return None
    return _Attempt.of(closed.prompt, closed.prompt + answer, closed.mode)


def _after(tail: str, rest: str) -> str | None:
    """Return what follows `tail` in a text that begins with it, white space aside but for that at its end; or None."""
    end = tail[len(tail.rstrip()) :]
    tail_pattern = r"\s*".join(map(re.escape, "".join(tail.split())))
    found = re.match(rf"\s*{tail_pattern}{re.escape(end)}", rest)
    return None if found is None else rest[found.end() :]


def terminated(conversation: Conversation, k: int, prompt_end: int, whole: str, mode: Mode, *, rules: TurnRules) -> str:
    """Return the turn up to and including its stop token."""
    stop = rules.stops.search(whole, prompt_end) if rules.stops else None
    if stop is not None:
        return whole[: stop.end()]
    if rules.stops:
        _refuse_unfinished(conversation, k, whole, mode, rules.stops)
        header = _next_header(conversation, k, whole, mode, rules.stops)
        if header is not None:
            return whole + header
    if rules.append is not None:
        return whole + rules.append
    reason = f"messages[{k}]: the template writes no stop token after this turn"
    raise RenderError(reason, code="no_terminator", message=k)


def _refuse_unfinished(conversation: Conversation, k: int, whole: str, mode: Mode, stops: re.Pattern[str]) -> None:
    """Refuse a turn that stays open for a flag of its message, such as `prefix` of one that is to be continued."""
    message = conversation.messages[k]
    for name in (name for name, value in message.items() if value is True):
        plain = {key: value for key, value in message.items() if key != name}
        closed = conversation.render([*conversation.messages[:k], plain], mode)
        if closed.startswith(whole) and stops.search(closed, len(whole)):
            reason = f"messages[{k}]: the template leaves this turn open because `{name}` is true"
            raise RenderError(reason, code="no_terminator", message=k)


def _next_header(conversation: Conversation, k: int, whole: str, mode: Mode, stops: re.Pattern[str]) -> str | None:
    """Return the stop token, if any, that opens the header after message k: GLM's templates close turns with it.

    `whole` is the rendering up to it.
    """
    messages, calls = conversation.messages, conversation.messages[k].get("tool_calls")
    after: JSONMessage = {"role": "tool" if calls else "user", "content": "?"}
    longer = conversation.attempt([*messages[: k + 1], *[*messages[k + 1 :], after][:1]], mode) or ""
    if not longer.startswith(whole):
        # The next message rewrites this turn: try a conversation in which there is little to rewrite.
        answer: dict[str, Any] = {"role": "assistant", "content": _WORD, **({"tool_calls": calls} if calls else {})}
        plain = [{"role": "user", "content": "?"}, answer]
        shorter, longer = conversation.attempt(plain, mode), conversation.attempt([*plain, after], mode) or ""
        if shorter is None or not longer:
            return None
        whole = shorter
        if not longer.startswith(whole):
            # What stands before an answer may go even there, such as an empty block of reasoning (GLM 5.1).
            whole, longer = whole.rpartition(_WORD)[2], longer.rpartition(_WORD)[2]
    match = stops.match(longer, len(whole)) if longer.startswith(whole) else None
    return match[0] if match else None
