"""A training configuration of LLaMA-Factory, or its `dataset_info.json` alone, as a recipe.

Read from LLaMA-Factory 0.9.5.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer.errors import RecipeError
from packer.recipe_from.config_keys import EntryLeftOutError, Keys, Report, Rule, held_out, nested, noted, shown
from packer.recipe_from.config_sources import (
    NAME_FILES,
    ConfigPaths,
    alpaca_rows,
    are_several,
    chat_rows,
    files_pattern,
    hub_path,
    is_read_as,
    rows_of,
)

INFO_FILE = "dataset_info.json"

_CUTOFF_LEN = 2048
"""The default of LLaMA-Factory."""

_MOST_LISTED = 12

_PLACES = ("file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
"""Keys of which an entry has one."""

_SAVED = "packer takes the tokenizer as it is saved: save it with these tokens, and name that folder"
_MEDIA = "packer reads no pictures, films or sound"
_PREFERENCES = "packer reads no preferences"
_PROPORTIONS = "proportions are a matter of reading: Mixture of several caches"
_ELSEWHERE = "packer reads files of this machine and of the Hugging Face Hub"

_CONFIG: Mapping[str, Rule] = {
    "add_special_tokens": noted(_SAVED),
    "add_tokens": noted(_SAVED),
    "default_system": noted("packer adds no message: it stands in the rows or in the template"),
    "enable_thinking": noted("each answer is learned under the prompt it continues; template.kwargs fixes one for all"),
    "interleave_probs": noted(_PROPORTIONS),
    "mask_history": Rule(to="supervision.turns", values={True: "last"}, same=(False,)),
    "mix_strategy": noted(f"packer takes every row once; {_PROPORTIONS}", "concat"),
    "new_special_tokens": noted(_SAVED),
    "streaming": noted("packer prepares all rows before training", False),
    "template": noted("LLaMA-Factory's own; packer takes the tokenizer's chat template, or template.file"),
    "tool_format": noted("tools and calls are rendered by the chat template"),
    "train_on_prompt": noted("packer trains answers alone; a text that is trained throughout is schema text", False),
    "trust_remote_code": noted("packer runs no code of a model", False, True),
}

_ENTRY: Mapping[str, Rule] = {
    "ms_hub_url": noted(_ELSEWHERE),
    "om_hub_url": noted(_ELSEWHERE),
    "split": noted("packer takes the files that are named, not a split of them", "train"),
}

_LEFT_OUT_COLUMNS = {
    **dict.fromkeys(("chosen", "rejected", "kto_tag"), _PREFERENCES),
    **dict.fromkeys(("images", "videos", "audios"), _MEDIA),
}
"""Columns whose rows packer does not read."""

_ALPACA_COLUMNS: Mapping[str, Rule] = {
    "prompt": Rule(to="instruction", kind="text"),
    "query": Rule(to="input", kind="text"),
    "response": Rule(to="output", kind="text"),
    **{name: Rule(to=name, kind="text") for name in ("history", "system", "tools")},
}

_TEXT_COLUMNS: Mapping[str, Rule] = {
    "prompt": Rule(to="text", kind="text"),
    **dict.fromkeys(
        ("query", "response", "history", "system", "tools"),
        noted("pre-training learns the column of the prompt alone"),
    ),
}

_CHAT_COLUMNS: Mapping[str, Rule] = {
    **{name: Rule(to=name, kind="text") for name in ("messages", "system", "tools")},
    **dict.fromkeys(("prompt", "query", "response", "history"), noted("of formatting alpaca")),
}

_TAG_ROLES = {
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
    "observation_tag": "tool",
    "function_tag": "function_call",
}


def is_dataset_info(values: Mapping[str, Any]) -> bool:
    return bool(values) and all(
        isinstance(entry, Mapping) and not entry.keys().isdisjoint(_PLACES) for entry in values.values()
    )


def read_llamafactory(
    config: Mapping[str, Any], paths: ConfigPaths, report: Report, *, load: Callable[[Path], Mapping[str, Any]]
) -> dict[str, Any]:
    """Values of a recipe.

    Args:
        config: Of a training.
        paths: `bases` are where LLaMA-Factory is started, and the folder of the configuration.
        report: Filled with what is not carried over.
        load: Reads a file as a mapping.

    Raises:
        RecipeError: it is no supervised training, or its data sets are not to be found.

    """
    keys = Keys(config, report)
    stage = keys.text("stage") or "sft"
    if stage not in ("sft", "pt"):
        raise RecipeError(
            f"stage: {stage}: packer prepares supervised training and pre-training, not preferences or rewards",
            hint="its sources are rows with answers to be learned: stage sft or pt",
        )
    sources = _sources(keys, paths, report, load=load, texts=stage == "pt")
    recipe = keys.apply(_CONFIG) | held_out(keys, "val_size") | _pack(keys, texts=stage == "pt")
    model, revision = keys.text("model_name_or_path"), keys.text("model_revision")
    if model is not None:
        recipe["tokenizer"] = paths.tokenizer(model, None if revision == "main" else revision)
    keys.report_rest(is_training=True)
    return {"sources": sources, **nested(recipe)}


def _sources(
    keys: Keys, paths: ConfigPaths, report: Report, *, load: Callable[[Path], Mapping[str, Any]], texts: bool
) -> list[dict[str, Any]]:
    name = keys.text("dataset_dir") or "data"
    folder = paths.find(name)
    if folder is None or not (folder / INFO_FILE).is_file():
        raise RecipeError(
            f"dataset_dir: {name}: no {INFO_FILE} there; looked from {' and '.join(map(str, paths.bases))}",
            hint="run this where LLaMA-Factory is started, or give the file itself: --from …/dataset_info.json",
        )
    info = load(folder / INFO_FILE)
    inner = replace(paths, bases=(folder,), absolute=Path(name).is_absolute())  # its files lie beside it
    most = keys.number("max_samples")
    limit = {} if most is None else {"limit": most}
    sources = []
    for key, shared in (("dataset", limit), ("eval_dataset", {"split": "validation", **limit})):
        names = names_of(keys.texts(key))
        if len({*names}) < len(names):
            keys.report(key, "a name stands there twice: packer takes no file twice for a split")
        sources += read_entries(info, names, inner, report, shared=shared, texts=texts)
    if any(are_several([source["path"]]) for source in sources):
        keys.report("max_samples", "of each entry there; packer's limit counts for each file of one")
    return sources


def read_entries(
    info: Mapping[str, Any],
    names: Iterable[str],
    paths: ConfigPaths,
    report: Report,
    *,
    shared: Mapping[str, Any],
    texts: bool = False,
) -> list[dict[str, Any]]:
    """Sources of entries of a `dataset_info.json`.

    Args:
        info: The whole file.
        names: Which of its entries, in the order of their sources.
        paths: `bases` has the folder of the data.
        report: Filled with what is not carried over.
        shared: Keys that each source gets.
        texts: Whether it is pre-training, which learns the whole of the prompt's column.

    Raises:
        RecipeError: there is no entry of that name.

    """
    sources = []
    for name in dict.fromkeys(names):
        keys = Keys(_entry(info, name), report, where=f"{name}.")
        with report.entry(keys):
            rows = _rows(keys, texts=texts)
            path = _entry_path(keys, paths)
            keys.apply(_ENTRY)
            sources.append({"path": path, **rows, **shared, **_limit(keys, shared)})
    return sources


def names_of(texts: Iterable[str] | None) -> list[str]:
    """Names that are written with commas between them, or as a list."""
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
    named = {key: value for key in _PLACES if (value := keys.text(key)) is not None}
    if "hf_hub_url" in named:
        subset, folder = keys.text("subset"), keys.text("folder")
        if subset is not None:
            keys.report(
                "subset", "packer takes files, not configurations of a data set: name those of this one in path"
            )
        if folder is None:
            keys.report("hf_hub_url", NAME_FILES)
        return hub_path(named["hf_hub_url"], path=f"{folder}/*" if folder else "")
    keys.apply(dict.fromkeys(("subset", "folder"), noted("of a data set of the Hub; this is none")))
    name = named.get("file_name")
    if name is None:
        raise EntryLeftOutError(next(iter(named), "file_name"), _ELSEWHERE)
    found = paths.find(name)
    if found is None:
        raise EntryLeftOutError("file_name", "no such file in the folder of the data")
    return paths.in_recipe(files_pattern(found, "file_name") if found.is_dir() else found, like=name)


def _rows(keys: Keys, *, texts: bool) -> dict[str, Any]:
    """Schema and columns of an entry."""
    if keys.take("ranking"):
        raise EntryLeftOutError("ranking", _PREFERENCES)
    columns, tags = keys.inner("columns"), keys.inner("tags")
    for key, reason in _LEFT_OUT_COLUMNS.items():
        if columns.take(key) is not None:
            raise EntryLeftOutError("columns", f"{key}: {reason}")
    kind = keys.text("formatting") or "alpaca"
    if kind == "alpaca":
        tags.apply(dict.fromkeys((*_TAG_ROLES, "role_tag", "content_tag"), noted("of formatting sharegpt")))
        if texts:
            rows = rows_of("text", {"text": "instruction"} | columns.apply(_TEXT_COLUMNS))
        else:
            # Columns that are not named are not read, but where none is: then LLaMA-Factory takes Alpaca's own.
            unnamed = dict.fromkeys([str(rule.to) for rule in _ALPACA_COLUMNS.values()] if "columns" in keys else ())
            rows = alpaca_rows(unnamed | columns.apply(_ALPACA_COLUMNS))
    elif kind in ("sharegpt", "openai"):
        if kind == "openai":
            keys.report(
                "formatting",
                "LLaMA-Factory adds 'detailed thinking off' to system messages in this format; packer adds nothing",
            )
        rows = _chat(columns, tags)
    else:
        raise EntryLeftOutError("formatting", "not known here")
    columns.report_rest()
    tags.report_rest()
    return rows


def _chat(columns: Keys, tags: Keys) -> dict[str, Any]:
    for tag, role in _TAG_ROLES.items():
        sender = tags.text(tag)
        if sender is not None and not is_read_as(sender, role):
            tags.report(tag, f"packer does not read {sender} as {role}: rename it in the rows")
    read = {"messages": "conversations", "system": None, "tools": None} | columns.apply(_CHAT_COLUMNS)
    return chat_rows(
        "tags",
        role=tags.text("role_tag") or "from",
        content=tags.text("content_tag") or "value",
        messages=read.pop("messages"),
        columns=read,
    )


def _limit(keys: Keys, shared: Mapping[str, Any]) -> dict[str, Any]:
    drawn = keys.number("num_samples")
    if drawn is None:
        return {}
    keys.report(
        "num_samples",
        "LLaMA-Factory draws them by chance, some twice if there are fewer; limit takes the first rows of each file",
    )
    return {"limit": min(drawn, shared.get("limit", drawn))}


def _pack(keys: Keys, *, texts: bool) -> dict[str, Any]:
    length, packing, neat = keys.take("cutoff_len"), keys.take("packing"), keys.take("neat_packing")
    pack: dict[str, Any] = {"pack.block_len": length or _CUTOFF_LEN}
    if length is None:
        keys.report("cutoff_len", "what LLaMA-Factory takes where nothing is said", default=_CUTOFF_LEN)
    if texts and packing is not False:
        return {**pack, "pack.mode": "stream"}  # texts are joined and cut, as its pre-training does
    if not packing and not neat:
        keys.report(
            "packing", "documents without blocks, which a loader pads; to pack: --set pack.mode=isolated", default=False
        )
        keys.report("cutoff_len", "without packing documents keep their length; LLaMA-Factory cuts longer ones")
        return {**pack, "pack.mode": "none"}
    keys.report(
        "cutoff_len",
        "LLaMA-Factory cuts long prompts and answers, each by its share; packer cuts the document's end",
    )
    if not neat:
        keys.report(
            "packing", "documents of a block see each other, as there; positions run on; neat_packing: isolated"
        )
    return {**pack, "pack.mode": "isolated" if neat else "eos", "pack.overlong": "truncate_right"}
