"""Batches placed at once have the ids and boundaries of texts looked at one by one, and of the rule word for word."""

import copy
import functools
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st

from packer.batches import TurnBatch
from packer.model.model import Model, load_model
from packer.model.token_bytes import TokenBytes
from packer.tokenize.reference_encoder import ReferenceEncoder
from packer.tokenize.tokenizing import TurnTokenizer

BYTE_LEVEL = [twins.byte_level, twins.double_newline, twins.nfc, twins.added_letters, twins.header_stops]
SENTENCEPIECE = [twins.sentencepiece_like, twins.metaspace_first, twins.swallowing, twins.line_breaks]

PIECES = ["<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "assistant", "\n", "\n\n", " ", "fox", "Hello", "ü", "é", "e\u0301", "\u212b", "<|im", "_end|>", "你"]  # fmt: skip
PIECES_OF_SENTENCES = ["<s>", "</s>", "<|end|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "\n", " ", "  ", "fox", "Hello", "ü", "▁"]  # fmt: skip


@functools.cache
def model_of(twin: Callable[..., Path], *, in_vocabulary: bool = False) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        path = twin(Path(folder)) / "tokenizer.json"
        definition = json.loads(path.read_text("utf-8"))
        if in_vocabulary:  # as in GPT-2's file: the added tokens are entries of the vocabulary, and no merge makes them
            definition["model"]["vocab"] |= {token["content"]: token["id"] for token in definition["added_tokens"]}
            path.write_text(json.dumps(definition), "utf-8")
        return load_model(path.parent)


@functools.cache
def tokenizing_of(twin: Callable[..., Path], *, in_vocabulary: bool = False) -> TurnTokenizer:
    model = model_of(twin, in_vocabulary=in_vocabulary)
    return TurnTokenizer(model, ReferenceEncoder(model.files["tokenizer.json"]))


@st.composite
def batches(draw: st.DrawFn, twin: Callable[..., Path]) -> TurnBatch:
    """Texts of pieces, each with turns whose boundaries lie between pieces; some end in a stop token and some do not.

    Completions and plain texts have one turn, up to their end.
    """
    texts, turns, raw = [], [], []
    any_piece = st.sampled_from(PIECES_OF_SENTENCES if twin in SENTENCEPIECE else PIECES)
    for number in range(draw(st.integers(1, 5))):
        pieces = [piece.encode() for piece in draw(st.lists(any_piece, min_size=1, max_size=12))]
        ends = np.cumsum([0, *map(len, pieces)]).tolist()
        texts.append(b"".join(pieces))
        raw.append(draw(st.booleans()))
        for _ in range(1 if raw[-1] else draw(st.integers(1, 3))):
            prompt = draw(st.integers(0, len(pieces) - 1))
            completion = draw(st.integers(len(pieces) if raw[-1] else prompt + 1, len(pieces)))
            turns.append((number, ends[prompt], ends[completion]))
    return batch_of(texts, turns, raw)


def batch_of(texts: list[bytes], turns: list[tuple[int, int, int]], raw: Sequence[bool] = ()) -> TurnBatch:
    text, prompt, completion = (np.array(column, np.int64) for column in zip(*turns, strict=True))
    return TurnBatch(
        skipped=np.zeros(0, np.int32),
        text=b"".join(texts),
        text_offsets=np.cumsum([0, *map(len, texts)], dtype=np.int64),
        raw=np.array(raw or [False] * len(texts)),
        sample=np.arange(len(texts), dtype=np.int32),
        turn_text=text.astype(np.int32),
        turn_message=np.zeros(len(turns), np.int32),
        prompt_end=prompt,
        completion_end=completion,
        guarded=np.zeros((0, 2), np.int64),
        masked=np.zeros((0, 2), np.int64),
        rejections=(),
    )


def turn_ids(tokens, turn: int) -> tuple[list[int], list[int], bool]:  # type: ignore[no-untyped-def]
    start = tokens.offsets[tokens.turn_sequence[turn]]
    prompt, end = start + tokens.prompt_tokens[turn], start + tokens.completion_tokens[turn]
    return tokens.ids[start:prompt].tolist(), tokens.ids[prompt:end].tolist(), bool(tokens.merged[turn])


@pytest.mark.parametrize(
    ("twin", "in_vocabulary"),
    [*((twin, False) for twin in [*BYTE_LEVEL, *SENTENCEPIECE]), (twins.byte_level, True), (twins.nfc, True)],
)
def test_turns_are_placed_as_by_a_look_at_each_text(twin: Callable[..., Path], in_vocabulary: bool) -> None:
    tokenizing = tokenizing_of(twin, in_vocabulary=in_vocabulary)
    by_itself = copy.copy(tokenizing)
    vars(by_itself)["_locate_vectorized"] = lambda _: None
    seen: Counter[str] = Counter()

    @given(batches(twin))
    def agree(turns: TurnBatch) -> None:
        located = tokenizing._locate_vectorized(turns)
        together, alone = tokenizing.tokenize(turns), by_itself.tokenize(turns)
        assert together.sequence_text[together.turn_sequence].tolist() == turns.turn_text.tolist()
        for turn in range(len(turns.turn_text)):
            assert turn_ids(together, turn) == turn_ids(alone, turn)
        assert located is not None
        seen["at once"] += len(located.sequence_text)
        seen["one by one"] += len(turns.raw) - len(located.sequence_text)

    agree()
    assert seen["at once"]
    assert seen["one by one"]


def whole_of(definition: Any) -> Any:
    """Whether each entry of a tokenizer stands for itself in any text: an anchor."""
    definition["added_tokens"].sort(key=lambda token: token["id"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(definition), "utf-8")
        return TokenBytes(load_model(path)).is_whole


def test_added_tokens_that_a_merge_makes_or_byte_fallback_writes_are_no_anchors() -> None:
    """`ab` is an entry by a merge and an added token: its id may come from either. `<0x41>` may come from an `A`."""
    for twin in (twins.byte_level, twins.sentencepiece_like):
        definition = json.loads(model_of(twin).files["tokenizer.json"])
        others = {token["id"] for token in definition["added_tokens"]}
        if twin is twins.byte_level:
            merge = definition["model"]["merges"][0]
            content = "".join(merge.split(" ") if isinstance(merge, str) else merge)
        else:
            content = "<0x41>"
            assert definition["model"]["byte_fallback"]
            assert others & set(definition["model"]["vocab"].values())
        added = definition["model"]["vocab"][content]
        definition["added_tokens"].append({**definition["added_tokens"][0], "id": added, "content": content})
        whole = whole_of(definition)
        assert not whole[added]
        assert others
        assert whole[sorted(others)].all()


@pytest.mark.parametrize("setting", [{"ignore_merges": True}, {"end_of_word_suffix": "</w>"}])
def test_entries_that_come_without_merges_are_no_anchors(setting: dict[str, Any]) -> None:
    model = model_of(twins.byte_level, in_vocabulary=True)
    assert TokenBytes(model).is_whole.any()
    definition = json.loads(model.files["tokenizer.json"])
    definition["model"] |= setting
    assert not whole_of(definition).any()


def test_a_pass_that_suits_no_text_of_a_batch_is_not_tried_again() -> None:
    """Added tokens that take the white space after them, as Phi-3's: no text is spelled by its ids."""
    model = model_of(twins.swallowing)
    tokenizing = TurnTokenizer(model, ReferenceEncoder(model.files["tokenizer.json"]))
    text, few, many = b"<|user|>\nfox<|end|>", 8, 64
    prompt = len(b"<|user|>\n")
    for number, tried in ((few, True), (many, True), (few, False)):
        turns = batch_of([text] * number, [(n, prompt, len(text)) for n in range(number)])
        located = tokenizing._locate_vectorized(turns)
        assert (located is not None) == tried
        assert located is None or not len(located.sequence_text)
    suited = tokenizing_of(twins.byte_level)
    text = b"<|im_start|>user\nfox<|im_end|>"
    turns = batch_of([text] * many, [(n, len(b"<|im_start|>user\n"), len(text)) for n in range(many)])
    for _ in range(2):
        located = suited._locate_vectorized(turns)
        assert located is not None and len(located.sequence_text) == many
