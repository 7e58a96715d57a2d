"""Reads a configuration of axolotl 0.19 or LLaMA-Factory 0.9.5, and writes it as a recipe.

Sources with their columns, tokenizer, template, length and packing are carried over; every other key is listed.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

from packer.display import in_shell
from packer.errors import RecipeError, UsageError, did_you_mean, near
from packer.host.files import path_within
from packer.names import SCHEME, may_be_repository, refuse_address
from packer.recipe.recipe import make_recipe
from packer.recipe.strict_yaml import as_yaml, load_mapping
from packer.source.files import is_data_set, matches
from packer.source.roles import ROLES
from packer.store.folder import write_atomically

RECIPE_FILE = "recipe.yaml"

_EXPECTED = "a configuration of axolotl (datasets:) or of LLaMA-Factory (dataset:)"
_MOST_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A configuration as a recipe."""

    kind: Literal["axolotl", "llamafactory"]
    path: Path
    values: dict[str, Any]
    """Values of the recipe; other keys have packer's defaults."""

    carried: tuple[str, ...]
    """Keys that decided something of the recipe."""

    left: dict[str, str]
    """Keys that are not carried over, with their values, truncated."""

    left_out: dict[str, str]
    """Entries whose rows packer cannot read, and why."""


def read_config(path: Path, target: Path) -> Converted:
    """Read a configuration and convert it to a recipe.

    Args:
        path: YAML or JSON.
        target: The folder that the recipe will be in; its paths are relative to it.
    """
    values = _load(path)
    paths = _Paths(bases=tuple(dict.fromkeys((Path.cwd(), path.absolute().parent))), target=target)
    kind = _kind(values, path)
    keys = _Keys(values)
    found = (_axolotl if kind == "axolotl" else _llamafactory)(keys, paths)
    recipe = {key: value for key, value in found.items() if value not in ({}, [])}
    if "sources" not in recipe:
        first = "".join(f"; {entry}: {reason}" for entry, reason in list(keys.left_out.items())[:1])
        hint = "fix the rows or the entry, then run it again" if first else f"expected {_EXPECTED}"
        raise RecipeError(f"{path}: contains no rows that packer reads{first}", hint=hint)
    make_recipe(recipe, where=f"{path} as a recipe")
    carried, left = tuple(keys.carried), {key: _shown(value) for key, value in keys.left.items()}
    return Converted(kind=kind, path=path, values=recipe, carried=carried, left=left, left_out=keys.left_out)


def write_recipe(converted: Converted, folder: Path) -> Path:
    """Write `recipe.yaml` into a folder, which is created if necessary, and return its path.

    Comments above it say what it does not carry over. A name may contain anything, even bytes that are not text: what
    YAML and a terminal cannot print is escaped.
    """
    refuse_address(os.fspath(folder), place="file")
    path = folder / RECIPE_FILE
    if os.path.lexists(path):
        raise UsageError(f"{path}: already exists, and is not overwritten", hint="name another folder")
    head = [f"From {converted.path.name}; packer init --from wrote it."]
    head += [f"Left out: {entry}: {reason}" for entry, reason in converted.left_out.items()]
    head += ["Not carried over:"] * bool(converted.left)
    head += [f"  {key}: {value}" for key, value in converted.left.items()]
    lines = "\n".join(head).split("\n")
    printable = ("".join(each if each.isprintable() else ascii(each)[1:-1] for each in line) for line in lines)
    comments = "".join(f"# {line}".rstrip() + "\n" for line in printable)
    write_atomically(path, f"{comments}\n{as_yaml({'version': 1, **converted.values})}".encode())
    return path


