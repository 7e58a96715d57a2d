"""The model that a cache is made for, as its tokenizer folder tells: template, ids that stop, control tokens.

Nothing else is known of it. The files are read byte for byte, their digests are part of a cache's identity, and what
contradicts itself in them is refused before anything is built.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from packer.backend import definition_of, is_panic, load_backend
from packer.errors import InputError, RecipeError
from packer.limits import out_of
from packer.tokenizer_checks import MAX_IDS, checked_vocab_size
from packer.tokenizer_folder import MAX_TEMPLATE_BYTES, TOOL_USE_FILE, read_folder, read_regular

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
TOOL_TEMPLATE_FILE = "chat_template_tool_use.jinja"
GENERATION_FILE = "generation_config.json"

FOLDER_FILES = (
    TOKENIZER_FILE,
    CONFIG_FILE,
    TEMPLATE_FILE,
    GENERATION_FILE,
    TOOL_TEMPLATE_FILE,
    TOOL_USE_FILE.as_posix(),
)
"""All that is read of a tokenizer's folder; the first must be there."""


_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedToken:
    """An entry of ``added_tokens``: matched in the text before anything else is tokenized."""

    id: int
    content: str
    special: bool
    normalized: bool
    single_word: bool
    lstrip: bool
    rstrip: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What the stages need to know of a tokenizer folder."""

    files: Mapping[str, bytes]
    """Canonical file name → bytes; enough to load the model again, and kept in the cache."""

    template: str | None
    tool_template: str | None
    """A second template for rows with tools, where the folder has one."""

    named_tokens: Mapping[str, Any]
    """`bos_token`, `eos_token`, …: variables of the template, only those that are set."""

    added_tokens: tuple[AddedToken, ...]
    vocab_size: int
    """One more than the largest id."""

    eos_id: int | None
    pad_id: int
    stop_ids: tuple[int, ...]
    """Ids at which generation stops, sorted."""

    control: Mapping[str, int]
    """Text of each control token → its id."""

    def content(self, token_id: int) -> str:
        """Text of an added token, or of an entry of the vocabulary, as the tokenizer writes it."""
        for token in self.added_tokens:
            if token.id == token_id:
                return token.content
        entry = definition_of(self.files[TOKENIZER_FILE])["model"]["vocab"]
        pairs = entry.items() if isinstance(entry, dict) else ((piece, i) for i, (piece, _) in enumerate(entry))
        return next(str(piece) for piece, i in pairs if i == token_id)

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts of the stop ids, in the order of `stop_ids`."""
        return tuple(self.content(token_id) for token_id in self.stop_ids)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """Ids of special tokens and stop ids, sorted."""
        return tuple(sorted({token.id for token in self.added_tokens if token.special} | set(self.stop_ids)))

    @property
    def digests(self) -> dict[str, str]:
        """File name → sha256."""
        return digests_of(self.files)

    def with_control(self, markers: Mapping[str, int]) -> "Model":
        """The same model where the role markers a template writes are control tokens too."""
        return replace(self, control=dict(sorted({**self.control, **markers}.items())))


def load_model(
    tokenizer: Path, *, template: Path | None = None, stop: Sequence[str] = (), pad_id: int | None = None
) -> Model:
    """Read a tokenizer folder, or a bare `tokenizer.json`.

    Args:
        tokenizer: folder with `tokenizer.json`, or that file alone (then nothing else is known of the model).
        template: a chat template file that takes the place of the folder's own.
        stop: texts of further stop tokens; each must be one token.
        pad_id: id of padding; by default the pad token, else the first stop id, else 0.

    Raises:
        InputError: a file is missing, unreadable or contradicts another.

    """
    return model_of(read_model_files(tokenizer, template=template), tokenizer, stop=stop, pad_id=pad_id)


