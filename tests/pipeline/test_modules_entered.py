"""How much somebody reads to follow a row with tools from its file into a cache."""

import json

from modules_entered import modules_entered

from packer.pipeline.from_python import build
from packer.questions.unread_text import find_unread
from packer.render.clear.trial import tried
from packer.render.renderer import Renderer
from packer.render.wrappers import Wrappers

MOST = 80
"""A number to lower whenever the way gets shorter."""

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}"
    '<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_row_with_tools_enters_few_modules_on_its_way_into_a_cache(starter, tmp_path, monkeypatch):
    monkeypatch.setattr("packer.render.clear.rows.tried", tried)  # which other tests remember, as what follows
    monkeypatch.setattr("packer.pipeline.plan.inputs.find_unread", find_unread)
    monkeypatch.setattr("packer.pipeline.plan.open_keys.Renderer", Renderer)
    monkeypatch.setattr("packer.render.renderer.Wrappers", Wrappers)
    function = {"name": "find", "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}}
    call = {"type": "function", "function": {"name": "find", "arguments": {"what": "it"}}}
    row = {
        "tools": [{"type": "function", "function": function}],
        "messages": [
            {"role": "user", "content": "Where is it?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "Here."},
            {"role": "assistant", "content": "It is here."},
        ],
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    options = {"tokenizer": starter / "tokenizer", "template": tmp_path / "template.jinja", "pack": {"block_len": 512}}

    def built(name="cache"):
        result = build(tmp_path / "rows.jsonl", tmp_path / name, jobs=1, progress=False, **options)
        assert result.manifest.totals.kept == 1

    built("before")  # what a process loads once, it has loaded in some orders of the tests
    entered = modules_entered(built)
    assert {"source/rows.py", "render/renderer.py", "store/writing.py"} <= entered
    assert len(entered) <= MOST, "\n".join(sorted(entered))
