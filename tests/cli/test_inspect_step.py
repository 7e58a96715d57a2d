"""`packer inspect --step`, as a person sees them."""

import re
import sys

import pytest
from command_line import assert_refused, fields, run
from rich.cells import cell_len

import packer

STEP = ("--step", 3, "--micro-batch-size", 2)


@pytest.fixture(scope="module")
def cache(starter_cache):
    pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")
    return starter_cache


def test_a_batch_is_shown_with_its_contract_its_columns_and_its_documents(cache):
    page = run("inspect", cache, *STEP).stdout
    assert page.startswith("── step 3, epoch 0 (train) · rank 0 of 1 · micro-batch 0 of 1\n")
    assert page.count("  ✓ ") == 9 and "✗" not in page
    assert re.search(r"input_ids +int64 +\[1, 1024\] ", page)
    found = fields("inspect", cache, *STEP)
    assert found["ok"] and [line["level"] for line in found["batch"]["contract"]] == ["ok"] * 9
    documents = [part for part in found["batch"]["parts"] if part["doc_id"] is not None]
    assert len(documents) > 2
    for number, part in enumerate(documents, 1):
        document = part["document"]
        assert part["doc_id"] == document["doc_id"] and part["length"] == document["length"]
        assert f"── {number}/{len(documents)} {document['source']} row {document['row']} · " in page
        trained = [each["text"] for each in document["runs"] if each["kind"] == "trained"]
        assert trained
        assert all(f"▌ {line}" in page for text in trained for line in text.split("\n"))
    bounds = found["batch"]["columns"]["cu_seq_lens_q"]["values"]
    assert bounds[0] == 0 and bounds[-1] == 1024
    assert "values" not in found["batch"]["columns"]["input_ids"]
    with_ids = fields("inspect", cache, *STEP, "--ids")["batch"]["columns"]
    assert len(with_ids["input_ids"]["values"][0]) == 1024


@pytest.mark.parametrize("batching", ["packed", "padded", "padding_free", "token_budget"])
def test_the_page_of_a_batch_fits_80_columns_but_for_its_texts(cache, batching, terminal):
    options = (*STEP[:3], 600) if batching == "token_budget" else STEP
    page = run("inspect", cache, *options, "--batching", batching).stdout.split("\n── 1/")[0]
    assert page.count("\n") > 15
    assert all(cell_len(line) <= 80 for line in page.splitlines())
    plain = run("inspect", cache, *options, "--batching", batching, env={"PYTHONIOENCODING": "ascii"}).stdout
    assert "\x1b" not in plain


def test_a_batch_that_breaks_the_contract_is_exit_code_1_and_named(cache, monkeypatch):
    from packer.store.numbered_rows import FoundRows

    values = FoundRows.values
    monkeypatch.setattr(
        FoundRows, "values", lambda self, name, *rest: values(self, name.replace("labels", "input_ids"), *rest)
    )
    found = run("inspect", cache, *STEP, exit_code=1)
    assert "  ✗ first targets  " in found.stdout and "  ✓ positions " in found.stdout
    assert "error: " in found.stderr and "breaks the batch contract: first_targets, " in found.stderr
    broken = fields("inspect", cache, *STEP, exit_code=1)
    assert not broken["ok"] and broken["error"]["code"] == "check_failed"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--rank", 1), "--rank goes with --step"),
        (("--step", 0, "--block", 1), "cannot go together"),
        (("--step", 0, "--rank", 3, "--world-size", 2), "no rank 3 of 2"),
        (("--step", 1000), "no step 1000 in epoch 0"),
        (("--step", 0, "--micro-batch-size", 2, "--global-batch-size", 3), "not a positive multiple"),
        (("--step", 0, "--order", "length_bucketed"), "is for documents"),
        (("--step", 0, "--split", "none"), "no blocks of split 'none'"),
    ],
)
def test_options_that_cannot_be_are_refused_with_a_hint(cache, options, words):
    assert_refused(words, "inspect", cache, *options, exit_code=2)


def test_without_torch_a_block_is_shown_and_a_batch_says_what_to_install(starter_cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delattr(packer, "load", raising=False)
    for name in [name for name in sys.modules if name.startswith("packer.load")]:
        monkeypatch.delitem(sys.modules, name)
    assert run("inspect", starter_cache).stdout
    assert_refused("which needs torch", "inspect", starter_cache, "--step", 0, exit_code=2)
    assert 'hint: pip install "token-packer[torch]"' in run("inspect", starter_cache, "--step", 0, exit_code=2).stderr
