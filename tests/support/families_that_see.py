"""Families of models that see, tiny and random: their processors with small images, and their models.

Each has the code of its family in transformers, and the markers of its processor in the starter's tokenizer.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

import packer

CHATML = ("<|im_start|>", "<|im_end|>")
TEMPLATE = """{% for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'image' %}PLACE{% else %}{{ part['text'] }}{% endif %}\
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TEXT = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "initializer_range": 0.3, "max_position_embeddings": 4096,
}  # fmt: skip
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
QWEN_VISION = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64}
QWEN_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
QWEN_PLACE = "<|vision_start|><|image_pad|><|vision_end|>"
QWEN_IDS = {
    "image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>", "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}  # fmt: skip
TWO_KINDS = {"num_hidden_layers": 4, "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"] * 2}
PINPOINTS = [[56, 112], [112, 56], [112, 112]]


class Family(NamedTuple):
    """How the processor and the model of a family are made."""

    place: str
    """What a template writes for an image."""

    tokens: tuple[str, ...]
    processor: dict[str, Any]
    images: dict[str, Any]
    """Of the image processor."""

    config: str
    """The class of the model's configuration."""

    text: dict[str, Any]
    vision: dict[str, Any]
    ids: dict[str, str]
    """Ids in the configuration, by the tokens that they are of."""

    rest: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    named: dict[str, str] = {}  # noqa: RUF012 - nor this
    """Tokens that the tokenizer has a name for."""


def qwen(config: str, processor: str, patch: int, *, text: dict[str, Any], **vision: Any) -> Family:
    images = {
        "image_processor_type": "Qwen2VLImageProcessor", "patch_size": patch, "temporal_patch_size": 2, "merge_size": 2,
        "size": {"shortest_edge": 4096, "longest_edge": 24576},
    }  # fmt: skip
    vision = QWEN_VISION | {"patch_size": patch} | vision
    return Family(QWEN_PLACE, QWEN_TOKENS, {"processor_class": processor}, images, config, text, vision, QWEN_IDS)


def rope(*sections: int, **rest: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(sections), **rest}}


def square(kind: str, side: int, **rest: Any) -> dict[str, Any]:
    return {"image_processor_type": kind, "size": {"height": side, "width": side}, **rest}


def llava(config: str, processor: str, images: dict[str, Any], text: str, **rest: Any) -> Family:
    names = {"patch_size": 14, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"}
    vision = VISION | {"image_size": 56, "patch_size": 14, "model_type": "clip_vision_model"}
    ids = dict.fromkeys(("image_token_id", "image_token_index"), "<image>")
    places = {"image_seq_length": 16, "vision_feature_layer": -1}
    given = {"processor_class": processor, "image_token": "<image>", **names}
    return Family("<image>", ("<image>",), given, images, config, {"model_type": text}, vision, ids, places | rest)


GLM = ("<|begin_of_image|>", "<|image|>", "<|end_of_image|>", "<|video|>", "<|begin_of_video|>", "<|end_of_video|>")
IDEFICS = (
    "<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>", *(f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)),
)  # fmt: skip
GEMMA3 = ("<start_of_image>", "<image_soft_token>", "<end_of_image>")
GEMMA4 = ("<|image>", "<|image|>", "<image|>", "<|video|>", "<|audio|>", "<|audio>", "<audio|>")


