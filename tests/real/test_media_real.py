"""Real processor folders on real images: the ids are the processors' own, and every row has its images or its code."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("PIL", reason="IMAGES ARE NOT TESTED: pillow is not installed")
pytest.importorskip("transformers", reason="IMAGES ARE NOT TESTED: transformers is not installed")

from image_models import answer, user

from packer.media.images import UnusableImageError, decode, examine
from packer.media.processor import Processor, processor_of
from packer.pipeline.plan.build_plan import load_recipe_model
from packer.pipeline.stages import Stages
from packer.recipe.recipe import make_recipe
from packer.source.row import FileRow
from packer.source.rows import read_batch

BROKEN = {
    *("bomb_30000x30000.png", "broken.png", "broken_data_stream.png", "decompression_bomb.gif"),
    *("empty.png", "lying_header.png", "not_an_image.jpg", "truncated.jpg"),
}
FOLDERS = ("gemma3", "gemma3-pan-and-scan", "internvl3", "llava-1.5", "llava-next", "llava-onevision", "qwen2-vl", "qwen2_5-vl",
           "qwen3-vl", "smolvlm")  # fmt: skip

AT_ONCE = ("llava-1.5", "smolvlm")
"""Of each of the others one of these lays images out in the same way, or tests/media has a twin."""

OWN_KEYS: dict[str, dict[str, Any]] = {
    "gemma3": {"stop": ["<end_of_turn>"]},
    "gemma3-pan-and-scan": {"stop": ["<end_of_turn>"]},
    "llava-1.5": {"no_terminator": "append"},
}
"""What the templates of these folders need, images or not."""


@pytest.fixture(scope="session")
def media(real) -> Path:
    folder = real / "media"
    if not folder.is_dir():
        pytest.skip(f"REAL IMAGES MISSING: {folder} not found")
    return folder


@pytest.fixture(scope="session")
def folders(media, tmp_path_factory):
    """The processor folders, with copies in place of files that name another folder's."""
    root = tmp_path_factory.mktemp("processors")
    for folder in (media / "processors").iterdir():
        (root / folder.name).mkdir()
        for file in folder.iterdir():
            content = file.read_bytes()
            content = (folder / content.decode()).resolve().read_bytes() if content[:3] == b"../" else content
            (root / folder.name / file.name).write_bytes(content)
    return root


@pytest.fixture(autouse=True)
def short_probe(monkeypatch):
    """Processors are loaded once, and say what they make of three sizes: of 49 it takes a second for each folder."""
    monkeypatch.setattr("packer.media.processor._PROBED", ((64, 48), (1, 1), (30, 3000)))


def recipe_of(folder: Path, **media: Any) -> Any:
    return make_recipe(
        {
            "tokenizer": str(folder),
            "engine": "reference",
            "media": {"images": "read", **media},
            "supervision": OWN_KEYS.get(folder.name, {}),
        }
    )


def chats(x: str, y: str, z: str):
    x, y, z = f"@{x}", f"@{y}", f"@{z}"
    yield [user(x, "What is this?"), answer("A thing.")]
    yield [user("What is this?", x), answer("A thing.")]
    yield [user("Look: ", x, " and tell."), answer("Told.")]
    yield [user(x, y, "Compare."), answer("Unlike.")]
    yield [user("One ", x, " two ", y, " three ", z, "?"), answer("Yes.")]
    yield [user(x, "First?"), answer("One."), user(y, "Second?"), answer("Two.")]
    yield [user("Hello"), answer("Hi."), user(x, "And?"), answer("So.")]
    yield [user(x), answer("Alone.")]
    yield [user(x, "Again?"), answer("One."), user(x, "The same?"), answer("Two."), user("Sure?"), answer("Yes.")]


def decoded(images: Path, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            **message,
            "content": [
                {"type": "image", "image": decode((images / part["image"]).read_bytes())} if "image" in part else part
                for part in message["content"]
            ],
        }
        for message in messages
    ]


@pytest.mark.parametrize("all_shapes", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in AT_ONCE)) for name in FOLDERS]
)
def test_documents_have_the_ids_of_the_processor(media, folders, name, all_shapes):
    images = ["icon16.png", "hopper_orientation_8.jpg"]
    if all_shapes:
        images = sorted(
            each.name for each in (media / "images").iterdir() if each.name not in BROKEN and each.is_file()
        )
    if name == "smolvlm":
        pytest.importorskip("num2words", reason="SMOLVLM IS NOT TESTED: its processor needs num2words")
    recipe = recipe_of(folders / name)
    model = load_recipe_model(recipe)
    stages, own = Stages(recipe, model), processor_of(model.files).own
    if name in ("gemma3-pan-and-scan", "qwen3-vl"):  # one of each kind of tokenizer
        # A cache has it as it was loaded, and a reader loads the same.
        fresh = Processor(model.files).own.tokenizer.backend_tokenizer.to_str()
        assert fresh == own.tokenizer.backend_tokenizer.to_str() == model.files["tokenizer.json"].decode()
    if name == "smolvlm":
        # It asks for frames of videos in every conversation, and makes 17 tiles of the smallest image.
        own.video_processor.num_frames = own.video_processor.fps = 1
        images = images[:1]
    checked = 0
    for number, image in enumerate(images):
        others = images[number - 1], "rgb_trns.png"
        chosen = [*chats(image, *others)]
        for chat in chosen if all_shapes else chosen[number % 3 :: 3]:
            row = FileRow(json.dumps({"messages": chat}).encode(), 1, 1)
            batch = read_batch(
                [row], 0, first_line=0, schema="messages", columns={}, roles={}, folder=str(media / "images")
            )
            done = stages.run(batch)
            if {rejection.code for rejection in done.rejections} == {"media_refused"} and all_shapes:
                with pytest.raises(ValueError, match="aspect ratio"):
                    own.apply_chat_template(decoded(media / "images", chat), tokenize=True)
                continue
            assert not done.rejections, done.rejections
            documents = done.documents
            for place in range(documents.num_documents):
                last = int(documents.run_message[documents.run_offsets[place + 1] - 1])
                ids = documents.input_ids[documents.offsets[place] : documents.offsets[place + 1]].tolist()
                ids = ids[:-1] if name == "llava-1.5" else ids  # the EOS that the recipe appends
                expected = own.apply_chat_template(decoded(media / "images", chat[: last + 1]), tokenize=True)[0]
                assert ids == list(map(int, expected))[: len(ids)] and len(expected) - len(ids) <= 2
                checked += 1
    assert checked >= (4 if all_shapes else 3) * len(images)


def test_sizes_in_headers_are_those_of_the_decoded_images(media):
    checked = 0
    for file in (media / "images").iterdir():
        if file.name in BROKEN:
            with pytest.raises(UnusableImageError):
                examine(file.read_bytes(), is_decoded=True)
        else:
            image = examine(file.read_bytes(), is_decoded=False)
            assert image.size == decode(file.read_bytes()).size[::-1], file
            checked += 1
    assert checked > 30
