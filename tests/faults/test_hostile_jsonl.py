"""Inputs made to break a reader: every row is kept or rejected by name, the rows around it are as they would be without
it, and a file that holds no rows is refused by name.
"""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults.amount import FULL, amount
from faults.hostile_rows import DEEP, GOOD, HOSTILE, KEPT, Row
from faults.jobs import Job
from faults.json_oracle import BLANK, agrees, what_it_is
from faults.lab import Lab, Outcome
from single_documents import read_document

from packer.model.backend import load_backend
from packer.store.cache import Cache
from packer.store.manifest import check_conservation
from packer.store.row_tables import Rejected, read_rejected

MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build of one input came to."""

    documents: dict[int, list[tuple[list[int], list[int]]]]
    """Row → ids and labels of its documents."""

    rejected: list[Rejected]
    """Rows of which nothing is in the cache."""


def run(lab: Lab, job: Job, content: bytes, place: Path, *overrides: str) -> Outcome:
    """`packer build` of one input."""
    place.mkdir(parents=True)
    (place / "rows.jsonl").write_bytes(content)
    words = job.command(
        place / "cache", "--set", f"sources=[{{path: {place}/rows.jsonl}}]", "--set", "pack.block_len=4096"
    )
    for override in overrides:
        words += ["--set", override]
    return lab.run(words, root=place)


def built(lab: Lab, job: Job, content: bytes, place: Path, *overrides: str) -> Built:
    """A build that goes well."""
    outcome = run(lab, job, content, place, *overrides)
    assert (outcome.code, outcome.told) == (0, "")
    with Cache.open(place / "cache") as cache:
        check_conservation(cache.manifest)
        rejected = [line for line in read_rejected(cache.folder, cache.manifest) if line.document is None]
        shards = [cache.documents(split) for split in cache.splits("documents")]
        assert cache.manifest.totals.rows == cache.manifest.totals.kept + len(rejected)
        _, rows = shards[0].origins()
        documents: dict[int, list[tuple[list[int], list[int]]]] = {}
        for number, row in enumerate(rows.tolist()):
            document = read_document(shards[0], number)
            documents.setdefault(row, []).append((document.input_ids.tolist(), document.labels.tolist()))
    return Built(documents=documents, rejected=rejected)


TOGETHER = amount(small=4, full=1)
"""Hostile rows between two good ones."""


def good_lines(schema: str, num_hostile: int) -> list[bytes]:
    return [GOOD[schema] % (number, number) for number in range(num_hostile // TOGETHER + 2)]


def between(good: Sequence[bytes], hostile: Sequence[Row]) -> Iterator[tuple[bytes, Row | None]]:
    """Good rows with hostile ones between them; now and then a line that is blank."""
    for number, line in enumerate(good):
        yield line, None
        if number % 3 == 0:
            yield (b"", b" \t ", b"\r")[number % 9 // 3], None
        yield from ((row.content, row) for row in hostile[number * TOGETHER : (number + 1) * TOGETHER])


@pytest.mark.parametrize("schema", HOSTILE)
def test_a_hostile_row_is_kept_or_rejected_by_name_and_spoils_no_other(
    lab: Lab, job: Job, tmp_path: Path, schema: str, tally
) -> None:
    hostile = HOSTILE[schema]
    good = good_lines(schema, len(hostile))
    lines = list(between(good, hostile))
    mixed = built(lab, job, b"\n".join(line for line, _ in lines), tmp_path / "mixed")
    alone = built(lab, job, b"\n".join(good), tmp_path / "alone")
    assert not alone.rejected and len(alone.documents) == len(good)

    rejected = {line.row: line for line in mixed.rejected}
    assert len(rejected) == len(mixed.rejected)
    backend = load_backend((job.folder / "tokenizer" / "tokenizer.json").read_bytes())
    row = num_good = 0
    fates: set[str] = set()
    for number, (line, expected) in enumerate(lines, 1):
        if not line.strip(b" \t\r\n"):
            continue
        fate, reason = (rejected[row].code, rejected[row].reason) if row in rejected else (KEPT, "")
        if expected is None:
            assert fate == KEPT and mixed.documents[row] == alone.documents[num_good], f"good row {num_good}"
            num_good += 1
        else:
            told = line[:200]
            if expected.fate is None:
                assert agrees(line.strip(BLANK), fate, reason), (told, fate, reason)
                assert fate == KEPT or not expected.is_unread or what_it_is(line) != "row", (told, fate, reason)
            else:
                assert fate == expected.fate, (told, fate, reason)
            assert (row in mixed.documents) == (fate == KEPT), told
            if fate != KEPT:
                assert rejected[row].line == number and len(reason) < 500, told
            if expected.spelled is not None:
                ((ids, labels),) = mixed.documents[row]
                trained = [token for token, label in zip(ids, labels, strict=True) if label != -100]
                assert backend.decode(trained, skip_special_tokens=False) == expected.spelled + "<|im_end|>"
            fates.add(fate)
        row += 1
    assert num_good == len(good)
    assert len(fates) > 4
    tally(f"hostile rows, schema {schema}", tried=len(hostile), held=len(hostile), note=f"{len(fates)} fates")


ENDINGS: dict[str, Callable[[list[bytes]], bytes]] = {
    "CRLF": lambda lines: b"".join(line + b"\r\n" for line in lines),
    "no newline at the end": b"\n".join,
    "a mark at the start": lambda lines: MARK + b"".join(line + b"\n" for line in lines),
    "blank lines": lambda lines: b"".join(b"\n \n" + line + b"\n" for line in lines),
    "small partitions": lambda lines: b"".join(line + b"\n" for line in lines),
}


def test_line_ends_marks_and_blank_lines_change_nothing_but_the_lines(lab: Lab, job: Job, tmp_path: Path) -> None:
    hostile = [row for row in HOSTILE["messages"] if row.fate not in (KEPT, None) and len(row.content) < 500]
    lines = [line for line, _ in between(good_lines("messages", len(hostile)), hostile)]
    plain = built(lab, job, b"".join(line + b"\n" for line in lines), tmp_path / "plain", "partition_bytes=8MiB")
    assert len(plain.documents) >= len(hostile) // TOGETHER
    for ending, written in ENDINGS.items():
        cut = "partition_bytes=" + ("1" if ending == "small partitions" else "8MiB")
        other = built(lab, job, written(lines), tmp_path / ending, cut)
        assert other.documents == plain.documents, ending
        expected = [
            (line.row, 3 * line.line if ending == "blank lines" else line.line, line.code, line.reason)
            for line in plain.rejected
            if line.line
        ]
        assert [(line.row, line.line, line.code, line.reason) for line in other.rejected] == expected, ending
        assert len(expected) == len(hostile)


good = GOOD["messages"] % (1, 1)
TEXTS: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 3, "holds no rows"),
    "nothing but a byte order mark": (MARK, 3, "holds no rows"),
    "UTF-16 with a mark": (good.decode().encode("utf-16"), 3, "found UTF-16 text"),
    "UTF-16 without a mark": (good.decode().encode("utf-16-le"), 3, "found binary data"),
    "UTF-32 with a mark": (good.decode().encode("utf-32"), 3, "found UTF-32 text"),
    "nothing but NUL bytes": (bytes(4096), 3, "found binary data"),
    "random bytes": (bytes(range(256)) * 16, 3, "found binary data"),
    "gzip of nonsense": (b"\x1f\x8b\x08\x00" + bytes(range(60)), 3, "gzip data is damaged or cut off"),
    "gzip cut off": (gzip.compress(good * 50, mtime=0)[:-9], 3, "gzip data is damaged or cut off"),
    "gzip of gzip": (gzip.compress(gzip.compress(good, mtime=0), mtime=0), 3, "found binary data"),
    "gzip of a good row": (gzip.compress(good, mtime=0), 0, ""),
    "Parquet of nonsense": (b"PAR1" + bytes(range(256)) + b"PAR1", 3, "cannot be read as Parquet"),
    "Arrow of nonsense": (b"ARROW1\0\0" + bytes(range(256)), 3, "cannot be read as an Arrow file"),
    "CSV with an open quote": (b'prompt,completion\na,"\x1b[31m\n\n', 3, "is never closed"),
    "CSV with a column twice": (
        b"prompt,completion,\x1b[31m" + b"x" * 5000 + b",\x1b[31m" + b"x" * 5000,
        3,
        "more than one column",
    ),
    "a pickle": (b"\x80\x04\x95\x0f\x00\x00\x00\x00", 3, "found binary data"),
    "HTML": (b"<html>\n<body>404</body>\n", 3, "text that is not JSON"),
    "one hostile row: cut off": (good[:30] + b"\n", 3, "none of the sampled rows is a JSON object"),
    "one hostile row, deep": (
        b'{"messages":' + b"[" * DEEP + b"]" * DEEP + b"}\n",
        3,
        "none of the sampled rows is a JSON object",
    ),
    "one object without fields": (b"{}\n", 3, "match no schema; fields found: none"),
    "an object whose fields nobody knows": (b'{"__proto__":{"messages":[]}}\n', 3, "fields found: `__proto__`"),
    "a field name of a million letters": (b'{"%b":1}\n' % (b"k" * 10**6), 3, "match no schema"),
    "rows that are rejected, all of them": (
        b'{"messages":7}\n' * 50,
        3,
        "nothing kept: all 50 rows were rejected: 50 × wrong_type",
    ),
    "an array that never ends": (b"[" + good, 3, "it ends inside its array or object"),
    "an array with something behind it": (b"[" + good + b"] x", 3, "something follows the end of its array or object"),
    "deep, never closed": (b"[" * DEEP, 3, "it ends inside its array or object"),
    "closed before it was opened": (b"]\n" + good, 0, ""),
    "a hostile first row, then a good one": (b"\x00\xff{{{\n" + good, 0, ""),
    "a first row that looks like an array without an end": (
        b"[" * DEEP + b"\n" + good,
        3,
        "it ends inside its array or object",
    ),
    "a deep first row": (b'{"a":' * DEEP + b"\n" + good, 0, ""),
    "an array in UTF-16": (b"[%b]".replace(b"%b", good).decode().encode("utf-16-le"), 3, "found binary data"),
    "a first row of two megabytes": (b'{"x":"' + b"x" * 2**21 + b'"}\n' + good, 0, ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_file_is_read_or_refused_by_name(lab: Lab, job: Job, tmp_path: Path, name: str, tally) -> None:
    content, code, message = TEXTS[name]
    outcome = run(lab, job, content, tmp_path / "job", *["sources.format=csv"] * name.startswith("CSV"))
    assert outcome.code == code and message in outcome.told, outcome.told
    if code:
        path = f"{tmp_path}/job/rows.jsonl"
        assert outcome.told.startswith("error: ") and (path in outcome.told or "nothing kept" in outcome.told)
        assert "\nhint: " in outcome.told and len(outcome.told) < 2000
        assert outcome.told.isascii() or "\u00d7" in outcome.told  # no bytes of the file in the terminal
        assert not (tmp_path / "job" / "cache" / "manifest.json").exists()
    tally("hostile input files", tried=1, held=1)


def large_row(num_bytes: int, text: bytes = b"x") -> bytes:
    """A row of schema text of so many bytes."""
    frame = len(b'{"text":""}')
    return b'{"text":"%b"}' % (text * (num_bytes // len(text) + 1))[: num_bytes - frame]


def test_a_line_at_the_limit_is_a_row_and_one_byte_more_is_too_large(lab: Lab, job: Job, tmp_path: Path) -> None:
    """Blanks around a row count, its newline does not; whether the line is a row at all is not asked."""
    limit, good = 1024, GOOD["text"] % (1, 1)
    lines = [
        (large_row(limit - 1), KEPT),
        (large_row(limit), KEPT),
        (large_row(limit + 1), "row_too_large"),
        (large_row(limit - 1) + b"\r", KEPT),
        (large_row(limit) + b"\r", "row_too_large"),
        (b" " * (limit - len(good)) + good, KEPT),
        (b" " * (limit - len(good) + 1) + good, "row_too_large"),
        (b"[" * (limit + 1), "row_too_large"),
        (b"\xff" * (limit + 1), "row_too_large"),
        (b" " * (2 * limit), None),  # blank, however long
        (bytes(limit + 1), "row_too_large"),
        (good, KEPT),
    ]
    for number, ending in enumerate((b"", b"\n")):
        content = b"\n".join(line for line, _ in lines) + ending
        found = built(lab, job, content, tmp_path / str(number), f"rows.max_bytes={limit}", "partition_bytes=512")
        fates = [fate for _, fate in lines if fate is not None]
        assert [row for row, fate in enumerate(fates) if fate == KEPT] == sorted(found.documents)
        expected = [(number, fate) for number, (_, fate) in enumerate(lines, 1) if fate not in (KEPT, None)]
        assert [(line.line, line.code) for line in found.rejected] == expected
        assert all(line.reason == "more than rows.max_bytes, 1024 bytes" for line in found.rejected)


BUILD = r"""
import re, sys
from pathlib import Path
from packer.pipeline.from_python import build
from packer.errors import PackerError
from packer.recipe.recipe import load_recipe
from packer.store.row_tables import read_rejected

