"""Rows with images become documents with the ids of the model's own processor, and images that are stored once."""

import base64
import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bucket_objects import put
from command_line import run
from fingerprint_oracle import recomputed
from image_models import answer, model_folder, picture, user, with_pixels, write_rows
from PIL import Image as Pillow
from report_page import Page
from single_documents import read_document

import packer
from packer.audit.verify import verify
from packer.errors import CheckError, InputError, PackerError
from packer.host.files import open_descriptor
from packer.load import PackedLoader
from packer.media.images import decode
from packer.media.processor import Processor, RefusedSizesError, processor_of
from packer.pack.pieces import cut
from packer.pipeline.images import RowImages
from packer.report import report
from packer.store.cache import Cache, fingerprint
from packer.store.manifest import read_manifest
from packer.store.media_shards import MediaShards


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return model_folder(tmp_path_factory.mktemp("vl") / "model")


@pytest.fixture
def data(tmp_path) -> Path:
    return with_pictures(tmp_path / "data")


def with_pictures(folder: Path) -> Path:
    folder.mkdir()
    for number, (name, size) in enumerate({"a.png": (60, 90), "b.png": (200, 40), "c.jpg": (64, 64)}.items()):
        (folder / name).write_bytes(picture(*size, format="JPEG" if name[-3:] == "jpg" else "PNG", seed=number))
    return folder


@pytest.fixture(scope="module")
def shown(model, tmp_path_factory) -> Path:
    """A cache of all conversations; tests leave it as it is."""
    return build(
        model, with_pictures(tmp_path_factory.mktemp("shown") / "data"), [{"messages": c} for c in CHATS.values()]
    )


def build(model: Path, data: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    file = write_rows(data / "rows.jsonl", rows)
    media = {"images": "read", **options.pop("media", {})}
    packer.build(str(file), data.parent / "cache", tokenizer=str(model), media=media, progress=None, **options)
    return data.parent / "cache"


def documents(cache: Path) -> list[Any]:
    with Cache.open(cache) as opened:
        shards = opened.documents("train")
        return [read_document(shards, number) for number in range(len(shards))]


def rejected(cache: Path) -> list[str]:
    return [json.loads(line)["code"] for line in (cache / "rejected.jsonl").read_text().splitlines()]


def own_ids(model: Path, data: Path, messages: list[dict[str, Any]]) -> list[int]:
    """What transformers says."""
    processor = processor_of({file.name: file.read_bytes() for file in model.iterdir()}).own
    return list(map(int, processor.apply_chat_template(with_pixels(messages, data), tokenize=True)[0]))


CHATS = {
    "first": [user("@a.png", "What is this?"), answer("A ramp.")],
    "last": [user("What is this?", "@b.png"), answer("A ramp.")],
    "between": [user("Compare ", "@a.png", " with ", "@b.png", " please."), answer("Both are ramps.")],
    "two turns": [user("@a.png", "One?"), answer("One."), user("@c.jpg", "Two?"), answer("Two.")],
    "twice": [user("@a.png", "One?"), answer("One."), user("@a.png", "Again?"), answer("Yes.")],
    "alone": [user("@b.png"), answer("A ramp.")],
    "text": [user("Hello"), answer("Hi.")],
}


def test_documents_have_the_ids_of_the_processor_and_only_answers_are_trained(model, shown):
    made, data = documents(shown), shown.parent / "data"
    assert len(made) == len(CHATS) and not rejected(shown)
    image_ids = read_manifest(shown).model.image_ids
    for document, chat in zip(made, CHATS.values(), strict=True):
        ids = own_ids(model, data, chat)
        assert document.input_ids.tolist() == ids[: document.length] and len(ids) - document.length <= 2
        sizes = [
            decode((data / p["image"]).read_bytes()).size[::-1] for m in chat for p in m["content"] if "image" in p
        ]
        assert [(image.height, image.width) for image in document.media] == sizes
        inside = np.zeros(document.length, bool)
        for image in document.media:
            inside[image.start : image.start + image.length] = True
        assert (np.isin(document.input_ids, image_ids) == inside).all()
        assert not (inside & (document.labels >= 0)).any()


def test_every_image_is_stored_once_and_verify_finds_nothing(shown):
    (table,) = read_manifest(shown).media
    shards = MediaShards(shown, [table])
    assert table.num_rows == len([*shards.digests()]) == 3
    assert {name for name, _ in shards.names()} == {"a.png", "b.png", "c.jpg"}
    stored = {(shown.parent / "data" / name).read_bytes() for name in ("a.png", "b.png", "c.jpg")}
    for document in documents(shown):
        assert all(shards.read(image.sha256) in stored for image in document.media)
    report = verify(shown, level="full", sources=[shown.parent], reencode=True, threads=1)
    assert not [finding for finding in report.findings if finding.what != "tokenizer"]
    assert report.num_reencoded == len(CHATS)


FORMS = [
        {"messages": [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "A."}], "images": ["a.png"]},
        {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}, answer("A.")], "images": ["a.png"]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}, {"type": "text", "text": "What?"}]}, answer("A.")]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "@"}}, {"type": "text", "text": "What?"}]}, answer("A.")]},
        {"conversations": [{"from": "human", "value": "<image>What?"}, {"from": "gpt", "value": "A."}], "image": "a.png"},
        {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "@"}}, {"text": "What?"}]}, {"role": "model", "parts": [{"text": "A."}]}]},
        {"query": "<image>What?", "response": "A.", "images": [{"path": "a.png"}]},
        {"messages": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,@"}, {"type": "input_text", "text": "What?"}]}, answer("A.")]},
]  # fmt: skip
"""As a tag, a column, and as OpenAI, Anthropic, LLaVA, Gemini, ms-swift and the Responses API have it."""


