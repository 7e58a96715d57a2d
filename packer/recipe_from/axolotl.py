"""A configuration of axolotl as a recipe. Read from axolotl 0.19."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packer.errors import InputError, RecipeError
from packer.recipe_from import axolotl_keys
from packer.recipe_from.config_keys import EntryLeftOutError, Keys, Report
from packer.recipe_from.config_paths import (
    NAME_FILES,
    ConfigPaths,
    SourceFiles,
    data_set_folder,
    files_pattern,
    hub_path,
    is_on_hub,
)
from packer.recipe_from.row_schema import (
    MESSAGE_FIELDS,
    RowSchema,
    alpaca_rows,
    chat_rows,
    is_read_as,
    unread_message_fields,
)
from packer.recipe_from.training_keys import is_training_key
from packer.tokenizer_folder import MAX_FILE_BYTES, read_regular

TEMPLATE_FILE = "chat_template.jinja"

_SEQUENCE_LEN = 512
"""What axolotl takes where nothing is said."""

_FIRST_ROWS = re.compile(r"(?P<split>\w+)\[:(?P<rows>[1-9]\d{0,17})\]")
_LOADERS = ("json", "csv", "parquet", "arrow")
"""Names that older configurations have for a path, beside `data_files`."""

_OWN_PROMPT = "axolotl writes a prompt of its own around each row; packer gives the chat template a user message"


def read_axolotl(config: Mapping[str, Any], paths: ConfigPaths, report: Report) -> tuple[dict[str, Any], str | None]:
    """Values of a recipe, and the text of a chat template that stands in the configuration.

    Raises:
        RecipeError: the configuration is about preferences or rewards, or its lists are none.

    """
    keys = Keys(config, report)
    for key in ("rl", "reward_model", "process_reward_model"):
        if keys.expect(key, (False,), "not for packer"):
            raise RecipeError(
                f"{key}: {config[key]}: packer prepares data for supervised training, not preferences or rewards",
                hint="its sources are rows with answers to be learned",
            )
    sources, wanted = _sources(keys, paths, report)
    keys.report_each(axolotl_keys.CONFIG)
    tokenizer = _tokenizer(keys, paths)
    _special_tokens(keys, paths, keys.text("tokenizer_config") or keys.text("base_model"))
    template, text = _template(_Template.of(keys), wanted, paths)
    if kwargs := keys.mapping("chat_template_kwargs"):
        template["kwargs"] = dict(kwargs)
    stop = keys.texts("eot_tokens")
    recipe = {
        "sources": sources,
        "tokenizer": tokenizer,
        "template": template,
        "supervision": {"stop": stop} if stop else {},
        "pack": _pack(keys, schemas={source["schema"] for source in sources}),
    }
    keys.report_rest(is_training=is_training_key)
    return recipe, text


def _sources(keys: Keys, paths: ConfigPaths, report: Report) -> tuple[list[dict[str, Any]], list["_Template"]]:
    sources: list[dict[str, Any]] = []
    wanted: list[_Template] = []
    files = SourceFiles(target=paths.target)
    for name, split in (("pretraining_dataset", None), ("datasets", None), ("test_datasets", "eval")):
        entries = keys.take(name) or []
        if isinstance(entries, str) and name == "pretraining_dataset":  # it may be a path alone
            entries = [{"path": entries}]
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise RecipeError(
                f"{name}: expected a list of mappings with a path each", hint="as in axolotl's own examples"
            )
        texts = {"type": "pretrain"} if name == "pretraining_dataset" else {}
        for i, entry in enumerate(entries):
            inner = Keys({**texts, **entry}, report, where=f"{name}[{i}].")
            with report.entry(inner):
                sources += _entry_sources(inner, paths, files, split=split)
                wanted.append(_Template.of(inner))
    return sources, wanted


def _entry_sources(keys: Keys, paths: ConfigPaths, files: SourceFiles, *, split: str | None) -> list[dict[str, Any]]:
    """Sources of one entry.

    Raises:
        EntryLeftOutError: its rows cannot be had.

    """
    schema = _row_schema(keys)
    keys.report_each(axolotl_keys.ENTRY)
    limit = _limit(keys)
    names = _entry_paths(keys, paths, split=split)
    names = files.take(names, split, keys, "data_files" if keys.take("data_files") else "path", paths)
    if limit and files.are_several(names):
        keys.report("split", "of all files together there; packer's limit counts for each file, and here are several")
    shared = {**({"split": split} if split else {}), **_format(keys), **schema.as_source(), **limit}
    return [{"path": name, **shared} for name in names]


def _limit(keys: Keys) -> dict[str, Any]:
    split = keys.text("split")
    rows = _FIRST_ROWS.fullmatch(split or "")
    if rows is not None and rows["split"] == "train":
        return {"limit": int(rows["rows"])}
    if split is not None and "[" in split:
        keys.report("split", "packer takes whole files, or with limit the first rows of each: all rows are taken")
    return {}


def _format(keys: Keys) -> dict[str, Any]:
    kind = keys.text("ds_type")
    if kind in ("csv", "parquet", "arrow"):
        return {"format": kind}
    if kind not in (None, "json"):
        keys.report("ds_type", "no format of packer's; what a file holds is seen by its bytes")
    return {}


def _entry_paths(keys: Keys, paths: ConfigPaths, *, split: str | None) -> list[str]:
    """What the sources of an entry are called."""
    path, named, revision = keys.text("path"), keys.texts("data_files") or [], keys.text("revision")
    if path is None:
        raise EntryLeftOutError("path", "no path")
    found = paths.find(path)
    asked = (keys.text("split") or ("test" if split else "train")).partition("[")[0]
    if found is None and is_on_hub(path):
        if not named:
            keys.report("path", NAME_FILES)
        elif asked != "train":
            keys.report("split", "packer takes the files that are named, not a split of them")
        return [hub_path(path, revision, file) for file in named or [""]]
    keys.expect("revision", (), "of a name on the Hub; this is none")
    if named and (found.is_dir() if found else path in _LOADERS):
        inside = paths if found is None else replace(paths, bases=(found, *paths.bases))
        return [paths.in_recipe(place, like=name) if (place := inside.find_files(name)) else name for name in named]
    if found is None and "://" in path:
        raise EntryLeftOutError("path", "packer reads files of this machine and of the Hub")
    if found is None:
        keys.report("path", "not found from here; packer reads files of this machine and of the Hub")
        return [path]
    if found.is_file():
        return [paths.in_recipe(found, like=path)]
    whole = data_set_folder(found, asked)
    if whole is None:
        whole = files_pattern(found, "path")
        keys.report("path", "axolotl tells splits by the names of files; packer takes all that fit the pattern")
    return [paths.in_recipe(whole, like=path)]


def _row_schema(keys: Keys) -> RowSchema:
    own = isinstance(keys.take("type"), Mapping)
    kind = "" if own else keys.text("type") or ""
    name, _, style = kind.partition(":")
    if not name.startswith(("chat_template", "sharegpt")):
        keys.report_each(axolotl_keys.OTHER_ENTRY)
    if not name.startswith(("completion", "pretrain")):
        keys.report_each(axolotl_keys.NO_TEXT_ENTRY)
    if own:
        return _own_type(keys)
    if not name:
        return RowSchema(schema="tokens")
    if name == "chat_template":
        return _chat(keys, messages="messages", role="role", content="content")
    if name.startswith("sharegpt"):
        keys.report("type", "read as chat_template with from and value, which has replaced it")
        return _chat(keys, messages="conversations", role="from", content="value")
    if name in ("completion", "pretrain"):
        return RowSchema(schema="text", columns={"text": keys.text("field") or keys.text("text_column") or "text"})
    base = name if name in axolotl_keys.ALPACA_TYPES else name.partition(".")[0]
    if base in axolotl_keys.ALPACA_TYPES:
        keys.report("type", _OWN_PROMPT)
        return alpaca_rows(axolotl_keys.ALPACA_TYPES[base])
    if name == "input_output":
        raise EntryLeftOutError(
            "type", "no schema of packer's: bring segments as messages with `train`, or as rows of tokens"
        )
    named = f" in style {style}" if style else ""
    keys.report("type", f"no type that is known here{named}: the schema is found by looking at the rows")
    return RowSchema(schema="auto")


def _own_type(keys: Keys) -> RowSchema:
    """A prompt type of the person's own: its fields are columns, its formats are a template's business."""
    kind = keys.inner("type")
    keys.report("type", _OWN_PROMPT)
    kind.report_each(axolotl_keys.OWN_TYPE)
    columns = {ours: named for ours, key in axolotl_keys.OWN_TYPE_FIELDS.items() if (named := kind.text(key))}
    kind.report_rest()
    return alpaca_rows(columns)


def _chat(keys: Keys, *, messages: str, role: str, content: str) -> RowSchema:
    names = {"role": role, "content": content}
    mapped = keys.inner("message_property_mappings")
    for name, default in names.items():
        names[name] = keys.text(f"message_field_{name}") or mapped.text(name) or default
    messages = keys.text("field_messages") or messages
    schema = chat_rows(messages=messages, columns={"tools": keys.text("field_tools") or "tools"}, **names)
    if schema is None:
        key = next((key for key in ("message_property_mappings", "message_field_role") if key in keys), "type")
        raise EntryLeftOutError(key, unread_message_fields(messages, **names))
    for name, known in MESSAGE_FIELDS.items():
        if name not in names:
            mapped.expect(name, known, axolotl_keys.NOT_RENAMED)
    mapped.report_rest()
    keys.report_each(axolotl_keys.CHAT_ENTRY)
    trained = keys.texts("roles_to_train")
    if set(trained or ()) - {"assistant", "gpt", "model"}:
        keys.report(
            "roles_to_train", "packer trains answers alone: what the assistant says, with its calls and its stop token"
        )
    elif trained == []:
        keys.report("roles_to_train", "packer trains every answer that has no train: false on its message")
    roles = keys.inner("roles")
    for name in ("system", "user", "assistant", "tool"):
        others = [sender for sender in roles.texts(name) or () if not is_read_as(sender, name)]
        if others:
            roles.report(name, f"packer does not read {', '.join(others)} as {name}: rename them in the rows")
    roles.report_rest()
    return schema


def _tokenizer(keys: Keys, paths: ConfigPaths) -> str | None:
    model, own, older = keys.text("base_model"), keys.text("tokenizer_config"), keys.text("base_model_config")
    revision = keys.text("revision_of_model")
    if own is not None:
        keys.report("revision_of_model", "of the model; the tokenizer has a name of its own")
    elif older is not None:
        keys.report("base_model_config", "the tokenizer is taken from base_model")
    named = own or model
    return None if named is None else paths.tokenizer(named, None if own else revision)


def _special_tokens(keys: Keys, paths: ConfigPaths, tokenizer: str | None) -> None:
    """Nothing is reported of tokens that the tokenizer has already, nor of the pad token, which is never trained."""
    asked = keys.mapping("special_tokens")
    folder = paths.find(tokenizer) if tokenizer else None
    saved: Any = {}
    if folder is not None:
        try:
            file = folder / "tokenizer_config.json"
            saved = json.loads(read_regular(file, max_bytes=MAX_FILE_BYTES, what=f"tokenizer {folder}"))
        except (InputError, ValueError):
            pass  # a build says what is wrong with it
    saved = saved if isinstance(saved, dict) else {}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in saved.items()}
    others = [str(name) for name, text in asked.items() if name != "pad_token" and texts.get(name) != text]
    if others:
        keys.report("special_tokens", f"{', '.join(others)}: {axolotl_keys.SAVED}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    """What a configuration, or an entry of its lists, says of a chat template."""

    keys: Keys
    name: str | None
    jinja: str | None

    @classmethod
    def of(cls, keys: Keys) -> "_Template":
        return cls(keys=keys, name=keys.text("chat_template"), jinja=keys.text("chat_template_jinja"))


def _template(whole: _Template, entries: Sequence[_Template], paths: ConfigPaths) -> tuple[dict[str, Any], str | None]:
    """Keys of `template`, and the text of one that has to be written beside the recipe.

    A recipe has one: the configuration's, or else that of the first entry with one.
    """
    named = [template for template in (whole, *entries) if template.name is not None or template.jinja is not None]
    taken = named[0] if named else whole
    for other in named[1:]:
        if (other.name, other.jinja) != (taken.name, taken.jinja):
            for key in ("chat_template", "chat_template_jinja"):
                other.keys.report(
                    key,
                    "a recipe has one template: build this source into a cache of its own, and read both as a Mixture",
                )
    if taken.jinja is None:
        if taken.name not in ("tokenizer_default", None):
            taken.keys.report(
                "chat_template",
                "the tokenizer's own is taken, and there is no other to fall back on"
                if taken.name.startswith("tokenizer_default_fallback_")
                else "packer has none by name, and takes the tokenizer's own; "
                "or give the Jinja of this one as template.file",
            )
        return {}, None
    if "{" in taken.jinja:
        return {"file": TEMPLATE_FILE}, taken.jinja
    found = paths.find(taken.jinja)
    if found is None or not found.is_file():
        taken.keys.report("chat_template_jinja", "no such file from here: the tokenizer's own template is taken")
        return {}, None
    return {"file": paths.in_recipe(found, like=taken.jinja)}, None


def _pack(keys: Keys, *, schemas: set[str]) -> dict[str, Any]:
    length, packing = keys.take("sequence_len"), keys.take("sample_packing")
    pack: dict[str, Any] = {}
    if packing is True:
        pack["block_len"] = length or _SEQUENCE_LEN
        if length is None:
            keys.report("sequence_len", "what axolotl takes where nothing is said", default=_SEQUENCE_LEN)
    else:
        pack["mode"] = "none"
        keys.report(
            "sample_packing",
            "documents without blocks, which a loader pads; to pack: --set pack.mode=isolated",
            default=False,
        )
        if length is not None:
            pack["block_len"] = length
            keys.report("sequence_len", "without packing documents keep their length; axolotl drops longer ones")
    excess = keys.take("excess_length_strategy")
    if excess == "truncate":
        pack["overlong"] = "truncate_right"
    elif excess is not None and excess != "drop":
        keys.report("excess_length_strategy", "overlong documents are left out and counted; packer stats shows them")
    elif schemas == {"text"}:
        pack["overlong"] = "split"  # as its `completion` cuts long texts into pieces
    elif "text" in schemas and packing is True:
        keys.report(
            "excess_length_strategy",
            "axolotl cuts long texts of type completion into pieces, and drops long chats; a recipe has one rule, and "
            "this one leaves both out: --set pack.overlong=split, or build the texts into a cache of their own",
            default="drop",
        )
    if (least := keys.take("min_sample_len")) is not None:
        pack["min_length"] = least
    if keys.take("sample_packing_sequentially"):
        pack["strategy"] = "sequential"
    return pack
