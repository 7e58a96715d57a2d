"""Supervision by definition: slow, literal, and written without a line of packer.

Rendering is transformers' own, encoding is `tokenizers`' own, and every prompt and every turn is rendered and encoded
whole. What comes out is what packer's stages must give, id for id and label for label.
"""

import contextlib
import copy
import datetime as dt
import functools
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2.meta
from tokenizers import Encoding, Tokenizer
from transformers.utils.chat_template_utils import _compile_jinja_template

MASKED = -100
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
SWITCHES = ("enable_thinking", "thinking")
FIELDS = ("content", "reasoning_content", "thinking", "reasoning")

Document = tuple[list[int], list[int]]
"""input_ids and labels."""


@functools.cache
def compiled(template: str) -> jinja2.Template:
    """As transformers compiles it, which itself keeps fewer than there are in a test."""
    return _compile_jinja_template.__wrapped__(template)


@functools.cache
def undeclared(template: str) -> tuple[str, ...]:
    """The variables that a template reads without having set them."""
    return tuple(sorted(jinja2.meta.find_undeclared_variables(compiled("").environment.parse(template))))


class Unmodelled(Exception):  # noqa: N818 - not an error
    """A case this oracle does not define: a boundary that merges in rewritten history taken as it is rendered."""


class Refused(Exception):  # noqa: N818 - a refusal is a result
    """The row is rejected; the argument is the code."""


@dataclass(frozen=True)
class Turn:
    message: int
    ids: list[int]
    """S: prompt and completion, up to and including the terminator."""

    num_prompt: int
    text: str
    """What S was encoded from."""

    prompt: str

    prompts: tuple[str, ...]
    """The prompts, of all modes, that the text begins with, the longest first."""


@dataclass(frozen=True)
class Rules:
    """What of `supervision` the definition depends on, under the recipe's names."""

    on_prompt_mismatch: str = "refuse"
    history_rewrite: str = "exact"
    reasoning: str = "as_given"
    no_terminator: str = "refuse"


