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
from packer.tokenize import reference_encoder as module
from packer.tokenize.reference_encoder import (
    ReferenceEncoder,
    UnencodableTextsError,
    prefix_and_suffix_ids,
    without_start_effects,
)


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


def test_a_tokenizer_whose_special_tokens_change_the_text_between_them_is_refused_with_a_way_out(
    tmp_path: Path,
) -> None:
    stored = json.loads(definition(twins.byte_level, tmp_path, bos=True))
    stored["post_processor"]["single"] = [part for part in stored["post_processor"]["single"] if "Sequence" not in part]
    with pytest.raises(InputError, match="post-processor") as caught:
        prefix_and_suffix_ids(json.dumps(stored).encode())
    assert caught.value.hint


def around(content: bytes) -> tuple[list[int], list[int]]:
    """What a tokenizer as a whole puts around a text."""
    backend = Tokenizer.from_str(content.decode())
    bare, full = (backend.encode("a", add_special_tokens=adds).ids for adds in (False, True))
    place = next(start for start in range(len(full)) if full[start : start + len(bare)] == bare)
    return full[:place], full[place + len(bare) :]


@pytest.mark.parametrize("twin", [twins.byte_level, twins.sentencepiece_like, twins.metaspace_first, twins.swallowing])
def test_what_is_put_around_a_text_does_not_depend_on_the_vocabulary(twin: Any, tmp_path: Path) -> None:
    content = definition(twin, tmp_path)
    prefix, suffix = prefix_and_suffix_ids(content)
    assert (prefix.tolist(), suffix.tolist()) == around(content)


REAL = ("llama-3", "qwen3", "phi-3", "gpt-2", "minimind")


@pytest.mark.real
@pytest.mark.parametrize(
    "name", ["llama-2", "deepseek-coder", *(pytest.param(name, marks=pytest.mark.slow) for name in REAL)]
)
def test_real_tokenizers_put_the_same_around_a_text(name: str, real: Path) -> None:
    content = (real / "tokenizers" / name / "tokenizer.json").read_bytes()
    prefix, suffix = prefix_and_suffix_ids(content)
    assert (prefix.tolist(), suffix.tolist()) == around(content)


@pytest.mark.parametrize("ids", [[10**6], [0, 10**6], [10**6, 2**24]])
def test_an_id_that_a_post_processor_writes_and_no_token_has_is_refused(ids: list[int], tmp_path: Path) -> None:
    stored = json.loads(definition(twins.byte_level, tmp_path, bos=True))
    special = next(iter(stored["post_processor"]["special_tokens"].values()))
    special["ids"], special["tokens"] = ids, ["x"] * len(ids)
    with pytest.raises(InputError, match="writes the id 1000000, which is not in its vocabulary"):
        prefix_and_suffix_ids(json.dumps(stored).encode())


@pytest.mark.parametrize("twin", [twins.sentencepiece_like, twins.metaspace_first])
def test_without_start_effects_the_first_word_has_no_dummy_space(twin: Any, tmp_path: Path) -> None:
    content = definition(twin, tmp_path)
    backend = Tokenizer.from_str(content.decode())
    started = ReferenceEncoder(content).encode(["dog"])[0]
    bare = ReferenceEncoder(without_start_effects(content)).encode(["dog"])[0]
    spell = lambda ids: "".join(backend.id_to_token(i) for i in ids.tolist())  # noqa: E731
    assert spell(started) == "▁dog"
    assert spell(bare) == "dog"


def test_byte_level_tokenizers_lose_their_prefix_space_and_stay_the_same_without_one(tmp_path: Path) -> None:
    content = definition(twins.byte_level, tmp_path)
    assert without_start_effects(content) is content
    stored = json.loads(content)
    plain = ReferenceEncoder(json.dumps(stored).encode()).encode(["dog"])[0].tolist()
    stored["pre_tokenizer"]["add_prefix_space"] = True
    spaced = json.dumps(stored).encode()
    assert ReferenceEncoder(spaced).encode(["dog"])[0].tolist() != plain
    assert ReferenceEncoder(without_start_effects(spaced)).encode(["dog"])[0].tolist() == plain


# -- texts the tokenizer fails on ------------------------------------------------------------------------------------------


