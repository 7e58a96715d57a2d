"""A reader that knows no template: whether what is learned of a row is its template's own marks and the row's values.

A row and its twin, in which every text is a made-up word, are rendered. The words show where a template puts values.
With the row's values in their places, as they are or as JSON once, the twin's texts must be the row's, letter for
letter; and the marks between the words hold no escapes. How a template is written, in which form it was given calls,
and what packer asks of renderings enters nowhere.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from packer.batches import Sample, TurnBatch

TEXT_FIELDS = ("content", "reasoning_content", "thinking", "reasoning")
WORD = re.compile(r"Qzv\d{4}w")
ESCAPE = re.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|amp|lt|gt|quot|apos);|\ufffd")


class Learned(NamedTuple):
    """A turn in the text it is learned in."""

    message: int
    prompt: str
    completion: str


def learned(batch: TurnBatch) -> list[Learned]:
    found = []
    for text, message, prompt_end, end in zip(
        batch.turn_text.tolist(),
        batch.turn_message.tolist(),
        batch.prompt_end.tolist(),
        batch.completion_end.tolist(),
        strict=True,
    ):
        whole = batch.text[batch.text_offsets[text] : batch.text_offsets[text + 1]]
        found.append(Learned(message, whole[:prompt_end].decode(), whole[prompt_end:end].decode()))
    return found


class Twin:
    """The twin of a sample, and what each of its words stands for."""

    def __init__(self, sample: Sample) -> None:
        self.values: dict[str, str] = {}
        messages = tuple(
            msgspec.structs.replace(message, fields=self._message(message.fields)) for message in sample.messages
        )
        self.sample = msgspec.structs.replace(sample, messages=messages)

    def _message(self, fields: dict[str, Any]) -> dict[str, Any]:
        known: dict[str, str] = {}  # reasoning under two names is one text
        changed = dict(fields)
        for name in TEXT_FIELDS:
            if isinstance(fields.get(name), str) and _is_text(fields[name]):
                changed[name] = known.setdefault(fields[name], self._word(fields[name]))
        if fields.get("tool_calls"):
            changed["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": self._value(call["function"]["arguments"])}}
                for call in fields["tool_calls"]
            ]
        return changed

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._value(item) for item in value]
        return self._word(value) if isinstance(value, str) and _is_text(value) else value

    def _word(self, value: str) -> str:
        word = f"Qzv{len(self.values):04d}w"
        self.values[word] = value
        return word

    def reads(self, written: str, own: str) -> bool:
        """Whether a text of the twin, with the row's values in the places of its words, is a text of the row."""
        pattern = "".join(
            _spelled(self.values[piece]) if WORD.fullmatch(piece) else re.escape(piece)
            for piece in re.split(f"({WORD.pattern})", written)
        )
        return re.fullmatch(pattern, own, re.DOTALL) is not None


def _is_text(value: str) -> bool:
    """Whether a text is not blank and no number: Mistral's templates write results that are numbers as such."""
    return bool(value.strip()) and re.fullmatch(r"\s*-?[0-9.]+\s*", value) is None


def _spelled(value: str) -> str:
    stripped = [value, value.strip(), value.lstrip(), value.rstrip(), value.strip("\n")]
    ways = [
        way for text in stripped for way in (text, *(json.dumps(text, ensure_ascii=a)[1:-1] for a in (False, True)))
    ]
    ways.append(repr(value)[1:-1])
    return "(?:" + "|".join(re.escape(way) for way in dict.fromkeys(ways)) + ")"


def escapes(marks: str) -> Iterator[str]:
    """Escapes among a template's own marks, where nothing is to be escaped."""
    yield from ESCAPE.findall(marks)
    yield from re.findall(r'\\["n]', marks)


def misread(sample: Sample, batch: TurnBatch, twin: Twin, twin_batch: TurnBatch) -> list[str]:
    """What is wrong with the turns learned of a row, in words; both batches hold this row alone."""
    turns, twins = learned(batch), learned(twin_batch)
    if [turn.message for turn in turns] != [turn.message for turn in twins]:
        return [f"learns {[turn.message for turn in turns]}, its twin {[turn.message for turn in twins]}"]
    wrong = []
    for turn, other in zip(turns, twins, strict=True):
        if not twin.reads(other.completion, turn.completion):
            wrong.append(f"message {turn.message}: {turn.completion!r} is not {other.completion!r} with its values")
        if not twin.reads(other.prompt, turn.prompt):
            wrong.append(f"prompt of message {turn.message} is not its twin's with its values")
        bare = re.findall(rf"[(,]\s*\w+=({WORD.pattern})(?=\s*[,)])", other.completion)
        wrong += [f"message {turn.message}: {twin.values[word]!r} without quotation marks" for word in bare]
        found = [*escapes(WORD.sub("", other.completion)), *ESCAPE.findall(WORD.sub("", other.prompt))]
        wrong += [f"message {turn.message}: {found[:3]} among the marks of the template"] if found else []
    return wrong
