"""Build from Python: rows, files or a recipe in; a cache and a printable result out.

A call is translated to a recipe: rows are written to files (:mod:`packer.pipeline.kept_rows`) that become its sources,
and keyword options become its keys.
"""

import os
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import msgspec

from packer.display import Lines, Progress, Silent, with_urls
from packer.errors import CheckError, InputError, NothingKeptError, PackerError, RecipeError
from packer.pipeline.documents import Build, target_folder
from packer.pipeline.kept_rows import ArrowData, is_arrow, keep_rows, remove_rows, rows_folder
from packer.pipeline.messages.build_result import BuildResult
from packer.pipeline.run import build_recipe
from packer.pipeline.workers.executor import workers_on
from packer.recipe.named_options import NAMED_OPTIONS, in_python
from packer.recipe.recipe import Recipe, Source, load_recipe, make_recipe, template_key, to_json
from packer.source.schema import VOTING_FIELDS

PathName: TypeAlias = str | os.PathLike[str]

RowsOfSplit: TypeAlias = Iterable[Mapping[str, Any]] | ArrowData
"""Rows of one split. For type checkers a `datasets.Dataset` is an iterable of mappings; it is read as Arrow data."""

Data: TypeAlias = PathName | Iterable[PathName] | RowsOfSplit | Mapping[str, RowsOfSplit] | Recipe | Mapping[str, Any]


class RecipeKeys(TypedDict, total=False):
    """Keys of a recipe and of all its sources, under the recipe's own names; nested ones are dicts."""

    tokenizer: PathName
    template: Mapping[str, Any] | PathName
    pack: Mapping[str, Any]
    supervision: Mapping[str, Any]
    rows: Mapping[str, Any]
    text: Mapping[str, Any]
    media: Mapping[str, Any]
    token_columns: Mapping[str, Mapping[str, Any]]
    document_columns: Mapping[str, Mapping[str, Any]]
    filters: Sequence[Mapping[str, Any]]
    decontaminate: Mapping[str, Any]
    deduplicate: Mapping[str, Any]
    engine: Literal["auto", "reference", "fast"]
    read: Mapping[str, Any]
    partition_bytes: int | str
    shard_bytes: int | str
    schema: str
    columns: Mapping[str, str | None]
    roles: Mapping[str, str]
    ignore: Sequence[str]
    where: Mapping[str, Any]
    take: Mapping[str, Any]
    split: str | Mapping[str, Any]
    """The split that the sources belong to, or the recipe's rule that assigns rows to splits."""

    format: str
    limit: int
    history: Literal["exact", "last", "as_rendered"]
    block_len: int


SOURCE_KEYS = ("schema", "columns", "roles", "ignore", "where", "take", "split", "format", "limit")
"""Options that are keys of sources."""


