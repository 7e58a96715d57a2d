"""Which models transformers gets wrong when documents with images are packed: told by what they do, not by their names.

`tests/media/test_families.py` holds this against each family: one that transformers starts to get right fails there.
"""

from collections.abc import Collection
from typing import Any


def text_config(config: Any) -> Any:
    """Return the part of a model's config that is about its language model."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def first_with_state(config: Any) -> str:
    """Name the first layer of another kind than attention by a mask; empty if there is none."""
    text = text_config(config)
    kinds = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ()
    for at, kind in enumerate(kinds):
        if kind == "linear_attention" or not kind.endswith("attention"):
            return f" (layer {at}, {kind})"
    return ""


def wrong_when_packed(names: Collection[str], config: Any) -> str | None:
    """Return what a model does for which its packed documents with images must be padded, or None."""
    if "token_type_ids" in names or getattr(text_config(config), "use_bidirectional_attention", None):
        return "attends to both sides within an image, as Gemma 3: transformers takes packed images for others"
    state = first_with_state(config)
    return f"has layers that carry a state, which packed images disturb{state}" if state else None
