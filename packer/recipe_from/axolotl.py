"""Conversion of an axolotl configuration to a recipe. Based on axolotl 0.19."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer.errors import RecipeError
from packer.recipe_from.config import (
    ConfigPaths,
    EntryLeftOutError,
    Keys,
    Report,
    alpaca_rows,
    answer_rows,
    chat_rows,
    files_pattern,
    hub_path,
    is_on_hub,
    renamed_roles,
    rows_of,
)
from packer.source.files import is_data_set

TEMPLATE_FILE = "chat_template.jinja"

_SEQUENCE_LEN = 512
"""axolotl's default."""

_LOADERS = ("json", "csv", "parquet", "arrow")
"""Values that older configurations have as a path, beside `data_files`."""

_KINDS = {"dpo": "preference", "ipo": "preference", "orpo": "preference", "simpo": "preference", "kto": "rated"}
"""`rl` → packer's schema of its rows."""

_STYLES = {"chatml": "chatml", "llama3": "llama-3"}
"""The template that a type of preference data names → packer's name of it."""

_SAME_TEMPLATES = {"gemma": "gemma", "llama3": "llama-3"}
"""axolotl's name of a template → packer's name of one that writes the same."""

_CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""axolotl's. packer's of this name begins with the BOS, if the tokenizer has one, as prompts of preference data do."""

_QUESTION: dict[str, str | None] = {"instruction": "question", "output": "response", "system": "system_prompt"}

_ALPACA_TYPES: dict[str, dict[str, str | None]] = {
    "alpaca": {},
    "alpaca_chat": {},
    "alpaca_chat.load_qa": {"instruction": "question", "output": "answer", "input": None},
    "alpaca_chat.load_camel_ai": {"instruction": "message_1", "output": "message_2", "input": None},
    "alpaca_instruct": {},
    "alpaca_w_system": {"system": "system"},
    "alpaca_w_system.load_open_orca": _QUESTION,
    "alpaca_w_system.load_open_orca_chatml": _QUESTION,
    "gpteacher": {"output": "response"},
}
"""Types whose rows packer reads as alpaca: packer's name of a field → axolotl's."""

_ANSWER_TYPES: dict[str, dict[str, dict[str, str | None]]] = {
    "preference": {
        "argilla": {"instruction": "instruction", "chosen": "chosen_response", "rejected": "rejected_response"},
        "argilla_chat": {"system": None},
        "icr": {"instruction": "input"},
        "intel": {"instruction": "question"},
        "prompt_pairs": {"instruction": "prompt"},
        "ultra": {"prompt": "prompt"},
    },
    "rated": {
        "argilla": {"instruction": "instruction", "output": "completion"},
        "argilla_chat": {"messages": "completion", "system": None},
        "intel": {"instruction": "question", "output": "completion"},
        "prompt_pairs": {"instruction": "prompt", "output": "completion"},
        "ultra": {"instruction": "prompt", "output": "completion"},
    },
}
"""Schema → type of an entry, behind its dot → packer's name of a field → axolotl's."""


def read_axolotl(config: Mapping[str, Any], paths: ConfigPaths, report: Report) -> tuple[dict[str, Any], str | None]:
    """Return the values of a recipe, and the text of a chat template that is part of the configuration.

    Raises:
        RecipeError: the configuration is for reward training or for answers that are generated in training, or a list
            of datasets is malformed.
    """
    keys = Keys(config, report)
    kind = None if keys.take("rl") in (None, False) else _KINDS.get(str(config["rl"]))
    for key in ("rl", "reward_model", "process_reward_model"):
        if keys.take(key) not in (None, False) and (key != "rl" or kind is None):
            raise RecipeError(
                f"{key}: {config[key]}: packer prepares examples to imitate, preference pairs and rated answers",
                hint=f"its configurations have no rl, or one of {', '.join(_KINDS)}",
            )
    sources, style = _sources(keys, paths, report, kind=kind)
    model, own = keys.take("base_model", "text"), keys.take("tokenizer_config", "text")
    revision = keys.take("revision_of_model", "text") if own is None else None
    recipe = {"tokenizer": paths.tokenizer(own or model, revision)} if own or model else {}
    template, text = _template(keys, paths, is_pairs=kind is not None)
    if style is not None and template != {"name": style}:
        template, text = {"name": style}, None
        for key in ("chat_template", "chat_template_jinja"):
            keys.leave(key)
    schemas = {source["schema"] for source in sources}
    return {"sources": sources, **recipe, "pack": _pack(keys, schemas), "template": template}, text


def _sources(
    keys: Keys, paths: ConfigPaths, report: Report, *, kind: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the sources, and packer's name of the template that their types name, if they name one."""
    sources: list[dict[str, Any]] = []
    styles: list[str | None] = []
    for name, split in (("pretraining_dataset", None), ("datasets", None), ("test_datasets", "eval")):
        entries = keys.take(name) or []
        if isinstance(entries, str) and name == "pretraining_dataset":  # may be a bare path
            entries = [{"path": entries}]
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise RecipeError(
                f"{name}: expected a list of mappings with a path each", hint="as in axolotl's own examples"
            )
        is_stream = name == "pretraining_dataset"
        for i, entry in enumerate(entries):
            with report.entry(f"{name}[{i}]", ({"type": "pretrain"} if is_stream else {}) | dict(entry)) as inner:
                if i > 0 and is_stream:
                    raise EntryLeftOutError("axolotl reads only the first of these")
                if name == "datasets" and keys.take("pretraining_dataset"):
                    raise EntryLeftOutError("beside pretraining_dataset axolotl reads no datasets")
                rows = _rows(inner) if kind is None else _answers(inner, kind)
                style = _STYLES.get(str(entry.get("type")).partition(".")[0]) if kind else None
                if style != next(iter(styles), style):
                    raise EntryLeftOutError("a recipe has one template: build this source into a cache of its own")
                names = _entry_paths(inner, paths, split=split)
                styles.append(style)
                sources += [{"path": each, **({"split": split} if split else {}), **rows} for each in names]
    return sources, styles[0] if styles else None


