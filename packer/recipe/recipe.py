"""The recipe: everything that determines the bytes of a cache, typed and strict.

A recipe has two halves. Changing the *documents half* (sources, tokenizer, template, supervision, …) means tokenizing
again; changing the *blocks half* (``pack``, ``shard_bytes``) only means packing again. Paths, job counts and folders
are not part of a recipe's identity; see :mod:`packer.pipeline.identity`. `recipe_keys.yaml` has a line about every
key; the docstrings here cover what needs more than a line.
"""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from packer.errors import RecipeError
from packer.named_templates import NAMED_TEMPLATES, template_path
from packer.names import SplitName, is_address, refuse_credentials
from packer.recipe import ROW_SCHEMAS
from packer.recipe.groups import (
    EVERY_KEY,
    ColumnRules,
    Pack,
    PositiveInt,
    Read,
    Supervision,
    declared,
    wrong_columns,
)
from packer.recipe.named_options import also_of_all, of_one_source
from packer.recipe.row_rules import (
    Condition,
    Decontaminate,
    Deduplicate,
    Filter,
    MediaRules,
    RowRules,
    Split,
    Take,
    fields_of,
)
from packer.recipe.strict_yaml import explain, load_mapping, parse_yaml

RowBytes = Annotated[int, Meta(ge=1, le=2**30)]
"""A limit for one row. It has a limit itself: rows are held whole, several times over, and recipes may be anybody's."""

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

_WITHDRAWN = {
    "unknown key 'text.fim'": "cut texts before a build, and give the ids of their parts and marks, with labels: "
    "docs/how-to/token-rows.md#fill-in-the-middle",
}
"""What to do in place of a key that packer had until 1.0.0."""

SCHEMA_CHOICES = ("auto", *ROW_SCHEMAS)


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of ``sources``: a path or glob and how to read it."""

    path: str
    split: SplitName | None = None
    format: Literal["auto", "jsonl", "json", "csv", "tsv", "parquet", "arrow"] = "auto"
    schema: str = "auto"
    columns: dict[str, str | None] = {}
    roles: dict[str, Literal["system", "developer", "user", "assistant", "tool", "reasoning"]] = {}
    ignore: tuple[str, ...] = ()
    """What a build need not ask about: fields that nothing reads, such as ``metadata.notes`` and ``messages[].apis``,
    and blocks with which answers begin, and that are trained as they stand, such as ``<plan>...</plan>``.
    """

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


def template_key(text: str) -> dict[str, str | None]:
    """Return the keys of `template` for a value of `--template`, which is a name or a file.

    Write `./NAME` for a file that is called like a named template.

    Example:
        >>> template_key("chatml")
        {'name': 'chatml', 'file': None}
    """
    if text in NAMED_TEMPLATES:
        return {"name": text, "file": None}
    return {"name": None, "file": text}


class Rows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_bytes: RowBytes = 64 * 2**20
    max_render_bytes: RowBytes = 64 * 2**20
    empty_user: Literal["reject", "keep"] = "reject"
    call_ids: Literal["short", "named", "as_given"] | None = None
    """None means ``as_given``, but a build sets another if all rows with calls, or with results, need it
    (:mod:`packer.pipeline.plan.open_keys`)."""
    wrapped: Literal["unwrap"] | None = None


class Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    append_eos: bool = True


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
    token_columns: ColumnRules = {}
    document_columns: ColumnRules = {}
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
    def chooses_rows(self) -> bool:
        """Whether it has any rule that chooses rows."""
        of_sources = (bool(source.where or source.take) for source in self.sources)
        return bool(self.filters or self.decontaminate or self.deduplicate or self.split) or any(of_sources)

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

    def known_fields(self, source: Source) -> frozenset[str]:
        """Return fields of a source that need not be asked about: they are ignored, or rules or columns read them."""
        of_rules = fields_of(self.filters, self.split, source.where) if self.chooses_rows else ()
        return frozenset(
            {*source.ignore, *of_rules, *(each.field for each in declared(self) if each.rule.file is None)}
        )

    def documents_half(self) -> dict[str, Any]:
        """Return the JSON of the documents half, with every default written out and without file names.

        Identities contain the engine's resolved name and version rather than the requested one. Keys left open give the
        same documents as the values that they mean here; builds have settled or checked them before.
        """
        whole = to_json(self)
        half = {key: whole[key] for key in ("rows", "supervision", "text")}
        half["template"] = {key: whole["template"].get(key) for key in ("date", "kwargs")}
        half["supervision"] |= {
            name: whole["supervision"].get(name) or meant
            for name, meant in (("history_rewrite", "exact"), ("on_prompt_mismatch", "refuse"))
        }
        if half["rows"].get("call_ids") == "as_given":
            del half["rows"]["call_ids"]
        if self.reads_images:
            half["media"] = {name: value for name, value in whole["media"].items() if name != "root"}
        return half | self._columns(of_rows=True)

    def blocks_half(self) -> dict[str, Any]:
        """Return the JSON of the blocks half and of the reader's rules, with every default written out."""
        whole = to_json(self)
        half = {key: whole.get(key, {}) for key in ("pack", "shard_bytes", "read")}
        return half | self._columns(of_rows=False)

    def _columns(self, *, of_rows: bool) -> dict[str, Any]:
        """Return the columns whose values are in the rows, or those in files, without the files' names."""
        own = [each for each in declared(self) if (each.rule.file is None) == of_rows]
        rules = {each.name: [each.of_tokens, {**to_json(each.rule), "file": None}] for each in own}
        return {"columns": rules} if rules else {}


