"""Entries of LLaMA-Factory's `dataset_info.json` as sources of a recipe. Read from LLaMA-Factory 0.9.5."""

import difflib
from collections.abc import Mapping
from typing import Any

from packer.errors import RecipeError
from packer.recipe_from.forms import Form, alpaca_form, chat_form, is_read_as
from packer.recipe_from.places import NAME_FILES, Places, files_pattern, hub_path
from packer.recipe_from.source_files import SourceFiles
from packer.recipe_from.told import Keys, Ledger, shown

PLACES = ("file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
"""Keys of which an entry has one."""

_MEDIA = ("images", "videos", "audios")
_PREFERENCES = ("chosen", "rejected", "kto_tag")
_MOST_LISTED = 12
_LEFT_OUT = "; the entry is left out"


def is_dataset_info(values: Mapping[str, Any]) -> bool:
    return bool(values) and all(
        isinstance(entry, Mapping) and not entry.keys().isdisjoint(PLACES) for entry in values.values()
    )


def read_entries(
    info: Mapping[str, Any],
    names: list[str],
    places: Places,
    ledger: Ledger,
    files: SourceFiles,
    *,
    shared: Mapping[str, Any],
    texts: bool = False,
) -> list[dict[str, Any]]:
    """Sources of the entries of some names.

    Args:
        info: The whole file.
        names: Which of its entries, in the order of their sources.
        places: `bases` has the folder of the data.
        ledger: Told what is not carried over.
        files: Those that other sources have.
        shared: Keys that each source gets.
        texts: Whether it is pre-training, which learns the whole of the prompt's column.

    Raises:
        RecipeError: there is no entry of that name.

    """
    sources = []
    for name in names:
        keys = Keys(_entry(info, name), ledger, where=f"{name}.")
        source = _source(keys, places, texts=texts)
        own = {**shared, **_limit(keys, shared)}
        if source is not None:
            key = "hf_hub_url" if "hf_hub_url" in keys else "file_name"
            paths = files.take([source["path"]], shared.get("split"), keys, key, places)
            sources += [{**source, "path": path, **own} for path in paths]
        keys.tell_rest()
    return sources


def _entry(info: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if name not in info:
        close = difflib.get_close_matches(name, [str(entry) for entry in info], 1)
        hint = f"did you mean '{close[0]}'?" if close else f"it has {_listed([str(entry) for entry in info])}"
        raise RecipeError(f"dataset '{name}': not in dataset_info.json", hint=hint)
    entry = info[name]
    if not isinstance(entry, Mapping):
        raise RecipeError(
            f"dataset '{name}': expected a mapping in dataset_info.json, found {shown(entry)}",
            hint=f"an entry has one of {', '.join(PLACES)}",
        )
    return entry


def _listed(names: list[str]) -> str:
    more = ", …" if names[_MOST_LISTED:] else ""
    return ", ".join(names[:_MOST_LISTED]) + more or "none"


def _source(keys: Keys, places: Places, *, texts: bool) -> dict[str, Any] | None:
    path = _path(keys, places)
    columns = keys.inner("columns")
    form = _form(keys, columns, texts=texts)
    columns.tell_rest()
    keys.expect("split", ("train",), "packer takes the files that are named, not a split of them")
    return None if form is None or path is None else {"path": path, **form.as_source()}


def _path(keys: Keys, places: Places) -> str | None:
    named = {key: value for key in PLACES if (value := keys.text(key)) is not None}
    subset, folder = keys.text("subset"), keys.text("folder")
    keys.tell_each(
        {"ms_hub_url": "packer reads files of this machine and of the Hugging Face Hub", "om_hub_url": "as ms_hub_url"}
    )
    repository = named.get("hf_hub_url")
    if repository is not None:
        if subset is not None:
            keys.tell("subset", "packer takes files, not configurations of a data set: name those of this one in path")
        if folder is None:
            keys.tell("hf_hub_url", NAME_FILES)
        return hub_path(repository, path=f"{folder}/*" if folder else "")
    keys.tell_each(dict.fromkeys(("subset", "folder"), "of a data set of the Hub; this is none"))
    name = named.get("file_name")
    if name is None:
        for key in named:
            keys.tell(key, f"packer reads files of this machine and of the Hugging Face Hub{_LEFT_OUT}")
        return None
    found = places.find(name)
    if found is None:
        keys.tell("file_name", f"no such file in the folder of the data{_LEFT_OUT}")
        return None
    whole = files_pattern(found) if found.is_dir() else found
    if whole is None:
        keys.tell("file_name", f"a folder with no data files, or with files of several kinds{_LEFT_OUT}")
        return None
    return places.written(whole, like=name)


def _form(keys: Keys, columns: Keys, *, texts: bool) -> Form | None:
    refused = _unfit(keys, columns)
    kind = keys.text("formatting") or "alpaca"
    if kind not in ("sharegpt", "openai"):
        tags = keys.inner("tags")
        tags.tell_each(dict.fromkeys((*_TAGS, "role_tag", "content_tag"), "of formatting sharegpt"))
        tags.tell_rest()
    if kind == "alpaca":
        form: Form | None = _texts(columns) if texts else _alpaca(columns, keys)
    elif kind in ("sharegpt", "openai"):
        form = _chat(keys, columns, kind)
    else:
        keys.tell("formatting", f"not known here{_LEFT_OUT}")
        return None
    return None if refused else form


def _unfit(keys: Keys, columns: Keys) -> bool:
    """Whether rows are preferences or have media, which packer does not read."""
    ranked = keys.expect("ranking", (False,), f"packer reads no preferences{_LEFT_OUT}")
    preferences = [columns.expect(key, (), f"packer reads no preferences{_LEFT_OUT}") for key in _PREFERENCES]
    media = [columns.expect(key, (), f"packer reads no pictures, films or sound{_LEFT_OUT}") for key in _MEDIA]
    return bool(ranked) or any(preferences) or any(media)


def _texts(columns: Keys) -> Form:
    for key in ("query", "response", "history", "system", "tools"):
        columns.expect(key, (), "pre-training learns the column of the prompt alone")
    return Form(schema="text", columns={"text": columns.text("prompt") or "instruction"})


def _alpaca(columns: Keys, keys: Keys) -> Form:
    """Columns that are not named are not read, but where none is: then LLaMA-Factory takes Alpaca's own."""
    fields = {
        "instruction": "prompt",
        "input": "query",
        "output": "response",
        "history": "history",
        "system": "system",
        "tools": "tools",
    }
    named = {ours: columns.text(theirs) for ours, theirs in fields.items()}
    if "columns" not in keys:
        return alpaca_form({})
    return alpaca_form(named)


_TAGS = {
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
    "observation_tag": "tool",
    "function_tag": "function_call",
}


def _chat(keys: Keys, columns: Keys, kind: str) -> Form | None:
    tags = keys.inner("tags")
    for tag, role in _TAGS.items():
        sender = tags.text(tag)
        if sender is not None and not is_read_as(sender, role):
            tags.tell(tag, f"packer does not read {sender} as {role}: rename it in the rows")
    role, content = tags.text("role_tag") or "from", tags.text("content_tag") or "value"
    tags.tell_rest()
    if kind == "openai":
        keys.tell(
            "formatting",
            "LLaMA-Factory adds 'detailed thinking off' to system messages in this format; packer adds nothing",
        )
    for key in ("prompt", "query", "response", "history"):
        columns.expect(key, (), "of formatting alpaca")
    read: dict[str, str | None] = {"system": columns.text("system"), "tools": columns.text("tools")}
    form = chat_form(messages=columns.text("messages") or "conversations", role=role, content=content, columns=read)
    if form is None:
        keys.tell("tags", f"packer reads who speaks in role or from, and what is said in content or value{_LEFT_OUT}")
    return form


def _limit(keys: Keys, shared: Mapping[str, Any]) -> dict[str, Any]:
    drawn = keys.number("num_samples")
    if drawn is None:
        return {}
    keys.tell(
        "num_samples",
        "LLaMA-Factory draws them by chance, some twice if there are fewer; limit takes the first rows of each file",
    )
    return {"limit": min(drawn, shared.get("limit", drawn))}
