"""Every tokenizer twin has the trap it stands for; that templates have theirs, test_supervision.py shows."""

import unicodedata

import pytest
import twins
from tokenizers import Tokenizer

from packer.model.backend import load_backend
from packer.model.model import load_model


def backend(folder):
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("twin", twins.TWINS)
def test_a_twin_loads_as_a_model_and_reproduces_plain_text(tmp_path, twin):
    model = load_model(twin(tmp_path / "model"))
    assert model.template is not None
    assert model.stops
    assert model.vocab_size < 500
    tokenizer = load_backend(model.files["tokenizer.json"])
    text = "Hello! 你好, the 世 lazy dog\n\n  12 + 30 🎉"
    assert tokenizer.decode(encode(tokenizer, text).ids, skip_special_tokens=False) == text


def test_byte_level_adds_a_bos_only_when_asked(tmp_path):
    plain, opening = backend(twins.byte_level(tmp_path / "a")), backend(twins.byte_level(tmp_path / "b", bos=True))
    assert plain.encode("Hello").ids == encode(plain, "Hello").ids
    assert opening.encode("Hello").tokens == ["<|begin|>", *encode(opening, "Hello").tokens]


def test_nfc_composes_letters_so_that_the_ids_do_not_spell_the_text(tmp_path):
    tokenizer = backend(twins.nfc(tmp_path))
    decomposed = "cafe\u0301"
    assert encode(tokenizer, decomposed).ids == encode(tokenizer, "café").ids
    decoded = tokenizer.decode(encode(tokenizer, decomposed).ids)
    assert decoded != decomposed
    assert decoded == unicodedata.normalize("NFC", decomposed)


def test_added_letters_are_tokens_whose_spelling_is_not_in_the_byte_alphabet(tmp_path):
    model = load_model(twins.added_letters(tmp_path))
    letters = {
        token.content: (token.special, token.normalized) for token in model.added_tokens if len(token.content) == 1
    }
    assert letters == {"ü": (False, True), "õ": (False, True)}
    tokenizer = load_backend(model.files["tokenizer.json"])
    encoding = encode(tokenizer, "über")
    assert encoding.tokens[0] == "ü"
    # Read as the byte alphabet writes bytes, `ü` is the single byte FC: no valid text, and not what was encoded.
    assert tokenizer.decode(encoding.ids[:1]) == "\ufffd"
    assert encode(backend(twins.byte_level(tmp_path / "plain")), "ü").tokens == ["Ã", "¼"]


def test_added_letters_splits_every_digit(tmp_path):
    tokens = encode(backend(twins.added_letters(tmp_path / "a")), "42 42").tokens
    assert [token for token in tokens if token.strip("Ġ")] == ["4", "2", "4", "2"]
    assert "Ġ42" in encode(backend(twins.byte_level(tmp_path / "b")), "42 42").tokens


def test_sentencepiece_like_puts_a_dummy_prefix_after_every_special_token(tmp_path):
    tokenizer = backend(twins.sentencepiece_like(tmp_path))
    assert encode(tokenizer, "<s>Hi</s>Hi").tokens == ["<s>", "▁H", "i", "</s>", "▁H", "i"]
    assert encode(tokenizer, "Hello").ids + encode(tokenizer, " dog").ids != encode(tokenizer, "Hello dog").ids


def test_sentencepiece_like_falls_back_to_bytes_and_adds_a_bos(tmp_path):
    tokenizer = backend(twins.sentencepiece_like(tmp_path))
    assert tokenizer.encode("世").tokens == ["<s>", "▁", "<0xE4>", "<0xB8>", "<0x96>"]


def test_metaspace_first_puts_the_dummy_prefix_only_at_the_very_start(tmp_path):
    tokenizer = backend(twins.metaspace_first(tmp_path))
    assert encode(tokenizer, "Hi<s>Hi").tokens == ["▁H", "i", "<s>", "H", "i"]
    assert encode(tokenizer, "<s>Hi").tokens == ["<s>", "H", "i"]


def test_a_swallowing_token_takes_the_newline_after_it(tmp_path):
    tokenizer = backend(twins.swallowing(tmp_path))
    text = "<|user|>\nHi<|end|>\n<|assistant|>\n"
    encoding = encode(tokenizer, text)
    assert [text[start:end] for start, end in encoding.offsets] == [
        "<|user|>\n",
        "H",
        "i",
        "<|end|>\n",
        "<|assistant|>\n",
    ]
    assert "\n" not in tokenizer.decode(encoding.ids, skip_special_tokens=False)
    # So a prompt that ends in a newline and one that does not have the same ids.
    assert encode(tokenizer, "<|assistant|>").ids == encode(tokenizer, "<|assistant|>\n").ids


def test_line_breaks_are_added_tokens_and_join_across_the_end_of_a_header(tmp_path):
    tokenizer = backend(twins.line_breaks(tmp_path))
    assert [token.special for token in tokenizer.get_added_tokens_decoder().values() if token.content == "\n"] == [
        False
    ]
    assert encode(tokenizer, "<start_of_turn>\n\nHi").tokens == ["<start_of_turn>", "\n\n", "H", "i"]
