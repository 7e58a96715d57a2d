"""`verify --foreign PATH`: rows prepared by another tool."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packer.display import plural
from packer_cli.page import FindingsPage, failed
from packer_cli.reply import Reply, fields_of, listener

if TYPE_CHECKING:
    from packer.audit.foreign.foreign_report import ForeignReport


def verify_foreign(path: Path, *, tokenizer: str, template: Path | None, sample: int | None, reply: Reply) -> None:
    """Check foreign rows and print the findings; exit code 1 if there are errors."""
    from packer.audit.foreign import audit_foreign  # noqa: PLC0415 - not for --help

    with listener(quiet=reply.quiet) as progress:
        report = audit_foreign(path, tokenizer=tokenizer, template=template, sample=sample, progress=progress)
    reply.verdict({"ok": report.ok, **fields_of(report)}, lambda: _print(report, reply), failed(report, path))


def _print(report: "ForeignReport", reply: Reply) -> None:
    page = FindingsPage(whole=reply.verbose)
    if not reply.quiet:
        page.out.line(str(report.path))
        page.out.table(report.facts)
    most = None if reply.verbose else 1
    page.findings((replace(each, examples=each.examples[:most]) for each in report.findings), follow=not reply.quiet)
    if reply.quiet:
        return
    page.out.line()
    for entry in report.not_looked_at:
        page.words(f"not checked: {entry.what} ({entry.why})")
    left = len(report.not_looked_at)
    not_checked = f"; {plural(left, 'question')} not checked" if left else ""
    if report.ok:
        found = report.counted if report.findings else "nothing wrong in what was checked"
        page.words(f"ok: {found}{not_checked}")
