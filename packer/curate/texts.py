"""The texts of a sample that rules examine, and the keys by which rows are considered equal.

Normalized means: ASCII letters in lower case, runs of ASCII white space as one blank. No Unicode table is consulted, so
that no row changes its split with the interpreter's version.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from packer.batches import Sample

_encode = msgspec.json.Encoder(order="sorted").encode


def prompts(sample: Sample) -> list[str]:
    """Return the text of every user message, or the prompt of a completion."""
    return [sample.prompt] if sample.kind == "completion" else _texts_of(sample, "user")


def answers(sample: Sample) -> list[str]:
    """Return the text of every assistant message, or what follows a prompt; the whole of a plain text.

    A message that only calls tools has no text. For a pair, those of both sides.
    """
    return _texts_of(sample, "assistant") if sample.kind == "chat" else [side.text for side in sides(sample)]


def conversation(sample: Sample) -> str:
    """Return what user and assistant say, one message per line; without system, tools and reasoning.

    For a pair, the rejected answer follows the chosen one.
    """
    return "\n".join(text for _, text in utterances(sample))


def utterances(sample: Sample) -> Iterator[tuple[str, str]]:
    """Yield role and text of what user and assistant say; a plain text and a completion are the assistant's.

    For a pair, both answers.
    """
    if sample.kind != "chat":
        if sample.prompt:
            yield "user", sample.prompt
        yield from (("assistant", text) for text in answers(sample) if text)
        return
    for message in sample.all_messages:
        text = message.fields.get("content")
        if message.role in {"user", "assistant"} and isinstance(text, str) and text:
            yield message.role, text


def sides(sample: Sample) -> tuple[Sample, ...]:
    """Return the conversations with the chosen and with the rejected answer; for all other rows just the one."""
    return (msgspec.structs.replace(sample, preference=None), *sample.sides[1:])


def content_key(sample: Sample, *, folded: bool = False) -> bytes:
    """Return xxh3-128 of everything in a row that is trained, and everything that precedes it.

    Covers messages with their calls and reasoning, tools, trained marks, texts, ids; for a pair both sides; the
    rating of an answer; but not the row's own name. If `folded`, texts are normalized.
    """
    pretokenized = sample.pretokenized
    if pretokenized is not None:
        return xxh3_128_digest(pretokenized.input_ids.tobytes() + pretokenized.trained.tobytes())
    content = _content(sample, folded=folded)
    preference = sample.preference
    if preference is not None:
        rejected = None if preference.rejected is None else _content(preference.rejected, folded=folded)
        content += (rejected, preference.is_desirable)
    return xxh3_128_digest(_encode(content))


def _content(sample: Sample, *, folded: bool) -> tuple[Any, ...]:
    texts: list[Any] = [[message.fields for message in sample.messages], sample.tools, sample.template_kwargs]
    texts += [sample.prompt, sample.text]
    fields, *rest = _folded(texts) if folded else texts
    return (
        [*zip(fields, (message.spans or message.trained for message in sample.messages), strict=True)],
        *rest,
    )


def prompt_key(sample: Sample) -> int:
    """Return xxh3-64 of the normalized first prompt, or of the content if there is none."""
    first = next(iter(prompts(sample)), "")
    return xxh3_64_intdigest(normalized(first)) if first.strip() else xxh3_64_intdigest(content_key(sample))


def value_key(value: Any) -> int:
    """Return xxh3-64 of a field's value as JSON: `"7"` and `7` are two values, 7 and 7.0 are one."""
    return xxh3_64_intdigest(_encode(integral_as_int(value)))


def integral_as_int(value: Any) -> Any:
    """Return an integral float as an int; other tools write 7 as 7.0 if a value is missing elsewhere in the column."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def normalized(text: str) -> bytes:
    r"""Fold case and white space, in which copies of a text often differ.

    Example:
        >>> normalized("  What is\n2+2? ")
        b'what is 2+2?'
    """
    return b" ".join(text.encode().lower().split())  # of bytes, both know only ASCII


def _folded(value: Any) -> Any:
    if isinstance(value, str):
        return normalized(value).decode()
    if isinstance(value, list):
        return [_folded(item) for item in value]
    if isinstance(value, dict):
        return {name: _folded(item) for name, item in value.items()}
    return value


def _texts_of(sample: Sample, role: str) -> list[str]:
    fields = [message.fields for message in sample.all_messages if message.role == role]
    return [each.get("content") or "" for each in fields if each.get("content") or not each.get("tool_calls")]
