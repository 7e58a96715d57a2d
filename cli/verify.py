"""`packer verify`: check that a cache is what was built."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer.display import number, plural, size
from packer_cli.options import Command, jobs_option, on_option, sources_option, whole_number
from packer_cli.output import CROSS, GAP, stdout
from packer_cli.page import failed, findings_fields, print_findings
from packer_cli.reply import Reply, fields_of, listener

if TYPE_CHECKING:
    from packer.audit.foreign import ForeignReport
    from packer.audit.verify.verify_report import Checked, Level, VerifyReport

_SHOWN = 20

_SAMPLE = 1000
"""Rows of other tools that are looked at by default."""

_NAMES = {"rejected": "rejected.jsonl", "model": "tokenizer files", "manifest": "manifest.json"}
_LEVELS = {
    "default": "every byte and every row digest",
    "full": "every byte, every row digest, every rule of rows, blocks against documents",
}


@click.command("verify", cls=Command)
@click.argument("cache", type=click.Path(path_type=Path), required=False)
@click.option(
    "--foreign",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Instead of a cache: rows that another tool prepared (save_to_disk, Parquet, Arrow).",
)
@click.option("--tokenizer", metavar="DIR|FILE|HUB_ID", help="With --foreign: the model's tokenizer.")
@click.option(
    "--template",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="With --foreign: chat template instead of the tokenizer's own.",
)
@click.option(
    "--full",
    is_flag=True,
    help="Also check the sha256 of shards, rules of rows, and blocks against documents. With --foreign: all rows.",
)
@sources_option
@click.option(
    "--reencode",
    is_flag=True,
    help="Also build the documents again from the unchanged inputs below --sources, and compare.",
)
@click.option(
    "--sample",
    type=whole_number(1),
    metavar="N",
    help="With --reencode: only N rows, the same ones every time [all]. With --foreign: N rows [1000].",
)
@click.option("--expect", metavar="FINGERPRINT", help="Fail unless the cache has this fingerprint.")
@jobs_option
@on_option
def command(
    *,
    cache: Path | None,
    foreign: Path | None,
    tokenizer: str | None,
    template: Path | None,
    full: bool,
    sample: int | None,
    jobs: int | None,
    roots: tuple[str, ...],
    reply: Reply,
    **asked: Any,
) -> None:
    """Check a cache: every byte, every row, every total. Or, with --foreign, rows that another tool prepared.

    With --sources, inputs are compared with those of the build, too. Everything that is wrong is listed, and the exit
    code is then 1.
    """
    beside = [f"--{name}" for name, value in {"jobs": jobs, "sources": roots, **asked}.items() if value]
    if foreign is None:
        refused = {
            "--tokenizer and --template go with --foreign: a cache keeps its own": tokenizer or template,
            "missing argument 'CACHE'": cache is None,
            "--sample is the number of rows for --reencode; pass both": sample and not asked["reencode"],
            "--reencode reads the inputs again: add --sources . if they are below this folder": asked["reencode"]
            and not roots,
        }
    else:
        refused = {
            "name a cache or --foreign PATH, not both": cache is not None,
            "--full looks at all rows, --sample at some: name one of them": full and sample,
            f"{' and '.join(beside)} is about a cache and cannot be combined with --foreign": beside,
            "--foreign needs --tokenizer, with which the rows were made": tokenizer is None,
        }
    for usage, is_wrong in refused.items():
        if is_wrong:
            raise click.UsageError(usage)
    if foreign is not None and tokenizer is not None:
        from packer.audit.foreign import audit_foreign  # noqa: PLC0415 - not for --help

        wanted = None if full else sample or _SAMPLE
        with listener(quiet=reply.quiet) as progress:
            rows = audit_foreign(foreign, tokenizer=tokenizer, template=template, sample=wanted, progress=progress)
        reply.verdict(findings_fields(rows), lambda: _print_rows(rows, reply), failed(rows, foreign))
        return
    assert cache is not None
    from packer.audit.verify import verify  # noqa: PLC0415 - not for --help

    with listener(quiet=reply.quiet) as progress:
        level: Level = "full" if full else "default"
        report = verify(cache, level=level, sources=roots, sample=sample, threads=jobs, progress=progress, **asked)
    show = lambda: None if reply.quiet else _print(report, every=reply.verbose)  # noqa: E731
    reply.verdict({"ok": report.ok, **fields_of(report)}, show, _message(report), report.hint)


def _print_rows(report: "ForeignReport", reply: Reply) -> None:
    """Print facts, findings and their number, which an error message has itself."""
    out = stdout()
    out.table([] if reply.quiet else report.facts)
    print_findings(report.findings, whole=reply.verbose, follow=not reply.quiet)
    if report.ok and not reply.quiet:
        out.line()
        out.line(report.counted)


def _message(report: "VerifyReport") -> str | None:
    if report.ok:
        return None
    if report.is_another:
        return f"{report.folder} is not the expected cache"
    damaged = len({finding.path for finding in report.findings})
    return f"{report.folder}: {plural(len(report.findings), 'finding')} in {plural(damaged, 'file')}"


def _print(report: "VerifyReport", *, every: bool) -> None:
    out = stdout()
    out.words(f"{report.folder}: {_LEVELS[report.level]}", hanging=2)
    out.line()
    table = [
        (
            _NAMES.get(entry.kind, entry.kind),
            number(entry.num_files),
            number(entry.num_rows) if entry.num_rows else "",
            size(entry.num_bytes) if entry.kind != "re-encoded" else "",
            _state(entry),
        )
        for entry in report.checked
    ]
    out.table(table, "<", "files>", "rows>", "size>", "<")
    out.line()
    out.line(f"fingerprint  {report.fingerprint or 'none'}")
    if every:
        out.line(f"manifest     sha256 {report.manifest_sha256}")
    if report.num_reencoded is not None:
        rows = next((entry.num_rows for entry in report.checked if entry.kind == "inputs"), 0)
        out.line(f"re-encoded   {number(report.num_reencoded)} of {plural(rows, 'row')}, by the reference engine")
    for note in report.notes:
        out.line(f"note: {note}")
    for finding in report.findings[: None if every else _SHOWN]:
        out.line()
        out.line((f"{CROSS} {finding.where}", "red"))
        out.line(f"  {finding.what}")
        out.line(f"  expected  {finding.expected}")
        out.line(f"  found     {finding.found}")
    if len(report.findings) > _SHOWN and not every:
        out.line()
        out.line(f"{GAP} and {len(report.findings) - _SHOWN:,} more; -v lists all")
    if report.ok:
        out.line()
        out.line("ok: everything is as it was written")


def _state(entry: "Checked") -> str:
    if entry.num_damaged:
        return f"{entry.num_damaged} damaged"
    return "not compared" if entry.kind == "re-encoded" and not entry.num_rows else "ok"