def test_an_image_is_the_same_document_in_every_form(model, data):
    encoded = base64.b64encode((data / "a.png").read_bytes()).decode()
    files = []
    for number, row in enumerate(FORMS):
        written = json.loads(json.dumps(row).replace('"@"', f'"{encoded}"').replace(",@", f",{encoded}"))
        files.append(str(write_rows(data / f"{number}.jsonl", [written])))
    media = {"images": "read"}
    packer.build(files, data.parent / "cache", tokenizer=str(model), media=media, progress=None, fail_above=0)
    expected = own_ids(model, data, [user("@a.png", "What?"), answer("A.")])
    found = [document.input_ids.tolist() for document in documents(data.parent / "cache")]
    assert len(found) == len(FORMS) and all(ids == expected[: len(ids)] for ids in found)


REFUSED = [
        ([user("@missing.png", "?"), answer("A.")], "media_missing"),
        ([user("@../outside.png", "?"), answer("A.")], "media_outside"),
        ([user("@link.png", "?"), answer("A.")], "media_outside"),
        ([user("@/dev/zero", "?"), answer("A.")], "media_outside"),
        ([user("@pipe.png", "?"), answer("A.")], "media_missing"),
        ([user("@.", "?"), answer("A.")], "media_missing"),
        ([user("@a.png\0.png", "?"), answer("A.")], "media_missing"),
        ([user("@http://127.0.0.1:1/a.png", "?"), answer("A.")], "media_url"),
        ([user("@data:image/png;base64,!", "?"), answer("A.")], "media_unreadable"),
        ([user("@cut.png", "?"), answer("A.")], "media_unreadable"),
        ([user("@text.png", "?"), answer("A.")], "media_unreadable"),
        ([user("@huge.gif", "?"), answer("A.")], "media_too_large"),
        ([user("@wide.png", "?"), answer("A.")], "media_refused"),
        ([user("What?"), {"role": "assistant", "content": [{"type": "image", "image": "a.png"}]}], "media_in_turn"),
        ([{"role": "user", "content": [{"type": "image"}]}, answer("A.")], "media_count"),
        ([{"role": "user", "content": [{"type": "image", "image": "a.png", "max_pixels": 9}]}, answer("A.")], "media_option"),
        ([{"role": "user", "content": [{"type": "video", "video": "a.mp4"}]}, answer("A.")], "multimodal"),
]  # fmt: skip