def to_json(value: msgspec.Struct) -> dict[str, Any]:
    """Convert a struct to plain JSON values, with every default written out.

    Of a recipe, keys that are null or empty are left out, so that a key which a later version adds changes no manifest
    and no fingerprint.
    """
    plain: dict[str, Any] = _without_empty(value) if isinstance(value, Recipe) else _plain(value)
    return plain


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _without_empty(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_without_empty(each) for each in value]
    if not isinstance(value, msgspec.Struct) or value.__struct_config__.omit_defaults:
        return _plain(value)
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    plain = {key: _without_empty(getattr(value, name)) for key, name in names}
    return {key: own for key, own in plain.items() if own is not None and own not in ([], {})}


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
    columns = [group for key in ("token_columns", "document_columns") if isinstance(group := values.get(key), dict)]
    for rule in (rule for group in columns for rule in group.values()):
        if isinstance(rule, dict) and "file" in rule:
            rule["file"] = relative(rule["file"])
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
        raise RecipeError(f"{where}: a value is nested too deep", hint=EVERY_KEY) from None
    for override in overrides:
        _apply(merged, override)
    for key in ("partition_bytes", "shard_bytes", "rows.max_bytes", "rows.max_render_bytes"):
        group, _, name = key.rpartition(".")
        _parse_size(merged.get(group) if group else merged, name, key)
    try:
        recipe = msgspec.convert(merged, Recipe)
        # template.kwargs may hold anything YAML can say, and a recipe is JSON. A template that writes a mapping shows
        # the order of its keys; a manifest does not keep it, so there is one order.
        kwargs = msgspec.json.decode(msgspec.json.encode(recipe.template.kwargs, order="sorted"))
        recipe = msgspec.structs.replace(recipe, template=msgspec.structs.replace(recipe.template, kwargs=kwargs))
        _refuse_credentials(to_json(recipe), where)
    except msgspec.ValidationError as error:
        said, hint = explain(str(error), Recipe, EVERY_KEY)
        raise RecipeError(f"{where}: {said}", hint=_WITHDRAWN.get(said, hint)) from None
    except UnicodeEncodeError as error:
        raise RecipeError(f"{where}: {error.object!r} is not UTF-8", hint="rename it") from None
    except (OverflowError, RecursionError, TypeError):
        raise RecipeError(f"{where}: a value is too large, contains itself, or is not JSON", hint=EVERY_KEY) from None
    given = sorted({"messages", "tools", "add_generation_prompt"} & set(recipe.template.kwargs))
    if given:
        raise RecipeError(
            f"{where}: template.kwargs.{given[0]}: packer sets this variable itself",
            hint="template.kwargs is for variables of the template's own, such as enable_thinking",
        )
    _check_names(recipe, where)
    of_rows = recipe.row_rules.wrong() if recipe.chooses_rows else ()
    rules = (recipe.pack.wrong(), recipe.read.wrong(), of_rows, wrong_columns(recipe))
    for said, hint in chain(*rules):
        raise RecipeError(f"{where}: {said}", hint=hint)
    try:
        dt.date.fromisoformat(recipe.template.date)
    except ValueError as error:
        raise RecipeError(f"{where}: template.date: {error}", hint="a date such as 2026-01-01") from None
    return recipe


def _parse_size(values: Any, name: str, key: str) -> None:
    """Replace a size such as 64MiB by its number of bytes, in place; `key` is that of the whole recipe."""
    text = values.get(name) if isinstance(values, dict) else None
    if not isinstance(text, str):
        return
    match = re.fullmatch(r"([0-9]{1,4000})\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise RecipeError(f"{key}: expected a size such as 64MiB, found '{text}'")
    values[name] = int(match[1]) * _UNITS[match[2].upper()]


def for_one_source(hint: str, recipe: Recipe, number: int) -> str:
    """Return a hint about one source so that it says nothing about others."""
    if len(recipe.sources) < 2:
        return hint
    return also_of_all(of_one_source(hint, number, recipe.sources[number].ignore))


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
    for i, source in enumerate(recipe.sources):
        for name in (name for name in source.roles if "..." in name):
            raise RecipeError(
                f"{where}: sources[{i}].roles: '{name}' is no name of a role",
                hint="move reasoning to a field of its answer, as docs/how-to/exports.md#beginnings-of-texts shows; "
                "`ignore` can name a block that is said to the user",
            )
    for key, name, known in named:
        if name not in known:
            raise RecipeError(f"{where}: {key}: expected {' | '.join(known)}, found '{name}'", hint=EVERY_KEY)


def _apply(values: dict[str, Any], override: str) -> None:
    path, separator, text = override.partition("=")
    if not separator or not path:
        raise RecipeError(f"--set {override}: expected KEY=VALUE", hint="for example --set pack.block_len=2048")
    *parents, last = path.split(".")
    one = re.fullmatch(r"sources\[(\d+)\]", parents[0]) if parents else None
    parents[:1] = ["sources"] if one else parents[:1]
    if parents[:1] == ["sources"] and not values.get("sources"):
        raise RecipeError(f"{override.partition('=')[0]}: there are no sources", hint="name files, or a recipe with -c")
    targets = [values]
    for depth, parent in enumerate(parents):
        inner = [target.setdefault(parent, {}) for target in targets]
        if depth == 0 and parent == "sources":
            # One word for all sources: sources.schema=messages.
            inner = [entry for entries in inner for entry in (entries if isinstance(entries, list) else [entries])]
            inner = inner if one is None else inner[int(one[1]) :][:1]
            if not inner:
                raise RecipeError(f"--set {override}: there is no such source", hint="sources[0] is the first")
        if not all(isinstance(target, dict) for target in inner):
            raise RecipeError(f"--set {override}: '{parent}' has no keys")
        targets = inner
    for target in targets:
        target[last] = parse_yaml(text, f"--set {override}")
