"""The page of `packer diff`: what differs, section by section."""

import json
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from packer_cli.output import can_draw, number, percent, plural, print_table, stdout
from packer_cli.text import NEWLINES, cells, visible, wrap

if TYPE_CHECKING:
    from packer.audit import CacheDiff
    from packer.audit.diff.report import (
        Change,
        DocumentSide,
        InputsDiff,
        LabelRun,
        ModelDiff,
        NumbersDiff,
        RowExample,
        RowPlace,
        TextDiff,
        TokenDiff,
        VocabularyDiff,
    )

_LISTED = 8
"""Lines of a list shown without -v."""

_TEMPLATE_LINES = 40
"""Lines of a template's diff shown without -v."""

_SHARES = ("trained_share", "fill")


class DiffPage:
    """Writes what differs to stdout, section by section."""

    def __init__(self, *, whole: bool) -> None:
        self._out = stdout()
        self._whole = whole
        self._drawn = can_draw()
        self._arrow = "→" if self._drawn else "->"
        self._gap = "…" if self._drawn else "..."
        self._newline = NEWLINES[not self._drawn]

    def show(self, found: "CacheDiff") -> None:
        if found.same and (found.same_bytes or not self._whole):
            self._line(found.identity.meaning)
            return
        self._identity(found)
        if found.recipe is not None:
            self._changes("recipe", found.recipe.rules)
            self._changes("recipe: places, which are not part of its identity", found.recipe.places, most=_LISTED)
        if found.inputs is not None:
            self._inputs(found.inputs)
        if found.model is not None:
            self._model(found.model)
        self._documents(found)
        if found.numbers is not None:
            self._numbers(found.numbers)
        self._blocks(found)
        if found.software is not None:
            self._changes("engine, which is part of the recipe's identity", found.software.engine)
            self._changes("software, which may not change the data", found.software.versions)
        self._line("")

    def _identity(self, found: "CacheDiff") -> None:
        identity = found.identity
        self._words(f"{identity.meaning}", indent=0)
        self._line("")
        rows = [
            (name, old[:16], new[:16], "the same" if old == new else "differs", what)
            for name, (old, new), what in (
                ("fingerprint", identity.fingerprint, "of all bytes"),
                ("content", identity.content_fingerprint, "of the data"),
                ("recipe", identity.recipe_fingerprint, "of rules and inputs"),
            )
        ]
        columns = [("", "<"), ("old", "<"), ("new", "<"), ("", "<"), ("", "<")]
        print_table(self._out, columns, rows)
        if self._whole and identity.manifest:
            self._words(f"in the manifest: {', '.join(identity.manifest)}")

    def _changes(self, heading: str, changes: "Sequence[Change]", *, most: int | None = None) -> None:
        if not changes:
            return
        self._heading(heading)
        shown = changes if most is None or self._whole else changes[:most]
        width = max((len(change.key) for change in shown if len(change.key) <= 32), default=0)
        for change in shown:
            self._change(change, width)
        self._more(len(changes) - len(shown))

    def _change(self, change: "Change", width: int) -> None:
        """In one line, where there is room; else in three."""
        old, new = _value(change.old), _value(change.new)
        key = self._shown(change.key)
        line = self._shown(f"  {key:<{width}}  {old} {self._arrow} {new}")
        if sum(map(cells, line)) <= self._out.width:
            self._line(line)
            return
        self._words(key)
        room = self._out.width - 6
        start = 0 if self._whole else _start(old, new, room)
        for sign, text in (("-", old), ("+", new)):
            self._text(f"    {sign} ", self._excerpt(text, start, room))

    def _inputs(self, found: "InputsDiff") -> None:
        self._heading(f"inputs, {number(found.num_same)} the same")
        if found.reordered:
            self._words("those in both are read in another order")
        ordered = sorted(found.changed, key=lambda entry: entry.kind == "renamed")
        shown = ordered if self._whole else ordered[:_LISTED]
        for entry in shown:
            count = f"{entry.split}, {plural(entry.num_rows, 'row')}"
            self._text(f"  {entry.kind:<8}  ", f"{entry.path} ({count})")
            for change in entry.changes:
                if change.key == "path":
                    self._text(" " * 12, f"was {change.old}")
                    continue
                values = [value[:16] if change.key == "sha256" else _value(value) for value in (change.old, change.new)]
                self._text(" " * 12, f"{change.key} {values[0]} {self._arrow} {values[1]}")
        self._more(len(found.changed) - len(shown))

    def _model(self, found: "ModelDiff") -> None:
        if found.files:
            self._heading("tokenizer and template: files that differ")
            self._words(", ".join(_file(change) for change in found.files))
        for text in found.templates:
            self._template(text)
        if found.vocabulary is not None:
            self._vocabulary(found.vocabulary)
        self._changes("added tokens", found.added_tokens, most=_LISTED)
        self._changes("settings of the tokenizer", found.settings)
        self._changes("ids", found.ids)

    def _template(self, found: "TextDiff") -> None:
        self._heading(
            f"{found.name}: {plural(found.num_removed, 'line')} removed, {plural(found.num_added, 'line')} added"
        )
        shown = found.lines if self._whole else found.lines[:_TEMPLATE_LINES]
        for line in shown:
            prefix, text = ("", line) if line.startswith("@@") else (f"{line[:1]} ", line[1:])
            self._text(f"  {prefix}", text, style={"-": "red", "+": "green", "@": "dim"}.get(line[:1], ""))
        self._more(len(found.lines) - len(shown), "line")

    def _vocabulary(self, found: "VocabularyDiff") -> None:
        self._heading(f"vocabulary: {number(found.old_size)} {self._arrow} {number(found.new_size)} entries")
        counts = (
            (found.num_added, "added"),
            (found.num_removed, "removed"),
            (found.num_moved, "with another id"),
            (found.num_scores, "with another score"),
            (found.merges_added, "merges added"),
            (found.merges_removed, "merges removed"),
        )
        told = [f"{number(count)} {what}" for count, what in counts if count]
        if found.first_merge is not None:
            told.append(f"the first other merge has rank {number(found.first_merge)}")
        self._words(", ".join(told))
        for entry in found.entries:
            old, new = ("-" if value is None else str(value) for value in (entry.old_id, entry.new_id))
            self._text("  ", f"{old:>8} {self._arrow} {new:<8} {_value(entry.piece)}")

    def _documents(self, found: "CacheDiff") -> None:
        if not found.documents:
            return
        self._heading("documents")
        names = ("only old", "only new", "both", "rows changed", "rows only old", "rows only new")
        rows = [
            (
                entry.split,
                *map(number, (entry.only_old, entry.only_new, entry.both)),
                *map(number, (entry.rows_changed, entry.rows_only_old, entry.rows_only_new)),
                "",
            )
            for entry in found.documents
        ]
        print_table(self._out, [("", "<"), *((name, ">") for name in names), ("", "<")], rows)
        moved = [entry.split for entry in found.documents if not entry.only_old and not entry.only_new]
        if moved:
            self._words(f"in {', '.join(moved)} the same ones in another order, or of other rows")
        for example in found.examples:
            self._line("")
            self._place("old", example.old, example)
            self._place("new", example.new, example)
            if example.tokens is not None:
                self._tokens(example.tokens)

    def _place(self, name: str, place: "RowPlace | None", example: "RowExample") -> None:
        if place is None:
            return
        if place.code is not None:
            what = f"rejected, {place.code}: {place.reason}"
        elif example.tokens is None:
            what = f"{plural(place.documents, 'document')} that only {name} has"
        else:
            side = example.tokens.old if name == "old" else example.tokens.new
            what = f"{plural(side.length, 'token')}, {number(side.num_trained)} trained, doc {side.doc_id}"
            what += f", and {place.documents - 1:,} more that only {name} has" if place.documents > 1 else ""
        self._text(f"  {name}  ", f"{place.input} row {place.row:,} ({example.split}): {what}")

    def _tokens(self, found: "TokenDiff") -> None:
        from packer.audit.diff.tokens import BEFORE  # noqa: PLC0415 - not for --help

        old, new = found.old, found.new
        if found.what == "weights":
            self._words(f"the same ids and labels; other loss weights from token {number(found.at)} on")
        elif found.what == "labels":
            self._words("the same ids, other labels")
        else:
            also = ", in the same text" if found.same_text else ""
            became = f"{plural(old.num_differing, 'token')} became {number(new.num_differing)}"
            again = "; they differ again behind it" if found.differs_again else ""
            self._words(f"ids differ from token {number(found.at)} on: {became}{also}{again}")
            self._side("-", old, "red", is_start=found.at <= BEFORE)
            self._side("+", new, "green", is_start=found.at <= BEFORE)
        self._labels("old", found.trained_old, found.num_trained_old)
        self._labels("new", found.trained_new, found.num_trained_new)

    def _side(self, sign: str, side: "DocumentSide", style: str, *, is_start: bool) -> None:
        cut = self._gap if side.num_differing > len(side.input_ids) else ""
        before = side.before if is_start else f"{self._gap}{side.before}"
        text = f"{before}[{sign}{side.text}{cut}{sign}]{side.behind}"
        self._text(f"    {sign} ", text, style=style)
        if side.input_ids:
            self._text("      ", f"ids {' '.join(map(str, side.input_ids))} {cut}".rstrip(), style="dim")

    def _labels(self, name: str, runs: "Sequence[LabelRun]", total: int) -> None:
        if not runs:
            return
        self._words(f"trained only in {name}: {plural(total, 'token')}")
        for run in runs:
            end = run.start + run.num_tokens - 1
            text = f"{run.text}{'' if run.is_whole else self._gap}"
            self._text("    ", f"{run.start:,} to {end:,}: {text}")

    def _numbers(self, found: "NumbersDiff") -> None:
        columns = [("", "<"), ("old", ">"), ("new", ">"), ("", ">")]
        if found.totals:
            self._heading("totals")
            print_table(self._out, columns, [_total(change) for change in found.totals])
        if found.rejected:
            self._heading("rejected rows")
            print_table(self._out, columns, [_total(change) for change in found.rejected])
        if found.cut:
            self._heading("tokens in no block")
            tokens = [[(side or {}).get("tokens", 0) for side in (entry.old, entry.new)] for entry in found.cut]
            rows = [_counted(entry.key, *counts) for entry, counts in zip(found.cut, tokens, strict=True)]
            print_table(self._out, columns, rows)
        if found.lengths:
            self._heading("lengths of documents")
            names = ("min", "p10", "p50", "p90", "p99", "max")
            lines = [
                (
                    change.split,
                    side,
                    *("-" if lengths is None else number(getattr(lengths, name)) for name in names),
                    "",
                )
                for change in found.lengths
                for side, lengths in (("old", change.old), ("new", change.new))
            ]
            print_table(self._out, [("", "<"), ("", "<"), *((name, ">") for name in names), ("", "<")], lines)

    def _blocks(self, found: "CacheDiff") -> None:
        if not found.blocks:
            return
        self._heading("blocks")
        columns = [("", "<"), ("old", ">"), ("new", ">"), ("full, old", ">"), ("full, new", ">"), ("pieces", "<")]
        rows = []
        for entry in found.blocks:
            pieces = f"{number(entry.pieces_only_old)} only old, {number(entry.pieces_only_new)} only new"
            if not entry.pieces_only_old and not entry.pieces_only_new:
                pieces = "the same blocks in another order" if entry.same_blocks else "the same, laid out otherwise"
            counts = number(entry.old_blocks), number(entry.new_blocks)
            rows.append((entry.split, *counts, percent(entry.old_fill), percent(entry.new_fill), pieces))
        print_table(self._out, columns, rows)

    def _heading(self, text: str) -> None:
        self._line("")
        self._words(text, indent=0, style="bold")

    def _more(self, count: int, what: str = "") -> None:
        if count > 0:
            self._line(
                f"  {self._gap} and {plural(count, f'more {what}') if what else f'{count:,} more'}; -v shows all"
            )

    def _words(self, text: str, *, indent: int = 2, style: str = "") -> None:
        lines = textwrap.wrap(self._shown(text), self._out.width - indent, subsequent_indent="  ")
        for line in lines:
            self._line(" " * indent + line, style)

    def _text(self, prefix: str, text: str, *, style: str = "") -> None:
        """Text of any kind behind a prefix, newlines shown as signs, cut where the line ends."""
        shown = self._shown(text.replace("\n", self._newline).replace("\t", "\\t"))
        first = prefix
        for part in wrap(shown or " ", max(20, self._out.width - len(prefix))):
            self._line(f"{first}{part}".rstrip(), style)
            first = " " * len(prefix)

    def _excerpt(self, text: str, start: int, room: int) -> str:
        if self._whole or (not start and len(text) <= 2 * room):
            return text
        before = self._gap if start else ""
        behind = self._gap if len(text) > start + 2 * room else ""
        return f"{before}{text[start : start + 2 * room]}{behind}"

    def _shown(self, text: str) -> str:
        """Nothing that steers the terminal, and nothing that it cannot write."""
        shown = visible(text)
        return shown if self._drawn else shown.encode("ascii", "backslashreplace").decode()

    def _line(self, text: str, style: str = "") -> None:
        self._out.line((text, style))


def _value(value: object) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def _start(old: str, new: str, room: int) -> int:
    """Where to begin to show two long values: a little before they part."""
    if max(len(old), len(new)) <= 2 * room:
        return 0
    from packer.render.parting import common_length  # noqa: PLC0415 - not for --help

    return max(0, common_length(old, new) - room // 2)


def _file(change: "Change") -> str:
    if change.old is None:
        return f"{change.key} (only in new)"
    return f"{change.key} (only in old)" if change.new is None else change.key


def _total(change: "Change") -> tuple[str, ...]:
    if change.key in _SHARES:
        return change.key.replace("_", " "), percent(change.old), percent(change.new), ""
    return _counted(change.key, change.old, change.new)


def _counted(name: str, old: int, new: int) -> tuple[str, ...]:
    return name, number(old), number(new), f"{new - old:+,}"