def gemma4(text: dict[str, Any]) -> Family:
    return Family(
        "<|image|>", GEMMA4, {"processor_class": "Gemma4Processor", "feature_extractor": {"feature_extractor_type": "Gemma4AudioFeatureExtractor"}}, {"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 70, "patch_size": 16, "pooling_kernel_size": 3},
        "Gemma4Config", text | TWO_KINDS | {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "global_head_dim": 16},
        VISION | {"head_dim": 16, "num_key_value_heads": 2, "patch_size": 16, "pooling_kernel_size": 3, "position_embedding_size": 1024},
        {"image_token_id": "<|image|>", "boi_token_id": "<|image>", "eoi_token_id": "<image|>"}, {"audio_config": None},
        {"image_token": "<|image|>", "boi_token": "<|image>", "eoi_token": "<image|>", "audio_token": "<|audio|>", "boa_token": "<|audio>", "eoa_token": "<audio|>"},
    )  # fmt: skip


FAMILIES: dict[str, Family] = {
    "Qwen2-VL": qwen("Qwen2VLConfig", "Qwen2VLProcessor", 14, text=rope(2, 3, 3), embed_dim=32, hidden_size=64, mlp_ratio=2),
    "Qwen2.5-VL": qwen("Qwen2_5_VLConfig", "Qwen2_5_VLProcessor", 14, text=rope(2, 3, 3), window_size=56, fullatt_block_indexes=[1]),
    "Qwen3-VL": qwen("Qwen3VLConfig", "Qwen3VLProcessor", 16, text=rope(4, 2, 2, mrope_interleaved=True), deepstack_visual_indexes=[0, 1], num_position_embeddings=64),
    "Qwen3.5": qwen(
        "Qwen3_5Config", "Qwen3VLProcessor", 16, num_position_embeddings=64,
        text=rope(4, 2, 2, mrope_interleaved=True, partial_rotary_factor=1.0)
        | {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2, "linear_num_value_heads": 4, "linear_num_key_heads": 2}
        | {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4},
    ),
    "GLM-4V": Family(
        "<|begin_of_image|><|image|><|end_of_image|>", GLM, {"processor_class": "Glm4vProcessor"},
        {"image_processor_type": "Glm4vImageProcessor", "size": {"shortest_edge": 4096, "longest_edge": 24576}, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2},
        "Glm4vConfig", rope(2, 1, 1, partial_rotary_factor=0.5), QWEN_VISION | {"patch_size": 14, "image_size": 112},
        {
            "image_token_id": "<|image|>", "video_token_id": "<|video|>", "image_start_token_id": "<|begin_of_image|>", "image_end_token_id": "<|end_of_image|>",
            "video_start_token_id": "<|begin_of_video|>", "video_end_token_id": "<|end_of_video|>",
        },
    ),
    "Gemma 3": Family(
        "<start_of_image>", GEMMA3, {"processor_class": "Gemma3Processor", "image_seq_length": 4}, square("Gemma3ImageProcessor", 112, image_seq_length=4),
        "Gemma3Config", TWO_KINDS, VISION | {"image_size": 112, "patch_size": 14},
        {"image_token_id": "<image_soft_token>", "boi_token_id": "<start_of_image>", "eoi_token_id": "<end_of_image>"}, {"mm_tokens_per_image": 4},
        {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"},
    ),
    "Gemma 4": gemma4({}),
    "Gemma 4, large": gemma4({"use_bidirectional_attention": "vision"}),
    "Llama 4": Family(
        "<|image|>", ("<|image|>", "<|patch|>", "<|image_start|>", "<|image_end|>", "<|tile_x_separator|>", "<|tile_y_separator|>"),
        {"processor_class": "Llama4Processor"}, square("Llama4ImageProcessor", 56, max_patches=4),
        "Llama4Config",
        {"intermediate_size_mlp": 128, "num_local_experts": 2, "num_experts_per_tok": 1, "attention_chunk_size": 64, "no_rope_layers": [1, 1, 1, 0], "num_hidden_layers": 4, "interleave_moe_layer_step": 2},
        VISION | {"intermediate_size": 128, "image_size": 56, "patch_size": 14, "vision_output_dim": 64, "projector_input_dim": 64, "projector_output_dim": 64, "pixel_shuffle_ratio": 0.5},
        dict.fromkeys(("image_token_id", "image_token_index"), "<|patch|>"),
    ),
    "SmolVLM": Family(
        "<image>", IDEFICS, {"processor_class": "SmolVLMProcessor", "image_seq_len": 4},
        {"image_processor_type": "SmolVLMImageProcessor", "size": {"longest_edge": 256}, "max_image_size": {"longest_edge": 128}, "video_sampling": {"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 128}}},
        "SmolVLMConfig", {"model_type": "llama"}, VISION | {"image_size": 128, "patch_size": 16}, {"image_token_id": "<image>"}, {"scale_factor": 4},
        {"image_token": "<image>", "fake_image_token": "<fake_token_around_image>", "global_image_token": "<global-img>", "end_of_utterance_token": "<end_of_utterance>"},
    ),
    "Idefics3": Family(
        "<image>", IDEFICS, {"processor_class": "Idefics3Processor", "image_seq_len": 4},
        {"image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 224}, "max_image_size": {"longest_edge": 112}},
        "Idefics3Config", {"model_type": "llama"}, VISION | {"image_size": 112, "patch_size": 14}, {"image_token_id": "<image>"}, {"scale_factor": 4},
    ),
    "InternVL": Family(
        "<IMG_CONTEXT>", ("<img>", "</img>", "<IMG_CONTEXT>", "<video>"), {"processor_class": "InternVLProcessor", "image_seq_length": 4},
        square("GotOcr2ImageProcessor", 56, crop_to_patches=True, min_patches=1, max_patches=4),
        "InternVLConfig", {"model_type": "qwen2"}, VISION | {"image_size": [56, 56], "patch_size": [14, 14]}, {"image_token_id": "<IMG_CONTEXT>"},
        {"image_seq_length": 4, "downsample_ratio": 0.5},
        {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"},
    ),
    "LLaVA 1.5": llava("LlavaConfig", "LlavaProcessor", {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}}, "llama"),
    "LLaVA-NeXT": llava(
        "LlavaNextConfig", "LlavaNextProcessor", {"image_processor_type": "LlavaNextImageProcessor", "size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}, "image_grid_pinpoints": PINPOINTS},
        "llama", image_grid_pinpoints=PINPOINTS,
    ),
    "LLaVA-OneVision": Family(
        "<image>", ("<image>", "<video>"),
        {"processor_class": "LlavaOnevisionProcessor", "num_image_tokens": 16, "vision_feature_select_strategy": "full", "image_token": "<image>", "video_token": "<video>", "vision_aspect_ratio": "anyres_max_9"},
        square("LlavaOnevisionImageProcessor", 56, image_grid_pinpoints=PINPOINTS),
        "LlavaOnevisionConfig", {"model_type": "qwen2"}, VISION | {"image_size": 56, "patch_size": 14, "model_type": "siglip_vision_model", "vision_use_head": False},
        {"image_token_id": "<image>", "image_token_index": "<image>", "video_token_index": "<video>", "video_token_id": "<video>"}, {"image_grid_pinpoints": PINPOINTS, "vision_feature_layer": -1},
    ),
    "Mistral 3": Family(
        "[IMG]", ("[IMG]", "[IMG_BREAK]", "[IMG_END]"), {"processor_class": "PixtralProcessor", "patch_size": 14, "spatial_merge_size": 2},
        {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 140}, "patch_size": {"height": 28, "width": 28}},
        "Mistral3Config", {"model_type": "mistral", "sliding_window": None}, VISION | {"image_size": 140, "patch_size": 14, "model_type": "pixtral", "head_dim": 16},
        dict.fromkeys(("image_token_id", "image_token_index"), "[IMG]"), {"spatial_merge_size": 2, "vision_feature_layer": -1},
    ),
    "Kimi K2.5": Family(
        "<|media_begin|><|media_pad|><|media_end|>", ("<|media_begin|>", "<|media_pad|>", "<|media_end|>", "<|kimi_k25_video_placeholder|>"),
        {"processor_class": "Kimi_K25Processor"}, {"image_processor_type": "Kimi_K25ImageProcessor"},
        "Kimi_K25Config",
        {"model_type": "deepseek_v3", "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
        | {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "num_key_value_heads": 4},
        VISION | {"projection_hidden_size": 32}, {"image_token_id": "<|media_pad|>"}, {"projection_hidden_size": 32},
        {"image_token": "<|media_pad|>", "video_token": "<|kimi_k25_video_placeholder|>"},
    ),
}  # fmt: skip


def family_folder(family: Family, folder: Path) -> Path:
    """Write the folder of a model of the family, with its processor."""
    folder.mkdir(parents=True)
    given = Path(packer.__file__).parent / "starter" / "files" / "tokenizer" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(given))
    tokenizer.add_special_tokens([*CHATML, *family.tokens])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"extra_special_tokens": family.named} if family.named else {}
    written = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>", **names,
        },
        "processor_config.json": family.processor,
        "preprocessor_config.json": {"processor_class": family.processor["processor_class"], **family.images},
    }  # fmt: skip
    for name, content in written.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "chat_template.jinja").write_text(TEMPLATE.replace("PLACE", family.place))
    return folder


def family_model(family: Family, id_of: Callable[[str], int], vocab_size: int) -> Any:
    """Return a random model of the family."""
    import torch
    import transformers

    text = TEXT | {"vocab_size": vocab_size} | family.text
    ids = {name: id_of(token) for name, token in family.ids.items()}
    config = getattr(transformers, family.config)(text_config=text, vision_config=family.vision, **ids, **family.rest)
    torch.manual_seed(0)
    return transformers.AutoModelForImageTextToText.from_config(config).float().eval()
