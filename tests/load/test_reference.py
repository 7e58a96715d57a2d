"""Reference log-probabilities in a file: filled once, resumed where filling stopped, refused where they are others'."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from preference_rows import built, pair, rated  # noqa: E402

from packer import repack_cache  # noqa: E402
from packer.errors import CheckError, InputError, UsageError  # noqa: E402
from packer.load import fill_reference, read_reference  # noqa: E402
from packer.load.preference import padded_rows  # noqa: E402
from packer.store.cache import Cache  # noqa: E402


@pytest.fixture(scope="module")
def pairs(starter, tmp_path_factory):
    return built(tmp_path_factory.mktemp("pairs") / "cache", [pair(n) for n in range(20)], starter / "tokenizer")


def by_ids(batch):
    """No model, but a number for each row that its trained tokens decide."""
    return -(batch["input_ids"] * batch["completion_mask"]).sum(-1) / 7


def expected_of(cache):
    documents = Cache.open(cache).documents("train")
    each = [documents.read(number) for number in range(len(documents))]
    sums = np.array([-document.labels[document.labels != -100].sum() / 7 for document in each], np.float32)
    return sums[0::2], sums[1::2]


class Stopping:
    """A function that fails after some batches, as a machine that is taken away."""

    def __init__(self, after):
        self.left = after
        self.rows = 0

    def __call__(self, batch):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.rows += len(batch["input_ids"])
        return by_ids(batch)


def test_filling_goes_on_where_it_stopped_and_no_pair_is_computed_twice(pairs, tmp_path):
    path, rows = tmp_path / "reference", 0
    for after in (2, 0, 1):
        stopping = Stopping(after)
        with pytest.raises(KeyboardInterrupt):
            fill_reference(pairs, path, stopping, model="m", batch_size=3)
        rows += stopping.rows
        part = read_reference(pairs, path)
        assert part.num_missing == 20 - rows // 2 > 0
        with pytest.raises(UsageError, match=f"{part.num_missing} of 20 pairs have no reference"):
            part.check(Cache.open(pairs).documents("train"))
    rest = Stopping(9)
    found = fill_reference(pairs, path, rest, model="m", batch_size=3)
    assert rows + rest.rows == 40
    chosen, rejected = expected_of(pairs)
    assert found.chosen.dtype == found.rejected.dtype == np.float32
    np.testing.assert_array_equal(found.chosen, chosen)
    np.testing.assert_array_equal(found.rejected, rejected)
    again = fill_reference(pairs, path, Stopping(0), model="m")
    assert again.model == "m" and again.num_missing == 0


def test_ranks_fill_one_file_with_the_values_of_one(pairs, tmp_path):
    for rank in (1, 2, 0):
        found = fill_reference(pairs, tmp_path / "r", by_ids, model="m", batch_size=2, rank=rank, world_size=3)
    fill_reference(pairs, tmp_path / "one", by_ids, model="m")
    assert found.num_missing == 0
    assert (tmp_path / "r").read_bytes() == (tmp_path / "one").read_bytes()


def test_a_file_whose_filling_ended_before_it_had_its_size_is_filled(pairs, tmp_path):
    path = tmp_path / "reference"
    fill_reference(pairs, path, by_ids, model="m")
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"\n") + 1])
    fill_reference(pairs, path, by_ids, model="m")
    assert path.read_bytes() == content


def test_flipping_any_byte_of_the_file_is_detected(pairs, tmp_path):
    path = tmp_path / "reference"
    fill_reference(pairs, path, by_ids, model="m")
    content = path.read_bytes()
    begin = content.index(b"\n") + 1
    for at in [*range(0, begin, 37), *range(begin, len(content), 5)]:
        changed = bytearray(content)
        changed[at] ^= 4
        path.write_bytes(changed)
        with pytest.raises(CheckError):
            read_reference(pairs, path)
    moved = content[:begin] + content[begin + 16 : begin + 32] + content[begin : begin + 16] + content[begin + 32 :]
    for other in (moved, content[:-16], content + content[-16:], b""):
        path.write_bytes(other)
        with pytest.raises(CheckError):
            read_reference(pairs, path)


def test_values_of_other_documents_or_of_another_model_are_refused(pairs, starter, tmp_path):
    path = tmp_path / "reference"
    fill_reference(pairs, path, by_ids, model="m")
    others = built(tmp_path / "others", [pair(n + 1) for n in range(20)], starter / "tokenizer")
    fewer = built(tmp_path / "fewer", [pair(n) for n in range(19)], starter / "tokenizer")
    for cache in (others, fewer):
        with pytest.raises(CheckError, match="other documents"):
            read_reference(cache, path)
        with pytest.raises(CheckError, match="other documents"):
            fill_reference(cache, path, by_ids, model="m")
    with pytest.raises(UsageError, match="of the model 'm'; expected 'n'"):
        fill_reference(pairs, path, by_ids, model="n")
    repack_cache(pairs, tmp_path / "packed", {"block_len": 512})
    assert read_reference(tmp_path / "packed", path).num_missing == 0  # the same documents in other blocks
    with pytest.raises(InputError, match="fill_reference makes it"):
        read_reference(pairs, tmp_path / "nothing")
    answers = built(tmp_path / "answers", [rated(n) for n in range(4)], starter / "tokenizer")
    with pytest.raises(UsageError, match="rated answers"):
        fill_reference(answers, path, by_ids, model="m")


@pytest.mark.parametrize("form", [torch.Tensor.tolist, torch.Tensor.numpy, lambda found: found.chunk(2)])
def test_log_probabilities_may_be_numbers_or_a_tensor_for_each_side(form, pairs, tmp_path):
    found = fill_reference(pairs, tmp_path / "file", lambda batch: form(by_ids(batch)), model="m", batch_size=3)
    for values, expected in zip((found.chosen, found.rejected), expected_of(pairs), strict=True):
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    ("logps", "reason"),
    [
        (lambda batch: -by_ids(batch), "at most 0"),
        (lambda batch: by_ids(batch) * float("nan"), "finite"),
        (lambda batch: by_ids(batch)[:-1], "expected"),
        (lambda batch: -batch["completion_mask"], "expected"),
        (lambda batch: by_ids(batch).view(2, -1).T.tolist(), "expected"),
        (lambda batch: by_ids(batch).split([1, 7]), "both sides of 4 pairs"),
        (lambda batch: None, "both sides of 4 pairs"),
    ],
)
def test_what_is_no_log_probability_is_refused(logps, reason, pairs, tmp_path):
    with pytest.raises(UsageError, match=reason):
        fill_reference(pairs, tmp_path / "reference", logps, model="m", batch_size=4)
    assert read_reference(pairs, tmp_path / "reference").num_missing == 20


@given(st.lists(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1), min_size=1), st.integers(1, 5))
def test_padded_rows_hold_their_tokens_and_nothing_else(rows, multiple_of):
    ids = [np.array([token for token, _ in row], np.int32) for row in rows]
    trained = [np.array([mask for _, mask in row]) for row in rows]
    batch = padded_rows(ids, trained, pad_id=0, multiple_of=multiple_of)
    width = batch["input_ids"].shape[1]
    assert width % multiple_of == 0 and width - max(map(len, rows)) < multiple_of
    for row, found in enumerate(zip(*(batch[name].tolist() for name in batch), strict=True)):
        padding = [(0, 0, 0)] * (width - len(rows[row]))
        assert list(zip(*found, strict=True)) == [(token, 1, int(mask)) for token, mask in rows[row]] + padding
