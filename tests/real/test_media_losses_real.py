"""Small random models of several families: padded and packed documents with images have the losses of each alone."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("PIL", reason="IMAGES ARE NOT TESTED: pillow is not installed")
transformers = pytest.importorskip("transformers", reason="IMAGES ARE NOT TESTED: transformers is not installed")
torch = pytest.importorskip("torch")

from image_models import answer, picture, user, write_rows  # noqa: E402

import packer  # noqa: E402
from packer.errors import UsageError  # noqa: E402
from packer.load import PackedLoader  # noqa: E402
from packer.load.adapters import huggingface, model_arguments  # noqa: E402
from packer.media.decoder import decode  # noqa: E402
from packer.media.processor import processor_of  # noqa: E402

SMALLER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "qwen3-vl": ({"size": {"shortest_edge": 4096, "longest_edge": 24576}}, {}),
    "smolvlm": ({"size": {"longest_edge": 256}, "max_image_size": {"longest_edge": 128}}, {"image_seq_len": 4}),
    "internvl3": ({"size": {"height": 56, "width": 56}}, {"image_seq_length": 4}),
    "llava-next": ({"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}, "image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]]}, {}),
    "gemma3": ({"size": {"height": 112, "width": 112}, "image_seq_length": 4}, {"image_seq_length": 4}),
}  # fmt: skip
"""Changes of preprocessor_config.json and processor_config.json that make images cost few tokens."""

VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
QWEN = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64, "patch_size": 16}
TEXT = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "initializer_range": 0.3,
}  # fmt: skip


def model_of(name: str, own: Any, image_id: int) -> Any:
    text = TEXT | {"vocab_size": len(own.tokenizer) + 8}
    if name == "qwen3-vl":
        rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
        vision = QWEN | {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 64}
        config = transformers.Qwen3VLConfig(
            text_config=text | {"rope_parameters": rope}, vision_config=vision, image_token_id=image_id
        )
    elif name == "smolvlm":
        vision = VISION | {"image_size": 128, "patch_size": 16}
        config = transformers.SmolVLMConfig(
            text_config=text | {"model_type": "llama"}, vision_config=vision, image_token_id=image_id, scale_factor=4
        )
    elif name == "internvl3":
        vision = VISION | {"image_size": [56, 56], "patch_size": [14, 14]}
        config = transformers.InternVLConfig(
            text_config=text | {"model_type": "qwen2"},
            vision_config=vision,
            image_token_id=image_id,
            image_seq_length=4,
            downsample_ratio=0.5,
        )
    elif name == "llava-next":
        vision = VISION | {"image_size": 56, "patch_size": 14, "model_type": "clip_vision_model"}
        config = transformers.LlavaNextConfig(
            text_config=text | {"model_type": "llama"}, vision_config=vision, image_token_id=image_id, image_token_index=image_id, image_seq_length=16,
            vision_feature_layer=-1, image_grid_pinpoints=own.image_processor.image_grid_pinpoints,
        )  # fmt: skip
    else:
        ends = {
            key: own.tokenizer.convert_tokens_to_ids(token)
            for key, token in (("boi_token_id", "<start_of_image>"), ("eoi_token_id", "<end_of_image>"))
        }
        layers = {
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "sliding_window": 64,
        }
        config = transformers.Gemma3Config(
            text_config=text | layers,
            vision_config=VISION | {"image_size": 112, "patch_size": 14},
            mm_tokens_per_image=4,
            image_token_id=image_id,
            **ends,
        )
    torch.manual_seed(0)
    return transformers.AutoModelForImageTextToText.from_config(config).float().eval()


CHATS = [
    [user("@0.png", "What is this?"), answer("A ramp.")],
    [user("@1.png", "@2.png", "Compare."), answer("Both are ramps.")],
    [user("Hello"), answer("Hi, how are you?")],
]


@pytest.fixture
def cache(real, tmp_path, request) -> Path:
    name = request.param
    if name == "smolvlm":
        pytest.importorskip("num2words", reason="SMOLVLM IS NOT TESTED: its processor needs num2words")
    given, folder = real / "media" / "processors" / name, tmp_path / "model"
    if not given.is_dir():
        pytest.skip(f"REAL PROCESSORS MISSING: {given} not found")
    folder.mkdir()
    for file in given.iterdir():
        content = file.read_bytes()
        content = (given / content.decode()).resolve().read_bytes() if content[:3] == b"../" else content
        (folder / file.name).write_bytes(content)
    for file, changes in zip(("preprocessor_config.json", "processor_config.json"), SMALLER[name], strict=True):
        if changes:
            (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | changes))
    for number, size in enumerate([(60, 90), (120, 40), (64, 64)]):
        (tmp_path / f"{number}.png").write_bytes(picture(*size, seed=number))
    rows = write_rows(tmp_path / "rows.jsonl", [{"messages": chat} for chat in CHATS])
    stop = ["<end_of_turn>"] if name == "gemma3" else []
    packer.build(
        str(rows),
        tmp_path / "cache",
        tokenizer=str(folder),
        media={"images": "read"},
        supervision={"stop": stop},
        progress=None,
        engine="reference",
        jobs=1,
    )
    return tmp_path / "cache"


@pytest.mark.parametrize("cache", SMALLER, indirect=True)
def test_losses_are_those_of_the_processors_own_batches(cache, request):
    name = request.node.callspec.params["cache"]
    own = processor_of({file.name: file.read_bytes() for file in (cache.parent / "model").iterdir()}).own
    if name == "smolvlm":  # it asks for it in every conversation
        own.video_processor.num_frames = own.video_processor.fps = 1
    with packer.Cache.open(cache) as opened:
        image_id = next(number for number in opened.manifest.model.image_ids if number in own.image_token_ids)
    model = model_of(name, own, image_id)

    def read(batching, **options):
        with PackedLoader(cache, order="sequential", batching=batching, prefetch=0, **options) as loader:
            return [micro_batch for step in loader for micro_batch in step]

    def loss_of(micro_batch):
        return model(**huggingface(micro_batch, num_items_in_batch=1, **model_arguments(model))).logits, micro_batch[
            "labels"
        ]

    def summed(logits, labels):
        return torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1).double(), labels[:, 1:].flatten(), reduction="sum"
        ).item()

    expected = 0.0
    for chat, document in zip(CHATS, read("padded", images=False), strict=True):
        shown = [
            {**message, "content": [{"type": "image", "image": decode((cache.parent / part["image"]).read_bytes())} if "image" in part else part for part in message["content"]]}
            for message in chat
        ]  # fmt: skip
        batch = own.apply_chat_template(shown, tokenize=True, return_dict=True, return_tensors="pt")
        labels = torch.full_like(batch["input_ids"], -100)
        labels[:, : document["labels"].shape[1]] = document["labels"]
        with torch.no_grad():
            expected += summed(model(**batch).logits, labels)
    for batching in ("padded", "padding_free"):
        (micro_batch,) = read(batching, micro_batch_size=3)
        if name == "gemma3" and batching == "padding_free":
            with pytest.raises(UsageError, match="Gemma 3"):
                loss_of(micro_batch)
            continue
        with torch.no_grad():
            assert summed(*loss_of(micro_batch)) == pytest.approx(expected, rel=1e-5), batching
