"""Whether what is trained of rows is what they say.

A build sets a key that was left open, and a hint names one, only if rows that were rejected pass this with it. So no
way out trains half of an answer, reasoning as letters, a call as text, or two turns where one was said.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

from packer.batches import Message, RowBatch, Sample, TurnBatch
from packer.model.model import Model
from packer.render.control import control_pattern
from packer.render.readback import function_of
from packer.render.reasoning import ANY_TAG, reasoning_of, split_inline, with_reasoning_as

_LONGEST_LABEL = 32
"""Characters that a template may write around an answer, or before its reasoning, such as the name of a channel."""

_MARK = "\0"
"""Stands for a control token."""

_TAGGED = re.compile(r"(<(\w+)>).*?</\2>", re.DOTALL)


def says_its_rows(
    batch: RowBatch, turns: TurnBatch, model: Model, *, dropped: Collection[str] = (), letters: Collection[str] = ()
) -> bool:
    """Whether each turn that is trained of rows of chats is all that its message says.

    Args:
        batch: with the sides of pairs as rows of their own.
        turns: rendered of it.
        model: with the control tokens, which say nothing.
        dropped: kinds of content that may be missing.
        letters: markers of the template that are no tokens, where the recipe allows them; they say nothing, either.
    """
    samples = {sample.row: sample for sample in batch.samples}
    markers = control_pattern({**model.control, **dict.fromkeys((*model.stops, *letters), 0)})

    def bare(text: str) -> str:
        return "".join(ANY_TAG.sub("", markers.sub(_MARK, text) if markers else text).split())

    for number, text in enumerate(turns.turn_text.tolist()):
        sample = samples[int(turns.sample[text])]
        if sample.kind != "chat":
            continue
        start = int(turns.text_offsets[text])
        trained = turns.text[start + int(turns.prompt_end[number]) : start + int(turns.completion_end[number])].decode()
        message = sample.messages[int(turns.turn_message[number])]
        calls = [] if "tool_call" in dropped else message.fields.get("tool_calls") or []
        said = [{kind: bare(text) for kind, text in texts.items()} for texts in _texts_of(message)]
        if not any(_says(bare(trained), texts, calls, dropped) for texts in said):
            return False
        if not calls and _calls_as_text(message.fields.get("content") or "", sample.tools or (), model.template or ""):
            return False
    return bool(len(turns.turn_text)) and not any(map(_speaks_twice, batch.samples))


def _texts_of(message: Message) -> Iterator[dict[str, str]]:
    """Yield the texts of a message, as it has them and without the marks that its own family has around them."""
    for fields in (message.fields, with_reasoning_as(message.fields, "field")):
        content = fields.get("content") or ""
        inline = split_inline(content)
        yield {"reasoning": reasoning_of(fields), "content": inline[2] if inline else content}


def _says(trained: str, texts: Mapping[str, str], calls: Collection[Any], dropped: Collection[str]) -> bool:
    """Whether a text is some others, one after another, and then calls."""
    rest = trained
    for kind, text in texts.items():
        before, found, after = rest.partition(text) if text else ("", "", rest)
        if found and _is_label(before):
            rest = after
        elif text and (kind not in dropped or (kind == "content" and not calls)):  # of which only reasoning is left
            return False
    if calls:
        return all(str(function_of(call).get("name")) in rest for call in calls)
    return trained.strip(_MARK) != "" and (not rest or (rest.startswith(_MARK) and _is_label(rest)))


def _is_label(text: str) -> bool:
    return len(text.replace(_MARK, "")) <= _LONGEST_LABEL


def _calls_as_text(text: str, tools: Collection[Any], template: str) -> bool:
    """Whether a text calls one of the tools, but for calls in tags that the template writes, too."""
    names = "|".join(re.escape(str(function_of(tool).get("name"))) for tool in tools)
    bare = _TAGGED.sub(lambda found: "" if found[1] in template else found[0], text)
    return bool(names) and re.search(rf"\b(?:{names})[\"'(>]", bare) is not None


def _speaks_twice(sample: Sample) -> bool:
    """Whether two messages of the assistant's stand in a row, of which a server makes one turn."""
    return any(one.role == other.role == "assistant" for one, other in pairwise(sample.messages))
