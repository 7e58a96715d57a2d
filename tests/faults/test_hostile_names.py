"""Names in a forged cache or in another tool's index, with every digest right: refused, and nothing written outside."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from faults.planted import seen
from hypothesis import given
from hypothesis import strategies as st

from packer.audit.verify import verify
from packer.errors import CheckError, InputError, StorageError
from packer.export.formats import FORMATS
from packer.export.run import Files, export
from packer.names import is_file_name, is_file_path
from packer.pipeline.identity import Provenance
from packer.recipe.recipe import make_recipe
from packer.source.files import data_set_files, data_set_splits
from packer.store.cache import Cache
from packer.store.folder import inside
from packer.store.manifest import Manifest, read_manifest, write_manifest
from packer.store.row_tables import content_fingerprint

SPLITS = ("../outside", "/OUTSIDE", "a/b", "..", ".", "", "train\n", "train\0", "-rf", ".hidden", "a\x1b[2J", "x" * 101)


def forged(cache: Path, split: str) -> Manifest:
    """The manifest with another name of a split: canonical, and its fingerprints are right."""
    manifest = read_manifest(cache)
    first = manifest.shards[0].split

    def rename(entry: Any) -> Any:
        return msgspec.structs.replace(entry, split=split) if entry.split == first else entry

    renamed = msgspec.structs.replace(
        manifest,
        inputs=tuple(map(rename, manifest.inputs)),
        shards=tuple(map(rename, manifest.shards)),
    )
    recipe = make_recipe(manifest.recipe, where="test")
    return msgspec.structs.replace(
        renamed,
        content_fingerprint=content_fingerprint(cache, renamed.shards),
        recipe_fingerprint=Provenance.of(renamed, recipe).recipe_fingerprint,
    )


@pytest.mark.parametrize("split", SPLITS)
def test_a_forged_split_is_found_and_nothing_is_written_outside(
    starter_cache: Path, tmp_path: Path, split: str
) -> None:
    cache = Path(shutil.copytree(starter_cache, tmp_path / "cache"))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept.txt").write_text("kept")
    write_manifest(cache, forged(cache, split.replace("/OUTSIDE", str(tmp_path / "outside"))))
    before = seen(tmp_path)
    assert any("split" in finding.found for finding in verify(cache, level="full").findings)
    with pytest.raises(CheckError, match="split"):
        Cache.open(cache)
    for form in FORMATS:
        with pytest.raises(CheckError, match="split"):
            export(cache, tmp_path / "out", to=form)
    assert seen(tmp_path) == before


def test_the_same_forgery_with_a_plain_name_is_a_whole_cache(starter_cache: Path, tmp_path: Path) -> None:
    """Else the test above might find something else that is wrong with it."""
    cache = Path(shutil.copytree(starter_cache, tmp_path / "cache"))
    write_manifest(cache, forged(cache, "other.split_2"))
    assert verify(cache, level="full").ok
    assert (export(cache, tmp_path / "out", to="datasets").folder / "other.split_2" / "state.json").is_file()


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "a//x", "a/.x", "-x", "", "a\nb", "a\\b", "x" * 201])
def test_a_file_is_opened_for_writing_only_inside_its_folder(tmp_path: Path, path: str) -> None:
    assert not is_file_path(path)
    with pytest.raises(StorageError, match="outside"):
        inside(tmp_path, path)
    with pytest.raises(StorageError, match="outside"):
        Files(tmp_path).open(path)
    assert not list(tmp_path.iterdir())


def test_a_link_leads_no_writer_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(StorageError, match="outside"):
        inside(tmp_path / "folder", "link/a.arrow")
    assert inside(tmp_path / "folder", "new/a.arrow") == tmp_path / "folder" / "new" / "a.arrow"


@given(name=st.text(max_size=8) | st.text("ab./\\\n\0-\u202e\x1b", max_size=4))
def test_a_name_is_one_part_of_a_path_and_can_be_shown(name: str) -> None:
    if is_file_name(name):
        assert Path("folder", name).parent == Path("folder") and Path(name).name == name
        assert name.isprintable() and name[0] not in ".-"


@pytest.mark.parametrize("name", ["../secret.arrow", "/OUTSIDE/secret.arrow", "a/../../secret.arrow"])
def test_an_index_of_a_data_set_names_files_of_its_own_folder_alone(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    (tmp_path / "secret.arrow").write_bytes(b"secret")
    name = name.replace("/OUTSIDE", str(tmp_path))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    for read in (data_set_files, data_set_splits):
        with pytest.raises(InputError, match="filename"):
            read(folder)
