"""Adapts micro-batches to particular model libraries."""

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from packer.batches import CHOSEN, REJECTED
from packer.errors import UsageError
from packer.load.attention import documents_of
from packer.load.step import MicroBatch
from packer.media.processor import first_with_state, text_config, wrong_when_packed


def huggingface(
    micro_batch: MicroBatch,
    config: Any,
    *,
    num_items_in_batch: int | None = None,
    seq_idx: bool | None = None,
    rope_index: Callable[..., Any] | None = None,
) -> MicroBatch:
    """Return keyword arguments for a Hugging Face model: ``model(**huggingface(micro_batch, model.config))``.

    transformers keeps packed documents apart in two ways, and a flattened micro-batch supports both. Flash attention
    uses ``cu_seq_lens_*`` and ``max_length_*``. Eager, SDPA and FlexAttention find the boundaries where
    ``position_ids`` do not increase by one, but only without an attention mask and without a key-value cache. With
    either, the mask is purely causal and neighbors silently attend to each other. Hence ``use_cache=False``, and no
    mask.

    Three kinds of models need more, and silently attend across boundaries without it:

    - Models with positions in three dimensions (Qwen2-VL, Qwen2.5-VL, GLM-4V and others with ``mrope_section``) find no
      boundaries in ``position_ids`` of shape [1, T]. They do in [4, 1, T]: positions for the mask, then those for time,
      height and width, which are the same for text. Models that do not take these, such as HunYuan-VL, refuse them.
    - Models that make their masks without ``position_ids`` (gpt-oss, AFMoE, Falcon, OPT) get masks that have the
      boundaries, under eager, SDPA and FlexAttention.
    - Layers that carry a state (convolutions, state spaces, linear attention) reset where ``seq_idx`` changes.

    A padded micro-batch has one document per row and keeps its 2-D ``attention_mask``, which all of them support.

    Args:
        config: of the model, ``model.config``; None for a model of your own whose attention is like Llama's.
        micro_batch: flattened or padded, with unshifted labels.
        num_items_in_batch: ``step.num_items_in_batch``; the model's loss is then the sum over this micro-batch divided
            by it, so that the losses of a step's micro-batches add up to its mean over trained tokens. If gradients
            are averaged over W ranks (DDP, FSDP), multiply the loss by W. None keeps the model's own mean over this
            micro-batch.
        seq_idx: add ``seq_idx`` int32 [1, T], by which layers that carry a state reset at a boundary. By default it is
            added if the config names such layers (Bamba, Granite 4, Qwen3-Next, Qwen3.5). It requires their kernels:
            without them, transformers refuses from 5.20 on, and ignores it before. Mamba, Mamba-2 and Jamba ignore it
            and leak in packed rows: give them padded ones.
        rope_index: `get_rope_index` of a model with positions in three dimensions, for packed documents with images;
            :func:`packer.load.adapters.rope_index_of` finds it.

    Raises:
        UsageError: something these models would silently get wrong: several documents in one of several rows, a
            flattened micro-batch with a mask, shifted labels, ``seq_idx`` for padded rows or where
            transformers ignores it.
    """
    state = first_with_state(config)
    if seq_idx is None:
        seq_idx = "cu_seq_lens_q" in micro_batch and len(micro_batch["cu_seq_lens_q"]) > 2 and bool(state)
    _check(micro_batch, seq_idx=seq_idx, state=state)
    arguments = {name: value for name, value in micro_batch.items() if name not in ("document_ids", "columns")}
    arguments["use_cache"] = False
    if "pixel_values" in micro_batch:
        arguments |= _positions_with_images(micro_batch, config, rope_index)
    elif "cu_seq_lens_q" in micro_batch and _has_positions_in_3d(config):
        arguments["position_ids"] = micro_batch["position_ids"].expand(4, -1, -1)
    elif "cu_seq_lens_q" in micro_batch and not seq_idx and overlooks_positions(config):
        masks = masks_of(config, micro_batch)
        arguments |= {} if masks is None else {"attention_mask": masks}
    if seq_idx:
        arguments["seq_idx"] = documents_of(micro_batch)
    if num_items_in_batch is not None:
        arguments["num_items_in_batch"] = num_items_in_batch
    return arguments


