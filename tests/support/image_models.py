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


def model_folder(folder: Path) -> Path:
    """Write a folder of a Qwen2.5-VL whose images have few tokens."""
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
            "max_pixels": 28 * 28 * 16,
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
