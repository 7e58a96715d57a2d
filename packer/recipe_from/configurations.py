"""The keys of a configuration of axolotl 0.19 or LLaMA-Factory 0.9.5, each carried over to a recipe or listed."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from packer.errors import RecipeError, did_you_mean, near
from packer.host.regular_file import path_within
from packer.names import SCHEME, may_be_repository
from packer.source.files import is_data_set, matches
from packer.source.roles import ROLES

_MOST_SHOWN = 60

_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a text", lambda value: isinstance(value, str)),
    "texts": ("a list of texts", lambda value: all(isinstance(each, str) for each in _listed(value))),
    "mapping": ("a mapping", lambda value: isinstance(value, Mapping)),
}
"""Type of a value → its name in messages, and its check."""


class EntryLeftOutError(Exception):
    """An entry whose rows packer cannot read, and why."""


@dataclass(slots=True, kw_only=True)
class Report:
    """Which keys were carried over; filled while a configuration is read."""

    carried: dict[str, None] = field(default_factory=dict)
    left: dict[str, Any] = field(default_factory=dict)
    """Keys that are not carried over, with their values."""

    left_out: dict[str, str] = field(default_factory=dict)
    """Entries whose rows packer cannot read, and why."""

    @contextmanager
    def entry(self, name: str, values: Mapping[str, Any]) -> "Iterator[Keys]":
        """Report on an entry of a list while the body reads its keys; of one that is left out, only the reason."""
        own = Report()
        try:
            yield Keys(values, own, where=f"{name}.")
        except EntryLeftOutError as error:
            self.left_out[name] = str(error)
        else:
            self.carried |= own.carried
            self.left |= own.left


class Keys:
    """The keys of one mapping of a configuration. What is not taken is not carried over."""

    def __init__(self, values: Mapping[str, Any], report: Report, *, where: str = "") -> None:
        self._values = {str(key): value for key, value in values.items()}
        self._report, self._where = report, where
        report.left |= {where + key: value for key, value in self._values.items()}

    def take(self, key: str, kind: str | None = None) -> Any:
        """Return a key's value; None if it is absent or empty. The key counts as carried over.

        `kind` is the required type. A single text is accepted as a list of texts.
        """
        name, value = self._where + key, self._values.get(key)
        if key in self._values:
            self._report.left.pop(name, None)
            self._report.carried[name] = None
        if value in (None, ""):
            return None
        if kind is not None and not _TYPES[kind][1](value):
            raise RecipeError(f"{name}: expected {_TYPES[kind][0]}, found {shown(value)}")
        return _listed(value) if kind == "texts" else value

    def leave(self, key: str) -> None:
        """Count a key that was taken as not carried over after all."""
        if key in self._values:
            self._report.carried.pop(self._where + key, None)
            self._report.left[self._where + key] = self._values[key]

    def inner(self, key: str) -> "Keys":
        """Return the keys of a nested mapping; empty if it is absent."""
        return Keys(self.take(key, "mapping") or {}, self._report, where=f"{self._where}{key}.")

    def columns(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return packer's name of each field that a key names → the field; `names` has key → packer's name."""
        return {new: column for key, new in names.items() if (column := self.take(key, "text")) is not None}


def refuse_training(key: str, *, is_text: bool) -> NoReturn:
    """Refuse a configuration that trains on plain texts, or else on preference data."""
    hint = "packer build FILE recognizes pairs and rated answers; sources.columns has other names"
    if is_text:
        hint = "packer build FILE --schema text --set pack.mode=stream packs texts as one stream"
    raise RecipeError(f"{key}: this configuration does not train on chats", hint=hint)


