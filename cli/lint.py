"""`packer lint`: what a chat template does, before anything is built with it."""

import textwrap
from typing import TYPE_CHECKING, Any

import click

from packer_cli.failures import error_object, print_error, print_json
from packer_cli.marked import Marked
from packer_cli.options import HELP_OPTIONS, output_options
from packer_cli.output import number, plural, stdout
from packer_cli.page import visible
from packer_cli.sources import Asked, recipe_options

if TYPE_CHECKING:
    from packer.audit import LintFinding, LintReport, LookedAt

_STYLES = {"error": "red bold", "warning": "yellow bold", "note": "cyan bold"}
_INDENT = 2


@click.command("lint", context_settings=HELP_OPTIONS)
@recipe_options
@click.option(
    "-n", "--rows", metavar="N", type=click.IntRange(min=0), default=200, help="Rows of each input to look at [200]."
)
@output_options
def command(*, asked: Asked, rows: int, verbose: bool, quiet: bool, as_json: bool) -> None:
    """Report what a chat template does under a tokenizer, and with SOURCEs what becomes of their first rows.

    Everything is seen on conversations rendered and encoded as `packer build` does it; nothing is written. Exit code 1
    where nothing, or no plain chat, could be built.
    """
    from packer.audit import lint  # noqa: PLC0415 - not for --help

    report = lint(asked.resolve(), num_rows=rows)
    message = None if report.ok else _message(report)
    if as_json:
        print_json(**_fields(report), error=message and error_object("check_failed", message, None))
    else:
        page = _Page(whole=verbose)
        page.report(report, summary=not quiet)
        if message is not None:
            print_error(message, None)
    if message is not None:
        raise click.exceptions.Exit(1)


def _message(report: "LintReport") -> str:
    codes = [finding.code for finding in report.findings if finding.level == "error"]
    return f"{report.template or report.tokenizer}: {plural(len(codes), 'error')}: {', '.join(codes)}"


class _Page:
    """Writes a report to stdout."""

    def __init__(self, *, whole: bool) -> None:
        self._console = stdout()
        self._whole = whole

    def report(self, report: "LintReport", *, summary: bool) -> None:
        if summary:
            for name, fact in _facts(report):
                first, *more = self._wrap(fact, 13)
                self._line(f"  {name:9}  {first}")
                for part in more:
                    self._line(" " * 13 + part)
        for place, finding in enumerate(report.findings):
            if place or summary:
                self._line("")
            self._finding(finding)
        if summary:
            counts = (plural(report.count(level), level) for level in ("error", "warning", "note"))
            self._line("")
            self._line(", ".join(counts))
        self._console.file.flush()

    def _finding(self, finding: "LintFinding") -> None:
        from rich.text import Text  # noqa: PLC0415 - not for --help

        head = f"{finding.level}[{finding.code}]:"
        first, *more = self._wrap(f"{head} {finding.message}")
        line = Text(first)
        line.stylize(_STYLES[finding.level], 0, len(head))
        self._line(line)
        for part in more:
            self._line(" " * _INDENT + part)
        marked = Marked(self._console.width, whole=self._whole)
        for shown, is_mark in marked.lines(finding.examples, indent=2 * _INDENT):
            self._line(Text(shown, style="green" if is_mark else ""))
        if finding.hint is not None:
            for place, part in enumerate(self._wrap(f"hint: {finding.hint}")):
                self._line(" " * (_INDENT if not place else 2 * _INDENT) + part)

    def _wrap(self, text: str, indent: int = 2 * _INDENT) -> list[str]:
        """Lines of a text; what is to be copied, paths and `--set`, is cut nowhere but at spaces."""
        width = self._console.width - indent
        return textwrap.wrap(visible(text), width, break_long_words=False, break_on_hyphens=False)

    def _line(self, line: Any) -> None:
        self._console.print(line, soft_wrap=True, no_wrap=True, overflow="ignore", crop=False)


def _facts(report: "LintReport") -> list[tuple[str, str]]:
    facts = [
        ("tokenizer", visible(str(report.tokenizer))),
        ("template", "the tokenizer's own" if report.template is None else visible(str(report.template))),
    ]
    facts += [("rows", _rows(entry)) for entry in report.rows]
    facts += [
        ("assumed", f"--set '{override}', without which a plain chat cannot be built") for override in report.assumed
    ]
    return facts


def _rows(entry: "LookedAt") -> str:
    which = f"all {number(entry.num_rows)}" if entry.is_whole else f"the first {number(entry.num_rows)}"
    return (
        f"{which} of {visible(entry.path)} ({entry.schema}): {number(entry.num_kept)} kept, "
        f"{plural(entry.num_turns, 'answer')}"
    )


def _fields(report: "LintReport") -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415 - beside its only use

    return {
        "command": "lint",
        "ok": report.ok,
        "tokenizer": str(report.tokenizer),
        "template": None if report.template is None else str(report.template),
        "assumed": list(report.assumed),
        "rows": [asdict(entry) for entry in report.rows],
        "findings": [_finding_fields(finding) for finding in report.findings],
        "counts": {f"{level}s": report.count(level) for level in ("error", "warning", "note")},
    }


def _finding_fields(finding: "LintFinding") -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415 - beside its only use

    return {
        "level": finding.level,
        "code": finding.code,
        "message": finding.message,
        "hint": finding.hint,
        "examples": [asdict(example) for example in finding.examples],
    }