def test_what_cannot_be_used_is_rejected_with_its_code_and_costs_no_other_row(model, data):
    (data.parent / "outside.png").write_bytes((data / "a.png").read_bytes())
    (data / "link.png").symlink_to(data.parent / "outside.png")
    os.mkfifo(data / "pipe.png")
    (data / "cut.png").write_bytes((data / "a.png").read_bytes()[:-40])
    (data / "text.png").write_bytes(b"<html>not found</html>")
    (data / "huge.gif").write_bytes(b"GIF89a\xff\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\xff\xff\xff\xff\x00\x02\x00;")
    (data / "wide.png").write_bytes(picture(4000, 10))
    cache = build(model, data, [{"messages": row} for row in (*(row for row, _ in REFUSED), CHATS["first"])])
    assert rejected(cache) == [code for _, code in REFUSED] and len(documents(cache)) == 1


def test_a_placeholder_that_somebody_typed_is_text(model, data):
    chat = [user("@a.png", "Is <|image_pad|> or <image> an image?"), answer("No.")]
    cache = build(model, data, [{"messages": chat}])
    (document,) = documents(cache)
    assert len(document.media) == 1
    ids = np.isin(document.input_ids, read_manifest(cache).model.image_ids)
    assert ids.sum() == document.media[0].length


def test_without_the_key_rows_with_images_are_rejected_as_ever(model, data):
    cache = build(model, data, [{"messages": chat} for chat in CHATS.values()], media={"images": "reject"})
    assert rejected(cache) == ["multimodal"] * (len(CHATS) - 1) and read_manifest(cache).media is None


def test_a_folder_without_a_processor_is_an_error(starter, data):
    with pytest.raises(InputError, match=r"image processor|cannot be loaded"):
        build(starter / "tokenizer", data, [{"messages": CHATS["first"]}])


def test_a_tokenizer_that_is_no_json_is_named_as_without_images(model, data, tmp_path):
    broken = Path(shutil.copytree(model, tmp_path / "broken"))
    (broken / "tokenizer.json").write_text("not a tokenizer\n")
    for images in ("read", "reject"):
        with pytest.raises(InputError, match=r"broken: tokenizer\.json cannot be loaded"):
            build(broken, data, [{"messages": CHATS["first"]}], media={"images": images})


def test_building_again_does_nothing_until_an_image_changes(model, data):
    rows = [{"messages": CHATS["first"]}]
    build(model, data, rows)
    file = write_rows(data / "rows.jsonl", rows)

    def again():
        return packer.build(
            str(file), data.parent / "cache", tokenizer=str(model), media={"images": "read"}, progress=None
        )

    before = again()
    assert not before.built
    (data / "a.png").write_bytes(picture(60, 90, seed=99))
    after = again()
    assert after.built and after.fingerprint != before.fingerprint
    (data / "a.png").unlink()
    with pytest.raises(InputError):
        again()


def test_the_same_bytes_under_two_names_are_stored_once_and_both_files_are_watched(model, data):
    shutil.copy(data / "a.png", data / "copy.png")
    rows = [{"messages": [user(f"@{name}", "What?"), answer("A.")]} for name in ("a.png", "copy.png")]
    shards = MediaShards(build(model, data, rows), read_manifest(data.parent / "cache").media)
    assert {name for name, _ in shards.names()} == {"a.png", "copy.png"} and len([*shards.digests()]) == 1
    first, second = documents(data.parent / "cache")
    assert first.doc_id == second.doc_id and first.media == second.media
    (data / "copy.png").write_bytes(picture(60, 90, seed=5))
    build(model, data, rows)
    first, second = documents(data.parent / "cache")
    assert (
        first.doc_id != second.doc_id
        and len([*MediaShards(data.parent / "cache", read_manifest(data.parent / "cache").media).digests()]) == 2
    )


def test_a_build_into_blocks_says_which_models_must_be_padded(model, data, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    config = {"model_type": "qwen2_5_vl", "text_config": {"use_bidirectional_attention": "vision"}}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    file = write_rows(data / "rows.jsonl", [{"messages": CHATS["first"]}])
    keys = ("--set", "media.images=read", "--set", "pack.max_pixels=100000")
    for name, notes in (("model", 1), ("plain", 0)):
        said = run("build", file, "-o", tmp_path / name / "cache", "--tokenizer", tmp_path / "model", *keys)
        assert said.stderr.count("train with batching='padded'") == notes
        (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"text_config": {}}))


