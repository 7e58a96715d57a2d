"""The token view of a page: a sample of blocks and documents, and a compact encoding of their tokens.

A page contains two texts in JSON, compressed with raw deflate (no header) and encoded in base64, and its script
decompresses what is viewed. For a cache of chats this took 1.2 bytes a token, where HTML elements take 26.

    table    {"ids": [...], "texts": [...], "control": [indices]}: the distinct tokens, the most frequent one first
    items    [{..., "tokens": [indices into the table]}]
"""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
import numpy as np

from packer.audit.token_texts import TokenTexts
from packer.audit.view import DocumentView, ImageView, token_texts, view_block, view_document
from packer.batches import Int32
from packer.display import visible
from packer.errors import CheckError, UsageError
from packer.media.images import thumbnail
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
    """Whether positions do not restart at 0 in each document: in blocks of mode `stream`."""

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


_MOST_BYTES = 1_500_000
"""Most bytes of all thumbnails of a page, enough for some 400; further images are listed without one."""


class Thumbnails:
    """Describes images for a page, with their thumbnails while there is room."""

    def __init__(self, cache: Cache) -> None:
        self._images = cache.images
        self._can_decode = find_spec("PIL") is not None
        self._made: dict[str, tuple[str | None, bool]] = {}
        self._room = _MOST_BYTES

    def of(self, image: ImageView) -> dict[str, Any]:
        """Return an image's size, tokens and thumbnail, a JPEG in base64, and whether its file cannot be read."""
        if image.sha256 not in self._made:
            is_wanted = self._can_decode and self._room > 0
            self._made[image.sha256] = self._make(bytes.fromhex(image.sha256)) if is_wanted else (None, False)
        jpeg, unread = self._made[image.sha256]
        self._room -= len(jpeg or "")
        told = {"width": image.width, "height": image.height, "tokens": image.tokens, "unread": unread}
        return told | {"jpeg": jpeg if self._room > 0 else None}

    def _make(self, digest: bytes) -> tuple[str | None, bool]:
        try:
            made = thumbnail(self._images.read(digest))
        except (CheckError, UsageError):
            if not self._images.only_names(digest):
                raise
            return None, True
        return None if made is None else base64.b64encode(made).decode(), False


_DOCUMENT_FIELDS = (
    *("length", "split", "source", "row", "side", "sample_id"),
    *("piece_start", "document_length", "num_trained"),
)
_ITEM_FIELDS = ("key", "kind", "title", "note", "num_tokens", "num_trained", "num_padding")


class PackedTokens(NamedTuple):
    """The tokens of some items, encoded for a page."""

    table: str
    items: str


def pack_tokens(cache: Cache, items: Sequence[Item]) -> PackedTokens:
    """Encode some items with their tokens."""
    texts, thumbnails, control_ids = token_texts(cache), Thumbnails(cache), cache.manifest.model.control_ids
    numbers = [_numbers(texts, item) for item in items]
    counts = np.bincount(np.concatenate([np.zeros(0, np.int32), *numbers]), minlength=len(texts.tokens))
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    place = np.zeros(len(counts), np.int32)
    place[order] = np.arange(len(order))
    tokens = [texts.tokens[number] for number in order.tolist()]
    table = {
        "ids": [id_ for id_, _ in tokens],
        "texts": [text for _, text in tokens],
        "control": [place for place, (id_, _) in enumerate(tokens) if id_ in control_ids],
    }
    pairs = zip(items, numbers, strict=True)
    described = [_described(item, thumbnails) | {"tokens": place[own].tolist()} for item, own in pairs]
    return PackedTokens(_deflated(table), _deflated(described))


def _numbers(texts: TokenTexts, item: Item) -> Int32:
    """Return the token numbers of an item, document by document: characters do not cross documents."""
    ids = ([token for run in document.slots for token in run.input_ids] for document in item.documents)
    return np.concatenate([np.zeros(0, np.int32), *(texts.numbers(np.array(own, np.int32)) for own in ids)])


def _described(item: Item, thumbnails: Thumbnails) -> dict[str, Any]:
    """Return an item's data other than its tokens."""
    documents, at = [], 0
    for document in item.documents:
        documents.append(
            {name: getattr(document, name) for name in _DOCUMENT_FIELDS}
            | {
                "at": at,
                "position": at if item.positions_run_on else 0,
                "doc_id": str(document.doc_id),  # too large for a JavaScript number
                "images": list(map(thumbnails.of, document.images)),
                "spans": [(run.kind[0], run.num_tokens, run.message) for run in document.slots],
            }
        )
        at += document.num_slots
    fields = {name: getattr(item, name) for name in _ITEM_FIELDS}
    return fields | {"title": visible(item.title), "note": visible(item.note), "documents": documents}


def _deflated(value: Any) -> str:
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(deflate.compress(msgspec.json.encode(value)) + deflate.flush()).decode()
