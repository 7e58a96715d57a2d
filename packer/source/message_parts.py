"""Parts of a message's content: texts, reasoning, calls, and results of tools as Anthropic writes them.

Logs of APIs have the steps of a turn one by one, so reasoning may also stand beside the content, or in a message of its
own before the answer it belongs to. As a turn of its own, it would be an answer to learn, or one that was cut off.

Templates disagree about lists of content parts, and many render them wrongly or not at all; a string is rendered by
all. So texts are concatenated, and reasoning and calls move to the fields that messages have for them. Results become
messages of their own.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from packer.batches import REASONING_FIELDS, Message
from packer.source.decode import (
    TRAIN_FIELDS,
    WEIGHT_FIELDS,
    Refused,
    coalesce_aliases,
    decoded_json,
    type_reason,
    typed,
)
from packer.source.file_bytes import quoted
from packer.source.forms import known_parts
from packer.source.roles import REASONING_ROLES
from packer.source.tools_and_calls import read_call, read_calls
from packer.source.unsupported_rows import is_media_part, refuse_media_tags

FRACTIONS = "a message is trained or not, and docs/how-to/columns.md shows how to carry other numbers"


class TrainFields(msgspec.Struct, frozen=True, kw_only=True):
    """What a message, or a part of one, says of whether it is trained."""

    train: bool | None = None
    training: bool | None = None
    trainable: bool | None = None
    loss: bool | float | None = None
    """Numbers other than 0 and 1 are measured losses, which say nothing about training."""

    loss_mask: bool | Literal[0, 1] | None = None
    masked: bool | Literal[0, 1] | None = None
    """torchtune's: whether the message is left out of the loss."""

    weight: bool | float | None = None
    loss_weight: bool | float | None = None


class Part(TrainFields, frozen=True, kw_only=True):
    """One part of a content list.

    OpenAI stores its text under `text` or `refusal`, LLaMA-Factory under `value`, others under `content`. The fields of
    calls and of their results are Anthropic's.
    """

    type: str
    text: Any = None
    """OpenAI's Assistants have it in an object, as `value`."""
    value: Any = None
    thinking: Any = None
    reasoning: Any = None
    summary: Any = None
    """All that some servers give of reasoning."""
    closed: bool | None = None
    """Mistral's: whether the reasoning ended."""
    refusal: Any = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    arguments: Any = None
    args: Any = None
    parameters: Any = None
    partial_json: Any = None
    """LangChain's: arguments as they arrived, which may be missing in `input`."""
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    text: str | None
    reasoning: str | None = None
    calls: tuple[dict[str, Any], ...] = ()
    trained: frozenset[bool] = frozenset()
    """The parts' own settings of whether they are trained. If any part has one, a part without one counts as trained.
    """

    spans: tuple[tuple[int, int], ...] = ()
    """Characters of the parts of its text that alone are trained, if the parts say different things."""


PARTS_START = "[{"
"""How the JSON of parts begins."""

_NOT_INPUT = ("args", "parameters", "partial_json")
"""Names under which other tools have the arguments of a call that should be Anthropic's."""

_RESULT_FIELDS = frozenset({"type", "tool_use_id", "content", "is_error", "id", "name", "cache_control"})

_TEXT_KEYS = {"type", "text"}
"""Keys of the texts that Mistral has within a part of thinking, and OpenAI in a summary."""

TEXT_FIELDS = ("text", "value", "thinking", "reasoning", "summary", "refusal", "content")
"""Names of the text of a part."""

_ORDER = {
    **dict.fromkeys(("thinking", "reasoning"), 0),
    **dict.fromkeys(("text", "input_text", "output_text", "refusal"), 1),
    **dict.fromkeys(("tool_call", "tool_use"), 2),
}
"""A message has its reasoning first, then its text, then its calls; no other order can be preserved."""

_PART_TYPES = (*_ORDER, "tool_result")
_MORE_THAN_TEXTS = {"tool_use", "tool_result", "thinking", "reasoning"}


