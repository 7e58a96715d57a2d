"""What a tokenizer may make of a text: a bound computed from its file, compared with what `tokenizers` really makes."""

import base64
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from packer.host import files
from packer.model import backend, tokenizer_folder
from packer.model.backend import is_panic, load_backend
from packer.model.tokenizer_folder import MAX_GROWTH, refuse_growth

UNICODE = 18
"""Characters that Unicode's own forms make of one, at most; once, since what they write is decomposed."""

MODEL = {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "a"}
WRITTEN = st.text("ab ﷺ▁中é", max_size=4)
PATTERNS = st.one_of(
    st.builds(lambda text: {"String": text}, st.text("ab ﷺ▁中é", min_size=1, max_size=2)),
    st.builds(lambda text: {"Regex": text}, st.sampled_from(["a", "(?=a)", "b*", "[^b]", "", r"\s+", "."])),
)
NORMALIZERS = st.one_of(
    st.builds(lambda pattern, text: {"type": "Replace", "pattern": pattern, "content": text}, PATTERNS, WRITTEN),
    st.builds(lambda text: {"type": "Prepend", "prepend": text}, WRITTEN),
    st.sampled_from([{"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Nmt", "ByteLevel")]),
    st.just({"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": False}),
)  # fmt: skip
PRE_TOKENIZERS = st.one_of(
    st.just({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}),
    st.just({"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": False}),
    st.just({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}),
)


def definition(normalizers: list[Any] | None = None, pre_tokenizers: list[Any] | None = None, **parts: Any) -> Any:
    normalizer = {"type": "Sequence", "normalizers": normalizers} if normalizers else None
    pre_tokenizer = {"type": "Sequence", "pretokenizers": pre_tokenizers} if pre_tokenizers else None
    return {
        "version": "1.0", "added_tokens": [], "model": MODEL,
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, **parts,
    }  # fmt: skip


def growth_of(stored: Any) -> int:
    """The bound: what one character may become."""
    steps = [*tokenizer_folder.steps(stored["normalizer"]), *tokenizer_folder.steps(stored["pre_tokenizer"])]
    product = 1
    for step in steps:
        product *= tokenizer_folder._growth(step)
    return product


@given(
    st.lists(NORMALIZERS, max_size=3), st.lists(PRE_TOKENIZERS, max_size=2), st.text("ab ﷺ▁中é", min_size=1, max_size=9)
)
def test_no_text_becomes_longer_than_the_file_lets_expect(
    normalizers: list[Any], pre_tokenizers: list[Any], text: str
) -> None:
    stored = definition(normalizers, pre_tokenizers)
    backend = Tokenizer.from_str(json.dumps(stored))
    try:
        normal = backend.normalizer.normalize_str(text) if normalizers else text
        pieces = backend.pre_tokenizer.pre_tokenize_str(normal) if pre_tokenizers else [(normal, None)]
    except BaseException as error:
        assume(not is_panic(error))  # in the middle of a character
        raise
    assert sum(len(piece) for piece, _ in pieces) <= UNICODE * growth_of(stored) * len(text)


def replaced(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def charsmap(*texts: str) -> dict[str, str]:
    content = bytes(4) + b"".join(text.encode() + b"\0" for text in texts)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


SPECIALS = {
    "type": "TemplateProcessing",
    "single": [*({"SpecialToken": {"id": "a", "type_id": 0}} for _ in range(20)), {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"a": {"id": "a", "ids": [0] * 20, "tokens": ["a"] * 20}},
}  # fmt: skip
EXPLOSIVE = {
    "twelve doublings": (definition([replaced({"String": "a"}, "aa")] * 12), 2**12),
    "a letter that decomposes, put back": (definition([{"type": "NFKD"}, replaced({"String": "ا"}, "ﷺ")] * 2), 18**2),
    "between all characters": (definition([replaced({"Regex": ""}, "ab")] * 6), 3**6),
    "bytes of bytes": (definition([{"type": "ByteLevel"}] * 5), 4**5),
    "a table with a long text": (definition([charsmap("b", "a" * 300)]), 300),
    "in both parts": (
        definition([replaced({"String": "a"}, "a" * 100)], [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}]),
        400,
    ),
    "the unknown token": (definition(model={**MODEL, "unk_token": "u" * 257, "vocab": {"u" * 257: 0}}), 257),
    "the decoder": (definition(decoder={"type": "Sequence", "decoders": [replaced({"String": "a"}, "a" * 20)] * 2}), 400),
    "special tokens": (definition(post_processor=SPECIALS), 400),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPLOSIVE)
def test_a_tokenizer_that_multiplies_texts_is_not_loaded(name: str) -> None:
    stored, growth = EXPLOSIVE[name]
    assert growth > MAX_GROWTH
    with pytest.raises(ValueError, match=rf"may have the length {growth}; packer takes up to 256$"):
        load_backend(json.dumps(stored).encode())


def test_what_published_tokenizers_are_made_of_is_loaded() -> None:
    """Those of SentencePiece grow most: a table with Unicode's longest decomposition, spaces, a Metaspace."""
    steps = [replaced({"String": "``"}, '"'), {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]
    steps += [charsmap("ﷺ", "b"), replaced({"Regex": " {2,}"}, "▁")]
    stored = definition(steps, [{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}])
    refuse_growth(stored)
    assert growth_of(stored) == 72


def test_pieces_that_would_take_gigabytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a" * 90, -1.0], ["é", -1.0]]}
    content = json.dumps(definition(model=model)).encode()
    monkeypatch.setattr(tokenizer_folder, "MAX_PIECE_BYTES", 97)
    assert load_backend(content)
    backend._load_reference.cache_clear()
    monkeypatch.setattr(tokenizer_folder, "MAX_PIECE_BYTES", 96)
    with pytest.raises(ValueError, match="its pieces have 97 bytes together"):
        load_backend(content)


def test_a_tokenizer_of_too_many_values_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_JSON_VALUES", 1000)
    with pytest.raises(ValueError, match="more than 1,000 values"):
        load_backend(json.dumps({**definition(), "more": [{}] * 600}).encode())


@pytest.mark.parametrize("place", ["vocab", "pieces", "added_tokens"])
def test_a_token_that_stands_for_a_book_is_refused(place: str) -> None:
    for length in (tokenizer_folder.MAX_PIECE_LENGTH, tokenizer_folder.MAX_PIECE_LENGTH + 1):
        text = "a" * length
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        added = [{"id": 1, "content": text, **flags}]
        pieces = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], [text, -1.0]]}
        parts = {"vocab": {"model": MODEL | {"vocab": {"a": 0, text: 1}}}, "pieces": {"model": pieces}}
        content = json.dumps(definition(**parts.get(place, {"added_tokens": added}))).encode()
        if length == tokenizer_folder.MAX_PIECE_LENGTH:
            assert load_backend(content)
    with pytest.raises(ValueError, match=f"one of its tokens has the length {length}; packer takes up to 1024"):
        load_backend(content)
