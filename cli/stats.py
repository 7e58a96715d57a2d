"""`packer stats`: show the numbers of a cache."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer.display import number, percent, plural, size
from packer_cli.options import Command
from packer_cli.output import stdout
from packer_cli.reply import Reply, fields_of

if TYPE_CHECKING:
    from packer.audit.stats import SplitStats, Stats

_QUANTILES = ("min", "p10", "p50", "p90", "p99", "max")


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
    from packer.audit.stats import rows_of_split, stats  # noqa: PLC0415 - not for --help
    from packer.names import shown  # noqa: PLC0415 - as above

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
        out.lines([*found.left_out.lines(), ""])
    facts = [
        ("rows", number(found.rows), kept_rows(found.rows, found.kept, found.selected)),
        ("documents", number(found.documents), _rewriting(found.rewriting)),
        ("tokens", number(found.tokens), f"{number(found.trained)} trained ({percent(found.trained_share)})"),
    ]
    if found.images:
        read = f"{number(found.image_tokens)} tokens, {number(found.image_pixels)} pixels for a vision tower"
        facts.append(("images", number(found.images), read))
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
    out.table(facts, "<", ">", "<")
    _print_reasons(found)
    if found.selected is not None:
        out.lines(["", *found.selected.rule_lines(found.rows, listed="listed in rejected.jsonl")])
        out.lines(["", *found.selected.warning_lines()] if found.selected.warnings else [])
    rows = [_split_row(split) for split in found.splits]
    columns = ("rows", "documents", "tokens", "trained", "blocks", "full")
    out.table(rows, "<", *(f"{name}>" for name in columns), heading="splits")
    lengths = [
        (f"{split.split} {side}".rstrip(), *(number(getattr(own, name)) for name in _QUANTILES))
        for split in found.splits
        for side, own in (("", split.lengths), *split.sides.items())
        if own is not None
    ]
    out.table(lengths, "<", *(f"{name}>" for name in _QUANTILES), heading="lengths of documents, in tokens")
    out.line()
    out.line(f"fingerprint  {found.fingerprint}")


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

    rejected = [(number(r.count), r.code, r.meaning) for r in found.rejected]
    stdout().table(rejected, ">", "<", "<", heading="rejected rows (each is listed in rejected.jsonl)")
    cut = [(plural(r.tokens, "token"), r.code, r.meaning) for r in found.cut if r.code not in ROW_REASONS]
    heading = f"in no block: {plural(found.cut_tokens, 'token')} (each part is listed in rejected.jsonl)"
    stdout().table(cut, ">", "<", "<", heading=heading)


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
