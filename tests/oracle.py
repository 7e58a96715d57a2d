"""Supervision by definition: slow, literal, and written without a line of packer.

Rendering is transformers' own, encoding is `tokenizers`' own, and every prompt and every turn is rendered and encoded
whole. What comes out is what packer's stages must give, id for id and label for label.
"""

import copy
import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Encoding, Tokenizer
from transformers.utils.chat_template_utils import _compile_jinja_template

MASKED = -100
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
SWITCHES = ("enable_thinking", "thinking")
FIELDS = ("content", "reasoning_content", "thinking", "reasoning")

Document = tuple[list[int], list[int]]
"""input_ids and labels."""


class Refused(Exception):  # noqa: N818 - a refusal is a result
    """The row is rejected; the argument is the code."""


@dataclass(frozen=True)
class Turn:
    message: int
    ids: list[int]
    """S: prompt and completion, up to and including the terminator."""

    num_prompt: int


class Oracle:
    """One tokenizer folder and one template."""

    def __init__(
        self, files: Mapping[str, bytes], template: str, *, stop: Sequence[str] = (), date: str = "2026-01-01"
    ) -> None:
        config = json.loads(files.get("tokenizer_config.json", b"{}"))
        self.tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
        self.apart = Tokenizer.from_str(json.dumps(without_start(json.loads(files["tokenizer.json"]))))
        self.template = template
        self.compiled = _compile_jinja_template(template)
        self.named = {name: content(config[name]) for name in NAMED if config.get(name) is not None}
        if "additional_special_tokens" in config:
            self.named["additional_special_tokens"] = [content(t) for t in config["additional_special_tokens"]]
        self.now = dt.datetime.fromisoformat(date)
        eos = json.loads(files.get("generation_config.json", b"{}")).get("eos_token_id")
        self.stops = {i for i in (eos if isinstance(eos, list) else [eos]) if i is not None}
        self.stops |= {self.tokenizer.token_to_id(text) for text in stop}
        self.stops |= {self.tokenizer.token_to_id(self.named["eos_token"])} if "eos_token" in self.named else set()

    def with_template(self, template: str) -> "Oracle":
        """The same tokenizer under another template, without loading it again."""
        other = copy.copy(self)
        other.template, other.compiled = template, _compile_jinja_template(template)
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

    def _documents(self, messages: list, tools: Any, kwargs: dict, trained: Sequence[int] | None) -> list[Document]:
        wanted = [k for k, message in enumerate(messages) if message["role"] == "assistant" and not is_empty(message)]
        if trained is not None:
            wanted = [k for k in wanted if k in trained]
        if not wanted:
            raise Refused("nothing_trained")
        messages = self._form(messages, max(wanted), tools, kwargs)
        turns = [turn for k in wanted if (turn := self._turn(messages, k, tools, kwargs)) is not None]
        if not turns:
            raise Refused("nothing_trained")
        bases = [
            turn
            for j, turn in enumerate(turns)
            if not any(begins(o.ids, turn.ids) and (len(o.ids) > len(turn.ids) or i > j) for i, o in enumerate(turns))
        ]
        documents = [(list(base.ids), [MASKED] * len(base.ids)) for base in bases]
        for turn in turns:
            ids, labels = [document for document in documents if begins(document[0], turn.ids)][-1]
            first = max(turn.num_prompt, 1)
            labels[first : len(turn.ids)] = ids[first : len(turn.ids)]
        documents = [document for document in documents if any(label != MASKED for label in document[1])]
        if not documents:
            raise Refused("nothing_trained")
        return documents

    def _turn(self, messages: list, k: int, tools: Any, kwargs: dict) -> Turn | None:
        """P and Q of message k: the longest P of any mode that its Q continues."""
        context, modes = messages[:k], self._modes(kwargs)
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
            if prompt is not None and turn is not None and turn.startswith(prompt)
        ]
        if not pairs:
            failed = any(p is not None and t is None for p, t in zip(prompts, turns, strict=True))
            raise Refused("template_error" if failed else "prompt_diverges")
        prompt, turn, mode = max(pairs, key=lambda pair: len(pair[0]))  # the first of equals: the default mode
        closed = self._closed(messages, k, prompt, turn, tools=tools, kwargs={**kwargs, **mode})
        return self._border(k, prompt, closed)

    def _closed(self, messages: list, k: int, prompt: str, turn: str, *, tools: Any, kwargs: dict) -> str:
        """Q; where it holds no stop id after the prompt, with the one the next message's header begins with."""
        q = self._encode(turn)
        if any(i in self.stops and start >= len(prompt) for i, (start, _) in zip(q.ids, q.offsets, strict=True)):
            return turn
        user, reply = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}
        following = messages[k + 1] if k + 1 < len(messages) else user
        longer = self._try([*messages[: k + 1], following], tools, kwargs)
        base: str | None = turn
        if longer is None or not longer.startswith(turn):  # the next message rewrites this one: a chat without history
            base, longer = self._try([user, reply], tools, kwargs), self._try([user, reply, user], tools, kwargs)
        if base is not None and longer is not None and longer.startswith(base):
            for stop in self._stop_texts():
                if longer[len(base) :].startswith(stop):
                    return turn + stop
        raise Refused("no_terminator")

    def _border(self, k: int, prompt: str, turn: str) -> Turn:
        """The prefix rule on ids, or prompt and completion encoded apart."""
        p, q = self._encode(prompt), self._encode(turn)
        if q.ids[: len(p.ids)] == p.ids:
            end = next(i for i in range(len(p.ids), len(q.ids)) if q.ids[i] in self.stops) + 1
            return Turn(k, q.ids[:end], len(p.ids))
        end = next(b for i, (a, b) in zip(q.ids, q.offsets, strict=True) if i in self.stops and a >= len(prompt))
        return Turn(k, p.ids + self._continuation(turn[len(prompt) : end]), len(p.ids))

    # -- rendering and encoding ----------------------------------------------------------------------------------------

    def _form(self, messages: list, last: int, tools: Any, kwargs: dict) -> list:
        """The row as it is; only if the template raises (or prints a null as None), nulls and objects as strings."""
        for change in (lambda m: m, without_null, string_arguments, lambda m: string_arguments(without_null(m))):
            changed = [change(message) for message in messages]
            text = self._try(changed[: last + 1], tools, kwargs)
            empty = self._try([without_null(message) for message in changed[: last + 1]], tools, kwargs)
            if text is not None and text.count("None") <= (text if empty is None else empty).count("None"):
                return changed
        return messages

    def _modes(self, kwargs: Mapping[str, Any]) -> list[dict[str, bool]]:
        free = [name for name in SWITCHES if name in self.template and name not in kwargs]
        return [{}] + [{name: value} for name in free for value in (True, False)]

    def _try(self, messages: list, tools: Any, kwargs: Mapping[str, Any], *, prompt: bool = False) -> str | None:
        try:
            return self.compiled.render(
                **self.named,
                **kwargs,
                messages=messages,
                tools=tools,
                documents=None,
                add_generation_prompt=prompt,
                strftime_now=self.now.strftime,
            )
        except Exception:  # noqa: BLE001 - a template may raise anything; that is one of its answers
            return None

    def _encode(self, text: str) -> Encoding:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _continuation(self, text: str) -> list[int]:
        """A completion on its own: nothing starts at its start; from its first added token on it is as in any text."""
        added = [token.content for token in self.tokenizer.get_added_tokens_decoder().values()]
        found = [(text.find(content), -len(content)) for content in added if content in text]
        if not found:
            return self.apart.encode(text, add_special_tokens=False).ids
        first, length = min(found)
        start = self.apart.encode(text[: first - length], add_special_tokens=False).ids
        return start + self._encode(text[first:]).ids[1:]

    def _stop_texts(self) -> Iterator[str]:
        added = self.tokenizer.get_added_tokens_decoder()
        yield from (added[i].content if i in added else self.tokenizer.id_to_token(i) for i in sorted(self.stops))


def begins(ids: list[int], start: list[int]) -> bool:
    return ids[: len(start)] == start


def content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else token


def is_empty(message: Mapping[str, Any]) -> bool:
    return not message.get("tool_calls") and not any(
        isinstance(message.get(name), str) and message[name].strip() for name in FIELDS
    )


def without_null(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: "" if key == "content" and value is None else value for key, value in message.items()}


def string_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return dict(message)
    calls = [dict(call, function=dict(call["function"])) for call in message["tool_calls"]]
    for call in calls:
        arguments = call["function"].get("arguments")
        if not isinstance(arguments, str | None):
            call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
    return {**message, "tool_calls": calls}


def without_start(definition: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer.json without the space that some tokenizers put before the first word of a text."""
    text = json.dumps(definition["pre_tokenizer"]).replace('"add_prefix_space": true', '"add_prefix_space": false')
    text = re.sub(r'"prepend_scheme": "\w+"', '"prepend_scheme": "never"', text)
    normalizer = definition["normalizer"] or {"type": "Sequence", "normalizers": []}
    members = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    kept = {"type": "Sequence", "normalizers": [member for member in members if member["type"] != "Prepend"]}
    return {**definition, "pre_tokenizer": json.loads(text), "normalizer": kept}
