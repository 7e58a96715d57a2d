"""Documents: cut after the last terminator, proved, each turn in the last that begins with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from supervision_stages import Stages, assistant, samples, user
from tokenizers import Tokenizer

from packer.batches import Sample, TokenBatch, TurnBatch

ROWS = (
    [user("Hello!"), assistant("fox dog"), user("How?"), assistant("the quick")],
    [user("You?"), assistant("lazy 42")],
)


def batches(stages: Stages, *rows: list[dict[str, Any]]) -> tuple[TurnBatch, TokenBatch]:
    turns = stages.render(samples(rows or ROWS))
    assert not turns.rejections
    return turns, stages.tokenizing.tokenize(turns)


def codes(stages: Stages, turns: TurnBatch, tokens: TokenBatch) -> dict[int, str]:
    supervised = stages.supervisor.supervise(turns, tokens, {0: None, 1: None})
    rows = set(supervised.documents.sample.tolist())
    rejected = {rejection.row: rejection.code for rejection in supervised.rejections}
    assert not rows & set(rejected)
    assert rows | set(rejected) == {0, 1}
    return rejected


def trained_places(tokens: TokenBatch) -> list[tuple[int, int]]:
    """Turn and place in the flat ids of every trained token."""
    starts = tokens.offsets[tokens.turn_sequence]
    return [
        (t, int(i))
        for t, start in enumerate(starts)
        for i in range(start + tokens.prompt_tokens[t], start + tokens.completion_tokens[t])
    ]


@pytest.mark.parametrize("twin", [twins.byte_level, twins.nfc, twins.header_stops, twins.sentencepiece_like])
def test_any_tampered_trained_id_fails_the_proof_of_its_row_alone(twin: Any, tmp_path: Path) -> None:
    stages = Stages.load(twin(tmp_path))
    turns, tokens = batches(stages)
    assert codes(stages, turns, tokens) == {}
    decode = stages.round_trip.decode

    @given(st.data())
    def check(data: st.DataObject) -> None:
        turn, place = data.draw(st.sampled_from(trained_places(tokens)))
        wrong = data.draw(st.integers(0, stages.model.vocab_size - 1))
        ids = tokens.ids.copy()
        # A dummy space may go, and the byte token of a space is one, as "▁" does.
        said, other = (decode([each]).replace("▁".encode(), b" ").strip() for each in (ids[place], wrong))
        if said == other:
            return
        ids[place] = wrong
        row = int(turns.sample[turns.turn_text[turn]])
        assert codes(stages, turns, replace(tokens, ids=ids)) == {row: "proof_failed"}

    check()


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("field", ["prompt_tokens", "completion_tokens"])
def test_a_border_in_the_wrong_place_fails_the_proof(tmp_path: Path, field: str, shift: int) -> None:
    stages = Stages.load(twins.byte_level(tmp_path))
    turns, tokens = batches(stages)
    moved = getattr(tokens, field) + np.array([shift, 0, 0])
    assert codes(stages, turns, replace(tokens, **{field: moved})) == {0: "proof_failed"}


def test_a_turn_over_a_stop_fails_the_proof(tmp_path: Path) -> None:
    """The ids spell the text, but generation would have ended before it does."""
    stages = Stages.load(twins.byte_level(tmp_path))
    turns, tokens = batches(stages)
    ends, token_ends = turns.completion_end.copy(), tokens.completion_tokens.copy()
    ends[0], token_ends[0] = ends[1], token_ends[1]
    turns, tokens = replace(turns, completion_end=ends), replace(tokens, completion_tokens=token_ends)
    assert codes(stages, turns, tokens) == {0: "proof_failed"}


RAW = {
    "completion": Sample(kind="completion", row=0, prompt="Hello!", text=" fox dog"),
    "text": Sample(kind="text", row=0, text="fox dog"),
}


@pytest.mark.parametrize("kind", RAW)
def test_a_raw_row_that_its_eos_does_not_close_fails_the_proof(tmp_path: Path, kind: str) -> None:
    """The ids spell the text, but what ends it is not the stop id."""
    stages = Stages.load(twins.byte_level(tmp_path))
    turns = stages.render([RAW[kind]])
    tokens = stages.tokenizing.tokenize(turns)
    assert tokens.ids[-1] == stages.model.eos_id
    assert stages.supervisor.supervise(turns, tokens, {0: None}).rejections == ()
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.encode_special_tokens = True
    spelled = backend.encode("<|im_end|>").ids
    assert len(spelled) > 1
    for ids in (tokens.ids[:-1], np.append(tokens.ids[:-1], spelled).astype(np.int32)):
        cut = len(ids) - len(tokens.ids)
        other = replace(
            tokens,
            ids=ids,
            offsets=tokens.offsets + np.array([0, cut]),
            completion_tokens=tokens.completion_tokens + cut,
        )
        supervised = stages.supervisor.supervise(turns, other, {0: None})
        assert [rejection.code for rejection in supervised.rejections] == ["proof_failed"]


def test_a_stop_token_may_contain_the_letter_that_stands_for_a_space(tmp_path: Path) -> None:
    """As DeepSeek's `<｜end▁of▁sentence｜>` does."""
    folder = twins.sentencepiece_like(tmp_path)
    for path in folder.iterdir():
        path.write_text(path.read_text("utf-8").replace("</s>", "<end▁of▁text>"), "utf-8")
    stages = Stages.load(folder)
    assert stages.model.stops == ("<end▁of▁text>",)
    for sample in RAW.values():
        ids, labels = stages.document(sample)
        assert ids[-1] == labels[-1] == stages.model.eos_id


