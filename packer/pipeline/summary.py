"""What a build did, in words: lines for a terminal, and for callers from Python.

Lines that begin with two blanks belong to the line before them, and what begins with `warning:` is one.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from packer.display import aligned, number, percent, plural
from packer.errors import PackerError
from packer.pipeline.losses import LeftOut
from packer.pipeline.rejected_inputs import RejectedInput
from packer.pipeline.row_report import RowReport
from packer.rejections import CODES, ROW_REASONS
from packer.store.manifest import Manifest
from packer.store.rejected import read_rejected

SKIPPED = "answers not learned: they are empty, or the template has no prompt for them"

_WORTH_A_LINE = 1.01
"""What rewritten history must cost for a line of its own; below, it would read 1.00 times."""

_VAGUE = frozenset({"wrong_type"})
"""Codes that say little without the reason of a row."""


def of_rejected_input(entry: RejectedInput) -> Iterator[str]:
    """The warning of an input whose rows are rejected, all or many."""
    share = "all" if entry.num_rejected == entry.num_rows else f"{number(entry.num_rejected)} of"
    rows = f"{share} {plural(entry.num_rows, 'row')} of {entry.name}"
    yield f"warning: {rows} are rejected: {entry.code}: {entry.reason}"
    yield f"  {entry.way_out}"
    yield ""


def of_left_out(left_out: LeftOut, num_tokens: int) -> Iterator[str]:
    """The warning of tokens that are in no block."""
    tokens = f"{number(left_out.tokens)} of {number(num_tokens)}"
    yield f"warning: {percent(left_out.share)} of the tokens are in no block ({tokens})"
    yield from (f"  {way}" for way in left_out.ways_out)
    yield ""


def of_row_warnings(rows: RowReport) -> Iterator[str]:
    """The warnings of rules about rows."""
    yield from (f"warning: {warning}" for warning in rows.warnings)
    if rows.warnings:
        yield ""


def of_rows(rows: RowReport, num_rows: int, *, listed: str) -> Iterator[str]:
    """Rows of each split, and what each rule leaves out."""
    yield ""
    yield "rows of each split"
    yield from aligned("<>>", [(each.split, number(each.rows), percent(each.share)) for each in rows.splits])
    if rows.left_out:
        yield ""
        left_out = sum(each.rows for each in rows.left_out)
        yield f"left out by rules: {number(left_out)} of {number(num_rows)} rows; {listed}"
        lines = [(number(each.rows), percent(each.share), each.code, each.rule or "") for each in rows.left_out]
        yield from aligned(">><<", lines)


def of_totals(manifest: Manifest, folder: Path, *, warned: bool) -> Iterator[str]:
    """Rows, documents, blocks, and what is in none.

    Args:
        manifest: of the cache.
        folder: the cache.
        warned: whether a warning has said how more tokens get into blocks.

    """
    totals, pack, listed = manifest.totals, manifest.recipe["pack"], folder / "rejected.jsonl"
    rejected, trained = totals.rows - totals.kept, totals.trained / totals.tokens if totals.tokens else 0.0
    facts = [
        ("rows", number(totals.rows), f"{number(totals.kept)} kept, {number(rejected)} rejected"),
        ("documents", number(totals.documents), f"{number(totals.tokens)} tokens, {percent(trained)} trained"),
    ]
    if totals.skipped:
        facts.append(("skipped", number(totals.skipped), SKIPPED))
    if pack["mode"] != "none":
        full = percent((totals.slots - totals.separators - totals.padding) / totals.slots)
        facts.append(("blocks", number(totals.blocks), f"of {number(pack['block_len'])} tokens, {full} full"))
    yield from aligned("<><", facts)
    last = sum(shard.num_last_tokens for shard in manifest.shards)
    if totals.tokens > _WORTH_A_LINE * last:
        yield ""
        yield f"history is rewritten: {number(totals.documents)} documents of {number(totals.kept)} rows,"
        yield f"{totals.tokens / last:.2f} times the tokens of each row's last document"
    if totals.rejected:
        yield ""
        yield f"rows rejected; listed in {listed}"
        ordered = sorted(totals.rejected.items(), key=lambda entry: -entry[1])
        yield from aligned("><<", [(number(n), code, _meaning(code, manifest, folder)) for code, n in ordered])
    cuts = {code: cut for code, cut in totals.cut.items() if code not in ROW_REASONS}
    if cuts:
        tokens = f"{number(sum(cut.tokens for cut in cuts.values()))} of {number(totals.tokens)} tokens"
        yield ""
        yield f"in no block: {tokens}, {number(sum(cut.trained for cut in cuts.values()))} of them trained;"
        yield f"listed in {listed}"
        largest = sorted(cuts.items(), key=lambda entry: -entry[1].tokens)
        yield from aligned("><<", [(plural(cut.tokens, "token"), code, CODES.get(code, "")) for code, cut in largest])
    if "overlong" in cuts and not warned:
        yield "--block-len N makes blocks longer, --set pack.overlong=split cuts documents"


def _meaning(code: str, manifest: Manifest, folder: Path) -> str:
    """What a code means; of a vague one with the reason of the first row that has it, if rejected.jsonl is whole."""
    meaning = CODES.get(code, "")
    if code in _VAGUE:
        with suppress(PackerError):
            first = next((line for line in read_rejected(folder, manifest) if line.code == code), None)
            return meaning if first is None else f"{meaning.partition(';')[0]}; the first: {first.reason}"
    return meaning
