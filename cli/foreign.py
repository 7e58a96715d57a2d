"""`--foreign PATH` of `verify` and `inspect`: rows prepared by another tool."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from packer.display import in_shell, number, percent, plural
from packer_cli.options import Function, number_of, options
from packer_cli.output import print_table
from packer_cli.page import FindingsPage, failed
from packer_cli.reply import Reply, fields_of, listener

if TYPE_CHECKING:
    from packer.audit.foreign.foreign_report import ForeignFinding, ForeignReport


class Foreign(NamedTuple):
    """Rows prepared by another tool, and the tokenizer they were prepared with."""

    path: Path
    tokenizer: str | None
    template: Path | None


def foreign_options(function: Function) -> Function:
    """Options for a cache, or for `--foreign PATH` instead of one.

    The command gets both arguments, `cache` and `foreign`, one of which is None.
    """

    @options(
        click.argument("cache", type=click.Path(path_type=Path), required=False),
        click.option(
            "--foreign",
            metavar="PATH",
            type=click.Path(path_type=Path),
            help="Instead of a cache: rows that another tool prepared (save_to_disk, Parquet, Arrow).",
        ),
        click.option(
            "--tokenizer",
            metavar="DIR|FILE|HUB_ID",
            help="With --foreign: the model's tokenizer, as build takes it.",
        ),
        click.option(
            "--template",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="With --foreign: chat template to use instead of the tokenizer's own.",
        ),
    )
    @functools.wraps(function)
    def gathered(
        *, cache: Path | None, foreign: Path | None, tokenizer: str | None, template: Path | None, **values: Any
    ) -> Any:
        if foreign is None and (tokenizer is not None or template is not None):
            raise click.UsageError("--tokenizer and --template go with --foreign: a cache keeps its own")
        if foreign is None and cache is None:
            raise click.UsageError("missing argument 'CACHE'")
        if foreign is not None and cache is not None:
            raise click.UsageError("name a cache or --foreign PATH, not both")
        asked = None if foreign is None else Foreign(foreign, tokenizer, template)
        return function(cache=cache, foreign=asked, **values)

    return gathered


def refuse_with_foreign(**options: object) -> None:
    """Refuse options that only apply to caches."""
    for name, value in options.items():
        if value:
            raise click.UsageError(f"--{name.replace('_', '-')} is about a cache and cannot be combined with --foreign")


def verify_foreign(asked: Foreign, *, whole: bool, sample: int | None, reply: Reply) -> None:
    """Check foreign rows and print the findings; exit code 1 if there are errors."""
    from packer.audit.foreign import audit_foreign  # noqa: PLC0415 - not for --help
    from packer.audit.foreign.foreign_report import SAMPLE  # noqa: PLC0415 - as above

    wanted = None if whole else sample or SAMPLE
    with listener(quiet=reply.quiet) as progress:
        report = audit_foreign(sample=wanted, progress=progress, **asked._asdict())
    fields, has_tokenizer = {"ok": report.ok, **fields_of(report)}, asked.tokenizer is not None
    reply.verdict(fields, lambda: _print(report, reply, has_tokenizer=has_tokenizer), failed(report, asked.path))


def inspect_foreign(asked: Foreign, row: str, *, split: str | None, ids: bool, reply: Reply) -> None:
    """Print one foreign row as text."""
    from packer.audit.foreign import view_foreign_row  # noqa: PLC0415 - not for --help
    from packer_cli.page import ViewPage, view_fields  # noqa: PLC0415 - as above

    number = number_of(row)
    if number is None:
        raise click.UsageError(f"--row {row}: with --foreign, the number of a row")
    view = view_foreign_row(number=number, part=split, **asked._asdict())
    fields = {"path": str(asked.path), "row": view_fields(view, with_ids=ids)}
    reply.data(fields, lambda: ViewPage(with_ids=ids).foreign(view, str(asked.path)))


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
