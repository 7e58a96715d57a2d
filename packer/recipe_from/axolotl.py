"""Conversion of an axolotl configuration to a recipe. Based on axolotl 0.19."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer.errors import RecipeError
from packer.recipe_from.axolotl_pairs import KINDS, STYLES, named_roles, read_answers
from packer.recipe_from.config import (
    NAME_FILES,
    ConfigPaths,
    EntryLeftOutError,
    Keys,
    Report,
    alpaca_rows,
    are_several,
    chat_rows,
    files_pattern,
    hub_path,
    is_on_hub,
    load_tables,
    nested,
    rows_of,
)
from packer.source.files import is_data_set
from packer.source.row import TRAIN_FIELDS

TEMPLATE_FILE = "chat_template.jinja"

_RULES = load_tables("axolotl")

_SEQUENCE_LEN = 512
"""axolotl's default."""

_FIRST_ROWS = re.compile(r"train\[:([1-9]\d{0,17})\]")
_LOADERS = ("json", "csv", "parquet", "arrow")
"""Values that older configurations have as a path, beside `data_files`."""

_WINDOWS = (
    "of type pretrain, axolotl cuts a long text into windows that overlap by up to 256 tokens, with an EOS after each; "
    "packer cuts it into pieces, with one EOS at the end"
)
_CUT = "axolotl keeps the first sequence_len - 2 tokens of a text, without an EOS; packer keeps it whole, with an EOS"

_TRAIN_FIELDS = (*TRAIN_FIELDS, "weight", "loss_weight")

_OWN_PROMPT = "axolotl writes a prompt of its own around each row; packer gives the chat template a user message"

_SAME_TEMPLATES = {"gemma": "gemma", "llama3": "llama-3"}
"""axolotl's name of a template → packer's name of one that writes the same."""

_SAME_TEMPLATES_OF_TEXTS = {**_SAME_TEMPLATES, "chatml": "chatml"}
"""The same for preference data, whose prompts are encoded as texts: they get the BOS that the tokenizer adds."""

_CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""axolotl's. packer's of this name begins with the BOS, if the tokenizer has one."""

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
"""Types whose rows packer reads as alpaca: packer's name of a field → axolotl's."""


def read_axolotl(config: Mapping[str, Any], paths: ConfigPaths, report: Report) -> tuple[dict[str, Any], str | None]:
    """Return the values of a recipe, and the text of a chat template that is part of the configuration.

    Raises:
        RecipeError: the configuration is for reward training or for answers that are generated in training, or a list
            of datasets is malformed.
    """
    keys = Keys(config, report)
    kind = None if keys.take("rl") in (None, False) else KINDS.get(str(config["rl"]))
    for key in ("rl", "reward_model", "process_reward_model"):
        if keys.take(key) not in (None, False) and (key != "rl" or kind is None):
            raise RecipeError(
                f"{key}: {config[key]}: packer prepares examples to imitate, preference pairs and rated answers",
                hint=f"its configurations have no rl, or one of {', '.join(KINDS)}",
            )
    sources, style = _sources(keys, paths, report, kind=kind)
    if config.get("pretraining_dataset"):
        keys.report("pretraining_dataset", _WINDOWS if config.get("sample_packing") is True else _CUT)
    recipe = keys.apply(_RULES["config"]) | keys.held_out("val_set_size")
    recipe |= _tokenizer(keys, paths) | _pack(keys, {source["schema"] for source in sources})
    if kind is not None and recipe.pop("pack.overlong", None):
        keys.report("excess_length_strategy", "packer cuts no answer that is compared or rated: such rows are left out")
    template, text = _template(keys, paths, _SAME_TEMPLATES if kind is None else _SAME_TEMPLATES_OF_TEXTS)
    if style is not None and template.get("template.name") != style:
        template, text = {"template.name": style}, None
        says = f"without effect on types that name a template; packer takes {style}"
        for key in ("chat_template", "chat_template_jinja"):
            keys.report(key, says)
    keys.report_rest(own=_RULES["the trainer's own"])
    return {"sources": sources, **nested(recipe | template)}, text


def _sources(
    keys: Keys, paths: ConfigPaths, report: Report, *, kind: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the sources, and packer's name of the template that the first of them names in its type, if one does."""
    sources: list[dict[str, Any]] = []
    styles: list[str | None] = []
    for name, split in (("pretraining_dataset", None), ("datasets", None), ("test_datasets", "eval")):
        entries = keys.take(name) or []
        if isinstance(entries, str) and name == "pretraining_dataset":  # may be a bare path
            entries = [{"path": entries}]
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise RecipeError(
                f"{name}: expected a list of mappings with a path each", hint="as in axolotl's own examples"
            )
        is_stream = name == "pretraining_dataset"
        texts = {"type": "pretrain"} if is_stream else {}
        for i, entry in enumerate(entries):
            inner = Keys({**texts, **entry}, report, where=f"{name}[{i}].")
            with report.entry(inner):
                if i > 0 and is_stream:
                    raise EntryLeftOutError("path", "axolotl reads only the first of these")
                if name == "datasets" and keys.take("pretraining_dataset"):
                    raise EntryLeftOutError("path", "beside pretraining_dataset axolotl reads no datasets")
                rows = _rows(inner) if kind is None else read_answers(inner, kind)
                styles.append(STYLES.get(str(entry.get("type")).partition(".")[0]) if kind else None)
                if styles[-1] != styles[0]:
                    inner.report("type", "a recipe has one template: build this source into a cache of its own")
                shared = ({"split": split} if split else {}) | rows | inner.apply(_RULES["entry"])
                names = _entry_paths(inner, paths, split=split)
                shared |= _limit(inner, several=are_several(names))
                sources += [{"path": each, **shared} for each in names]
    return sources, styles[0] if styles else None


