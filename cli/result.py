"""Print the result of `packer build`."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from packer_cli.output import print_table, stdout

if TYPE_CHECKING:
    from packer.pipeline.messages.build_result import BuildResult
    from packer.pipeline.timing import Profile


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


_PARTS = {
    "plan": "inputs read and hashed, tokenizer loaded",
    "documents": "rows rendered, tokenized, proved, written",
    "rows": "which rows, in which split",
    "blocks": "packed, gathered, written",
    "commit": "inputs checked again, manifest written",
}
_STAGES = {
    "load": "tokenizer and template waited for",
    "read": "JSON to rows",
    "traits": "filters, hashes and fields of rows",
    "render": "rows to texts",
    "tokenize": "texts to ids, boundaries found",
    "supervise": "ids proved, documents cut",
    "write": "labels, digests, files",
}


def print_profile(profile: "Profile") -> None:
    """Print where the time of a build went."""
    out = stdout()
    if not profile.parts:
        out.line()
        out.line("time: nothing was built")
        return
    columns = [("", "<"), ("", ">"), ("", "<")]
    out.line()
    out.line("time")
    parts = [
        (name, f"{profile.parts[name]:.2f} s", meaning) for name, meaning in _PARTS.items() if name in profile.parts
    ]
    print_table(out, columns, parts)
    stages = [
        (name, f"{profile.stages[name]:.2f} s", meaning) for name, meaning in _STAGES.items() if name in profile.stages
    ]
    if stages:
        stages.append(("idle", f"{profile.idle:.2f} s", "processes that start, or have no partition to work on"))
        out.line()
        out.line(f"time of documents, added up over {profile.processes} process{'es' * (profile.processes > 1)}")
        print_table(out, columns, stages)


def profile_fields(profile: "Profile") -> dict[str, Any]:
    """Return the profile as JSON."""
    parts, stages = (
        {name: round(seconds, 4) for name, seconds in times.items()} for times in (profile.parts, profile.stages)
    )
    rest = {"idle": round(profile.idle, 4), "processes": profile.processes}
    return {"profile": {"parts": parts, "stages": stages, **rest}}


def result_fields(result: "BuildResult", seconds: float) -> dict[str, Any]:
    """Return the result as JSON."""
    from dataclasses import asdict  # noqa: PLC0415 - beside its only use

    from packer.recipe.recipe import to_json  # noqa: PLC0415 - not for --help
    from packer.store.mirror import shown  # noqa: PLC0415 - as above

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
    } | ({} if result.rows is None else {"rows": asdict(result.rows)})
