"""The model a cache is made for, as far as its tokenizer folder describes it: chat template, stop ids, control tokens.

The files are read as bytes, and their digests are part of a cache's identity. Files that contradict each other are
refused before anything is built.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from packer.errors import InputError, RecipeError, did_you_mean, near, near_paths
from packer.host.files import is_panic, out_of, refuse_many_values
from packer.media.processor import PROCESSOR_FILES, with_loaded_tokenizer
from packer.model.backend import definition_of, load_backend, vocabulary_of
from packer.model.tokenizer_folder import MAX_IDS, MAX_TEMPLATE_BYTES, checked_vocab_size, read_folder, read_regular
from packer.named_templates import NAMED_TEMPLATES

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
TOOL_TEMPLATE_FILE = "chat_template_tool_use.jinja"
GENERATION_FILE = "generation_config.json"

_TOOL_USE_FILE = "additional_chat_templates/tool_use.jinja"

FOLDER_FILES = (TOKENIZER_FILE, CONFIG_FILE, TEMPLATE_FILE, GENERATION_FILE, TOOL_TEMPLATE_FILE, _TOOL_USE_FILE)
"""Files that are read from a tokenizer folder; only the first is required."""


class _Token(msgspec.Struct, frozen=True):
    """A token written as an object in a configuration."""

    content: str
    special: Any = False


class _NamedTemplate(msgspec.Struct, frozen=True):
    name: str
    template: str


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a `tokenizer_config.json` that matter here."""

    bos_token: str | _Token | None = None
    eos_token: str | _Token | None = None
    unk_token: str | _Token | None = None
    sep_token: str | _Token | None = None
    pad_token: str | _Token | None = None
    cls_token: str | _Token | None = None
    mask_token: str | _Token | None = None
    additional_special_tokens: list[str | _Token] | dict[str, Any] | str | None = None
    added_tokens_decoder: dict[int, _Token] | None = None
    chat_template: str | list[_NamedTemplate] | dict[str, str] | None = None
    """Older versions of transformers wrote several templates as a list. They read an object of templates, too."""


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

    @property
    def is_text(self) -> bool:
        """Whether any text may contain it: white space, as the line breaks of Gemma 3, or a word."""
        visible = self.content.strip()
        return not visible or visible.isalnum()


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What the stages need to know of a tokenizer folder."""

    files: Mapping[str, bytes]
    """Bytes by canonical file name: enough to load the model again, and stored in the cache."""

    template: str | None
    tool_template: str | None
    """A separate template for rows with tools, if the folder has one."""

    named_tokens: Mapping[str, Any]
    """`bos_token`, `eos_token`, … as variables for the template; only those that are set."""

    added_tokens: tuple[AddedToken, ...]
    vocab_size: int
    """One more than the largest id."""

    eos_id: int | None
    pad_id: int
    stop_ids: tuple[int, ...]
    """Ids at which generation stops, sorted."""

    control: Mapping[str, int]
    """Ids of the control tokens, by text."""

    processor: str | None = None
    """Identity of what the model's processor makes of images; None if no images are read."""

    image_ids: tuple[int, ...] = ()
    """Ids of the tokens that the processor repeats for an image."""

    def content(self, token_id: int) -> str:
        """Return the text of an added token, or a vocabulary entry as the tokenizer spells it."""
        for token in self.added_tokens:
            if token.id == token_id:
                return token.content
        vocabulary = vocabulary_of(definition_of(self.files[TOKENIZER_FILE]))
        return next(piece for piece, i in vocabulary.items() if i == token_id)

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts of the stop ids, in the order of `stop_ids`."""
        return tuple(self.content(token_id) for token_id in self.stop_ids)

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of each file, by name."""
        return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(self.files.items())}

    def with_control(self, markers: Mapping[str, int]) -> "Model":
        """Return the same model with the role markers that a template writes as further control tokens."""
        return replace(self, control=dict(sorted({**self.control, **markers}.items())))

    def with_stop(self, *texts: str) -> "Model":
        """Return the same model with added tokens of these texts as further stop tokens."""
        ids = {token.content: token.id for token in self.added_tokens if token.content in texts}
        return replace(self, stop_ids=tuple(sorted({*self.stop_ids, *ids.values()}))).with_control(ids)


def load_model(
    tokenizer: Path,
    *,
    template: Path | None = None,
    stop: Sequence[str] = (),
    pad_id: int | None = None,
    processor: bool = False,
) -> Model:
    """Read a tokenizer folder, or a bare `tokenizer.json`.

    Args:
        tokenizer: folder with `tokenizer.json`, or that file alone (then nothing else is known about the model).
        template: a chat template file that replaces the folder's own.
        stop: texts of additional stop tokens; each must be a single token.
        pad_id: id used for padding; by default the pad token, else the first stop id, else 0.
        processor: read the files of the model's processor, too.
    """
    files = read_model_files(tokenizer, template=template, processor=processor)
    return model_of(files, tokenizer, stop=stop, pad_id=pad_id)


