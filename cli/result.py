"""Print the result of `packer build`."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from packer_cli.output import stdout

if TYPE_CHECKING:
    from packer.pipeline.messages.build_result import BuildResult


_LAST_COLUMN = re.compile(r" {2}.{,40}\S {2,}(?=\S)")
"""Matches what is before the last cell of a table line, if that cell begins in the left half of a terminal."""


def print_lines(lines: Iterable[str]) -> None:
    """Print a report of the library: warnings in color, and on a terminal wrapped with matching indentation."""
    out = stdout()
    for line in lines:
        if line.startswith("warning: "):
            out.sentence(line.removeprefix("warning: "), label=("warning: ", "bold yellow"))
        elif line.startswith("  "):
            last = _LAST_COLUMN.match(line)
            out.sentence(line[2:], indent=2, hanging=2 if last is None else last.end() - 2)
        else:
            out.line(line)


def result_fields(result: "BuildResult", seconds: float) -> dict[str, Any]:
    """Return the result as JSON."""
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
