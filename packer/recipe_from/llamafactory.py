"""Conversion of a LLaMA-Factory training configuration, or of a bare `dataset_info.json`, to a recipe.

Based on LLaMA-Factory 0.9.5.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer.errors import RecipeError
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
    load_tables,
    nested,
    renamed_roles,
    rows_of,
    shown,
)
from packer.regular_file import path_within
from packer.source.roles import CALL_ROLES

INFO_FILE = "dataset_info.json"

_RULES = load_tables("llamafactory")

_CUTOFF_LEN = 2048
"""LLaMA-Factory's default."""

_MOST_LISTED = 12

_PLACES = ("file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
"""Keys of an entry that locate its data; an entry has one of them."""

_TEXTS = (
    "here a text begins with the BOS that the tokenizer adds, if any, and ends with its EOS; LLaMA-Factory writes no "
    "BOS, or one in each block, and under template llama3 ends a text with <|end_of_text|>"
)
_MEDIA = "packer reads no images, video or audio"
_ELSEWHERE = "packer reads files of this machine and of the Hugging Face Hub"

_MEDIA_COLUMNS = ("images", "videos", "audios")

_STAGES = {"sft": "examples", "pt": "texts", "dpo": "preference", "kto": "rated"}
"""Stage → kind of its rows; for preference data, this is the name of packer's schema."""

_ANSWERS = {"preference": ("chosen", "rejected"), "rated": ("kto_tag",)}
"""Columns of preference data in addition to those of its prompt."""

_TAG_ROLES = {
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
    "observation_tag": "tool",
}


def is_dataset_info(values: Mapping[str, Any]) -> bool:
    return bool(values) and all(
        isinstance(entry, Mapping) and not entry.keys().isdisjoint(_PLACES) for entry in values.values()
    )


def read_llamafactory(
    config: Mapping[str, Any], paths: ConfigPaths, report: Report, *, load: Callable[[Path], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the values of a recipe; `load` reads a file as a mapping.

    Raises:
        RecipeError: the stage is not supported, or its datasets cannot be found.
    """
    keys = Keys(config, report)
    stage = keys.take("stage", "text") or "sft"
    if stage not in _STAGES:
        raise RecipeError(
            f"stage: {stage}: packer prepares supervised training, pre-training, DPO and KTO",
            hint="its sources are rows with answers to train on: stage sft, pt, dpo or kto",
        )
    kind = _STAGES[stage]
    sources = _sources(keys, paths, report, load=load, kind=kind)
    recipe = keys.apply(_RULES["config"]) | keys.held_out("val_size") | _pack(keys, kind=kind)
    model, revision = keys.take("model_name_or_path", "text"), keys.take("model_revision", "text")
    if model is not None:
        recipe["tokenizer"] = paths.tokenizer(model, None if revision == "main" else revision)
    keys.report_rest(own=_RULES["the trainer's own"])
    return {"sources": sources, **nested(recipe)}


def _sources(
    keys: Keys, paths: ConfigPaths, report: Report, *, load: Callable[[Path], Mapping[str, Any]], kind: str
) -> list[dict[str, Any]]:
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
            hint="run this where LLaMA-Factory is started, or give the file itself: --from …/dataset_info.json",
        )
    info = load(path_within(folder, INFO_FILE))
    inner = replace(paths, bases=(folder,), absolute=Path(name).is_absolute())  # its files are beside it
    most = keys.take("max_samples", "number")
    limit = {} if most is None else {"limit": most}
    sources = []
    for key, shared in (("dataset", limit), ("eval_dataset", {"split": "validation", **limit})):
        names = names_of(keys.take(key, "texts"))
        if len({*names}) < len(names):
            keys.report(key, "a name is listed twice: packer takes each file once per split")
        sources += read_entries(info, names, inner, report, shared=shared, kind=kind)
    if any(are_several([source["path"]]) for source in sources):
        keys.report("max_samples", "LLaMA-Factory counts the rows of each entry; packer's limit counts for each file")
    return sources


def read_entries(
    info: Mapping[str, Any],
    names: Iterable[str],
    paths: ConfigPaths,
    report: Report,
    *,
    shared: Mapping[str, Any],
    kind: str | None = None,
) -> list[dict[str, Any]]:
    """Return the sources of entries of a `dataset_info.json`.

    Args:
        info: The whole file.
        names: Which of its entries, in the order of their sources.
        paths: `bases` has the folder of the data.
        report: Receives what is not carried over.
        shared: Keys that each source gets.
        kind: The kind of rows of the configuration's stage, as in `_STAGES`; an entry of another kind is left out, as a
            cache has one kind of rows. None uses the kind of the entries, or examples if they are of several kinds.

    Raises:
        RecipeError: there is no entry of that name.
    """
    entries = {name: _entry(info, name) for name in names}
    kinds = {_kind(entry) for entry in entries.values()}
    kind = kind or (kinds.pop() if len(kinds) == 1 else "examples")
    sources = []
    for name, entry in entries.items():
        keys = Keys(entry, report, where=f"{name}.")
        with report.entry(keys):
            if _kind(entry) != ("examples" if kind == "texts" else kind):
                stage = next(stage for stage, its in _STAGES.items() if its == _kind(entry))
                key = "ranking" if _kind(entry) == "preference" or kind == "preference" else "columns"
                raise EntryLeftOutError(key, f"of stage {stage}: a cache has one kind of rows")
            rows = _rows(keys, kind=kind)
            path = _entry_path(keys, paths)
            keys.apply(_RULES["entry"])
            sources.append({"path": path, **rows, **shared, **_limit(keys, shared)})
    return sources


def names_of(texts: Iterable[str] | None) -> list[str]:
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
    named = {key: value for key in _PLACES if (value := keys.take(key, "text")) is not None}
    if "hf_hub_url" in named:
        subset, folder = keys.take("subset", "text"), keys.take("folder", "text")
        if subset is not None:
            keys.report(
                "subset", "packer takes files, not configurations of a data set: name those of this one in path"
            )
        if folder is None:
            keys.report("hf_hub_url", NAME_FILES)
        return hub_path(named["hf_hub_url"], path=f"{folder}/*" if folder else "")
    keys.apply(_RULES["entry of no data set of the Hub"])
    name = named.get("file_name")
    if name is None:
        raise EntryLeftOutError(next(iter(named), "file_name"), _ELSEWHERE)
    found = paths.find(name)
    if found is None:
        raise EntryLeftOutError("file_name", "no such file in the folder of the data")
    return paths.in_recipe(files_pattern(found, "file_name") if found.is_dir() else found, like=name)


def _kind(entry: Mapping[str, Any]) -> str:
    """Return the kind of an entry's rows; plain texts are reported as examples, as only a stage distinguishes them."""
    if entry.get("ranking"):
        return "preference"
    columns = entry.get("columns")
    return "rated" if isinstance(columns, Mapping) and columns.get("kto_tag") else "examples"


def _rows(keys: Keys, *, kind: str) -> dict[str, Any]:
    """Return schema and columns of an entry."""
    keys.take("ranking")
    columns, tags = keys.inner("columns"), keys.inner("tags")
    for key in _MEDIA_COLUMNS:
        if columns.take(key) is not None:
            raise EntryLeftOutError("columns", f"{key}: {_MEDIA}")
    answers = {key: columns.take(key, "text") for key in _ANSWERS.get(kind, ())}
    rows = _prompts(keys, columns, tags, is_texts=kind == "texts")
    columns.report_rest()
    tags.report_rest()
    if kind not in _ANSWERS:
        return rows
    if missing := [key for key, column in answers.items() if column is None]:
        raise EntryLeftOutError("columns", f"no column is named for {' and '.join(missing)}")
    read = {name: column for name, column in rows.get("columns", {}).items() if kind == "rated" or name != "output"}
    read |= {"label" if key == "kto_tag" else key: column for key, column in answers.items()}
    return rows_of(kind, read) | {key: rows[key] for key in ("roles",) if key in rows}


def _prompts(keys: Keys, columns: Keys, tags: Keys, *, is_texts: bool) -> dict[str, Any]:
    """Return schema and columns of examples, or of the parts of preference data other than the answers."""
    kind = keys.take("formatting", "text") or "alpaca"
    if kind == "alpaca":
        tags.apply(_RULES["tags of no chats"])
        if is_texts:
            if "columns" not in keys:
                keys.report(
                    "columns", "LLaMA-Factory joins `input` below `instruction`; packer takes only that", default={}
                )
            rows = rows_of("text", {"text": "instruction"} | columns.apply(_RULES["columns of texts"]))
        else:
            # LLaMA-Factory reads only the named columns; if none are named, it uses Alpaca's column names.
            table = _RULES["columns of instructions"]
            unnamed = dict.fromkeys([str(rule.to) for rule in table.values()] if "columns" in keys else ())
            rows = alpaca_rows(unnamed | columns.apply(table))
        return rows
    if kind in ("sharegpt", "openai"):
        if is_texts:
            raise EntryLeftOutError(
                "formatting", "in pre-training, LLaMA-Factory trains the first message as a text: make it a column"
            )
        if kind == "openai":
            keys.report(
                "formatting",
                "LLaMA-Factory adds 'detailed thinking off' to system messages in this format; packer adds nothing",
            )
        return _chat(columns, tags)
    raise EntryLeftOutError("formatting", "not known here")


def _chat(columns: Keys, tags: Keys) -> dict[str, Any]:
    senders = {sender: role for tag, role in _TAG_ROLES.items() if (sender := tags.take(tag, "text")) is not None}
    caller = tags.take("function_tag", "text")
    if caller not in (None, *CALL_ROLES):
        tags.report("function_tag", "packer reads calls from function_call and tool_call: rename it in the rows")
    read = {"messages": "conversations", "system": None, "tools": None} | columns.apply(_RULES["columns of chats"])
    rows = chat_rows(
        "tags",
        role=tags.take("role_tag", "text") or "from",
        content=tags.take("content_tag", "text") or "value",
        messages=read.pop("messages"),
        columns=read,
    )
    return rows | renamed_roles(senders)


def _limit(keys: Keys, shared: Mapping[str, Any]) -> dict[str, Any]:
    drawn = keys.take("num_samples", "number")
    if drawn is None:
        return {}
    keys.report(
        "num_samples",
        "LLaMA-Factory draws them at random, some twice if there are fewer; limit takes the first rows of each file",
    )
    return {"limit": min(drawn, shared.get("limit", drawn))}


def _pack(keys: Keys, *, kind: str) -> dict[str, Any]:
    length, packing, neat = keys.take("cutoff_len"), keys.take("packing"), keys.take("neat_packing")
    pack: dict[str, Any] = {"pack.block_len": length or _CUTOFF_LEN}
    if length is None:
        keys.report("cutoff_len", "LLaMA-Factory's default", default=_CUTOFF_LEN)
    if kind == "texts":
        keys.report("stage", _TEXTS, default="pt")
    if kind == "texts" and (neat or packing is not False):
        return {**pack, "pack.mode": "stream"}  # concatenated and cut, as in LLaMA-Factory's pre-training
    if not packing and not neat:
        keys.report(
            "packing", "documents without blocks, which a loader pads; to pack: --set pack.mode=isolated", default=False
        )
        keys.report("cutoff_len", "without packing documents keep their length; LLaMA-Factory cuts longer ones")
        return {**pack, "pack.mode": "none"}
    if kind in _ANSWERS:
        keys.report("cutoff_len", "LLaMA-Factory cuts long prompts and answers; packer leaves the row out")
        return {**pack, "pack.mode": "isolated"}
    keys.report(
        "cutoff_len",
        "LLaMA-Factory cuts long prompts and answers, each by its share; packer cuts the document's end",
    )
    if not neat:
        keys.report(
            "packing", "documents of a block see each other, as there; positions run on; neat_packing: isolated"
        )
    return {**pack, "pack.mode": "isolated" if neat else "eos", "pack.overlong": "truncate_right"}