def _positions_with_images(
    micro_batch: MicroBatch, config: Any, rope_index: Callable[..., Any] | None
) -> dict[str, Tensor | None]:
    """Return the positions of documents with images; None where the model makes them itself, of each padded row."""
    is_spatial = _has_positions_in_3d(config)
    if "cu_seq_lens_q" not in micro_batch:
        return {"position_ids": None} if is_spatial else {}
    if (what := wrong_when_packed(micro_batch, config)) is not None:
        hint = "open the loader with batching='padded'"
        raise UsageError(f"packed documents with images for a model that {what}", hint=hint)
    if is_spatial and rope_index is None:
        what = "packed documents with images for a model with positions in three dimensions, without its get_rope_index"
        raise UsageError(what, hint="give rope_index; or open the loader with batching='padded'")
    return {} if rope_index is None else {"position_ids": packed_positions(micro_batch, rope_index)}


def packed_positions(micro_batch: MicroBatch, rope_index: Callable[..., Any]) -> Tensor:
    """Return positions of a flattened micro-batch: for the mask, then for time, height and width.  # int64[4, 1, T]"""
    lengths = micro_batch["cu_seq_lens_q"].diff().tolist()
    ids, types = (micro_batch[name][0].split(lengths) for name in ("input_ids", "mm_token_type_ids"))
    mask = pad_sequence([torch.ones_like(each) for each in ids], batch_first=True)
    found, _ = rope_index(
        input_ids=pad_sequence(list(ids), batch_first=True),
        mm_token_type_ids=pad_sequence(list(types), batch_first=True),
        image_grid_thw=micro_batch.get("image_grid_thw"),
        attention_mask=mask,
    )
    return torch.cat([micro_batch["position_ids"][None], found[:, mask.bool()][:, None]])


def rope_index_of(model: Any) -> Callable[..., Any] | None:
    """Return the function by which a model gives positions in three dimensions, or None.

    Wrappers have the model as `module`, `base_model` or `model`, and a model its own decoder as `model`.
    """
    for name in ("module", "base_model", "model", "model"):
        if hasattr(model, "get_rope_index"):
            break
        model = getattr(model, name, model)
    found: Callable[..., Any] | None = getattr(model, "get_rope_index", None)
    return found


def model_arguments(model: Any) -> dict[str, Any]:
    """Return what :func:`huggingface` needs of a model: its config, and what gives positions in three dimensions."""
    return {"config": getattr(model, "config", None), "rope_index": rope_index_of(model)}


