"""The token view of a page: a sample of blocks and documents, and a compact encoding of their tokens.

The encoding is a table of distinct tokens, and for each item the indices of its tokens. A page contains both
compressed, and its script decompresses what is viewed. For a cache of chats this took 1.2 bytes a token, where HTML
elements take 26.

    table    JSON {"ids": [...], "texts": [...], "control": [indices]}, the most frequent token first
    items    of each, uint32 bytes of its header, the header in JSON, and an index for each token: uint16 if the table
             has at most 65,536 entries, else uint32; little-endian, header and indices padded to a multiple of four

Both are compressed with raw deflate (no header) and encoded in base64.
"""

import base64
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
import numpy as np

from packer.audit.token_texts import TokenTexts
from packer.audit.view import DocumentView, ImageView, view_block, view_document
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
        self._made: dict[str, str | None] = {}
        self._unread: set[str] = set()
        self._room = _MOST_BYTES

    def of(self, images: Sequence[ImageView]) -> list[dict[str, Any]]:
        """Return size, tokens and thumbnail of each image, a JPEG in base64, and whether its file cannot be read."""
        return [
            {
                "width": each.width,
                "height": each.height,
                "tokens": each.tokens,
                "jpeg": self._jpeg(each.sha256),
                "unread": each.sha256 in self._unread,
            }
            for each in images
        ]

    def _jpeg(self, sha256: str) -> str | None:
        if sha256 not in self._made and self._can_decode and self._room > 0:
            made = thumbnail(self._read(sha256))
            self._made[sha256] = None if made is None else base64.b64encode(made).decode()
        found = self._made.get(sha256)
        self._room -= len(found or "")
        return found if self._room > 0 else None

    def _read(self, sha256: str) -> bytes:
        """Return the bytes of an image; none if its file cannot be read, or may not."""
        digest = bytes.fromhex(sha256)
        try:
            return self._images.read(digest)
        except (CheckError, UsageError):
            if not self._images.only_names(digest):
                raise
            self._unread.add(sha256)
            return b""


_DOCUMENT_FIELDS = (
    *("length", "split", "source", "row", "side", "sample_id"),
    *("piece_start", "document_length", "num_trained"),
)
_ITEM_FIELDS = ("key", "kind", "title", "note", "num_tokens", "num_trained", "num_padding")


class PackedTokens(NamedTuple):
    """The tokens of some items, encoded for a page."""

    table: str
    items: str
    num_items: int
    """Number of items that fit, counted from the first."""


def pack_tokens(
    texts: TokenTexts, control_ids: Collection[int], items: Sequence[Item], room: int, thumbnails: Thumbnails
) -> PackedTokens:
    """Compress as many items as fit into `room` bytes, but at least one."""
    numbers = [_numbers(texts, item) for item in items]
    tokens = texts.tokens
    counts = np.bincount(np.concatenate([np.zeros(0, np.int32), *numbers]), minlength=len(tokens))
    order = np.argsort(-counts, kind="stable").astype(np.int32)[: np.count_nonzero(counts)]
    place = np.zeros(len(counts), np.int32)
    place[order] = np.arange(len(order))
    dtype = "<u2" if len(order) <= 2**16 else "<u4"
    deflate = _deflate()
    table = _table([tokens[number] for number in order.tolist()], control_ids)
    written = _base64(deflate.compress(table) + deflate.flush())
    deflate, num_bytes = _deflate(), 0
    parts: list[bytes] = []
    for item, own in zip(items, numbers, strict=True):
        header, content = _header(item, thumbnails), place[own].astype(dtype).tobytes()
        longer = deflate.copy()
        part = longer.compress(len(header).to_bytes(4, "little") + header + content + bytes(-len(content) % 4))
        with_end = num_bytes + len(part) + len(longer.copy().flush())
        if parts and len(written) + -(-with_end // 3) * 4 > room:
            break
        deflate, num_bytes = longer, num_bytes + len(part)
        parts.append(part)
    return PackedTokens(written, _base64(b"".join(parts) + deflate.flush()), len(parts))


def _table(tokens: Sequence[tuple[int, str]], control_ids: Collection[int]) -> bytes:
    ids, texts = [id_ for id_, _ in tokens], [text for _, text in tokens]
    control = [place for place, id_ in enumerate(ids) if id_ in control_ids]
    return msgspec.json.encode({"ids": ids, "texts": texts, "control": control})


def _numbers(texts: TokenTexts, item: Item) -> Int32:
    """Return the token numbers of an item, document by document: characters do not cross documents."""
    numbers = [np.zeros(0, np.int32)]
    for document in item.documents:
        ids = [np.asarray(run.input_ids, np.int32) for run in document.slots]
        numbers.append(texts.numbers(np.concatenate(ids)))
    return np.concatenate(numbers)


def _header(item: Item, thumbnails: Thumbnails) -> bytes:
    """Encode an item's data other than its tokens, padded so that the tokens begin at a multiple of four."""
    documents, at = [], 0
    for document in item.documents:
        documents.append(
            {name: getattr(document, name) for name in _DOCUMENT_FIELDS}
            | {
                "at": at,
                "position": at if item.positions_run_on else 0,
                "doc_id": str(document.doc_id),  # too large for a JavaScript number
                "images": thumbnails.of(document.images),
                "spans": [(run.kind[0], run.num_tokens, run.message, run.weight) for run in document.slots],
            }
        )
        at += document.num_slots
    fields = {name: getattr(item, name) for name in _ITEM_FIELDS} | {"documents": documents}
    fields |= {"title": visible(item.title), "note": visible(item.note)}
    header = msgspec.json.encode(fields)
    return header + b" " * (-len(header) % 4)


def _deflate() -> "zlib._Compress":
    return zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
