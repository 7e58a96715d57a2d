"""Blocks as people see them: what a build says of what is cut, and what `inspect` shows of a block."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from command_line import fields, run
from packed_again import packed_again

from packer.pipeline.messages.build_result import BuildResult
from packer.store.manifest import read_manifest
from packer_cli.output import stdout


@pytest.mark.parametrize(("price", "is_told"), [(1.0, False), (1.004, False), (1.5, True)])
def test_rewritten_history_is_reported_where_it_costs_anything(starter_cache, capsys, price, is_told):
    manifest = read_manifest(starter_cache)
    shards = [msgspec.structs.replace(shard, num_last_tokens=0) for shard in manifest.shards]
    shards[0] = msgspec.structs.replace(shards[0], num_last_tokens=round(manifest.totals.tokens / price))
    changed = msgspec.structs.replace(manifest, shards=tuple(shards))
    result = BuildResult(
        folder=Path("cache"), manifest=changed, built=True,
        num_partitions_built=1, num_partitions_reused=0,
    )  # fmt: skip
    stdout().lines(result.lines(1.0))
    printed = capsys.readouterr().out
    assert ("the template rewrites earlier turns" in printed) == ("1.50  times the tokens" in printed) == is_told
    assert all(len(line) <= 80 for line in printed.splitlines() if "rewrites" in line)


def test_what_is_cut_is_reported_by_tokens_and_reason(starter, tmp_path):
    keys = ("-j", "1", "--fail-above", "1", "--block-len", "64")
    told = run("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "again", *keys).stdout
    totals = read_manifest(tmp_path / "again").totals
    trained = totals.cut["overlong"].trained
    assert trained > 0
    share = f"{totals.cut_tokens:,} of {totals.tokens:,} tokens, {trained:,} of them trained"
    expected = f"in no block: {share};\nlisted in"
    assert expected in told
    assert f"  {totals.cut_tokens:,} tokens  overlong  the document is longer than a block" in told
    assert "--set pack.overlong=split cuts documents" not in told, "the warning says it"
    stats = run("stats", tmp_path / "again").stdout
    warning = f"warning: {totals.cut_tokens / totals.tokens:.1%}".replace("%", " %") + " of the tokens are in no block"
    assert told.splitlines()[2].startswith(warning) and stats.startswith(warning)
    assert "\n  --set pack.overlong=split cuts long documents" in told
    assert expected in stats
    rows = tmp_path / "texts.jsonl"
    rows.write_text("".join(json.dumps({"text": "one two three " * (3 + i)}) + "\n" for i in range(20)))
    keys = ("--schema", "text", "--set", "text.append_eos=false", "--block-len", "20", "--set", "pack.overlong=split")
    run("build", rows, "--tokenizer", starter / "tokenizer", "-o", tmp_path / "split", *keys, "-j", "1")
    totals = read_manifest(tmp_path / "split").totals
    stats = run("stats", tmp_path / "split").stdout.split()
    assert stats[stats.index("padding") + 1] == f"{totals.padding:,}"
    assert totals.piece_starts > 0
    assert f"piece starts {totals.piece_starts:,}" in " ".join(stats)


def test_a_script_says_which_share_is_too_much(starter, tmp_path):
    """What is refused has made its documents, which the next build takes."""
    asked = ("build", "-c", starter / "recipe.yaml", "--block-len", "64", "-o")
    for share in ("101%", "-1%", "nan"):
        found = fields(*asked, tmp_path / "refused", "--fail-above", share, exit_code=2)
        assert "expected a share from 0 to 1" in found["error"]["message"]
    for share in ([], ["--fail-above", "62%"], ["--fail-above", "0.62"]):
        found = fields(*asked, tmp_path / "refused", *share, exit_code=1)
        assert "% of the tokens would be in no block" in found["error"]["message"]
        assert not (tmp_path / "refused" / "manifest.json").exists()
    for share in ("99.9%", "1"):
        folder = shutil.copytree(tmp_path / "refused", tmp_path / share)
        found = fields(*asked, folder, "--fail-above", share)
        assert found["left_out"]["tokens"] == found["totals"]["cut"]["overlong"]["tokens"]
        assert found["left_out"]["fits_all"] % 64 == 0 and (folder / "manifest.json").exists()


def test_inspect_shows_the_piece_of_a_document_and_what_is_behind_it(starter_cache, tmp_path):
    packed_again(starter_cache, tmp_path / "split", {"block_len": 64, "overlong": "split"})
    assert "from token" in run("inspect", tmp_path / "split").stdout
    packed_again(starter_cache, tmp_path / "aligned", {"align": 64})
    assert " padding tokens after it" in run("inspect", tmp_path / "aligned").stdout