def read_content(content: str | list[Part] | None, *, where: str) -> Content:
    """Split a content into text, reasoning and calls."""
    if not isinstance(content, list):
        if content:
            refuse_media_tags(content)
            if any(part["type"] in _MORE_THAN_TEXTS for part in _parts_in(content) or ()):  # a table has one type
                reason = f"the JSON of parts as a text at {where}; give the list, or the JSON of `messages`"
                raise Refused("wrong_type", reason)
        return Content(text=content)
    return _read_parts(content, where=where)


def _read_parts(content: list[Part], *, where: str) -> Content:
    rank = 0
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    for i, part in enumerate(content):
        at = f"{where}[{i}]"
        if is_media_part(part.type):
            raise Refused("multimodal", f"a part of type `{part.type}` at {at}")
        if part.type not in _ORDER:
            advice = "; give calls as `tool_calls`, and results as messages of the role `tool`" * ("tool" in part.type)
            raise Refused(
                "wrong_type", f"a part of a type packer does not know at {at}.type: {quoted(part.type)}{advice}"
            )
        if _ORDER[part.type] < rank:
            raise Refused("wrong_type", f"a part out of order at {at}: reasoning, then text, then calls")
        rank = _ORDER[part.type]
        if part.type == "tool_use":
            calls.append(read_call(_used(part, where=at), where=at))
        elif part.type == "tool_call":
            if part.value is None:
                raise Refused("bad_tools", f"no call under `value` at {at}")
            calls += read_calls(part.value, where=f"{at}.value")
        else:
            (texts if rank else reasoning).append(_part_text(part, where=at))
    refuse_media_tags("".join(texts))
    flags = _flags(content, where=where)
    spans = _spans(content, texts, flags) if len({*flags}) > 1 else ()
    return Content(
        text="".join(texts) if texts or not calls else None,
        reasoning="".join(reasoning) if reasoning else None,
        calls=tuple(calls),
        trained=frozenset([True] if spans else flags),
        spans=spans,
    )


class _SystemParts(msgspec.Struct, frozen=True):
    system: list[Part]


def read_system(system: str | list[Any] | None) -> str | None:
    """Return the text of the field `system` of a row: a text, parts, or the JSON of parts, as in a cell of CSV."""
    parts = (_parts_in(system) or system) if isinstance(system, str) else system
    if parts is None or isinstance(parts, str):
        return parts
    content = read_content(typed({"system": known_parts(parts)}, _SystemParts).system, where="$.system")
    if content.calls or content.reasoning:
        raise Refused("wrong_type", "calls or reasoning of a message that is not the assistant's at $.system")
    return content.text


def _parts_in(text: str) -> list[dict[str, Any]] | None:
    """Return the parts whose JSON a text is; None if it is anything else."""
    parts = decoded_json(text) if text.startswith(PARTS_START) else None
    types = [part.get("type") if isinstance(part, dict) else None for part in parts or ()]
    return parts if parts and all(each in _PART_TYPES for each in types) else None


def _used(part: Part, *, where: str) -> dict[str, Any]:
    """Return the call of Anthropic's part as OpenAI writes it, with what it has under other names of arguments."""
    lost = [name for name in TEXT_FIELDS if getattr(part, name)]
    if lost:
        raise Refused("wrong_type", f"a call and `{lost[0]}` in one part at {where}")
    arguments = coalesce_aliases({"input": part.input, "arguments": part.arguments}, where=where)
    call = {"id": part.id, "name": part.name, "arguments": arguments}
    call |= {name: getattr(part, name) for name in _NOT_INPUT if getattr(part, name) is not None}
    return {key: value for key, value in call.items() if value is not None}


