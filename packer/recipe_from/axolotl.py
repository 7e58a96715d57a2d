"""Conversion of an axolotl configuration to a recipe. Based on axolotl 0.19."""

from collections.abc import Mapping
from typing import Any

from packer.errors import RecipeError
from packer.hub import SCHEME, may_be_repository
from packer.recipe_from.config import (
    ConfigPaths,
    EntryLeftOutError,
    Keys,
    Report,
    hub_path,
    messages_column,
    refuse_training,
    rows_of,
)

_SEQUENCE_LEN = 512
"""axolotl's default."""

_LOADERS = ("json", "csv", "parquet", "arrow")
"""Values that older configurations have as a path, beside `data_files`."""

_TEMPLATES = {"gemma": "gemma", "llama3": "llama-3", "chatml": "chatml"}
"""axolotl's name of a template → packer's name of it. `chatml` begins with the BOS here, if the tokenizer has one."""

_TYPES = ("chat_template", "sharegpt", "alpaca", "alpaca_chat", "alpaca_instruct", "input_output", "completion", "")
"""Types of rows that packer recognizes itself."""

_INSTRUCTIONS = {f"field_{name}": name for name in ("instruction", "input", "output", "system")}


def read_axolotl(config: Mapping[str, Any], paths: ConfigPaths, report: Report) -> dict[str, Any]:
    """Return the values of a recipe."""
    keys = Keys(config, report)
    for key in ("rl", "reward_model", "process_reward_model"):
        if keys.take(key):
            refuse_training(key, is_text=False)
    if keys.take("pretraining_dataset"):
        refuse_training("pretraining_dataset", is_text=True)
    sources: list[dict[str, Any]] = []
    for name, split in (("datasets", {}), ("test_datasets", {"split": "eval"})):
        entries = keys.take(name) or []
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            hint = "as in axolotl's own examples"
            raise RecipeError(f"{name}: expected a list of mappings with a path each", hint=hint)
        for i, entry in enumerate(entries):
            with report.entry(f"{name}[{i}]", entry) as own_keys:
                rows = _rows(own_keys)
                sources += [{"path": path, **split, **rows} for path in _entry_paths(own_keys, paths)]
    model, own = keys.take("base_model", "text"), keys.take("tokenizer_config", "text")
    revision = keys.take("revision_of_model", "text") if own is None else None
    length, packs = keys.take("sequence_len"), keys.take("sample_packing") is True
    pack = {"block_len": length or _SEQUENCE_LEN} if packs or length else {}
    return {
        "sources": sources,
        **paths.tokenizer(own or model, revision),
        "pack": pack if packs else {**pack, "mode": "none"},
        "template": _template(keys, paths),
    }


def _entry_paths(keys: Keys, paths: ConfigPaths) -> list[str]:
    """Return the paths of the sources of an entry."""
    path, named = keys.take("path", "text"), keys.take("data_files", "texts") or []
    if path is None:
        raise EntryLeftOutError("it has no path")
    if keys.take("split", "text") != "train":
        keys.leave("split")
    if paths.find(path) is None and (path.startswith(SCHEME) or may_be_repository(path)):
        revision = keys.take("revision", "text")
        return [hub_path(path, revision, file) for file in named or [""]]
    return [paths.rows(place, like=place) for place in (named if named and path in _LOADERS else [path])]


def _rows(keys: Keys) -> dict[str, Any]:
    """Return columns and roles of an entry."""
    kind = keys.take("type")
    own = keys.inner("type") if isinstance(kind, Mapping) else Keys({}, Report())
    if not isinstance(kind, Mapping) and str(kind or "").partition(":")[0].partition(".")[0] not in _TYPES:
        keys.leave("type")
    mapped, roles = keys.inner("message_property_mappings"), keys.inner("roles")
    names = tuple(
        keys.take(f"message_field_{name}", "text") or mapped.take(name, "text") for name in ("role", "content")
    )
    columns = messages_column((names[0], names[1]), keys.take("field_messages", "text"))
    columns |= keys.columns({"field_tools": "tools", "field": "text"}) | own.columns(_INSTRUCTIONS)
    senders = {name: roles.take(name, "texts") or () for name in ("system", "user", "assistant", "tool")}
    return rows_of(columns, {sender: name for name, given in senders.items() for sender in given})


def _template(keys: Keys, paths: ConfigPaths) -> dict[str, Any]:
    """Return the keys of `template`; a template that is text of the configuration itself is not carried over."""
    name, jinja = keys.take("chat_template", "text"), keys.take("chat_template_jinja", "text")
    if jinja is None and name in _TEMPLATES:
        return {"name": _TEMPLATES[name]}
    found = None if jinja is None or "{" in jinja else paths.find(jinja)
    if found is not None and found.is_file():
        return {"file": paths.in_recipe(found, like=jinja)}
    for key in ("chat_template_jinja",) if jinja else ("chat_template",) if name != "tokenizer_default" else ():
        keys.leave(key)
    return {}