def with_parts(folder: Path, **parts: Any) -> bytes:
    return json.dumps({**json.loads(definition(twins.byte_level, folder)), **parts}).encode()


def backtracking(folder: Path) -> bytes:
    """A pattern that gives up, by a panic of the Rust code, on many x without a y."""
    split = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}
    return with_parts(folder, pre_tokenizer=split)


def without_unknown(folder: Path) -> bytes:
    """A vocabulary of three letters that has no id for any other."""
    vocab = [["a", -1.0], ["b", -1.0], ["c", -1.0]]
    model = {"type": "Unigram", "unk_id": None, "vocab": vocab, "byte_fallback": False}
    return with_parts(folder, model=model, pre_tokenizer=None, decoder=None, added_tokens=[])


MANY = "x" * 40


@pytest.mark.parametrize(
    ("broken", "batch", "failing", "says"),
    [
        (backtracking, ["the dog", MANY, "x", "", "fox"], [1], "retry-limit"),
        (without_unknown, ["abc", "abz", "", "cab"], [1], "unk_id"),
        (without_unknown, ["z"], [0], "unk_id"),
        (without_unknown, ["a\ud800", "a"], [0], ""),
    ],
)
def test_the_texts_a_tokenizer_fails_on_are_named_and_the_others_can_be_encoded(
    broken: Any, batch: list[str], failing: list[int], says: str, tmp_path: Path
) -> None:
    encoder = ReferenceEncoder(broken(tmp_path))
    with pytest.raises(UnencodableTextsError) as caught:
        encoder.encode(batch)
    assert list(caught.value.reasons) == failing
    assert all(says in reason for reason in caught.value.reasons.values())
    others = [text for i, text in enumerate(batch) if i not in failing]
    _, offsets = encoder.encode(others)
    assert len(offsets) == len(others) + 1


def test_failing_texts_are_found_in_every_slice_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_CHARACTERS", 3)
    encoder = ReferenceEncoder(without_unknown(tmp_path))
    with pytest.raises(UnencodableTextsError, match="on 3 texts; on text 1:") as caught:
        encoder.encode(["abc", "z", "cab", "a", "zzzz", "b", "z"])
    assert list(caught.value.reasons) == [1, 4, 6]


class Failing:
    """A tokenizer that fails on batches, and encodes single texts by another function."""

    def __init__(self, error: BaseException, encode: Any = None) -> None:
        self.error, self.encode = error, encode

    def encode_batch_fast(self, *_: object, **__: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    "complaint",
    [
        "byte index 1 is not a char boundary; it is inside 'é' (bytes 0..2) of ",
        "byte index 99 is out of bounds of ",
        "begin <= end (4 <= 2) when slicing ",
    ],
)
def test_the_reason_quotes_nothing_of_the_text(complaint: str, tmp_path: Path) -> None:
    def complain(*_: object, **__: object) -> None:
        raise ValueError(f"{complaint}`é my secret\nlife`")

    encoder = ReferenceEncoder(definition(twins.byte_level, tmp_path))
    encoder._backend = Failing(ValueError(), complain)
    with pytest.raises(UnencodableTextsError) as caught:
        encoder.encode(["é my secret\nlife"])
    assert caught.value.reasons == {0: complaint.strip()}


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, SystemExit])
def test_what_no_text_is_to_blame_for_is_not_put_on_a_text(tmp_path: Path, error: type[BaseException]) -> None:
    encoder = ReferenceEncoder(definition(twins.byte_level, tmp_path))
    encoder._backend = Failing(error())
    with pytest.raises(error):
        encoder.encode(["a"])


def test_a_batch_that_fails_though_none_of_its_texts_does_gives_the_ids_of_its_texts(tmp_path: Path) -> None:
    """Where threads cannot be started, say: what becomes of a row may not depend on the machine."""
    encoder = ReferenceEncoder(definition(twins.byte_level, tmp_path))
    batch = ["the dog", "", "fox"]
    expected = encoder.encode(batch)
    encoder._backend = Failing(RuntimeError("no threads"), encoder._backend.encode)
    assert [part.tolist() for part in encoder.encode(batch)] == [part.tolist() for part in expected]