def own_flag(shape: TrainFields, of_parts: Collection[bool] = (), *, where: str) -> bool | None:
    """Return whether a message, or a part, says of itself that it is trained; None if it says nothing.

    `of_parts` are the settings of the parts of a message, which are to agree with its own.
    """
    for name in WEIGHT_FIELDS:
        if (number := getattr(shape, name)) not in (None, 0, 1):
            raise Refused("wrong_type", f"expected 0 or 1, got {number:g} at {where}.{name}; {FRACTIONS}")
    flags = [getattr(shape, name) for name in (*TRAIN_FIELDS, *WEIGHT_FIELDS) if name not in ("loss", "masked")]
    flags += [shape.loss] if shape.loss in {0, 1} else []
    flags += [not shape.masked] if shape.masked is not None else []
    own = {bool(flag) for flag in flags if flag is not None}
    trained = own.union(of_parts)
    if len(trained) > 1:
        what = "flags that say different things" if len(own) > 1 else "part of the message is trained and part is not"
        raise Refused("wrong_type", f"{what} at {where}")
    return next(iter(trained), None)


def _flags(parts: list[Part], *, where: str) -> list[bool]:
    flags = [own_flag(part, where=f"{where}[{i}]") for i, part in enumerate(parts)]
    return [] if all(flag is None for flag in flags) else [flag is not False for flag in flags]


def _spans(parts: list[Part], texts: list[str], flags: list[bool]) -> tuple[tuple[int, int], ...]:
    """Return the characters of the texts that are trained; none if other parts are trained, or are calls."""
    of_texts = [flag for part, flag in zip(parts, flags, strict=True) if _ORDER[part.type] == 1]
    if sum(of_texts) < sum(flags) or any(_ORDER[part.type] > 1 for part in parts):
        return ()
    ends = [*itertools.accumulate(map(len, texts))]
    return tuple((end - len(text), end) for end, text, flag in zip(ends, texts, of_texts, strict=True) if flag and text)


def _part_text(part: Part, *, where: str) -> str:
    if part.closed is False:
        raise Refused("cut_off", f"`closed` is false at {where}: the reasoning did not end")
    present = {name: getattr(part, name) for name in TEXT_FIELDS if getattr(part, name) not in (None, [])}
    if len(present) > 1:
        present.pop("summary", None)
    if isinstance(part.text, dict) and "value" in part.text:
        present["text"] = part.text["value"]
    for name, value in present.items():
        if isinstance(value, list) and all(isinstance(each, dict) and each.keys() == _TEXT_KEYS for each in value):
            present[name] = ("\n\n" if name == "summary" else "").join(str(each["text"]) for each in value)
        elif not isinstance(value, str):
            raise Refused("wrong_type", f"expected `str` at {where}.{name}")
    text: str | None = coalesce_aliases(present, where=where)
    if text is None:
        raise Refused("wrong_type", f"no field `text` at {where}")
    return text


def holds_results(content: Any) -> bool:
    """Whether the content of a message, as its row has it, is a list of parts with results of tools."""
    return isinstance(content, list) and any(map(_is_result, content))


def read_results(
    raw: Sequence[Mapping[str, Any]], parts: Sequence[Part], more: Mapping[str, Any], *, where: str
) -> list[Message]:
    """Return a message for each result at the beginning of a content; the other parts are what the user says.

    `parts` are those of the row, typed; each of the messages gets the other fields of theirs, `more`.
    """
    num_results = sum(map(_is_result, raw))
    if not all(map(_is_result, raw[:num_results])):
        raise Refused("wrong_type", f"a part before a result of a tool at {where}: results come first")
    return [_read_result(raw[i], parts[i], more, where=f"{where}[{i}]") for i in range(num_results)]


