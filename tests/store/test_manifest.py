"""The manifest: canonical bytes out, nothing but what a build writes in."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from store.samples import small_cache, small_manifest

from packer.errors import CheckError, InputError, StorageError
from packer.host import files
from packer.store import manifest as manifest_module
from packer.store.manifest import (
    ModelFile,
    decode_manifest,
    encode_manifest,
    read_manifest,
    sealed,
    write_manifest,
)


def _write(folder: Path, values: Any) -> None:
    """A text as it is, values with their checksum."""
    if not isinstance(values, str):
        values = sealed(json.dumps({key: values[key] for key in values if key != "checksum"}).encode()).decode()
    (folder / "manifest.json").write_text(values)


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    manifest = small_cache(tmp_path)
    assert read_manifest(tmp_path) == manifest
    assert write_manifest(tmp_path, manifest) == sha256((tmp_path / "manifest.json").read_bytes()).hexdigest()


def test_the_bytes_are_canonical(tmp_path: Path) -> None:
    recipe = {"pack": {"mode": "isolated", "block_len": 32}, "template": {"kwargs": {"z": 1, "a": "ü"}}}
    manifest = msgspec.structs.replace(small_cache(tmp_path), recipe=recipe)
    content = encode_manifest(manifest)
    assert encode_manifest(decode_manifest(tmp_path, content)) == content and "ü".encode() in content
    assert content.endswith(b"}\n")
    values = json.loads(content)

    def sorted_everywhere(value: Any) -> bool:
        if isinstance(value, dict):
            return list(value) == sorted(value) and all(map(sorted_everywhere, value.values()))
        return all(map(sorted_everywhere, value)) if isinstance(value, list) else True

    assert sorted_everywhere(values)
    lines = content.decode().splitlines()
    shard_lines = [line for line in lines if line.startswith("{") and '"path":' in line and '"places":' in line]
    assert len(shard_lines) == len(manifest.shards) == 4


@pytest.mark.parametrize("folder", ["", "missing", "file", "my cache"])
def test_without_a_manifest_it_is_not_a_cache(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is not a cache, or its build did not finish") as caught:
        read_manifest(tmp_path / folder)
    assert caught.value.hint.startswith("packer build")
    assert ("'" in str(caught.value.hint)) == (" " in folder), "a command that can be copied"


def _damaged(change: Any) -> dict:
    values = json.loads(encode_manifest(small_manifest()))
    change(values)
    return values


def test_a_checksum_of_other_bytes_is_refused_and_so_is_none(tmp_path: Path) -> None:
    whole = encode_manifest(small_manifest()).decode()
    first, checksum, rest = whole.split('"', 4)[0:1], whole.split('"')[3], whole.split("\n", 2)[2]
    assert first == ["{\n"] and len(checksum) == 32
    for text in (whole, whole.replace('"engine"', '"unknown"')):  # it is compared before anything is decoded
        _write(tmp_path, text.replace(checksum, "0" * 32))
        with pytest.raises(CheckError, match=f"its checksum, {'0' * 32}, is not the one of its bytes"):
            read_manifest(tmp_path)
    _write(tmp_path, "{\n" + rest)
    with pytest.raises(CheckError, match="does not begin with its checksum"):
        read_manifest(tmp_path)
    _write(tmp_path, json.dumps(json.loads(whole)))  # the same values in other bytes
    with pytest.raises(CheckError, match="does not begin with its checksum"):
        read_manifest(tmp_path)
    _write(tmp_path, sealed(("{\n" + rest).encode()).decode())
    assert read_manifest(tmp_path) == small_manifest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.update(extra=1), "unknown field `extra`"),
        (lambda v: v["totals"].update(extra=1), r"unknown field `extra` - at `\$.totals`"),
        (lambda v: v["inputs"][1].update(extra=1), r"unknown field `extra` - at `\$.inputs"),
        (lambda v: v.pop("engine"), "missing required field `engine`"),
        (lambda v: v["totals"].update(rows="3"), r"Expected `int`, got `str` - at `\$.totals.rows`"),
        (lambda v: v["totals"].update(rows=True), r"Expected `int`, got `bool` - at `\$.totals.rows`"),
        (lambda v: v["totals"].update(rows=-1), r"Expected `int` >= 0 - at `\$.totals.rows`"),
        (lambda v: v["totals"].update(rows=2**63), "totals.rows"),
        (lambda v: v["recipe"]["pack"].update(block_len=2**20 + 1), r"<= 1048576 - at `\$.recipe.pack.block_len"),
        (lambda v: v["recipe"].update(color="blue"), r"unknown field `color` - at `\$.recipe"),
        (lambda v: v["recipe"].update(pack={}), "does not say how documents are packed"),
        (lambda v: v["recipe"].update(supervision=[]), r"Expected `object`, got `array` - at `\$.recipe.supervision"),
        (lambda v: v.update(format="other"), r"Invalid enum value 'other' - at `\$.format`"),
        (lambda v: v.update(rejected_sha256="XY"), r"Expected `str` matching regex .* - at `\$.rejected_sha256`"),
        (
            lambda v: v["model"]["files"][0].update(path="../x"),
            r"a relative path of such names .* - at `\$.model.files",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(tmp_path: Path, change: Any, message: str) -> None:
    _write(tmp_path, _damaged(change))
    with pytest.raises(CheckError, match=message):
        read_manifest(tmp_path)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_another_version_of_the_format_is_refused_with_the_command_that_builds_again(
    tmp_path: Path, version: int
) -> None:
    _write(tmp_path, _damaged(lambda v: v.update(format_version=version)))
    with pytest.raises(CheckError, match="expected version 6 of the format") as refused:
        read_manifest(tmp_path)
    assert refused.value.hint.startswith("another version of packer made it; packer build -c RECIPE -o ")


def test_what_is_not_json_is_refused(tmp_path: Path) -> None:
    whole = encode_manifest(small_manifest()).decode()
    texts = ["", "{", "[]", "null", whole[:-3], whole + "x", '{"a":NaN}', "[" * 100_000, whole.replace('"02"', "1e999")]
    for text in texts:
        _write(tmp_path, text)
        with pytest.raises(CheckError, match=r"manifest\.json"):
            read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b'{"engine": "\xff"}')
    with pytest.raises(CheckError, match=r"manifest\.json"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("key", ["recipe", "versions"])
def test_a_free_mapping_of_too_many_values_is_refused_before_it_is_decoded(
    tmp_path: Path, key: str, monkeypatch
) -> None:
    def filled(value: Any) -> bytes:
        free = {"versions": {"x": value}, "recipe": {"template": {"kwargs": {"x": value}}}}[key]
        return _damaged(lambda v: v[key].update(free))

    _write(tmp_path, filled("y"))
    read_manifest(tmp_path)
    monkeypatch.setattr(files, "MAX_JSON_VALUES", 1000)
    read_manifest(tmp_path)
    _write(tmp_path, filled([{}] * 600))
    with pytest.raises(CheckError, match="more than 1,000 values"):
        read_manifest(tmp_path)


def test_a_huge_manifest_is_refused_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifest(tmp_path, small_manifest())
    size = (tmp_path / "manifest.json").stat().st_size
    monkeypatch.setattr(manifest_module, "MAX_MANIFEST_BYTES", size)
    read_manifest(tmp_path)
    monkeypatch.setattr(manifest_module, "MAX_MANIFEST_BYTES", size - 1)
    with pytest.raises(CheckError, match="expected at most"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../documents/a.arrow",
        "documents/../../a.arrow",
        "documents/./a.arrow",
        "documents//a.arrow",
        "documents\\a.arrow",
        "documents/a\narrow",
        "",
        "documents/",
        "blocks/a.arrow",
        "a.arrow",
        "manifest.json",
        "C:/a.arrow",
    ],
)
def test_a_shard_path_that_is_not_in_its_folder_is_refused(tmp_path: Path, path: str) -> None:
    manifest = small_cache(tmp_path)
    values = json.loads(encode_manifest(manifest))
    values["shards"][0]["path"] = path
    _write(tmp_path, values)
    with pytest.raises(CheckError, match=r"a relative path of such names|shards\[0\].path: expected a"):
        read_manifest(tmp_path)


def test_a_link_that_leads_out_of_the_cache_is_refused(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    manifest = small_cache(cache)
    shard = cache / manifest.shards[0].path
    outside = shard.rename(tmp_path / "outside.arrow")
    shard.symlink_to(outside)
    with pytest.raises(CheckError, match="leads out of the cache"):
        read_manifest(cache)


def test_a_cache_reached_through_a_link_is_a_cache(tmp_path: Path) -> None:
    manifest = small_cache(tmp_path / "cache")
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    assert read_manifest(tmp_path / "link") == manifest


def test_a_manifest_that_cannot_be_read_is_distinguished_from_none(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").symlink_to("manifest.json")
    with pytest.raises(StorageError, match=r"cannot read .*manifest\.json: Too many levels"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("num_bytes", [-1, 2**26 + 1, 2**63])
def test_a_tokenizer_file_is_as_large_as_one_may_be(num_bytes: int) -> None:
    """A sparse file of 200 GB has no bytes on the disk, and would be read from end to end."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"path": "tokenizer.json", "num_bytes": num_bytes, "sha256": "0" * 64}, ModelFile)
