"""Dialogues with tool calls: what is trained, and what happens if the template drops the calls. No torch.

Run it in an empty folder.
"""

import json
import subprocess
import sys
from pathlib import Path

import packer
from packer.starter import write_starter

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
DIALOGUE = {
    "tools": [TOOL],
    "messages": [
        {"role": "user", "content": "Do I need a jacket in Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"temperature_c": 4, "sky": "light rain"}'},
        {"role": "assistant", "content": "Yes, it is 4 °C with light rain."},
    ],
}

write_starter(Path("first"))  # for its small tokenizer and its template
Path("tools.jsonl").write_text(json.dumps(DIALOGUE) + "\n", "utf-8")
rules = {"sources": [{"path": "tools.jsonl"}], "tokenizer": "first/tokenizer", "pack": {"block_len": 512}}

# Both turns are trained: the call and the answer. The tool definitions and the result are context.
packer.build_cache(packer.make_recipe(rules), "cache", jobs=1)
inspect = [sys.executable, "-m", "packer", "inspect", "cache", "--row", "tools.jsonl:0"]  # in a shell: packer inspect …
shown = subprocess.run(inspect, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
print(shown)
trained = [line for line in shown.splitlines() if "▌" in line]
assert "<tool_call>" in trained[0]
assert "light rain" in trained[-1]

# A template that does not know tool calls drops them. The row is rejected, and nothing is left to build.
template = Path("first/tokenizer/chat_template.jinja").read_text("utf-8")
Path("plain.jinja").write_text(template.replace("message.tool_calls", "false"), "utf-8")
try:
    packer.build_cache(packer.make_recipe({**rules, "template": {"file": "plain.jinja"}}), "dropped", jobs=1)
except packer.PackerError as error:
    reason, way_out = error.message, error.hint
print(f"{reason}\nhint: {way_out}")
assert "dropped_tool_call" in reason
