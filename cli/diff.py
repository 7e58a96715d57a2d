"""`packer diff`: explain why two caches differ, section by section."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer.display import number, plural
from packer_cli.options import Command, html_option, pager_option
from packer_cli.output import cells, drawable, print_table, signs, stdout, wrap
from packer_cli.reply import Reply, fields_of

if TYPE_CHECKING:
    from packer.audit.diff.compare import CacheDiff
    from packer.audit.diff.documents import MovedRows
    from packer.audit.diff.examples import RowExample, RowSide
    from packer.audit.diff.settings import Change, InputChange, TemplateChange


@click.command("diff", cls=Command)
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--documents",
    type=click.IntRange(min=0),
    default=3,
    metavar="N",
    help="Rows whose documents differ to show, token by token [3].",
)
@html_option
@pager_option
def command(*, old: Path, new: Path, documents: int, html: Path | None, reply: Reply) -> None:
    """Say why two caches differ.

    It compares rules, inputs, template, tokenizer, documents, tokens and blocks. Exit code 1 if their content or their
    recipe differs.
    """
    from packer.audit import diff  # noqa: PLC0415 - not for --help
    from packer.store.mirror import shown  # noqa: PLC0415 - as above

    if html is not None:
        from packer.report import check_place  # noqa: PLC0415 - as above

        check_place(html, old, new)
    found = diff(old, new, documents=documents)
    message = None if found.same else f"{shown(found.old)} and {shown(found.new)} differ: {found.meaning}"
    fields = {"same": found.same, "same_bytes": found.same_bytes, **fields_of(found)}
    show = lambda: None if reply.quiet else _Page(whole=reply.verbose).show(found)  # noqa: E731
    if html is not None:
        title = " → ".join(folder.resolve().name for folder in (found.old, found.new))
        show = reply.page(lambda: _Page(whole=True).show(found), html, title=title)
    reply.verdict(fields, show, message)


_LISTED = 8
"""Lines of a list shown without -v."""

_TEMPLATE_LINES = 40
"""Lines of a template's diff shown without -v."""

_VALUE_CELLS = 300
"""Width, in cells, at which a long value is cut without -v."""


