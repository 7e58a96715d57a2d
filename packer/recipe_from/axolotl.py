"""A configuration of axolotl as a recipe. Read from axolotl 0.19."""

from collections.abc import Mapping
from typing import Any

from packer.errors import RecipeError
from packer.recipe_from.axolotl_datasets import read_dataset
from packer.recipe_from.places import Places
from packer.recipe_from.source_files import SourceFiles
from packer.recipe_from.template import TemplateFiles, Wanted, read_template
from packer.recipe_from.told import Keys, Ledger
from packer.recipe_from.training_keys import is_training_key

_SAVED = "packer takes the tokenizer as it is saved: save it with these tokens, and name that folder"

_NO_WORD = {
    "added_tokens_overrides": _SAVED,
    "curriculum_sampling": "the order of reading is the loader's: order= of PackedLoader",
    "dataset_exact_deduplication": "packer keeps rows that are alike; take them out before",
    "dataset_keep_in_memory": "packer maps files, and holds a batch of rows",
    "dataset_num_proc": "-j of packer build",
    "dataset_prepared_path": "the cache's folder is -o of packer build",
    "dataset_processes": "-j of packer build",
    "dataset_shard_idx": "see dataset_shard_num",
    "dataset_shard_num": "packer takes all rows; limit takes the first ones of each file",
    "default_system_message": "packer adds no message: it stands in the rows or in the template",
    "eval_sample_packing": "every split of a cache has documents and blocks; reading says which are taken",
    "eval_sequence_len": "all splits have blocks of one length; packer pack makes another cache of the same documents",
    "hf_use_auth_token": "the Hub's own client has its token: hf auth login, or HF_TOKEN",
    "max_prompt_len": "of preferences, which packer does not read",
    "num_dataset_shards_to_save": "shard_bytes says how large a file of a cache gets",
    "pad_to_multiple_of": "blocks have block_len slots; pack.align pads each document",
    "pretrain_multipack_buffer_size": "packer packs the whole, not a buffer",
    "pretrain_multipack_attn": "pack.mode isolated keeps documents apart; eos and stream do not",
    "pretraining_sample_concatenation": "pack.mode: stream joins documents and cuts anywhere",
    "processor_type": "packer reads no pictures and no sound",
    "push_dataset_to_hub": "packer writes folders; hf upload sends them",
    "sample_packing_bin_size": "pack.max_documents bounds the documents of a block; packer needs no bound to be fast",
    "sample_packing_group_size": "pack.group_documents; packer packs ten million together",
    "sample_packing_mp_start_method": "how packer starts its workers is no matter of the recipe",
    "seed": "the order of reading has its own: seed= of PackedLoader; pack.seed deals documents to blocks",
    "shuffle_before_merging_datasets": "documents are dealt to blocks in a keyed order, whatever the order of sources",
    "special_tokens": _SAVED,
    "streaming_multipack_buffer_size": "packer packs the whole, not a buffer",
    "tokenizer_legacy": "packer reads tokenizer.json as it is",
    "tokenizer_use_mistral_common": "packer reads tokenizer.json, and renders with a Jinja template",
    "tokens": _SAVED,
    "use_pose": "packer makes no positions but those of documents",
    "pose_split_on_token_ids": "see use_pose",
    "pose_max_context_len": "see use_pose",
    "pose_num_chunks": "see use_pose",
}

_AS_HERE = {
    "pad_to_sequence_len": ((True,), "blocks always have block_len slots, padded at their end"),
    "shuffle_merged_datasets": (
        (True,),
        "documents are dealt to blocks in a keyed order; pack.strategy: sequential keeps theirs",
    ),
    "skip_prepare_dataset": ((False,), "packer always prepares; that is all it does"),
    "streaming": ((False,), "packer prepares all rows before training"),
    "tokenizer_type": (
        ("AutoTokenizer", "PreTrainedTokenizerFast"),
        "packer reads tokenizer.json, whatever class wraps it",
    ),
    "tokenizer_use_fast": ((True,), "packer reads tokenizer.json, which is the fast one"),
    "train_on_inputs": ((False,), "packer trains answers alone; a text that is trained throughout is schema text"),
    "trust_remote_code": ((False,), "packer runs no code of a model"),
    "val_set_size": ((0,), "packer draws no rows for evaluation: name them as a source of their own with split: eval"),
}
"""Settings that packer has no word for, the values that are what it does anyway, and what to say of others."""


_SEQUENCE_LEN = 512
"""What axolotl takes where nothing is said."""