def build(
    data: Data,
    out: PathName,
    *,
    jobs: int | None = None,
    on: str | None = None,
    fail_above: float | None = None,
    force: bool = False,
    repair: bool = False,
    dry_run: bool = False,
    progress: bool | Progress | None = True,
    **options: Unpack[RecipeKeys],
) -> BuildResult:
    """Build a cache, or bring it up to date, from rows, files or a recipe.

    Rows in memory are first written to ``OUT.rows/``, so that the cache names inputs that can be read again. They are
    iterated once and never held in memory as a whole. Building the same rows again finds the cache up to date.

    Example:
        >>> rows = [{"messages": [...]}, ...]  # doctest: +SKIP
        >>> packer.build(rows, "cache", tokenizer="ORG/MODEL", block_len=2048)  # doctest: +SKIP
        >>> packer.build("data/*.jsonl", "cache", tokenizer="path/to/model", schema="sharegpt")  # doctest: +SKIP
        >>> packer.build("recipe.yaml", "cache", block_len=8192)  # doctest: +SKIP

    Args:
        data: rows: an iterable of dicts, a `datasets.Dataset`, or an object that exports Arrow data, such as a pyarrow
            table or a pandas or polars data frame; or a dict of these by split, such as a `DatasetDict`. Or files: a
            path or pattern, or a list of them. Or a recipe: a :class:`packer.Recipe`, a dict of its keys, or the path
            of a ``.yaml``.
        out: folder of the cache; created if it does not exist.
        jobs: number of processes; by default one for each processor, or fewer if the input is small. They do not import
            the calling script, so it needs no ``if __name__ == "__main__":``. The bytes do not depend on it.
        on: ``ray`` builds on the Ray cluster of this machine or of ``RAY_ADDRESS``; `jobs` is then the number of
            concurrent tasks. All nodes must see the inputs and the cache under the same paths, or both must be in
            buckets.
        fail_above: the largest share of rows that may be rejected, and of tokens that may be in no block; None allows
            any share of rows and a tenth of the tokens. If more is left out, nothing is committed; finished work is
            kept for a build that allows it.
        force: replace a cache that was built by another recipe or from other inputs.
        repair: verify every byte of the existing cache, and rebuild what is damaged.
        dry_run: only report what would be done.
        progress: True reports on stderr, in notebooks too; False or None is silent; or an object that receives
            progress.
        options: keys of the recipe, which take precedence over `data`'s own: ``tokenizer``, ``template``,
            ``pack={"align": 8}``, ``supervision={…}``; of all its sources: ``schema``, ``columns``, ``roles``,
            ``ignore``, ``where``, ``take``, ``split``, ``format``, ``limit``; and as options of the command do,
            ``history`` and ``block_len``.

    Returns:
        The result of the build; it prints as ``packer build`` does, and has ``fingerprint``, ``manifest`` and
        ``cache``.

    Raises:
        PackerError: see :mod:`packer.errors`; nothing of an existing cache is lost.
        TypeError: `data` or one of its rows has an unsupported type.
    """
    folder = Path(_path("out", out, "the folder of a cache"))
    listener = Lines() if progress is True else progress or Silent()
    try:
        recipe, rows = _recipe_and_rows(data, dict(options))
        # Rows are kept on this machine even for a cache in a bucket.
        beside = target_folder(folder, is_dry=True) if rows else folder
        if rows and recipe.tokenizer is None:
            raise RecipeError("no tokenizer", hint="name the model's: tokenizer='ORG/MODEL', or its folder")
        with _kept(recipe, rows, beside, listener.note, dry_run=dry_run) as of_files:
            result = build_recipe_with(
                of_files,
                folder,
                listener,
                jobs=jobs,
                on=on,
                fail_above=fail_above,
                force=force,
                repair=repair,
                dry_run=dry_run,
            )
            if rows and result.manifest is not None and not dry_run:
                remove_rows(rows_folder(beside), but=[entry.path for entry in result.manifest.inputs])
            return result
    except PackerError as error:
        if error.hint is not None:  # it names options of the command
            error.hint = in_python(error.hint, [*RecipeKeys.__annotations__, "jobs", "on", "fail_above"])
        raise


def build_recipe_with(
    recipe: Recipe, folder: Path, listener: Progress, *, jobs: int | None, on: str | None, **rules: Any
) -> BuildResult:
    """Build a recipe in a folder on workers; the hints of its errors name options of the command."""
    with workers_on(on, jobs, listener.note) as workers:
        return build_recipe(recipe, Build(folder=folder, progress=listener, workers=workers, **rules))


def _recipe_and_rows(data: Any, options: dict[str, Any]) -> tuple[Recipe, list[Any]]:
    """Translate `data` and the options to a recipe; if `data` is rows, also return them, one entry for each source."""
    if isinstance(data, Recipe) and not options:
        return data, []
    options = {key: _option(key, value) for key, value in options.items()}
    for name in options.keys() & NAMED_OPTIONS.keys() - set(SOURCE_KEYS):
        group, key = NAMED_OPTIONS[name].key.split(".")
        options[group] = {**options.get(group, {}), key: options.pop(name)}
    keys = [key for key in SOURCE_KEYS if key in options and not (key == "split" and isinstance(options[key], Mapping))]
    of_sources = {key: options.pop(key) for key in keys}
    recipe = _recipe_values(data)
    if recipe is not None:
        if of_sources and isinstance(recipe.get("sources"), list):
            recipe["sources"] = [each | of_sources if type(each) is dict else each for each in recipe["sources"]]
        nested = {key: {**(recipe.get(key) or {}), **value} for key, value in options.items() if type(value) is dict}
        return make_recipe({**recipe, **options, **nested}), []
    paths = [data] if isinstance(data, str | os.PathLike) else _paths(data)
    if paths is not None:
        sources = [{**of_sources, "path": _path("data", path, "paths of files, or rows")} for path in paths]
        return make_recipe({**options, "sources": sources}), []
    if not isinstance(data, Mapping):
        data = {of_sources.pop("split", None) or "train": data}
    elif named := sorted(data.keys() & VOTING_FIELDS):
        raise _wrong(f"data is a dict with the fields of a row: {', '.join(named)}", "pass a list of rows: [row]")
    elif "split" in of_sources:
        raise RecipeError("split: the rows are already given by split", hint="leave it out")
    rows = [_rows(rows) for rows in data.values()]
    sources = [{**of_sources, "path": "rows", "split": str(split)} for split in data]
    return make_recipe({**options, "sources": sources}), rows


