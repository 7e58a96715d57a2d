"""Caches that have only the names of images: what a reader opens for them, and what it says where it cannot."""

import base64
import io
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from faults.forging import forgeries
from fingerprint_oracle import recomputed
from image_models import answer, model_folder, picture, user, write_rows
from PIL import Image as Pillow
from report_page import Page

import packer
from packer.audit.verify import verify
from packer.errors import CheckError, UsageError
from packer.load import PackedLoader
from packer.media.images import ImageFiles, examine
from packer.pipeline.images import RowImages
from packer.report import report
from packer.store.cache import Cache, fingerprint
from packer.store.manifest import read_manifest
from packer.store.media_shards import MediaShards, MediaWriter


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return model_folder(tmp_path_factory.mktemp("vl") / "model")


@pytest.fixture
def rows(tmp_path) -> Path:
    """Rows that name files by relative and absolute paths, two of them with the same bytes, and one that has its own."""
    shown = tmp_path / "shown"
    (shown / "more").mkdir(parents=True)
    (shown / "a.png").write_bytes(picture(60, 90, seed=1))
    (shown / "more" / "b.jpg").write_bytes(picture(200, 40, format="JPEG"))
    (shown / "copy.png").write_bytes(picture(60, 90, seed=1))
    (shown / "link.png").symlink_to("a.png")
    own = base64.b64encode(picture(64, 64, seed=3)).decode()
    named = (
        "../shown/a.png",
        f"{shown}/more/b.jpg",
        "../shown/copy.png",
        "../shown/link.png",
        f"data:image/png;base64,{own}",
    )
    chats = [[user(f"@{name}", f"Question {number}?"), answer("A ramp.")] for number, name in enumerate(named)]
    (tmp_path / "rows").mkdir()
    return write_rows(tmp_path / "rows" / "rows.jsonl", [{"messages": chat} for chat in chats])


def build(model: Path, rows: Path, name: str = "cache", **options: Any) -> Any:
    root = options.pop("root", rows.parent.parent / "shown")
    media = {"images": "read", "root": str(root), "keep": options.pop("keep", "reference")}
    place = rows.parent.parent / name
    return packer.build(str(rows), place, tokenizer=str(model), media=media, progress=None, **options)


def steps(cache: Path | Cache, *, sources: Any = (), **options: Any) -> list[Any]:
    cache = cache if isinstance(cache, Cache) else Cache.open(cache, sources=sources)
    with PackedLoader(cache, batching="padded", prefetch=0, **options) as loader:
        return shown(loader)


def shown(loader: Any) -> list[Any]:
    return [{name: value.tolist() for name, value in batch.items()} for step in loader for batch in step]


def test_only_bytes_that_no_file_has_are_stored_and_the_documents_are_the_same(model, rows):
    kept, named = (build(model, rows, keep, keep=keep) for keep in ("bytes", "reference"))
    assert kept.manifest.content_fingerprint == named.manifest.content_fingerprint
    folder = rows.parent.parent / "reference"
    assert fingerprint(read_manifest(folder)) == recomputed(folder)
    images = Cache.open(folder).images
    assert sorted(name for name, _ in images.references()) == ["a.png", "copy.png", "link.png", "more/b.jpg"]
    assert [images.only_names(digest) for digest in images.digests()] == [True, True, False]
    assert (folder / read_manifest(folder).media[0].path).stat().st_size < 2500
    assert not build(model, rows, "reference").built


def test_moved_images_are_read_where_the_reader_says_they_are(model, rows, monkeypatch):
    top = rows.parent.parent
    build(model, rows, "stored", keep="bytes")
    build(model, rows)
    expected = steps(top / "stored")
    assert len(expected) == 5
    for sources in (top / "shown", top, [top / "rows", f"{top}/shown/"]):
        assert steps(top / "cache", sources=sources) == expected
    (top / "shown").rename(top / "elsewhere")
    assert steps(top / "cache", sources=top / "elsewhere") == expected
    monkeypatch.chdir(top / "elsewhere")
    opened = Cache.open(top / "cache", sources=".")
    monkeypatch.chdir(top)
    assert steps(pickle.loads(pickle.dumps(opened))) == expected
    write_rows(rows, [json.loads(line.replace("/shown/", "/elsewhere/")) for line in rows.read_text().splitlines()])
    assert not [each for each in verify(top / "cache", sources=[top / "elsewhere"]).findings if each.what == "images"]


