"""Tiny models of real architectures, and the losses of documents by themselves."""

import torch
import transformers

VOCAB_SIZE = 50


def tiny_config(kind="llama", attention="sdpa", **options):
    sizes = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_implementation": attention,
        **options,
    }
    return transformers.Qwen3Config(head_dim=8, **sizes) if kind == "qwen3" else transformers.LlamaConfig(**sizes)


def tiny_model(kind="llama", *, seed=0, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    return transformers.AutoModelForCausalLM.from_config(tiny_config(kind, **options)).to(dtype).train()


def summed_loss_alone(model, ids, labels):
    """Of one document by itself, over its trained tokens; int64 [n] each, unshifted."""
    logits = model(input_ids=ids[None], use_cache=False).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits.float(), labels[1:], ignore_index=-100, reduction="sum")


def documents_of(blocks):
    """Ids and labels of the documents in some blocks of a cache, one after another."""
    for row in range(blocks.num_blocks):
        for at in range(blocks.doc_offsets[row], blocks.doc_offsets[row + 1]):
            place, length = int(blocks.doc_places[at]), int(blocks.doc_lengths[at])
            part = slice(place, place + length)
            yield (torch.from_numpy(column[row, part].astype("int64")) for column in (blocks.input_ids, blocks.labels))
