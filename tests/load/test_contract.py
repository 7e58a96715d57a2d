"""The batch contract: every batch of the loader keeps it, and each of its lines can fail."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_blocks import PAD_ID, small_cache
from small_documents import small_document_cache
from small_micro_batches import flattened, padded, rows

from packer.load import PackedLoader, Padded, check_batch, shift_labels
from packer.load.adapters import huggingface

CODES = ("dtypes", "shapes", "labels", "shift", "first_targets", "positions", "mask", "padding_targets", "num_items")


def levels_of(found):
    return {line.code: line.level for line in found.lines}


# What the loader gives


@given(
    num_rows=st.integers(3, 30),
    batching=st.sampled_from(
        ["packed", "padded", "padding_free", Padded(side="left"), Padded(multiple_of=8), "token_budget"]
    ),
    flatten=st.booleans(),
    labels=st.sampled_from(["unshifted", "shifted"]),
    world_size=st.integers(1, 3),
    end=st.sampled_from(["pad", "short"]),
)  # fmt: skip
def test_every_step_of_the_loader_keeps_the_contract(num_rows, batching, flatten, labels, world_size, end):
    packed = batching == "packed"
    cache = small_cache(num_rows) if packed else small_document_cache(num_rows)[0]
    size = 24 if batching == "token_budget" else 2
    loaders = [
        PackedLoader(
            cache,
            batching=batching,
            micro_batch_size=size,
            global_batch_size=2 * size * world_size,
            rank=rank,
            world_size=world_size,
            flatten=flatten,
            labels=labels,
            end=end,
            prefetch=0,
        )
        for rank in range(world_size)
    ]
    for steps in zip(*loaders, strict=True):
        whole = [micro_batch for step in steps for micro_batch in step]
        number = steps[0].num_items_in_batch
        found = check_batch(whole, num_items_in_batch=number, pad_id=PAD_ID)
        assert found.failed == (() if number else ("num_items",)), str(found)
        assert [line.code for line in found.lines] == list(CODES)
        assert all(line.level == "ok" for line in found.lines if line.code not in ("mask", "num_items"))


@pytest.mark.parametrize("micro_batch", [flattened([3, 4], padding=2), padded([3, 5]), padded([3, 5], side="left")])
def test_what_a_hugging_face_model_gets_keeps_it_too(micro_batch):
    assert check_batch(huggingface(micro_batch, None, seq_idx="cu_seq_lens_q" in micro_batch), pad_id=PAD_ID).ok
    assert check_batch(shift_labels(micro_batch), pad_id=PAD_ID).ok


def test_arrays_of_numpy_are_taken_as_tensors_are():
    arrays = {name: value.numpy() if hasattr(value, "numpy") else value for name, value in flattened([3, 4]).items()}
    assert str(check_batch(arrays, num_items_in_batch=5)) == str(check_batch(flattened([3, 4]), num_items_in_batch=5))


def test_a_mask_of_four_dimensions_is_not_looked_at():
    explicit = without(rows([3, 2]), "document_ids") | {"attention_mask": torch.zeros(2, 1, 3, 3, dtype=torch.bfloat16)}
    found = check_batch(explicit)
    assert found.ok
    assert levels_of(found)["mask"] == "skipped"


# What each line finds


def changed(micro_batch, **columns):
    return {**micro_batch, **columns}


def at(micro_batch, name, row, slot, value):
    """The micro-batch with one value of a column changed."""
    column = micro_batch[name].clone()
    column[row, slot] = value
    return {**micro_batch, name: column}


def without(micro_batch, *names):
    return {name: value for name, value in micro_batch.items() if name not in names}


FLAT = flattened([4, 3], padding=3)  # slots 0-3, 4-6, and 7-9 of padding
ROWS = rows([3, 2])
RIGHT = padded([5, 3])  # slots 3-4 of row 1 are padding
LEFT = padded([5, 3], side="left")  # slots 0-1 of row 1 are
BY_POSITIONS = {name: FLAT[name] for name in ("input_ids", "labels", "position_ids")}
IDS = FLAT["input_ids"]
WRONG = {
    "dtypes": [
        changed(FLAT, labels=FLAT["labels"].int()),
        changed(FLAT, input_ids=IDS.float()),
        changed(FLAT, cu_seq_lens_q=FLAT["cu_seq_lens_q"].long(), cu_seq_lens_k=FLAT["cu_seq_lens_k"].long()),
        changed(FLAT, max_length_q=4.0),
        changed(RIGHT, attention_mask=RIGHT["attention_mask"].float()),
        changed(FLAT, labels=FLAT["labels"].tolist()),
    ],
    "shapes": [
        changed(FLAT, labels=FLAT["labels"][:, 1:]),
        changed(FLAT, cu_seq_lens_q=torch.tensor([0, 4, 7], dtype=torch.int32)),
        changed(FLAT, cu_seq_lens_q=torch.tensor([0, 7, 4, 10], dtype=torch.int32)),
        changed(FLAT, max_length_q=3),
        changed(FLAT, max_length_q=11),
        changed(ROWS, cu_seq_lens_q=torch.tensor([0, 3, 5], dtype=torch.int32)),
        {name: value[0] for name, value in BY_POSITIONS.items()},
        changed(FLAT, cu_seq_lens_k=torch.tensor([0, 5, 7, 10], dtype=torch.int32), max_length_k=5),
        without(FLAT, "labels"),
        without(FLAT, "cu_seq_lens_q") | {"cu_seq_lens_k": torch.tensor([1, 10], dtype=torch.int32)},
    ],
    "labels": [
        at(FLAT, "labels", 0, 2, 60),
        at(ROWS, "labels", 1, 1, 61),
        at(RIGHT, "labels", 0, 4, -1),
        changed(FLAT, labels=torch.where(FLAT["labels"] == -100, -100, 7 + IDS)),
        at(shift_labels(FLAT), "shift_labels", 0, 9, 5),
    ],
    "shift": [
        without(FLAT, "labels") | {"labels": shift_labels(FLAT)["shift_labels"]},
        without(RIGHT, "labels") | {"labels": shift_labels(RIGHT)["shift_labels"]},
        without(FLAT, "labels") | {"shift_labels": FLAT["labels"]},
        {**shift_labels(FLAT), "labels": FLAT["labels"]},
        without(ROWS, "labels") | {"shift_labels": shift_labels({"labels": shift_labels(ROWS)["shift_labels"]})["shift_labels"]},
    ],
    "first_targets": [
        at(FLAT, "labels", 0, 4, IDS[0, 4]),
        at(BY_POSITIONS, "labels", 0, 4, IDS[0, 4]),
        at(ROWS, "labels", 1, 3, ROWS["input_ids"][1, 3]),
        at(LEFT, "labels", 1, 2, LEFT["input_ids"][1, 2]),
        at(shift_labels(FLAT), "shift_labels", 0, 3, IDS[0, 4]),
    ],
    "positions": [
        changed(FLAT, position_ids=torch.arange(10)[None]),
        at(FLAT, "position_ids", 0, 5, 0),
        changed(ROWS, position_ids=ROWS["position_ids"] + 1),
        changed(LEFT, position_ids=torch.arange(5).expand(2, 5)),
        at(BY_POSITIONS, "position_ids", 0, 0, 3),
        changed(without(FLAT, "cu_seq_lens_q", "cu_seq_lens_k"), seq_idx=torch.zeros(1, 10, dtype=torch.int32)),
    ],
    "mask": [
        at(RIGHT, "attention_mask", 1, 1, 2),
        at(without(RIGHT, "labels", "position_ids") | {"labels": RIGHT["labels"] * 0 - 100}, "attention_mask", 0, 2, 0),
        changed(FLAT, attention_mask=torch.ones(1, 10, dtype=torch.int64)),
        changed(without(RIGHT, "position_ids"), attention_mask=torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]), labels=torch.full((2, 5), -100)),
        changed(LEFT, attention_mask=torch.tensor([[0, 1, 1, 1, 1], [0, 0, 1, 1, 1]]), labels=torch.full((2, 5), -100), position_ids=torch.tensor([[0, 0, 1, 2, 3], [0, 0, 0, 1, 2]])),
        changed(BY_POSITIONS, attention_mask=torch.ones(1, 10, dtype=torch.int64)),
    ],
    "padding_targets": [
        at(FLAT, "labels", 0, 8, 0),
        at(RIGHT, "labels", 1, 4, 0),
        at(LEFT, "labels", 1, 1, 0),
        at(BY_POSITIONS, "labels", 0, 9, 0),
        at(shift_labels(FLAT), "shift_labels", 0, 7, 0),
        at(ROWS | {"input_ids": torch.where(ROWS["document_ids"] == 3, 0, ROWS["input_ids"])}, "labels", 1, 4, 0),
    ],
}  # fmt: skip


FOLLOWS = {
    "shift": {"first_targets", "padding_targets"},  # what is shifted twice crosses boundaries
    "positions": {"first_targets"},  # where positions alone say what a sequence is
    "mask": {"first_targets", "positions"},  # where the mask does
}


@pytest.mark.parametrize(("code", "number"), [(code, number) for code in WRONG for number in range(len(WRONG[code]))])
def test_a_wrong_batch_fails_the_line_that_is_about_it_and_what_follows_alone(code, number):
    micro_batch = WRONG[code][number]
    found = check_batch(micro_batch, pad_id=PAD_ID)
    assert code in found.failed, str(found)
    assert {*found.failed} - {code} <= FOLLOWS.get(code, set()), str(found)
    again = check_batch([FLAT, micro_batch], pad_id=PAD_ID)
    assert again.failed == found.failed
    assert "micro-batch 1: " in next(line.message for line in again.lines if line.code == code)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [(FLAT, 6), (FLAT, 10), ([FLAT, ROWS], 10), (RIGHT, 6.01), (changed(FLAT, labels=torch.full((1, 10), -100)), 0)],
)
def test_sums_other_than_what_the_loss_is_divided_by_fail(batch, expected):
    assert check_batch(batch, num_items_in_batch=expected).failed == ("num_items",)


def test_each_line_was_made_to_fail_by_five_batches_and_the_right_ones_pass():
    assert {*WRONG, "num_items"} == set(CODES)
    assert all(len(batches) >= 5 for batches in WRONG.values())
    for right, number in ((FLAT, 5), (ROWS, 6), (RIGHT, 6), (LEFT, 6), (BY_POSITIONS, 5), (shift_labels(FLAT), 5)):
        assert check_batch(right, num_items_in_batch=number, pad_id=PAD_ID).ok


def test_a_label_on_the_first_token_of_a_row_is_no_target_and_is_not_counted():
    whole = at(FLAT, "labels", 0, 0, IDS[0, 0])
    assert check_batch(whole, num_items_in_batch=5, pad_id=PAD_ID).ok


@pytest.mark.parametrize("nothing", [{}, [], [1], {"labels": IDS}, [FLAT, {}]])
def test_what_is_no_batch_is_refused(nothing):
    with pytest.raises(ValueError, match="input_ids"):
        check_batch(nothing)


# Other collators

EXAMPLES = [
    {"input_ids": [11, 12, 13, 14], "labels": [-100, 12, 13, 14]},
    {"input_ids": [15, 16], "labels": [-100, 16]},
]


@pytest.mark.parametrize("flash", [False, True])
def test_transformers_flattening_collator_keeps_the_contract(flash):
    transformers = pytest.importorskip("transformers")
    collator = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=flash, return_seq_idx=flash)
    assert check_batch(collator(EXAMPLES), num_items_in_batch=4).ok
    unmarked = transformers.DataCollatorWithFlattening(separator_id=11, return_flash_attn_kwargs=flash)
    found = check_batch(unmarked([{"input_ids": [11, 12]}, {"input_ids": [11, 13]}]))
    assert found.failed == ("first_targets",), str(found)


def test_a_wrong_first_label_is_named_with_its_place():
    found = check_batch(at(FLAT, "labels", 0, 4, IDS[0, 4]))
    message = next(line.message for line in found.lines if line.code == "first_targets")
    assert "row 0, slot 4" in message
    assert "✗ first_targets" in str(found)
    assert np.count_nonzero([line.level == "failure" for line in found.lines]) == 1


# Found by trying to break it


def of(ids, **columns):
    return {"input_ids": np.array([ids]), "labels": np.array([[-100, *ids[1:]]])} | columns


def test_a_line_is_looked_at_in_every_micro_batch_though_the_first_has_nothing_of_it():
    first, second = of([5, 6]), of([5, 6], position_ids=np.array([[1, 2]]))
    assert check_batch([first, second]).failed == ("positions",)
    assert levels_of(check_batch([of([5, 6], position_ids=np.array([[0, 1]])), first]))["positions"] == "skipped"


def test_columns_of_none_are_absent():
    names = ("position_ids", "attention_mask", "shift_labels", "cu_seq_lens_q", "max_length_q", "document_ids")
    found = check_batch(of([5, 6], **dict.fromkeys(names)), num_items_in_batch=1)
    assert found.ok, str(found)


@pytest.mark.parametrize(
    "columns",
    [
        {"document_ids": [[0, 0, 0, 1]], "cu_seq_lens_q": [0, 2, 4]},
        {"document_ids": [[0, 0, 1, 1]], "seq_idx": [[0, 0, 0, 1]]},
        {"document_ids": [[0, 1, 1, 0]]},
    ],
)
def test_numbers_of_sequences_agree_with_boundaries_and_do_not_come_back(columns):
    batch = of([5, 6, 7, 8], **{name: np.array(value, np.int32) for name, value in columns.items()})
    batch["labels"] = np.array([[-100, -100, -100, -100]])
    assert check_batch(batch).failed == ("shapes",)


@pytest.mark.parametrize("padding", [-1, 3])
def test_numbers_of_padding_may_come_back(padding):
    numbers = np.array([[padding, 0, 0, padding, 1, 1, padding]], np.int32)
    batch = of([9, 5, 6, 9, 7, 8, 9], document_ids=numbers)
    batch["labels"] = np.array([[-100, -100, 6, -100, -100, 8, -100]])
    assert check_batch(batch, pad_id=9).ok


def test_a_check_is_true_where_the_contract_holds():
    ids, positions = np.array([[5, 6, 7, 8]]), np.array([[0, 1, 0, 1]])
    labels = np.array([[-100, 6, -100, 8]])
    assert check_batch({"input_ids": ids, "labels": labels, "position_ids": positions})
    assert not check_batch({"input_ids": ids, "labels": ids, "position_ids": positions})
