"""Building from Python: rows, files or a recipe in; a cache and a result that prints out.

A call comes down to a recipe: rows are put into files (:mod:`packer.pipeline.kept_rows`) and become its sources, and
keyword options are its keys.
"""

import os
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import msgspec

from packer.errors import CheckError, InputError, PackerError, RecipeError
from packer.named_templates import template_key
from packer.pipeline.build_result import BuildResult
from packer.pipeline.documents import BuildOptions
from packer.pipeline.kept_rows import ArrowData, brings_arrow, keep_rows, remove_rows, rows_folder
from packer.pipeline.ray_workers import workers_on
from packer.pipeline.reuse import refuse_foreign
from packer.pipeline.run import build_recipe
from packer.progress import Lines, Progress, Silent
from packer.recipe import Recipe, Source, load_recipe, make_recipe, to_json
from packer.source.schema import VOTING_FIELDS
from packer.store.place import build_place

PathName: TypeAlias = str | os.PathLike[str]

Rows: TypeAlias = Iterable[Mapping[str, Any]] | ArrowData
"""Rows of one split. A `datasets.Dataset` is one of the first kind for type checkers, and read as Arrow data."""

Data: TypeAlias = PathName | Iterable[PathName] | Rows | Mapping[str, Rows] | Recipe | Mapping[str, Any]


class Options(TypedDict, total=False):
    """Keys of a recipe, and of all its sources, by the recipe's own names; nested ones are dicts."""

    tokenizer: PathName
    template: Mapping[str, Any] | PathName
    pack: Mapping[str, Any]
    supervision: Mapping[str, Any]
    rows: Mapping[str, Any]
    text: Mapping[str, Any]
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
    where: Mapping[str, Any]
    take: Mapping[str, Any]
    split: str | Mapping[str, Any]
    """The name of the sources' split, or the recipe's rule that holds rows out."""

    format: str
    limit: int


SOURCE_KEYS = ("schema", "columns", "roles", "where", "take", "split", "format", "limit")
"""Options that belong to sources."""