def summed_loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    """Compute the loss of a model that takes no `num_items_in_batch`, as a Trainer's `compute_loss_func`.

    The sum over the targets, in float32 at least, divided by `num_items_in_batch`, or by their number.
    """
    scores, targets = outputs["logits"][:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    total = torch.nn.functional.cross_entropy(scores, targets, ignore_index=-100, reduction="sum")
    loss: Tensor = total / ((targets >= 0).sum() if num_items_in_batch is None else num_items_in_batch)
    return loss


def answer_logps(logits: Tensor, micro_batch: MicroBatch) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the chosen and of the rejected answers of a micro-batch, in float32 at least.

    Each is summed over the tokens where ``completion_mask`` is 1. Works for padded rows and for rows
    without padding.

    Args:
        logits: the model's output for the micro-batch's ids.  # [B, T, V]
        micro_batch: from a :class:`packer.load.PackedLoader` of pairs.

    Returns:
        float [P] each, of the pairs that are not padding: ``pair_ids[pair_ids >= 0]``
    """
    scores, targets = logits[:, :-1], micro_batch["input_ids"][:, 1:, None]
    picked = scores.gather(-1, targets)[..., 0].to(torch.promote_types(scores.dtype, torch.float32))
    # log_softmax would compute T · V log-probabilities, of which only T are needed.
    of_tokens = (picked - scores.to(picked.dtype).logsumexp(-1)) * micro_batch["completion_mask"][:, 1:]
    sums, sides = of_tokens.sum(-1), micro_batch.get("sides")
    if sides is None:
        chosen, rejected = sums.chunk(2)
        return chosen, rejected
    if "cu_seq_lens_q" in micro_batch or "document_ids" in micro_batch:
        numbers = documents_of(micro_batch)[:, 1:].long().clamp(min=0)  # -1 is padding, where the mask is 0
        sums = of_tokens.new_zeros(len(sides)).index_add(0, numbers.flatten(), of_tokens.flatten())
    return sums[sides == CHOSEN], sums[sides == REJECTED]


def _has_positions_in_3d(config: Any) -> bool:
    text = text_config(config)
    return any("mrope_section" in (getattr(text, name, None) or {}) for name in ("rope_parameters", "rope_scaling"))


def _check(micro_batch: MicroBatch, *, seq_idx: bool, state: str) -> None:
    """Refuse what these models would silently get wrong; raises for the first condition that applies."""
    num_rows, is_flat = len(micro_batch["input_ids"]), "cu_seq_lens_q" in micro_batch
    is_masked, is_numbered = "attention_mask" in micro_batch, "document_ids" in micro_batch
    refused = {
        "a micro-batch of pairs or rated answers: a model would imitate rejected answers too": (
            "sides" in micro_batch,
            "losses of pairs take answer_logps; trainers of pairs are in packer.load.trainers",
        ),
        f"cu_seq_lens_q beside {num_rows} rows; a flattened micro-batch has one": (
            is_flat and num_rows != 1,
            "do not add a batch dimension: hand over the micro-batch as the loader gives it",
        ),
        "a flattened micro-batch with an attention_mask: transformers then overlooks the boundaries": (
            is_flat and is_masked,
            "remove attention_mask",
        ),
        "a micro-batch of several rows: flash attention ignores position_ids if the batch is not 1": (
            not is_flat and _has_packed_rows(micro_batch),
            "open the loader with flatten=True",
        ),
        "a micro-batch that does not say where documents begin: no cu_seq_lens_q, document_ids or attention_mask": (
            not (is_flat or is_numbered or is_masked),
            "hand over a micro-batch as the loader gives it",
        ),
        "seq_idx for a padded micro-batch, whose rows hold one document each": (
            seq_idx and not (is_flat or is_numbered),
            "leave seq_idx out",
        ),
        f"seq_idx without its kernels, causal_conv1d and mamba_ssm: transformers before 5.20 then ignores it{state}": (
            seq_idx and _is_seq_idx_ignored(),
            "install them, or use padded micro-batches; transformers 5.20 says itself what is missing",
        ),
        "the labels are already shifted, but Hugging Face models shift them again": (
            "shift_labels" in micro_batch,
            "open the loader with labels='unshifted'",
        ),
    }
    for what, (applies, hint) in refused.items():
        if applies:
            raise UsageError(what, hint=hint)


def _is_seq_idx_ignored() -> bool:
    """Whether this transformers computes without kernels, and then without ``seq_idx``, where a later one refuses."""
    try:
        major, minor = (int(part) for part in version("transformers").split(".")[:2])
    except PackageNotFoundError:
        return False
    has_own = all(find_spec(name) for name in ("causal_conv1d", "mamba_ssm"))
    return (major, minor) < (5, 20) and not has_own and find_spec("kernels") is None  # it fetches them from the Hub


def _has_packed_rows(micro_batch: MicroBatch) -> bool:
    """Whether a row has more than one document by ``document_ids``; -1 there is padding of padded rows."""
    if "document_ids" not in micro_batch:
        return False
    left, right = micro_batch["document_ids"][..., :-1], micro_batch["document_ids"][..., 1:]
    return "attention_mask" not in micro_batch or bool(((left != right) & (left >= 0) & (right >= 0)).any())


_MAKERS = {"create_causal_mask", "create_sliding_window_causal_mask", "create_chunked_causal_mask"}


def overlooks_positions(config: Any) -> bool:
    """Whether the model of a config makes its masks without ``position_ids``; False where its source is unknown.

    It is in the calls of transformers' functions for masks (5.23: gpt-oss, AFMoE, Falcon, OPT); no config tells it.
    """
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

    So does ``generate``: sliding windows stay what they are.

    Returns:
        a mask, or one by kind of layer; None for flash attention, which needs none
    """
    masking = import_module("transformers.masking_utils")  # the config is of this library
    create_masks = masking.create_masks_for_generate
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
