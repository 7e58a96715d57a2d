"""`packer build`: from files to a cache."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer_cli.failures import print_json
from packer_cli.options import HELP_OPTIONS, jobs_option, output_options
from packer_cli.output import duration, number, percent, plural, print_table, rate, stdout
from packer_cli.progress import listener

if TYPE_CHECKING:
    from packer.build import BuildResult
    from packer.recipe import Recipe
    from packer.store.manifest import Manifest

_SCHEMAS = ("auto", "messages", "sharegpt", "alpaca", "completion", "text")


@click.command("build", context_settings=HELP_OPTIONS)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@click.option(
    "-o", "--output", metavar="CACHE", type=click.Path(path_type=Path), required=True, help="Folder of the cache."
)
@click.option("--tokenizer", metavar="DIR|FILE", help="Folder of the model's tokenizer, or its tokenizer.json.")
@click.option("--template", metavar="FILE", help="Chat template, in place of the tokenizer's own.")
@click.option("--block-len", metavar="N", type=int, help="Tokens of a block [4096].")
@click.option("--schema", type=click.Choice(_SCHEMAS), help="What the rows of every SOURCE look like [auto].")
@click.option("--split", metavar="NAME", help="Split that every SOURCE belongs to [train].")
@click.option("-c", "--recipe", metavar="RECIPE", type=click.Path(path_type=Path), help="Recipe to start from.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Any key of the recipe; may be repeated.")
@jobs_option
@click.option(
    "--on-error",
    type=click.Choice(("reject", "fail")),
    default="reject",
    help="fail: stop at the first rejected row [reject].",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--force", is_flag=True, help="Replace a cache that was built by another recipe.")
@click.option("--repair", is_flag=True, help="Check every byte of what is there; make again what is damaged.")
@output_options
def command(
    *,
    sources: tuple[str, ...],
    output: Path,
    tokenizer: str | None,
    template: str | None,
    block_len: int | None,
    schema: str | None,
    split: str | None,
    recipe: Path | None,
    overrides: tuple[str, ...],
    jobs: int | None,
    on_error: str,
    dry_run: bool,
    force: bool,
    repair: bool,
    verbose: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Build a cache from SOURCEs, or bring it up to date.

    A SOURCE is a JSON lines or JSON file, or a quoted pattern such as 'data/*.jsonl'. With a recipe, SOURCEs take the
    place of its sources. With neither, CACHE is built again from its own recipe.

    The bytes depend on the recipe and the inputs alone, never on -j or on how often a build was interrupted.
    """
    from packer.build import build  # noqa: PLC0415 - not for --help

    if not sources and (schema or split):
        raise click.UsageError("--schema and --split need a SOURCE; in a recipe each source has its own")
    asked = _recipe(
        recipe,
        output,
        sources=[{"path": path, "schema": schema or "auto", "split": split or "train"} for path in sources],
        tokenizer=tokenizer,
        template=template,
        block_len=block_len,
        overrides=overrides,
    )
    began = time.monotonic()
    with listener(quiet=quiet) as progress:
        result = build(
            asked,
            output,
            jobs=jobs,
            on_error="fail" if on_error == "fail" else "reject",
            force=force,
            repair=repair,
            dry_run=dry_run,
            progress=progress,
        )
    seconds = time.monotonic() - began
    if as_json:
        print_json(**_fields(result, seconds))
    elif not quiet:
        _print(result, seconds, dry_run=dry_run, verbose=verbose)


def _recipe(
    path: Path | None,
    cache: Path,
    *,
    sources: list[dict[str, str]],
    tokenizer: str | None,
    template: str | None,
    block_len: int | None,
    overrides: tuple[str, ...],
) -> "Recipe":
    """The recipe of a file, of the cache itself, or none; then the options; then `--set`."""
    from packer.errors import RecipeError  # noqa: PLC0415 - not for --help
    from packer.recipe import load_recipe, make_recipe, to_json  # noqa: PLC0415 - as above
    from packer.store.manifest import MANIFEST_NAME, read_manifest  # noqa: PLC0415 - as above

    values: dict[str, Any] = {}
    if path is not None:
        values = to_json(load_recipe(path))
    elif not sources and (cache / MANIFEST_NAME).is_file():
        values = read_manifest(cache).recipe
    elif not sources:
        raise RecipeError(
            "no sources", hint=f"packer build FILE... --tokenizer DIR -o {cache}, or -c RECIPE -o {cache}"
        )
    if sources:
        values["sources"] = sources
    if tokenizer is not None:
        values["tokenizer"] = tokenizer
    if template is not None:
        values["template"] = {**values.get("template", {}), "file": template}
    if block_len is not None:
        values["pack"] = {**values.get("pack", {}), "block_len": block_len}
    return make_recipe(values, overrides, where="recipe" if path is None else str(path))