class Oracle:
    """One tokenizer folder and one template."""

    def __init__(
        self, files: Mapping[str, bytes], template: str, *, stop: Sequence[str] = (), date: str = "2026-01-01"
    ) -> None:
        config = json.loads(files.get("tokenizer_config.json", b"{}"))
        self.tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
        self.special = {i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}
        self.definition = files["tokenizer.json"]
        self.template = template
        self.compiled = compiled(template)
        self.named = {name: content(config[name]) for name in NAMED if config.get(name) is not None}
        if "additional_special_tokens" in config:
            self.named["additional_special_tokens"] = [content(t) for t in config["additional_special_tokens"]]
        self.rules = Rules()
        self.now = dt.datetime.fromisoformat(date)
        eos = json.loads(files.get("generation_config.json", b"{}")).get("eos_token_id")
        self.stops = {i for i in (eos if isinstance(eos, list) else [eos]) if i is not None}
        self.stops |= {self.tokenizer.token_to_id(text) for text in stop}
        self.stops |= {self.tokenizer.token_to_id(self.named["eos_token"])} if "eos_token" in self.named else set()
        self._look_at_template()

    def _look_at_template(self) -> None:
        self.words = {name: words_beside(name, self.template) for name in undeclared(self.template)}
        self.silent, self.asking = self._find_efforts()
        self.modes = self._find_modes()
        self.around = self._find_around()

    def _find_efforts(self) -> tuple[list[tuple[str, bool, list[str]]], list[dict[str, str]]]:
        """Variables that a word sets to no reasoning, and whether they are without one; what asks for reasoning then."""
        asked, silent, asking = [{"role": "user", "content": "x"}], [], []
        answered = [*asked, {"role": "assistant", "content": "y", **dict.fromkeys(FIELDS[1:], "Zq0W")}]

        def goes_on(mode: Mapping[str, Any]) -> bool | None:
            """Whether a reasoned answer continues the prompt under some variables."""
            prompt, whole = self._try(asked, None, mode, prompt=True), self._try(answered, None, mode)
            if prompt is None or whole is None:
                return None
            return whole.startswith(prompt) and "Zq0W" in whole and not stays_open(prompt, whole)

        own = self._try(asked, None, {}, prompt=True)
        for name, words in self.words.items():
            if ("think" not in name and "reason" not in name) or not words or own is None:
                continue
            answers = [goes_on({name: word}) for word in words]
            if {True, False} <= {goes_on({}), *answers}:
                none = [word for word, answer in zip(words, answers, strict=True) if answer is False]
                by_default = goes_on({}) is False
            else:
                none = [word for word in words if word in NONE]
                by_default = own in [self._try(asked, None, {name: word}, prompt=True) for word in none]
            if not none and not by_default:
                continue
            silent.append((name, by_default, none))
            for word in words if by_default else ():
                prompt = self._try(asked, None, {name: word}, prompt=True)
                asking += [{name: word}] if word not in none and prompt not in (None, own) else []
        return silent, asking

    def _find_around(self) -> list[tuple[str, str]]:
        """What stands before and behind the reasoning of a field, in every mode."""
        answer = {"role": "assistant", "content": "Zq1W", "reasoning_content": "Zq0W", "thinking": "Zq0W"}
        chat = [{"role": "user", "content": "?"}, answer]
        texts = [self._try(chat, None, mode) for mode in ({}, *self.modes, *self.asking)]
        parts = [re.fullmatch("(.*?)Zq0W(.*?)Zq1W.*", text, re.DOTALL) for text in texts if text is not None]
        return [(part[1], part[2]) for part in parts if part and part[2].strip()]

    def _marks_otherwise(self, opening: str) -> bool:
        """Whether the template marks reasoning, and not with this tag."""
        ends = [a.rstrip().endswith(opening) and b.lstrip().startswith(TAGS[opening]) for a, b in self.around]
        return bool(ends) and not any(ends)

    def _find_modes(self) -> list[dict[str, Any]]:
        """Known switches a template reads without having set them; other values that change a prompt and no text."""
        asked = [{"role": "user", "content": "x"}]
        answered = [*asked, {"role": "assistant", "content": "y"}]
        found, none = [], {name: words for name, _, words in self.silent}
        for name in undeclared(self.template):
            for value in (True, False, *none.get(name, [])):
                if "think" not in name and "reason" not in name:
                    continue
                texts = [
                    [self._try(chat, None, kwargs) for chat in (asked, answered)] for kwargs in ({}, {name: value})
                ]
                prompts = [self._try(asked, None, kwargs, prompt=True) for kwargs in ({}, {name: value})]
                alone = texts[0] == texts[1] and None not in [*texts[0], *prompts] and prompts[0] != prompts[1]
                if (name in SWITCHES and isinstance(value, bool)) or alone:
                    found.append({name: value})
        return found

    def with_template(self, template: str, **rules: str) -> "Oracle":
        """The same tokenizer under another template and other rules, without loading it again."""
        other = copy.copy(self)
        other.rules = Rules(**rules)
        other.template, other.compiled = template, compiled(template)
        other._look_at_template()
        return other

    # -- the definition ------------------------------------------------------------------------------------------------

    def documents(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        trained: Sequence[int] | None = None,
    ) -> list[Document] | str:
        """The documents of a chat, in the order of its turns, or the code of its rejection.

        `trained`: numbers of the assistant messages to learn; all by default.
        """
        try:
            return self._documents(list(messages), tools or None, dict(kwargs or {}), trained)
        except Refused as refused:
            return str(refused)

    def is_possible(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> bool:
        """Whether every turn to learn has a P, a Q that continues it in some mode, and a stop token.

        Asked of texts alone: no refusal of :meth:`documents` enters here.
        """
        messages = list(messages)
        wanted = [k for k, message in enumerate(messages) if message["role"] == "assistant" and not is_empty(message)]
        form = self._form(messages, max(wanted, default=0), tools, {})
        return bool(wanted) and all(
            any(self._is_learnable(form, k, tools, mode) for mode in self._modes_of(form[k], {})) for k in wanted
        )

    def _is_learnable(self, messages: list, k: int, tools: Any, mode: dict) -> bool:
        prompt, turn = self._try(messages[:k], tools, mode, prompt=True), self._try(messages[: k + 1], tools, mode)
        if prompt is None or turn is None or not turn.startswith(prompt) or stays_open(prompt, turn, messages[k]):
            return False
        own, plain = self._try(messages[:k], tools, {}, prompt=True), self._try(messages[: k + 1], tools, {})
        closed = own is not None and plain is not None and ends_closed(own) and not plain.startswith(own)
        is_reasoned = spoken_reasoning(messages[k]) and shows_reasoning(messages[k], (prompt, turn, mode))
        if closed and not ends_closed(prompt) and not is_reasoned:
            return False  # its own prompt asks for no reasoning, and this one does
        if self._is_text(messages[k], prompt, turn[len(prompt) :]):
            return False
        return any(stop in turn[len(prompt) :] for stop in self._stop_texts())

    def _documents(self, messages: list, tools: Any, kwargs: dict, trained: Sequence[int] | None) -> list[Document]:
        wanted = [k for k, message in enumerate(messages) if message["role"] == "assistant" and not is_empty(message)]
        if trained is not None:
            wanted = [k for k in wanted if k in trained]
        if not wanted:
            raise Refused("nothing_trained")
        for message in (messages[k] for k in wanted):  # the first that is wrong names what is wrong with the row
            text = as_text(message.get("content")).lstrip()
            if any(text.startswith(opening) and closing not in text for opening, closing in TAGS.items()):
                raise Refused("open_reasoning")
            inline = split_inline(message.get("content"))
            if any(as_text(message.get(name)).strip() for name in FIELDS[1:]) and not text.startswith(tuple(TAGS)):
                inline = None
            answer = inline[1] if inline else text
            if spoken_reasoning(message) and not answer.strip() and not message.get("tool_calls"):
                raise Refused("open_reasoning")
            if inline and inline[0].strip() and inline[0].strip() != spoken_reasoning(message):
                raise Refused("wrong_type")
        form = "" if self.rules.reasoning == "inline" and self._marks_otherwise("<think>") else self.rules.reasoning
        messages = [with_reasoning_as(without_blank_reasoning(message), form) for message in messages]
        messages = self._form(messages, max(wanted), tools, kwargs)
        turns = [turn for k in wanted if (turn := self._turn(messages, k, tools, kwargs)) is not None]
        if not turns:
            raise Refused("nothing_trained")
        documents = self._as_rendered(turns) if self.rules.history_rewrite == "as_rendered" else self._dealt(turns)
        documents = [document for document in documents if any(label != MASKED for label in document[1])]
        if not documents:
            raise Refused("nothing_trained")
        return documents

    def _dealt(self, turns: list[Turn]) -> list[Document]:
        """The maximal S under the prefix relation; each turn is trained in the last document that begins with its S."""
        bases = [
            turn
            for j, turn in enumerate(turns)
            if not any(begins(o.ids, turn.ids) and (len(o.ids) > len(turn.ids) or i > j) for i, o in enumerate(turns))
        ]
        if self.rules.history_rewrite == "last":
            bases = bases[-1:]
        documents = [(list(base.ids), [MASKED] * len(base.ids)) for base in bases]
        for turn in turns:
            homes = [document for document in documents if begins(document[0], turn.ids)]
            if homes:
                ids, labels = homes[-1]
                first = max(turn.num_prompt, 1)
                labels[first : len(turn.ids)] = ids[first : len(turn.ids)]
        return documents

    def _as_rendered(self, turns: list[Turn]) -> list[Document]:
        """From the last text back: it trains every turn it shows, be it without its empty reasoning block."""
        documents = []
        while turns:
            text = turns[-1].text
            ids, labels = turns[-1].ids, [MASKED] * len(turns[-1].ids)
            left = []
            for turn in turns:
                place = self._shown(turn, text)
                if place is None:
                    left.append(turn)
                    continue
                first, end = (len(self._encode(text[:at]).ids) for at in place)
                if not all(begins(ids, self._encode(text[:at]).ids) for at in place):
                    raise Unmodelled
                labels[max(first, 1) : end] = ids[max(first, 1) : end]
            documents.append((ids, labels))
            turns = left
        return documents[::-1]

    def _shown(self, turn: Turn, text: str) -> tuple[int, int] | None:
        """Where a text shows a turn, in characters: from the end of one of its prompts to a stop token."""
        if text.startswith(turn.text):
            return len(turn.prompt), len(turn.text)
        for prompt in turn.prompts:
            ends = [
                text.find(stop, len(prompt)) + len(stop) for stop in self._stop_texts() if stop in text[len(prompt) :]
            ]
            if text.startswith(prompt) and ends:
                own, shown = turn.text[len(prompt) :], text[len(prompt) : min(ends)]
                if shown == own or shows_without_empty_block(own, shown):
                    return len(prompt), min(ends)
        return None

    def _is_blank(self, completion: str) -> bool:
        """Whether a completion is white space and tags of reasoning up to its stop token."""
        ends = [completion.find(stop) for stop in self._stop_texts() if stop in completion]
        written = completion[: min(ends)] if ends else completion
        for pair in TAGS.items():
            for tag in pair:
                written = written.replace(tag, "")
        return not written.strip()

    def _turn(self, messages: list, k: int, tools: Any, kwargs: dict, *, may_skip: bool = True) -> Turn | None:
        """P and Q of message k: the longest P of any mode that its Q continues."""
        context, modes = messages[:k], self._modes_of(messages[k], kwargs)
        if not modes:
            raise Refused("prompt_diverges")
        prompts = [self._try(context, tools, {**kwargs, **mode}, prompt=True) for mode in modes]
        if all(prompt is None for prompt in prompts):
            if any(message["role"] == "user" for message in context):
                raise Refused("template_error")
            return None
        turns = [
            None if prompt is None else self._try(messages[: k + 1], tools, {**kwargs, **mode})
            for prompt, mode in zip(prompts, modes, strict=True)
        ]
        pairs = [
            (prompt, turn, mode)
            for prompt, turn, mode in zip(prompts, turns, modes, strict=True)
            if prompt is not None
            and turn is not None
            and turn.startswith(prompt)
            and not stays_open(prompt, turn, messages[k])
        ]
        tried = [(p, t, m) for p, t, m in zip(prompts, turns, modes, strict=True) if p is not None and t is not None]
        own = [(p, t) for p, t, m in tried if m == {}]
        if not spoken_reasoning(messages[k]):
            pairs = [pair for pair in pairs if not pair[0].rstrip().endswith(tuple(TAGS))] or pairs
        shown = [pair for pair in pairs if shows_reasoning(messages[k], pair)]
        is_reasoned = bool(spoken_reasoning(messages[k]) and shown)
        if own and not own[0][1].startswith(own[0][0]) and ends_closed(own[0][0]) and not is_reasoned:
            pairs = [pair for pair in pairs if ends_closed(pair[0])]  # no prompt that asks for reasoning
            shown = [pair for pair in shown if pair in pairs]
        if shown:
            pairs = shown
        elif self.rules.on_prompt_mismatch == "continue":
            going_on = [found for entry in tried if (found := goes_on(*entry, messages[k])) is not None]
            if going_on:
                # Without reasoning a prompt that closes it at once comes first; then the longest.
                pairs = [max(going_on, key=lambda found: (found[0], len(found[1])))[1:]]
        if not pairs and self.rules.on_prompt_mismatch == "continue" and context:
            asked = context[-1].get("content")
            pairs = [found for entry in tried if (found := answered(*entry, asked)) is not None]
        if not pairs and len(tried) < sum(p is not None for p in prompts):
            raise Refused("template_error")
        if not pairs:
            raise Refused("prompt_diverges")
        # What leaves the least to be written; the first of equals: the default mode.
        prompt, turn, mode = min(pairs, key=lambda pair: len(pair[1]) - len(pair[0]))
        longer = [(p, m) for p, _, m in tried if p.startswith(prompt) and p != prompt]
        is_asked = any(p.rstrip().endswith(tuple(TAGS)) for p, _ in longer)
        empty = [(p, p + turn[len(prompt) :], m) for p, m in longer if ends_closed(p) and not is_asked]
        if empty and not spoken_reasoning(messages[k]) and not turn[len(prompt) :].lstrip().startswith(tuple(TAGS)):
            prompt, turn, mode = empty[0]  # where no reasoning is asked for, there is a block
        closed = self._closed(messages, k, prompt, turn, tools=tools, kwargs={**kwargs, **mode})
        silent = self._try([*context, {"role": "assistant", "content": ""}], tools, {**kwargs, **mode})
        calls = messages[k].get("tool_calls")
        if self._is_blank(closed[len(prompt) :]) or turn == silent:
            return None  # of what the row says, nothing is left
        if self._is_text(messages[k], prompt, closed[len(prompt) :]):
            raise Refused("dropped_reasoning")
        self._refuse_garbled(messages, k, prompt, closed[len(prompt) :], tools)
        known = dict.fromkeys(p for p in prompts if p is not None and closed.startswith(p))
        found = self._boundary(k, prompt, closed, tuple(sorted(known, key=len, reverse=True)) or (prompt,))
        if calls and may_skip and self._is_same_without_a_call(messages[: k + 1], found, tools, kwargs):
            return None  # what would be learned is to stop where a call follows
        return found

    def _is_same_without_a_call(self, messages: list, turn: Turn, tools: Any, kwargs: dict) -> bool:
        """Whether the last message has the same turn without the last of its calls."""
        *context, message = messages
        less = {**message, "content": message.get("content") or "", "tool_calls": message["tool_calls"][:-1]}
        try:
            found = self._turn([*context, less], len(context), tools, kwargs, may_skip=False)
        except Refused:
            return False
        return found is not None and found.text == turn.text

    def _refuse_garbled(self, messages: list, k: int, prompt: str, completion: str, tools: Any) -> None:
        """No escapes that the row does not have, and no arguments that are a string within JSON."""
        own = json.dumps(messages[k], ensure_ascii=False)
        calls = messages[k].get("tool_calls") or ()
        if any(cuts_space(call, completion) for call in calls):
            raise Refused("mangled_call")
        if num_escapes(completion) > num_escapes(own) or any(quotes_arguments(call, completion) for call in calls):
            raise Refused("mangled_call" if calls else "mangled_text")
        if num_escapes(prompt) > num_escapes(json.dumps([messages[:k], tools], ensure_ascii=False)):
            raise Refused("mangled_text")

    def _closed(self, messages: list, k: int, prompt: str, turn: str, *, tools: Any, kwargs: dict) -> str:
        """Q; where it holds no stop id after the prompt, with the one the next message's header begins with."""
        q = self._encode(turn)
        if any(i in self.stops and start >= len(prompt) for i, (start, _) in zip(q.ids, q.offsets, strict=True)):
            return turn
        calls = messages[k].get("tool_calls")
        user, reply = {"role": "user", "content": "?"}, {"role": "assistant", "content": "Zq0W"}
        after = {"role": "tool", "content": "?"} if calls else user
        reply |= {"tool_calls": calls} if calls else {}
        following = messages[k + 1] if k + 1 < len(messages) else after
        longer = self._try([*messages[: k + 1], following], tools, kwargs)
        base: str | None = turn
        if longer is None or not longer.startswith(turn):  # the next message rewrites this one: a chat without history
            base, longer = self._try([user, reply], tools, kwargs), self._try([user, reply, after], tools, kwargs)
            if base is not None and longer is not None and not longer.startswith(base) and "Zq0W" in base:
                base, longer = base.rsplit("Zq0W", 1)[1], longer.rsplit("Zq0W", 1)[1]  # what follows the reply
        if base is not None and longer is not None and longer.startswith(base):
            for stop in self._stop_texts():
                if longer[len(base) :].startswith(stop):
                    return turn + stop
        if self.rules.no_terminator == "append":
            return turn + self.named["eos_token"]
        raise Refused("no_terminator")

    def _boundary(self, k: int, prompt: str, turn: str, prompts: tuple[str, ...]) -> Turn:
        """The prefix rule on ids, or prompt and completion encoded apart."""
        p, q = self._encode(prompt), self._encode(turn)
        if q.ids[: len(p.ids)] == p.ids:
            end = next(i for i in range(len(p.ids), len(q.ids)) if q.ids[i] in self.stops) + 1
            return Turn(k, q.ids[:end], len(p.ids), turn[: q.offsets[end - 1][1]], prompt, prompts)
        end = next(b for i, (a, b) in zip(q.ids, q.offsets, strict=True) if i in self.stops and a >= len(prompt))
        return Turn(k, p.ids + self._continuation(turn[len(prompt) : end]), len(p.ids), turn[:end], prompt, prompts)

    # -- rendering and encoding ----------------------------------------------------------------------------------------

    def _form(self, messages: list, last: int, tools: Any, kwargs: dict) -> list:
        """The row as it is; only if the template raises (or prints a null as None), nulls and objects as strings.

        Last, texts as lists of parts, for templates that take no text at all. Of the forms that render, the first of
        which a reader of the text finds the most calls, and no escapes that the row does not have.
        """
        found, refused = [], []
        for change in FORMS:
            changed = [change(message) for message in messages]
            text = self._try(changed[: last + 1], tools, kwargs)
            refused += [changed] if text is None and self._refuses(changed[: last + 1], tools, kwargs) else []
            empty = self._try([without_null(message) for message in changed[: last + 1]], tools, kwargs)
            if text is not None and text.count("None") <= (text if empty is None else empty).count("None"):
                calls = [call for message in messages[: last + 1] for call in message.get("tool_calls") or ()]
                unread = sum(not reads_as_call(call, text) for call in calls)
                row = json.dumps([messages[: last + 1], tools], ensure_ascii=False)
                found.append((unread + bool(calls and num_escapes(text) > num_escapes(row)), changed))
        return min(found, key=lambda each: each[0], default=(0, [*refused, messages][0]))[1]

    def _refuses(self, messages: list, tools: Any, kwargs: Mapping[str, Any]) -> bool:
        """Whether the template raises in words of its own, so that its reason is worth more than that it breaks."""
        try:
            self._render(messages, tools, kwargs)
        except Exception as error:  # noqa: BLE001 - as in `_try`
            return type(error) is jinja2.TemplateError
        return False

    def _modes(self, kwargs: Mapping[str, Any]) -> list[dict[str, bool]]:
        return [{}] if any(set(mode) & set(kwargs) for mode in self.modes) else [{}, *self.modes]

    def _modes_of(self, message: Mapping[str, Any], kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The modes of a message: if it has reasoning, none that asks for an answer without."""
        if not self.silent or not spoken_reasoning(message):
            return self._modes(kwargs)
        asking = [mode for mode in self.asking if not set(mode) & set(kwargs)]
        return [mode for mode in [*self._modes(kwargs), *asking] if not self._is_silent({**kwargs, **mode})]

    def _is_silent(self, kwargs: Mapping[str, Any]) -> bool:
        return any(kwargs[name] in none if name in kwargs else by_default for name, by_default, none in self.silent)

    def _is_text(self, message: Mapping[str, Any], prompt: str, completion: str) -> bool:
        """Whether tags of a message are letters of its answer: they stand behind the block that the template writes."""
        if not any(tags_in(as_text(message.get(name))) for name in FIELDS):
            return False
        if self.rules.reasoning == "inline":
            for tag in {*tags_in(completion)} - {*tags_in(self.template)}:
                completion = completion.replace(tag, "")
        pairs = self.around or [pair for pair in TAGS.items() if pair[0] in self.template]
        answer = completion
        for before, after in () if ends_closed(prompt) else pairs:
            opening = next((tag for tag in TAGS if before.rstrip().endswith(tag)), "")
            begins = completion.lstrip().startswith(opening) or prompt.rstrip().endswith(opening)
            reasoning, closed, rest = completion.partition(after.strip())
            if begins and closed:
                reasoning = reasoning.strip().removeprefix(opening).strip()
                answer = rest if not reasoning.startswith(tuple(TAGS)) else completion
                break
        known = tags_in(self.template)
        left = tags_in(answer if known else re.sub(r"```.*?(?:```|\Z)|`[^`\n]+`", "", answer, flags=re.DOTALL))
        return bool(left) and (bool(self.around) or bool(known) or left[0] in TAGS.values())

    def _try(self, messages: list, tools: Any, kwargs: Mapping[str, Any], *, prompt: bool = False) -> str | None:
        try:
            return self._render(messages, tools, kwargs, prompt=prompt)
        except Exception:  # noqa: BLE001 - a template may raise anything; that is one of its answers
            return None

    def _render(self, messages: list, tools: Any, kwargs: Mapping[str, Any], *, prompt: bool = False) -> str:
        return self.compiled.render(
            **self.named,
            **kwargs,
            messages=messages,
            tools=tools,
            documents=None,
            add_generation_prompt=prompt,
            strftime_now=self.now.strftime,
        )

    def _encode(self, text: str) -> Encoding:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _continuation(self, text: str) -> list[int]:
        """A completion on its own: nothing starts at its start; from its first added token on it is as in any text."""
        added = [token.content for token in self.tokenizer.get_added_tokens_decoder().values()]
        found = [(text.find(content), -len(content)) for content in added if content in text]
        if not found:
            return apart(self.definition).encode(text, add_special_tokens=False).ids
        first, length = min(found)
        start = apart(self.definition).encode(text[: first - length], add_special_tokens=False).ids
        return start + self._encode(text[first:]).ids[1:]

    def _stop_texts(self) -> Iterator[str]:
        added = self.tokenizer.get_added_tokens_decoder()
        yield from (added[i].content if i in added else self.tokenizer.id_to_token(i) for i in sorted(self.stops))


def num_escapes(text: str) -> int:
    """Letters written as HTML writes them, and letters that were lost."""
    return sum(html.unescape(each) in set("<>&\"'") for each in re.findall("&#?[a-zA-Z0-9]+;", text)) + text.count(
        "\ufffd"
    )


def reads_as_call(call: Mapping[str, Any], text: str) -> bool:
    """Whether the arguments of a call are a JSON value in a text, or stand in it one by one, not quoted as a whole."""
    arguments = call["function"].get("arguments") or {}
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    for brace in re.finditer("{", text):
        with contextlib.suppress(ValueError):
            if same_json(json.JSONDecoder().raw_decode(text, brace.start())[0], arguments):
                return True
    parts = list(parts_of(arguments))
    quoted = any(f'\\"{key}\\"' in text for key, is_key in parts if is_key) or is_bare(arguments, text)
    return str(arguments) not in text and not quoted and all(is_written(part, text) for part, _ in parts)


def quotes_arguments(call: Mapping[str, Any], text: str) -> bool:
    """Whether the arguments stand in a text only within a JSON string."""
    arguments = call["function"].get("arguments") or {}
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    keys = [part for part, is_key in parts_of(arguments) if is_key]
    if is_bare(arguments, text) and not reads_as_call(call, text):
        return True
    return any(f'\\"{key}\\"' in text and f'"{key}"' not in text.replace('\\"', "") for key in keys)


def cuts_space(call: Mapping[str, Any], text: str) -> bool:
    """Whether a call stands in a text, and one of its texts does not, as it is or escaped."""
    arguments = call["function"].get("arguments") or {}
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    spaced = [
        part for part, is_key in parts_of(arguments) if not is_key and isinstance(part, str) and part != part.strip()
    ]
    written = (
        any(
            each in text
            for each in (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1])
        )
        for part in spaced
    )
    return call["function"]["name"] in text and not all(written)


def is_bare(arguments: Any, text: str) -> bool:
    """Whether a text stands between quotation marks without its escapes, or without quotation marks as `f(x=text)`."""
    if isinstance(arguments, list):
        return any(is_bare(item, text) for item in arguments)
    if not isinstance(arguments, dict):
        return False
    for key, value in arguments.items():
        if is_bare(value, text):
            return True
        if isinstance(value, str) and value.strip():
            squeezed = text.replace(" ", "").replace("\n", "")
            bare = value.replace(" ", "").replace("\n", "")
            if any(f"{before}{key}={bare}{after}" in squeezed for before in "(," for after in ",)"):
                return True
            if json.dumps(bare, ensure_ascii=False)[1:-1] != bare and f'"{key}":"{bare}"' in squeezed:
                return True
    return False


def same_json(one: Any, other: Any) -> bool:
    """Equal, and of the same kinds: 1 is neither 1.0 nor true, and keys stand in one order."""
    return json.dumps(one) == json.dumps(other)


def parts_of(value: Any) -> Iterator[tuple[Any, bool]]:
    """Keys and values of a JSON value, with whether it is a key."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, True
            yield from parts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from parts_of(item)
    else:
        yield value, False


def is_written(part: Any, text: str) -> bool:
    """Whether a value stands in a text as it is, as JSON, or as Python writes it."""
    if not isinstance(part, str):
        whole = str(int(part)) if isinstance(part, float) and part.is_integer() else str(part)
        return json.dumps(part) in text or whole in text
    part = part.strip()
    spellings = (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1])
    return any(token_bytes in text for token_bytes in spellings)


def common_prefix(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    return first[: next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def begins(ids: list[int], start: list[int]) -> bool:
    return ids[: len(start)] == start


TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "[THINK]": "[/THINK]",
    "<|channel>thought": "<channel|>",
    "<mm:think>": "</mm:think>",
    "<seed:think>": "</seed:think>",
}


NONE = ("none", "no_think", "off")
"""Words that ask for no reasoning."""


def words_beside(name: str, template: str) -> list[str]:
    """The words with which a variable is compared in a template."""
    comparison = rf"\b{name}\b(?:\s*\|\s*lower)?\s*(?:==|!=|not in|in)\s*(\[[^\]]*\]|'[^']*'|\"[^\"]*\")"
    return [word for found in re.findall(comparison, template) for word in re.findall("['\"]([^'\"]*)['\"]", found)]


def tags_in(text: str) -> list[str]:
    """The tags of reasoning in a text, in their order."""
    return re.findall("|".join(map(re.escape, [*TAGS, *TAGS.values()])), text)


def ends_closed(text: str) -> bool:
    """Whether a text ends with the end of reasoning."""
    return text.rstrip().endswith(tuple(TAGS.values()))


def stays_open(prompt: str, turn: str, message: Mapping[str, Any] | None = None) -> bool:
    """Whether a turn begins with a prompt that opens the reasoning, and does not close that, or opens it once more."""
    for opening, closing in TAGS.items():
        if prompt.rstrip().endswith(opening) and turn.startswith(prompt):
            written = turn[len(prompt) :]
            inside = written.split(closing)[0].strip()
            is_other = message is not None and not spoken_reasoning(message) and inside
            return closing not in written or written.lstrip().startswith(opening) or bool(is_other)
    return False


def goes_on(prompt: str, turn: str, mode: dict, message: Mapping[str, Any]) -> tuple[bool, str, str, dict] | None:
    """What a model writes after a prompt that opens the reasoning: the reasoning, the closing tag, and the answer.

    First of what comes back: whether the prompt closes the reasoning at once.
    """
    for opening, closing in TAGS.items():
        bare = prompt.rstrip()
        closed = bare.endswith(closing)
        before = bare.removesuffix(closing).rstrip() if closed else bare
        if not before.endswith(opening) or not turn.startswith(before.removesuffix(opening)):
            continue
        answer = turn[len(prompt) :] if stays_open(prompt, turn, message) else turn[len(before) - len(opening) :]
        reasoning, inline = spoken_reasoning(message), split_inline(message.get("content"))
        block = str(message.get("content")).strip().removesuffix(inline[1].strip()).strip() if inline else ""
        if inline and block in answer and split_inline(answer) is None:
            if ends_closed(answer.split(block)[0]):
                answer = answer.split(block, 1)[1].lstrip("\n")
            else:
                reasoning = ""  # the block is written as part of the text
        elif inline:
            answer = answer.lstrip("\n")
        if closed and reasoning:
            continue
        written = split_inline(answer)
        if written and not answer.lstrip().startswith(tuple(TAGS)) and written[0].strip() != reasoning:
            written = None  # a closing tag of the answer's own
        if written:
            reasoning, answer = written[0].strip() or reasoning, written[1]
        if answer.lstrip().startswith(closing):
            answer = answer.lstrip().removeprefix(closing)
        if closed:
            return True, prompt, prompt + answer, mode
        if "\n" in prompt[len(before) :]:
            return False, prompt, f"{prompt}{reasoning}\n{closing}\n\n{answer}", mode
        return False, prompt, prompt + reasoning + closing + answer, mode
    return None


def answered(prompt: str, turn: str, mode: dict, asked: Any) -> tuple[str, str, dict] | None:
    """The prompt and what the turn has behind the place up to which it ends as the prompt does: `asked`, and a header."""
    if not isinstance(asked, str) or not asked.strip():
        return None
    ends = [(len(common_prefix([prompt[::-1], turn[:end][::-1]])), end) for end in range(len(turn) + 1)]
    shared, end = max(ends)
    header = turn[end - shared : end].rpartition(asked.strip())
    if header[1] and header[2].strip():
        return prompt, prompt + turn[end:], mode
    _, found, tail = prompt.rpartition(asked.strip())  # the same, white space aside
    closing = tail[len(tail.rstrip()) :]
    for begins_at in [match.end() for match in re.finditer(re.escape(asked.strip()), turn) if found]:
        for end in range(begins_at, len(turn) + 1):
            own = turn[begins_at:end]
            if own.split() and own[len(own.rstrip()) :] == closing and "".join(own.split()) == "".join(tail.split()):
                return prompt, prompt + turn[end:], mode
    return None


def shows_without_empty_block(own: str, shown: str) -> bool:
    """Whether a turn is shown without its first empty block, and with or without white space in the block's place."""
    found = [re.search(rf"{re.escape(a)}\s*{re.escape(b)}\s*", own) for a, b in TAGS.items()]
    blocks = [match.span() for match in found if match]
    if not blocks:
        return False
    start, end = min(blocks)
    return re.fullmatch(re.escape(own[:start]) + r"\s*" + re.escape(own[end:]), shown) is not None


def shows_reasoning(message: Mapping[str, Any], pair: tuple[str, str, dict]) -> bool:
    """Whether the reasoning of a message, if it has any, stands in its completion before its text."""
    completion, inline = pair[1][len(pair[0]) :], split_inline(message.get("content"))
    text = as_text(inline[1] if inline else message.get("content")).strip()
    if text and text in completion:
        completion = completion[: completion.rindex(text)]
    reasoning = spoken_reasoning(message)
    before = (pair[0] + completion.split(reasoning, 1)[0]).rstrip() if reasoning else ""
    for opening in TAGS:
        before = before.removesuffix(opening)
    return reasoning in completion and not ends_closed(before)


def as_text(content: Any) -> str:
    return content if isinstance(content, str) else ""


def without_blank_reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message; reasoning of white space is none."""
    texts = {name: value for name, value in message.items() if name in FIELDS[1:] and isinstance(value, str)}
    return {**message, **{name: "" for name, value in texts.items() if not value.strip()}}


def spoken_reasoning(message: Mapping[str, Any]) -> str:
    for name in FIELDS[1:]:
        if isinstance(message.get(name), str) and message[name].strip():
            return message[name].strip()
    inline = split_inline(message.get("content"))
    return inline[0].strip() if inline else ""


def split_inline(text: Any) -> tuple[str, str] | None:
    """The reasoning that a text opens with, in tags or before one that closes it, and what follows."""
    tags = tags_in(as_text(text))
    opening = tags[0] if tags and text.lstrip().startswith(tags[0]) else ""
    closing = TAGS.get(opening) or (tags[0] if tags and tags[0] in TAGS.values() else "")
    before, found, answer = as_text(text).lstrip().removeprefix(opening).partition(closing or "\0")
    if not found or (opening and opening not in TAGS) or any(tag in answer for tag in TAGS.values()):
        return None
    return before, answer.lstrip()


def with_reasoning_as(message: Mapping[str, Any], form: str) -> dict[str, Any]:
    """`supervision.reasoning`: the reasoning of an assistant's message in a field, or inline."""
    fields = [name for name in FIELDS[1:] if isinstance(message.get(name), str) and message[name].strip()]
    inline = split_inline(message.get("content"))
    if message["role"] == "assistant" and fields and inline and inline[0].strip() == message[fields[0]].strip():
        message = {**message, "content": inline[1]}
    opens = inline and as_text(message.get("content")).lstrip().startswith(tuple(TAGS))
    if message["role"] == "assistant" and form == "inline" and fields and not opens:
        bare = {name: value for name, value in message.items() if name not in FIELDS[1:]}
        return {**bare, "content": f"<think>\n{message[fields[0]].strip()}\n</think>\n\n{message.get('content') or ''}"}
    inline = split_inline(message.get("content"))
    if message["role"] == "assistant" and form == "inline" and inline and not opens:
        return {**message, "content": f"<think>\n{inline[0].strip()}\n</think>\n\n{inline[1]}"}
    if message["role"] == "assistant" and form == "field" and not fields and inline:
        reasoning = inline[0].strip()
        fields = {"reasoning_content": reasoning, "thinking": reasoning} if reasoning else {}
        return {**message, "content": inline[1], **fields}
    return dict(message)


def content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else token


def is_empty(message: Mapping[str, Any]) -> bool:
    return not message.get("tool_calls") and not any(
        isinstance(message.get(name), str) and message[name].strip() for name in FIELDS
    )


def without_null(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: "" if key == "content" and value is None else value for key, value in message.items()}


def as_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(message.get("content"), str):
        return dict(message)
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def string_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return dict(message)
    calls = [dict(call, function=dict(call["function"])) for call in message["tool_calls"]]
    for call in calls:
        arguments = call["function"].get("arguments")
        if not isinstance(arguments, str | None):
            call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
    return {**message, "tool_calls": calls}


FORMS: tuple[Callable[[Mapping[str, Any]], dict[str, Any]], ...] = (
    dict,
    without_null,
    string_arguments,
    lambda message: string_arguments(without_null(message)),
    as_parts,
)


@functools.lru_cache(maxsize=2)
def apart(definition: bytes) -> Tokenizer:
    """The tokenizer of completions that are encoded on their own; most rows need none, and large ones load slowly."""
    return Tokenizer.from_str(json.dumps(without_start(json.loads(definition))))


def without_start(definition: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer.json without the space that some tokenizers put before the first word of a text."""
    text = json.dumps(definition["pre_tokenizer"]).replace('"add_prefix_space": true', '"add_prefix_space": false')
    text = re.sub(r'"prepend_scheme": "\w+"', '"prepend_scheme": "never"', text)
    normalizer = definition["normalizer"] or {"type": "Sequence", "normalizers": []}
    members = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    kept = {"type": "Sequence", "normalizers": [member for member in members if member["type"] != "Prepend"]}
    return {**definition, "pre_tokenizer": json.loads(text), "normalizer": kept}
