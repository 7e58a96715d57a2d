"""The report of a build as lines of text, for the terminal and for Python callers.

Lines that begin with two spaces continue the line before them; a warning begins with `warning:`.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from packer.display import aligned, number, percent, plural
from packer.errors import PackerError
from packer.pipeline.losses import TokenLosses, num_tokens
from packer.pipeline.rejected_inputs import RejectedInput
from packer.pipeline.row_report import RowReport
from packer.rejections import CODES, ROW_REASONS
from packer.store.manifest import Manifest
from packer.store.mirror import shown
from packer.store.rejected import read_rejected

_WORTH_A_LINE = 1.01
"""Least ratio at which the cost of rewritten history gets a line of its own; a smaller one would print as 1.00 times.
"""

_VAGUE = frozenset({"wrong_type"})
"""Codes that say little without the reason given for a row."""


def of_rejected_input(entry: RejectedInput) -> Iterator[str]:
    """Yield the warning about an input of which all rows, or many, are rejected."""
    share = "all" if entry.num_rejected == entry.num_rows else f"{number(entry.num_rejected)} of"
    rows = f"{share} {plural(entry.num_rows, 'row')} of {entry.name}"
    yield f"warning: {rows} are rejected: {entry.code}: {entry.reason}"
    yield f"  {entry.way_out}"
    yield ""


def of_left_out(left_out: TokenLosses) -> Iterator[str]:
    """Yield the warning about tokens that are in no block."""
    tokens = f"{number(left_out.tokens)} of {number(left_out.of_tokens)}"
    yield f"warning: {percent(left_out.share)} of the tokens are in no block ({tokens})"
    yield from (f"  {way}" for way in left_out.ways_out)
    yield ""


def of_row_warnings(rows: RowReport) -> Iterator[str]:
    """Yield the warnings of rules about rows."""
    yield from (f"warning: {warning}" for warning in rows.warnings)
    if rows.warnings:
        yield ""


def of_splits(rows: RowReport) -> Iterator[str]:
    """Yield the number of rows in each split."""
    yield ""
    yield "rows of each split"
    yield from aligned("<>>", [(each.split, number(each.rows), percent(each.share)) for each in rows.splits])


def of_rules(rows: RowReport, num_rows: int, *, listed: str) -> Iterator[str]:
    """Yield how many of the inputs' rows each rule leaves out."""
    if rows.left_out:
        yield ""
        yield f"left out by rules: {number(rows.num_left_out)} of {plural(num_rows, 'row')}; {listed}"
        shares = [percent(each.rows / max(num_rows, 1)) for each in rows.left_out]
        lines = [(number(e.rows), share, e.code, e.rule or "") for e, share in zip(rows.left_out, shares, strict=True)]
        yield from aligned(">><<", lines)


def of_kept(num_rows: int, num_kept: int, rows: RowReport | None) -> str:
    """Summarize what happened to the rows: kept, left out by rules, rejected. `num_kept` are not rejected."""
    left_out = 0 if rows is None else rows.num_left_out
    by_rules = "" if rows is None else f"{number(left_out)} left out by rules, "
    return f"{number(num_kept - left_out)} kept, {by_rules}{number(num_rows - num_kept)} rejected"


def of_skipped(rows: RowReport | None) -> str:
    """Say what is counted as skipped; the documents of rows that rules leave out are counted too."""
    also = " (also of rows left out)" if rows is not None and rows.num_left_out else ""
    return f"answers not trained{also}: they are empty, or the template has no prompt for them"


def of_totals(manifest: Manifest, folder: Path, rows: RowReport | None, *, warned: bool) -> Iterator[str]:
    """Yield the counts of rows, documents and blocks, and of what is in no block.

    If `warned`, a warning has already said how to get more tokens into blocks.
    """
    totals, pack, listed = manifest.totals, manifest.recipe["pack"], f"{shown(folder)}/rejected.jsonl"
    ruled_out = [cut for code, cut in totals.cut.items() if code in ROW_REASONS]
    tokens = num_tokens(manifest)
    trained = (totals.trained - sum(cut.trained for cut in ruled_out)) / max(tokens, 1)
    documents = totals.documents - sum(cut.documents for cut in ruled_out)
    facts = [
        ("rows", number(totals.rows), of_kept(totals.rows, totals.kept, rows)),
        ("documents", number(documents), f"{number(tokens)} tokens, {percent(trained)} trained"),
    ]
    if totals.skipped:
        facts.append(("skipped", number(totals.skipped), of_skipped(rows)))
    if pack["mode"] != "none":
        full = percent((totals.slots - totals.separators - totals.padding) / max(totals.slots, 1))
        facts.append(("blocks", number(totals.blocks), f"of {number(pack['block_len'])} tokens, {full} full"))
    yield from aligned("<><", facts)
    last = sum(shard.num_last_tokens for shard in manifest.shards)
    if totals.tokens > _WORTH_A_LINE * last:
        yield ""
        also = "" if rows is None else " (with those that rules leave out)"
        yield f"history is rewritten: {number(totals.documents)} documents of {number(totals.kept)} rows{also},"
        yield f"{totals.tokens / last:.2f} times the tokens of each row's last document"
    if totals.rejected:
        yield ""
        yield f"rows rejected; listed in {listed}"
        ordered = sorted(totals.rejected.items(), key=lambda entry: -entry[1])
        yield from aligned("><<", [(number(n), code, _meaning(code, manifest, folder)) for code, n in ordered])
    cuts = {code: cut for code, cut in totals.cut.items() if code not in ROW_REASONS}
    if cuts:
        lost = f"{number(sum(cut.tokens for cut in cuts.values()))} of {number(tokens)} tokens"
        yield ""
        yield f"in no block: {lost}, {number(sum(cut.trained for cut in cuts.values()))} of them trained;"
        yield f"listed in {listed}"
        largest = sorted(cuts.items(), key=lambda entry: -entry[1].tokens)
        yield from aligned("><<", [(plural(cut.tokens, "token"), code, CODES.get(code, "")) for code, cut in largest])
    if "overlong" in cuts and not warned:
        yield "--block-len N makes blocks longer, --set pack.overlong=split cuts documents"


def _meaning(code: str, manifest: Manifest, folder: Path) -> str:
    """Return the meaning of a code; for a vague one, add the reason of its first row if rejected.jsonl is intact."""
    meaning = CODES.get(code, "")
    if code in _VAGUE:
        with suppress(PackerError):
            first = next((line for line in read_rejected(folder, manifest) if line.code == code), None)
            return meaning if first is None else f"{meaning.partition(';')[0]}; the first: {first.reason}"
    return meaning
