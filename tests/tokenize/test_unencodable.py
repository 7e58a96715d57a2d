"""A text the tokenizer fails on costs its own row and no other."""

import json
from pathlib import Path
from typing import Any

import pytest
import twins
from supervision_stages import Stages, assistant, chat, user

from packer.batches import Sample

MANY = "x" * 40
"""The pattern below gives up on it, by a panic of the Rust code."""


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    folder = twins.byte_level(tmp_path / "model")
    definition = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    split = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}
    definition["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, definition["pre_tokenizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(definition), "utf-8")
    return Stages.load(folder)


def rows(*chats: tuple[dict[str, Any], ...]) -> list[Sample]:
    return [chat(*messages, row=row) for row, messages in enumerate(chats)]


@pytest.mark.parametrize(
    "failing",
    [
        (user("Hi"), assistant(MANY)),
        (user(MANY), assistant("Hello")),
        (user(f"<|im_end|>{MANY}"), assistant("Hello")),
        (user("Hi"), assistant("Hello"), user("And?"), assistant(f"\n\n{MANY}")),
    ],
    ids=["answer", "question", "beside a typed control token", "later answer"],
)
def test_only_the_row_of_a_text_the_tokenizer_fails_on_is_rejected(
    stages: Stages, failing: tuple[dict[str, Any], ...]
) -> None:
    good = (user("Hi"), assistant("Hello."), user("<|im_end|>?"), assistant("\n\nYes."))
    batch = rows(good, failing, good)
    first, rejected, last = stages.outcomes(batch)
    assert rejected == "not_encodable"
    assert [first] == [last] == stages.outcomes(rows(good))
    ((code, reason),) = stages.reasons(batch)
    assert code == "not_encodable"
    assert reason.startswith("the tokenizer fails: ")
    assert "xxx" not in reason


def test_completions_and_texts_are_rejected_alike(stages: Stages) -> None:
    batch = [
        Sample(kind="completion", row=0, prompt="Say: ", text=MANY),
        Sample(kind="text", row=1, text=MANY),
        Sample(kind="text", row=2, text="Some words."),
    ]
    *refused, kept = stages.outcomes(batch)
    assert refused == ["not_encodable", "not_encodable"]
    assert not isinstance(kept, str)
