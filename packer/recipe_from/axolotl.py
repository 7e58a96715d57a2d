"""A configuration of axolotl."""

from collections.abc import Mapping
from typing import Any

from packer.errors import RecipeError
from packer.names import SCHEME, may_be_repository
from packer.recipe_from.keys import EntryLeftOutError, Keys, Paths, columns_and_roles, hub_path, refuse_training

_SEQUENCE_LEN = 512
"""axolotl's default."""

_LOADERS = ("json", "csv", "parquet", "arrow")
"""Values that older configurations have as a path, beside `data_files`."""

_TEMPLATES = {"gemma": "gemma", "llama3": "llama-3", "chatml": "chatml"}
"""axolotl's name of a template → packer's name of it. `chatml` begins with the BOS here, if the tokenizer has one."""

_ROW_TYPES = ("chat_template", "sharegpt", "alpaca", "alpaca_chat", "alpaca_instruct", "input_output", "completion", "")
"""Types of rows that packer recognizes itself."""

_INSTRUCTIONS = {f"field_{name}": name for name in ("instruction", "input", "output", "system")}


def recipe_of(keys: Keys, paths: Paths) -> dict[str, Any]:
    """Return the values of a recipe."""
    for key in ("rl", "reward_model", "process_reward_model", "pretraining_dataset"):
        if keys.take(key):
            refuse_training(key, is_text=key == "pretraining_dataset")
    sources: list[dict[str, Any]] = []
    for name, split in (("datasets", {}), ("test_datasets", {"split": "eval"})):
        entries = keys.take(name) or []
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise RecipeError(f"{name}: expected a list of mappings with a path each, as in axolotl's own examples")
        for i, entry in enumerate(entries):
            found = keys.sources(f"{name}[{i}]", entry, lambda own: _sources_of(own, paths))
            sources += [{"path": source["path"], **split, **source} for source in found]
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


def _sources_of(keys: Keys, paths: Paths) -> list[dict[str, Any]]:
    """Return the sources of an entry."""
    kind = keys.take("type")
    own = keys.inner("type") if isinstance(kind, Mapping) else Keys({})
    if not isinstance(kind, Mapping) and str(kind or "").partition(":")[0].partition(".")[0] not in _ROW_TYPES:
        keys.leave("type")
    mapped, roles = keys.inner("message_property_mappings"), keys.inner("roles")
    names = [keys.take(f"message_field_{name}", "text") or mapped.take(name, "text") for name in ("role", "content")]
    messages = keys.take("field_messages", "text")
    columns = keys.columns({"field_tools": "tools", "field": "text"}) | own.columns(_INSTRUCTIONS)
    senders = {name: roles.take(name, "texts") or () for name in ("system", "user", "assistant", "tool")}
    rows = columns_and_roles(
        messages, names, columns, {sender: name for name, given in senders.items() for sender in given}
    )
    path, named = keys.take("path", "text"), keys.take("data_files", "texts") or []
    if path is None:
        raise EntryLeftOutError("it has no path")
    if keys.take("split", "text") != "train":
        keys.leave("split")
    if paths.find(path) is None and (path.startswith(SCHEME) or may_be_repository(path)):
        revision = keys.take("revision", "text")
        return [{"path": hub_path(path, revision, file), **rows} for file in named or [""]]
    places = named if named and path in _LOADERS else [path]
    return [{"path": paths.rows(place, like=place), **rows} for place in places]


def _template(keys: Keys, paths: Paths) -> dict[str, Any]:
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
