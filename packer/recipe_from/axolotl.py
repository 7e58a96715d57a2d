"""Conversion of an axolotl configuration to a recipe. Based on axolotl 0.19."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer.errors import RecipeError
from packer.recipe_from.config import (
    ConfigPaths,
    EntryLeftOutError,
    Keys,
    Report,
    alpaca_rows,
    chat_rows,
    files_pattern,
    hub_path,
    is_on_hub,
    refuse_training,
    renamed_roles,
    rows_of,
)
from packer.source.files import is_data_set

TEMPLATE_FILE = "chat_template.jinja"

_SEQUENCE_LEN = 512
"""axolotl's default."""

_LOADERS = ("json", "csv", "parquet", "arrow")
"""Values that older configurations have as a path, beside `data_files`."""

_SAME_TEMPLATES = {"gemma": "gemma", "llama3": "llama-3"}
"""axolotl's name of a template → packer's name of one that writes the same."""

_CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""axolotl's. packer's of this name begins with the BOS, if the tokenizer has one."""

_ALPACA_TYPES = ("alpaca", "alpaca_chat", "alpaca_instruct")
"""Types of rows with an instruction, an input and an output. Of other types the fields are recognized, or named."""


def read_axolotl(config: Mapping[str, Any], paths: ConfigPaths, report: Report) -> tuple[dict[str, Any], str | None]:
    """Return the values of a recipe, and the text of a chat template that is part of the configuration.

    Raises:
        RecipeError: the configuration is not for supervised training, or a list of datasets is malformed.
    """
    keys = Keys(config, report)
    for key in ("rl", "reward_model", "process_reward_model"):
        if keys.take(key) not in (None, False):
            refuse_training(f"{key}: {config[key]}")
    sources = _sources(keys, paths, report)
    model, own = keys.take("base_model", "text"), keys.take("tokenizer_config", "text")
    revision = keys.take("revision_of_model", "text") if own is None else None
    recipe = {"tokenizer": paths.tokenizer(own or model, revision)} if own or model else {}
    template, text = _template(keys, paths)
    schemas = {source["schema"] for source in sources}
    return {"sources": sources, **recipe, "pack": _pack(keys, schemas), "template": template}, text


def _sources(keys: Keys, paths: ConfigPaths, report: Report) -> list[dict[str, Any]]:
    sources: list[dict[str, Any]] = []
    for name, split in (("pretraining_dataset", None), ("datasets", None), ("test_datasets", "eval")):
        entries = keys.take(name) or []
        if isinstance(entries, str) and name == "pretraining_dataset":  # may be a bare path
            entries = [{"path": entries}]
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise RecipeError(
                f"{name}: expected a list of mappings with a path each", hint="as in axolotl's own examples"
            )
        is_stream = name == "pretraining_dataset"
        for i, entry in enumerate(entries):
            with report.entry(f"{name}[{i}]", ({"type": "pretrain"} if is_stream else {}) | dict(entry)) as inner:
                if i > 0 and is_stream:
                    raise EntryLeftOutError("axolotl reads only the first of these")
                if name == "datasets" and keys.take("pretraining_dataset"):
                    raise EntryLeftOutError("beside pretraining_dataset axolotl reads no datasets")
                rows = _rows(inner)
                names = _entry_paths(inner, paths, split=split)
                sources += [{"path": each, **({"split": split} if split else {}), **rows} for each in names]
    return sources


def _entry_paths(keys: Keys, paths: ConfigPaths, *, split: str | None) -> list[str]:
    """Return the paths of the sources of an entry."""
    path, named = keys.take("path", "text"), keys.take("data_files", "texts") or []
    if path is None:
        raise EntryLeftOutError("it has no path")
    found = paths.find(path)
    wanted, _, part = (keys.take("split", "text") or ("test" if split else "train")).partition("[")
    if part or (wanted != "train" and (found is None or not is_data_set(found))):
        keys.leave("split")
    if found is None and is_on_hub(path):
        revision = keys.take("revision", "text")
        return [hub_path(path, revision, file) for file in named or [""]]
    if named and (found.is_dir() if found else path in _LOADERS):
        inside = paths if found is None else replace(paths, bases=(found, *paths.bases))
        return [paths.in_recipe(place, like=name) if (place := inside.find(name)) else name for name in named]
    if found is None:
        if "://" in path:
            raise EntryLeftOutError("packer reads files of this machine and of the Hub")
        return [path]
    return [paths.in_recipe(_in_folder(found, wanted) if found.is_dir() else found, like=path)]


def _in_folder(folder: Path, split: str) -> Path:
    """Return where a folder has the rows of a split; for a plain folder, a pattern for its files."""
    if is_data_set(folder):
        return folder / split if is_data_set(folder / split) else folder
    return files_pattern(folder)


def _rows(keys: Keys) -> dict[str, Any]:
    """Return schema and columns of an entry."""
    if isinstance(keys.take("type"), Mapping):
        names = {f"field_{name}": name for name in ("instruction", "input", "output", "system")}
        return alpaca_rows({"system": "system", **keys.inner("type").columns(names)})  # read unasked, as `input` is
    name = (keys.take("type", "text") or "").partition(":")[0]
    if not name:
        return rows_of("tokens")
    if name == "chat_template":
        return _chat(keys, messages="messages", role="role", content="content")
    if name.startswith("sharegpt"):
        return _chat(keys, messages="conversations", role="from", content="value")
    if name in ("completion", "pretrain"):
        return rows_of("text", {"text": keys.take("field", "text") or keys.take("text_column", "text") or "text"})
    if name in _ALPACA_TYPES:
        return alpaca_rows({})
    if name == "input_output":
        raise EntryLeftOutError(
            "segments are read where the trained ones come last: name such a file, or bring messages with `train`"
        )
    keys.leave("type")
    return rows_of("auto")


def _chat(keys: Keys, *, messages: str, role: str, content: str) -> dict[str, Any]:
    mapped = keys.inner("message_property_mappings")
    rows = chat_rows(
        messages=keys.take("field_messages", "text") or messages,
        role=keys.take("message_field_role", "text") or mapped.take("role", "text") or role,
        content=keys.take("message_field_content", "text") or mapped.take("content", "text") or content,
        columns={"tools": keys.take("field_tools", "text") or "tools"},
    )
    roles = keys.inner("roles")
    senders = {name: roles.take(name, "texts") or () for name in ("system", "user", "assistant", "tool")}
    return rows | renamed_roles({sender: name for name, own in senders.items() for sender in own})


def _template(keys: Keys, paths: ConfigPaths) -> tuple[dict[str, Any], str | None]:
    """Return the keys of `template`, and the text of a template that must be written beside the recipe."""
    name, jinja = keys.take("chat_template", "text"), keys.take("chat_template_jinja", "text")
    if jinja is None and name == "chatml":
        return {"file": TEMPLATE_FILE}, _CHATML
    if jinja is None and name in _SAME_TEMPLATES:
        return {"name": _SAME_TEMPLATES[name]}, None
    if jinja is None:
        if name != "tokenizer_default":
            keys.leave("chat_template")
        return {}, None
    if "{" in jinja:
        return {"file": TEMPLATE_FILE}, jinja
    found = paths.find(jinja)
    if found is None or not found.is_file():
        keys.leave("chat_template_jinja")
        return {}, None
    return {"file": paths.in_recipe(found, like=jinja)}, None


def _pack(keys: Keys, schemas: set[str]) -> dict[str, Any]:
    length, packs = keys.take("sequence_len"), keys.take("sample_packing") is True
    pack: dict[str, Any] = {"block_len": length or _SEQUENCE_LEN} if packs or length else {}
    # Of texts, axolotl cuts what is too long into pieces; of other rows it leaves it out.
    return pack | ({} if packs else {"mode": "none"}) | ({"overlong": "split"} if schemas == {"text"} else {})