def _load(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON mapping as plain values that can be written to a recipe and to a screen."""
    values = load_mapping(path, hint=f"FILE is {_EXPECTED}")
    try:
        json.dumps(values, ensure_ascii=False, default=str, skipkeys=True).encode()
    except UnicodeEncodeError as error:
        found = ascii(error.object[max(error.start - 40, 0) : error.start + 40])
        raise RecipeError(f"{path}: {found} is not UTF-8: it has half a surrogate") from None
    except (RecursionError, ValueError) as error:
        raise RecipeError(f"{path}: a value contains itself, is nested too deeply, or is too large: {error}") from None
    return values


def _kind(values: Mapping[str, Any], path: Path) -> Literal["axolotl", "llamafactory"]:
    if "sources" in values:
        raise RecipeError(f"{path}: is a recipe of packer already", hint=f"packer build -c {in_shell(path)} -o CACHE")
    if "datasets" in values or "pretraining_dataset" in values:
        return "axolotl"
    if "dataset" in values:
        return "llamafactory"
    found = ", ".join(map(str, list(values)[:8])) or "no keys"
    raise RecipeError(
        f"{path}: expected {_EXPECTED}; found {found}", hint="packer init DIR without --from writes a starter recipe"
    )


class _EntryLeftOutError(Exception):
    """An entry whose rows packer cannot read, and why."""


_TYPES = {"text": "a text", "texts": "a list of texts", "mapping": "a mapping"}
"""Types of values, and what messages call them."""


class _Keys:
    """The keys of one mapping of a configuration. What is not taken is not carried over."""

    def __init__(self, values: Mapping[str, Any], *, where: str = "", within: "_Keys | None" = None) -> None:
        self._values = {str(key): value for key, value in values.items()}
        self._where = where
        self.carried: dict[str, None] = {} if within is None else within.carried
        self.left: dict[str, Any] = {} if within is None else within.left
        self.left_out: dict[str, str] = {}
        self.left |= {where + key: value for key, value in self._values.items()}

    def take(self, key: str, kind: str | None = None) -> Any:
        """Return a key's value; None if it is absent or empty. The key counts as carried over.

        `kind` is the required type. A single text is accepted as a list of texts.
        """
        name, value = self._where + key, self._values.get(key)
        if key in self._values:
            self.left.pop(name, None)
            self.carried[name] = None
        if value in (None, ""):
            return None
        values = value if isinstance(value, list) and kind == "texts" else [value]
        if kind and not all(isinstance(each, Mapping if kind == "mapping" else str) for each in values):
            raise RecipeError(f"{name}: expected {_TYPES[kind]}, found {_shown(value)}")
        return values if kind == "texts" else value

    def leave(self, key: str) -> None:
        """Count a key that was taken as not carried over after all."""
        if key in self._values:
            self.carried.pop(self._where + key, None)
            self.left[self._where + key] = self._values[key]

    def inner(self, key: str) -> "_Keys":
        """Return the keys of a nested mapping; empty if it is absent."""
        return _Keys(self.take(key, "mapping") or {}, where=f"{self._where}{key}.", within=self)

    def columns(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return packer's name of each field that a key names → the field; `names` has key → packer's name."""
        return {new: column for key, new in names.items() if (column := self.take(key, "text")) is not None}

    def sources(
        self, name: str, values: Mapping[str, Any], read: Callable[["_Keys"], list[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """Return the sources that `read` makes of an entry of a list; of one that is left out, only the reason."""
        own = _Keys(values, where=f"{name}.")
        try:
            found = read(own)
        except _EntryLeftOutError as error:
            self.left_out[name] = str(error)
            return []
        self.carried |= own.carried
        self.left |= own.left
        return found


def _refuse_training(key: str, *, is_text: bool) -> NoReturn:
    """Refuse a configuration that trains on plain texts, or else on preference data."""
    preference = "packer build FILE recognizes pairs and rated answers; sources.columns has other names"
    hint = "packer build FILE --schema text --set pack.mode=stream packs texts as one stream" if is_text else preference
    raise RecipeError(f"{key}: this configuration does not train on chats", hint=hint)


def _shown(value: Any) -> str:
    """Format a value on one line, truncated."""
    text = json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paths:
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
        """Return the path of a file of rows, of a pattern or of a saved dataset; a missing file keeps its place."""
        if "://" in name:
            raise _EntryLeftOutError("packer reads files of this machine and of the Hub")
        found = self.find(name) or self.bases[0] / name
        if found.is_dir() and not is_data_set(found):
            raise _EntryLeftOutError(f"{name} is a folder: name its files in sources, as {name}/*.jsonl does")
        return self.in_recipe(found, like=like)

    def tokenizer(self, text: str | None, revision: str | None) -> dict[str, str]:
        """Return the key of a tokenizer, if one is named: a local folder, or a name on the Hub with its revision."""
        if text is None:
            return {}
        found = self.find(text)
        named = f"{text}@{revision}" if revision else text
        return {"tokenizer": named if found is None else self.in_recipe(found, like=text)}


def _hub_path(repository: str, revision: str | None = None, path: str = "") -> str:
    """Return the name of a dataset on the Hub, or of a file of it, as a recipe writes it."""
    name = repository.removeprefix(SCHEME).removeprefix("datasets/")
    at = f"@{revision.replace('/', '%2F')}" if revision else ""
    return f"{SCHEME}datasets/{name}{at}" + f"/{path}" * bool(path)


def _rows(
    messages: str | None, names: Iterable[str | None], columns: Mapping[str, str], roles: Mapping[str, str]
) -> dict[str, Any]:
    """Return `columns` and `roles` of a source, without what packer reads so by itself; `roles` has sender → role.

    The column of messages is called by what a message's role and its content, `names`, are called.
    """
    schema = "conversations" if {"from", "value"}.intersection(names) else "messages"
    renamed = {new: old for new, old in {schema: messages, **columns}.items() if old is not None and new != old}
    senders = {name: role for name, role in roles.items() if ROLES.get(name, ROLES.get(name.lower())) != role}
    return ({"columns": renamed} if renamed else {}) | ({"roles": senders} if senders else {})


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


def _axolotl(keys: _Keys, paths: _Paths) -> dict[str, Any]:
    """Return the values of a recipe."""
    for key in ("rl", "reward_model", "process_reward_model", "pretraining_dataset"):
        if keys.take(key):
            _refuse_training(key, is_text=key == "pretraining_dataset")
    sources: list[dict[str, Any]] = []
    for name, split in (("datasets", {}), ("test_datasets", {"split": "eval"})):
        entries = keys.take(name) or []
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise RecipeError(f"{name}: expected a list of mappings with a path each, as in axolotl's own examples")
        for i, entry in enumerate(entries):
            found = keys.sources(f"{name}[{i}]", entry, lambda own: _axolotl_sources(own, paths))
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


def _axolotl_sources(keys: _Keys, paths: _Paths) -> list[dict[str, Any]]:
    """Return the sources of an entry."""
    kind = keys.take("type")
    own = keys.inner("type") if isinstance(kind, Mapping) else _Keys({})
    if not isinstance(kind, Mapping) and str(kind or "").partition(":")[0].partition(".")[0] not in _ROW_TYPES:
        keys.leave("type")
    mapped, roles = keys.inner("message_property_mappings"), keys.inner("roles")
    names = [keys.take(f"message_field_{name}", "text") or mapped.take(name, "text") for name in ("role", "content")]
    messages = keys.take("field_messages", "text")
    columns = keys.columns({"field_tools": "tools", "field": "text"}) | own.columns(_INSTRUCTIONS)
    senders = {name: roles.take(name, "texts") or () for name in ("system", "user", "assistant", "tool")}
    rows = _rows(messages, names, columns, {sender: name for name, given in senders.items() for sender in given})
    path, named = keys.take("path", "text"), keys.take("data_files", "texts") or []
    if path is None:
        raise _EntryLeftOutError("it has no path")
    if keys.take("split", "text") != "train":
        keys.leave("split")
    if paths.find(path) is None and (path.startswith(SCHEME) or may_be_repository(path)):
        revision = keys.take("revision", "text")
        return [{"path": _hub_path(path, revision, file), **rows} for file in named or [""]]
    places = named if named and path in _LOADERS else [path]
    return [{"path": paths.rows(place, like=place), **rows} for place in places]


def _template(keys: _Keys, paths: _Paths) -> dict[str, Any]:
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

_COLUMNS = {"prompt": "instruction", "query": "input", "response": "output"}
_COLUMNS |= {name: name for name in ("history", "system", "tools")}
_TAG_ROLES = {"user_tag": "user", "assistant_tag": "assistant", "system_tag": "system", "observation_tag": "tool"}


def _llamafactory(keys: _Keys, paths: _Paths) -> dict[str, Any]:
    """Return the values of a recipe."""
    stage = keys.take("stage", "text") or "sft"
    if stage != "sft":
        _refuse_training("stage", is_text=stage == "pt")
    name = keys.take("dataset_dir", "text") or "data"
    folder = paths.find(name)
    if folder is None or not (folder / INFO_FILE).is_file():
        raise RecipeError(
            f"dataset_dir: {name}: no {INFO_FILE} there; searched from {' and '.join(map(str, paths.bases))}",
            hint="run this where LLaMA-Factory is started; of data sets on the Hub, write a recipe that names the "
            "files: hf://datasets/ORG/NAME/FILE",
        )
    info, beside = _load(path_within(folder, INFO_FILE)), replace(paths, bases=(folder,))
    sources: list[dict[str, Any]] = []
    for key, split in (("dataset", {}), ("eval_dataset", {"split": "validation"})):
        for entry in filter(None, map(str.strip, ",".join(keys.take(key, "texts") or ()).split(","))):
            found = keys.sources(entry, _entry(info, entry), lambda own: [_llamafactory_source(own, beside, name)])
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
    found = f"expected a mapping in {INFO_FILE}, found {_shown(entry)}" if name in info else f"not in {INFO_FILE}"
    hint = did_you_mean(near(name, [str(each) for each in info if each != name]), f"it has {listed or 'none'}")
    raise RecipeError(f"dataset '{name}': {found}", hint=hint)


def _llamafactory_source(keys: _Keys, paths: _Paths, folder: str) -> dict[str, Any]:
    """Return the source of an entry."""
    columns, tags = keys.inner("columns"), keys.inner("tags")
    if keys.take("ranking") or columns.take("kto_tag"):
        raise _EntryLeftOutError("preference data: a cache has one kind of rows")
    if any(columns.take(name) is not None for name in ("images", "videos", "audios")):
        raise _EntryLeftOutError("packer reads texts alone")
    kind = keys.take("formatting", "text") or "alpaca"
    if kind not in ("alpaca", "sharegpt", "openai"):
        raise _EntryLeftOutError(f"formatting: {kind} is not known here")
    names = tags.take("role_tag", "text") or "from", tags.take("content_tag", "text") or "value"
    senders = {sender: role for tag, role in _TAG_ROLES.items() if (sender := tags.take(tag, "text")) is not None}
    rows = _rows(columns.take("messages", "text"), names, columns.columns(_COLUMNS), senders)
    if (repository := keys.take("hf_hub_url", "text")) is not None:
        inside = keys.take("folder", "text")
        return {"path": _hub_path(repository, path=f"{inside}/*" if inside else ""), **rows}
    if (name := keys.take("file_name", "text")) is None:
        raise _EntryLeftOutError("packer reads files of this machine and of the Hugging Face Hub")
    return {"path": paths.rows(name, like=str(Path(folder, name))), **rows}
