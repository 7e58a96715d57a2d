"""The encoder that defines the ids."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import twins
from conversations import texts
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from packer.errors import InputError
from packer.tokenize import ReferenceEncoder
from packer.tokenize import reference as module
from packer.tokenize.reference import without_start_effects


def definition(twin: Any, folder: Path, **options: Any) -> bytes:
    return (twin(folder, **options) / "tokenizer.json").read_bytes()


def test_a_batch_gives_what_each_text_gives_alone(tmp_path: Path) -> None:
    content = definition(twins.nfc, tmp_path)
    encoder, backend = ReferenceEncoder(content), Tokenizer.from_str(content.decode())

    @given(st.lists(texts, max_size=6))
    def agree(batch: list[str]) -> None:
        ids, offsets = encoder.encode(batch)
        assert ids.dtype == np.int32
        assert offsets.dtype == np.int64
        assert [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)] == [
            backend.encode(text, add_special_tokens=False).ids for text in batch
        ]

    agree()


def test_a_batch_of_many_slices_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = ReferenceEncoder(definition(twins.byte_level, tmp_path))
    batch = ["Hello", "", "the dog", "42" * 9, "", "fox"]
    whole = encoder.encode(batch)
    monkeypatch.setattr(module, "_BATCH_CHARACTERS", 5)
    for ours, theirs in zip(encoder.encode(batch), whole, strict=True):
        assert ours.tolist() == theirs.tolist()


def test_no_texts_give_no_ids(tmp_path: Path) -> None:
    ids, offsets = ReferenceEncoder(definition(twins.byte_level, tmp_path)).encode([])
    assert (ids.tolist(), offsets.tolist()) == ([], [0])


def test_encode_never_adds_a_bos(tmp_path: Path) -> None:
    content = definition(twins.byte_level, tmp_path, bos=True)
    bos = Tokenizer.from_str(content.decode()).token_to_id("<|begin|>")
    encoder = ReferenceEncoder(content)
    assert bos not in encoder.encode(["Hello"])[0]
    assert encoder.encode(["<|begin|>Hello"])[0].tolist().count(bos) == 1


def test_truncation_and_padding_of_the_file_are_off(tmp_path: Path) -> None:
    stored = json.loads(definition(twins.byte_level, tmp_path))
    stored["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    stored["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>",
    }  # fmt: skip
    plain = ReferenceEncoder(definition(twins.byte_level, tmp_path)).encode(["The quick brown fox"])[0]
    assert ReferenceEncoder(json.dumps(stored).encode()).encode(["The quick brown fox"])[0].tolist() == plain.tolist()


def test_own_special_tokens_are_what_the_tokenizer_puts_around_a_text(tmp_path: Path) -> None:
    encoder = ReferenceEncoder(definition(twins.sentencepiece_like, tmp_path))
    prefix, suffix = encoder.own_special_tokens()
    assert (prefix.tolist(), suffix.tolist()) == ([1], [])


def test_a_tokenizer_whose_special_tokens_change_the_text_between_them_is_refused_with_a_way_out(
    tmp_path: Path,
) -> None:
    stored = json.loads(definition(twins.byte_level, tmp_path, bos=True))
    stored["post_processor"]["single"] = [part for part in stored["post_processor"]["single"] if "Sequence" not in part]
    encoder = ReferenceEncoder(json.dumps(stored).encode())
    with pytest.raises(InputError, match="post-processor") as caught:
        encoder.own_special_tokens()
    assert caught.value.hint


@pytest.mark.parametrize("twin", [twins.sentencepiece_like, twins.metaspace_first])
def test_without_start_effects_the_first_word_has_no_dummy_space(twin: Any, tmp_path: Path) -> None:
    content = definition(twin, tmp_path)
    backend = Tokenizer.from_str(content.decode())
    started = ReferenceEncoder(content).encode(["dog"])[0]
    bare = ReferenceEncoder(without_start_effects(content)).encode(["dog"])[0]
    spell = lambda ids: "".join(backend.id_to_token(i) for i in ids.tolist())  # noqa: E731
    assert spell(started) == "▁dog"
    assert spell(bare) == "dog"


def test_byte_level_tokenizers_lose_their_prefix_space(tmp_path: Path) -> None:
    stored = json.loads(definition(twins.byte_level, tmp_path))
    plain = ReferenceEncoder(json.dumps(stored).encode()).encode(["dog"])[0].tolist()
    stored["pre_tokenizer"]["pretokenizers"][0]["add_prefix_space"] = True
    spaced = json.dumps(stored).encode()
    assert ReferenceEncoder(spaced).encode(["dog"])[0].tolist() != plain
    assert ReferenceEncoder(without_start_effects(spaced)).encode(["dog"])[0].tolist() == plain
