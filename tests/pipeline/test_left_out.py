"""What is left out: warned of with the lengths that would keep it, and refused where a script says it is too much."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed_again import packed_again
from shorter_starter import SETTLED, shortened

from packer.audit.stats import stats
from packer.errors import CheckError, NothingKeptError
from packer.pipeline import blocks
from packer.pipeline.from_python import build
from packer.pipeline.messages.build_result import WORTH_A_WARNING
from packer.pipeline.messages.left_out import fitting
from packer.recipe.groups import MAX_BLOCK_LEN
from packer.recipe.recipe import load_recipe
from packer.store.cache import Cache


@pytest.fixture(scope="module")
def starter(starter, tmp_path_factory):
    """The example with 120 rows, of which one is rejected."""
    return shortened(starter, tmp_path_factory.mktemp("short") / "starter", 24)


def one_build(starter, folder, *overrides, **options):
    return build(load_recipe(starter / "recipe.yaml", [*SETTLED, *overrides]), folder, jobs=1, **options)


def any_share(starter, folder, *overrides, **options):
    return one_build(starter, folder, *overrides, fail_above=1.0, **options)


@given(
    lengths=st.lists(
        st.integers(1, 5000) | st.integers(1, 2 * MAX_BLOCK_LEN) | st.integers(1, 9).map(lambda number: 192 * number),
        min_size=1,
        max_size=60,
    ),
    step=st.sampled_from([64, 192]),
)
def test_the_lengths_that_fit_are_the_smallest_that_do(lengths, step):
    fits_all, fits_most = fitting(np.array(lengths, np.int32), step=step)
    for found, share in ((fits_all, 1.0), (fits_most, 0.99)):
        held = [length for length in range(step, max(lengths) + step, step) if length <= MAX_BLOCK_LEN]
        kept = np.array([0, *np.sort(lengths)]).cumsum()
        within = kept[np.searchsorted(np.sort(lengths), held, side="right")]
        enough = np.flatnonzero(within >= share * sum(lengths))
        assert found == (held[enough[0]] if len(enough) else None)


def test_the_length_that_is_proposed_keeps_what_it_says(starter, tmp_path):
    """Of the same documents, packed again with each of the two lengths."""
    made = any_share(starter, tmp_path / "cache", "pack.block_len=128")
    told, tokens = made.left_out, made.manifest.totals.tokens
    assert told == stats(tmp_path / "cache").summary.left_out
    assert told.tokens == made.manifest.totals.cut_tokens == told.share * tokens > WORTH_A_WARNING * tokens
    assert told.fits_all % 64 == 0
    assert any(f"--block-len {told.fits_all} " in way for way in told.ways_out)
    assert any("pack.overlong=split" in way for way in told.ways_out)
    lengths = np.concatenate([Cache.open(tmp_path / "cache").documents(split).lengths() for split in ("train", "eval")])
    for length in (64, told.fits_all - 64, told.fits_all):
        whole = packed_again(tmp_path / "cache", tmp_path / str(length), {"block_len": length})
        cut = whole.manifest.totals.cut_tokens
        assert cut == lengths[lengths > length].sum()
        assert (cut == 0) == (length >= told.fits_all)
        assert (whole.left_out is None) == (cut <= WORTH_A_WARNING * tokens)
    assert not one_build(starter, tmp_path / "cache", "pack.block_len=128").built
    assert one_build(starter, tmp_path / "cache", "pack.block_len=128").left_out == told


def test_what_is_cut_off_has_its_own_way_out(starter, tmp_path):
    told = any_share(starter, tmp_path / "cache", "pack.block_len=128", "pack.overlong=truncate_right").left_out
    assert [each for each in told.ways_out if "pack.overlong=split keeps what is cut off" in each]


def test_rows_that_rules_leave_out_count_for_nothing(starter, tmp_path):
    """Neither in the share that warns and fails, nor in the length that fits."""
    rules = ("filters=[{name: short, of: conversation, chars: {max: 300}}]", "pack.block_len=64")
    made = any_share(starter, tmp_path / "cache", *rules)
    with Cache.open(tmp_path / "cache") as cache:
        lengths = np.concatenate([cache.documents(split).lengths() for split in cache.splits("documents")])
    told, lost = made.left_out, lengths[lengths > 64].sum()
    assert (told.tokens, told.of_tokens, told.share) == (lost, lengths.sum(), lost / lengths.sum())
    assert told.of_tokens < made.manifest.totals.tokens
    assert told.fits_all == -(-lengths.max() // 64) * 64
    lines = [line for line in made.lines(1.0) if "in no block" in line]
    assert len(lines) == 2 and all(f"{told.tokens:,} of {told.of_tokens:,}" in line for line in lines)
    with pytest.raises(CheckError, match=f"{told.tokens:,} of {told.of_tokens:,} tokens"):
        one_build(starter, tmp_path / "other", *rules, fail_above=told.share * 0.99)


def test_more_than_is_allowed_commits_nothing_and_loses_no_work(starter, tmp_path):
    cache = tmp_path / "cache"
    rejected = 1 / 120
    made = one_build(starter, cache, fail_above=rejected)
    before = made.fingerprint
    assert made.manifest.totals.cut_tokens == 0
    with pytest.raises(CheckError, match=r"0.8 % of the rows are rejected \(1 of 120\): 1 multimodal"):
        one_build(starter, cache, fail_above=0.008)  # it is up to date
    with pytest.raises(CheckError, match=r"in no block \([\d,]+ of [\d,]+ tokens\): [\d,]+ overlong"):
        one_build(starter, cache, "pack.block_len=128", fail_above=0.02, force=True)
    again = one_build(starter, cache)
    assert (again.built, again.fingerprint) == (False, before)
    new = tmp_path / "new"
    with pytest.raises(CheckError, match="tokens"):
        one_build(starter, new, "pack.block_len=128", fail_above=0.0)
    assert not (new / "manifest.json").exists()
    other = one_build(starter, new, "pack.block_len=128", fail_above=0.99)
    assert (other.num_partitions_built, other.num_partitions_reused) == (0, 5)


def test_blocks_that_leave_out_more_than_a_tenth_are_not_written_unless_the_share_is_accepted(
    starter, tmp_path, monkeypatch
):
    """The hint's block lengths keep what they say, and no document is made again."""
    keys, writes, write = ("pack.block_len=200",), [], blocks.write_blocks
    monkeypatch.setattr(blocks, "write_blocks", lambda *given, **named: writes.append(1) or write(*given, **named))
    with pytest.raises(CheckError, match=r"\d\d\.\d % of the tokens would be in no block") as caught:
        one_build(starter, tmp_path / "cache", *keys)
    assert not writes and not (tmp_path / "cache" / "manifest.json").exists()
    assert caught.value.hint.endswith("fail_above=1 builds without these tokens")
    lengths = [int(each) for each in re.findall(r"block_len=(\d+)", caught.value.hint)]
    assert lengths
    for length, limit in zip(lengths, (0.0, 0.01), strict=False):  # one length may keep both shares
        fits = one_build(starter, tmp_path / str(length), f"pack.block_len={length}")
        assert fits.manifest.totals.cut_tokens <= limit * fits.manifest.totals.tokens
    accepted = any_share(starter, tmp_path / "cache", *keys)
    assert f"({accepted.left_out.tokens:,} of {accepted.left_out.of_tokens:,} tokens)" in str(caught.value)
    assert accepted.num_partitions_built == 0
    assert not one_build(starter, tmp_path / "cache", *keys).built, "what stands is not asked about again"


def test_the_share_is_that_of_all_groups_although_the_first_may_be_gathered(starter, tmp_path):
    keys = ("pack.block_len=200", "pack.group_documents=20")
    with pytest.raises(CheckError) as caught:
        one_build(starter, tmp_path / "cache", *keys)
    told = any_share(starter, tmp_path / "cache", *keys).left_out
    assert f"({told.tokens:,} of {told.of_tokens:,} tokens)" in str(caught.value)


def test_a_block_length_that_fits_no_document_names_those_that_do(starter, tmp_path):
    for options in ({}, {"fail_above": 1.0}):
        with pytest.raises(NothingKeptError, match="no token would be in a block: 15,124 overlong") as caught:
            one_build(starter, tmp_path / "cache", "pack.block_len=8", **options)
        assert "block_len=448 fits every document" in caught.value.hint
        assert "fail_above" not in caught.value.hint