def test_a_text_that_ends_with_a_typed_stop_token_needs_no_stop_id(tmp_path: Path) -> None:
    stages = Stages.load(twins.byte_level(tmp_path), "text.append_eos=false", "supervision.control_tokens=allow")
    ids, _ = stages.document(Sample(kind="text", row=0, text="fox dog<|im_end|>"))
    assert stages.model.eos_id not in ids


def test_marked_trains_completions_and_texts_which_have_no_marks(tmp_path: Path) -> None:
    stages = Stages.load(twins.byte_level(tmp_path), "supervision.turns=marked")
    for sample in RAW.values():
        _, labels = stages.document(sample)
        assert labels[-1] == stages.model.eos_id


def test_the_first_token_of_a_document_is_never_trained(tmp_path: Path) -> None:
    stages = Stages.load(twins.byte_level(tmp_path), "text.append_eos=false")
    assert stages.reasons([Sample(kind="text", row=0, text="a")]) == [
        ("nothing_trained", "the only token to train on is the first of a document")
    ]


def test_documents_come_in_the_order_of_rows_and_turns(tmp_path: Path) -> None:
    stages = Stages.load(twins.byte_level(tmp_path, template=twins.QWEN3_LIKE))
    turns, tokens = batches(stages)
    documents = stages.supervisor.supervise(turns, tokens, {0: "first", 1: None}).documents
    assert documents.sample.tolist() == [0, 0, 1]
    assert documents.sample_id == ("first", "first", None)
    assert documents.run_message.tolist() == [1, 3, 1]
    assert documents.offsets[-1] == len(documents.input_ids)


@pytest.mark.parametrize("raw", [False, True])
def test_a_batch_without_any_ids_has_no_document(raw: bool, tmp_path: Path) -> None:
    """As of a tokenizer that has no id for anything in its texts; each row is judged as among others."""
    stages = Stages.load(twins.byte_level(tmp_path))
    turns, tokens = batches(stages, *ROWS)
    turns = replace(turns, raw=np.full(len(turns.raw), raw))
    none = np.zeros_like(tokens.prompt_tokens)
    empty = {"ids": tokens.ids[:0], "offsets": np.zeros_like(tokens.offsets)}
    tokens = replace(tokens, **empty, prompt_tokens=none, completion_tokens=none)
    assert codes(stages, turns, tokens) == dict.fromkeys((0, 1), "proof_failed")
