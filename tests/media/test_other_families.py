"""Families of which packer's table says nothing: their ids are the processor's own, or no cache is built."""

import json
from pathlib import Path
from typing import Any

import pytest
from families_that_see import Family, family_folder, square
from image_models import answer, picture, user, with_pixels, write_rows
from search_effort import one_in

import packer
from packer.errors import CheckError, InputError
from packer.load import PackedLoader
from packer.media.processor import processor_of

pytestmark = pytest.mark.filterwarnings("ignore")


def other(processor: str, place: str, tokens: tuple[str, ...], images: dict[str, Any], **given: Any) -> Family:
    named = given.pop("named", {})
    return Family(place, tokens, {"processor_class": processor, **given}, images, "", {}, {}, {}, named=named)


HUNYUAN = {"image_token": "<hy_img>", "image_start_token": "<hy_is>", "image_end_token": "<hy_ie>"}
MINICPM = {
    "image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "image_start_token": "<image>", "image_end_token": "</image>",
    "slice_start_token": "<slice>", "slice_end_token": "</slice>", "image_id_start_token": "<image_id>", "image_id_end_token": "</image_id>",
}  # fmt: skip
OTHERS = {
    # Its tiles are numbered in plain text between the runs of a token.
    "Aya Vision": other(
        "AyaVisionProcessor", "<image>", ("<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>"),
        square("GotOcr2ImageProcessor", 56, crop_to_patches=True, min_patches=1, max_patches=6), patch_size=14, downsample_factor=2, img_size=56,
    ),
    # Rows of different lengths, and no table of packed models has it.
    "HunYuan-VL": other(
        "HunYuanVLProcessor", "<hy_is><hy_img><hy_ie>", tuple(HUNYUAN.values()),
        {"image_processor_type": "HunYuanVLImageProcessor", "min_pixels": 4096, "max_pixels": 32768}, named=HUNYUAN,
    ),
    # Its tokenizer writes a first token that has no name, as this configuration leaves it out.
    "DeepSeek-VL": other(
        "DeepseekVLProcessor", "<image_placeholder>", ("<begin>", "<image_placeholder>"), square("DeepseekVLImageProcessor", 64),
        num_image_tokens=16, named={"image_token": "<image_placeholder>"},
    ),
    # It asks for settings of videos, and numbers the images of a conversation if told to.
    "MiniCPM-V 4.6": other(
        "MiniCPMV4_6Processor", "<|image_pad|>", tuple(MINICPM.values()), {"image_processor_type": "MiniCPMV4_6ImageProcessor", "use_image_id": False},
        named=MINICPM,
    ),
    "Idefics2": other("Idefics2Processor", "<image>", ("<image>", "<fake_token_around_image>", "<end_of_utterance>"), {"image_processor_type": "Idefics2ImageProcessor"}),
}  # fmt: skip

CHATS = [
    [user("@0.png", "What is this?"), answer("A ramp.")],
    [user("Two: ", "@1.png", " and ", "@0.png", "."), answer("Ramps."), user("@2.png"), answer("One more.")],
    [user("Hello"), answer("Hi."), user("And?", "@1.png"), answer("So.")],
    [user("Hello"), answer("Hi.")],
]


def build(name: str, folder: Path) -> Path:
    model = family_folder(OTHERS[name], folder / "model")
    if name == "DeepSeek-VL":
        tokenizer = json.loads((model / "tokenizer.json").read_text("utf-8"))
        begin = next(each["id"] for each in tokenizer["added_tokens"] if each["content"] == "<begin>")
        first, rest = {"SpecialToken": {"id": "<begin>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "single": [first, rest], "pair": [first, rest, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<begin>": {"id": "<begin>", "ids": [begin], "tokens": ["<begin>"]}},
        }  # fmt: skip
        (model / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    for number, size in enumerate([(60, 90), (250, 40), (64, 64)]):
        (folder / f"{number}.png").write_bytes(picture(*size, seed=number))
    rows = write_rows(folder / "rows.jsonl", [{"messages": chat} for chat in CHATS])
    media = {"images": "read"}
    packer.build(str(rows), folder / "cache", tokenizer=str(model), media=media, progress=None, jobs=1)
    return folder / "cache"


@pytest.mark.parametrize("name", one_in(4, sorted(OTHERS.keys() - {"Idefics2"})))
def test_documents_have_the_ids_of_a_processor_that_nobody_tried_before(name, tmp_path):
    cache = build(name, tmp_path)
    processor = processor_of({file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()})
    own = processor.own
    with PackedLoader(cache, batching="padded", order="sequential", images=False, prefetch=0) as loader:
        found = [batch["input_ids"][0].tolist() for step in loader for batch in step]
    for chat, ids in zip(CHATS, found, strict=True):
        expected = own.apply_chat_template(with_pixels(chat, tmp_path), tokenize=True)[0]
        assert ids == list(map(int, expected))[: len(ids)] and len(expected) - len(ids) <= 1  # behind the stop token


def test_a_processor_that_numbers_the_images_of_a_conversation_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(OTHERS["MiniCPM-V 4.6"].images, "use_image_id", True)
    with pytest.raises(CheckError, match="row 0: the ids of its images are not those of"):
        build("MiniCPM-V 4.6", tmp_path)


def test_a_processor_without_what_packer_asks_of_it_is_refused_by_its_name(tmp_path):
    with pytest.raises(InputError, match="images for Idefics2Processor: NotImplementedError"):
        build("Idefics2", tmp_path)
