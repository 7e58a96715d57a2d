"""What a template writes around texts: the markers of its roles, and wrappers that texts may have already.

Rows that were prepared for one model have its tags in their texts: results of tools between `<tool_response>` tags,
definitions of tools in the system message. Under a template that writes these itself, they would stand there twice.

No list of tags is needed: a word in place of a text is rendered, and the tags beside it, with the name of a role at
most between them, are the wrapper of its role, whatever attributes a tag has. The definitions of tools are in the
outermost tag that is open where the name of a made-up tool stands.
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packer.batches import Message, Sample, tool_parameters
from packer.model.model import AddedToken
from packer.render.conversation import Conversation, renderable
from packer.render.environment import ChatTemplate, RenderError
from packer.render.readback import function_of
from packer.render.reasoning import ANY_TAG, split_inline

_WORD = "Zq0W"
_CALL_ID = "a00000001"
"""Of nine letters and digits, as Mistral's templates want them."""

_TAG = r"(?:<+[^<>\s]+>+|\[[^\[\]\s]+\])"
_NAMED_TAG = re.compile(r"<[\w:.-]+(?=>\Z)")
_ATTRIBUTES = re.compile(r"(?<=[\w:.-])\s[^<>=]{1,100}=[^<>]{1,100}(?=>)")
_LAST_TAGS = re.compile(rf"(?:{_TAG}\s*\w*\s*){{1,4}}\Z")
_FIRST_TAG = re.compile(rf"\s*({_TAG})")
_ANY_TAG = re.compile(r"<(/?)([^<>\s/]+)>")

_MARKER = re.compile(r"<\|[^\s<>|]{1,60}\|?>|<[^\s<>|]{1,60}\|>|<｜[^\s<>｜]{1,60}｜>|<(?:start|end)_of_turn>")
"""Text that looks like a control token."""

_PING = {"role": "user", "content": "ping"}
_PONG = {"role": "assistant", "content": "pong"}
_CHATS = (
    [{"role": "system", "content": "sys"}, _PING, _PONG, _PING],
    [_PING, _PONG, _PING],
    [_PING],
)


