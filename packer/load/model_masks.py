"""What a transformers model does with the boundaries in ``position_ids``, and masks for models that overlook them.

Most models make their masks by transformers' own functions, and hand them ``position_ids``, in which these find where
documents begin. Some do not (gpt-oss, AFMoE, Falcon, OPT in transformers 5.23): packed documents then see each other
under eager and SDPA attention, and nothing says so. Whether a model does is in its source, in the calls of these
functions; no config tells it. For models that do not, :func:`masks_of` makes the masks by the same functions and from
the same config, as ``generate`` does, so that sliding windows stay what they are.
"""

import ast
import functools
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch

from packer.load.step import MicroBatch

_MAKERS = {"create_causal_mask", "create_sliding_window_causal_mask", "create_chunked_causal_mask"}


def overlooks_positions(config: Any) -> bool:
    """Whether the model of a config makes its masks without ``position_ids``; False where its source is unknown."""
    module = type(config).__module__
    return "configuration_" in module and _overlooks_positions(module.replace("configuration_", "modeling_"))


@functools.cache
def _overlooks_positions(module: str) -> bool:
    try:
        source = inspect.getsource(sys.modules.get(module) or import_module(module))
    except (ImportError, OSError):
        return False
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return any("position_ids" not in names for function in functions for names in _handed_over(function))


def _handed_over(function: ast.FunctionDef) -> Iterator[set[str]]:
    """Yield the names of the arguments of each call that makes a mask, also of those that stand in a dict."""
    nodes = list(ast.walk(function))
    dicts = {
        ast.unparse(node.targets[0]): {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _MAKERS:
            rest = [dicts.get(ast.unparse(each.value), {"position_ids"}) for each in node.keywords if each.arg is None]
            yield {str(each.arg) for each in node.keywords}.union(*rest)


def masks_of(config: Any, micro_batch: MicroBatch) -> Any:
    """Return the masks of a flattened micro-batch, as transformers' own functions make them for a config.

    Returns:
        a mask, or one by kind of layer; None for flash attention, which needs none
    """
    create_masks = import_module(
        "transformers.masking_utils"
    ).create_masks_for_generate  # the config is of this library
    positions = micro_batch["position_ids"]
    # Only its shape, dtype and device are looked at. Other releases have other names, and ask for the places, too.
    embeddings = torch.empty((*positions.shape, 0), dtype=config.dtype or torch.float32, device=positions.device)
    known = {
        "config": config,
        "inputs_embeds": embeddings,
        "input_embeds": embeddings,
        "attention_mask": None,
        "cache_position": torch.arange(positions.shape[1], device=positions.device),
        "past_key_values": None,
        "position_ids": positions,
    }
    asked = inspect.signature(create_masks).parameters
    masks = create_masks(**{name: value for name, value in known.items() if name in asked})
    is_none = all(mask is None for mask in masks.values()) if isinstance(masks, dict) else masks is None
    return None if is_none else masks