@pytest.mark.parametrize("first", [None, b"<html>", picture(4000, 10)], ids=["missing", "text", "refused"])
def test_an_image_that_was_not_usable_is_looked_at_again(model, data, first):
    if first is not None:
        (data / "new.png").write_bytes(first)
    rows = [{"messages": [user("@new.png", "What?"), answer("A.")]}, {"messages": CHATS["first"]}]
    assert len(rejected(build(model, data, rows))) == 1
    (data / "new.png").write_bytes(picture(40, 40))
    assert not rejected(build(model, data, rows)) and len(documents(data.parent / "cache")) == 2


def test_a_file_that_becomes_a_link_while_it_is_opened_is_not_followed(model, data, monkeypatch):
    (data.parent / "secret.png").write_bytes(picture(30, 30))

    def swapped(place, flags):
        Path(place).unlink()
        Path(place).symlink_to(data.parent / "secret.png")
        return open_descriptor(place, flags)

    monkeypatch.setattr("packer.media.images.open_descriptor", swapped)
    with pytest.raises(PackerError, match="media_missing"):
        build(model, data, [{"messages": CHATS["alone"]}], jobs=1)


def test_images_in_a_folder_beside_their_rows_are_found_as_the_hint_says(model, data):
    rows = [{"messages": CHATS["first"]}]
    here = fingerprint(read_manifest(build(model, data, rows)))
    folder = data / "my images"
    folder.mkdir()
    (data / "a.png").rename(folder / "a.png")
    with pytest.raises(PackerError, match="media_missing") as refused:
        build(model, data, rows)
    found = f"media={{'root': '{folder}'}} finds a.png"
    assert refused.value.hint == found
    with pytest.raises(PackerError, match="multimodal") as refused:
        build(model, data, rows, media={"images": "reject"}, force=True)
    assert refused.value.hint and refused.value.hint.endswith(f"not read; {found}")
    assert fingerprint(read_manifest(build(model, data, rows, media={"root": str(folder)}))) == here
    named = build(model, data, rows, media={"root": str(folder), "keep": "reference"}, force=True)
    assert verify(named, sources=[data], level="full").ok


def test_a_flipped_bit_of_an_image_is_found(model, data):
    cache = build(model, data, [{"messages": CHATS["first"]}])
    table = cache / read_manifest(cache).media[0].path
    whole = table.read_bytes()
    for place in (0.3, 0.6, 0.9):
        content = bytearray(whole)
        content[int(len(content) * place)] ^= 1
        table.write_bytes(content)
        assert verify(cache, level="full").findings and verify(cache).findings


def test_verifying_finds_a_document_with_images_that_was_cut(model, data, monkeypatch):
    monkeypatch.setattr("packer.pack.pack_plan.cut", lambda lengths, pack, count, _: cut(lengths, pack, count))
    pack = {"block_len": 24, "max_pixels": 10**6, "overlong": "split"}
    cache = build(model, data, [{"messages": CHATS["between"]}], jobs=1, pack=pack, fail_above=1)
    monkeypatch.undo()
    assert {finding.what for finding in verify(cache, level="full").findings} >= {"blocks", "parts in no block"}


def test_an_image_that_is_broken_behind_its_header_is_named_when_it_is_read(model, data):
    (data / "cut.jpg").write_bytes(picture(300, 300, format="JPEG")[:-800])
    rows = [{"messages": [user("@cut.jpg", "What?"), answer("A ramp.")]}]
    cache = build(model, data, rows, media={"check": "header"})
    assert len(documents(cache)) == 1 and report(cache, data / "page.html")
    with pytest.raises(CheckError, match=r"the image cut\.jpg cannot be decoded: OSError: image file is truncated"):
        next(iter(PackedLoader(cache, batching="padded", prefetch=0)))


def test_a_processor_that_disagrees_fails_the_build(model, data, monkeypatch):
    monkeypatch.setattr(RowImages, "_full", lambda *_, **__: [1, 2, 3])
    with pytest.raises(PackerError, match="not those of the model's processor"):
        build(model, data, [{"messages": CHATS["first"]}])


