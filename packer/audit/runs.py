"""Ids as runs of text: what is trained, what is masked, what is padding.

A run is decoded as a whole, and in its context: one id may be half a character, and some tokenizers write the first
token of a text without its space. So the text of a run is what it adds to the text of everything before it.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

import numpy as np
from tokenizers import Tokenizer

from packer.audit.files import sha256_of
from packer.batches import Int32
from packer.errors import CheckError
from packer.layout import MASKED
from packer.model import TOKENIZER_FILE, load_backend
from packer.store.failures import storage_errors
from packer.store.manifest import Manifest

RunKind: TypeAlias = Literal["trained", "masked", "padding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Consecutive tokens that are all trained, all masked, or all padding."""

    kind: RunKind
    start: int
    """Its first token, from 0 in what is viewed."""

    num_tokens: int
    text: str
    """Special tokens are written out; empty for padding. A character cut by a border belongs to the later run."""

    input_ids: tuple[int, ...]
    """Empty unless asked for. The labels are the same ids where trained, -100 elsewhere."""


def kept_tokenizer(folder: Path, manifest: Manifest) -> Tokenizer:
    """The tokenizer a cache was built with, from its own copy.

    Raises:
        CheckError: the copy is missing or damaged.
        StorageError: it cannot be read.

    """
    hint = f"packer build -o {folder} --repair makes it again"
    for file in manifest.model.files:
        if PurePosixPath(file.path).name == TOKENIZER_FILE:
            path = folder / "model" / file.path
            if not path.is_file():
                raise CheckError(f"{path} is missing", hint=hint)
            with storage_errors("read", path):
                content = path.read_bytes()
            if sha256_of(content) != file.sha256:
                raise CheckError(f"{path} is damaged: its sha256 is not the manifest's", hint=hint)
            return load_backend(content)
    raise CheckError(f"{folder} keeps no {TOKENIZER_FILE}", hint=hint)


def borders_of(labels: Int32) -> list[int]:
    """Where runs begin, and the end: labels . . x x . give [0, 2, 4, 5]."""
    trained = labels != MASKED
    changes = np.flatnonzero(trained[1:] != trained[:-1]) + 1
    return [0, *changes.tolist(), len(labels)] if len(labels) else [0]


def decode_runs(tokenizer: Tokenizer, input_ids: Int32, borders: list[int]) -> list[str]:
    """Text of the ids between each border and the next.

    With ``t(b)`` the text of the first b ids, run [a, b) is what t(b) adds to t(a). Where b cuts a character, t(b)
    ends in U+FFFD, and with byte fallback so do the bytes before it; then the last id that ends a character is
    looked for, at most three ids back, as UTF-8 has at most four bytes. The cut character goes to the later run.
    """
    ids = input_ids.tolist()
    whole = tokenizer.decode(ids, skip_special_tokens=False)
    places, place = [], 0
    for border in borders:
        place = max(place, len(whole) if border == len(ids) else _place(tokenizer, ids, border, whole))
        places.append(place)
    return [whole[start:end] for start, end in pairwise(places)]


def make_runs(
    tokenizer: Tokenizer,
    input_ids: Int32,
    labels: Int32,
    *,
    with_ids: bool = False,
    context: Int32 | None = None,
) -> tuple[Run, ...]:
    """The runs of a document or of a piece of one.

    Args:
        tokenizer: decodes.
        input_ids: int32[n]
        labels: int32[n]
        with_ids: keep the ids of each run.
        context: int32[c], ids of the document before the piece; decoded along, not shown.

    """
    before = np.zeros(0, np.int32) if context is None else context
    borders = borders_of(labels)
    texts = decode_runs(tokenizer, np.concatenate([before, input_ids]), [len(before) + border for border in borders])
    return tuple(
        Run(
            kind="masked" if int(labels[start]) == MASKED else "trained",
            start=start,
            num_tokens=end - start,
            text=text,
            input_ids=tuple(input_ids[start:end].tolist()) if with_ids else (),
        )
        for start, end, text in zip(borders[:-1], borders[1:], texts, strict=True)
    )


def padding_run(start: int, num_tokens: int, pad_id: int, *, with_ids: bool = False) -> Run:
    """The run of padding at the end of a block."""
    ids = (pad_id,) * num_tokens if with_ids else ()
    return Run(kind="padding", start=start, num_tokens=num_tokens, text="", input_ids=ids)


def _place(tokenizer: Tokenizer, ids: list[int], border: int, whole: str) -> int:
    """How many characters of the whole text the ids before a border spell."""
    best = 0
    for end in range(border, max(border - 4, -1), -1):
        text = tokenizer.decode(ids[:end], skip_special_tokens=False)
        if whole.startswith(text):
            return max(best, len(text))
        best = max(best, _agreement(text, whole))
    return best


def _agreement(text: str, whole: str) -> int:
    """How many characters two texts have in common from their start."""
    return next((i for i, (a, b) in enumerate(zip(text, whole, strict=False)) if a != b), min(len(text), len(whole)))
