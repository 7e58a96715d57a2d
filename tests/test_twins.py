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


TRAPS = [
    # an added letter is a token, spelled as it is; elsewhere it is two of bytes
    (twins.added_letters, "ü", ["ü"]),
    (twins.byte_level, "ü", ["Ã", "¼"]),
    # every digit is one
    (twins.added_letters, "42 42", ["4", "2", "Ġ", "4", "2"]),
    (twins.byte_level, "42 42", ["42", "Ġ42"]),
    # a dummy prefix after every special token, or only at the very start
    (twins.sentencepiece_like, "<s>Hi</s>Hi", ["<s>", "▁H", "i", "</s>", "▁H", "i"]),
    (twins.metaspace_first, "Hi<s>Hi", ["▁H", "i", "<s>", "H", "i"]),
    (twins.metaspace_first, "<s>Hi", ["<s>", "H", "i"]),
    # a letter that is not in the vocabulary is its bytes
    (twins.sentencepiece_like, "世", ["▁", "<0xE4>", "<0xB8>", "<0x96>"]),
    # line breaks are tokens, which join across the end of a header
    (twins.line_breaks, "<start_of_turn>\n\nHi", ["<start_of_turn>", "\n\n", "H", "i"]),
]


@pytest.mark.parametrize(("twin", "text", "tokens"), TRAPS)
def test_a_twin_has_its_trap(tmp_path, twin, text, tokens):
    assert encode(backend(twin(tmp_path)), text).tokens == tokens


def test_byte_level_adds_a_bos_only_when_asked_and_sentencepiece_like_always(tmp_path):
    plain, opening = (backend(twins.byte_level(tmp_path / str(bos), bos=bos)) for bos in (False, True))
    assert plain.encode("Hello").ids == encode(plain, "Hello").ids
    assert opening.encode("Hello").tokens == ["<|begin|>", *encode(opening, "Hello").tokens]
    assert backend(twins.sentencepiece_like(tmp_path / "always")).encode("Hello").tokens[0] == "<s>"


def test_a_swallowing_token_takes_the_newline_after_it(tmp_path):
    """So a prompt that ends in a newline and one that does not have the same ids."""
    tokenizer = backend(twins.swallowing(tmp_path))
    assert encode(tokenizer, "<|assistant|>").ids == encode(tokenizer, "<|assistant|>\n").ids
    assert "\n" not in tokenizer.decode(encode(tokenizer, "Hi<|end|>\nHi").ids, skip_special_tokens=False)


def test_nfc_composes_letters_so_that_the_ids_do_not_spell_the_text(tmp_path):
    tokenizer = backend(twins.nfc(tmp_path))
    decomposed = "cafe\u0301"
    assert encode(tokenizer, decomposed).ids == encode(tokenizer, "café").ids
    assert tokenizer.decode(encode(tokenizer, decomposed).ids) == unicodedata.normalize("NFC", decomposed) != decomposed


def test_an_added_letter_is_no_control_token_and_read_as_bytes_no_valid_text(tmp_path):
    model = load_model(twins.added_letters(tmp_path))
    added = {token.content: (token.special, token.normalized) for token in model.added_tokens}
    assert {text: added[text] for text in ("ü", "õ")} == dict.fromkeys(("ü", "õ"), (False, True))
    # As the byte alphabet writes bytes, `ü` is the single byte FC.
    tokenizer = load_backend(model.files["tokenizer.json"])
    assert tokenizer.decode(encode(tokenizer, "über").ids[:1]) == "\ufffd"
