"""Conversion of a LLaMA-Factory training configuration to a recipe.

Based on LLaMA-Factory 0.9.5.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer.errors import RecipeError
from packer.host.regular_file import path_within
from packer.recipe_from.config import (
    ConfigPaths,
    EntryLeftOutError,
    Keys,
    Report,
    alpaca_rows,
    chat_rows,
    files_pattern,
    hub_path,
    refuse_training,
    renamed_roles,
    rows_of,
    shown,
)

INFO_FILE = "dataset_info.json"

_CUTOFF_LEN = 2048
"""LLaMA-Factory's default."""

_MOST_LISTED = 12

_PLACES = ("file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
"""Keys of an entry that locate its data; an entry has one of them."""

_MEDIA_COLUMNS = ("images", "videos", "audios")

_INSTRUCTIONS = {"prompt": "instruction", "query": "input", "response": "output"} | {
    name: name for name in ("history", "system", "tools")
}
_CHATS = {"messages": "messages", "system": "system", "tools": "tools"}

_TAG_ROLES = {"user_tag": "user", "assistant_tag": "assistant", "system_tag": "system", "observation_tag": "tool"}


def read_llamafactory(
    config: Mapping[str, Any], paths: ConfigPaths, report: Report, *, load: Callable[[Path], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the values of a recipe; `load` reads a file as a mapping.

    Raises:
        RecipeError: the stage is not supported, or its datasets cannot be found.
    """
    keys = Keys(config, report)
    stage = keys.take("stage", "text") or "sft"
    if stage not in ("sft", "pt"):
        refuse_training(f"stage: {stage}")
    is_texts = stage == "pt"
    name = keys.take("dataset_dir", "text") or "data"
    if name == "ONLINE" or name.startswith("REMOTE:"):
        raise RecipeError(
            f"dataset_dir: {name}: its data sets are on the Hub, where packer does not guess files",
            hint="write a recipe whose sources name the files: hf://datasets/ORG/NAME/FILE",
        )
    folder = paths.find(name)
    if folder is None or not (folder / INFO_FILE).is_file():
        raise RecipeError(
            f"dataset_dir: {name}: no {INFO_FILE} there; searched from {' and '.join(map(str, paths.bases))}",
            hint="run this where LLaMA-Factory is started",
        )
    info = load(path_within(folder, INFO_FILE))
    inner = replace(paths, bases=(folder,), absolute=Path(name).is_absolute())  # its files are beside it
    sources = []
    for key, split in (("dataset", {}), ("eval_dataset", {"split": "validation"})):
        names = _names_of(keys.take(key, "texts"))
        for entry in names:
            with report.entry(entry, _entry(info, entry)) as own:
                rows = _rows(own, is_texts=is_texts)
                sources.append({"path": _entry_path(own, inner), **rows, **split})
    model, revision = keys.take("model_name_or_path", "text"), keys.take("model_revision", "text")
    tokenizer = {} if model is None else {"tokenizer": paths.tokenizer(model, None if revision == "main" else revision)}
    return {"sources": sources, **tokenizer, "pack": _pack(keys, is_texts=is_texts)}


def _names_of(texts: Iterable[str] | None) -> list[str]:
    """Split names that are separated by commas or given as a list."""
    return [name.strip() for text in texts or () for name in text.split(",") if name.strip()]


def _entry(info: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if name not in info:
        close = difflib.get_close_matches(name, [str(entry) for entry in info], 1)
        listed = ", ".join(map(str, list(info)[:_MOST_LISTED])) + ", …" * (len(info) > _MOST_LISTED)
        hint = f"did you mean '{close[0]}'?" if close else f"it has {listed or 'none'}"
        raise RecipeError(f"dataset '{name}': not in {INFO_FILE}", hint=hint)
    entry = info[name]
    if not isinstance(entry, Mapping):
        raise RecipeError(
            f"dataset '{name}': expected a mapping in {INFO_FILE}, found {shown(entry)}",
            hint=f"an entry has one of {', '.join(_PLACES)}",
        )
    return entry


def _entry_path(keys: Keys, paths: ConfigPaths) -> str:
    if (repository := keys.take("hf_hub_url", "text")) is not None:
        folder = keys.take("folder", "text")
        return hub_path(repository, path=f"{folder}/*" if folder else "")
    name = keys.take("file_name", "text")
    if name is None:
        raise EntryLeftOutError("packer reads files of this machine and of the Hugging Face Hub")
    found = paths.find(name)
    if found is None:
        raise EntryLeftOutError(f"no file {name} in the folder of the data")
    return paths.in_recipe(files_pattern(found) if found.is_dir() else found, like=name)


def _rows(keys: Keys, *, is_texts: bool) -> dict[str, Any]:
    """Return schema and columns of an entry."""
    columns = keys.inner("columns")
    if keys.take("ranking") or columns.take("kto_tag"):
        raise EntryLeftOutError("preference data: a cache has one kind of rows")
    if media := [key for key in _MEDIA_COLUMNS if columns.take(key) is not None]:
        raise EntryLeftOutError(f"{' and '.join(media)}: packer reads texts alone")
    kind = keys.take("formatting", "text") or "alpaca"
    if kind == "alpaca" and is_texts:
        return rows_of("text", {"text": "instruction", **columns.columns({"prompt": "text"})})
    if kind == "alpaca":
        # LLaMA-Factory reads only the named columns; if none are named, it uses Alpaca's column names.
        unnamed = dict.fromkeys(_INSTRUCTIONS.values() if "columns" in keys else ())
        return alpaca_rows(unnamed | columns.columns(_INSTRUCTIONS))
    if kind not in ("sharegpt", "openai"):
        raise EntryLeftOutError(f"formatting: {kind} is not known here")
    if is_texts:
        raise EntryLeftOutError(
            "in pre-training, LLaMA-Factory trains the first message as a text: make it a column of its own"
        )
    tags = keys.inner("tags")
    senders = {sender: role for tag, role in _TAG_ROLES.items() if (sender := tags.take(tag, "text")) is not None}
    read = dict[str, str | None].fromkeys(("system", "tools")) | columns.columns(_CHATS)
    rows = chat_rows(
        role=tags.take("role_tag", "text") or "from",
        content=tags.take("content_tag", "text") or "value",
        messages=read.pop("messages", None) or "conversations",
        columns=read,
    )
    return rows | renamed_roles(senders)


def _pack(keys: Keys, *, is_texts: bool) -> dict[str, Any]:
    length, packing, neat = keys.take("cutoff_len"), keys.take("packing"), keys.take("neat_packing")
    pack: dict[str, Any] = {"block_len": length or _CUTOFF_LEN}
    if is_texts and (neat or packing is not False):
        return {**pack, "mode": "stream"}  # concatenated and cut, as in LLaMA-Factory's pre-training
    if not packing and not neat:
        return {**pack, "mode": "none"}
    return {**pack, "mode": "isolated" if neat else "eos", "overlong": "truncate_right"}