def _limit(keys: Keys, *, several: bool) -> dict[str, Any]:
    split = keys.take("split", "text") or ""
    if rows := _FIRST_ROWS.fullmatch(split):
        if several:
            keys.report("split", "axolotl counts the rows of all files together; packer's limit counts for each file")
        return {"limit": int(rows[1])}
    if "[" in split:
        keys.report("split", "packer takes whole files, or with limit the first rows of each: all rows are taken")
    return {}


def _entry_paths(keys: Keys, paths: ConfigPaths, *, split: str | None) -> list[str]:
    """Return the paths of the sources of an entry."""
    path, named = keys.take("path", "text"), keys.take("data_files", "texts") or []
    revision = keys.take("revision", "text")
    if path is None:
        raise EntryLeftOutError("path", "no path")
    found = paths.find(path)
    wanted = (keys.take("split", "text") or ("test" if split else "train")).partition("[")[0]
    if found is None and is_on_hub(path):
        if not named:
            keys.report("path", NAME_FILES)
        elif wanted != "train":
            keys.report("split", "packer takes the files that are named, not a split of them")
        return [hub_path(path, revision, file) for file in named or [""]]
    if revision is not None:
        keys.report("revision", "it belongs to a name on the Hub, which this is not")
    if named and (found.is_dir() if found else path in _LOADERS):
        inside = paths if found is None else replace(paths, bases=(found, *paths.bases))
        return [paths.in_recipe(place, like=name) if (place := inside.find(name)) else name for name in named]
    if found is None:
        if "://" in path:
            raise EntryLeftOutError("path", "packer reads files of this machine and of the Hub")
        keys.report("path", "not found; packer reads local files and files on the Hub")
        return [path]
    return [paths.in_recipe(_in_folder(keys, found, wanted) if found.is_dir() else found, like=path)]


def _in_folder(keys: Keys, folder: Path, split: str) -> Path:
    """Return where a folder has the rows of a split; for a plain folder, a pattern for its files."""
    if is_data_set(folder):
        return folder / split if is_data_set(folder / split) else folder
    keys.report("path", "axolotl tells splits by the names of files; packer takes all that fit the pattern")
    return files_pattern(folder, "path")


def _rows(keys: Keys) -> dict[str, Any]:
    """Return schema and columns of an entry."""
    own = isinstance(keys.take("type"), Mapping)
    kind = "" if own else keys.take("type", "text") or ""
    name, _, style = kind.partition(":")
    if not name.startswith(("chat_template", "sharegpt")):
        keys.apply(_RULES["entry of no chats"])
    if not name.startswith(("completion", "pretrain")):
        keys.apply(_RULES["entry of no texts"])
    if own:
        fields = keys.inner("type")
        keys.report("type", _OWN_PROMPT)
        columns = {"system": "system"} | fields.apply(_RULES["type"])  # read unasked, as `input` is
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
        return rows_of("text", {"text": keys.take("field", "text") or keys.take("text_column", "text") or "text"})
    base = name if name in _ALPACA_TYPES else name.partition(".")[0]
    if base in _ALPACA_TYPES:
        keys.report("type", _OWN_PROMPT)
        return alpaca_rows(_ALPACA_TYPES[base])
    if name == "input_output":
        raise EntryLeftOutError(
            "type", "no schema of packer's: bring segments as messages with `train`, or as rows of tokens"
        )
    named = f" in style {style}" if style else ""
    keys.report("type", f"no known type{named}: the schema is inferred from the rows")
    return rows_of("auto")