recipe, *inputs = sys.argv[1:]
for rows in inputs:
    overrides = ["pack.block_len=1048576", "rows.max_bytes=1MiB", f"sources=[{{path: {rows}}}]"]
    try:
        manifest = build(load_recipe(recipe, overrides), f"{rows}.cache", jobs=1, progress=False).manifest
    except PackerError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        found = read_rejected(Path(f"{rows}.cache"), manifest)
        print({line.line: line.code for line in found if line.document is None})
    status = Path("/proc/self/status").read_text()  # not getrusage, which counts what the parent had at the fork
    print(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1024)
"""


LARGE: dict[str, tuple[bytes, bytes]] = {
    # name: what is repeated, and what the line begins with
    "no JSON": (b"x", b""),
    "brackets": (b"[", b""),
    "quotes": (b'"', b""),
    "backslashes": (b"\\", b'{"text":"'),
    "invalid UTF-8": (b"\xff", b'{"text":"'),
    "spaces before a row": (b" ", b""),
    "a text": (b"word ", b'{"text":"'),
    "an array of empty arrays": (b"[],", b'{"x":['),
    "keys": (b'"a":1,', b"{"),
}


@pytest.mark.parametrize("name", LARGE if FULL else ["brackets"])
def test_a_line_over_the_limit_costs_no_memory(job: Job, tmp_path: Path, name: str, tally) -> None:
    """Lines of 256 MiB (in the small part 32) under a limit of 1 MiB, among rows that are kept; the last has no newline.

    Of one process, the most memory that it had after a build without them and after one with them.
    Schemas are looked for in lines of up to 16 MiB, which are held for that, twice where they come in pieces.
    """
    size = 2**28 if FULL else 2**25
    repeated, beginning = LARGE[name]
    good = GOOD["text"] % (1, 1)
    line = beginning + repeated * (size // len(repeated))
    if not line.strip():
        line += good
    without, large = tmp_path / "without.jsonl", tmp_path / "large.jsonl"
    without.write_bytes(b"\n".join([good, good, good]))
    large.write_bytes(b"\n".join([good, line, good, good, line]))
    command = [sys.executable, "-c", BUILD, job.recipe, without, large]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stderr[-2000:]
    _, before, told, after = done.stdout.splitlines()
    assert told == "{2: 'row_too_large', 5: 'row_too_large'}"
    assert int(after) < int(before) + 40, f"{after} MiB, and {before} without the lines"
    tally("lines over the limit, in bounded memory", tried=2, held=2)
