"""Entries of axolotl's `datasets` and `test_datasets` as sources of a recipe. Read from axolotl 0.19."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer.recipe_from.forms import MESSAGE_FIELDS, Form, alpaca_form, chat_form, is_read_as
from packer.recipe_from.places import NAME_FILES, Places, data_set_folder, files_pattern, hub_path, is_on_hub
from packer.recipe_from.source_files import SourceFiles
from packer.recipe_from.told import Keys

_FIRST_ROWS = re.compile(r"(?P<split>\w+)\[:(?P<rows>[1-9]\d{0,17})\]")

_OWN_PROMPT = "axolotl writes a prompt of its own around each row; packer gives the chat template a user message"
_ALPACA: dict[str, dict[str, str | None]] = {
    "alpaca": {},
    "alpaca_chat": {},
    "alpaca_chat.load_qa": {"instruction": "question", "output": "answer", "input": None},
    "alpaca_chat.load_camel_ai": {"instruction": "message_1", "output": "message_2", "input": None},
    "alpaca_instruct": {},
    "alpaca_w_system": {"system": "system"},
    "alpaca_w_system.load_open_orca": {"instruction": "question", "output": "response", "system": "system_prompt"},
    "alpaca_w_system.load_open_orca_chatml": {
        "instruction": "question",
        "output": "response",
        "system": "system_prompt",
    },
    "gpteacher": {"output": "response"},
}
"""Types whose rows packer reads as alpaca: its name of a field → theirs."""

_NO_WORD = {
    "conversation": "an older name of a chat template: see chat_template",
    "dataset_processes": "-j of packer build",
    "field_human": "of an older type; rename the fields with columns",
    "field_model": "of an older type; rename the fields with columns",
    "input_format": "packer has no such formats; bring the rows into one of its schemas",
    "input_transform": "packer changes no rows; do it before",
    "logprobs_field": "packer carries no teacher's probabilities",
    "message_field_training_detail": "a message is trained whole or not at all: `weight` or `train` on it",
    "name": "packer takes files, not a data set's configurations: name its files in path",
    "preprocess_shards": "packer always works piece by piece",
    "shards": "packer has no part of a source drawn by chance: all rows are taken; limit takes the first ones",
    "shards_idx": "see shards",
    "skip": "packer skips no rows",
    "temperature": "packer carries no teacher's probabilities",
}


def read_dataset(keys: Keys, places: Places, files: SourceFiles, *, split: str | None) -> list[dict[str, Any]]:
    """Sources of one entry; none where its rows cannot be had, which is told."""
    form = _form(keys)
    keys.tell_each(_NO_WORD)
    keys.expect("trust_remote_code", (False,), "packer runs no code of a data set")
    limit = _split(keys)
    paths = _paths(keys, places, split=split)
    if form is None:
        return []
    paths = files.take(paths, split, keys, "data_files" if keys.take("data_files") else "path", places)
    if limit and files.are_several(paths):
        keys.tell("split", "of all files together there; packer's limit counts for each file, and here are several")
    shared: dict[str, Any] = {**({"split": split} if split else {}), **_format(keys), **form.as_source(), **limit}
    return [{"path": path, **shared} for path in paths]


def _split(keys: Keys) -> dict[str, Any]:
    split = keys.text("split")
    rows = _FIRST_ROWS.fullmatch(split or "")
    if rows is not None and rows["split"] == "train":
        return {"limit": int(rows["rows"])}
    if split is not None and "[" in split:
        keys.tell("split", "packer takes whole files, or with limit the first rows of each: all rows are taken")
    return {}


def _format(keys: Keys) -> dict[str, Any]:
    kind = keys.text("ds_type")
    if kind in ("csv", "parquet", "arrow"):
        return {"format": kind}
    if kind not in (None, "json"):
        keys.tell("ds_type", "no format of packer's; what a file holds is seen by its bytes")
    return {}


def _paths(keys: Keys, places: Places, *, split: str | None) -> list[str]:
    """What the sources of an entry are called; none where there is nothing that packer reads, which is told."""
    path, named, revision = keys.text("path"), keys.texts("data_files") or [], keys.text("revision")
    if path is None:
        keys.tell("path", "no path; the entry is left out", default="")
        return []
    found = places.find(path)
    asked = (keys.text("split") or ("test" if split else "train")).partition("[")[0]
    if found is None and is_on_hub(path):
        if not named:
            keys.tell("path", NAME_FILES)
        elif asked != "train":
            keys.tell("split", "packer takes the files that are named, not a split of them")
        return [hub_path(path, revision, file) for file in named or [""]]
    keys.expect("revision", (), "of a name on the Hub; this is none")
    if named and (found.is_dir() if found else path in _LOADERS):
        inside = places if found is None else replace(places, bases=(found, *places.bases))
        return [places.written(place, like=name) if (place := inside.find_files(name)) else name for name in named]
    if found is None:
        left_out = "; the entry is left out" if "://" in path else ""
        keys.tell("path", f"not found from here; packer reads files of this machine and of the Hub{left_out}")
        return [] if left_out else [path]
    whole = found if found.is_file() else _folder(keys, found, asked)
    return [] if whole is None else [places.written(whole, like=path)]


_LOADERS = ("json", "csv", "parquet", "arrow")
"""Names that older configurations have for a path, beside `data_files`."""


def _folder(keys: Keys, folder: Path, split: str) -> Path | None:
    """The data set that a folder is, or a pattern for its files."""
    whole = data_set_folder(folder, split)
    if whole is not None:
        return whole
    pattern = files_pattern(folder)
    if pattern is None:
        keys.tell("path", "a folder with no data files, or with files of several kinds: name those meant; left out")
    else:
        keys.tell("path", "axolotl tells splits by the names of files; packer takes all that fit the pattern")
    return pattern


def _form(keys: Keys) -> Form | None:
    if isinstance(keys.take("type"), Mapping):
        _chat_keys_elsewhere(keys, "")
        return _own_form(keys)
    kind = keys.text("type") or ""
    _chat_keys_elsewhere(keys, kind)
    name, _, style = kind.partition(":")
    if not name:
        return Form(schema="tokens")
    if name == "chat_template":
        return _chat(keys, messages="messages", role="role", content="content")
    if name.startswith("sharegpt"):
        keys.tell(
            "type",
            "read as chat_template with from and value, which has replaced it",
        )
        return _chat(keys, messages="conversations", role="from", content="value")
    if name in ("completion", "pretrain"):
        return Form(schema="text", columns={"text": keys.text("field") or keys.text("text_column") or "text"})
    base = name if name in _ALPACA else name.partition(".")[0]
    if base in _ALPACA:
        keys.tell("type", _OWN_PROMPT)
        return alpaca_form(_ALPACA[base])
    if name == "input_output":
        keys.tell(
            "type", "no schema of packer's: bring segments as messages with `train`, or as rows of tokens; left out"
        )
        return None
    told = f" in style {style}" if style else ""
    keys.tell("type", f"no type that is known here{told}: the form of the rows is found by looking at them")
    return Form(schema="auto")


def _own_form(keys: Keys) -> Form:
    """A prompt type of the person's own: its fields are columns, its formats are a template's business."""
    kind = keys.inner("type")
    keys.tell("type", _OWN_PROMPT)
    for format_key in ("format", "no_input_format", "system_format", "system_prompt"):
        kind.expect(format_key, (), "wording is a chat template's: write one and set template.file")
    fields = {
        "instruction": "field_instruction",
        "input": "field_input",
        "output": "field_output",
        "system": "field_system",
    }
    columns = {ours: named for ours, key in fields.items() if (named := kind.text(key))}
    kind.tell_rest()
    return alpaca_form(columns)


_OF_CHATS = (
    "drop_system_message",
    "field_messages",
    "field_thinking",
    "field_tools",
    "message_field_content",
    "message_field_role",
    "message_field_training",
    "message_property_mappings",
    "roles",
    "roles_to_train",
    "template_thinking_key",
    "train_on_eos",
    "train_on_eot",
)


def _chat_keys_elsewhere(keys: Keys, kind: str) -> None:
    """Settings of chats have no effect on other types; no word about them is no loss, and still they are told."""
    if not kind.startswith(("chat_template", "sharegpt")):
        keys.tell_each(dict.fromkeys(_OF_CHATS, "of type chat_template; this entry is of another"))
    if not kind.startswith(("completion", "pretrain")):
        keys.tell_each(dict.fromkeys(("field", "text_column"), "of type completion; this entry is of another"))


def _chat(keys: Keys, *, messages: str, role: str, content: str) -> Form | None:
    names = {"role": role, "content": content}
    mapped = keys.inner("message_property_mappings")
    for name in ("role", "content"):
        names[name] = keys.text(f"message_field_{name}") or mapped.text(name) or names[name]
    for name, known in MESSAGE_FIELDS.items():
        mapped.expect(name, known, _NOT_RENAMED)
    mapped.tell_rest()
    keys.expect("field_thinking", MESSAGE_FIELDS["reasoning_content"], _NOT_RENAMED)
    keys.expect(
        "template_thinking_key",
        ("reasoning_content", "thinking"),
        "templates find reasoning under reasoning_content and thinking",
    )
    _trained(keys)
    _roles(keys.inner("roles"))
    columns = {"tools": keys.text("field_tools") or "tools"}
    form = chat_form(messages=keys.text("field_messages") or messages, columns=columns, **names)
    if form is None:
        keys.tell(
            "type",
            f"packer reads who speaks in role or from, and what is said in content or value, not in {names}; left out",
        )
    return form


_NOT_RENAMED = "the fields of a message cannot be renamed in a recipe; rename them in the rows"


def _roles(keys: Keys) -> None:
    for role in ("system", "user", "assistant", "tool"):
        others = [name for name in keys.texts(role) or () if not is_read_as(name, role)]
        if others:
            keys.tell(role, f"packer does not read {', '.join(others)} as {role}: rename them in the rows")
    keys.tell_rest()


def _trained(keys: Keys) -> None:
    """What of a conversation is learned: in packer answers, each with its stop token."""
    trained = keys.texts("roles_to_train")
    if set(trained or ()) - {"assistant", "gpt", "model"}:
        keys.tell(
            "roles_to_train", "packer trains answers alone: what the assistant says, with its calls and its stop token"
        )
    elif trained == []:
        keys.tell("roles_to_train", "packer trains every answer that has no train: false on its message")
    keys.expect("train_on_eos", ("turn",), "packer trains the stop token of every answer that is trained, and no other")
    keys.expect("train_on_eot", ("turn",), "packer trains the stop token of every answer that is trained, and no other")
    keys.expect(
        "message_field_training", ("train",), "packer looks for `train` on a message: rename the field in the rows"
    )
    keys.expect("drop_system_message", (False,), "packer drops nothing: take the system messages out of the rows")