@dataclass(frozen=True, kw_only=True)
class Wrapper:
    opening: str
    """Perhaps with the tags before, with which prepared texts may begin as well."""

    closing: str

    @property
    def header(self) -> str:
        """The last tag, with the name behind it."""
        return self.opening[[tag.start() for tag in re.finditer(_TAG, self.opening)][-1] :]

    @functools.cached_property
    def _whole(self) -> re.Pattern[str]:
        pieces = [*re.finditer(rf"{_TAG}|\w+", self.opening)]
        tags = [n for n, piece in enumerate(pieces) if piece[0][0] in "<["]
        spelled = [_spelled(piece[0]) if n in tags else rf"{re.escape(piece[0])}\b" for n, piece in enumerate(pieces)]
        begins = [r"\s*".join(spelled[n:]) for n in tags]
        return re.compile(rf"\s*(?:{'|'.join(begins)})(.*?){re.escape(self.closing)}\s*\Z", re.DOTALL)

    def unwrapped(self, text: str) -> str | None:
        """Return a text without the wrapper; None if it does not have it."""
        found = self._whole.match(text)
        return found[1].strip() if found else None

    def parts(self, text: str) -> list[str]:
        """Return what stands between the tags in a text, each part up to the first closing tag; nothing if blank."""
        between = (part.partition(self.closing) for part in text.split(self.opening)[1:])
        return [inner.strip() for inner, closing, _ in between if closing and inner.strip()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrappers:
    """The wrappers of a template."""

    roles: Mapping[str, Wrapper]
    definitions: Wrapper | None
    """Around the definitions of tools."""

    calls: Wrapper | None
    """Around a call."""

    calls_are_json: bool

    @classmethod
    def of(cls, template: ChatTemplate, kwargs: Mapping[str, Any]) -> "Wrappers":
        """Learn those of a template; `kwargs` are the variables of the recipe."""
        user: dict[str, Any] = {"role": "user", "content": "Hi"}
        call = {"id": _CALL_ID, "type": "function", "function": {"name": "look", "arguments": {"at": "a"}}}
        called = [user, {"role": "assistant", "content": "", "tool_calls": [call]}]
        result = {"role": "tool", "tool_call_id": _CALL_ID, "name": "look", "content": _WORD}
        chats: dict[str, list[dict[str, Any]]] = {
            "system": [{"role": "system", "content": _WORD}, user],
            "user": [{"role": "user", "content": _WORD}],
            "tool": [*called, result],
            "assistant": [user, {"role": "assistant", "content": _WORD}],
        }
        found = {role: _around(*_rendered(template, chat, None, kwargs)) for role, chat in chats.items()}
        # Some templates write calls only beside the definitions of tools.
        found["tool"] = found["tool"] or _around(*_rendered(template, chats["tool"], [_tool("look")], kwargs))
        answer = found["assistant"]
        if answer is not None and answer.closing != answer.header.replace("<", "</").replace("[", "[/"):
            del found["assistant"]  # a header and a stop token, which rules of their own find in answers
        roles = {role: wrapper for role, wrapper in found.items() if wrapper is not None}
        around_system = roles["system"].opening if "system" in roles else ""
        definitions = _open_at(*_rendered(template, [user], [_tool(_WORD)], kwargs), around_system)
        call["function"] = {"name": _WORD, "arguments": {"at": "a"}}
        before, after = _rendered(template, called, [_tool("look")], kwargs)
        calls = _open_at(before, after, "")
        written = calls.parts(f"{before}{_WORD}{after}")[-1:] if calls else []
        return cls(roles=roles, definitions=definitions, calls=calls, calls_are_json=any(map(_is_json, written)))

    @property
    def openings(self) -> list[str]:
        """What no text contains that needs to be looked at, unless its row has tools."""
        tags = [tag for each in (*self.roles.values(), self.calls) if each for tag in re.findall(_TAG, each.header)]
        return [named[0] if (named := _NAMED_TAG.match(tag)) else tag for tag in tags]

    def unwrapped(self, messages: Sequence[Message]) -> dict[int, str]:
        """Return the texts that already have their wrapper without it, by the number of their message."""
        found = {}
        for k, message in enumerate(messages):
            wrapper, text = self.roles.get(message.fields["role"]), message.fields.get("content")
            if wrapper is None or not isinstance(text, str) or not ("<" in text or "[" in text):
                continue  # nearly always
            inline = split_inline(text) if message.role == "assistant" else None
            begin = len(text) - len(inline.answer) if inline else 0
            inner = wrapper.unwrapped(text[begin:])
            if inner is not None:
                found[k] = text[:begin] + inner
        return found

    def refusal(self, sample: Sample, *, unwrap: bool) -> RenderError | None:
        """Return why a row is rejected, or None; with `unwrap`, texts wrapped once are no reason."""
        for k, inner in self.unwrapped(sample.messages).items():
            wrapper = self.roles[sample.messages[k].role]
            if unwrap and wrapper.closing not in inner:
                continue
            how = f"its text stands between {wrapper.header} and {wrapper.closing}, which the template writes"
            return RenderError(f"messages[{k}]: {how} once more", code="wrapped_twice", message=k)
        for k, message in enumerate(sample.messages if self.calls is not None else ()):
            said = message.fields.get("content") if message.role == "assistant" else None
            if self.calls is None or not isinstance(said, str) or self.calls.opening not in said:
                continue
            if any(_is_json(part) != self.calls_are_json for part in self.calls.parts(said)):
                what = f"the text between {self.calls.opening} and {self.calls.closing}"
                how = "is not a call in the form that the template writes"
                return RenderError(f"messages[{k}]: {what} {how}", code="mangled_call", message=k)
        first = sample.messages[0] if sample.messages else None
        text = first.fields.get("content") if first is not None and first.role == "system" else None
        if isinstance(text, str) and sample.tools and self._define_tools(text, sample.tools):
            reason = (
                "messages[0]: the system message defines tools, and so does `tools`, which the template also writes"
            )
            return RenderError(reason, code="wrapped_twice", message=0)
        return None

    def _define_tools(self, text: str, tools: Sequence[Any]) -> bool:
        """Whether a system message defines tools: in the template's own tags, or the tools of the row, one by one."""
        return bool(self.definitions and self.definitions.parts(text)) or all(
            _is_defined(function_of(tool), text) for tool in tools
        )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
    return {"type": "function", "function": {"name": name, "description": "a", "parameters": parameters}}


def _is_defined(function: Mapping[str, Any], text: str) -> bool:
    """Whether a text has the name of a tool and those of its parameters, in quotation marks, and what describes it."""
    names = [function.get("name"), *(tool_parameters(dict(function)) or ())]
    described = function.get("description") or "parameters"
    return described in text and all(f'"{name}"' in text or f"'{name}'" in text for name in names)


def _rendered(
    template: ChatTemplate, messages: Sequence[dict[str, Any]], tools: Sequence[Any] | None, kwargs: Mapping[str, Any]
) -> tuple[str, str]:
    """Return what a template writes before and after the word; two empty texts if it writes none."""
    conversation = renderable(Conversation(template, [*messages], tools=tools, kwargs=kwargs), len(messages) - 1)
    before, _, after = (conversation.attempt(conversation.messages, {}) or "").partition(_WORD)
    return before, after


def _around(before: str, after: str) -> Wrapper | None:
    opening, closing = _LAST_TAGS.search(_ATTRIBUTES.sub("", before)), _FIRST_TAG.match(after)
    return Wrapper(opening=opening[0].strip(), closing=closing[1]) if opening and closing else None


def _spelled(tag: str) -> str:
    """Return a pattern of a tag, with attributes of any values."""
    named = _NAMED_TAG.match(tag)
    return rf"{re.escape(named[0])}(?:\s[^<>]*)?>" if named else re.escape(tag)


def _open_at(before: str, after: str, around_system: str) -> Wrapper | None:
    """Return the outermost tag that is open between two texts and is closed in the second, but for the system's own."""
    opened: list[str] = []
    for tag in _ANY_TAG.finditer(before):
        if not tag[1]:
            opened.append(tag[2])
        elif tag[2] in opened:
            del opened[len(opened) - 1 - opened[::-1].index(tag[2]) :]
    name = next((name for name in opened if f"</{name}>" in after and not around_system.endswith(f"<{name}>")), None)
    return None if name is None else Wrapper(opening=f"<{name}>", closing=f"</{name}>")


def role_markers(
    template: ChatTemplate, added_tokens: Sequence[AddedToken], kwargs: Mapping[str, Any] | None = None
) -> dict[str, int]:
    """Return the added tokens that the template writes around plain messages (the headers of roles), with their ids.

    `kwargs` are the recipe's variables for the template, without which some templates render nothing.

    Paired tags that do not surround user messages structure an answer and are not role markers. Nor are tags of
    reasoning, even if instructions of the template's own name them (SmolLM3), nor added tokens that any text may
    contain.
    """
    contents = {token.content for token in added_tokens}
    around_user = "".join(_renders(template, kwargs, prompt=False)[-1:])
    anywhere = "".join(_renders(template, kwargs, prompt=True))
    return {
        token.content: token.id
        for token in added_tokens
        if not token.is_text
        and not ANY_TAG.fullmatch(token.content)
        and (token.content in around_user or (token.content in anywhere and not _partner(token.content) & contents))
    }


def _partner(content: str) -> set[str]:
    """Return the closing tag of an opening one, and vice versa: `<x>` and `</x>`, `[X]` and `[/X]`."""
    tag = re.fullmatch(r"([<\[])(/?)(.+)", content)
    return {f"{tag[1]}{'' if tag[2] else '/'}{tag[3]}"} if tag else set()


def written_markers(template: ChatTemplate, kwargs: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return the texts written by the template that look like control tokens, in order of appearance."""
    texts = _renders(template, kwargs, prompt=True)
    return tuple(dict.fromkeys(marker for text in texts for marker in _MARKER.findall(text)))


def _renders(template: ChatTemplate, kwargs: Mapping[str, Any] | None, *, prompt: bool) -> list[str]:
    texts = (template.attempt(chat, add_generation_prompt=prompt, kwargs=kwargs) for chat in _CHATS)
    return [text for text in texts if text is not None]
