"""`packer check`: check whether these are the right rows to train on."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer_cli.options import Command, cache_argument, jobs_option, on_option, sources_option
from packer_cli.output import stdout
from packer_cli.page import failed, findings_fields, print_findings
from packer_cli.reply import Reply, listener

if TYPE_CHECKING:
    from packer.audit.check import CheckReport


@click.command("check", cls=Command)
@cache_argument
@sources_option
@click.option("--near", is_flag=True, help="Also look for near duplicates between splits and within them.")
@jobs_option
@on_option
def command(
    *,
    cache: Path,
    roots: tuple[str, ...],
    near: bool,
    jobs: int | None,
    on: str | None,
    reply: Reply,
) -> None:
    """Look for duplicate rows, and for leaks between splits.

    Inputs are read again below --sources; without it, no row is compared. Exit code 1 if a check fails. With -v, all
    examples are shown, with their whole texts.
    """
    from packer.audit.check import check  # noqa: PLC0415 - not for --help
    from packer.names import shown  # noqa: PLC0415 - as above

    with listener(quiet=reply.quiet) as progress:
        report = check(cache, sources=roots, near=near, jobs=jobs, on=on, progress=progress)
    reply.verdict(
        findings_fields(report),
        lambda: _print(report, whole=reply.verbose, summary=not reply.quiet),
        failed(report, shown(report.folder)),
    )


def _print(report: "CheckReport", *, whole: bool, summary: bool) -> None:
    out, shown = stdout(), [each for each in report.findings if summary or each.level not in {"ok", "note"}]
    out.checks([(each.level, each.code.replace("_", " "), each.message) for each in shown])
    told = [
        replace(each, message="")
        for each in shown
        if each.level in {"warning", "error"} and (each.examples or each.hint)
    ]
    print_findings(told, whole=whole, follow=True)
    if summary:
        out.line()
        out.line(f"  fingerprint  {report.fingerprint}")
