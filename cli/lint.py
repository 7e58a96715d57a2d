"""`packer lint`: what a chat template does, before anything is built with it."""

import shlex
import textwrap
from typing import TYPE_CHECKING, Any

import click

from packer_cli.failures import error_object, print_error, print_json
from packer_cli.marked import Marked
from packer_cli.options import HELP_OPTIONS, output_options
from packer_cli.output import number, plural, stdout
from packer_cli.sources import Asked, recipe_options
from packer_cli.text import visible

if TYPE_CHECKING:
    from packer.audit import LintFinding, LintReport, LookedAt

_STYLES = {"error": "red bold", "warning": "yellow bold", "note": "cyan bold"}
_INDENT = 2
_NO_BREAK = "\N{NO-BREAK SPACE}"


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
    message = None if report.ok else f"{report.template or report.tokenizer}: {_counts(report, named=True)}"
    if as_json:
        print_json(**_fields(report), error=message and error_object("check_failed", message, None))
    else:
        _Page(whole=verbose).report(report, summary=not quiet)
        if message is not None:
            print_error(message, None)
    if message is not None:
        raise click.exceptions.Exit(1)


def _counts(report: "LintReport", *, named: bool) -> str:
    """`1 error (no_terminator), 2 warnings, 3 notes`."""
    errors = [finding.code for finding in report.findings if finding.level == "error"]
    counts = [plural(report.count(level), level) for level in ("error", "warning", "note")]
    if named:
        counts[0] += f" ({', '.join(errors)})"
    return ", ".join(counts)


class _Page:
    """Writes a report to stdout."""

    def __init__(self, *, whole: bool) -> None:
        self._out = stdout()
        self._whole = whole

    def report(self, report: "LintReport", *, summary: bool) -> None:
        """Header, findings, and their number; where there are errors, the error that ends the command has that."""
        if summary:
            for name, fact in _facts(report):
                first, *more = self._wrap(fact, 13)
                self._out.line(f"  {name:9}  {first}")
                for part in more:
                    self._out.line(" " * 13 + part)
        for place, finding in enumerate(report.findings):
            if place or summary:
                self._out.line()
            self._finding(finding)
        if summary and report.ok:
            self._out.line()
            self._out.line(_counts(report, named=False))
        elif summary:
            self._out.line()

    def _finding(self, finding: "LintFinding") -> None:
        head = f"{finding.level}[{finding.code}]:"
        first, *more = self._wrap(f"{head} {finding.message}")
        self._out.line((first[: len(head)], _STYLES[finding.level]), first[len(head) :])
        for part in more:
            self._out.line(" " * _INDENT + part)
        marked = Marked(self._out.width, whole=self._whole)
        for shown, is_mark in marked.lines(finding.examples, indent=2 * _INDENT):
            self._out.line((shown, "green" if is_mark else ""))
        if finding.hint is not None:
            for place, part in enumerate(self._wrap(f"hint: {finding.hint}")):
                self._out.line(" " * (_INDENT if not place else 2 * _INDENT) + part)

    def _wrap(self, text: str, indent: int = 2 * _INDENT) -> list[str]:
        """Lines of a text; what is to be copied, paths and `--set`, is cut nowhere but at spaces."""
        width = max(20, self._out.width - indent)
        joined = visible(text).replace("--set ", f"--set{_NO_BREAK}")
        lines = textwrap.wrap(joined, width, break_long_words=False, break_on_hyphens=False)
        return [line.replace(f"--set{_NO_BREAK}", "--set ") for line in lines]


def _facts(report: "LintReport") -> list[tuple[str, str]]:
    facts = [
        ("tokenizer", str(report.tokenizer)),
        ("template", "the tokenizer's own" if report.template is None else str(report.template)),
    ]
    facts += [("rows", _rows(entry)) for entry in report.rows]
    why = ": no plain chat is built without it"
    facts += [
        ("assumed", f"--set {shlex.quote(setting)}, to show the rest{'' if report.ok else why}")
        for setting in report.assumed
    ]
    return [*facts, ("verdict", report.verdict)]


def _rows(entry: "LookedAt") -> str:
    which = f"all {number(entry.num_rows)}" if entry.is_whole else f"the first {number(entry.num_rows)}"
    kept = "none kept" if entry.num_kept is None else f"{number(entry.num_kept)} kept"
    if entry.num_kept_assumed is not None:
        kept += f" ({number(entry.num_kept_assumed)} with the keys assumed below)"
    return f"{which} of {entry.path} ({entry.schema}): {kept}, {plural(entry.num_turns, 'answer')}"


def _fields(report: "LintReport") -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415 - beside its only use

    return {
        "command": "lint",
        "ok": report.ok,
        "tokenizer": str(report.tokenizer),
        "template": None if report.template is None else str(report.template),
        "verdict": report.verdict,
        "assumed": list(report.assumed),
        "rows": [asdict(entry) for entry in report.rows],
        "findings": [asdict(finding) for finding in report.findings],
        "counts": {f"{level}s": report.count(level) for level in ("error", "warning", "note")},
    }
