"""Messages in a list before a question of the row and its answer are a conversation, whatever the fields are called."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import twins
from hints import settings_in

from packer.audit.preview import preview
from packer.errors import InputError
from packer.recipe.recipe import make_recipe

SAID = [
    "Who lives in the house by the sea?",
    "An old man and his dog live there.",
    "And where is he now?",
    "He is at the market.",
]

CHAT_LOGS: dict[str, dict[str, Any]] = {
    "a server's log": {
        "preamble": "You know all who live here.",
        "chat_history": [{"role": "USER", "message": SAID[0]}, {"role": "CHATBOT", "message": SAID[1]}],
        "message": SAID[2],
        "text": SAID[3],
    },
    "a question and an answer": {
        "earlier": [{"speaker": "client", "said": SAID[0]}, {"speaker": "agent", "said": SAID[1]}],
        "question": SAID[2],
        "answer": SAID[3],
    },
    "rows that are read without it": {
        "dialog": {"before": [{"role": "user", "content": SAID[0]}, {"role": "assistant", "content": SAID[1]}]},
        "instruction": SAID[2],
        "output": SAID[3],
    },
}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("name", CHAT_LOGS)
def test_messages_before_a_question_and_its_answer_are_one_conversation_with_them(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(CHAT_LOGS[name]) + "\n", "utf-8")
    values: dict[str, Any] = {"tokenizer": str(twins.byte_level(tmp_path / "tokenizer", template=twins.CHATML))}
    try:
        hint = str(preview(make_recipe(values | {"sources": [{"path": str(path)}]})).hint)
    except InputError as error:
        hint = str(error.hint)
    found = re.search(
        r"if the messages in `\S+` come before `(\w+)`, which `(\w+)` answers: (jq .*?_lines.jsonl)", hint
    )
    assert found is not None and "--" not in hint.partition(found[0])[0], hint
    subprocess.run(["bash", "-euc", found[3]], check=True, cwd=tmp_path)
    values["sources"] = [{"path": str(tmp_path / "rows_lines.jsonl")}]
    seen = preview(make_recipe(values))
    if "preamble" in CHAT_LOGS[name]:
        assert seen.hint is not None
        seen = preview(make_recipe(values, settings_in(seen.hint)[:1]))
    assert seen.hint is None
    runs = [run for document in seen.rows[0].view.documents for run in document.runs]
    assert [run.text for run in runs if run.message is not None] == [f"{SAID[k]}<|im_end|>" for k in (1, 3)]
    asked = "".join(run.text for run in runs)
    assert all(f"user\n{SAID[k]}<|im_end|>" in asked for k in (0, 2))
    assert ("system\nYou know all who live here." in asked) == ("preamble" in CHAT_LOGS[name])


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