def model_of(
    files: Mapping[str, bytes], tokenizer: Path, *, stop: Sequence[str] = (), pad_id: int | None = None
) -> Model:
    """The model of some files, as :func:`read_model_files` gives them; `tokenizer` names them in errors.

    Raises:
        InputError: a file is not what it should be, or contradicts another.

    """
    backend = _load_tokenizer(files[TOKENIZER_FILE], tokenizer)
    definition = _read_json(files, TOKENIZER_FILE, tokenizer)
    vocab_size = checked_vocab_size(definition, backend, tokenizer)
    config = _read_json(files, CONFIG_FILE, tokenizer)
    added = _added_tokens(backend, config, tokenizer)
    named = _named_tokens(config, tokenizer)
    eos_id = _token_id(backend, named["eos_token"], "eos_token", tokenizer) if "eos_token" in named else None
    stop_ids = _stop_ids(backend, files, eos_id, stop, tokenizer)
    contents = {token.id: token.content for token in added}
    control = {token.content: token.id for token in added if token.special}
    control |= {contents.get(i) or str(backend.id_to_token(i)): i for i in stop_ids}
    pad = pad_id if pad_id is not None else _pad_id(backend, named, stop_ids, tokenizer)
    if pad >= vocab_size:
        raise RecipeError(
            f"pack.pad_id {pad}: the vocabulary ends at {vocab_size - 1}",
            hint="leave it out, and the tokenizer's pad token is taken",
        )
    return Model(
        files=files,
        template=_decoded(files, TEMPLATE_FILE),
        tool_template=_decoded(files, TOOL_TEMPLATE_FILE),
        named_tokens=named,
        added_tokens=added,
        vocab_size=vocab_size,
        eos_id=eos_id,
        pad_id=pad,
        stop_ids=stop_ids,
        control=dict(sorted(control.items())),
    )


