"""What the token view shows: blocks, rows and single documents, chosen by name or as a sample."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, NamedTuple, TypeAlias, cast, get_args
from urllib.parse import parse_qsl, urlencode

import msgspec
import numpy as np

from packer.audit import view_block, view_document, view_row
from packer.audit.text_runs import Run
from packer.audit.view import DocumentView
from packer.batches import Int32
from packer.errors import UsageError
from packer.report.facts import Documents
from packer.store.cache import Cache

Kind: TypeAlias = Literal["block", "row", "doc"]

SAMPLE_BLOCKS, SAMPLE_TOKENS = 32, 300_000
"""Blocks that are shown where none are named, and their tokens: at most about so many, and one of each split."""

_LETTERS = {"trained": "t", "masked": "m", "separator": "s", "padding": "p"}


class Span(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Consecutive tokens that have the same to say of themselves: a run of `packer inspect` without its text."""

    kind: str
    num_tokens: int
    message: int | None
    weight: float | None

    @property
    def is_trained(self) -> bool:
        return self.kind == "t"


class ItemDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document of an item, or the piece of one."""

    at: int
    """Its first token in the item."""

    length: int
    doc_id: str
    """As text, since JavaScript's numbers cannot hold it."""

    split: str
    source: str
    row: int
    sample_id: str | None
    piece_start: int
    document_length: int
    num_trained: int
    spans: tuple[Span, ...]
    """Its tokens and, in a block, the slots up to the next document."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A block, a row or a document: everything of it but its tokens. The page gets it as JSON."""

    key: str
    """Names it in links: `block=train:0`, `row=chats.jsonl:7`, `doc=-123`."""

    kind: Kind
    title: str
    note: str
    num_tokens: int
    """Tokens that are listed; padding at the end of a block is not."""

    num_trained: int
    num_padding: int
    documents: tuple[ItemDocument, ...]


class ItemTokens(NamedTuple):
    """An item with its ids: one array for each document, since characters do not cross their borders."""

    item: Item
    input_ids: list[Int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a report is to hold. Nothing named is a sample: blocks spread over the cache, and documents at the edges."""

    blocks: tuple[tuple[str | None, int], ...] = ()
    """(split, block from 0); None is the first split."""

    rows: tuple[tuple[str, int], ...] = ()
    """(input as for :func:`packer.audit.view_row`, row from 0)."""

    documents: tuple[int, ...] = ()
    """doc_ids."""

    def __bool__(self) -> bool:
        return bool(self.blocks or self.rows or self.documents)


class Name(NamedTuple):
    """An item before it is read."""

    kind: Kind
    value: str
    note: str = ""

    @property
    def key(self) -> str:
        return urlencode([(self.kind, self.value)])


def names_of(chosen: Chosen, cache: Cache) -> list[Name]:
    """The names of what was chosen, each once.

    Raises:
        UsageError: blocks of a cache that has none.

    """
    splits = cache.splits("blocks")
    if chosen.blocks and not splits:
        raise UsageError(f"{cache.folder} has no blocks: pack.mode is 'none'", hint="--rows and --doc show documents")
    names = [Name("block", f"{split or splits[0]}:{index}") for split, index in chosen.blocks]
    names += [Name("row", f"{source}:{row}") for source, row in chosen.rows]
    names += [Name("doc", str(doc_id)) for doc_id in chosen.documents]
    return list(dict.fromkeys(names))


def sample(cache: Cache, documents: Documents) -> list[Name]:
    """Blocks spread evenly over each split; the longest, the shortest, the most and the least trained document."""
    splits = cache.splits("blocks")
    total = sum(len(cache.blocks(split)) for split in splits)
    names = []
    for split in splits:
        number = len(cache.blocks(split))
        most = min(SAMPLE_BLOCKS, SAMPLE_TOKENS // cache.blocks(split).block_len)
        wanted = max(1, most * number // total)
        places = np.linspace(0, number - 1, min(wanted, number)).round().astype(int).tolist()
        names += [Name("block", f"{split}:{index}") for index in dict.fromkeys(places)]
    if len(documents.length):
        share = documents.trained / np.maximum(documents.length, 1)
        edges = {
            "longest document": np.argmax(documents.length),
            "shortest document": np.argmin(documents.length),
            "most trained": np.argmax(share),
            "least trained": np.argmin(share),
        }
        names += [Name("doc", str(documents.doc_id[place]), note) for note, place in edges.items()]
    return names


def parse_key(key: str) -> Name:
    """The name in a link.

    Raises:
        UsageError: it names nothing.

    """
    pairs = parse_qsl(key)
    if len(pairs) == 1 and pairs[0][0] in get_args(Kind):
        return Name(cast("Kind", pairs[0][0]), pairs[0][1])
    raise UsageError(f"'{key}' names no block, row or document", hint="block train:0, row FILE:0 and doc ID do")


def read_item(cache: Cache, name: Name) -> ItemTokens:
    """Read what a name stands for; digests are checked.

    Raises:
        UsageError: it is not there.
        CheckError: it is damaged.

    """
    if name.kind == "block":
        split, _, index = name.value.rpartition(":")
        return _block(cache, split, _number(index), name)
    if name.kind == "row":
        source, _, row = name.value.rpartition(":")
        found = view_row(cache, source, _number(row))
        note = "; ".join([name.note, *(f"left out, {line.code}: {line.reason}" for line in found.rejected)])
        return _item(
            name, f"{PurePosixPath(found.source).name} row {found.row:,}", note.removeprefix("; "), found.documents
        )
    document = view_document(cache, _number(name.value))
    return _item(name, f"document {document.doc_id}", name.note, [document])


def _block(cache: Cache, split: str, index: int, name: Name) -> ItemTokens:
    view = view_block(cache, split, index)
    padding = 0 if view.padding is None else view.padding.num_tokens
    note = f"{view.path} row {view.shard_row:,}"
    return _item(name, f"{split} block {index:,}", note, view.documents, padding)


def _item(name: Name, title: str, note: str, views: Iterable[DocumentView], num_padding: int = 0) -> ItemTokens:
    documents, ids, at = [], [], 0
    for view in views:
        runs = [*view.runs, *_behind(view)]
        documents.append(
            ItemDocument(
                at=at,
                length=view.length,
                doc_id=str(view.doc_id),
                split=view.split,
                source=view.source,
                row=view.row,
                sample_id=view.sample_id,
                piece_start=view.piece_start,
                document_length=view.document_length,
                num_trained=view.num_trained,
                spans=tuple(
                    Span(kind=_LETTERS[run.kind], num_tokens=run.num_tokens, message=run.message, weight=run.weight)
                    for run in runs
                ),
            )
        )
        ids.append(np.concatenate([np.asarray(run.input_ids, np.int32) for run in runs]))
        at += len(ids[-1])
    item = Item(
        key=name.key,
        kind=name.kind,
        title=title,
        note=note,
        num_tokens=at,
        num_trained=sum(document.num_trained for document in documents),
        num_padding=num_padding,
        documents=tuple(documents),
    )
    return ItemTokens(item, ids)


def _behind(view: DocumentView) -> Iterator[Run]:
    if view.behind is not None:
        yield view.behind


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"'{text}' is no number", hint="block train:0, row FILE:0 and doc ID name something") from None
