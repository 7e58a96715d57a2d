"""The contents of the token view: a sample of blocks and documents."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

import numpy as np

from packer.audit.view import DocumentView, view_block, view_document
from packer.report.facts import Documents
from packer.store.cache import Cache

SAMPLE_BLOCKS, SAMPLE_TOKENS = 32, 300_000
"""Limits of the sample: blocks, and approximately their tokens; at least one block of each split is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A block or a document, with its tokens."""

    key: str
    """Its name in links: `block=train:0`, `doc=-123`."""

    kind: Literal["block", "doc"]
    title: str
    note: str
    documents: tuple[DocumentView, ...]
    num_padding: int = 0
    """Slots of padding at the end of a block; they are not listed."""

    positions_run_on: bool = False
    """Whether positions do not restart at 0 in each document: in blocks of modes `eos` and `stream`."""

    @property
    def num_trained(self) -> int:
        return sum(document.num_trained for document in self.documents)

    @property
    def num_tokens(self) -> int:
        """Tokens that are listed."""
        return sum(document.num_slots for document in self.documents)


def sample(cache: Cache, documents: Documents) -> list[Item]:
    """Read blocks spread evenly over each split, and the longest, shortest, most and least trained documents.

    Digests are checked.
    """
    splits = cache.splits("blocks")
    total = sum(len(cache.blocks(split)) for split in splits)
    items = []
    for split in splits:
        number = len(cache.blocks(split))
        most = min(SAMPLE_BLOCKS, SAMPLE_TOKENS // cache.blocks(split).block_len)
        wanted = max(1, most * number // total)
        places = np.linspace(0, number - 1, min(wanted, number)).round().astype(int).tolist()
        items += [_block(cache, split, index) for index in dict.fromkeys(places)]
    if len(documents.length):
        share = documents.trained / np.maximum(documents.length, 1)
        edges = {
            "longest document": np.argmax(documents.length),
            "shortest document": np.argmin(documents.length),
            "most trained": np.argmax(share),
            "least trained": np.argmin(share),
        }
        notes: dict[int, list[str]] = {}
        for note, place in edges.items():
            notes.setdefault(int(documents.doc_id[place]), []).append(note)
        items += [_document(cache, doc_id, ", ".join(own)) for doc_id, own in notes.items()]
    return items


def _block(cache: Cache, split: str, index: int) -> Item:
    block = view_block(cache, split, index)
    return Item(
        key=urlencode({"block": f"{split}:{index}"}),
        kind="block",
        title=f"{split} block {block.index:,}",
        note=f"{block.path} row {block.shard_row:,}",
        documents=block.documents,
        num_padding=0 if block.padding is None else block.padding.num_tokens,
        positions_run_on=cache.manifest.recipe["pack"]["mode"] == "stream",
    )


def _document(cache: Cache, doc_id: int, note: str) -> Item:
    document = view_document(cache, doc_id)
    key = urlencode({"doc": doc_id})
    return Item(key=key, kind="doc", title=f"document {doc_id}", note=note, documents=(document,))