def shown(value: Any) -> str:
    """Format a value on one line, truncated."""
    text = json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPaths:
    """Finds the files that a configuration names."""

    bases: tuple[Path, ...]
    """Folders that relative paths may refer to: the trainer's working directory, and the configuration's folder."""

    target: Path
    """The folder of the recipe."""

    def find(self, text: str) -> Path | None:
        """Return the file or folder that a path names, or the pattern if it matches files; None if there is none."""
        places = [base / text for base in self.bases]
        return next((place for place in places if os.path.lexists(place) or matches(str(place))), None)

    def in_recipe(self, path: Path, *, like: str) -> str:
        """Return a path for the recipe: absolute if `like` is, else relative to the recipe's folder."""
        if Path(like).is_absolute():
            return path.absolute().as_posix()
        # Resolve the target: if it is a symlink, `..` leads to the parent of the real folder.
        return Path(os.path.relpath(path.absolute(), self.target.resolve())).as_posix()

    def rows(self, name: str, *, like: str) -> str:
        """Return the path of a file of rows, of a pattern or of a saved dataset; a missing file keeps its place.

        Raises:
            EntryLeftOutError: an address, or a plain folder, of whose files packer guesses none.
        """
        if "://" in name:
            raise EntryLeftOutError("packer reads files of this machine and of the Hub")
        found = self.find(name) or self.bases[0] / name
        if found.is_dir() and not is_data_set(found):
            raise EntryLeftOutError(f"{name} is a folder: name its files in sources, as {name}/*.jsonl does")
        return self.in_recipe(found, like=like)

    def tokenizer(self, text: str | None, revision: str | None) -> dict[str, str]:
        """Return the key of a tokenizer, if one is named: a local folder, or a name on the Hub with its revision."""
        if text is None:
            return {}
        found = self.find(text)
        named = f"{text}@{revision}" if revision else text
        return {"tokenizer": named if found is None else self.in_recipe(found, like=text)}


def hub_path(repository: str, revision: str | None = None, path: str = "") -> str:
    """Return the name of a dataset on the Hub, or of a file of it, as a recipe writes it."""
    name = repository.removeprefix(SCHEME).removeprefix("datasets/")
    at = f"@{revision.replace('/', '%2F')}" if revision else ""
    return f"{SCHEME}datasets/{name}{at}" + f"/{path}" * bool(path)


def rows_of(columns: Mapping[str, str], roles: Mapping[str, str]) -> dict[str, Any]:
    """Return `columns` and `roles` of a source, without what packer reads so by itself; `roles` has sender → role."""
    renamed = {new: old for new, old in columns.items() if new != old}
    senders = {name: role for name, role in roles.items() if ROLES.get(name, ROLES.get(name.lower())) != role}
    return ({"columns": renamed} if renamed else {}) | ({"roles": senders} if senders else {})


def messages_column(names: tuple[str | None, str | None], column: str | None) -> dict[str, str]:
    """Return the column of messages, which packer calls by what its role and its content are called."""
    return {} if column is None else {"conversations" if {"from", "value"}.intersection(names) else "messages": column}


# axolotl


_SEQUENCE_LEN = 512
"""axolotl's default."""

_LOADERS = ("json", "csv", "parquet", "arrow")
"""Values that older configurations have as a path, beside `data_files`."""

_TEMPLATES = {"gemma": "gemma", "llama3": "llama-3", "chatml": "chatml"}
"""axolotl's name of a template → packer's name of it. `chatml` begins with the BOS here, if the tokenizer has one."""

_ROW_TYPES = ("chat_template", "sharegpt", "alpaca", "alpaca_chat", "alpaca_instruct", "input_output", "completion", "")
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
                rows = _axolotl_rows(own_keys)
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


def _axolotl_rows(keys: Keys) -> dict[str, Any]:
    """Return columns and roles of an entry."""
    kind = keys.take("type")
    own = keys.inner("type") if isinstance(kind, Mapping) else Keys({}, Report())
    if not isinstance(kind, Mapping) and str(kind or "").partition(":")[0].partition(".")[0] not in _ROW_TYPES:
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


# LLaMA-Factory


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
                rows = _llamafactory_rows(own)
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


def _llamafactory_rows(keys: Keys) -> dict[str, Any]:
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
