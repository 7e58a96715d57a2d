"""A template that shows all that a message can have, a call and its tool, and what a cache says of its first row."""

from pathlib import Path

from packer.audit.view import view_row
from packer.store.cache import Cache

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.reasoning_content %}{{ '[' + message.reasoning_content + ']' }}{% endif %}"
    "{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}"
    "{{ '{\"name\": \"' + call.function.name + '\", \"arguments\": ' + (call.function.arguments | tojson) + '}' }}"
    "{% endfor %}"
    "{{ '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

PARAMETERS = {"type": "object", "properties": {"harbor": {"type": "string"}}, "required": ["harbor"]}
CALL = '{"name": "tide", "arguments": {"harbor": "Oban"}}'
CHAT_TOOLS = [{"type": "function", "function": {"name": "tide", "description": "tells", "parameters": PARAMETERS}}]
CHAT_CALL = {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": '{"harbor": "Oban"}'}}


PLACES = ["Oban", "Mull", "Mallaig", "Skye", "Ullapool", "Arran", "Islay", "Jura", "Iona", "Tiree"]


def place(number: int) -> str:
    return PLACES[number % len(PLACES)]


def asks(number: int, turn: int = 0) -> str:
    return f"When does tide number {3 * number + turn} turn at {place(number + turn)}?"


def says(number: int, turn: int = 0) -> str:
    return f"It turns at {turn + 3} past {number % 12 + 1}, as the table of {place(number + turn)} has it."


def talk(number: int, count: int = 4) -> list[str]:
    """Questions and answers in turn."""
    return [(says if turn % 2 else asks)(number, turn) for turn in range(count)]


def read_back(cache: Path, name: str, row: int = 0) -> list[tuple[str, list[str]]]:
    """Text and trained texts of each document of a row."""
    with Cache.open(cache) as opened:
        documents = view_row(opened, name, row).documents
        return [
            ("".join(run.text for run in each.runs), [run.text for run in each.runs if run.message is not None])
            for each in documents
        ]