def _read_result(raw: Mapping[str, Any], part: Part, more: Mapping[str, Any], *, where: str) -> Message:
    others = [name for name, value in raw.items() if name not in _RESULT_FIELDS and value not in (None, "", [], {})]
    if part.content is None and others:
        raise Refused("no_content", f"no `content` at {where}; its other keys: {', '.join(map(quoted, others))}")
    lost = [name for name in TEXT_FIELDS if name in others]
    if lost:
        raise Refused("wrong_type", f"`content` and `{lost[0]}` in one result of a tool at {where}")
    try:
        parts = msgspec.convert(part.content, str | list[Part] | None)
    except msgspec.ValidationError as error:
        raise Refused("wrong_type", f"{type_reason(str(error))} in the `content` at {where}") from None
    content = read_content(parts, where=f"{where}.content")
    if content.calls or content.reasoning:
        raise Refused("wrong_type", f"calls or reasoning in a result of a tool at {where}")
    fields = {"tool_call_id": part.tool_use_id, "name": part.name, "is_error": part.is_error or None}
    present = {name: value for name, value in fields.items() if value is not None}
    return Message(fields={"role": "tool", "content": content.text or "", **present, **more})


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result"


def is_reasoning(sender: str, message: Mapping[str, Any]) -> bool:
    """Whether the text of a message is reasoning, by its sender or its channel, and not the code of a call."""
    calls = (message.get("tool_calls"), message.get("function_call"), message.get("recipient") not in (None, "all"))
    channel = message.get("channel")
    is_apart = isinstance(channel, str) and channel in REASONING_ROLES
    return sender.lower() in REASONING_ROLES or (is_apart and not any(calls))


def reasoning_in(value: Any) -> str | None:
    """Return what a list of nothing but parts of reasoning says, under whatever key a message has it.

    OpenRouter has them under `reasoning_details`, LiteLLM under `thinking_blocks`: their types say what they are.
    """
    parts = value if isinstance(value, list) and all(isinstance(part, dict) for part in value) else []
    if not parts or any(str(part.get("type")).partition(".")[0] not in REASONING_ROLES for part in parts):
        return None
    texts = [part[name] for part in parts for name in TEXT_FIELDS if isinstance(part.get(name), str)]
    return "\n\n".join(texts) or None


def joined_with_answers(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages without those that are nothing but reasoning before an answer that has none: it has theirs.

    Pieces of reasoning in a row are paragraphs of one. If only the reasoning is not to be trained, the answer's text is
    all that is trained of both.
    """
    if not any(map(_reasoning_alone, messages)):
        return messages
    joined: list[Message] = []
    for number, message in enumerate(messages):
        reasoning = _reasoning_alone(joined[-1]) if joined else {}
        more = _reasoning_alone(message)
        has_own = not more and any(message.fields.get(name) for name in REASONING_FIELDS)
        if not reasoning or message.role != "assistant" or has_own:
            joined.append(message)
            continue
        spans = message.spans
        if joined[-1].trained != message.trained:
            text = message.fields["content"]
            if more or joined[-1].trained is not False or message.fields.get("tool_calls") or not isinstance(text, str):
                reason = f"an answer at $.messages[{number}] with another flag than its reasoning before it"
                raise Refused("wrong_type", f"{reason}; both are one turn")
            spans = spans or ((0, len(text)),)
        both = {name: f"{text}\n\n{more[name]}" if name in more else text for name, text in reasoning.items()}
        joined[-1] = msgspec.structs.replace(message, fields={**message.fields, **both}, spans=spans)
    return joined


def _reasoning_alone(message: Message) -> dict[str, Any]:
    """Return the reasoning of an assistant's message that has nothing else, by its fields; empty for any other."""
    fields = message.fields
    if len(fields) < 3 or message.role != "assistant" or fields.get("tool_calls") or (fields["content"] or "").strip():
        return {}
    return {name: fields[name] for name in REASONING_FIELDS if fields.get(name)}


_SETTINGS = frozenset(
    {"enabled", "disabled", "on", "off", "true", "false", "yes", "no", "none", "low", "medium", "high"}
)
"""What data sets of models with and without reasoning have under `reasoning` to say which row is which."""


def is_setting(reasoning: Any) -> bool:
    """Whether what a row has under `reasoning` says only whether, or how much, it is reasoned."""
    return isinstance(reasoning, str) and reasoning.strip().lower() in _SETTINGS
