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
from packer_cli.sources import Asked, recipe_options

if TYPE_CHECKING:
    from packer.build import BuildResult
    from packer.recipe import Recipe
    from packer.store.manifest import Manifest


@click.command("build", context_settings=HELP_OPTIONS)
@click.option(
    "-o", "--output", metavar="CACHE", type=click.Path(path_type=Path), required=True, help="Folder of the cache."
)
@recipe_options
@click.option("--block-len", metavar="N", type=int, help="Tokens of a block [4096].")
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
    asked: Asked,
    output: Path,
    block_len: int | None,
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

    recipe = _recipe(asked, output, block_len)
    began = time.monotonic()
    with listener(quiet=quiet) as progress:
        result = build(
            recipe,
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


def _recipe(asked: Asked, cache: Path, block_len: int | None) -> "Recipe":
    """The recipe that was asked for; a cache that is there already has one of its own."""
    from packer.store.manifest import MANIFEST_NAME, read_manifest  # noqa: PLC0415 - not for --help

    own = None
    if asked.recipe is None and not asked.sources and (cache / MANIFEST_NAME).is_file():
        own = read_manifest(cache).recipe
    hint = f"packer build FILE... --tokenizer DIR -o {cache}, or -c RECIPE -o {cache}"
    return asked.resolve(base=own, block_len=block_len, no_sources=hint)


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
