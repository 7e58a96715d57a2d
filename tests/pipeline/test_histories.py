"""Messages in a list before a question of the row and its answer are a conversation, whatever the fields are called."""

import json
from pathlib import Path

import twins
from hints import settings_in

from packer.audit.preview import preview
from packer.recipe.recipe import make_recipe

SAID = [
    "Who lives in the house by the sea?",
    "An old man and his dog live there.",
    "And where is he now?",
    "He is at the market.",
]


def test_the_way_that_leaves_out_least_is_the_first(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {
        "document": "The man went out at noon.",
        "messages": [{"role": "user", "content": SAID[2]}],
        "answers": [SAID[3]],
    }
    path.write_text(json.dumps(row) + "\n", "utf-8")
    tokenizer = str(twins.byte_level(tmp_path / "tokenizer", template=twins.CHATML))
    hint = str(preview(make_recipe({"sources": [{"path": str(path)}], "tokenizer": tokenizer})).hint)
    ways = settings_in(hint)
    assert ways[0] == "sources.columns={prompt: messages, completion: answers, system: document}"
    assert ways[1] == "sources.columns={prompt: messages, completion: answers}"
