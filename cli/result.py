"""The report of `packer build` and `packer pack`."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packer_cli.output import duration, number, percent, plural, print_table, rate, stdout

if TYPE_CHECKING:
    from packer.pipeline import BuildResult, LeftOut, Profile, RowReport
    from packer.store.manifest import Manifest

SKIPPED = "answers not learned: they are empty, or the template has no prompt for them"

_WORTH_A_LINE = 1.01
"""What rewritten history must cost for a line of its own; below, it would read 1.00 times."""


def print_result(result: "BuildResult", seconds: float, *, done: str, verbose: bool) -> None:
    """Print the result of a command that makes a cache; `done` is its verb."""
    out = stdout()
    manifest, reused = result.manifest, result.num_partitions_reused
    if manifest is None:
        todo = plural(result.num_partitions_built, "partition")
        out.line(f"would build {todo}, reuse {number(reused)}; nothing was written")
        for sentence in result.replaced.sentences() if result.replaced is not None else ():
            out.line(f"{result.folder}: {sentence}")
        return
    if not result.built:
        out.line(f"{result.folder} is up to date")
        out.line()
    else:
        tokens = manifest.totals.tokens
        speed = f", {rate(tokens, seconds)} tokens/s" if not reused else f", {plural(reused, 'partition')} reused"
        engine = f", engine {manifest.engine}" if result.num_partitions_built else ""
        out.line(f"{done} {result.folder} in {duration(seconds)}{speed}{engine}")
        out.line()
    for entry in result.rejected_inputs:
        message = f"all {plural(entry.num_rows, 'row')} of {entry.name} are rejected: {entry.code}: {entry.reason}"
        _print_warning(message, [entry.way_out])
    if result.rows is not None:
        print_warnings(result.rows.warnings)
    if result.left_out is not None:
        print_left_out(result.left_out, manifest.totals.tokens)
    _print_totals(manifest, result.folder, warned=result.left_out is not None)
    if result.rows is not None:
        print_rows(result.rows, manifest.totals.kept, listed=f"listed in {result.folder / 'rejected.jsonl'}")
    out.line()
    out.line(f"fingerprint  {result.fingerprint}")
    if verbose:
        out.line(f"content      {manifest.content_fingerprint}")
        out.line(f"recipe       {manifest.recipe_fingerprint}")
    if result.built and manifest.totals.blocks:
        out.line()
        out.line(f"next: packer inspect {shlex.quote(str(result.folder))}")


def print_left_out(left_out: "LeftOut", num_tokens: int) -> None:
    """The warning of tokens that are in no block."""
    tokens = f"{number(left_out.tokens)} of {number(num_tokens)}"
    _print_warning(f"{percent(left_out.share)} of the tokens are in no block ({tokens})", left_out.ways_out)


def _print_warning(message: str, ways_out: Sequence[str]) -> None:
    """`warning: …` and what can be done about it, wrapped for a terminal, a line each for a pipe; and a blank line."""
    out = stdout()
    out.sentence(message, label=("warning: ", "bold yellow"))
    for way in ways_out:
        out.sentence(way, indent=2, hanging=2)
    out.line()


def print_warnings(warnings: Sequence[str]) -> None:
    """`warning: …`, a line each; and a blank line where there are any."""
    for warning in warnings:
        stdout().sentence(warning, label=("warning: ", "bold yellow"))
    if warnings:
        stdout().line()


def print_rows(rows: "RowReport", num_rows: int, *, listed: str) -> None:
    """Rows of each split, and what each rule leaves out."""
    out = stdout()
    out.line()
    out.line("rows of each split")
    columns = [("", "<"), ("", ">"), ("", ">")]
    print_table(out, columns, [(each.split, number(each.rows), percent(each.share)) for each in rows.splits])
    left_out = sum(each.rows for each in rows.left_out)
    if rows.left_out:
        out.line()
        out.line(f"left out by rules: {number(left_out)} of {number(num_rows)} rows; {listed}")
        lines = [(number(each.rows), percent(each.share), each.code, each.rule or "") for each in rows.left_out]
        print_table(out, [("", ">"), ("", ">"), ("", "<"), ("", "<")], lines)


def _print_totals(manifest: "Manifest", folder: Path, *, warned: bool) -> None:
    from packer.rejections import CODES, ROW_REASONS  # noqa: PLC0415 - not for --help

    out, totals = stdout(), manifest.totals
    rejected = totals.rows - totals.kept
    facts = [
        ("rows", number(totals.rows), f"{number(totals.kept)} kept, {number(rejected)} rejected"),
        ("documents", number(totals.documents), f"{number(totals.tokens)} tokens, {_trained(manifest)} trained"),
    ]
    if totals.skipped:
        facts.append(("skipped", number(totals.skipped), SKIPPED))
    if manifest.recipe["pack"]["mode"] != "none":
        full = percent((totals.slots - totals.separators - totals.padding) / totals.slots)
        facts.append(
            ("blocks", number(totals.blocks), f"of {number(manifest.recipe['pack']['block_len'])} tokens, {full} full")
        )
    print_table(out, [("", "<"), ("", ">"), ("", "<")], facts)
    last = sum(shard.num_last_tokens for shard in manifest.shards)
    if totals.tokens > _WORTH_A_LINE * last:
        out.line()
        out.line(
            f"history is rewritten: {number(totals.documents)} documents of {number(totals.kept)} rows,",
        )
        out.line(f"{totals.tokens / last:.2f} times the tokens of each row's last document")
    listed = folder / "rejected.jsonl"
    columns = [("", ">"), ("", "<"), ("", "<")]
    if totals.rejected:
        out.line()
        out.line(f"rows rejected; listed in {listed}")
        ordered = sorted(totals.rejected.items(), key=lambda entry: -entry[1])
        meanings = CODES | {code: _with_example(code, manifest, folder) for code in _VAGUE & totals.rejected.keys()}
        print_table(out, columns, [(number(count), code, meanings.get(code, "")) for code, count in ordered])
    unasked = {code: cut for code, cut in totals.cut.items() if code not in ROW_REASONS}
    if unasked:
        tokens = f"{number(sum(cut.tokens for cut in unasked.values()))} of {number(totals.tokens)} tokens"
        trained = number(sum(cut.trained for cut in unasked.values()))
        out.line()
        out.line(f"in no block: {tokens}, {trained} of them trained;")
        out.line(f"listed in {listed}")
        cuts = sorted(unasked.items(), key=lambda entry: -entry[1].tokens)
        print_table(out, columns, [(plural(cut.tokens, "token"), code, CODES.get(code, "")) for code, cut in cuts])
    if "overlong" in totals.cut and not warned:
        out.line("--block-len N makes blocks longer, --set pack.overlong=split cuts documents")


_VAGUE = frozenset({"wrong_type"})
"""Codes that say little without the reason of a row."""


def _with_example(code: str, manifest: "Manifest", folder: Path) -> str:
    """The meaning of a code, with the reason of the first row that has it, unless rejected.jsonl is damaged."""
    from packer.errors import PackerError  # noqa: PLC0415 - not for --help
    from packer.rejections import CODES  # noqa: PLC0415 - as above
    from packer.store.rejected import read_rejected  # noqa: PLC0415 - as above

    with suppress(PackerError):
        for line in read_rejected(folder, manifest):
            if line.code == code:
                return f"{CODES[code].partition(';')[0]}; the first: {line.reason}"
    return CODES[code]


def _trained(manifest: "Manifest") -> str:
    totals = manifest.totals
    return percent(totals.trained / totals.tokens if totals.tokens else 0.0)


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
    """Where the time of a build went."""
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
        out.line()
        out.line(f"time of documents, added up over {profile.processes} process{'es' * (profile.processes > 1)}")
        print_table(out, columns, stages)


def profile_fields(profile: "Profile") -> dict[str, Any]:
    """The same in JSON."""
    rounded = {name: {part: round(seconds, 4) for part, seconds in getattr(profile, name).items()} for name in _TIMES}
    return {"profile": {**rounded, "processes": profile.processes}}


_TIMES = ("parts", "stages")


def result_fields(result: "BuildResult", seconds: float) -> dict[str, Any]:
    """The same in JSON."""
    from dataclasses import asdict  # noqa: PLC0415 - beside its only use

    from packer.recipe import to_json  # noqa: PLC0415 - not for --help

    manifest = result.manifest
    return {
        "folder": str(result.folder),
        "built": result.built,
        "seconds": round(seconds, 3),
        "partitions_built": result.num_partitions_built,
        "partitions_reused": result.num_partitions_reused,
        "fingerprint": result.fingerprint,
        "content_fingerprint": manifest and manifest.content_fingerprint,
        "recipe_fingerprint": manifest and manifest.recipe_fingerprint,
        "replaced": result.replaced and asdict(result.replaced),
        "left_out": result.left_out and asdict(result.left_out),
        "totals": manifest and to_json(manifest.totals),
    } | ({} if result.rows is None else {"rows": asdict(result.rows)})