def test_without_a_root_names_begin_at_the_folder_of_the_rows(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, folder in enumerate(("one", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.png").write_bytes(picture(60, 90, seed=number))
        write_rows(tmp_path / folder / "rows.jsonl", [{"messages": [user("@a.png", f"{number}?"), answer("A ramp.")]}])
    packer.build(
        "*/rows.jsonl", "cache", tokenizer=str(model), media={"images": "read", "keep": "reference"}, progress=None
    )
    for sources in (".", "../" + tmp_path.name, [tmp_path / "one", "two"]):
        assert len(steps(Path("cache"), sources=sources)) == 2 and verify("cache", sources=sources).ok
    with pytest.raises(CheckError, match=r"image a\.png: (?:sha256|No such)"):
        steps(Path("cache"), sources="one")


def test_ranks_and_resumed_runs_read_what_they_read_of_stored_images(model, rows):
    top = rows.parent.parent
    build(model, rows, "stored", keep="bytes")
    build(model, rows)
    options = {"global_batch_size": 2, "seed": 4, "end": "pad", "world_size": 2}
    for rank in (0, 1):
        expected = steps(top / "stored", rank=rank, **options)
        assert steps(top / "cache", rank=rank, sources=top, **options) == expected and len(expected) == 3
    loader = PackedLoader(Cache.open(top / "cache", sources=top), batching="padded", seed=4)
    next(iter(loader))
    state, rest = loader.state_dict(), pickle.loads(pickle.dumps(loader))
    again = PackedLoader(top / "stored", batching="padded", seed=4)
    assert shown(rest) == steps(top / "stored", seed=4)[1:] and len(state) == len(again.state_dict())


def changed(file: Path) -> None:
    file.write_bytes(picture(60, 90, seed=2))


def linked(file: Path) -> None:
    file.unlink()
    (file.parent.parent / "outside.png").write_bytes(picture(60, 90, seed=1))  # the same bytes, in another folder
    file.symlink_to(file.parent.parent / "outside.png")


def piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def grown(file: Path) -> None:
    os.truncate(file, 64 * 2**20 + 1)


FAULTS = {
    changed: "sha256 .* not that of the build",
    grown: "67,108,865 bytes; packer takes up to 67,108,864",
    linked: "is not below",
    piped: "not a regular file",
    Path.unlink: "No such file",
}


def test_a_file_that_is_not_that_of_the_build_is_named_with_its_rows(model, rows):
    top = rows.parent.parent
    file, copy, content = top / "shown" / "a.png", top / "shown" / "copy.png", picture(60, 90, seed=1)
    twice = [user("@../shown/a.png", "@../shown/a.png", "Both?"), answer("Ramps.")]
    write_rows(rows, [*map(json.loads, rows.read_text().splitlines()), {"messages": twice}])
    build(model, rows)
    expected = steps(top / "cache", sources=top)
    for fault, message in FAULTS.items():
        fault(file)
        assert steps(top / "cache", sources=top) == expected, "copy.png has the same bytes"
        copy.rename(top / "spare.png")
        with pytest.raises(CheckError, match=rf"a\.png: .*{message}"):
            steps(top / "cache", sources=top)
        (top / "spare.png").rename(copy)
        found = {each.path: each for each in verify(top / "cache", sources=[top]).findings if "images" not in each.what}
        assert found.keys() == {"a.png", "link.png"} and re.search(message, found["a.png"].found)
        assert (
            f"({', '.join(f'{rows}:{row}' for row in (0, 2, 3, 5))})" in found["a.png"].found
        )  # that show these bytes
        file.unlink(missing_ok=True)
        file.write_bytes(content)
    changed(file)
    told = run("verify", top / "cache", "--sources", top, exit_code=1)
    assert "a.png" in told.stdout and "below --sources" in told.stderr
    assert build(model, rows).built
    assert steps(top / "cache", sources=top) and not verify(top / "cache", sources=[top]).findings


def test_without_a_folder_nothing_is_opened_and_every_command_says_so(model, rows, monkeypatch):
    top = rows.parent.parent
    cache = top / "cache"
    build(model, rows)

    def entries(**options: Any) -> list[dict[str, Any]]:
        report(cache, top / "page.html", **options)
        items = Page((top / "page.html").read_bytes()).items()
        return [image for _, item, _ in items for document in item["documents"] for image in document["images"]]

    assert all(Pillow.open(io.BytesIO(base64.b64decode(each["jpeg"]))) for each in entries(sources=top))
    monkeypatch.setattr("packer.media.images.open_descriptor", None)
    said = {each["width"]: (each["jpeg"] is None, each["unread"]) for each in entries()}
    assert said == {200: (True, True), 64: (False, False)}
    with pytest.raises(UsageError, match=r"only the name of the image .*: not read"):
        steps(cache)
    assert verify(cache).ok and "4 images that the cache only names: not read" in verify(cache).notes[0]
    assert "image 60 x 90" in " ".join(run("inspect", cache, "--row", f"{rows}:0").stdout.split())


def test_a_page_says_which_image_a_cache_lacks(model, rows):
    build(model, rows, keep="bytes")
    cache = rows.parent.parent / "cache"
    dict(forgeries(cache))["manifest: media = []"](cache)
    with pytest.raises(CheckError, match=r"the image [0-9a-f]{64} is missing"):
        report(cache, rows.parent / "page.html")


@pytest.mark.parametrize(
    "name", ["../secret.png", "{top}/secret.png", "file://{top}/secret.png", "out/secret.png", "http://h/a", None]
)
def test_no_name_in_a_cache_leads_out_of_the_readers_folder(tmp_path, name):
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "out").symlink_to(tmp_path)
    secret = picture(30, 30)
    (tmp_path / "secret.png").write_bytes(secret)
    image = examine(secret, is_decoded=False, name=name and name.format(top=tmp_path))
    with MediaWriter(tmp_path, key="0", keep="reference") as writer:
        writer.add([image])
        table = writer.commit()
    for root in ("", "..", str(tmp_path), "/", "out", "given/out"):
        files = ImageFiles.below([tmp_path / "given"], [root])
        assert files and all(each.root.is_relative_to(tmp_path / "given") for each in files)
        images = MediaShards(tmp_path, [table], files)
        if name is None:
            assert images.read(image.sha256) == secret
            continue
        with pytest.raises(CheckError, match="names the image"):
            images.read(image.sha256)


def test_what_one_partition_stores_is_not_looked_for_where_another_names_it(model, tmp_path):
    (tmp_path / "shown").mkdir()
    (tmp_path / "rows").mkdir()
    (tmp_path / "shown" / "a.png").write_bytes(picture(60, 90))
    own = base64.b64encode(picture(60, 90)).decode()
    chats = [
        [user(f"@{name}", "What?"), answer("A ramp.")] for name in ("../shown/a.png", f"data:image/png;base64,{own}")
    ]
    rows = write_rows(tmp_path / "rows" / "rows.jsonl", [{"messages": chat} for chat in chats])
    assert len(build(model, rows, partition_bytes=100).manifest.media) == 2
    assert len(steps(tmp_path / "cache")) == 2 and not [*Cache.open(tmp_path / "cache").images.references()]


def test_a_file_whose_name_is_no_text_rejects_its_row(model, rows):
    shown = rows.parent.parent / "shown"
    name = os.fsencode(shown) + b"/\xff.png"
    Path(os.fsdecode(name)).write_bytes(picture(60, 90, seed=1))
    (rows.parent / "way.png").symlink_to(os.fsdecode(name))
    write_rows(
        rows, [{"messages": [user(f"@{each}", "?"), answer("A ramp.")]} for each in ("way.png", "../shown/a.png")]
    )
    built = build(model, rows)
    assert built.manifest.totals.rejected == {"media_missing": 1} and built.manifest.totals.documents == 1


def test_a_build_that_was_stopped_reads_no_image_again(model, rows, monkeypatch):
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    whole = build(model, rows, "whole", partition_bytes=300)
    assert len(whole.manifest.media) > 2
    with monkeypatch.context() as patch:
        patch.setattr("packer.pipeline.run.commit", stop)
        with pytest.raises(KeyboardInterrupt):
            build(model, rows, partition_bytes=300)
    monkeypatch.setattr(RowImages, "opened", stop)
    assert build(model, rows, partition_bytes=300).fingerprint == whole.fingerprint


def test_rows_that_moved_with_their_images_are_not_read_again(model, rows, monkeypatch):
    top = rows.parent.parent
    rows.write_text("".join(line for line in rows.read_text().splitlines(keepends=True) if "/more/" not in line))
    before = build(model, rows)
    (top / "moved").mkdir()
    for folder in (rows.parent, top / "shown"):
        folder.rename(top / "moved" / folder.name)
    monkeypatch.setattr(RowImages, "opened", None)
    after = build(model, top / "moved" / "rows" / "rows.jsonl", "../cache")
    assert after.fingerprint == before.fingerprint and steps(top / "cache", sources=top / "moved")
