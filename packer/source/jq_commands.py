"""Commands of jq that make rows of a file, for hints: somebody runs one and builds its output."""

import json
import shlex
from collections.abc import Iterable
from pathlib import Path

from packer.source.file_bytes import BYTE_ORDER_MARK, PIPED, FilePath, codec_of, delimiter_of, read_chunks

_PARQUET_AS_LINES = (
    "import json, sys, pyarrow.parquet as parquet; [print(json.dumps(row, default=str))"
    " for batch in parquet.ParquetFile(sys.argv[1]).iter_batches() for row in batch.to_pylist()]"
)

_CSV_AS_LINES = (
    "import csv, json, sys; [print(json.dumps(row)) for row in"
    " csv.DictReader(open(sys.argv[1], newline='', encoding='utf-8-sig'), delimiter=sys.argv[2])]"
)


def jq_command(path: FilePath, program: str, *, slurps: bool = False) -> str | None:
    """Return the command that writes the results of a program of jq as JSON lines; None if jq cannot read the file.

    `slurps`: the program gets all lines of the file as one list.

    The output has another name than the file, which the shell would empty otherwise.
    """
    if not isinstance(path, Path) or path.name == PIPED or codec_of(path) is not None:
        return None
    command = f"jq {'-sc' if slurps else '-c'} {shlex.quote(program)}"
    head = next(read_chunks(path, 0, None), b"")
    if head.startswith(b"PAR1"):
        command = f"python -c {shlex.quote(_PARQUET_AS_LINES)} {shlex.quote(str(path))} | {command}"
    elif b"\x00" in head:
        return None  # Arrow
    elif head.removeprefix(BYTE_ORDER_MARK).lstrip()[:1] not in (b"{", b"["):
        read = f"python -c {shlex.quote(_CSV_AS_LINES)} {shlex.quote(str(path))} {shlex.quote(delimiter_of(head))}"
        command = f"{read} | {command}"
    else:
        command += f" {shlex.quote(str(path))}"
    return f"{command} > {shlex.quote(f'{path.stem}_lines.jsonl')}"


def row_command(path: FilePath, program: str) -> str | None:
    """Return the command that applies a program of jq to each row of a file; None if jq cannot read the file."""
    return jq_command(path, f'if type == "array" then .[] else . end | {program}')


def jq_field(name: str) -> str:
    """Return what a program of jq calls a field."""
    return f".[{json.dumps(name, ensure_ascii=False)}]"


def jq_path(path: Iterable[str]) -> str:
    """Return what a program of jq calls the values that a path leads to."""
    return "." + "".join("[]?" if key == "[]" else jq_field(key)[1:] for key in path)


def texts_as_rows(folder: Path, ending: str) -> str:
    """Return the hint for files that are a text each: a command of jq makes a row of each of them."""
    found = f"find {shlex.quote(str(folder))} -name {shlex.quote(f'*{ending}')}"
    return f"if each file is a text, to be trained whole: {found} -exec jq -Rsc '{{text: .}}' {{}} \\; > texts.jsonl"
