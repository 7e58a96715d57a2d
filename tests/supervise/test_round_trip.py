"""What ids spell, checked without asking the encoder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import twins
from conversations import texts
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from packer.errors import InputError
from packer.model.model import load_model
from packer.model.token_bytes import TokenBytes
from packer.supervise.round_trip import RoundTrip
from packer.tokenize.reference_encoder import ReferenceEncoder


def round_trip_and_encoder(twin: Any, folder: Path) -> tuple[RoundTrip, ReferenceEncoder]:
    model = load_model(twin(folder))
    return RoundTrip(model, TokenBytes(model)), ReferenceEncoder(model.files["tokenizer.json"])


@pytest.mark.parametrize("twin", twins.TWINS, ids=lambda twin: twin.__name__)
def test_the_ids_of_a_text_spell_it_and_one_that_is_wrong_lacks_or_is_too_many_is_noticed(
    twin: Any, tmp_path: Path
) -> None:
    round_trip, encoder = round_trip_and_encoder(twin, tmp_path)
    noticed = 0

    @given(texts, st.data())
    def agree(text: str, data: st.DataObject) -> None:
        nonlocal noticed
        ids = encoder.encode([text])[0].tolist()
        assert round_trip.decodes_to(ids, text.encode())
        assume(ids)
        place = data.draw(st.integers(0, len(ids) - 1))
        if round_trip.decode([ids[place]]).strip():
            for count in (0, 2):
                changed = [*ids[:place], *[ids[place]] * count, *ids[place + 1 :]]
                assert not round_trip.decodes_to(changed, text.encode())
        wrong = data.draw(st.integers(0, len(round_trip.token_bytes.num_bytes) - 1))
        before, after = (round_trip.decode([i]) for i in (ids[place], wrong))
        assume(before.lstrip(b" ") != after.lstrip(b" "))  # a dummy space may be there or not
        ids[place] = wrong
        assert not round_trip.decodes_to(ids, text.encode())
        noticed += 1

    agree()
    assert noticed > 10


def spelled_literally(round_trip: RoundTrip, ids: list[int]) -> list[bytes]:
    """The bytes of each id, without the space that stands where the tokenizer may have put one."""
    table = round_trip.token_bytes.table
    spelled = [table[i] or b"" for i in ids]
    for place, piece in enumerate(spelled):
        if round_trip.token_bytes.inserts_space and (not place or round_trip.token_bytes.is_added[ids[place - 1]]):
            spelled[place] = piece.removeprefix(b" ")
    return spelled


@pytest.mark.parametrize("twin", twins.TWINS, ids=lambda twin: twin.__name__)
def test_ids_are_spelled_together_as_one_by_one_and_a_text_they_spell_is_proved(twin: Any, tmp_path: Path) -> None:
    round_trip, encoder = round_trip_and_encoder(twin, tmp_path)
    controls = sorted({"<s>", "<|end|>", *round_trip_controls(round_trip)})
    pieces = st.lists(st.one_of(texts, st.sampled_from([" ", "▁", *controls])), max_size=5).map("".join)
    num_spelled = 0

    @given(st.lists(pieces, max_size=4), st.data())
    def agree(batch: list[str], data: st.DataObject) -> None:
        nonlocal num_spelled
        sequences = [encoder.encode([text])[0].tolist() for text in batch]
        for ids in filter(None, sequences):
            change = data.draw(st.sampled_from(["none", "none", "lost", "twice"]))
            place = data.draw(st.integers(0, len(ids) - 1))
            ids[place : place + 1] = {"none": ids[place : place + 1], "lost": [], "twice": [ids[place]] * 2}[change]
        encoded = [text.encode() for text in batch]
        offsets = np.cumsum([0, *map(len, sequences)])
        ids = np.array([i for sequence in sequences for i in sequence], np.int32)
        starts = np.cumsum([0, *map(len, encoded)])
        spelling = round_trip.token_bytes.spell(ids, offsets)
        literal = [spelled_literally(round_trip, sequence) for sequence in sequences]
        assert spelling.decoded.tobytes() == b"".join(map(b"".join, literal))
        assert (
            spelling.ends.tolist() == np.cumsum([0, *(len(piece) for pieces in literal for piece in pieces)]).tolist()
        )
        begins = spelling.begins(b"".join(encoded), starts[:-1], starts[1:])
        for n, (sequence, text) in enumerate(zip(sequences, encoded, strict=True)):
            assert spelling.known[n] == all(round_trip.token_bytes.table[i] is not None for i in sequence)
            assert begins[n] == (spelling.known[n] and text.startswith(b"".join(literal[n])))
            if begins[n] and len(b"".join(literal[n])) == len(text):
                num_spelled += 1
                assert round_trip.decodes_to(sequence, text)

    agree()
    assert num_spelled


def round_trip_controls(round_trip: RoundTrip) -> list[str]:
    entries = enumerate(round_trip.token_bytes.table)
    return [entry.decode() for i, entry in entries if entry is not None and round_trip.token_bytes.is_added[i]][:4]


def test_the_unknown_token_spells_nothing_that_could_be_proved(tmp_path: Path) -> None:
    model = load_model(twins.sentencepiece_like(tmp_path))
    round_trip = RoundTrip(model, TokenBytes(model))
    assert not round_trip.decodes_to([0], b"<unk>")
    assert round_trip.token_bytes.num_bytes[0] == -1


def test_a_letter_that_stands_for_a_space_elsewhere_may_fall_back_to_bytes(tmp_path: Path) -> None:
    folder = twins.sentencepiece_like(tmp_path)
    path = folder / "tokenizer.json"
    definition = json.loads(path.read_text("utf-8"))
    vocabulary = definition["model"]["vocab"]
    definition["normalizer"] = None
    definition["model"]["merges"] = []
    vocabulary["unused"] = vocabulary.pop("▁")
    path.write_text(json.dumps(definition), "utf-8")
    round_trip, encoder = round_trip_and_encoder(lambda _: folder, tmp_path)
    ids = encoder.encode(["a▁b"])[0].tolist()
    assert len(ids) == 5
    assert round_trip.decodes_to(ids, "a▁b".encode())


def test_a_text_may_lack_the_one_space_its_tokenizer_puts_first_and_no_more(tmp_path: Path) -> None:
    round_trip, encoder = round_trip_and_encoder(twins.sentencepiece_like, tmp_path)
    one, two = (encoder.encode([text])[0].tolist() for text in ("dog", " dog"))
    assert (round_trip.decode(one), round_trip.decode(two)) == (b" dog", b"  dog")
    assert round_trip.decodes_to(one, b"dog")
    assert round_trip.decodes_to(one, b" dog")
    assert round_trip.decodes_to(two, b" dog")
    assert not round_trip.decodes_to(two, b"dog")


def test_inside_a_text_no_space_may_be_lacking(tmp_path: Path) -> None:
    round_trip, encoder = round_trip_and_encoder(twins.sentencepiece_like, tmp_path)
    before, dog = encoder.encode(["x"])[0].tolist()[-1], encoder.encode(["dog"])[0].tolist()
    assert round_trip.decodes_to(dog, b" dog", after=before)
    assert not round_trip.decodes_to(dog, b"dog", after=before)


def test_a_tokenizer_without_a_dummy_space_may_not_have_one(tmp_path: Path) -> None:
    round_trip, encoder = round_trip_and_encoder(twins.byte_level, tmp_path)
    assert not round_trip.decodes_to(encoder.encode([" dog"])[0].tolist(), b"dog")


def test_white_space_may_be_missing_only_where_a_token_swallows_it(tmp_path: Path) -> None:
    model = load_model(twins.swallowing(tmp_path))
    round_trip, encoder = RoundTrip(model, TokenBytes(model)), ReferenceEncoder(model.files["tokenizer.json"])
    head = model.control["<|assistant|>"]
    ids = encoder.encode(["<|assistant|>\n\ndog"])[0].tolist()
    assert ids[0] == head
    assert round_trip.decodes_to(ids, b"<|assistant|>\n\ndog")
    assert round_trip.decodes_to(ids[1:], b"\n\ndog", after=head)
    assert not round_trip.decodes_to(ids[1:], b"\n\ndog", after=model.control["</s>"])
    assert not round_trip.decodes_to(ids[1:], b"\n\ndog")


def test_a_long_text_with_many_tokens_that_swallow_white_space_is_proved_at_once(tmp_path: Path) -> None:
    """To decode the rest of the text after each of its 30,000 tokens would take minutes."""
    model = load_model(twins.swallowing(tmp_path))
    round_trip, encoder = RoundTrip(model, TokenBytes(model)), ReferenceEncoder(model.files["tokenizer.json"])
    ids = encoder.encode(["<|assistant|>\n\ndog"])[0].tolist()
    text = "<|assistant|>\n\u2003dog" * 30_000
    assert round_trip.decodes_to(ids * 30_000, text.encode())
    assert not round_trip.decodes_to(ids * 30_000, text.encode() + b" dog")


def test_a_tokenizer_whose_ids_do_not_spell_text_is_refused(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match="WordLevel") as raised:
        TokenBytes(load_model(tmp_path))
    assert raised.value.hint


def test_every_id_of_a_byte_level_vocabulary_has_its_bytes(tmp_path: Path) -> None:
    model = load_model(twins.added_letters(tmp_path))
    round_trip = RoundTrip(model, TokenBytes(model))
    assert (round_trip.token_bytes.num_bytes > 0).all()
    stored = json.loads(model.files["tokenizer.json"])["model"]["vocab"]
    assert round_trip.decode([stored["Ã"]]) == b"\xc3"
    letters = {token.content: token.id for token in model.added_tokens}
    assert round_trip.decode([letters["ü"]]) == "ü".encode()


@pytest.mark.parametrize("twin", twins.TWINS, ids=lambda twin: twin.__name__)
def test_ids_that_begin_before_a_place_are_counted(twin: Any, tmp_path: Path) -> None:
    """Where ids spell a text byte for byte, an id begins where those before it end."""
    round_trip, encoder = round_trip_and_encoder(twin, tmp_path)
    compared = 0

    @given(texts, st.data())
    def agree(text: str, data: st.DataObject) -> None:
        nonlocal compared
        ids, place = encoder.encode([text])[0].tolist(), data.draw(st.integers(0, len(text)))
        content, at = text.encode(), len(text[:place].encode())
        count = round_trip.num_begun(ids, content, at)
        assert count is not None
        if round_trip.decode(ids) == content:
            starts = np.cumsum([0, *(len(round_trip.decode([i])) for i in ids)])[: len(ids)]
            assert count == sum(start < at for start in starts.tolist())
            compared += 1

    agree()
    assert compared
    assert round_trip.num_begun([0], b"something else", 1) is None
