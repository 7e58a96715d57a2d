"""The schema tokens: rows that bring their ids, and what they say is trained."""

import json
import shutil

import numpy as np
import pytest
from export.readers import cache_documents
from hypothesis import given
from hypothesis import strategies as st
from task_pages import python_of
from tokenizers import Tokenizer

from packer.pipeline.plan.inputs import detected_schema
from packer.rejections import CODES
from packer.source.decode import Refused
from packer.source.schema import read_row
from packer.source.tokens import LABEL_FIELDS

IDS = [5, 6, 7, 8]


def test_ids_and_labels_are_taken_as_they_are(sample):
    row = sample({"input_ids": IDS, "labels": [-100, 6, -100, 8], "id": "a"}, "tokens")
    assert (row.kind, row.row, row.sample_id) == ("tokens", 7, "a")
    assert row.pretokenized.input_ids.tolist() == IDS and row.pretokenized.input_ids.dtype == np.int32
    assert row.pretokenized.trained.tolist() == [0, 1, 0, 1] and row.pretokenized.by_labels


@pytest.mark.parametrize(
    "name", ["loss_mask", "assistant_masks", "completion_mask", "response_mask", "loss_weights", "weights"]
)
def test_masks_of_known_names_say_what_is_trained(sample, name):
    for mask in ([0, 1, 0, 1], [False, True, False, True], [0.0, 1.0, 0.0, 1.0], np.array([0, 1, 0, 1], np.float32)):
        tokens = sample({"input_ids": IDS, name: mask}, "tokens").pretokenized
        assert tokens.trained.tolist() == [0, 1, 0, 1] and not tokens.by_labels


@pytest.mark.parametrize(
    ("fields", "trained"),
    [
        # a token is trained where all that the row has say so
        ({"labels": [-100, 6, 7, 8], "assistant_masks": [1, 1, 0, 1]}, [0, 1, 0, 1]),
        ({"completion_mask": [0, 0, 1, 1], "assistant_masks": [1, 1, 0, 1]}, [0, 0, 0, 1]),
        ({"labels": [-100, 6, 7, -100], "weights": [1, 1.0, 0, 1]}, [0, 1, 0, 0]),
        ({"labels": np.array([-100, 6, 7, 8], np.int32), "weights": np.ones(4)}, [0, 1, 1, 1]),
        ({"response_mask": "[1, 0]", "response_length": "2", "labels": ""}, [0, 0, 1, 0]),  # cells of CSV
        ({"labels": None, "loss_mask": [0, 0, 0, 1], "weights": None, "attention_mask": None}, [0, 0, 0, 1]),
        # positions that run on are one document
        ({"loss_mask": [0, 0, 0, 1], "position_ids": [0, 1, 2, 3], "seq_lengths": [4]}, [0, 0, 0, 1]),
        ({"loss_mask": [0, 0, 0, 1], "attention_mask": [0, 0, 1, 1], "position_ids": [1, 1, 0, 1]}, [0, 1]),
        ({"loss_mask": [0, 0, 0, 1], "attention_mask": [1, 1, 1, 1]}, [0, 0, 0, 1]),
    ],
)
def test_a_token_is_trained_where_all_that_its_row_says_is_yes(sample, fields, trained):
    assert sample({"input_ids": IDS, **fields}, "tokens").pretokenized.trained.tolist() == trained


def test_columns_name_a_mask_or_say_that_every_token_is_trained(sample):
    for columns, trained in (({"loss_mask": "own"}, [0, 1, 1, 0]), ({"labels": "input_ids"}, [1, 1, 1, 1])):
        row = {"input_ids": IDS, "own": [0, 1, 1, 0]}
        assert sample(row, "tokens", {"input_ids": "input_ids", **columns}).pretokenized.trained.tolist() == trained


def test_a_mask_of_the_response_alone_is_taken_where_the_row_says_how_long_that_is(sample, refusal):
    """As slime keeps it: tokens of prompt and response, and a mask as long as `response_length`."""
    row = {"tokens": IDS, "response_length": 2, "loss_mask": [1, 0]}
    assert sample(row, "tokens", {"input_ids": "tokens"}).pretokenized.trained.tolist() == [0, 0, 1, 0]
    whole = {**row, "loss_mask": [0, 1, 1, 0]}
    assert sample(whole, "tokens", {"input_ids": "tokens"}).pretokenized.trained.tolist() == [0, 1, 1, 0]
    for wrong in (1, 3, 5, -2):
        assert refusal({**row, "response_length": wrong}, "tokens", {"input_ids": "tokens"})[0] == "lengths_differ"


