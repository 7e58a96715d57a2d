"""Conversations that packer and transformers render alike: odd characters, calls, reasoning, several of a kind in a row."""

from typing import Any

from supervision_stages import assistant, call, result, system, user

DAY = "2026-01-01"
"""On which the clock of transformers stands still."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "current_weather",
        "description": "Wetter für <b>einen</b> Ort",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"messages": [user(" Hi {{ there }}\n"), assistant("Hello & <welcome>"), user("é 你好 👍")]},
    "system": {"messages": [system("Be kind"), user("Hi"), assistant("Hello"), user("Bye"), assistant("Ok")]},
    "tools": {
        "messages": [
            user("Weather in Köln?"),
            assistant(None, tool_calls=[{"id": "call00001", **call("current_weather", {"city": "Köln", "n": 1.5})}]),
            {"tool_call_id": "call00001", "name": "current_weather", **result('{"rain": true}')},
            assistant("It rains."),
        ],
        "tools": [WEATHER],
    },
    "text arguments": {
        "messages": [
            system("Be kind"),
            user("Weather in Köln?"),
            assistant("", tool_calls=[{"id": "call00001", **call("current_weather", '{"city": "Köln"}')}]),
            {"tool_call_id": "call00001", "name": "current_weather", **result("rain")},
        ],
        "tools": [WEATHER, WEATHER],
    },
    "reasoning": {
        "messages": [
            user("1 + 1?"),
            assistant("2", reasoning_content="one and one"),
            user("and 1?"),
            assistant("<think>\nthree\n</think>\n\n3"),
        ],
        "enable_thinking": False,
        "thinking": True,
    },
    "in a row": {"messages": [assistant("Welcome"), user("a"), user("b"), assistant("c"), assistant("d"), user("e")]},
}