def model_of(
    files: Mapping[str, bytes], tokenizer: Path, *, stop: Sequence[str] = (), pad_id: int | None = None
) -> Model:
    """Build a model from the result of :func:`read_model_files`; `tokenizer` names it in errors."""
    backend = _load_tokenizer(files[TOKENIZER_FILE], tokenizer)
    definition = definition_of(files[TOKENIZER_FILE])
    vocab_size = checked_vocab_size(definition, backend, tokenizer)
    config = _read_config(files, tokenizer)
    added = _added_tokens(backend, config, tokenizer)
    named = _named_tokens(config)
    eos_id = _token_id(backend, named["eos_token"], "eos_token", tokenizer) if "eos_token" in named else None
    stop_ids = _stop_ids(backend, files, eos_id, stop, tokenizer)
    contents = {token.id: token.content for token in added}
    control = {token.content: token.id for token in added if token.special}
    control |= {contents.get(i) or str(backend.id_to_token(i)): i for i in stop_ids}
    pad = pad_id if pad_id is not None else _pad_id(backend, named, stop_ids, tokenizer)
    if pad >= vocab_size:
        raise RecipeError(
            f"pack.pad_id {pad}: the vocabulary ends at {vocab_size - 1}",
            hint="leave it out to use the tokenizer's pad token",
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


def read_model_files(tokenizer: Path, *, template: Path | None = None, processor: bool = False) -> dict[str, bytes]:
    """Read all files that a model is loaded from, as bytes by name; templates are included under their canonical names.

    With `processor`, the tokenizer is what transformers makes of its file. The arguments are as of :func:`load_model`.
    """
    others = {name: TOOL_TEMPLATE_FILE if name == _TOOL_USE_FILE else name for name in FOLDER_FILES[1:]}
    others |= dict(zip(PROCESSOR_FILES, PROCESSOR_FILES, strict=True)) if processor else {}
    files = read_folder(tokenizer, TOKENIZER_FILE, others)
    main_template, tool_template = _templates(files, _read_config(files, tokenizer), tokenizer)
    if template is not None:
        main_template, tool_template = _read_template(template), None
    files = {name: content for name, content in files.items() if name not in (TEMPLATE_FILE, TOOL_TEMPLATE_FILE)}
    if main_template is not None:
        files[TEMPLATE_FILE] = main_template.encode()
    if tool_template is not None:
        files[TOOL_TEMPLATE_FILE] = tool_template.encode()
    try:
        return with_loaded_tokenizer(files, TOKENIZER_FILE) if processor else files
    except InputError:
        _load_tokenizer(files[TOKENIZER_FILE], tokenizer)  # which says more, if that is the file that cannot be read
        raise


def _decoded(files: Mapping[str, bytes], name: str) -> str | None:
    return files[name].decode() if name in files else None


_PROBE = "a 1"


def _load_tokenizer(content: bytes, where: Path) -> Tokenizer:
    try:
        backend = load_backend(content)
        backend.encode(_PROBE, add_special_tokens=False)  # some settings load, and then fail on every text
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise out_of(error) or InputError(f"tokenizer {where}: {TOKENIZER_FILE} cannot be loaded: {error}") from error
    return backend


def _read_json(files: Mapping[str, bytes], name: str, where: Path) -> dict[str, Any]:
    if name not in files:
        return {}
    try:
        refuse_many_values(files[name])
        value = json.loads(files[name])
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError(f"tokenizer {where}: {name} holds half of a surrogate pair") from None
    except ValueError as error:
        raise InputError(f"tokenizer {where}: {name} is not valid JSON: {error}") from error
    except RecursionError:
        raise InputError(f"tokenizer {where}: {name} is nested too deep") from None
    if not isinstance(value, dict):
        raise InputError(f"tokenizer {where}: {name}: expected an object, found {type(value).__name__}")
    return value


def _read_config(files: Mapping[str, bytes], where: Path) -> _Config:
    try:
        return msgspec.convert(_read_json(files, CONFIG_FILE, where), _Config, str_keys=True)
    except msgspec.ValidationError as error:
        raise InputError(
            f"tokenizer {where}: {CONFIG_FILE}: {error}", hint="fix the file; --template FILE gives another template"
        ) from None


def _read_template(path: Path) -> str:
    if not path.exists():
        raise InputError(
            f"template {path}: no such file",
            hint=did_you_mean(
                [*near(str(path), NAMED_TEMPLATES), *near_paths(path)],
                f"a template is a file, or one of packer's: {', '.join(NAMED_TEMPLATES)}",
            ),
        )
    content = read_regular(path, max_bytes=MAX_TEMPLATE_BYTES, what=f"template {path}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"template {path}: {error}", hint="a chat template is a Jinja file in UTF-8") from error


def _templates(files: Mapping[str, bytes], config: _Config, where: Path) -> tuple[str | None, str | None]:
    """Return the folder's template, and its template for rows with tools.

    As in transformers, a template file takes precedence over the configuration, and a list in the configuration
    contains named templates.
    """
    inline = config.chat_template
    if isinstance(inline, str | dict):
        named = {"default": inline} if isinstance(inline, str) else dict(inline)
    else:
        named = {each.name: each.template for each in inline or ()}
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
                hint="use another one with --template FILE",
            )
    return named.get("default"), named.get("tool_use")


def _added_tokens(backend: Tokenizer, config: _Config, where: Path) -> tuple[AddedToken, ...]:
    declared = config.added_tokens_decoder or {}
    for token_id, entry in declared.items():
        if (given := backend.token_to_id(entry.content)) != token_id:
            raise InputError(
                f"tokenizer {where}: {CONFIG_FILE} gives '{entry.content}' id {token_id}, "
                f"{TOKENIZER_FILE} gives it {given}",
                hint="load the folder with transformers and save it again, so that both files agree",
            )
    marked = {token_id for token_id, entry in declared.items() if entry.special}
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


def _named_tokens(config: _Config) -> dict[str, Any]:
    def text(token: str | _Token) -> str:
        return token if isinstance(token, str) else token.content

    tokens = {name: getattr(config, name) for name in _Config.__struct_fields__ if name.endswith("_token")}
    named: dict[str, Any] = {name: text(token) for name, token in tokens.items() if token is not None}
    if isinstance(config.additional_special_tokens, list):
        named["additional_special_tokens"] = [text(token) for token in config.additional_special_tokens]
    return named


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
