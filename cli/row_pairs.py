"""Two rows that are alike, one below the other, marked where they differ."""

from typing import TYPE_CHECKING

from packer_cli.findings_page import FindingsPage

if TYPE_CHECKING:
    from packer.audit import Example, RowPair


def print_pair(page: FindingsPage, pair: "RowPair") -> None:
    """Print both texts with their places."""
    for line, is_mark in page.example_lines(_examples(pair), indent=2):
        page.out.line((line, "green" if is_mark else ""))


def _examples(pair: "RowPair") -> "tuple[Example, Example]":
    from packer.audit import Example  # noqa: PLC0415 - not for --help

    texts = (pair.first.text, pair.second.text)
    start = _shared(*texts)
    end = _shared(texts[0][start:][::-1], texts[1][start:][::-1])
    marks = [None if texts[0] == texts[1] else (start, len(text) - end) for text in texts]
    alike = "" if pair.similarity == 1 else f", {pair.similarity:.2f} alike"
    rows = ((pair.first, ""), (pair.second, alike))
    first, second = (
        Example(label=f"{row.split} {row.input}:{row.row}{more}".lstrip(), text=row.text, mark=mark)
        for (row, more), mark in zip(rows, marks, strict=True)
    )
    return first, second


def _shared(first: str, second: str) -> int:
    """Characters that both begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