def _print(result: "BuildResult", seconds: float, *, dry_run: bool, verbose: bool) -> None:
    console = stdout()
    manifest, reused = result.manifest, result.num_partitions_reused
    if manifest is None:
        todo = plural(result.num_partitions_built, "partition")
        console.print(f"would build {todo}, reuse {number(reused)}; nothing was written", soft_wrap=True)
        return
    if not result.built:
        console.print(f"{result.folder} is up to date\n", soft_wrap=True)
    else:
        tokens = manifest.totals.tokens
        speed = f", {rate(tokens, seconds)} tokens/s" if not reused else f", {plural(reused, 'partition')} reused"
        console.print(f"built {result.folder} in {duration(seconds)}{speed}\n", soft_wrap=True)
    _print_totals(manifest, result.folder)
    console.print(f"\nfingerprint  {result.fingerprint}", soft_wrap=True)
    if verbose:
        console.print(f"content      {manifest.content_fingerprint}", soft_wrap=True)
        console.print(f"recipe       {manifest.recipe_fingerprint}", soft_wrap=True)
    if result.built and not dry_run and manifest.totals.blocks:
        console.print(f"\nnext: packer inspect {shlex.quote(str(result.folder))}", soft_wrap=True)


def _print_totals(manifest: "Manifest", folder: Path) -> None:
    from packer.rejections import CODES  # noqa: PLC0415 - not for --help

    console, totals = stdout(), manifest.totals
    rejected = totals.rows - totals.kept
    facts = [
        ("rows", number(totals.rows), f"{number(totals.kept)} kept, {number(rejected)} rejected"),
        ("documents", number(totals.documents), f"{number(totals.tokens)} tokens, {_trained(manifest)} trained"),
    ]
    if manifest.recipe["pack"]["mode"] != "none":
        full = percent((totals.slots - totals.padding) / totals.slots)
        facts.append(
            ("blocks", number(totals.blocks), f"of {number(manifest.recipe['pack']['block_len'])} tokens, {full} full")
        )
    print_table(console, [("", "<"), ("", ">"), ("", "<")], facts)
    last = sum(shard.num_last_tokens for shard in manifest.shards)
    if totals.tokens > last:
        console.print(
            f"\nhistory is rewritten: {number(totals.documents)} documents of {number(totals.kept)} rows, "
            f"{totals.tokens / last:.2f} times the tokens of each row's last document",
            soft_wrap=True,
        )
    listed = folder / "rejected.jsonl"
    for what, counts in (
        ("rows rejected", totals.rejected),
        (f"documents in no block: {number(totals.cut)} of {number(totals.tokens)} tokens", totals.left_out),
    ):
        if not counts:
            continue
        ordered = sorted(counts.items(), key=lambda entry: -entry[1])
        reasons = [(number(count), code, CODES.get(code, "")) for code, count in ordered]
        console.print(f"\n{what}; listed in {listed}", soft_wrap=True)
        print_table(console, [("", ">"), ("", "<"), ("", "<")], reasons)
    if totals.left_out.get("overlong", 0):
        console.print("  --block-len N makes blocks longer", soft_wrap=True)


def _trained(manifest: "Manifest") -> str:
    totals = manifest.totals
    return percent(totals.trained / totals.tokens if totals.tokens else 0.0)


def _fields(result: "BuildResult", seconds: float) -> dict[str, Any]:
    from packer.recipe import to_json  # noqa: PLC0415 - not for --help

    manifest = result.manifest
    return {
        "command": "build",
        "folder": str(result.folder),
        "built": result.built,
        "seconds": round(seconds, 3),
        "partitions_built": result.num_partitions_built,
        "partitions_reused": result.num_partitions_reused,
        "fingerprint": result.fingerprint,
        "content_fingerprint": manifest and manifest.content_fingerprint,
        "recipe_fingerprint": manifest and manifest.recipe_fingerprint,
        "totals": manifest and to_json(manifest.totals),
    }
