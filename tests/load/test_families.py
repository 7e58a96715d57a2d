"""Every family of causal models that transformers has, tiny and random: whether packed documents are kept apart.

`python tests/load/test_families.py` prints the table.
"""

import os
import warnings
from functools import partial

import pytest
import torch

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: real models are not tested")

from packer.errors import UsageError  # noqa: E402
from packer.load import poison_test  # noqa: E402

LENGTHS = (7, 5, 9)
VOCABULARY = 64
MOST_PARAMETERS = 2_000_000

SIZES = {
    32: "hidden_size intermediate_size n_embd n_inner d_model ffn_dim decoder_ffn_dim encoder_ffn_dim d_ff dim hidden_dim "
    "attention_hidden_size ffn_hidden_size lru_width embedding_size word_embed_proj_dim",
    2: "num_hidden_layers n_layer num_layers decoder_layers encoder_layers n_layers num_key_value_heads num_experts_per_tok "
    "index_n_heads linear_num_key_heads moe_k",
    4: "num_attention_heads n_head num_heads decoder_attention_heads encoder_attention_heads n_heads num_experts "
    "n_routed_experts num_local_experts moe_num_experts linear_num_value_heads time_step_rank",
    16: "moe_intermediate_size shared_expert_intermediate_size sliding_window attention_window_size expert_ffn_hidden_size",
    8: "head_dim d_kv kv_lora_rank q_lora_rank v_head_dim rotary_dim qk_rope_head_dim qk_nope_head_dim global_head_dim state_size "
    "mamba_n_heads mamba_d_head mamba_d_state mamba_chunk_size chunk_size linear_key_head_dim linear_value_head_dim "
    "hidden_size_per_layer_input index_head_dim",
    1: "n_group topk_group first_k_dense_replace mamba_n_groups n_shared_experts bos_token_id",
    0: "pad_token_id num_kv_shared_layers num_nextn_predict_layers",
    VOCABULARY: "vocab_size vocab_size_per_layer_input index_topk",
    128: "max_position_embeddings n_positions n_ctx",
}  # fmt: skip
SMALL = {name: size for size, names in SIZES.items() for name in names.split()}


def tiny(family, attention):
    """A tiny random model of a family."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    whole = CONFIG_MAPPING[family]()
    text = whole.get_text_config()
    given = text.to_dict()
    sizes = {name: SMALL[name] for name in SMALL.keys() & given.keys() if not isinstance(given[name], dict | list)}
    if "qk_rope_head_dim" in sizes:  # its rotary part is a size of its own
        sizes.pop("head_dim", None)
    for name in ("layer_types", "layers_block_type", "mlp_layer_types"):
        if isinstance(given.get(name), list):
            sizes[name] = (list(dict.fromkeys(given[name])) * 2)[:2]
    if "mrope_section" in (given.get("rope_parameters") or {}):
        sizes["rope_parameters"] = {**given["rope_parameters"], "mrope_section": [2, 1, 1]}
    make = partial(transformers.AutoModelForCausalLM.from_config, type(text)(**sizes), attn_implementation=attention)
    with torch.device("meta"):
        if sum(each.numel() for each in make().parameters()) > MOST_PARAMETERS:
            raise ValueError("a size of it has another name")
    torch.manual_seed(0)
    return make().float().eval()


def packed():
    torch.manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (1, sum(LENGTHS)))
    ends = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)], dtype=torch.int32)
    places = torch.cat([torch.arange(length) for length in LENGTHS])[None]
    lengths = {f"cu_seq_lens_{side}": ends for side in "qk"} | {f"max_length_{side}": max(LENGTHS) for side in "qk"}
    return {"input_ids": ids, "labels": ids.clone(), "position_ids": places, **lengths}


def padded():
    torch.manual_seed(1)
    mask = torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(3, VOCABULARY, mask.shape) * mask
    labels = ids.where(mask, -100)
    return {
        "input_ids": ids,
        "labels": labels,
        "attention_mask": mask.long(),
        "position_ids": torch.arange(9).repeat(3, 1),
    }


def is_causal(model):
    """Whether later tokens leave earlier logits alone."""
    ids = padded()["input_ids"][2:]
    other = ids.clone()
    other[0, -1] = 3 + (ids[0, -1] + 1) % 10
    with torch.no_grad():
        one, another = (model(input_ids=each, use_cache=False).logits[0, :-1] for each in (ids, other))
    return bool((one - another).abs().max() < 1e-5)


def outcome(family, attention):
    """What becomes of packed and of padded documents; None if nothing can be said of the family here."""
    try:
        model = tiny(family, attention)
        if not is_causal(model):
            return None
    except Exception:  # noqa: BLE001 - some cannot be as small, or have other parts
        return None
    return tuple(found_in(model, micro_batch) for micro_batch in (packed(), padded()))


def found_in(model, micro_batch):
    """`as alone`, `leaks`, `positions run on`, or why the model refuses."""
    try:
        report = poison_test(model, micro_batch, atol=1e-6, alone=True)
    except (UsageError, ValueError) as error:
        return f"refused: {str(error)[:60]}"
    return "leaks" if report.leaks else "positions run on" if report.deviating else "as alone"


def table(attentions=("eager", "sdpa")):
    """Outcomes by family and attention."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    torch.set_num_threads(1)
    return {
        (family, attention): found
        for family in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
        for attention in attentions
        if (found := outcome(family, attention)) is not None
    }


LEAKING = {
    *("falcon_mamba", "inkling2_text", "inkling_text", "jamba", "lfm3", "mamba", "minimax", "openai-gpt", "prophetnet"),
    *("recurrent_gemma", "rwkv", "xlstm"),
}
"""Families that transformers 5.23 gives no way to keep packed documents apart: docs/how-to/train.md names those in use."""

RUNNING_ON = {
    *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mvp", "pegasus", "plbart"),
    "trocr",
}
"""Decoders of translation and summary, which number the positions of a row themselves."""


def test_packed_documents_are_what_they_are_alone_but_in_these_families_and_padded_ones_are_in_all():
    found = table()

    def families(beginning, form=0):
        return {family for (family, _), said in found.items() if said[form].startswith(beginning)}

    assert len(found) > 200
    assert families("leaks") == LEAKING and families("positions") == RUNNING_ON
    assert families("as alone", 1) == {family for family, _ in found} - {"prophetnet"}
    assert {"gpt_oss", "qwen3", "llama", "gemma3_text", "glm4_moe", "olmo3", "granite"} <= families("as alone")


def main():
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    for (family, attention), said in table().items():
        print(f"{family:32}{attention:8}packed: {said[0]:50}padded: {said[1]}", flush=True)


if __name__ == "__main__":
    main()
