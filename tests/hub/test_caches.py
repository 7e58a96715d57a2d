"""Caches of the Hub: opened by every command and reader, with the Hub's real client."""

import shutil

import pytest
from command_line import assert_refused, fields, run
from small_hub import files_of

from packer.errors import CheckError, InputError
from packer.store.cache import Cache

NAME = "hf://datasets/tiny/cache"

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the client, by its own doing


@pytest.fixture
def built(starter_cache):
    """A cache's files, by their names in it."""
    return {path: content for path, content in files_of(starter_cache).items() if not path.startswith(".packer/")}


@pytest.fixture
def pushed(hub, built):
    """The commit of a data set that is a cache."""
    return hub.commit("dataset", "tiny/cache", {**built, "README.md": b"About.", "more.bin": b"unnamed"})


def test_every_command_takes_a_cache_of_the_hub(hub, pushed, starter_cache, tmp_path):
    of = f"{NAME}@{pushed}"
    assert fields("verify", of, "--full")["ok"]
    fetched = {entry.partition(f"/resolve/{pushed}/")[2] for entry in hub.asked if entry.startswith("GET /datasets/")}
    with Cache.open(starter_cache) as cache:
        assert fetched == {"manifest.json", *cache.manifest.digests}, "what the manifest names, and nothing else"
    hub.asked.clear()
    hub.closed = True
    assert fields("stats", of)["fingerprint"] == fields("stats", starter_cache)["fingerprint"]
    for asked in (
        ["inspect", of, "--block", "1"],
        ["check", of],
        ["diff", of, starter_cache],
        ["report", of, "-o", "page.html"],
        ["export", of, "--to", "datasets", "-o", "exported"],
    ):
        run(*asked)
    assert hub.asked == [], "a commit that was fetched needs no network"


def test_a_reader_takes_a_cache_of_the_hub(pushed, starter_cache):
    pytest.importorskip("torch", reason="TORCH MISSING: caches of the Hub are not read")
    from packer import PackedLoader

    theirs, ours = (next(iter(PackedLoader(name, global_batch_size=2))) for name in (NAME, starter_cache))
    for one, other in zip(theirs, ours, strict=True):
        assert one["input_ids"].equal(other["input_ids"])


def test_a_cache_may_lie_in_a_folder_of_a_data_set(hub, built):
    hub.commit("dataset", "tiny/many", {f"v1/packed/{path}": content for path, content in built.items()}, branch="b")
    with Cache.open("hf://datasets/tiny/many@b/v1/packed") as cache:
        assert cache.manifest.totals.kept == 197


def test_what_is_fetched_is_compared_with_the_manifest_and_not_kept_if_it_is_something_else(hub, built):
    shard = next(path for path in built if path.startswith("blocks/"))
    other = built[shard][:-1] + bytes([built[shard][-1] ^ 1])
    commit = hub.commit("dataset", "tiny/cache", {**built, shard: other})
    for _ in range(2):
        with pytest.raises(CheckError, match=f"{shard} is damaged: expected sha256"):
            Cache.open(NAME)
    hub.repositories["dataset", "tiny/cache"]["commits"][commit][shard] = built[shard]  # on its way it was damaged
    assert Cache.open(f"{NAME}@{commit}").manifest.totals.kept == 197
    hub.commit("dataset", "tiny/cache", {path: content for path, content in built.items() if path != shard})
    with pytest.raises(CheckError, match=f"has no {shard}"):
        Cache.open(NAME)


def test_what_is_no_cache_is_said_to_be_none(hub, tmp_path):
    with pytest.raises(InputError, match=r"tiny/talk@\w+ is not a cache: it has no manifest"):
        Cache.open("hf://datasets/tiny/talk")
    assert_refused("not a repository that is visible", "stats", "hf://datasets/tiny/none", exit_code=3)
    assert_refused("packer does not write to hf://", "build", "x", "--tokenizer", "y", "-o", NAME, exit_code=2)


def test_links_lead_out_of_a_cache_to_the_files_of_the_hubs_client_alone(pushed, tmp_path):
    folder = Cache.open(NAME).folder
    shard = next((folder / "blocks").iterdir())
    shutil.copy(shard, tmp_path / "elsewhere")
    shard.unlink()
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckError, match="is a link that leads out of the cache"):
        Cache.open(folder)
