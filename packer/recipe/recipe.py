"""The recipe: everything that determines the bytes of a cache, typed and strict.

A recipe has two halves. Changing the *documents half* (sources, tokenizer, template, supervision, …) means tokenizing
again; changing the *blocks half* (``pack``, ``shard_bytes``) only means packing again. Paths, job counts and folders
are not part of a recipe's identity; see :mod:`packer.pipeline.identity`. `recipe_keys.yaml` has a line about every
key; the docstrings here cover what needs more than a line.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from packer.errors import RecipeError
from packer.named_templates import NAMED_TEMPLATES, template_path
from packer.names import SplitName, is_address, refuse_credentials
from packer.recipe.named_options import is_about_sources
from packer.recipe.read_rules import MAX_BLOCK_LEN, Read, Tokens, check_read
from packer.recipe.row_rules import Condition, Decontaminate, Deduplicate, Filter, MediaRules, RowRules, Split, Take
from packer.recipe.row_schemas import ROW_SCHEMAS
from packer.recipe.rule_checks import check_rules
from packer.recipe.strict_yaml import explain, load_mapping, parse_size, parse_yaml

PositiveInt = Annotated[int, Meta(ge=1, le=2**62)]
RowBytes = Annotated[int, Meta(ge=1, le=2**30)]
"""A limit for one row. It has a limit itself: rows are held whole, several times over, and recipes may be anybody's."""

SCHEMA_CHOICES = ("auto", *ROW_SCHEMAS)

_RULE_KEYS = ("media", "filters", "decontaminate", "deduplicate", "split", "read")
_LATER_KEYS = ("name", "call_ids", "wrapped", "roles", "where", "take", "ignore")
"""Keys added later, to the recipe or to its `template`, `rows` and sources. They are written only if set, so that older
manifests keep their bytes."""


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of ``sources``: a path or glob and how to read it."""

    path: str
    split: SplitName | None = None
    format: Literal["auto", "jsonl", "json", "csv", "tsv", "parquet", "arrow"] = "auto"
    schema: str = "auto"
    columns: dict[str, str | None] = {}
    roles: dict[str, Literal["system", "developer", "user", "assistant", "tool"]] = {}
    ignore: tuple[str, ...] = ()
    """Fields that nothing reads and that may be left out, such as ``metadata.notes`` and ``messages[].apis``."""

    limit: PositiveInt | None = None
    where: dict[str, Condition] = {}
    take: Take | None = None


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file: str | None = None
    name: str | None = None
    date: Annotated[str, Meta(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")] = "2026-01-01"
    kwargs: dict[str, Any] = {}

    @property
    def path(self) -> Path | None:
        """File that replaces the tokenizer's own template."""
        return template_path(self.name) if self.name else Path(self.file) if self.file else None


class Rows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_bytes: RowBytes = 64 * 2**20
    max_render_bytes: RowBytes = 64 * 2**20
    empty_user: Literal["reject", "keep"] = "reject"
    call_ids: Literal["short", "as_given"] | None = None
    """None means ``as_given``, but a build sets ``short`` if all rows with calls need it
    (:mod:`packer.pipeline.plan.open_keys`)."""
    wrapped: Literal["unwrap"] | None = None


DroppedKind = Literal["system", "user", "content", "reasoning", "tool_call", "tool_result", "tools"]


class Supervision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    turns: Literal["all", "last", "marked"] = "all"
    source: Literal["chat_server", "generation_tags"] = "chat_server"
    """What determines the trained tokens: the prompts that a chat server would render, or the template's
    `{% generation %}` blocks."""

    history_rewrite: Literal["exact", "last", "as_rendered"] | None = None
    """What to train if the template rewrites history. None means ``exact``, but a build stops and asks if that is
    costly."""

    on_prompt_mismatch: Literal["refuse", "common_prefix", "continue"] | None = None
    """What to do if a turn does not continue any prompt. None means ``refuse``, but a build sets ``continue`` if all
    rows of a source need it (:mod:`packer.pipeline.plan.open_keys`). ``common_prefix``: use the common prefix as the
    prompt. ``continue``: train the answer after its prompt, if that has opened the reasoning, or if the template writes
    the context differently once it is answered."""

    reasoning: Literal["as_given", "field", "inline"] = "as_given"
    """How reasoning is passed to the template. ``field``: as `reasoning_content`, including reasoning that a row has
    inline in tags such as `<think>`. ``inline``: in `<think>` tags before the text, including reasoning that a row has
    in a field; tags of a row that the template does not know are text."""

    stop: tuple[str, ...] = ()
    no_terminator: Literal["refuse", "append"] = "refuse"
    allow_dropped: tuple[DroppedKind, ...] = ()
    markers: Literal["refuse", "text"] = "refuse"
    """What to do about role markers such as `<|user|>` that are not a single token. ``text``: treat them as plain
    text."""

    control_tokens: Literal["text", "reject", "allow"] = "text"
    """What to do about control tokens typed in a message. ``text``: encode them as ordinary text outside assistant
    turns, and reject the row if they are inside one. ``reject``: always reject. ``allow``: always encode them as
    ordinary text."""


class Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    append_eos: bool = True


class Pack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Literal["isolated", "eos", "stream", "none"] = "isolated"
    """``isolated``: documents in a block cannot attend to each other. ``eos``: they can, with an EOS between them.
    ``stream``: one stream of documents, cut at every block boundary. ``none``: no blocks."""

    block_len: Tokens = 4096
    strategy: Literal["best_fit", "first_fit", "sequential"] = "best_fit"
    overlong: Literal["reject", "truncate_left", "truncate_right", "split"] = "reject"
    min_length: PositiveInt = 1
    max_documents: PositiveInt | None = None
    align: Tokens = 1
    """Round the slots of each document up to a multiple of this: 2·cp for context parallelism, tp for sequence
    parallelism."""

    pad_id: Annotated[int, Meta(ge=0)] | None = None
    group_documents: Annotated[int, Meta(ge=1, le=2**32 - 1)] = 10_000_000
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that determines the bytes of a cache; each field defaults to what a newcomer should get."""

    version: Literal[1] = 1
    sources: tuple[Source, ...] = ()
    tokenizer: str | None = None
    engine: Literal["auto", "reference", "fast"] = "auto"
    """``auto`` is resolved before a build begins; a cache's recipe names the engine that was used."""

    template: Template = Template()
    rows: Rows = Rows()
    partition_bytes: PositiveInt = 8 * 2**20
    supervision: Supervision = Supervision()
    text: Text = Text()
    media: MediaRules = MediaRules()
    filters: tuple[Filter, ...] = ()
    decontaminate: Decontaminate | None = None
    deduplicate: Deduplicate | None = None
    split: Split | None = None
    pack: Pack = Pack()
    shard_bytes: PositiveInt = 512 * 2**20
    read: Read = Read()

    @property
    def reads_images(self) -> bool:
        return self.media.images == "read"

    @property
    def row_rules(self) -> RowRules:
        """The rules that choose rows."""
        return RowRules(
            filters=self.filters,
            decontaminate=self.decontaminate,
            deduplicate=self.deduplicate,
            split=self.split,
            where=tuple(dict(sorted(source.where.items())) for source in self.sources),
            take=tuple(source.take for source in self.sources),
        )

    def documents_half(self) -> dict[str, Any]:
        """Return the JSON of the documents half, with every default written out and without file names.

        Identities contain the engine's resolved name and version rather than the requested one. Keys left open give the
        same documents as the values that they mean here; builds have settled or checked them before.
        """
        whole = to_json(self)
        half = {key: whole[key] for key in ("rows", "supervision", "text")}
        half["template"] = {key: whole["template"][key] for key in ("date", "kwargs")}
        half["supervision"] |= {
            name: whole["supervision"][name] or meant
            for name, meant in (("history_rewrite", "exact"), ("on_prompt_mismatch", "refuse"))
        }
        if half["rows"].get("call_ids") == "as_given":
            del half["rows"]["call_ids"]
        if self.reads_images:
            half["media"] = whole["media"]
        return half

    def blocks_half(self) -> dict[str, Any]:
        """Return the JSON of the blocks half and of the reader's rules, with every default written out."""
        whole = to_json(self)
        return {key: whole.get(key, {}) for key in ("pack", "shard_bytes", "read")}