def read_axolotl(config: Mapping[str, Any], places: Places, ledger: Ledger, files: TemplateFiles) -> dict[str, Any]:
    """Values of a recipe; what is not in them is in the ledger.

    Raises:
        RecipeError: the configuration is about preferences or rewards, or its lists are none.

    """
    keys = Keys(config, ledger)
    for key in ("rl", "reward_model", "process_reward_model"):
        if keys.expect(key, (False,), "not for packer"):
            raise RecipeError(
                f"{key}: {config[key]}: packer prepares data for supervised training, not preferences or rewards",
                hint="its sources are rows with answers to be learned",
            )
    sources, wanted = _sources(keys, places, ledger)
    for key, (same, says) in _AS_HERE.items():
        keys.expect(key, same, says)
    keys.tell_each(_NO_WORD)
    recipe = {
        "sources": sources,
        "tokenizer": _tokenizer(keys, places),
        "template": read_template(_wanted(keys), wanted, kwargs=keys.mapping("chat_template_kwargs"), files=files),
        "supervision": _supervision(keys),
        "pack": _pack(keys, texts=bool(sources) and all(source["schema"] == "text" for source in sources)),
    }
    keys.tell_rest(is_training=is_training_key)
    return recipe


def _sources(keys: Keys, places: Places, ledger: Ledger) -> tuple[list[dict[str, Any]], list[Wanted]]:
    sources: list[dict[str, Any]] = []
    wanted: list[Wanted] = []
    files = SourceFiles(target=places.target)
    for name, split in (("pretraining_dataset", None), ("datasets", None), ("test_datasets", "eval")):
        entries = keys.take(name)
        if isinstance(entries, str) and name == "pretraining_dataset":  # it may be a path alone
            entries = [{"path": entries}]
        if not isinstance(entries or [], list) or not all(isinstance(entry, Mapping) for entry in entries or []):
            raise RecipeError(
                f"{name}: expected a list of mappings with a path each", hint="as in axolotl's own examples"
            )
        for i, entry in enumerate(entries or []):
            texts = {"type": "pretrain"} if name == "pretraining_dataset" else {}
            inner = Keys({**texts, **entry}, ledger, where=f"{name}[{i}].")
            sources += read_dataset(inner, places, files, split=split)
            wanted.append(_wanted(inner))
            if inner.take("split_thinking"):
                inner.tell(
                    "split_thinking",
                    "for the whole recipe: supervision.reasoning: field, which does the same for any template",
                )
            inner.tell_rest()
    return sources, wanted


def _wanted(keys: Keys) -> Wanted:
    return Wanted(keys=keys, name=keys.text("chat_template"), jinja=keys.text("chat_template_jinja"))


def _tokenizer(keys: Keys, places: Places) -> str | None:
    model, own, older = keys.text("base_model"), keys.text("tokenizer_config"), keys.text("base_model_config")
    revision = keys.text("revision_of_model")
    if own is not None:
        keys.tell("revision_of_model", "of the model; the tokenizer has a name of its own")
    elif older is not None:
        keys.tell("base_model_config", "the tokenizer is taken from base_model")
    named = own or model
    return None if named is None else places.model(named, None if own else revision)


def _supervision(keys: Keys) -> dict[str, Any]:
    stop = keys.texts("eot_tokens")
    return {"stop": stop} if stop else {}


def _pack(keys: Keys, *, texts: bool) -> dict[str, Any]:
    length, packing, excess = (
        keys.take("sequence_len"),
        keys.take("sample_packing"),
        keys.take("excess_length_strategy"),
    )
    pack: dict[str, Any] = {}
    if packing is True:
        pack["block_len"] = length or _SEQUENCE_LEN
        if length is None:
            keys.tell("sequence_len", "what axolotl takes where nothing is said", default=_SEQUENCE_LEN)
    else:
        pack["mode"] = "none"
        keys.tell(
            "sample_packing",
            "documents without blocks, which a loader pads; to pack: --set pack.mode=isolated",
            default=False,
        )
        if length is not None:
            pack["block_len"] = length
            keys.tell("sequence_len", "without packing documents keep their length; axolotl drops longer ones")
    if excess == "truncate":
        pack["overlong"] = "truncate_right"
    elif excess is not None and excess != "drop":
        keys.tell("excess_length_strategy", "overlong documents are left out and counted; packer stats shows them")
    elif texts:
        pack["overlong"] = "split"  # as its `completion` cuts long texts into pieces
    if (least := keys.take("min_sample_len")) is not None:
        pack["min_length"] = least
    if keys.take("sample_packing_sequentially"):
        pack["strategy"] = "sequential"
    return pack
