"""Runs of blanks are passed over as a whole; what is a row, and in which line, does not depend on how they are read."""

import random
from pathlib import Path

from packer.errors import InputError
from packer.source.decode import Refused
from packer.source.file_bytes import BLANK, text_stream
from packer.source.text_rows import CsvFile, split_elements, split_lines

FILE = Path("f")


def cut(text: bytes, rng: random.Random) -> list[bytes]:
    """The text in chunks, most of them short, so that many hold nothing but blanks."""
    places = sorted(rng.sample(range(len(text) + 1), min(len(text), rng.choice((0, 1, 4, 30)))))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True) if a < b]


def test_lines_are_the_same_however_blanks_are_dealt_to_chunks() -> None:
    num_rows = 0
    for seed in range(400):
        rng = random.Random(seed)
        text = b"".join(rng.choices([b"\n", b" ", b"\r", b"\t", b"\n\n\n  \n", b"ab", b"\x0b"], k=rng.randrange(1, 40)))
        lines = text.split(b"\n")
        solid = [i for i, line in enumerate(lines) if line.strip(BLANK)]
        rows = [lines[i].strip(BLANK) if len(lines[i]) <= 5 else None for i in solid]
        chunks = cut(text, rng)
        assert list(split_lines(text_stream(FILE, chunks, None), max_row_bytes=5)) == [
            (row, i + 1) for row, i in zip(rows, solid, strict=True)
        ]
        num_rows += len(rows)
    assert num_rows > 1000


def test_records_and_elements_are_the_same_however_blanks_are_dealt_to_chunks() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        pieces = [b"\n", b" ", b"\n\n\r\n", b"a,b", b'"\n\n \n",b', b'"a\\"']
        text = b"x,y\n" + b"".join(rng.choices(pieces, k=rng.randrange(30))) + b'\n"",\n'
        assert records(cut(text, rng)) == records([text])

        strings = [b" ", b"\n\n", b'"', b"\\", b"1", b",", b"[", b"]"]
        array = b"[" + b"".join(rng.choices(strings, k=rng.randrange(30)))
        assert elements(cut(array, rng)) == elements([array])


def records(chunks: list[bytes]) -> list[tuple[object, int | None] | str]:
    found: list[tuple[object, int | None] | str] = []
    try:
        for row in CsvFile(FILE, text_stream(FILE, chunks, None), "csv").rows({}, 99):
            content = row.content
            found.append((content.reason if isinstance(content, Refused) else content, row.line))
    except InputError as error:
        found.append(error.message)
    return found


def elements(chunks: list[bytes]) -> list[bytes | str | None]:
    found: list[bytes | str | None] = []
    try:
        found.extend(split_elements(FILE, text_stream(FILE, chunks, None), max_row_bytes=99))
    except InputError as error:
        found.append(error.message)
    return found
