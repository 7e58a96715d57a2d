"""`packer stats`: show the numbers of a cache."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer.display import number, percent, plural, size
from packer_cli.options import Command
from packer_cli.output import print_table, stdout
from packer_cli.reply import Reply, fields_of
from packer_cli.result import print_lines

if TYPE_CHECKING:
    from packer.audit.stats import SplitStats, Stats

_BAR = 32


@click.command("stats", cls=Command)
@click.argument("cache", type=click.Path(path_type=Path))
@click.option(
    "--rows", "split", metavar="SPLIT", help="List the rows of a split, one per line: input, a tab, row number from 0."
)
def command(
    *,
    cache: Path,
    split: str | None,
    reply: Reply,
) -> None:
    """Show lengths, fill, the trained share and what was rejected."""
    from packer.audit import rows_of_split, stats  # noqa: PLC0415 - not for --help
    from packer.store.mirror import shown  # noqa: PLC0415 - as above

    if split is not None:
        rows = rows_of_split(cache, split)
        reply.data({"folder": shown(cache), "split": split, "rows": rows}, lambda: _print_rows(rows))
        return
    found = stats(cache)
    reply.data(_fields(found), lambda: _print(found))


def _print_rows(rows: dict[str, list[int]]) -> None:
    for path, own in rows.items():
        for row in own:
            stdout().line(f"{path}\t{row}")


def _print(found: "Stats") -> None:
    from packer.pipeline.messages.build_result import kept_rows, skipped_answers  # noqa: PLC0415 - not for --help

    out = stdout()
    if found.left_out is not None:
        print_lines(found.left_out.lines())
    facts = [
        ("rows", number(found.rows), kept_rows(found.rows, found.kept, found.selected)),
        ("documents", number(found.documents), _rewriting(found.rewriting)),
        ("tokens", number(found.tokens), f"{number(found.trained)} trained ({percent(found.trained_share)})"),
    ]
    if found.images:
        facts.append(("images", number(found.images), f"{number(found.image_tokens)} tokens"))
    if found.mode != "none":
        facts += [
            ("blocks", number(found.blocks), f"of {number(found.block_len)} tokens, {percent(found.fill)} full"),
            ("padding", number(found.padding), "slots that hold no token"),
        ]
    if found.separators:
        facts.append(("separators", number(found.separators), "slots with an EOS between documents"))
    if found.piece_starts:
        facts.append(
            ("piece starts", number(found.piece_starts), "trained tokens that begin a piece, and so are masked")
        )
    if found.skipped:
        facts.append(("skipped", number(found.skipped), skipped_answers(found.selected)))
    of_rows = "" if found.selected is None else " of all rows"
    facts += [
        (
            "on disk",
            size(found.num_bytes),
            f"documents{of_rows} {size(found.documents_bytes)}, blocks {size(found.blocks_bytes)}",
        ),
        ("", f"{found.bytes_per_token:.1f}", "bytes a token"),
    ]
    print_table(out, [("", "<"), ("", ">"), ("", "<")], facts)
    _print_reasons(found)
    if found.selected is not None:
        print_lines(found.selected.rule_lines(found.rows, listed="listed in rejected.jsonl"))
        print_lines(found.selected.warning_lines())
    out.line()
    out.line("splits")
    print_table(out, _SPLIT_COLUMNS, [_split_row(split) for split in found.splits])
    for split in found.splits:
        _print_lengths(split)
    out.line()
    out.line(f"fingerprint  {found.fingerprint}")


_SPLIT_COLUMNS = [
    ("", "<"),
    ("rows", ">"),
    ("documents", ">"),
    ("tokens", ">"),
    ("trained", ">"),
    ("blocks", ">"),
    ("full", ">"),
]


def _split_row(split: "SplitStats") -> tuple[str, ...]:
    packed = split.blocks > 0
    return (
        split.split,
        number(split.kept),
        number(split.documents),
        number(split.tokens),
        percent(split.trained_share),
        number(split.blocks) if packed else "-",
        percent(split.fill) if packed else "-",
    )


def _print_reasons(found: "Stats") -> None:
    from packer.rejections import ROW_REASONS  # noqa: PLC0415 - not for --help

    out = stdout()
    columns = [("", ">"), ("", "<"), ("", "<")]
    if found.rejected:
        out.line()
        out.line("rejected rows (each is listed in rejected.jsonl)")
        print_table(out, columns, [(number(r.count), r.code, r.meaning) for r in found.rejected])
    cut = [reason for reason in found.cut if reason.code not in ROW_REASONS]
    if cut:
        tokens = plural(sum(reason.tokens for reason in cut), "token")
        out.line()
        out.line(f"in no block: {tokens} (each part is listed in rejected.jsonl)")
        print_table(out, columns, [(plural(r.tokens, "token"), r.code, r.meaning) for r in cut])


def _print_lengths(split: "SplitStats") -> None:
    out = stdout()
    lengths = split.lengths
    if lengths is None:
        return
    out.line()
    out.line(f"lengths of documents in {split.split}")
    for name, own in [("", lengths), *split.sides.items()]:
        quantiles = "   ".join(f"{of} {number(getattr(own, of))}" for of in ("min", "p10", "p50", "p90", "p99", "max"))
        out.line(f"  {quantiles}   {name}".rstrip())
    most, total = max(count for _, _, count in lengths.bins), split.documents
    rows = [
        (
            f"{first:,} to {last:,}" if first != last else f"{first:,}",
            number(count),
            percent(count / total),
            bar(count / most, _BAR),
        )
        for first, last, count in lengths.bins
    ]
    print_table(stdout(), [("tokens", ">"), ("documents", ">"), ("", ">"), ("", "<")], rows)


def bar(share: float, width: int) -> str:
    """Draw a bar of up to `width` cells in eighths of a cell; nonzero values show at least one eighth."""
    eighths = max(1, round(share * width * 8)) if share else 0
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _rewriting(price: float) -> str:
    if price < 1.005:
        return ""
    return f"the template rewrites earlier turns: {price:.2f} times the tokens"


def _fields(found: "Stats") -> dict[str, Any]:
    fields = fields_of(found) | {
        "trained_share": found.trained_share,
        "fill": found.fill,
        "num_bytes": found.num_bytes,
        "bytes_per_token": found.bytes_per_token,
    }
    for values, split in zip(fields["splits"], found.splits, strict=True):
        values |= {"trained_share": split.trained_share, "fill": split.fill}
    if found.selected is None:
        del fields["selected"]
    return fields
