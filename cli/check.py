"""`packer check`: check whether these are the right rows to train on."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from packer.display import plural
from packer_cli.options import Command, cache_argument, jobs_option, on_option, sources_option
from packer_cli.page import FindingsPage
from packer_cli.reply import Reply, listener

if TYPE_CHECKING:
    from packer.audit.check.check_report import Check, CheckReport

_FEW = 2
"""Pairs that a check shows without `-v`."""


@click.command("check", cls=Command)
@cache_argument
@sources_option
@click.option("--near", is_flag=True, help="Also look for near duplicates between splits and within them.")
@click.option("--group", metavar="FIELD", help="No value of this field may be in two splits [split.group].")
@click.option("--time", metavar="FIELD", help="Held-out rows are later, by this field, than trained ones [split.time].")
@jobs_option
@on_option
def command(
    *,
    cache: Path,
    roots: tuple[str, ...],
    near: bool,
    group: str | None,
    time: str | None,
    jobs: int | None,
    on: str | None,
    reply: Reply,
) -> None:
    """Check which rows a cache has: copies, and leaks between splits.

    Rows are compared by their inputs, which are read again below --sources; without it, only what CACHE itself says is
    checked. Exit code 1 if a check fails. With -v, all examples are shown, with their whole texts.
    """
    from packer.audit.check.check import check  # noqa: PLC0415 - not for --help
    from packer.audit.check.check_report import Outcome  # noqa: PLC0415 - as above
    from packer.names import shown  # noqa: PLC0415 - as above

    with listener(quiet=reply.quiet) as progress:
        report = check(cache, sources=roots, near=near, group=group, time=time, jobs=jobs, on=on, progress=progress)
    failed = [each.code for each in report.checks if each.level == "failure"]
    message = f"{shown(report.folder)}: {plural(len(failed), 'check')} failed: {', '.join(failed)}" if failed else None
    fields = {
        "ok": report.ok,
        "cache": shown(cache),
        "fingerprint": report.fingerprint,
        "checks": [asdict(each) for each in report.checks],
        "counts": {level: report.count(level) for level in get_args(Outcome)},
    }
    reply.verdict(fields, lambda: _print(report, whole=reply.verbose, summary=not reply.quiet), message)


def _print(report: "CheckReport", *, whole: bool, summary: bool) -> None:
    page = FindingsPage(whole=whole)
    shown = [each for each in report.checks if summary or each.level != "ok"]
    page.out.checks([(each.level, _name(each), each.message) for each in shown])
    for each in shown:
        if each.level in {"warning", "failure"} and (each.pairs or each.hint):
            page.out.line()
            _print_evidence(page, each, most=len(each.pairs) if whole else _FEW)
    if summary:
        page.out.line()
        page.out.line(f"  fingerprint  {report.fingerprint}")


def _print_evidence(page: FindingsPage, check: "Check", *, most: int) -> None:
    """Print example pairs for a finding, one below the other, and what to do about it."""
    page.out.line((_name(check), "bold"))
    for pair in check.pairs[:most]:
        page.pair(pair)
        page.out.line()
    if check.hint is not None:
        page.words(f"hint: {check.hint}", 2)


def _name(check: "Check") -> str:
    return check.code.replace("_", " ")
