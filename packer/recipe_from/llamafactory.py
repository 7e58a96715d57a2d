"""Conversion of a LLaMA-Factory training configuration to a recipe. Based on LLaMA-Factory 0.9.5."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer.errors import RecipeError
from packer.host.regular_file import path_within
from packer.near_names import did_you_mean, near
from packer.recipe_from.config import (
    ConfigPaths,
    EntryLeftOutError,
    Keys,
    Report,
    hub_path,
    messages_column,
    refuse_training,
    rows_of,
    shown,
)

INFO_FILE = "dataset_info.json"

_CUTOFF_LEN = 2048
"""LLaMA-Factory's default."""

_MOST_LISTED = 12

_COLUMNS = {"prompt": "instruction", "query": "input", "response": "output"} | {
    name: name for name in ("history", "system", "tools")
}
_TAG_ROLES = {"user_tag": "user", "assistant_tag": "assistant", "system_tag": "system", "observation_tag": "tool"}


def read_llamafactory(
    config: Mapping[str, Any], paths: ConfigPaths, report: Report, *, load: Callable[[Path], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the values of a recipe; `load` reads a file as a mapping."""
    keys = Keys(config, report)
    stage = keys.take("stage", "text") or "sft"
    if stage != "sft":
        refuse_training("stage", is_text=stage == "pt")
    name = keys.take("dataset_dir", "text") or "data"
    folder = paths.find(name)
    if folder is None or not (folder / INFO_FILE).is_file():
        raise RecipeError(
            f"dataset_dir: {name}: no {INFO_FILE} there; searched from {' and '.join(map(str, paths.bases))}",
            hint="run this where LLaMA-Factory is started; of data sets on the Hub, write a recipe that names the "
            "files: hf://datasets/ORG/NAME/FILE",
        )
    info, beside = load(path_within(folder, INFO_FILE)), replace(paths, bases=(folder,))
    sources = []
    for key, split in (("dataset", {}), ("eval_dataset", {"split": "validation"})):
        for entry in _names_of(keys.take(key, "texts")):
            with report.entry(entry, _entry(info, entry)) as own:
                rows = _rows(own)
                sources.append({"path": _entry_path(own, beside, name), **rows, **split})
    model, revision = keys.take("model_name_or_path", "text"), keys.take("model_revision", "text")
    tokenizer = paths.tokenizer(model, None if revision == "main" else revision)
    return {"sources": sources, **tokenizer, "pack": _pack(keys)}


def _names_of(texts: Iterable[str] | None) -> list[str]:
    """Split names that are separated by commas or given as a list."""
    return [name.strip() for text in texts or () for name in text.split(",") if name.strip()]


def _entry(info: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    entry = info.get(name)
    if isinstance(entry, Mapping):
        return entry
    listed = ", ".join(map(str, list(info)[:_MOST_LISTED])) + ", …" * (len(info) > _MOST_LISTED)
    found = f"expected a mapping in {INFO_FILE}, found {shown(entry)}" if name in info else f"not in {INFO_FILE}"
    hint = did_you_mean(near(name, [str(each) for each in info if each != name]), f"it has {listed or 'none'}")
    raise RecipeError(f"dataset '{name}': {found}", hint=hint)


def _entry_path(keys: Keys, paths: ConfigPaths, folder: str) -> str:
    if (repository := keys.take("hf_hub_url", "text")) is not None:
        inside = keys.take("folder", "text")
        return hub_path(repository, path=f"{inside}/*" if inside else "")
    name = keys.take("file_name", "text")
    if name is None:
        raise EntryLeftOutError("packer reads files of this machine and of the Hugging Face Hub")
    return paths.rows(name, like=str(Path(folder, name)))


def _rows(keys: Keys) -> dict[str, Any]:
    """Return columns and roles of an entry."""
    columns, tags = keys.inner("columns"), keys.inner("tags")
    if keys.take("ranking") or columns.take("kto_tag"):
        raise EntryLeftOutError("preference data: a cache has one kind of rows")
    if any(columns.take(name) is not None for name in ("images", "videos", "audios")):
        raise EntryLeftOutError("packer reads texts alone")
    kind = keys.take("formatting", "text") or "alpaca"
    if kind not in ("alpaca", "sharegpt", "openai"):
        raise EntryLeftOutError(f"formatting: {kind} is not known here")
    names = tags.take("role_tag", "text") or "from", tags.take("content_tag", "text") or "value"
    read = messages_column(names, columns.take("messages", "text")) | columns.columns(_COLUMNS)
    senders = {sender: role for tag, role in _TAG_ROLES.items() if (sender := tags.take(tag, "text")) is not None}
    return rows_of(read, senders)


def _pack(keys: Keys) -> dict[str, Any]:
    length, packing, neat = keys.take("cutoff_len"), keys.take("packing"), keys.take("neat_packing")
    pack = {"block_len": length or _CUTOFF_LEN}
    return {**pack, "overlong": "truncate_right"} if packing or neat else {**pack, "mode": "none"}
