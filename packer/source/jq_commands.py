"""Commands of jq that make rows of a file, for hints: somebody runs one and builds its output."""

import json
import re
import shlex
from pathlib import Path

from packer.source.file_bytes import BYTE_ORDER_MARK, PIPED, FilePath, codec_of, read_chunks


def jq_command(path: FilePath, program: str) -> str | None:
    """Return the command that writes the results of a program of jq as JSON lines; None if the file is no plain JSON.

    The output has another name than the file, which the shell would empty otherwise.
    """
    if not isinstance(path, Path) or not _opening(path):
        return None
    return f"jq -c {shlex.quote(program)} {shlex.quote(str(path))} > {shlex.quote(f'{path.stem}_lines.jsonl')}"


def row_command(path: FilePath, program: str) -> str | None:
    """Return the command that applies a program of jq to each row of a file; None if jq cannot read the file."""
    return jq_command(path, f".[] | {program}" if _opening(path) == b"[" else program)


def _opening(path: FilePath) -> bytes:
    """Return the bracket with which a file of JSON begins; nothing of a table, or of what jq cannot open."""
    if not isinstance(path, Path) or path.name == PIPED or codec_of(path) is not None:
        return b""
    head = next(read_chunks(path, 0, None), b"").removeprefix(BYTE_ORDER_MARK).lstrip()[:1]
    return head if head in (b"{", b"[") else b""


def jq_field(name: str) -> str:
    """Return what a program of jq calls a field."""
    is_word = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    return f".{name}" if is_word else f".[{json.dumps(name, ensure_ascii=False)}]"


def texts_as_rows(folder: Path, ending: str) -> str:
    """Return the hint for files that are a text each: a command of jq makes a row of each of them."""
    found = f"find {shlex.quote(str(folder))} -name {shlex.quote(f'*{ending}')}"
    return f"if each file is a text, to be trained whole: {found} -exec jq -Rsc '{{text: .}}' {{}} \\; > texts.jsonl"