def read_model_files(tokenizer: Path, *, template: Path | None = None) -> dict[str, bytes]:
    """Name → bytes of all that a model is loaded from: with the templates that count, whichever file holds them.

    Args:
        tokenizer: folder with `tokenizer.json`, or that file alone.
        template: a chat template file that takes the place of the folder's own.

    Raises:
        InputError: a file is missing or cannot be read.

    """
    others = (CONFIG_FILE, TEMPLATE_FILE, GENERATION_FILE, TOOL_TEMPLATE_FILE)
    files = read_folder(tokenizer, TOKENIZER_FILE, others, tool_use=TOOL_TEMPLATE_FILE)
    main_template, tool_template = _templates(files, _read_json(files, CONFIG_FILE, tokenizer), tokenizer)
    if template is not None:
        main_template, tool_template = _read_template(template), None
    files = {name: content for name, content in files.items() if name not in (TEMPLATE_FILE, TOOL_TEMPLATE_FILE)}
    if main_template is not None:
        files[TEMPLATE_FILE] = main_template.encode()
    if tool_template is not None:
        files[TOOL_TEMPLATE_FILE] = tool_template.encode()
    return files


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """File name → sha256."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}


def _decoded(files: Mapping[str, bytes], name: str) -> str | None:
    return files[name].decode() if name in files else None


def _load_tokenizer(content: bytes, where: Path) -> Tokenizer:
    try:
        return load_backend(content)
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise out_of(error) or InputError(f"tokenizer {where}: {TOKENIZER_FILE} cannot be loaded: {error}") from error


def _read_json(files: Mapping[str, bytes], name: str, where: Path) -> dict[str, Any]:
    if name not in files:
        return {}
    try:
        value = definition_of(files[name]) if name == TOKENIZER_FILE else json.loads(files[name])
        json.dumps(value if name != TOKENIZER_FILE else None, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError(f"tokenizer {where}: {name} holds half of a surrogate pair") from None
    except ValueError as error:
        raise InputError(f"tokenizer {where}: {name} is not valid JSON: {error}") from error
    except RecursionError:
        raise InputError(f"tokenizer {where}: {name} is nested too deep") from None
    if not isinstance(value, dict):
        raise InputError(f"tokenizer {where}: {name}: expected an object, found {type(value).__name__}")
    return value


def _read_template(path: Path) -> str:
    content = read_regular(path, max_bytes=MAX_TEMPLATE_BYTES, what=f"template {path}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"template {path}: {error}", hint="--template takes a Jinja chat template file") from error


def _templates(files: Mapping[str, bytes], config: Mapping[str, Any], where: Path) -> tuple[str | None, str | None]:
    """The folder's template, and its template for rows with tools.

    As in transformers: a file beats the configuration, and a list in the configuration holds named templates.
    """
    inline = config.get("chat_template")
    named: dict[str, str] = {}
    if isinstance(inline, str):
        named["default"] = inline
    elif inline is not None:
        named = _named_templates(inline, where)
    for name, file in (("default", TEMPLATE_FILE), ("tool_use", TOOL_TEMPLATE_FILE)):
        if file in files:
            try:
                named[name] = files[file].decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(f"tokenizer {where}: {file} is not UTF-8: {error}") from error
    for name, template in named.items():
        if len(template) > MAX_TEMPLATE_BYTES:
            raise InputError(
                f"tokenizer {where}: the chat template '{name[:40]}' has {len(template)} characters; "
                f"packer takes up to {MAX_TEMPLATE_BYTES}",
                hint="give another one with --template FILE",
            )
    return named.get("default"), named.get("tool_use")


def _named_templates(value: Any, where: Path) -> dict[str, str]:
    """Templates as older versions of transformers wrote several: a list of objects."""
    entries = value if isinstance(value, list) else [None]
    named = {
        entry["name"]: entry["template"]
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)
    }
    if len(named) < len(entries):
        raise InputError(
            f"tokenizer {where}: {CONFIG_FILE}: chat_template: expected a text, or objects with name and template",
            hint="give a template with --template FILE, or mend the file",
        )
    return named


def _added_tokens(backend: Tokenizer, config: Mapping[str, Any], where: Path) -> tuple[AddedToken, ...]:
    declared = config.get("added_tokens_decoder") or {}
    try:
        contents = {int(key): str(entry["content"]) for key, entry in declared.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"tokenizer {where}: {CONFIG_FILE}: added_tokens_decoder: expected ids with an object that holds content"
        ) from None
    for token_id, content in contents.items():
        if backend.token_to_id(content) != token_id:
            raise InputError(
                f"tokenizer {where}: {CONFIG_FILE} gives '{content}' id {token_id}, "
                f"{TOKENIZER_FILE} gives it {backend.token_to_id(content)}",
                hint="load the folder with transformers and save it again, so that both files agree",
            )
    marked = {int(key) for key, entry in declared.items() if entry.get("special")}
    return tuple(
        AddedToken(
            id=token_id,
            content=token.content,
            special=token.special or token_id in marked,
            normalized=token.normalized,
            single_word=token.single_word,
            lstrip=token.lstrip,
            rstrip=token.rstrip,
        )
        for token_id, token in sorted(backend.get_added_tokens_decoder().items())
    )


def _named_tokens(config: Mapping[str, Any], where: Path) -> dict[str, Any]:
    named: dict[str, Any] = {
        name: _token_text(config[name], name, where) for name in _NAMED_TOKENS if config.get(name) is not None
    }
    additional = config.get("additional_special_tokens")
    if isinstance(additional, list):
        name = "additional_special_tokens"
        named[name] = [_token_text(entry, name, where) for entry in additional]
    return named


def _token_text(value: Any, name: str, where: Path) -> str:
    """The text of a token, which may stand as it is or in an object."""
    text = value.get("content") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise InputError(
            f"tokenizer {where}: {CONFIG_FILE}: {name}: expected a text, or an object with content, "
            f"found {type(value).__name__}"
        )
    return text


def _token_id(backend: Tokenizer, content: str, name: str, where: Path) -> int:
    token_id: int | None = backend.token_to_id(content)
    if token_id is None:
        raise InputError(f"tokenizer {where}: {name} '{content}' is not in its vocabulary")
    return token_id


def _stop_ids(
    backend: Tokenizer, files: Mapping[str, bytes], eos_id: int | None, stop: Sequence[str], where: Path
) -> tuple[int, ...]:
    ids = set() if eos_id is None else {eos_id}
    generation = _read_json(files, GENERATION_FILE, where).get("eos_token_id")
    for token_id in generation if isinstance(generation, list) else [generation]:
        if token_id is None:
            continue
        if type(token_id) is not int or not 0 <= token_id < MAX_IDS or backend.id_to_token(token_id) is None:
            raise InputError(
                f"tokenizer {where}: {GENERATION_FILE}: eos_token_id {token_id!r} is not in its vocabulary"
            )
        ids.add(token_id)
    ids |= {_token_id(backend, content, "supervision.stop", where) for content in stop}
    return tuple(sorted(ids))


def _pad_id(backend: Tokenizer, named: Mapping[str, Any], stop_ids: Sequence[int], where: Path) -> int:
    if "pad_token" in named:
        return _token_id(backend, named["pad_token"], "pad_token", where)
    return stop_ids[0] if stop_ids else 0
