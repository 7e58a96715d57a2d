"""The fast encoder: the ids of the reference, or an error; never other ids."""

import itertools
import json
import pickle
import sys

import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st

from packer.model import backend
from packer.tokenize import fast
from packer.tokenize.fast import EngineDiffersError, FastEncoder, ReferenceFailsError, differences
from packer.tokenize.reference_encoder import ReferenceEncoder, UnencodableTextsError

RUNS = fast._RUNS_PER_TEXT
"""What a tokenizer is tried on; in other tests it is less."""


@pytest.fixture(autouse=True)
def _every_text_is_tried(monkeypatch):
    monkeypatch.setattr(fast, "_RUNS_PER_TEXT", RUNS)


pytest.importorskip("gigatoken", reason="gigatoken MISSING: the fast engine is not tested")

TAKEN = ("byte_level", "line_breaks", "metaspace_first", "sentencepiece_like", "swallowing")
REST = sorted({*TAKEN} - {"byte_level", "sentencepiece_like"})
REAL = ("minimind", "phi-3", "gpt-2", "llama-3", "qwen3")


@pytest.fixture(scope="module")
def definitions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twins")
    return {name: (getattr(twins, name)(folder / name) / "tokenizer.json").read_bytes() for name in TAKEN}


@pytest.fixture(scope="module")
def pairs(definitions):
    return {name: (FastEncoder(definitions[name]), ReferenceEncoder(definitions[name])) for name in TAKEN}


pieces = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["<|im_end|>", "<|im_start|>", "</s>", "<s>", "  ", "\n\n", " the", "'s", "é", "日本", "🎉", "▁", "Ġ", "<0x41>"]
    ),
)
texts = st.lists(st.lists(pieces, max_size=8).map("".join), max_size=6)


