"""Packing: every mode, checked literally; other blocks of the same documents; nothing lost whatever happens."""

import shutil
from pathlib import Path

import msgspec
import pytest
from packed_again import packed_again
from packed_caches import check_packing, table
from shorter_starter import SETTLED
from watched_builds import Notes, digests

from packer.audit.verify import verify
from packer.errors import CheckError, NothingKeptError, RecipeError, StorageError
from packer.pipeline import commit, run
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe
from packer.store.manifest import read_manifest, write_manifest


@pytest.fixture(scope="module")
def mixed_cache(starter, tmp_path_factory):
    """Chats of one turn and of two, and plain text that ends without an EOS."""
    turns = [
        {"role": "user", "content": "count"},
        {"role": "assistant", "content": "one two three"},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": "one two three four five"},
    ]
    chats = [{"messages": turns[: 2 + 2 * (i % 2)]} for i in range(12)]
    rows = {"chats": chats, "texts": [{"text": "a b c d e " * (i + 1)} for i in range(30)]}
    folder = tmp_path_factory.mktemp("mixed")
    for name, own in rows.items():
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, own)))
    rules = {"text": {"append_eos": False}, "pack": {"mode": "none"}, "fail_above": 1}
    files = [folder / f"{name}.jsonl" for name in rows]
    return build(files, folder / "cache", tokenizer=starter / "tokenizer", jobs=1, progress=None, **rules).folder


MODES = [
    {"mode": "isolated"},
    {"mode": "isolated", "overlong": "split"},
    {"mode": "isolated", "overlong": "truncate_right"},
    {"mode": "isolated", "overlong": "split", "align": 16},
    {"mode": "stream"},
    {"mode": "stream", "group_documents": 40, "seed": 5},
]


@pytest.mark.parametrize(
    ("which", "pack"),
    [
        pytest.param(
            which, pack, id=f"{which}-{'-'.join(map(str, pack.values()))}", marks=[pytest.mark.slow] * is_other
        )
        for number, pack in enumerate(MODES)
        for which, is_other in (("of_few_rows", number % 2), ("mixed_cache", 1 - number % 2))
    ],
)
def test_every_token_is_in_one_block_or_in_the_ledger_and_no_target_crosses_a_border(which, pack, request, tmp_path):
    cache = request.getfixturevalue(which)
    packed_again(cache, tmp_path / "again", {"block_len": 64, **pack})
    num_blocks, num_pieces, num_parts = check_packing(tmp_path / "again")
    assert num_blocks > 3 and num_pieces >= num_blocks
    assert (num_parts > 0) >= (pack.get("overlong", "").startswith("trunc") and which == "of_few_rows")
    report = verify(tmp_path / "again", level="full")
    assert report.ok, report.findings


@pytest.mark.parametrize(
    ("block_len", "mode"),
    [(length, mode) for length in (2, 30_000) for mode in ("isolated", "stream")]
    + [pytest.param(1_048_576, mode, marks=pytest.mark.slow) for mode in ("isolated", "stream")],
)
def test_blocks_may_be_very_short_or_very_long(mode, block_len, mixed_cache, tmp_path):
    overlong = {} if mode == "stream" else {"overlong": "split"}
    packed_again(mixed_cache, tmp_path / "again", {"block_len": block_len, "mode": mode, **overlong})
    num_blocks, _, _ = check_packing(tmp_path / "again")
    assert num_blocks == 1 if block_len > 1000 else num_blocks > 500


def test_blocks_of_one_token_hold_no_target_and_are_refused(mixed_cache, tmp_path):
    for pack in ({"overlong": "split"}, {"mode": "stream"}):
        folder = tmp_path / pack.get("mode", "isolated")
        with pytest.raises(NothingKeptError, match="nothing is trained in a piece"):
            packed_again(mixed_cache, folder, {"mode": "isolated", "block_len": 1, **pack})
        assert digests(folder) == digests(mixed_cache), "what was there stays"


FEW = ("sources.limit=4", *SETTLED)

BUILT = [
    ["pack.block_len=96", "pack.overlong=split"],
    ["pack.mode=stream", "pack.seed=3", "shard_bytes=40KiB"],
    ["pack.align=32", "pack.overlong=truncate_right", "pack.block_len=128", "pack.pad_id=5"],
    ["pack.mode=none"],
    ["pack.mode=isolated"],
]


@pytest.fixture(scope="module")
def of_few_rows(starter, tmp_path_factory):
    recipe = load_recipe(starter / "recipe.yaml", FEW)
    return build(recipe, tmp_path_factory.mktemp("few") / "cache", jobs=1).folder


@pytest.mark.parametrize("keys", BUILT, ids=" ".join)
def test_other_rules_of_packing_make_the_bytes_of_a_new_build_and_no_document(keys, starter, of_few_rows, tmp_path):
    recipe = load_recipe(starter / "recipe.yaml", [*FEW, *keys])
    built = build(recipe, tmp_path / "built", jobs=1, fail_above=1)
    again = packed_again(of_few_rows, tmp_path / "again", {}, keys)
    assert digests(tmp_path / "again") == digests(tmp_path / "built")
    assert again.fingerprint == built.fingerprint
    assert not build(recipe, tmp_path / "again", jobs=1, fail_above=1).built, "a build finds nothing to do"


