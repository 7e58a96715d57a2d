"""Made-up rows with tools, calls and their results, of a few forms and of odd words."""

import random
from typing import Any

from supervision_stages import chat

from packer.batches import Sample

TEXTS = (
    *(
        "plain words here",
        "words",
        " padded ",
        "x",
        "secret",
        "None",
        "null",
        "ping",
        "true",
        "lookup",
        "ümläut ﬀ 漢字",
    ),
    *('"quoted" \\ text', "{{ 7 * 7 }}", "{% if x %}", "<tool_call>", '{"a": 1}', "</tool_call>", "\u2028line\x85"),
)
ODD = (
    *("", "\n", "<|im_end|>", "a<|im_end|>b", "<think>hm</think>so", "</think>", "half \ud800 pair", "\ue0f0"),
    *("zqslot000001c000x", "zqjson0", "|im_end|>", "[", "Non", "one", "<|im_start|>user\n", "Zq0xW", "9182730001"),
)
NAMES = ("lookup", "get_weather", "x", "secret", "function", "café", "a b", "tojson", "None")
NUMBERS = (0, 1, -7, 1.0, 0.5, 1e20, 1e-7, 12345678901234567890, -0.0)
KEYS = ("city", "a", "name", "arguments", "{{ x }}", "naïve", "items", "", "type", "secret")


def value(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON value."""
    kind = rng.random()
    if kind < 0.4 or depth > 3:
        return rng.choice(TEXTS if rng.random() < 0.9 else ODD)
    if kind < 0.55:
        return rng.choice(NUMBERS)
    if kind < 0.7:
        return rng.choice([True, False, None])
    if kind < 0.85:
        return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {rng.choice(KEYS): value(rng, depth + 1) for _ in range(rng.randrange(3))}


def arguments(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.3:
        return {rng.choice(KEYS): rng.choice([True, False, None])}
    return {rng.choice(KEYS): value(rng) for _ in range(rng.randrange(4))}


def text(rng: random.Random) -> str:
    return rng.choice(TEXTS if rng.random() < 0.93 else ODD)


def tool(rng: random.Random) -> dict[str, Any]:
    function: dict[str, Any] = {"name": rng.choice(NAMES)}
    if rng.random() < 0.9:
        function["description"] = text(rng) if rng.random() < 0.9 else ""
    function["parameters"] = {"type": "object", "properties": {rng.choice(KEYS): {"type": "string"}}, **arguments(rng)}
    if rng.random() < 0.1:
        function |= rng.choice([{"strict": True}, {"required": ["a"]}, {"parameters": {}}, {"return": value(rng)}])
    return {"type": "function", "function": function}


def call(rng: random.Random) -> dict[str, Any]:
    function = {"name": rng.choice(NAMES), "arguments": arguments(rng)}
    outer: dict[str, Any] = {"id": rng.choice(["call_1", "c2", "x"])} if rng.random() < 0.7 else {}
    return {**outer, "type": "function", "function": function}


def calling(rng: random.Random) -> dict[str, Any]:
    content = None if rng.random() < 0.7 else rng.choice(["", text(rng)])
    calls = [call(rng) for _ in range(1 if rng.random() < 0.8 else 2)]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(rng: random.Random) -> dict[str, Any]:
    content = text(rng) if rng.random() < 0.95 else rng.choice(["", None])
    if rng.random() < 0.5:
        return {"role": "tool", "content": content}
    return {"role": "tool", "tool_call_id": rng.choice(["call_1", "x"]), "name": rng.choice(NAMES), "content": content}


def row(rng: random.Random, number: int = 0) -> Sample:
    """One turn with calls, or two with their results between, and rarely something else."""
    messages = [{"role": "user", "content": text(rng)}, calling(rng)]
    if rng.random() < 0.3:
        messages.insert(0, {"role": "system", "content": text(rng)})
    if rng.random() < 0.5:
        messages += [*[result(rng) for _ in messages[-1]["tool_calls"]], {"role": "assistant", "content": text(rng)}]
    if rng.random() < 0.05:
        messages = rng.sample(messages, len(messages))
    if rng.random() < 0.05:
        messages[-1] = {**messages[-1], "reasoning_content": "hm"}
    tools = [tool(rng) for _ in range(rng.choice([1, 1, 1, 2]))] if rng.random() < 0.85 else None
    last = len(messages) - 1
    flagged = rng.random() < 0.1 and messages[last]["role"] == "assistant"
    return chat(*messages, row=number, tools=tools, flags={last: rng.choice([False, True])} if flagged else {})
