"""Typed control tokens never become control ids."""

from pathlib import Path
from typing import Any

import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from supervision_stages import Stages, assistant, chat, samples, user
from tokenizers import Tokenizer

from packer.layout import document_labels

TYPED = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
contents = st.lists(st.sampled_from([*TYPED, "a", " dog", "\n", "é", "e\u0301", "👍"]), min_size=1, max_size=6).map(
    "".join
)


def plainly(backend: Tokenizer, text: str) -> list[int]:
    """Ids of a text in which no special token counts."""
    backend.encode_special_tokens = True
    ids = backend.encode(text, add_special_tokens=False).ids
    backend.encode_special_tokens = False
    return ids


@pytest.mark.parametrize("twin", [twins.byte_level, twins.added_letters, twins.double_newline, twins.nfc])
def test_control_ids_are_those_the_template_writes(twin: Any, tmp_path: Path) -> None:
    stages = Stages.load(twin(tmp_path))
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    start, end = backend.token_to_id("<|im_start|>"), backend.token_to_id("<|im_end|>")
    line = plainly(backend, "\n")
    typed = 0

    @given(contents, contents)
    def agree(first: str, second: str) -> None:
        nonlocal typed
        talk = [user(first), user(second), assistant("fox")]
        ids, labels = stages.document(chat(*talk))
        expected = []
        for message in talk:
            expected += [start, *plainly(backend, f"{message['role']}\n{message['content']}"), end, *line]
        assert ids == expected[: -len(line)]
        assert [label for label in labels if label >= 0] == [*plainly(backend, "fox"), end]
        typed += any(token in first + second for token in TYPED)

    agree()
    assert typed > 8


def test_a_text_of_typed_tokens_alone_is_encoded_at_once(tmp_path: Path) -> None:
    """Of 50,000 tokens; to compare each with every other would take minutes."""
    aliases = Stages.load(twins.byte_level(tmp_path)).tokenizing._one_by_one.aliased[0]
    typed, num = TYPED[0].encode(), 50_000
    text = (typed + b"a") * num
    size = len(typed) + 1
    guarded = [(at, at + size - 1) for at in range(0, len(text), 2 * size)]
    aliased, moved = aliases.replace(text, guarded)
    assert aliased.count(typed) == len(guarded) == num // 2
    assert all(aliased[at - 1 : at] == b"a" for at in map(moved, range(size, len(text), size)))


def test_typed_tokens_in_turns_are_learned_as_words_where_that_is_allowed(tmp_path: Path) -> None:
    stages = Stages.load(twins.byte_level(tmp_path), "supervision.control_tokens=allow")
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    _, labels = stages.document(chat(user("hi"), assistant("a<|im_end|>b")))
    trained = [label for label in labels if label >= 0]
    assert trained == [*plainly(backend, "a<|im_end|>b"), backend.token_to_id("<|im_end|>")]


def test_guarded_rows_change_nothing_for_the_rows_beside_them(tmp_path: Path) -> None:
    stages = Stages.load(twins.double_newline(tmp_path))
    rows = samples(
        [
            [user("a"), assistant("\nfox")],
            [user("<|im_end|>"), assistant("\nfox")],
            [user("b"), assistant("dog")],
        ]
    )
    assert stages.outcomes(rows) == [stages.outcomes([row])[0] for row in rows]


def test_runs_of_guarded_rows_stay_on_their_turns(tmp_path: Path) -> None:
    stages = Stages.load(twins.byte_level(tmp_path))
    _, _, supervised = stages.supervise(
        [chat(user("<|im_end|>é"), assistant("a"), user("<|im_start|>"), assistant("b"))]
    )
    labels = document_labels(supervised.documents)
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert backend.decode([i for i in labels.tolist() if i >= 0], skip_special_tokens=False) == "a<|im_end|>b<|im_end|>"
    assert supervised.documents.run_message.tolist() == [1, 3]
