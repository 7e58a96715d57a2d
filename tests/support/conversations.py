"""Random conversations for properties: everything that has ever broken a boundary, in small doses."""

from typing import Any

from hypothesis import strategies as st
from supervision_stages import assistant, call, result, system, user

PIECES = (
    "", "Hello", "the dog", " a", "42", ".", "!\n", ":", "]", "\n", "\n\n", " ", "  ", "\t", "\r\n",
    "é", "e\u0301", "ü", "õ", "\u0301", "你好", "世界", "👍🏽", "👨‍👩‍👧", "שלום", "\u200d", "\ufeff", "▁", "<0x0A>",
    "<think>", "</think>", "<think>\nhm\n</think>\n\n",
)  # fmt: skip

_plain = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
_opened = st.tuples(st.sampled_from(["\n", "\n\n", " ", "  "]), _plain).map("".join)
texts = _plain | _opened
_said = st.one_of(*[texts.filter(lambda text: "think>" not in text)] * 5, texts)
"""Tags in an answer reject most rows, so that few have some."""

calls = st.lists(st.builds(call, st.sampled_from(["look", "ask"]), st.dictionaries(st.just("q"), texts)), max_size=2)


@st.composite
def turns(draw: st.DrawFn) -> dict[str, Any]:
    """An assistant message, sometimes with reasoning and calls."""
    message = assistant(draw(_said))
    if draw(st.integers(0, 4)) == 0:
        message["reasoning_content"] = draw(_said)
        if not message["content"].strip() and draw(st.integers(0, 3)):  # else its generation was cut off
            message["content"] += "Hello"
    if draw(st.integers(0, 4)) == 0:
        message["tool_calls"] = draw(calls)
        if message["tool_calls"] and draw(st.booleans()):
            message["content"] = None
    return message


_say = {"user": texts.filter(bool).map(user), "assistant": turns(), "tool": texts.map(result)}
_first = st.sampled_from(["user", "user", "user", "assistant"])
_after_assistant = st.sampled_from(["user", "user", "user", "tool"])


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Mostly users and assistants in turn, sometimes several of one kind in a row, results, a system message."""
    messages = [system(draw(texts))] if draw(st.integers(0, 3)) == 0 else []
    speaker = draw(_first)
    for _ in range(draw(st.integers(2, 7))):
        messages.append(draw(_say[speaker]))
        if draw(st.integers(0, 6)):
            speaker = draw(_after_assistant) if speaker == "assistant" else "assistant"
    return messages
