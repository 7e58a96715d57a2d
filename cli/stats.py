"""`packer stats`: show the numbers of a cache."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer.display import number, percent, size
from packer_cli.options import Command
from packer_cli.output import stdout
from packer_cli.reply import Reply

if TYPE_CHECKING:
    from packer.audit.stats import SplitStats, Stats

_QUANTILES = ("min", "p10", "p50", "p90", "p99", "max")


@click.command("stats", cls=Command)
@click.argument("cache", type=click.Path(path_type=Path))
def command(*, cache: Path, reply: Reply) -> None:
    """Show lengths, fill, the trained share and what was rejected."""
    from packer.audit.stats import stats  # noqa: PLC0415 - not for --help

    found = stats(cache)
    reply.data(_fields(found), lambda: _print(found))


def _print(found: "Stats") -> None:
    """Print warnings, then what a build says of the cache, then what it does not count."""
    from packer.pipeline.messages.build_result import in_sections  # noqa: PLC0415 - not for --help

    out, totals, selected = stdout(), found.totals, found.summary.rows
    rules = selected.rule_lines(totals.rows, listed="listed in rejected.jsonl") if selected is not None else ()
    out.lines(in_sections([found.summary.warning_lines(), found.summary.totals_lines(found.manifest), rules]))
    facts = []
    if found.images:
        read = f"{number(found.image_tokens)} tokens, {number(found.image_pixels)} pixels for a vision tower"
        facts.append(("images", number(found.images), read))
    for name, count, meaning in (
        ("padding", totals.padding, "slots that hold no token"),
        ("piece starts", totals.piece_starts, "trained tokens that begin a piece, and so are masked"),
    ):
        if count:
            facts.append((name, number(count), meaning))
    of_rows = "" if found.summary.rows is None else " of all rows"
    files = f"documents{of_rows} {size(found.num_bytes['documents'])}, blocks {size(found.num_bytes['blocks'])}"
    whole = size(sum(found.num_bytes.values()))
    facts += [("on disk", whole, files), ("", f"{found.bytes_per_token:.1f}", "bytes a token")]
    out.line()
    out.table(facts, "<", ">", "<")
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
    out.line(f"fingerprint  {found.summary.fingerprint}")


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


def _fields(found: "Stats") -> dict[str, Any]:
    from packer.names import shown  # noqa: PLC0415 - not for --help
    from packer.recipe.recipe import to_json  # noqa: PLC0415 - as above

    return {
        "folder": shown(found.summary.folder),
        "fingerprint": found.summary.fingerprint,
        "totals": to_json(found.totals),
        **{name: getattr(found, name) for name in ("images", "image_tokens", "image_pixels", "num_bytes")},
        "splits": [asdict(split) for split in found.splits],
        "left_out": found.summary.left_out and asdict(found.summary.left_out),
    } | ({} if found.summary.rows is None else {"selected": asdict(found.summary.rows)})
