"""A configuration of LLaMA-Factory."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer.errors import RecipeError, did_you_mean, near
from packer.host.files import path_within
from packer.recipe_from.keys import (
    EntryLeftOutError,
    Keys,
    Paths,
    columns_and_roles,
    hub_path,
    load_config,
    one_line_of,
    refuse_training,
)

INFO_FILE = "dataset_info.json"

_CUTOFF_LEN = 2048
"""LLaMA-Factory's default."""

_COLUMNS = {"prompt": "instruction", "query": "input", "response": "output"}
_COLUMNS |= {name: name for name in ("history", "system", "tools")}
_TAG_ROLES = {"user_tag": "user", "assistant_tag": "assistant", "system_tag": "system", "observation_tag": "tool"}


def recipe_of(keys: Keys, paths: Paths) -> dict[str, Any]:
    """Return the values of a recipe."""
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
    info, beside = load_config(path_within(folder, INFO_FILE)), replace(paths, bases=(folder,))
    sources: list[dict[str, Any]] = []
    for key, split in (("dataset", {}), ("eval_dataset", {"split": "validation"})):
        for entry in filter(None, map(str.strip, ",".join(keys.take(key, "texts") or ()).split(","))):
            found = keys.sources(entry, _entry(info, entry), lambda own: [_source_of(own, beside, name)])
            sources += [source | split for source in found]
    model, revision = keys.take("model_name_or_path", "text"), keys.take("model_revision", "text")
    length, packing, neat = keys.take("cutoff_len"), keys.take("packing"), keys.take("neat_packing")
    packs = {"overlong": "truncate_right"} if packing or neat else {"mode": "none"}
    tokenizer = paths.tokenizer(model, None if revision == "main" else revision)
    return {"sources": sources, **tokenizer, "pack": {"block_len": length or _CUTOFF_LEN, **packs}}


def _entry(info: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    entry = info.get(name)
    if isinstance(entry, Mapping):
        return entry
    listed = ", ".join(map(str, list(info)[:12])) + ", …" * (len(info) > 12)
    found = f"expected a mapping in {INFO_FILE}, found {one_line_of(entry)}" if name in info else f"not in {INFO_FILE}"
    hint = did_you_mean(near(name, [str(each) for each in info if each != name]), f"it has {listed or 'none'}")
    raise RecipeError(f"dataset '{name}': {found}", hint=hint)


def _source_of(keys: Keys, paths: Paths, folder: str) -> dict[str, Any]:
    """Return the source of an entry."""
    columns, tags = keys.inner("columns"), keys.inner("tags")
    if keys.take("ranking") or columns.take("kto_tag"):
        raise EntryLeftOutError("preference data: a cache has one kind of rows")
    if any(columns.take(name) is not None for name in ("images", "videos", "audios")):
        raise EntryLeftOutError(
            "media: of images, videos and audio packer reads images, with media.images: read in a recipe of your own"
        )
    kind = keys.take("formatting", "text") or "alpaca"
    if kind not in ("alpaca", "sharegpt", "openai"):
        raise EntryLeftOutError(f"formatting: {kind} is not known here")
    names = tags.take("role_tag", "text") or "from", tags.take("content_tag", "text") or "value"
    senders = {sender: role for tag, role in _TAG_ROLES.items() if (sender := tags.take(tag, "text")) is not None}
    rows = columns_and_roles(columns.take("messages", "text"), names, columns.columns(_COLUMNS), senders)
    if (repository := keys.take("hf_hub_url", "text")) is not None:
        inside = keys.take("folder", "text")
        return {"path": hub_path(repository, path=f"{inside}/*" if inside else ""), **rows}
    if (name := keys.take("file_name", "text")) is None:
        raise EntryLeftOutError("it names no file, and no data set of the Hugging Face Hub")
    return {"path": paths.rows(name, like=str(Path(folder, name))), **rows}
