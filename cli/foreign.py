"""`verify --foreign PATH`: rows prepared by another tool."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packer.display import in_shell, number, percent, plural
from packer_cli.output import print_table
from packer_cli.page import FindingsPage, failed
from packer_cli.reply import Reply, fields_of, listener

if TYPE_CHECKING:
    from packer.audit.foreign.foreign_report import ForeignFinding, ForeignReport


def verify_foreign(
    path: Path, *, tokenizer: str | None, template: Path | None, sample: int | None, reply: Reply
) -> None:
    """Check foreign rows and print the findings; exit code 1 if there are errors."""
    from packer.audit.foreign import audit_foreign  # noqa: PLC0415 - not for --help

    with listener(quiet=reply.quiet) as progress:
        report = audit_foreign(path, tokenizer=tokenizer, template=template, sample=sample, progress=progress)
    fields, has_tokenizer = {"ok": report.ok, **fields_of(report)}, tokenizer is not None
    reply.verdict(fields, lambda: _print(report, reply, has_tokenizer=has_tokenizer), failed(report, path))


def _print(report: "ForeignReport", reply: Reply, *, has_tokenizer: bool) -> None:
    page, quiet = FindingsPage(whole=reply.verbose), reply.quiet
    if not quiet:
        page.out.line(str(report.path))
        print_table(page.out, [("", "<"), ("", "<")], _facts(report))
    page.findings(
        (_with_counts(finding, report, verbose=reply.verbose) for finding in report.findings), follow=not quiet
    )
    if quiet:
        return
    page.out.line()
    for entry in report.not_looked_at:
        page.words(f"not checked: {entry.what} ({entry.why})")
    if report.ok:
        page.words(_success_line(report, has_tokenizer=has_tokenizer))
    if not has_tokenizer:
        named = in_shell(report.path)
        command = f"packer verify --foreign {named} --tokenizer DIR checks the rest"
        page.words(f"hint: {command}; --template FILE too, if the tokenizer has no chat template", 2)


def _with_counts(finding: "ForeignFinding", report: "ForeignReport", *, verbose: bool) -> "ForeignFinding":
    """Put a finding's count into its message, and keep only one example unless -v is given."""
    times = f"{number(finding.num_rows)} of {plural(report.rows_looked_at, 'row')}"
    if finding.unit != "row":
        times = f"{plural(finding.count, finding.unit)} in {times}"
    if finding.detail is not None:
        times += f"; {finding.detail}"
    shown = finding.examples if verbose else finding.examples[:1]
    return replace(finding, message=f"{finding.message}: {times}", examples=shown)


def _facts(report: "ForeignReport") -> list[tuple[str, str]]:
    is_all = report.rows_looked_at == report.num_rows
    rows = (
        f"all {number(report.num_rows)}" if is_all else f"{number(report.rows_looked_at)} of {number(report.num_rows)}"
    )
    share = percent(report.trained / max(report.tokens_looked_at, 1))
    padding = f", {number(report.padding)} padding" if report.padding else ""
    return [
        ("rows", f"{rows}, {report.form}: {', '.join(report.columns)}"),
        ("tokens", f"{number(report.tokens_looked_at)}, {number(report.trained)} trained ({share}){padding}"),
        ("trained", f"by {report.labels_from}"),
        ("answers", "not known" if report.header is None else f"after {report.header!r}"),
    ]


def _success_line(report: "ForeignReport", *, has_tokenizer: bool) -> str:
    """Return the closing line if there are no errors, including what was not checked."""
    found = report.counted if report.findings else "nothing wrong in what was checked"
    if not has_tokenizer:
        return f"ok: {found}, but only shapes were checked, as no tokenizer was named"
    left = len(report.not_looked_at)
    return f"ok: {found}" + (f"; {plural(left, 'question')} not checked" if left else "")