def test_a_pad_outside_of_the_vocabulary_is_refused_and_touches_nothing(starter, starter_cache, tmp_path):
    cache = Path(shutil.copytree(starter_cache, tmp_path / "cache"))
    with pytest.raises(RecipeError, match=r"pack.pad_id 9999999: the vocabulary ends at") as caught:
        build(load_recipe(starter / "recipe.yaml", ["pack.pad_id=9999999"]), cache, jobs=1, force=True)
    assert caught.value.hint and digests(cache) == digests(starter_cache)


@pytest.mark.parametrize("mode", ["isolated", "stream"])
def test_a_damaged_document_is_refused_with_the_cache_it_lies_in(mode, starter_cache, tmp_path):
    cache = Path(shutil.copytree(starter_cache, tmp_path / "cache"))
    path = cache / read_manifest(cache).shards[0].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckError, match="is damaged") as caught:
        packed_again(cache, tmp_path / "again", {"mode": mode, "block_len": 64})
    assert f"packer build … -o {tmp_path / 'again'} --repair" in str(caught.value.hint)
    assert read_manifest(tmp_path / "again") == read_manifest(cache), "nothing was committed"


@pytest.mark.parametrize("step", ["pack_split", "stage_rejected", "write_manifest"])
def test_packing_that_dies_leaves_the_old_cache_and_is_done_again_to_the_same_bytes(
    step, starter, of_few_rows, tmp_path, monkeypatch
):
    def die(*_, **__):
        raise StorageError("no space left on device")

    cache = Path(shutil.copytree(of_few_rows, tmp_path / "cache"))
    recipe = load_recipe(starter / "recipe.yaml", [*FEW, "pack.block_len=64", "pack.mode=stream"])
    monkeypatch.setattr(run if step == "pack_split" else commit, step, die)
    with pytest.raises(StorageError):
        build(recipe, cache, jobs=1, fail_above=1, force=True)
    monkeypatch.undo()
    assert read_manifest(cache) == read_manifest(of_few_rows) and verify(cache).ok
    build(recipe, cache, jobs=1, fail_above=1, force=True)
    build(recipe, tmp_path / "once", jobs=1, fail_above=1)
    assert digests(cache) == digests(tmp_path / "once")


def test_a_split_without_a_block_is_reported_and_tiled_all_the_same(starter_cache, tmp_path):
    folder, notes = tmp_path / "again", Notes()
    shortest = min(line["length"] for line in table(starter_cache, "documents", "eval"))
    packed_again(starter_cache, folder, {"block_len": shortest - 1}, progress=notes)
    assert notes.notes == ["split 'eval' has no block: nothing of its 25 documents could be packed"]
    assert verify(folder, level="full").ok


def tampered(totals, **changes):
    return msgspec.structs.replace(totals, **{name: getattr(totals, name) + by for name, by in changes.items()})


def test_a_full_audit_counts_every_total_again(mixed_cache, tmp_path):
    """Each change keeps the laws between the totals, but not what lies in the blocks."""
    folder = tmp_path / "again"
    packed_again(mixed_cache, folder, {"mode": "isolated", "block_len": 20, "overlong": "split"})
    manifest = read_manifest(folder)
    totals = manifest.totals
    assert totals.piece_starts > 3 and sum(cut.trained for cut in totals.cut.values()) > 3
    code, cut = next((code, cut) for code, cut in totals.cut.items() if cut.trained > 3)
    shifted = {**totals.cut, code: msgspec.structs.replace(cut, trained=cut.trained + 2)}
    for changed, names in [
        (msgspec.structs.replace(tampered(totals, piece_starts=-2), cut=shifted), {"totals.piece_starts"}),
        (tampered(totals, merged=1), {"laws"}),
    ]:
        write_manifest(folder, msgspec.structs.replace(manifest, totals=changed))
        assert {finding.what for finding in verify(folder, level="full").findings} == names


def test_packing_that_keeps_nothing_takes_nothing_from_a_folder_that_was_not_empty(starter, tmp_path, monkeypatch):
    """What a build has finished there is worth hours."""

    def dies(*_, **__):
        raise StorageError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(run, "pack_documents", dies)
        with pytest.raises(StorageError):
            build(load_recipe(starter / "recipe.yaml", FEW), tmp_path / "cache", jobs=1)
    before = digests(tmp_path / "cache")
    assert len(before) == 5
    with pytest.raises(NothingKeptError):
        build(load_recipe(starter / "recipe.yaml", [*FEW, "pack.block_len=2"]), tmp_path / "cache", jobs=1)
    assert before.items() <= digests(tmp_path / "cache").items()
    assert build(load_recipe(starter / "recipe.yaml", FEW), tmp_path / "cache", jobs=1).num_partitions_reused == 5
