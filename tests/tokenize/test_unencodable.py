"""A text the tokenizer fails on costs its own row and no other."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import twins
from supervision_stages import Stages, assistant, chat, user
from tokenizers import Tokenizer

from packer.batches import Sample
from packer.model.backend import load_backend

MANY = "x" * 40


class GivingUp:
    """A tokenizer that fails on `MANY`, as real ones give up on a pattern (tests/tokenize/test_reference.py)."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend

    def encode(self, text: str, **options: Any) -> Any:
        return self.encode_batch_fast([text], **options)[0]

    def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
        if any(MANY in text for text in texts):
            raise ValueError(f"index out of bounds of `{MANY}`")
        return self._backend.encode_batch_fast(texts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    name = "packer.tokenize.reference_encoder.load_backend"
    monkeypatch.setattr(name, lambda definition: GivingUp(load_backend(definition)))
    return Stages.load(twins.byte_level(tmp_path / "model"))


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
    failing = FAILING.values()
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


def test_a_batch_of_nothing_else_is_rejected_too_where_the_tokenizer_closes_texts(stages: Stages) -> None:
    """None of its texts has an id that could be the EOS already."""
    stages.tokenizing._prefix_and_suffix = (np.zeros(0, np.int32), np.array(stages.model.stop_ids[:1], np.int32))
    rows = [Sample(kind="text", row=row, text=MANY) for row in range(2)]
    assert stages.outcomes(rows) == ["not_encodable"] * 2