def build(
    data: Data,
    out: PathName,
    *,
    jobs: int | None = None,
    on: str | None = None,
    on_error: Literal["reject", "fail"] = "reject",
    fail_above: float | None = None,
    force: bool = False,
    repair: bool = False,
    dry_run: bool = False,
    progress: bool | Progress | None = True,
    **options: Unpack[Options],
) -> BuildResult:
    """Build a cache, or bring it up to date, from rows, files or a recipe.

    Rows in memory are written to ``OUT.rows/`` first, read once and never held whole, so that the cache names inputs
    which can be read again; building the same rows again finds nothing to do.

    Example:
        >>> rows = [{"messages": [...]}, ...]  # doctest: +SKIP
        >>> packer.build(rows, "cache", tokenizer="ORG/MODEL", pack={"block_len": 2048})  # doctest: +SKIP
        >>> packer.build("data/*.jsonl", "cache", tokenizer="path/to/model", schema="sharegpt")  # doctest: +SKIP
        >>> packer.build("recipe.yaml", "cache", pack={"block_len": 8192})  # doctest: +SKIP

    Args:
        data: rows: an iterable of dicts, a `datasets.Dataset`, or what exports Arrow data, such as a pyarrow table or a
            data frame of pandas or polars; or a dict of these by split, such as a `DatasetDict`. Or files: a path or
            pattern, or several. Or a recipe: a :class:`packer.Recipe`, a dict of its keys, or the path of a ``.yaml``.
        out: folder of the cache; made if it is not there.
        jobs: processes; by default one for each processor, or fewer where the input is small. They do not import the
            script that builds, so that it needs no ``if __name__ == "__main__":``. The bytes do not depend on it.
        on: ``ray`` builds on the Ray cluster of this machine or of ``RAY_ADDRESS``, ``ray://HOST:PORT`` on another;
            `jobs` are tasks at a time then. All nodes see the inputs and the cache under the same paths, or both are in
            buckets.
        on_error: ``fail`` stops at the first rejected row.
        fail_above: the largest share of rows that may be rejected, and of tokens that may be in no block. Where more is
            left out, nothing is committed; what was made is kept for a build that allows it.
        force: replace a cache that was built by another recipe or from other inputs.
        repair: check every byte of what is there, and make again what is damaged.
        dry_run: only say what would be done.
        progress: True reports on stderr, in notebooks too; False or None says nothing; or what listens.
        options: keys of the recipe, which take precedence over `data`'s own: ``tokenizer``, ``template``,
            ``pack={"block_len": 2048}``, ``supervision={…}``; and, unless `data` is a recipe, of its sources:
            ``schema``, ``columns``, ``roles``, ``where``, ``take``, ``split``, ``format``, ``limit``.

    Returns:
        What was done; it prints as ``packer build`` does, and has ``fingerprint``, ``manifest`` and ``cache``.

    Raises:
        PackerError: see :mod:`packer.errors`; nothing of an existing cache is lost.
        TypeError: `data` or one of its rows is something else.

    """
    folder = Path(_path("out", out, "the folder of a cache"))
    listener = Lines() if progress is True else progress or Silent()
    with _hints_for_python():
        recipe, rows = _asked(data, dict(options))
        # Rows are kept on this machine, also for a cache in a bucket.
        beside = build_place(folder, is_dry=True) if rows else folder
        if rows:
            if recipe.tokenizer is None:
                raise RecipeError("no tokenizer", hint="name the model's: tokenizer='ORG/MODEL', or its folder")
            refuse_foreign(beside)
        with _kept(recipe, rows, rows_folder(beside), listener, dry_run=dry_run) as of_files:
            with workers_on(on, jobs, listener.note) as workers:
                how = BuildOptions(
                    workers=workers,
                    copies_inputs=on is None,
                    on_error=on_error,
                    fail_above=fail_above,
                    force=force,
                    repair=repair,
                    dry_run=dry_run,
                )
                result = build_recipe(of_files, folder, how, listener)
            if rows and result.manifest is not None and not dry_run:
                remove_rows(rows_folder(beside), but=[entry.path for entry in result.manifest.inputs])
            return result


@contextmanager
def _hints_for_python() -> Iterator[None]:
    """Hints name options of the command line, where most are read: say how a call has them."""
    try:
        yield
    except PackerError as error:
        if error.hint is not None and re.search(r"(?<!\w)--?[a-z]", error.hint):
            error.add_note(_OPTIONS_IN_PYTHON)
        raise


_OPTIONS_IN_PYTHON = (
    "in a call of packer.build, --set pack.block_len=N and --block-len N are pack={'block_len': N}, "
    "--set sources.limit=N is limit=N, --template NAME is template='NAME', --force is force=True, -o is `out`"
)


def _asked(data: Any, options: dict[str, Any]) -> tuple[Recipe, list[Any]]:
    """Tell rows, files and recipes apart: the recipe, and the rows that its sources stand for, if they do.

    Raises:
        TypeError: `data` is none of them, or an option is of another type than its key.
        RecipeError: the recipe cannot be read, or options of sources stand beside it.

    """
    if isinstance(data, Recipe) and not options:
        return data, []
    options = {key: _option(key, value) for key, value in options.items()}
    keys = [key for key in SOURCE_KEYS if key in options and not (key == "split" and isinstance(options[key], Mapping))]
    of_sources = {key: options.pop(key) for key in keys}
    recipe = _recipe_values(data)
    if recipe is not None:
        if of_sources:
            raise RecipeError(
                f"{', '.join(of_sources)}: of sources, and this recipe has sources with keys of their own",
                hint="set them in its sources, or give files or rows in place of a recipe",
            )
        nested = {key: {**(recipe.get(key) or {}), **value} for key, value in options.items() if type(value) is dict}
        return make_recipe({**recipe, **options, **nested}), []
    paths = [data] if isinstance(data, str | os.PathLike) else _paths(data)
    if paths is not None:
        sources = [{**of_sources, "path": _path("data", path, "paths of files, or rows")} for path in paths]
        return make_recipe({**options, "sources": sources}), []
    if not isinstance(data, Mapping):
        data = {of_sources.pop("split", None) or "train": data}
    elif named := sorted(data.keys() & VOTING_FIELDS):
        raise _wrong(f"data is a dict with the fields of a row: {', '.join(named)}", "give a list of rows: [row]")
    elif "split" in of_sources:
        raise RecipeError("split: the rows come by split already", hint="leave it out")
    rows = [_rows(rows) for rows in data.values()]
    sources = [{**of_sources, "path": "rows", "split": str(split)} for split in data]
    return make_recipe({**options, "sources": sources}), rows


