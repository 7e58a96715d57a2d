"""A configuration of axolotl as a recipe. Read from axolotl 0.19."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from packer.errors import RecipeError
from packer.recipe_from.config_keys import EntryLeftOutError, Keys, Report, Rule, held_out, nested, noted
from packer.recipe_from.config_sources import (
    MESSAGE_FIELDS,
    NAME_FILES,
    ConfigPaths,
    alpaca_rows,
    are_several,
    chat_rows,
    data_set_folder,
    files_pattern,
    hub_path,
    is_on_hub,
    is_read_as,
    rows_of,
)

TEMPLATE_FILE = "chat_template.jinja"

_SEQUENCE_LEN = 512
"""The default of axolotl."""

_FIRST_ROWS = re.compile(r"(?P<split>\w+)\[:(?P<rows>[1-9]\d{0,17})\]")
_LOADERS = ("json", "csv", "parquet", "arrow")
"""Names that older configurations have for a path, beside `data_files`."""

_OWN_PROMPT = "axolotl writes a prompt of its own around each row; packer gives the chat template a user message"
_SAVED = "packer takes the tokenizer as it is saved: save it with these tokens, and name that folder"
_ONE_TEMPLATE = "a recipe has one template, the configuration's: build this source into a cache of its own"
_COLUMNS = "axolotl reads it within a type of your own, type: {…}; in a recipe the source's columns name fields"
_NOT_RENAMED = "the fields of a message cannot be renamed in a recipe; rename them in the rows"
_STOP = "packer trains the stop token of every answer that is trained, and no other"

_CONFIG: Mapping[str, Rule] = {
    "added_tokens_overrides": noted(_SAVED),
    "base_model_config": noted("the tokenizer is taken from base_model"),
    "chat_template_kwargs": Rule(to="template.kwargs", kind="mapping"),
    "dataset_exact_deduplication": Rule(to="deduplicate.exact", values={True: "bytes"}, same=(False,)),
    "default_system_message": noted("packer adds no message: it stands in the rows or in the template"),
    "eot_tokens": Rule(to="supervision.stop", kind="texts"),
    "excess_length_strategy": Rule(
        to="pack.overlong",
        values={"truncate": "truncate_right"},
        same=("drop",),
        says="overlong documents are left out and counted; packer stats shows them",
    ),
    "min_sample_len": Rule(to="pack.min_length"),
    "pad_to_sequence_len": noted("blocks always have block_len slots, padded at their end", True),
    "sample_packing_sequentially": Rule(to="pack.strategy", values={True: "sequential"}, same=(False,)),
    "shuffle_merged_datasets": noted(
        "documents are assigned to blocks in a keyed order; pack.strategy: sequential keeps theirs", True
    ),
    "special_tokens": noted(_SAVED),
    "streaming": noted("packer prepares all rows before training", False),
    "tokenizer_type": noted(
        "packer reads tokenizer.json, whatever class wraps it", "AutoTokenizer", "PreTrainedTokenizerFast"
    ),
    "tokens": noted(_SAVED),
    "train_on_inputs": noted("packer trains answers alone; a text that is trained throughout is schema text", False),
    "trust_remote_code": noted("packer runs no code of a model", False),
}

_ENTRY: Mapping[str, Rule] = {
    "chat_template": noted(_ONE_TEMPLATE, "tokenizer_default"),
    "chat_template_jinja": noted(_ONE_TEMPLATE),
    "ds_type": Rule(
        to="format",
        values={kind: kind for kind in ("csv", "parquet", "arrow")},
        same=("json",),
        says="no format of packer's; what a file holds is seen by its bytes",
        kind="text",
    ),
    "field_input": noted(_COLUMNS),
    "field_instruction": noted(_COLUMNS),
    "field_output": noted(_COLUMNS),
    "field_system": noted(_COLUMNS),
    "message_field_training_detail": noted("a message is trained whole or not at all: `weight` or `train` on it"),
    "name": noted("packer takes files, not a data set's configurations: name its files in path"),
    "shards": noted("packer has no part of a source drawn by chance: all rows are taken; limit takes the first ones"),
    "shards_idx": noted("see shards"),
    "split_thinking": noted(
        "for the whole recipe: supervision.reasoning: field, which does the same for any template", False
    ),
    "trust_remote_code": noted("packer runs no code of a data set", False),
}

_CHAT_ENTRY: Mapping[str, Rule] = {
    "drop_system_message": noted("packer drops nothing: take the system messages out of the rows", False),
    "field_thinking": noted(_NOT_RENAMED, *MESSAGE_FIELDS["reasoning_content"]),
    "message_field_training": noted("packer looks for `train` on a message: rename the field in the rows", "train"),
    "template_thinking_key": noted(
        "templates find reasoning under reasoning_content and thinking", "reasoning_content", "thinking"
    ),
    "train_on_eos": noted(_STOP, "turn"),
    "train_on_eot": noted(_STOP, "turn"),
}

_OTHER_ENTRY: Mapping[str, Rule] = dict.fromkeys(
    (
        *_CHAT_ENTRY,
        *("field_messages", "field_tools", "message_field_content", "message_field_role"),
        *("message_property_mappings", "roles", "roles_to_train"),
    ),
    noted("of type chat_template; this entry is of another"),
)
"""Keys of chats where the entry is no chat: without effect, and still reported."""

_NO_TEXT_ENTRY: Mapping[str, Rule] = dict.fromkeys(
    ("field", "text_column"), noted("of type completion; this entry is of another")
)

_OWN_TYPE: Mapping[str, Rule] = {
    **{f"field_{name}": Rule(to=name, kind="text") for name in ("instruction", "input", "output", "system")},
    **dict.fromkeys(
        ("format", "no_input_format", "system_format", "system_prompt"),
        noted("wording is a chat template's: write one and set template.file"),
    ),
}
"""A prompt type of the person's own: its fields are columns, its formats are a template's business."""

_QUESTION: dict[str, str | None] = {"instruction": "question", "output": "response", "system": "system_prompt"}

_ALPACA_TYPES: dict[str, dict[str, str | None]] = {
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


def read_axolotl(config: Mapping[str, Any], paths: ConfigPaths, report: Report) -> tuple[dict[str, Any], str | None]:
    """Values of a recipe, and the text of a chat template that stands in the configuration.

    Raises:
        RecipeError: the configuration is about preferences or rewards, or its lists are none.

    """
    keys = Keys(config, report)
    for key in ("rl", "reward_model", "process_reward_model"):
        if keys.take(key) not in (None, False):
            raise RecipeError(
                f"{key}: {config[key]}: packer prepares data for supervised training, not preferences or rewards",
                hint="its sources are rows with answers to be learned",
            )
    sources = _sources(keys, paths, report)
    recipe = (
        keys.apply(_CONFIG)
        | held_out(keys, "val_set_size")
        | _tokenizer(keys, paths)
        | _pack(keys, {source["schema"] for source in sources})
    )
    template, text = _template(keys, paths)
    keys.report_rest(is_training=True)
    return {"sources": sources, **nested(recipe | template)}, text


def _sources(keys: Keys, paths: ConfigPaths, report: Report) -> list[dict[str, Any]]:
    sources: list[dict[str, Any]] = []
    for name, split in (("pretraining_dataset", None), ("datasets", None), ("test_datasets", "eval")):
        entries = keys.take(name) or []
        if isinstance(entries, str) and name == "pretraining_dataset":  # it may be a path alone
            entries = [{"path": entries}]
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise RecipeError(
                f"{name}: expected a list of mappings with a path each", hint="as in axolotl's own examples"
            )
        texts = {"type": "pretrain"} if name == "pretraining_dataset" else {}
        for i, entry in enumerate(entries):
            inner = Keys({**texts, **entry}, report, where=f"{name}[{i}].")
            with report.entry(inner):
                shared = ({"split": split} if split else {}) | _rows(inner) | inner.apply(_ENTRY)
                names = _entry_paths(inner, paths, split=split)
                shared |= _limit(inner, several=are_several(names))
                sources += [{"path": each, **shared} for each in names]
    return sources


def _limit(keys: Keys, *, several: bool) -> dict[str, Any]:
    split = keys.text("split")
    rows = _FIRST_ROWS.fullmatch(split or "")
    if rows is not None and rows["split"] == "train":
        if several:
            keys.report("split", "of all files together there; packer's limit counts for each file, and may be several")
        return {"limit": int(rows["rows"])}
    if split is not None and "[" in split:
        keys.report("split", "packer takes whole files, or with limit the first rows of each: all rows are taken")
    return {}


def _entry_paths(keys: Keys, paths: ConfigPaths, *, split: str | None) -> list[str]:
    """The paths of the sources of an entry."""
    path, named, revision = keys.text("path"), keys.texts("data_files") or [], keys.text("revision")
    if path is None:
        raise EntryLeftOutError("path", "no path")
    found = paths.find(path)
    wanted = (keys.text("split") or ("test" if split else "train")).partition("[")[0]
    if found is None and is_on_hub(path):
        if not named:
            keys.report("path", NAME_FILES)
        elif wanted != "train":
            keys.report("split", "packer takes the files that are named, not a split of them")
        return [hub_path(path, revision, file) for file in named or [""]]
    keys.apply({"revision": noted("of a name on the Hub; this is none")})
    if named and (found.is_dir() if found else path in _LOADERS):
        inside = paths if found is None else replace(paths, bases=(found, *paths.bases))
        return [paths.in_recipe(place, like=name) if (place := inside.find(name)) else name for name in named]
    if found is None and "://" in path:
        raise EntryLeftOutError("path", "packer reads files of this machine and of the Hub")
    if found is None:
        keys.report("path", "not found from here; packer reads files of this machine and of the Hub")
        return [path]
    if not found.is_dir():
        return [paths.in_recipe(found, like=path)]
    whole = data_set_folder(found, wanted)
    if whole is None:
        whole = files_pattern(found, "path")
        keys.report("path", "axolotl tells splits by the names of files; packer takes all that fit the pattern")
    return [paths.in_recipe(whole, like=path)]


def _rows(keys: Keys) -> dict[str, Any]:
    """Schema and columns of an entry."""
    own = isinstance(keys.take("type"), Mapping)
    kind = "" if own else keys.text("type") or ""
    name, _, style = kind.partition(":")
    if not name.startswith(("chat_template", "sharegpt")):
        keys.apply(_OTHER_ENTRY)
    if not name.startswith(("completion", "pretrain")):
        keys.apply(_NO_TEXT_ENTRY)
    if own:
        fields = keys.inner("type")
        keys.report("type", _OWN_PROMPT)
        columns = fields.apply(_OWN_TYPE)
        fields.report_rest()
        return alpaca_rows(columns)
    if not name:
        return rows_of("tokens")
    if name == "chat_template":
        return _chat(keys, messages="messages", role="role", content="content")
    if name.startswith("sharegpt"):
        keys.report("type", "read as chat_template with from and value, which has replaced it")
        return _chat(keys, messages="conversations", role="from", content="value")
    if name in ("completion", "pretrain"):
        return rows_of("text", {"text": keys.text("field") or keys.text("text_column") or "text"})
    base = name if name in _ALPACA_TYPES else name.partition(".")[0]
    if base in _ALPACA_TYPES:
        keys.report("type", _OWN_PROMPT)
        return alpaca_rows(_ALPACA_TYPES[base])
    if name == "input_output":
        raise EntryLeftOutError(
            "type", "no schema of packer's: bring segments as messages with `train`, or as rows of tokens"
        )
    named = f" in style {style}" if style else ""
    keys.report("type", f"no type that is known here{named}: the schema is found by looking at the rows")
    return rows_of("auto")


def _chat(keys: Keys, *, messages: str, role: str, content: str) -> dict[str, Any]:
    mapped, roles = keys.inner("message_property_mappings"), keys.inner("roles")
    rows = chat_rows(
        next((key for key in ("message_property_mappings", "message_field_role") if key in keys), "type"),
        messages=keys.text("field_messages") or messages,
        role=keys.text("message_field_role") or mapped.text("role") or role,
        content=keys.text("message_field_content") or mapped.text("content") or content,
        columns={"tools": keys.text("field_tools") or "tools"},
    )
    mapped.apply(
        {name: noted(_NOT_RENAMED, *known) for name, known in MESSAGE_FIELDS.items() if name not in ("role", "content")}
    )
    mapped.report_rest()
    keys.apply(_CHAT_ENTRY)
    trained = keys.texts("roles_to_train")
    if set(trained or ()) - {"assistant", "gpt", "model"}:
        keys.report(
            "roles_to_train", "packer trains answers alone: what the assistant says, with its calls and its stop token"
        )
    elif trained == []:
        keys.report("roles_to_train", "packer trains every answer that has no train: false on its message")
    for name in ("system", "user", "assistant", "tool"):
        others = [sender for sender in roles.texts(name) or () if not is_read_as(sender, name)]
        if others:
            roles.report(name, f"packer does not read {', '.join(others)} as {name}: rename them in the rows")
    roles.report_rest()
    return rows


def _tokenizer(keys: Keys, paths: ConfigPaths) -> dict[str, Any]:
    model, own, revision = keys.text("base_model"), keys.text("tokenizer_config"), keys.text("revision_of_model")
    if own is not None:
        keys.report("revision_of_model", "of the model; the tokenizer has a name of its own")
    named = own or model
    return {} if named is None else {"tokenizer": paths.tokenizer(named, None if own else revision)}


def _template(keys: Keys, paths: ConfigPaths) -> tuple[dict[str, Any], str | None]:
    """Keys of `template`, and the text of one that has to be written beside the recipe."""
    name, jinja = keys.text("chat_template"), keys.text("chat_template_jinja")
    if jinja is None:
        if name not in ("tokenizer_default", None):
            keys.report(
                "chat_template",
                "packer takes the tokenizer's own; template.file names another, template.name one of packer's",
            )
        return {}, None
    if "{" in jinja:
        return {"template.file": TEMPLATE_FILE}, jinja
    found = paths.find(jinja)
    if found is None or not found.is_file():
        keys.report("chat_template_jinja", "no such file from here: the tokenizer's own template is taken")
        return {}, None
    return {"template.file": paths.in_recipe(found, like=jinja)}, None


def _pack(keys: Keys, schemas: set[str]) -> dict[str, Any]:
    length, packing, excess = (
        keys.take("sequence_len"),
        keys.take("sample_packing"),
        keys.take("excess_length_strategy"),
    )
    pack: dict[str, Any] = {}
    if packing is True:
        pack["pack.block_len"] = length or _SEQUENCE_LEN
        if length is None:
            keys.report("sequence_len", "what axolotl takes where nothing is said", default=_SEQUENCE_LEN)
    else:
        pack["pack.mode"] = "none"
        keys.report(
            "sample_packing",
            "documents without blocks, which a loader pads; to pack: --set pack.mode=isolated",
            default=False,
        )
        if length is not None:
            pack["pack.block_len"] = length
            keys.report("sequence_len", "without packing documents keep their length; axolotl drops longer ones")
    if excess in (None, "drop") and schemas == {"text"}:
        pack["pack.overlong"] = "split"  # as its `completion` cuts long texts into pieces
    elif excess in (None, "drop") and "text" in schemas and packing is True:
        keys.report(
            "excess_length_strategy",
            "axolotl cuts long texts of type completion into pieces, and drops long chats; a recipe has one rule, and "
            "this one leaves both out: --set pack.overlong=split, or build the texts into a cache of their own",
            default="drop",
        )
    return pack
