"""A small model folder with Qwen's processor, and images to give it."""

import io
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

import packer

ADDED = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")

TEMPLATE = """{% for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}\
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def model_folder(folder: Path, *, max_pixels: int = 28 * 28 * 16) -> Path:
    """Write a folder of a Qwen2.5-VL whose images have few tokens, or as many as `max_pixels` allow."""
    folder.mkdir(parents=True)
    given = Path(packer.__file__).parent / "starter" / "files" / "tokenizer" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(given))
    tokenizer.add_special_tokens(list(ADDED))
    tokenizer.save(str(folder / "tokenizer.json"))
    written = {
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"},
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "Qwen2_5_VLProcessor",
            "patch_size": 14,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "min_pixels": 28 * 28 * 2,
            "max_pixels": max_pixels,
        },
    }
    for name, content in written.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def picture(width: int, height: int, *, format: str = "PNG", seed: int = 0) -> bytes:  # noqa: A002 - Pillow's word
    """Return the bytes of an image with a gradient."""
    from PIL import Image

    image = Image.linear_gradient("L").resize((width, height)).convert("RGB")
    image.putpixel((0, 0), (seed % 256, seed // 256 % 256, 7))
    file = io.BytesIO()
    image.save(file, format)
    return file.getvalue()


def user(*parts: str) -> dict[str, Any]:
    """Return a message; a part that begins with @ names an image."""
    content = [
        {"type": "image", "image": part[1:]} if part[:1] == "@" else {"type": "text", "text": part} for part in parts
    ]
    return {"role": "user", "content": content}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def write_rows(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def tiny_qwen(processor: Any) -> Any:
    """Return a small random Qwen2.5-VL for a processor."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    tokenizer = processor.tokenizer
    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "initializer_range": 0.3,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
        },
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64, "window_size": 56, "fullatt_block_indexes": [1],
        },
        **{f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{text}|>") for name, text in {"image": "image_pad", "video": "video_pad", "vision_start": "vision_start", "vision_end": "vision_end"}.items()},
    )  # fmt: skip
    return Qwen2_5_VLForConditionalGeneration(config).eval()


def with_pixels(chat: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Return a conversation as transformers takes it: its images decoded."""
    from packer.media.images import decode

    return [
        {
            **message,
            "content": [
                {"type": "image", "image": decode((folder / part["image"]).read_bytes())} if "image" in part else part
                for part in message["content"]
            ],
        }
        for message in chat
    ]


def logps_alone(model: Any, processor: Any, folder: Path, chat: list[dict[str, Any]]) -> Any:
    """Return the log-probability of all answers of a chat up to their stop tokens, by transformers alone."""
    import torch

    shown = with_pixels(chat, folder)
    batch = processor.apply_chat_template(shown, tokenize=True, return_dict=True, return_tensors="pt")
    ids, end = batch["input_ids"][0].tolist(), processor.tokenizer.convert_tokens_to_ids("<|im_end|>")
    labels = torch.full_like(batch["input_ids"], -100)
    for place in (place for place, message in enumerate(chat) if message["role"] == "assistant"):
        prompt = list(processor.apply_chat_template(shown[:place], add_generation_prompt=True, tokenize=True)[0])
        stop = ids.index(end, len(prompt)) + 1
        labels[0, len(prompt) : stop] = batch["input_ids"][0, len(prompt) : stop]
    logits = model(**batch).logits[0, :-1]
    return -torch.nn.functional.cross_entropy(logits, labels[0, 1:], reduction="sum")
