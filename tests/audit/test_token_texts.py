"""The text of a token: what the tokenizer makes of all ids together, cut where each id's part of it ends."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import TWINS

from packer.audit.token_texts import TokenTexts
from packer.literals import common_length
from packer.model.backend import load_backend
from packer.model.model import TOKENIZER_FILE, load_model

SCRIPTS = "aé ü世▁👍🏽\u200d♂️\n\u202e<"
LOADED = {}


def loaded(folder):
    if folder not in LOADED:
        model = load_model(folder)
        LOADED[folder] = model, load_backend(model.files[TOKENIZER_FILE])
    return LOADED[folder]


def texts_of(table, ids):
    return [table.tokens[number][1] for number in table.numbers(ids).tolist()]


def ends_of(backend, ids):
    """Where the text of each beginning of some ids ends in the text of all, as the tokenizer itself decodes both.

    If it cuts a character, the last id that completes one is searched for, up to three ids back.
    """
    whole = backend.decode(ids, skip_special_tokens=False)
    ends = [0]
    for end in range(1, len(ids)):
        texts = [backend.decode(ids[:last], skip_special_tokens=False) for last in range(end, max(end - 4, -1), -1)]
        complete = next((number for number, text in enumerate(texts) if whole.startswith(text)), len(texts))
        ends.append(max(ends[-1], *[common_length(text, whole) for text in texts[: complete + 1]]))
    return [*ends, len(whole)] if ids else ends


def check(folder, text):
    """Compare with the tokenizer's own decoding of every beginning of the ids; returns how many tokens were."""
    model, backend = loaded(folder)
    ids = np.array(backend.encode(text, add_special_tokens=False).ids, np.int32)
    whole = backend.decode(ids.tolist(), skip_special_tokens=False)
    if "\ufffd" in whole:  # decoders that do not know letters added to the vocabulary; what is spelled is right
        assert "".join(texts_of(TokenTexts(model), ids)) == text
        return 0
    found = texts_of(TokenTexts(model), ids)
    joined = "".join(found)
    assert joined in (whole, f" {whole}")  # SentencePiece: the space that decoding takes from the first token
    shift = len(joined) - len(whole)
    ends = np.cumsum([0, *map(len, found)]) - shift
    # A character that a border cuts is the later token's in both.
    expected = ends_of(backend, ids.tolist())
    assert np.maximum(ends, 0).tolist() == expected
    cuts = [0, *range(1, len(ids), 3), len(ids)]
    runs = [whole[expected[a] : expected[b]] for a, b in itertools.pairwise(cuts)]
    assert TokenTexts(model).decode_runs(ids, cuts) == runs
    return len(ids)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
@given(text=st.text(alphabet=SCRIPTS, max_size=20))
def test_texts_of_tokens_are_the_decoded_text_cut_at_every_token(twin, text, tmp_path_factory):
    key = f"folder of {twin.__name__}"
    if key not in LOADED:
        LOADED[key] = twin(tmp_path_factory.mktemp("twin"))
    check(LOADED[key], text)


@pytest.mark.real
@pytest.mark.parametrize(
    "name",
    ["llama-2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("deepseek-coder", "llama-3", "phi-3"))],
)
def test_texts_of_tokens_of_real_tokenizers(name, real):
    compared = 0
    for line in (real / "corpora" / "multilingual_chat_a.jsonl").read_text("utf-8").splitlines()[::150]:
        compared += check(real / "tokenizers" / name, "\n".join(m["content"] for m in json.loads(line)["messages"]))
    assert compared > 1000


def test_a_character_belongs_to_the_token_that_completes_it_and_broken_ones_are_told(tmp_path):
    model, backend = loaded(TWINS[0](tmp_path))
    ids = np.array(backend.encode("a龍b", add_special_tokens=False).ids, np.int32)
    found = texts_of(TokenTexts(model), ids)
    assert len(found) > 3 and "".join(found) == "a龍b" and found.count("") == len(ids) - 3
    begins_within = texts_of(TokenTexts(model), ids[2:])
    assert set("".join(begins_within)) == {"\ufffd", "b"}