def _recipe_values(data: Any) -> dict[str, Any] | None:
    """Return the values of a recipe; None if `data` is not a recipe."""
    if isinstance(data, Recipe):
        return to_json(data)
    if isinstance(data, str | os.PathLike) and Path(data).suffix in (".yaml", ".yml"):
        return to_json(load_recipe(os.fspath(data)))
    if isinstance(data, Mapping):
        keys = data.keys() & set(Recipe.__struct_fields__)
        if "sources" in keys or any(not _are_rows(data[key]) for key in keys):  # a split may be called `text`
            return {key: _option(key, value) for key, value in data.items()}
    return None


def _paths(data: Any) -> list[Any] | None:
    """Return a list of paths; None if `data` is something else."""
    is_list = isinstance(data, Sequence) and not is_arrow(data)
    return list(data) if is_list and data and isinstance(data[0], str | os.PathLike) else None


def _rows(data: Any) -> Any:
    """Return the rows of a split, if they can be iterated; TypeError if not."""
    if _are_rows(data):
        return data
    raise _wrong(
        f"data is {reprlib.repr(data)}; expected rows, files or a recipe",
        "rows are a list of dicts, a datasets.Dataset, an Arrow table or a data frame; files are paths; "
        "one row is a list of one: [row]",
    )


def _are_rows(data: Any) -> bool:
    return is_arrow(data) or (isinstance(data, Iterable) and not isinstance(data, str | bytes | os.PathLike | Mapping))


@contextmanager
def _kept(
    recipe: Recipe, rows: Sequence[Any], cache: Path, note: Callable[[str], None], *, dry_run: bool
) -> Iterator[Recipe]:
    """Write rows to files; yield the recipe with these files in place of its placeholder sources.

    The new files are removed after a dry run, and if the build fails before it depends on them. They are kept for an
    error that names one of them, so that the user can look at it, and for one about what was built of them.
    """
    if not rows:
        yield recipe
        return
    folder = rows_folder(cache)
    there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    sources: list[Source] = []
    stays = False
    try:
        for source, own in zip(recipe.sources, rows, strict=True):
            path = keep_rows(own, folder, split=source.split or "train", limit=source.limit, note=note)
            sources.append(msgspec.structs.replace(source, path=path.as_posix(), limit=None))
        yield msgspec.structs.replace(recipe, sources=tuple(sources))
        stays = not dry_run
    except (InputError, CheckError) as error:
        is_named = any(with_urls(source.path) in with_urls(str(error)) for source in sources)
        is_about_rows = is_named or isinstance(error, CheckError | NothingKeptError)
        stays = is_about_rows and len(sources) == len(rows) and not dry_run
        raise
    finally:
        if not stays:
            remove_rows(folder, but=there)


def _option(key: str, value: Any) -> Any:
    """Convert a key's value to its form in a recipe: paths to strings; a template to its name or file."""
    if key == "tokenizer" and value is not None:
        return _path(key, value, "the name of the model's tokenizer, or its folder")
    if key == "template" and isinstance(value, str | os.PathLike):
        return template_key(os.fspath(value))
    return _written(value)


def _written(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: _written(item) for key, item in value.items()}
    return [_written(item) for item in value] if isinstance(value, list | tuple) else value


def _path(name: str, value: Any, expected: str) -> str:
    """Return a path as a string; TypeError if it is something else, such as a tokenizer object."""
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    folder = getattr(value, "name_or_path", None) or "DIR"
    way = f"give tokenizer={folder!r}; if an object was changed in memory, call save_pretrained(DIR) first"
    hint = way if name == "tokenizer" else "pass a str or a pathlib.Path"
    raise _wrong(f"{name} is {reprlib.repr(value)}; expected {expected}", hint)


def _wrong(message: str, hint: str) -> TypeError:
    error = TypeError(message)
    error.add_note(f"hint: {hint}")
    return error