def test_what_is_written_for_a_size_is_counted_only_where_that_is_what_the_processor_writes(model, monkeypatch):
    processor = Processor({file.name: file.read_bytes() for file in model.iterdir()})
    sizes = [(1 + 97 * number % 1900, 1 + 263 * number % 1900) for number in range(0, 1900, 60)]
    sizes += [(1, 400), (9000, 30), (28, 28), (1, 28)]
    expected = [processor._replacements((size,)) for size in sizes]
    assert {type(each) for each in expected} == {str, list} and processor._unit is not None
    monkeypatch.setattr(processor, "_replacements", lambda sizes: "asked")
    assert all(
        processor._counted(size) == (None if isinstance(found, str) else found)
        for size, found in zip(sizes, expected, strict=True)
    )
    with pytest.raises(RefusedSizesError, match="asked"):
        processor.replacements([(1, 400)])
    monkeypatch.undo()
    counts = processor.own.image_processor.get_number_of_image_patches
    for wrong in (
        lambda *given: counts(*given) + (given[:2] == (1201, 1453)),
        lambda *_: 4,
        lambda *_: 0,
        {}.__getitem__,
    ):
        other = Processor({file.name: file.read_bytes() for file in model.iterdir()})
        monkeypatch.setattr(other.own.image_processor, "get_number_of_image_patches", wrong)
        assert other._counted((64, 64)) is None
        assert other.replacements([(64, 64)]) == processor.replacements([(64, 64)])


def test_the_same_question_about_another_image_is_no_duplicate(model, data):
    rows = [
        {"messages": [user(f"@{name}", "What is this?"), answer("A ramp.")]} for name in ("a.png", "b.png", "a.png")
    ]
    cache = build(model, data, rows, deduplicate={"exact": "normalized"})
    assert rejected(cache) == ["duplicate"] and len(documents(cache)) == 2


def test_both_sides_of_a_pair_have_the_images_of_their_prompt(model, data):
    pair = {"prompt": CHATS["first"][:1], "chosen": [answer("A ramp.")], "rejected": [answer("A cat.")]}
    cache = build(model, data, [pair])
    chosen, other = documents(cache)
    assert chosen.media == other.media and len(chosen.media) == 1


def test_commands_show_images_with_their_sizes_and_tokens(model, data):
    cache = build(model, data, [{"messages": CHATS["between"]}])
    shown = run("inspect", cache, "--row", f"{data / 'rows.jsonl'}:0").stdout
    tokens = [image.length for image in documents(cache)[0].media]
    assert f"image 60 x 90, {tokens[0]} tokens" in " ".join(shown.split()) and f"<|image_pad|> ×{tokens[1]}" in shown
    assert re.search(rf"images +2 +{sum(tokens)} tokens", run("stats", cache).stdout)
    keys = ("--tokenizer", model, "--set", "media.images=read")
    assert "image 60 x 90" in " ".join(run("preview", data / "rows.jsonl", *keys).stdout.split())
    found = run("preview", data / "rows.jsonl", "--tokenizer", model).stdout
    assert "multimodal" in found


def test_a_report_shows_thumbnails_of_images_within_its_limits(model, data, monkeypatch):
    cache = build(model, data, [{"messages": CHATS["between"]}, {"messages": CHATS["twice"]}])

    def images():
        report(cache, data.parent / "page.html")
        page = Page((data.parent / "page.html").read_bytes())
        assert page.policy()["img-src"] == "data:" and not page.of("img")
        return [image for _, item, _ in page.items() for document in item["documents"] for image in document["images"]]

    shown = images()
    sizes = {(60, 90): (60, 90), (200, 40): (128, 26)}
    assert {(each["width"], each["height"]) for each in shown} == sizes.keys()
    for each in shown:
        opened = Pillow.open(io.BytesIO(base64.b64decode(each["jpeg"])))
        assert (opened.format, opened.size) == ("JPEG", sizes[each["width"], each["height"]]) and each["tokens"] > 0
    monkeypatch.setattr("packer.report.tokens._MOST_BYTES", len(shown[0]["jpeg"]) + 1)
    assert [each["jpeg"] is None for each in images()] == [False] + [True] * (len(shown) - 1)


@pytest.mark.slow
def test_workers_write_the_same_bytes(model, data):
    rows = [{"messages": chat, "id": f"{number:04}"} for number in range(5) for chat in CHATS.values()]
    cache = build(model, data, rows, partition_bytes=3000, jobs=1)
    first = (cache / "manifest.json").read_bytes()
    assert len(read_manifest(cache).media) > 2
    cache.rename(data.parent / "old")
    assert (build(model, data, rows, partition_bytes=3000, jobs=2) / "manifest.json").read_bytes() == first