def to_json(value: msgspec.Struct) -> dict[str, Any]:
    """Convert a struct to plain JSON values, with every default written out except for :data:`_LATER_KEYS`."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    if not isinstance(value, Recipe):
        return plain
    groups = [(group, _LATER_KEYS) for group in (plain["template"], plain["rows"], *plain["sources"])]
    for group, keys in [(plain, _RULE_KEYS), *groups]:
        for key in [key for key in keys if not group.get(key, True)]:
            del group[key]
    return plain


def recipe_keys() -> str:
    """Return a YAML recipe with every key, its default, and its possible values in a comment."""
    text = Path(__file__).with_name("recipe_keys.yaml").read_text("utf-8")
    return text.replace("ROW_SCHEMAS", " | ".join(ROW_SCHEMAS))


def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a YAML recipe and apply ``a.b=value`` overrides.

    Relative paths in the file are relative to its folder, and are returned joined with it.

    Raises:
        RecipeError: unreadable file, unknown or duplicate key, wrong type, value out of range.
    """
    path = Path(path)
    values = load_mapping(path, what="recipe ", hint="packer init DIR writes a starter recipe")
    _relocate(values, path.parent)
    return make_recipe(values, overrides, where=str(path))


def _relocate(values: dict[str, Any], folder: Path) -> None:
    """Join the relative paths of an untyped recipe with its folder."""

    def relative(path: Any) -> Any:
        if not isinstance(path, str) or path == "-" or is_address(path) or Path(path).is_absolute():
            return path
        return (folder / path).as_posix()

    benchmarks = values.get("decontaminate")
    lists = (values.get("sources"), benchmarks.get("against") if isinstance(benchmarks, dict) else None)
    for entry in (entry for each in lists if isinstance(each, list) for entry in each):
        if isinstance(entry, dict) and "path" in entry:
            entry["path"] = relative(entry["path"])
    if isinstance(values.get("tokenizer"), str) and (folder / values["tokenizer"]).exists():
        values["tokenizer"] = relative(values["tokenizer"])
    for group, name in (("template", "file"), ("media", "root")):
        keys = values.get(group)
        if isinstance(keys, dict) and name in keys:
            keys[name] = relative(keys[name])


def make_recipe(values: Mapping[str, Any], overrides: Sequence[str] = (), *, where: str = "recipe") -> Recipe:
    """Build a recipe from plain values and ``a.b=value`` overrides.

    Example:
        >>> make_recipe({}, ["pack.block_len=2048"]).pack.block_len
        2048

    Raises:
        RecipeError: unknown key, wrong type, value out of range.
        UsageError: an address in it holds credentials.
    """
    try:
        merged = deepcopy(dict(values))
    except RecursionError:
        raise RecipeError(f"{where}: a value is nested too deep", hint=_EVERY_KEY) from None
    for override in overrides:
        _apply(merged, override)
    for keys in (("partition_bytes",), ("shard_bytes",), ("rows", "max_bytes"), ("rows", "max_render_bytes")):
        parse_size(merged, keys)
    try:
        recipe = msgspec.convert(merged, Recipe)
        # template.kwargs may hold anything YAML can say, and a recipe is JSON. A template that writes a mapping shows
        # the order of its keys; a manifest does not keep it, so there is one order.
        kwargs = msgspec.json.decode(msgspec.json.encode(recipe.template.kwargs, order="sorted"))
        recipe = msgspec.structs.replace(recipe, template=msgspec.structs.replace(recipe.template, kwargs=kwargs))
        _refuse_credentials(to_json(recipe), where)
    except msgspec.ValidationError as error:
        said, hint = explain(str(error), Recipe, _EVERY_KEY)
        raise RecipeError(f"{where}: {said}", hint=hint) from None
    except UnicodeEncodeError as error:
        raise RecipeError(f"{where}: {error.object!r} is not UTF-8", hint="rename it") from None
    except (OverflowError, RecursionError, TypeError):
        raise RecipeError(f"{where}: a value is too large, contains itself, or is not JSON", hint=_EVERY_KEY) from None
    given = sorted({"messages", "tools", "add_generation_prompt"} & set(recipe.template.kwargs))
    if given:
        raise RecipeError(
            f"{where}: template.kwargs.{given[0]}: packer sets this variable itself",
            hint="template.kwargs is for variables of the template's own, such as enable_thinking",
        )
    _check_names(recipe, where)
    _check_pack(recipe.pack, where)
    check_read(recipe.read, where)
    check_rules(recipe.row_rules, where)
    try:
        dt.date.fromisoformat(recipe.template.date)
    except ValueError as error:
        raise RecipeError(f"{where}: template.date: {error}", hint="a date such as 2026-01-01") from None
    return recipe