def test_padding_before_and_behind_the_tokens_is_cut_off(sample):
    tokens = sample(
        {"input_ids": [0, 0, 5, 6, 0], "labels": [-100, -100, -100, 6, -100], "attention_mask": [0, 0, 1, 1, 0]},
        "tokens",
    ).pretokenized
    assert tokens.input_ids.tolist() == [5, 6] and tokens.trained.tolist() == [0, 1]
    assert tokens.num_padding == 2
    row = {"input_ids": [-1, 5, 6], "labels": [-100, 5, 6], "attention_mask": [0, 1, 1]}
    assert sample(row, "tokens").pretokenized.input_ids.tolist() == [5, 6], "padding need not be a token"


MASK = [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        (
            {},
            ("no_labels", "neither labels nor a mask: none of " + ", ".join(LABEL_FIELDS)),
        ),
        ({"labels": [-100, 6, 7]}, ("lengths_differ", "`labels` has 3 entries, but `input_ids` has 4")),
        ({"loss_mask": [1, 1]}, ("lengths_differ", "`loss_mask` has 2 entries, but `input_ids` has 4")),
        ({"loss_mask": MASK, "weights": [1.0]}, ("lengths_differ", "`weights` has 1 entries, but `input_ids` has 4")),
        (
            {"labels": [6, 7, 8, -100]},
            ("labels_shifted", ("labels[t] is input_ids[t + 1]; expected labels that are not shifted: labels[t] is "
             "input_ids[t]")),
        ),
        (
            {"labels": [-100, 7, 8, 2]},
            ("labels_shifted", ("labels[t] is input_ids[t + 1]; expected labels that are not shifted: labels[t] is "
             "input_ids[t]")),
        ),
        ({"labels": [-100, 6, 9, 8]}, ("labels_differ", "labels[2] is 9, but input_ids[2] is 7")),
        ({"labels": [-100, -100, -100, 0]}, ("labels_differ", "labels[3] is 0, but input_ids[3] is 8")),
        ({"loss_mask": [0, 1, 2, 1]}, ("bad_mask", "loss_mask[2] is 2; expected 0 or 1")),
        ({"loss_mask": [0, 1, -1, 1]}, ("bad_mask", "loss_mask[2] is -1; expected 0 or 1")),
        (
            {"loss_mask": MASK, "attention_mask": [1, 0, 1, 1]},
            ("bad_mask", "`attention_mask` is 0 between tokens; padding belongs before or after them"),
        ),
        ({"loss_mask": MASK, "attention_mask": [0] * 4}, ("empty", "`attention_mask` calls all tokens padding")),
        (
            {"loss_mask": MASK, "attention_mask": [1, 1, 2, 2]},
            ("already_packed", "`attention_mask` numbers several documents"),
        ),
        (
            {"loss_mask": MASK, "position_ids": [0, 1, 0, 1]},
            ("already_packed", "`position_ids` do not run on at token 2: several documents"),
        ),
        ({"loss_mask": MASK, "seq_lengths": [2, 2]}, ("already_packed", "`seq_lengths` names 2 documents")),
        ({"weights": [0, 1.5, 1, 1]}, ("bad_mask", "weights[1] is 1.5; expected 0 or 1")),
        ({"labels": IDS, "loss_weights": [0, 1, 1, 0.5]}, ("bad_mask", "loss_weights[3] is 0.5; expected 0 or 1")),
        ({"loss_mask": [0, 1, 1, 0.5]}, ("bad_mask", "loss_mask[3] is 0.5; expected 0 or 1")),
        ({"labels": [-100, 6, 7, None]}, ("wrong_type", "expected `int`, got `null` at $.labels[3]")),
        ({"labels": [-100, 6, 7, 2**70]}, ("wrong_type", "a number is out of range at $.labels")),
        ({"labels": "5 6 7 8"}, ("not_json", "the JSON in field `labels`: trailing characters near byte 3")),
    ],
)  # fmt: skip
def test_a_row_that_does_not_say_clearly_what_is_trained_is_refused(refusal, fields, refused):
    assert refusal({"input_ids": IDS, **fields}, "tokens") == refused