class _Page:
    """Writes the differences to stdout, section by section."""

    def __init__(self, *, whole: bool) -> None:
        self._out = stdout()
        self._whole = whole
        self._signs = signs()

    def show(self, found: "CacheDiff") -> None:
        if found.same and (found.same_bytes or not self._whole):
            self._out.line(found.meaning)
            return
        self._identity(found)
        self._changes("recipe", found.recipe)
        self._inputs(found.inputs, reordered=found.inputs_reordered)
        from packer.audit.diff.settings import split_model  # noqa: PLC0415 - not for --help

        model, tokens = split_model(found.model)
        self._changes("tokenizer and template", model, most=2 * _LISTED)
        self._added_tokens(tokens)
        for template in found.templates:
            self._template(template)
        self._documents(found)
        self._moved(found.moved)
        for example in found.examples:
            self._example(example)
        self._changes("totals", found.totals, counts=True)
        self._changes("software", found.software)
        self._out.line()

    def _identity(self, found: "CacheDiff") -> None:
        self._words(found.meaning, indent=0)
        self._out.line()
        rows = [
            (name, old[:16], new[:16], "the same" if old == new else "differs", what)
            for name, (old, new), what in (
                ("fingerprint", found.fingerprint, "of all bytes"),
                ("content", found.content_fingerprint, "of the data"),
                ("recipe", found.recipe_fingerprint, "of rules and inputs"),
            )
        ]
        print_table(self._out, [("", "<"), ("old", "<"), ("new", "<"), ("", "<"), ("", "<")], rows)

    def _changes(
        self, heading: str, changes: "Sequence[Change]", *, most: int | None = None, counts: bool = False
    ) -> None:
        if not changes:
            return
        self._heading(heading)
        shown = changes if most is None or self._whole else changes[:most]
        width = max((len(change.key) for change in shown if len(change.key) <= 32), default=0)
        for change in shown:
            self._change(change, width, counts=counts)
        self._more(len(changes) - len(shown), "")

    def _change(self, change: "Change", width: int, *, counts: bool) -> None:
        """Print a change on one line if it fits, otherwise on three."""
        old, new = change.values
        grown = f"  ({change.growth})" if counts else ""
        line = drawable(f"  {change.key:<{width}}  {old} {self._signs.arrow} {new}{grown}")
        if sum(map(cells, line)) <= self._out.width:
            self._out.line(line)
            return
        from packer.render.common_prefix import common_length  # noqa: PLC0415 - not for --help

        self._words(change.key)
        start = 0 if self._whole else max(0, common_length(old, new) - _VALUE_CELLS // 4)
        for sign, text in (("-", old), ("+", new)):
            end = len(text) if self._whole else start + _VALUE_CELLS
            gaps = self._signs.gap if start else "", self._signs.gap if end < len(text) else ""
            self._text(f"    {sign} ", f"{gaps[0]}{text[start:end]}{gaps[1]}")

    def _inputs(self, inputs: "Sequence[InputChange]", *, reordered: bool) -> None:
        if not inputs and not reordered:
            return
        self._heading("inputs")
        if reordered:
            self._words("the inputs of both are read in another order")
        shown = inputs if self._whole else inputs[:_LISTED]
        for entry in shown:
            self._text(f"  {entry.kind:<8}  ", f"{entry.path} ({entry.split}, {plural(entry.num_rows, 'row')})")
            for change in entry.changes:
                if change.key == "path":
                    self._text(" " * 12, f"was {change.old}")
                else:
                    self._text(" " * 12, f"{change.key} {f' {self._signs.arrow} '.join(change.values)}")
        self._more(len(inputs) - len(shown), "")

    def _added_tokens(self, changes: "Sequence[Change]") -> None:
        """Print added tokens: every one whose id or settings changed, and a count of the others with the first few."""
        if not changes:
            return
        kinds = {
            kind: [change for change in changes if change.kind == kind] for kind in ("changed", "removed", "added")
        }
        self._heading(f"added tokens: {', '.join(f'{len(own):,} {kind}' for kind, own in kinds.items() if own)}")
        if self._whole:
            for change in changes:
                self._change(change, 0, counts=False)
            return
        for change in kinds["changed"][:_LISTED]:
            self._change(change, 0, counts=False)
        self._more(len(kinds["changed"]) - _LISTED, "")
        for kind in ("removed", "added"):
            names = [change.key for change in kinds[kind]]
            if names:
                more = f" and {len(names) - _LISTED:,} more; -v shows all" if len(names) > _LISTED else ""
                self._text(f"  {kind:<8}", f"{' '.join(names[:_LISTED])}{more}")

    def _template(self, found: "TemplateChange") -> None:
        self._heading(found.summary)
        shown = found.lines if self._whole else found.lines[:_TEMPLATE_LINES]
        for line in shown:
            prefix, text = ("", line) if line.startswith("@@") else (f"{line[:1]} ", line[1:])
            self._text(f"  {prefix}", text, style={"-": "red", "+": "green", "@": "dim"}.get(line[:1], ""))
        self._more(len(found.lines) - len(shown), "line")

    def _documents(self, found: "CacheDiff") -> None:
        if not found.documents:
            return
        self._heading("documents")
        names = ("only_old", "only_new", "both", "rows_changed", "rows_only_old", "rows_only_new")
        headings = ("only old", "only new", "both", "rows changed", "rows old", "rows new")
        columns = [("", "<"), *((heading, ">") for heading in headings), ("", "<")]
        rows = [(each.split, *(number(getattr(each, name)) for name in names), "") for each in found.documents]
        print_table(self._out, columns, rows)
        moved = [each.split for each in found.documents if not each.only_old and not each.only_new]
        if moved:
            self._words(f"in {', '.join(moved)} the same documents in another order, or from other rows")

    def _moved(self, moved: "Sequence[MovedRows]") -> None:
        if not moved:
            return
        self._heading("rows moved by rules about rows")
        shown = moved if self._whole else moved[:_LISTED]
        rows = [
            (number(each.rows), f"{each.old} {self._signs.arrow} {each.new}", f"the first: {each.first}")
            for each in shown
        ]
        print_table(self._out, [("", ">"), ("", "<"), ("", "<")], rows)
        self._more(len(moved) - len(shown), "line")

    def _example(self, example: "RowExample") -> None:
        self._out.line()
        for name, side in example.sides:
            where = f"{side.input} row {side.row:,} ({example.split})"
            self._text(f"  {name}  ", f"{where}: {side.described(name)}")
        if example.old is not None and example.new is not None:
            self._tokens(example, example.old, example.new)

    def _tokens(self, example: "RowExample", old: "RowSide", new: "RowSide") -> None:
        from packer.audit.diff.examples import SHOWN  # noqa: PLC0415 - not for --help

        if example.difference:
            self._words(example.difference)
        if example.what == "ids":
            for sign, side, style in (("-", old, "red"), ("+", new, "green")):
                cut = self._signs.gap if side.num_differing > len(side.input_ids) else ""
                self._text(f"    {sign} ", f"{side.before}[{sign}{side.text}{cut}{sign}]", style=style)
                if side.input_ids:
                    self._text("      ", f"ids {' '.join(map(str, side.input_ids))} {cut}".rstrip(), style="dim")
        for name, side in (("old", old), ("new", new)):
            if side.num_only_trained:
                self._words(f"trained only in {name}: {plural(side.num_only_trained, 'token')}")
                for start, end, text in side.only_trained:
                    cut = self._signs.gap if end - start > SHOWN else ""
                    self._text("    ", f"{start:,} to {end - 1:,}: {text}{cut}")

    def _heading(self, text: str) -> None:
        self._out.line()
        self._words(text, indent=0, style="bold")

    def _more(self, count: int, what: str) -> None:
        if count > 0:
            hint = "" if self._whole else "; -v shows all"
            self._out.line(
                f"  {self._signs.gap} and {plural(count, f'more {what}') if what else f'{count:,} more'}{hint}"
            )

    def _words(self, text: str, *, indent: int = 2, style: str = "") -> None:
        self._out.words(drawable(text), indent=indent, hanging=2, style=style)

    def _text(self, prefix: str, text: str, *, style: str = "") -> None:
        """Print text after a prefix, with newlines as signs, cut at the edge of the line."""
        shown = drawable(text.replace("\n", self._signs.newline).replace("\t", "\\t"))
        first = prefix
        for part in wrap(shown or " ", max(20, self._out.width - len(prefix))):
            self._out.line((f"{first}{part}".rstrip(), style))
            first = " " * len(prefix)