def _entry_paths(keys: Keys, paths: ConfigPaths, *, split: str | None) -> list[str]:
    """Return the paths of the sources of an entry."""
    path, named = keys.take("path", "text"), keys.take("data_files", "texts") or []
    if path is None:
        raise EntryLeftOutError("it has no path")
    found = paths.find(path)
    wanted, _, part = (keys.take("split", "text") or ("test" if split else "train")).partition("[")
    if part or (wanted != "train" and (found is None or not is_data_set(found))):
        keys.leave("split")
    if found is None and is_on_hub(path):
        revision = keys.take("revision", "text")
        return [hub_path(path, revision, file) for file in named or [""]]
    if named and (found.is_dir() if found else path in _LOADERS):
        inside = paths if found is None else replace(paths, bases=(found, *paths.bases))
        return [paths.in_recipe(place, like=name) if (place := inside.find(name)) else name for name in named]
    if found is None:
        if "://" in path:
            raise EntryLeftOutError("packer reads files of this machine and of the Hub")
        return [path]
    return [paths.in_recipe(_in_folder(found, wanted) if found.is_dir() else found, like=path)]


def _in_folder(folder: Path, split: str) -> Path:
    """Return where a folder has the rows of a split; for a plain folder, a pattern for its files."""
    if is_data_set(folder):
        return folder / split if is_data_set(folder / split) else folder
    return files_pattern(folder)


def _rows(keys: Keys) -> dict[str, Any]:
    """Return schema and columns of an entry."""
    if isinstance(keys.take("type"), Mapping):
        names = {f"field_{name}": name for name in ("instruction", "input", "output", "system")}
        return alpaca_rows({"system": "system", **keys.inner("type").columns(names)})  # read unasked, as `input` is
    name = (keys.take("type", "text") or "").partition(":")[0]
    if not name:
        return rows_of("tokens")
    if name == "chat_template":
        return _chat(keys, messages="messages", role="role", content="content")
    if name.startswith("sharegpt"):
        return _chat(keys, messages="conversations", role="from", content="value")
    if name in ("completion", "pretrain"):
        return rows_of("text", {"text": keys.take("field", "text") or keys.take("text_column", "text") or "text"})
    base = name if name in _ALPACA_TYPES else name.partition(".")[0]
    if base in _ALPACA_TYPES:
        return alpaca_rows(_ALPACA_TYPES[base])
    if name == "input_output":
        raise EntryLeftOutError("packer reads no segments: bring them as messages with `train`, or as rows of tokens")
    keys.leave("type")
    return rows_of("auto")


