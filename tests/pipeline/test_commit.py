"""What is committed opens: a manifest that no reader takes is refused before, a shard that is not there is told after."""

import hashlib
import shutil

import msgspec
import pytest

from packer.errors import CheckError, PackerError, StorageError, UsageError
from packer.pipeline import commit
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe
from packer.store.cache import Cache
from packer.store.manifest import read_manifest, write_manifest

OTHER = "pack.block_len=384"


def again(starter, cache, *overrides):
    return build(load_recipe(starter / "recipe.yaml", overrides), cache, jobs=1, force=True)


@pytest.fixture
def cache(starter_cache, tmp_path):
    return shutil.copytree(starter_cache, tmp_path / "cache")


def fingerprint(cache):
    return hashlib.sha256((cache / "manifest.json").read_bytes()).hexdigest()


def test_a_manifest_larger_than_readers_take_is_refused_and_the_old_cache_stays(starter, cache, monkeypatch):
    before, size = fingerprint(cache), (cache / "manifest.json").stat().st_size
    monkeypatch.setattr("packer.store.manifest.MAX_MANIFEST_BYTES", size - 1)
    with pytest.raises(CheckError, match=f"expected at most {size - 1} bytes"):
        read_manifest(cache)
    monkeypatch.setattr("packer.store.manifest.MAX_MANIFEST_BYTES", size)
    assert read_manifest(cache)
    with pytest.raises(UsageError, match=rf"manifest would have [\d,]+ bytes; readers take up to {size:,}") as caught:
        again(starter, cache, OTHER, "shard_bytes=16KiB")
    assert "shard_bytes" in caught.value.hint
    assert fingerprint(cache) == before


def test_a_manifest_that_would_not_open_is_a_bug_and_the_old_cache_stays(starter, cache, monkeypatch):
    before, made = fingerprint(cache), commit._manifest

    def wrong(*arguments, **options):
        manifest = made(*arguments, **options)
        first, *others = manifest.shards
        return msgspec.structs.replace(manifest, shards=(msgspec.structs.replace(first, path="../it"), *others))

    monkeypatch.setattr(commit, "_manifest", wrong)
    with pytest.raises(PackerError, match=r"a relative path of such names .* - at `\$.shards\[0\]\.path`") as caught:
        again(starter, cache, OTHER)
    assert caught.value.exit_code == 70 and "bug" in caught.value.hint
    assert fingerprint(cache) == before
    Cache.open(cache).close()


@pytest.mark.parametrize("lost", ["a shard", "the manifest"])
def test_a_disk_that_does_not_keep_what_was_written_is_reported(lost, starter, cache, monkeypatch):
    def forgetful(folder, manifest, **begun):
        written = write_manifest(folder, manifest, **begun)
        if lost == "a shard":
            (folder / manifest.shards[-1].path).write_bytes(b"")
        else:
            (folder / "manifest.json").write_bytes(b"{}")
        return written

    monkeypatch.setattr(commit, "write_manifest", forgetful)
    with pytest.raises(StorageError, match="was built, but does not open: ") as caught:
        again(starter, cache, OTHER)
    assert "repair=True" in caught.value.hint
    monkeypatch.undo()
    assert again(starter, cache, OTHER).built
    Cache.open(cache).close()