def for_one_source(hint: str, recipe: Recipe) -> str:
    """Add to a hint about one source, where an option would set a key of all of several, how a recipe sets one."""
    if len(recipe.sources) < 2 or not is_about_sources(hint):
        return hint
    return f"{hint}; an option applies to all {len(recipe.sources)} sources: a recipe sets it for one, below its `path`"


def _refuse_credentials(value: Any, where: str, key: str = "") -> None:
    """Refuse addresses that hold credentials, wherever they are: caches keep their recipe."""
    if isinstance(value, str):
        refuse_credentials(value, where=f"{where}: {key}")
    elif isinstance(value, dict):
        for name, each in value.items():
            _refuse_credentials(each, where, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            _refuse_credentials(each, where, f"{key}[{number}]")


def _check_names(recipe: Recipe, where: str) -> None:
    """Refuse unknown schemas and templates, and a template given both by name and as a file."""
    named = [(f"sources[{i}].schema", source.schema, SCHEMA_CHOICES) for i, source in enumerate(recipe.sources)]
    if recipe.template.name is not None:
        named.append(("template.name", recipe.template.name, tuple(NAMED_TEMPLATES)))
        if recipe.template.file is not None:
            raise RecipeError(f"{where}: both template.name and template.file", hint="leave one of them out")
    for key, name, known in named:
        if name not in known:
            raise RecipeError(f"{where}: {key}: expected {' | '.join(known)}, found '{name}'", hint=_EVERY_KEY)


def _check_pack(pack: Pack, where: str) -> None:
    """Check that the rules of packing fit together.

    Raises:
        RecipeError: a rule that has no meaning with this mode or block length.
    """
    if pack.mode == "none":
        return
    if pack.align > 1 and pack.mode in {"eos", "stream"}:
        raise RecipeError(
            f"{where}: pack.align: in mode '{pack.mode}' a whole block is one sequence; only documents that are "
            "sequences of their own are padded",
            hint="--set pack.align=1, and make pack.block_len the multiple; or --set pack.mode=isolated",
        )
    if pack.block_len % pack.align:
        nearest = -(-pack.block_len // pack.align) * pack.align
        raise RecipeError(
            f"{where}: pack.align: {pack.align} does not divide pack.block_len {pack.block_len}",
            hint=f"--block-len {nearest}" if nearest <= MAX_BLOCK_LEN else _EVERY_KEY,
        )
    if pack.mode != "stream":
        if pack.min_length > pack.block_len:
            raise RecipeError(
                f"{where}: pack.min_length: {pack.min_length} is more than pack.block_len {pack.block_len}; "
                "nothing would be kept",
                hint="--set pack.min_length=1",
            )
        return
    meaningless = {"overlong": "reject"} if pack.overlong != "reject" else {}
    if pack.max_documents is not None:
        meaningless["max_documents"] = "null"
    if meaningless:
        keys = " and ".join(f"pack.{key}" for key in meaningless)
        raise RecipeError(
            f"{where}: {keys}: a stream is cut wherever a block ends, whatever is there",
            hint=" ".join(f"--set pack.{key}={value}" for key, value in meaningless.items()) + ", or pack.mode=eos",
        )


def _apply(values: dict[str, Any], override: str) -> None:
    path, separator, text = override.partition("=")
    if not separator or not path:
        raise RecipeError(f"--set {override}: expected KEY=VALUE", hint="for example --set pack.block_len=2048")
    *parents, last = path.split(".")
    if parents[:1] == ["sources"] and not values.get("sources"):
        raise RecipeError(f"{override.partition('=')[0]}: there are no sources", hint="name files, or a recipe with -c")
    targets = [values]
    for depth, parent in enumerate(parents):
        inner = [target.setdefault(parent, {}) for target in targets]
        if depth == 0 and parent == "sources":
            # One word for all sources: sources.schema=messages.
            inner = [entry for entries in inner for entry in (entries if isinstance(entries, list) else [entries])]
        if not all(isinstance(target, dict) for target in inner):
            raise RecipeError(f"--set {override}: '{parent}' has no keys")
        targets = inner
    for target in targets:
        target[last] = parse_yaml(text, f"--set {override}")


_EVERY_KEY = "packer explain recipe lists every key with its values"