def _chat(keys: Keys, *, messages: str, role: str, content: str) -> dict[str, Any]:
    mapped, roles = keys.inner("message_property_mappings"), keys.inner("roles")
    if keys.take("field_tools", "text") not in ("tools", None):
        keys.report(
            "field_tools",
            "axolotl 0.19 reads the tools of conversations from `tools`, whatever this says; packer reads this column",
        )
    trains = keys.take("message_field_training", "text")
    if trains in _TRAIN_FIELDS:
        keys.report("message_field_training", "on a message that is no answer, true trains it there, but not here")
    elif trains is not None:
        keys.report("message_field_training", f"packer reads {', '.join(_TRAIN_FIELDS)}: rename the field in the rows")
    rows = chat_rows(
        next((key for key in ("message_property_mappings", "message_field_role") if key in keys), "type"),
        messages=keys.take("field_messages", "text") or messages,
        role=keys.take("message_field_role", "text") or mapped.take("role", "text") or role,
        content=keys.take("message_field_content", "text") or mapped.take("content", "text") or content,
        columns={"tools": keys.take("field_tools", "text") or "tools"},
    )
    mapped.apply(_RULES["message_property_mappings"])
    mapped.report_rest()
    keys.apply(_RULES["entry of chats"])
    trained = keys.take("roles_to_train", "texts")
    if set(trained or ()) - {"assistant", "gpt", "model"}:
        keys.report(
            "roles_to_train", "packer trains only answers: what the assistant says, with its calls and its stop token"
        )
    elif trained == []:
        keys.report("roles_to_train", "packer trains every answer that has no train: false on its message")
    return rows | named_roles(roles)


def _tokenizer(keys: Keys, paths: ConfigPaths) -> dict[str, Any]:
    model, own = keys.take("base_model", "text"), keys.take("tokenizer_config", "text")
    revision = keys.take("revision_of_model", "text")
    if own is not None:
        keys.report("revision_of_model", "of the model; the tokenizer is named separately")
        return {"tokenizer": paths.tokenizer(own, None)}
    return {} if model is None else {"tokenizer": paths.tokenizer(model, revision)}


def _template(keys: Keys, paths: ConfigPaths, same: Mapping[str, str]) -> tuple[dict[str, Any], str | None]:
    """Return the keys of `template`, and the text of a template that must be written beside the recipe."""
    name, jinja = keys.take("chat_template", "text"), keys.take("chat_template_jinja", "text")
    if jinja is None and name in same:
        return {"template.name": same[name]}, None
    if jinja is None and name == "chatml":
        jinja = _CHATML
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
        keys.report("chat_template_jinja", "no such file: the tokenizer's own template is used")
        return {}, None
    return {"template.file": paths.in_recipe(found, like=jinja)}, None


def _pack(keys: Keys, schemas: set[str]) -> dict[str, Any]:
    length, packing = keys.take("sequence_len"), keys.take("sample_packing") is True
    pack = {} if length is None else {"pack.block_len": length}
    if not packing:
        pack["pack.mode"] = "none"
        keys.report(
            "sample_packing",
            "documents without blocks, which a loader pads; to pack: --set pack.mode=isolated",
            default=False,
        )
        keys.report("sequence_len", "without packing documents keep their length; axolotl drops or cuts longer ones")
    elif length is None:
        pack["pack.block_len"] = _SEQUENCE_LEN
        keys.report("sequence_len", "axolotl's default", default=_SEQUENCE_LEN)
    drops = keys.take("excess_length_strategy") in (None, "drop")
    if drops and schemas == {"text"}:
        pack["pack.overlong"] = "split"  # as axolotl's type `completion` does with long texts
    elif drops and "text" in schemas and packing:
        keys.report(
            "excess_length_strategy",
            "axolotl cuts long texts of type completion into pieces, and drops long chats; a recipe has one rule, and "
            "this one leaves both out: --set pack.overlong=split, or build the texts into a cache of their own",
            default="drop",
        )
    return pack
