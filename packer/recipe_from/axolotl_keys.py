"""What packer makes of axolotl's keys that a recipe has no word for. Read from axolotl 0.19.

One row for each key: the values that are what packer does anyway, and what to report of others.
"""

from packer.recipe_from.config_keys import KeyTable
from packer.recipe_from.row_schema import MESSAGE_FIELDS

SAVED = "packer takes the tokenizer as it is saved: save it with these tokens, and name that folder"

_POSE = "packer makes no positions but those of documents"

CONFIG: KeyTable = {
    "added_tokens_overrides": ((), SAVED),
    "curriculum_sampling": ((), "the order of reading is the loader's: order= of PackedLoader"),
    "dataset_exact_deduplication": ((), "packer keeps rows that are alike; take them out before"),
    "dataset_shard_idx": ((), "see dataset_shard_num"),
    "dataset_shard_num": ((), "packer takes all rows; limit takes the first ones of each file"),
    "default_system_message": ((), "packer adds no message: it stands in the rows or in the template"),
    "eval_sample_packing": ((), "every split of a cache has documents and blocks; reading says which are taken"),
    "eval_sequence_len": (
        (),
        "all splits have blocks of one length; packer pack makes another cache of the same documents",
    ),
    "max_prompt_len": ((), "of preferences, which packer does not read"),
    "pad_to_multiple_of": ((), "blocks have block_len slots; pack.align pads each document"),
    "pad_to_sequence_len": ((True,), "blocks always have block_len slots, padded at their end"),
    "pose_max_context_len": ((), _POSE),
    "pose_num_chunks": ((), _POSE),
    "pose_split_on_token_ids": ((), _POSE),
    "pretrain_multipack_attn": ((), "pack.mode isolated keeps documents apart; eos and stream do not"),
    "pretraining_sample_concatenation": ((), "pack.mode: stream joins documents and cuts anywhere"),
    "processor_type": ((), "packer reads no pictures and no sound"),
    "shuffle_merged_datasets": (
        (True,),
        "documents are assigned to blocks in a keyed order; pack.strategy: sequential keeps theirs",
    ),
    "streaming": ((False,), "packer prepares all rows before training"),
    "tokenizer_type": (
        ("AutoTokenizer", "PreTrainedTokenizerFast"),
        "packer reads tokenizer.json, whatever class wraps it",
    ),
    "tokenizer_use_mistral_common": ((), "packer reads tokenizer.json, and renders with a Jinja template"),
    "tokens": ((), SAVED),
    "train_on_inputs": ((False,), "packer trains answers alone; a text that is trained throughout is schema text"),
    "trust_remote_code": ((False,), "packer runs no code of a model"),
    "use_pose": ((), _POSE),
    "val_set_size": ((0,), "packer draws no rows for evaluation: name them as a source of their own with split: eval"),
}

_COLUMNS = "axolotl reads it within a type of your own, type: {…}; in a recipe the source's columns name fields"

ENTRY: KeyTable = {
    "conversation": ((), "an older name of a chat template: see chat_template"),
    "field_human": ((), "of an older type; rename the fields with columns"),
    "field_input": ((), _COLUMNS),
    "field_instruction": ((), _COLUMNS),
    "field_model": ((), "of an older type; rename the fields with columns"),
    "field_output": ((), _COLUMNS),
    "field_system": ((), _COLUMNS),
    "input_format": ((), "packer has no such formats; bring the rows into one of its schemas"),
    "input_transform": ((), "packer changes no rows; do it before"),
    "logprobs_field": ((), "packer carries no teacher's probabilities"),
    "message_field_training_detail": ((), "a message is trained whole or not at all: `weight` or `train` on it"),
    "name": ((), "packer takes files, not a data set's configurations: name its files in path"),
    "shards": ((), "packer has no part of a source drawn by chance: all rows are taken; limit takes the first ones"),
    "shards_idx": ((), "see shards"),
    "skip": ((), "packer skips no rows"),
    "split_thinking": (
        (False,),
        "for the whole recipe: supervision.reasoning: field, which does the same for any template",
    ),
    "temperature": ((), "packer carries no teacher's probabilities"),
    "trust_remote_code": ((False,), "packer runs no code of a data set"),
}

NOT_RENAMED = "the fields of a message cannot be renamed in a recipe; rename them in the rows"
_STOP = "packer trains the stop token of every answer that is trained, and no other"

CHAT_ENTRY: KeyTable = {
    "drop_system_message": ((False,), "packer drops nothing: take the system messages out of the rows"),
    "field_thinking": (MESSAGE_FIELDS["reasoning_content"], NOT_RENAMED),
    "message_field_training": (("train",), "packer looks for `train` on a message: rename the field in the rows"),
    "template_thinking_key": (
        ("reasoning_content", "thinking"),
        "templates find reasoning under reasoning_content and thinking",
    ),
    "train_on_eos": (("turn",), _STOP),
    "train_on_eot": (("turn",), _STOP),
}

OTHER_ENTRY: KeyTable = dict.fromkeys(
    (
        *CHAT_ENTRY,
        "field_messages",
        "field_tools",
        "message_field_content",
        "message_field_role",
        "message_property_mappings",
        "roles",
        "roles_to_train",
    ),
    ((), "of type chat_template; this entry is of another"),
)
"""Keys of chats where the entry is no chat: without effect, and still reported."""

NO_TEXT_ENTRY: KeyTable = dict.fromkeys(("field", "text_column"), ((), "of type completion; this entry is of another"))

_WORDING = "wording is a chat template's: write one and set template.file"

OWN_TYPE: KeyTable = dict.fromkeys(("format", "no_input_format", "system_format", "system_prompt"), ((), _WORDING))
"""Keys of a prompt type of the person's own."""

OWN_TYPE_FIELDS = {
    "instruction": "field_instruction",
    "input": "field_input",
    "output": "field_output",
    "system": "field_system",
}
"""A column of schema alpaca → the key that names it there."""

_QUESTION: dict[str, str | None] = {"instruction": "question", "output": "response", "system": "system_prompt"}

ALPACA_TYPES: dict[str, dict[str, str | None]] = {
    "alpaca": {},
    "alpaca_chat": {},
    "alpaca_chat.load_qa": {"instruction": "question", "output": "answer", "input": None},
    "alpaca_chat.load_camel_ai": {"instruction": "message_1", "output": "message_2", "input": None},
    "alpaca_instruct": {},
    "alpaca_w_system": {"system": "system"},
    "alpaca_w_system.load_open_orca": _QUESTION,
    "alpaca_w_system.load_open_orca_chatml": _QUESTION,
    "gpteacher": {"output": "response"},
}
"""Types whose rows packer reads as alpaca: its name of a field → theirs."""