def _recipe_values(data: Any) -> dict[str, Any] | None:
    """The values of a recipe; None where `data` is none."""
    if isinstance(data, Recipe):
        return to_json(data)
    if isinstance(data, str | os.PathLike) and Path(data).suffix in (".yaml", ".yml"):
        return to_json(load_recipe(os.fspath(data)))
    if isinstance(data, Mapping) and not data.keys().isdisjoint(Recipe.__struct_fields__):
        return {key: _option(key, value) for key, value in data.items()}
    return None


def _paths(data: Any) -> list[Any] | None:
    """Several paths; None where `data` is something else."""
    is_list = isinstance(data, Sequence) and not brings_arrow(data)
    return list(data) if is_list and data and isinstance(data[0], str | os.PathLike) else None


def _rows(data: Any) -> Any:
    """Rows of one split.

    Raises:
        TypeError: it cannot be read row by row.

    """
    if brings_arrow(data) or (isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping)):
        return data
    raise _wrong(
        f"data is {reprlib.repr(data)}; expected rows, files or a recipe",
        "rows are a list of dicts, a datasets.Dataset, an Arrow table or a data frame; files are paths; "
        "one row is a list of one: [row]",
    )


@contextmanager
def _kept(recipe: Recipe, rows: Sequence[Any], folder: Path, progress: Progress, *, dry_run: bool) -> Iterator[Recipe]:
    """The recipe with the files that rows were put into in place of the sources that stand for them.

    They go again where nothing is built of them: after a dry run, and where a call turns out not to be one that can be
    done. What an error about the rows themselves names stays to be looked at.
    """
    if not rows:
        yield recipe
        return
    there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    sources: list[Source] = []
    stays = False
    try:
        for source, own in zip(recipe.sources, rows, strict=True):
            path = keep_rows(own, folder, split=source.split or "train", limit=source.limit, progress=progress)
            sources.append(msgspec.structs.replace(source, path=path.as_posix(), limit=None))
        yield msgspec.structs.replace(recipe, sources=tuple(sources))
        stays = not dry_run
    except (InputError, CheckError):
        stays = len(sources) == len(rows) and not dry_run
        raise
    finally:
        if not stays:
            remove_rows(folder, but=there)


def _option(key: str, value: Any) -> Any:
    """The value of a key as a recipe has it: paths as text; for a template its name or its file."""
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
    """A path as text.

    Raises:
        TypeError: it is something else, such as the object of a tokenizer.

    """
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    folder = getattr(value, "name_or_path", None)
    way = f"{name}={folder!r}" if isinstance(folder, str) and folder else f"{name}='DIR'"
    raise _wrong(
        f"{name} is {reprlib.repr(value)}; expected {expected}",
        f"give {way}; of an object that was changed in memory, save_pretrained(DIR) first"
        if name == "tokenizer"
        else "give a str or a pathlib.Path",
    )


def _wrong(message: str, hint: str) -> TypeError:
    error = TypeError(message)
    error.add_note(f"hint: {hint}")
    return error