def same_ids(encoder, reference, batch):
    for one, other in zip(encoder.encode(batch), reference.encode(batch), strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("name", TAKEN)
@given(batch=texts)
def test_the_ids_of_any_texts_are_those_of_the_reference(name, batch, pairs):
    same_ids(*pairs[name], batch)


@pytest.mark.parametrize(
    "name", ["byte_level", "sentencepiece_like", *(pytest.param(name, marks=pytest.mark.slow) for name in REST)]
)
def test_nothing_is_found_wrong_with_tokenizers_of_both_families(name, definitions):
    assert differences(definitions[name]) is None


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-2", *REAL])
def test_nothing_is_found_wrong_with_real_tokenizers(name, real):
    assert differences((real / "tokenizers" / name / "tokenizer.json").read_bytes()) is None


def wrong(monkeypatch, is_wrong):
    """From here on, the last id of each text that `is_wrong` says is another one."""
    right = fast._encode

    def encode(backend, batch):
        ids, offsets = right(backend, batch)
        ids = ids.copy()
        for i, text in enumerate(batch):
            if is_wrong(text) and offsets[i + 1] > offsets[i]:
                ids[offsets[i + 1] - 1] += 1
        return ids, offsets

    monkeypatch.setattr(fast, "_encode", encode)


def test_one_text_in_sixty_four_and_the_first_of_every_call_are_encoded_twice(definitions, monkeypatch):
    batch = [f"text {i}" for i in range(200)]
    wrong(monkeypatch, lambda text: text == "text 128")
    with pytest.raises(EngineDiffersError, match="other ids than tokenizers for a text of 8 bytes"):
        FastEncoder(definitions["byte_level"]).encode(batch)
    encoder = FastEncoder(definitions["byte_level"])
    encoder.encode(["one"])
    encoder.encode(batch[:128])  # "text 127" is the 128th
    with pytest.raises(EngineDiffersError):
        encoder.encode(["text 128"])


def test_texts_to_compare_are_handed_over_with_ids_of_their_own_unless_they_are_much_of_all(definitions):
    """With long documents, one process would compare as long as several others encode."""
    taken = []
    encoder = FastEncoder(definitions["byte_level"], check=taken.append)
    ids, _ = encoder.encode(["a text"] * 200)
    (sampled,) = taken
    assert [each.text for each in sampled] == ["a text"] * 4
    assert all(each.ids.base is None and each.ids.tolist() == ids[: len(each.ids)].tolist() for each in sampled)
    taken.clear()
    long = "word " * 2**14
    encoder.encode([long] * 2)
    assert not taken, "compared at once"
    encoder.encode(["word " * 2**9] * 200)
    assert len(taken) == 1, "long together, but a small share"


def test_long_texts_that_are_compared_at_once_are_found_wrong(definitions, monkeypatch):
    wrong(monkeypatch, lambda _: True)
    with pytest.raises(EngineDiffersError):
        FastEncoder(definitions["byte_level"], check=lambda _: None).encode(["word " * 2**14] * 2)


def test_a_text_on_which_the_reference_alone_fails_is_no_difference_of_the_tokenizer(definitions, monkeypatch):
    def fail(*_):
        raise UnencodableTextsError({0: "a panic"})

    monkeypatch.setattr(ReferenceEncoder, "encode", fail)
    with pytest.raises(ReferenceFailsError, match="a panic") as caught:
        FastEncoder(definitions["byte_level"]).encode(["text"])
    assert isinstance(caught.value, EngineDiffersError)


def test_a_text_that_is_not_examined_is_found_wrong_when_it_is_confirmed(definitions, monkeypatch):
    batch = [f"text {i}" for i in range(20)]
    wrong(monkeypatch, lambda text: text == "text 7")
    encoder = FastEncoder(definitions["byte_level"])
    assert len(encoder.encode(batch)[1]) == 21
    encoder.confirm(batch[8:])
    with pytest.raises(EngineDiffersError):
        encoder.confirm(batch)


def test_texts_are_encoded_in_one_call_with_a_token_between_that_none_of_them_has(definitions):
    """With texts that have all of these tokens, each is encoded by itself; the ids are the reference's in any case."""
    encoder, reference = FastEncoder(definitions["line_breaks"]), ReferenceEncoder(definitions["line_breaks"])
    right, between = encoder._backend
    calls = []

    class Counted:
        def encode(self, text):
            calls.append(text)
            return right.encode(text)

    encoder._backend = fast._Backend(Counted(), between)
    assert len(between) == 4
    contents = [content for content, _ in between]
    for typed, num_calls in ((contents[:0], 1), (contents[:3], 1), (contents, 7)):
        calls.clear()
        batch = ["the fox", "", " dog ", "\n", "".join(typed), "the", ""]
        same_ids(encoder, reference, batch)
        assert len(calls) == num_calls


def test_a_token_that_a_longer_one_takes_with_it_stands_between_no_texts(definitions):
    definition = json.loads(definitions["line_breaks"])
    first = fast._separators(definitions["line_breaks"])[0]
    (token,) = [each for each in definition["added_tokens"] if each["id"] == first[1]]
    largest = max(each["id"] for each in definition["added_tokens"])
    definition["added_tokens"].append(
        {**token, "id": largest + 1, "content": f"fox{token['content']}", "special": False}
    )
    content = json.dumps(definition).encode()
    batch = ["the fox", "dog", "fox"]
    assert FastEncoder(content)._backend.separators[0] == first
    same_ids(FastEncoder(content), ReferenceEncoder(content), batch)


@pytest.mark.parametrize(
    "changed", [{"special": False}, {"normalized": True}, {"lstrip": True}, {"rstrip": True}, {"content": "end"}]
)
def test_no_token_stands_between_texts_that_the_texts_beside_it_may_change(definitions, changed):
    definition = json.loads(definitions["line_breaks"])
    first, *rest = fast._separators(definitions["line_breaks"])
    (token,) = [each for each in definition["added_tokens"] if each["id"] == first[1]]
    token |= changed
    assert fast._separators(json.dumps(definition).encode())[:3] == rest
    definition["normalizer"] = {"type": "Prepend", "prepend": "\u2581"}
    assert not fast._separators(json.dumps(definition).encode())


def test_trying_a_tokenizer_names_the_text_that_is_wrong(definitions, monkeypatch):
    assert len(RUNS) > 6000
    monkeypatch.setattr(fast, "_RUNS_PER_TEXT", RUNS[:300])
    tried = list(fast._trial_texts(definitions["byte_level"]))
    assert tried == list(fast._trial_texts(definitions["byte_level"])), "the same trials every time"
    bad = set()
    wrong(monkeypatch, lambda each: each in bad)
    for text in ("<|im_end|>", " the", "a<|im_start|>b"):
        assert text in tried
        bad.clear()
        bad.add(text)
        found = differences(definitions["byte_level"])
        assert found is not None and repr(text) in found


def test_a_tokenizer_that_the_library_does_not_load_is_not_taken(definitions, monkeypatch):
    content = definitions["byte_level"].replace(b'"BPE"', b'"Elsewhere"')
    with pytest.raises(EngineDiffersError, match="gigatoken does not load this tokenizer: "):
        FastEncoder(content)
    monkeypatch.setitem(sys.modules, "gigatoken.gigatoken_rs", None)
    assert differences(definitions["byte_level"] + b" ").startswith("gigatoken cannot be imported: ")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_a_lack_of_memory_or_threads_says_nothing_about_a_tokenizer(definitions, monkeypatch, error):
    def fail(_):
        raise error

    monkeypatch.setattr(backend, "_gigatoken", fail)
    with pytest.raises(type(error)):
        differences(definitions["swallowing"] + b" ")


def test_words_are_not_remembered_forever(definitions, monkeypatch):
    monkeypatch.setattr(fast, "_ANEW_AFTER", 20)
    definition = definitions["swallowing"]
    encoder, reference = FastEncoder(definition), ReferenceEncoder(definition)
    loaded = []
    for batch in (["The quick fox"], ["jumps", "over"], ["the lazy dog", ""]) * 2:
        same_ids(encoder, reference, batch)
        loaded.append(encoder._backend.encoder)
    changes = [before is not after for before, after in itertools.pairwise(loaded)]
    assert changes == [False, True, False, True, False]


def test_texts_the_fast_encoder_fails_on_are_the_references(definitions, monkeypatch):
    class PanicException(BaseException):
        pass

    def fail(*_):
        raise PanicException("index out of bounds")

    batch = ["one two", "three"]
    expected = ReferenceEncoder(definitions["byte_level"]).encode(batch)
    encoder = FastEncoder(definitions["byte_level"])
    monkeypatch.setattr(fast, "_encode", fail)
    found = encoder.encode(batch)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]

    def unencodable(_):
        raise UnencodableTextsError({1: "no"})

    monkeypatch.setattr(encoder._reference, "encode", unencodable)
    with pytest.raises(UnencodableTextsError):
        encoder.encode(batch)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fast, "_encode", interrupt)
    with pytest.raises(KeyboardInterrupt):
        encoder.encode(batch)


def test_the_error_crosses_processes():
    error = pickle.loads(pickle.dumps(EngineDiffersError("what", hint="how")))
    assert (type(error), str(error), error.message, error.hint) == (
        EngineDiffersError,
        "what\nhint: how",
        "what",
        "how",
    )
