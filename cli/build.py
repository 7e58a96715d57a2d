"""`packer build`: make a cache from files."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer.display import in_shell
from packer_cli.options import (
    Command,
    RecipeOptions,
    fail_above_option,
    jobs_option,
    on_option,
    recipe_options,
)
from packer_cli.output import stdout
from packer_cli.reply import Reply, listener

if TYPE_CHECKING:
    from packer.pipeline.messages.build_result import BuildResult


@click.command("build", cls=Command)
@click.option(
    "-o",
    "--output",
    metavar="CACHE",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder of the cache, or its URL in a bucket: s3://, gs://, az://.",
)
@recipe_options
@jobs_option
@fail_above_option
@click.option("--dry-run", is_flag=True, help="Only report what would be done.")
@click.option("--force", is_flag=True, help="Replace a cache that was built by another recipe or from other inputs.")
@click.option("--repair", is_flag=True, help="Check every byte of the existing cache; rebuild what is damaged.")
@on_option
def command(
    *,
    options: RecipeOptions,
    output: Path,
    reply: Reply,
    **rules: Any,
) -> None:
    """Build a cache from SOURCEs, or bring it up to date.

    A SOURCE is a file of JSON lines, JSON, CSV, Parquet or Arrow, plain or compressed (gzip, zstd); a quoted
    pattern such as 'data/*.jsonl'; files of the Hugging Face Hub: hf://datasets/ORG/NAME[@REVISION]/PATH; objects of a
    bucket: 's3://BUCKET/FOLDER/*.jsonl'; a folder written by Dataset.save_to_disk; or - for standard input. With a
    recipe, SOURCEs replace its sources.
    """
    from packer.pipeline.workers.fork_server import begin_loading  # noqa: PLC0415 - not for --help

    cache = in_shell(output)
    recipe = options.resolve(no_sources=f"packer build FILE... --tokenizer DIR -o {cache}, or -c RECIPE -o {cache}")
    is_here = rules["on"] is None and not rules["dry_run"]
    with begin_loading(recipe, output if is_here else None, rules["jobs"]):
        from packer.pipeline.from_python import build_recipe_with  # noqa: PLC0415 - meanwhile

        began = time.monotonic()
        with listener(quiet=reply.quiet) as progress:
            result = build_recipe_with(recipe, output, progress, **rules)
    seconds = time.monotonic() - began

    reply.summary(_fields(result, seconds), lambda: stdout().lines(result.lines(seconds)))


def _fields(result: "BuildResult", seconds: float) -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415 - beside its only use

    from packer.names import shown  # noqa: PLC0415 - as above
    from packer.recipe.recipe import to_json  # noqa: PLC0415 - not for --help

    manifest = result.manifest
    return {
        "folder": shown(result.folder),
        "built": result.built,
        "seconds": round(seconds, 3),
        "partitions_built": result.num_partitions_built,
        "partitions_reused": result.num_partitions_reused,
        "fingerprint": result.fingerprint,
        "content_fingerprint": manifest and manifest.content_fingerprint,
        "recipe_fingerprint": manifest and manifest.recipe_fingerprint,
        "replaced": result.replaced and asdict(result.replaced),
        "settled_keys": [*result.settled_keys],
        "left_out": result.left_out and asdict(result.left_out),
        "totals": manifest and to_json(manifest.totals),
        "profile": {name: round(took, 4) for name, took in result.seconds.items()},
    } | ({} if result.rows is None else {"rows": asdict(result.rows)})
