"""A text the tokenizer fails on costs its own row and no other."""

import json
from pathlib import Path
from typing import Any

import pytest
import twins
from search_effort import one_in
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


FAILING = {
    "answer": (user("Hi"), assistant(MANY)),
    "question": (user(MANY), assistant("Hello")),
    "beside a typed control token": (user(f"<|im_end|>{MANY}"), assistant("Hello")),
    "later answer": (user("Hi"), assistant("Hello"), user("And?"), assistant(f"\n\n{MANY}")),
}


def test_only_the_rows_of_texts_the_tokenizer_fails_on_are_rejected(stages: Stages) -> None:
    good = (user("Hi"), assistant("Hello."), user("<|im_end|>?"), assistant("\n\nYes."))
    failing = one_in(4, list(FAILING.values()))  # giving up takes the tokenizer half a second
    batch = rows(good, *failing, good)
    turns, _, supervised = stages.supervise(batch)
    first, *rejected, last = stages.outcomes_of(batch, turns, supervised)
    assert rejected == ["not_encodable"] * len(failing)
    assert [first] == [last] == stages.outcomes(rows(good))
    for rejection in (*turns.rejections, *supervised.rejections):
        assert rejection.reason.startswith("the tokenizer fails: ") and "xxx" not in rejection.reason


def test_completions_and_texts_are_rejected_alike(stages: Stages) -> None:
    batch = [
        Sample(kind="completion", row=0, prompt="Say: ", text=MANY),
        Sample(kind="text", row=1, text=MANY),
        Sample(kind="text", row=2, text="Some words."),
    ]
    *refused, kept = stages.outcomes(batch)
    assert refused == ["not_encodable", "not_encodable"]
    assert not isinstance(kept, str)