def _chat(keys: Keys, *, messages: str, role: str, content: str) -> dict[str, Any]:
    mapped = keys.inner("message_property_mappings")
    rows = chat_rows(
        messages=keys.take("field_messages", "text") or messages,
        role=keys.take("message_field_role", "text") or mapped.take("role", "text") or role,
        content=keys.take("message_field_content", "text") or mapped.take("content", "text") or content,
        columns={"tools": keys.take("field_tools", "text") or "tools"},
    )
    return rows | _roles(keys)


def _roles(keys: Keys) -> dict[str, Any]:
    roles = keys.inner("roles")
    senders = {name: roles.take(name, "texts") or () for name in ("system", "user", "assistant", "tool")}
    return renamed_roles({sender: name for name, own in senders.items() for sender in own})


def _answers(keys: Keys, schema: str) -> dict[str, Any]:
    """Return schema and columns of an entry of preference data.

    A type names the columns of its rows and, before its dot, the template of its prompts and answers.
    """
    types = _ANSWER_TYPES[schema]
    if isinstance(keys.take("type"), Mapping):
        raise EntryLeftOutError(f"formats of your own: rename the columns for one of {', '.join(types)}")
    name = keys.take("type", "text") or "passthrough"
    style, _, form = name.partition(".")
    if style == "chat_template" and form in ("", "default", "argilla_chat") and schema == "preference":
        mapped = keys.inner("message_property_mappings")
        role, content = mapped.take("role", "text") or "role", mapped.take("content", "text") or "content"
        chat_rows(messages="", role=role, content=content, columns={})  # checks the names
        columns = {side: keys.take(f"field_{side}", "text") or side for side in ("chosen", "rejected")}
        if form != "argilla_chat":
            columns["messages"] = keys.take("field_messages", "text") or "messages"
        return answer_rows("preference", columns) | _roles(keys)
    if style == "passthrough":
        return answer_rows(schema, {"prompt": "prompt"})
    if name == "chat_template.argilla" and schema == "preference":
        return answer_rows(schema, {"system": "system", **types["ultra"]})
    if style not in _STYLES or form not in types:
        raise EntryLeftOutError(f"no type that packer reads: rename the columns for one of {', '.join(types)}")
    return answer_rows(schema, {"system": "system", **types[form]})


def _template(keys: Keys, paths: ConfigPaths, *, is_pairs: bool) -> tuple[dict[str, Any], str | None]:
    """Return the keys of `template`, and the text of a template that must be written beside the recipe."""
    name, jinja = keys.take("chat_template", "text"), keys.take("chat_template_jinja", "text")
    if jinja is None and name == "chatml":
        return ({"name": name}, None) if is_pairs else ({"file": TEMPLATE_FILE}, _CHATML)
    if jinja is None and name in _SAME_TEMPLATES:
        return {"name": _SAME_TEMPLATES[name]}, None
    if jinja is None:
        if name != "tokenizer_default":
            keys.leave("chat_template")
        return {}, None
    if "{" in jinja:
        return {"file": TEMPLATE_FILE}, jinja
    found = paths.find(jinja)
    if found is None or not found.is_file():
        keys.leave("chat_template_jinja")
        return {}, None
    return {"file": paths.in_recipe(found, like=jinja)}, None


def _pack(keys: Keys, schemas: set[str]) -> dict[str, Any]:
    length, packs = keys.take("sequence_len"), keys.take("sample_packing") is True
    pack: dict[str, Any] = {"block_len": length or _SEQUENCE_LEN} if packs or length else {}
    # Of texts, axolotl cuts what is too long into pieces; of other rows it leaves it out.
    return pack | ({} if packs else {"mode": "none"}) | ({"overlong": "split"} if schemas == {"text"} else {})