@pytest.mark.parametrize(
    ("ids", "refused"),
    [
        ([], ("empty", "`input_ids` is empty")),
        ([5, True], ("wrong_type", "expected `int`, got `bool` at $.input_ids[1]")),
        ([5, 6.0], ("wrong_type", "expected `int`, got `float` at $.input_ids[1]")),
        ([5, "6"], ("wrong_type", "expected `int`, got `str` at $.input_ids[1]")),
        ([[5, 6]], ("wrong_type", "expected `int`, got `array` at $.input_ids[0]")),
        ([5, 2**64], ("wrong_type", "a number is out of range at $.input_ids")),
        ([5, -1], ("unknown_token", "input_ids[1] is -1; ids are not negative")),
    ],
)
def test_ids_are_whole_numbers_of_a_vocabulary(refusal, ids, refused):
    assert refusal({"input_ids": ids, "loss_mask": [1] * len(ids)}, "tokens") == refused


def test_an_id_beyond_32_bits_stays_beyond_every_vocabulary(sample):
    tokens = sample({"input_ids": [5, 2**32 + 5], "loss_mask": [0, 1]}, "tokens").pretokenized
    assert tokens.input_ids.tolist() == [5, 2**31 - 1]


def detected(folder, *rows):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return detected_schema(path, format="jsonl", columns={})


def test_ids_with_a_word_on_what_is_trained_go_before_the_messages_they_came_from(tmp_path):
    messages = {"messages": [{"role": "user", "content": "q"}]}
    for mark in LABEL_FIELDS:
        assert detected(tmp_path, {"input_ids": IDS, mark: MASK, **messages}) == "tokens"
    assert detected(tmp_path, {"input_ids": IDS, **messages}) == "messages"
    assert detected(tmp_path, {"input_ids": IDS, "text": "q"}) == "text"
    assert detected(tmp_path, {"input_ids": IDS, "attention_mask": [1] * 4}) == "tokens", "to be told what is missing"


NUMBER = st.one_of(st.integers(-2, 9), st.sampled_from([-100, 2**31, 2**63, -(2**64), 10**400, 0.5, -0.0, True, None]))
VALUE = st.one_of(st.lists(NUMBER, max_size=5), NUMBER, st.text(max_size=2), st.lists(st.lists(NUMBER, max_size=2)))
NAMES = ["labels", *LABEL_FIELDS, "attention_mask", "response_length", "position_ids", "seq_lengths", "messages", "id"]


@given(st.dictionaries(st.sampled_from(NAMES), VALUE, max_size=4), st.lists(NUMBER, max_size=5))
def test_whatever_a_row_holds_it_is_a_sample_or_has_a_reason(fields, ids):
    for flat in (fields, {name: value for name, value in fields.items() if isinstance(value, list)}):
        try:
            tokens = read_row({"input_ids": ids, **flat}, number=0, schema="tokens", columns={}).pretokenized
        except Refused as refused:
            assert refused.code in CODES and len(refused.reason) < 300
        else:
            assert 0 < len(tokens.input_ids) == len(tokens.trained) <= len(ids)
            assert tokens.input_ids.min() >= 0 and tokens.trained.dtype == np.bool_


def test_the_page_gives_texts_to_fill_in_as_ids_of_their_marks(starter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(starter / "tokenizer", "YOUR_MODEL")
    backend = Tokenizer.from_file("YOUR_MODEL/tokenizer.json")
    backend.add_tokens(["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"])
    backend.save("YOUR_MODEL/tokenizer.json")
    exec(python_of("token-rows.md")[0], {})
    ((ids, labels),) = cache_documents(tmp_path / "cache", "train")
    whole = "<|fim_prefix|>def one():\n    <|fim_suffix|>\n<|fim_middle|>return 1<|endoftext|>"
    assert backend.decode(ids, skip_special_tokens=False) == whole
    assert {*map(backend.token_to_id, ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"))} < {*ids}
    assert labels[1:] == ids[1:] and len(ids) > 6