def test_verifying_reads_no_image_outside_of_the_named_roots(model, data):
    (data.parent / "images").mkdir()
    (data / "a.png").rename(data.parent / "images" / "a.png")
    chat = [user("@../images/a.png", "What?"), answer("A ramp.")]
    cache = build(model, data, [{"messages": chat}], media={"root": str(data.parent)})
    options = {"level": "full", "reencode": True, "threads": 1}
    assert not [each for each in verify(cache, sources=[data.parent], **options).findings if each.what != "tokenizer"]
    (told,) = [each for each in verify(cache, sources=[data], **options).findings if each.what == "re-encoded"]
    assert "below no --sources" in told.found
    with pytest.raises(PackerError, match="media_outside"):  # without the root, nothing of the cache is reused
        build(model, data, [{"messages": chat}])


def test_the_fingerprint_is_of_what_decides_about_images_and_not_of_their_folder(model, data, tmp_path):
    rows = [{"messages": chat} for chat in CHATS.values()]
    made = {}

    def kept(name: str, folder: Path = model, **media: str) -> str:
        made[name] = fingerprint(read_manifest(build(folder, data, rows, media=media, force=not media.get("root"))))
        return made[name]

    cache = data.parent / "cache"
    assert kept("first") == recomputed(cache) and verify(cache, expect=made["first"], level="full").ok
    whole = (cache / "manifest.json").read_bytes()
    assert made.pop("first") == kept("with its folder named", root=str(data))
    assert (cache / "manifest.json").read_bytes() == whole  # it is up to date
    kept("damaged images stop a training run", check="header")
    other = tmp_path / "other"
    shutil.copytree(model, other)
    config = json.loads((other / "preprocessor_config.json").read_text("utf-8"))
    (other / "preprocessor_config.json").write_text(json.dumps(config | {"image_mean": [0.1, 0.2, 0.3]}), "utf-8")
    kept("another processor", folder=other)
    (data / "a.png").write_bytes(picture(60, 90, seed=7))
    kept("another image of the same size under the same name")
    assert len({*made.values()}) == len(made) == 4


def test_a_cache_in_a_bucket_has_its_images(model, data, in_memory):
    rows = [{"messages": chat} for chat in CHATS.values()]
    pack = {"block_len": 256, "max_pixels": 60_000}
    here = build(model, data, rows, pack=pack)
    options = {"tokenizer": str(model), "media": {"images": "read"}, "progress": None, "pack": pack}
    packer.build(str(data / "rows.jsonl"), "s3://bucket/cache", **options)
    pinned = fingerprint(read_manifest(here))
    assert verify("s3://bucket/cache", expect=pinned, level="full").ok
    assert sorted(in_memory.sizes("media")) == [table.path for table in read_manifest(here).media]
    shown = []
    for place in (str(here), "s3://bucket/cache"):
        for batching in ("padding_free", "packed"):
            with PackedLoader(place, batching=batching, order="sequential", prefetch=0) as loader:
                shown.append([batch["pixel_values"].tolist() for step in loader for batch in step])
    assert shown[:2] == shown[2:] and len(shown[0]) == len(CHATS) and 1 < len(shown[1]) < len(CHATS)


def test_rows_in_a_bucket_hold_their_images_or_are_told_where_paths_lead(model, data, in_memory):
    whole = base64.b64encode((data / "a.png").read_bytes()).decode()
    chats = [[user(f"@data:image/png;base64,{whole}"), answer("A ramp.")], CHATS["first"]]
    write_rows(data / "rows.jsonl", [{"messages": chat} for chat in chats])
    put(in_memory, data)
    options = {"tokenizer": str(model), "media": {"images": "read"}, "progress": None}
    packer.build("s3://bucket/cache/rows.jsonl", data.parent / "cache", **options)
    (told,) = (data.parent / "cache" / "rejected.jsonl").read_text().splitlines()
    assert json.loads(told)["code"] == "media_missing" and "below media.root" in json.loads(told)["reason"]
    assert [len(document.media) for document in documents(data.parent / "cache")] == [1]
