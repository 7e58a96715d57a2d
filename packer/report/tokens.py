"""Compact encoding of tokens for a page: a table of distinct tokens, and for each item the indices of its tokens.

A page contains both compressed, and its script decompresses what is viewed. For a cache of chats this took 1.2 bytes a
token, where HTML elements take 26.

    table    JSON {"ids": [...], "texts": [...], "control": [indices]}, the most frequent token first
    items    of each, uint32 bytes of its header, the header in JSON, and an index for each token: uint16 if the table
             has at most 65,536 entries, else uint32; little-endian, header and indices padded to a multiple of four

Both are compressed with raw deflate (no header) and encoded in base64.
"""

import base64
import codecs
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import msgspec
import numpy as np

from packer.batches import Int32
from packer.model import Model
from packer.pipeline.kept_tokenizer import kept_model
from packer.recipe import make_recipe
from packer.report.items import Item
from packer.store.cache import Cache
from packer.token_bytes import TokenBytes

_UNSEEN, _CUT = -1, -2
_ITEM_FIELDS = ("key", "kind", "title", "note", "num_tokens", "num_trained", "num_padding")


class TokenTable:
    """The distinct tokens of a page: each is an id and its text.

    The text is the bytes of the id in the vocabulary, as they are used to verify trained tokens. It is not what the
    tokenizer decodes the id to: decoding one id at a time loses spaces under SentencePiece, and some decoders do not
    know added letters. If an id ends within a character, the character belongs to the token that completes it.
    """

    def __init__(self, model: Model, control_ids: Iterable[int]) -> None:
        self._token_bytes = TokenBytes(model)
        self._names = {id_: text for text, id_ in model.control.items()}
        self._control = frozenset(control_ids)
        self._number_of = np.full(model.vocab_size, _UNSEEN, np.int32)
        self._numbers: dict[tuple[int, str], int] = {}

    @classmethod
    def of(cls, cache: Cache) -> Self:
        """Make an empty table for the tokenizer that a cache keeps."""
        manifest = cache.manifest
        recipe = make_recipe(manifest.recipe, where="the manifest's recipe")
        return cls(kept_model(cache.folder, manifest, recipe), manifest.model.control_ids)

    @property
    def tokens(self) -> list[tuple[int, str]]:
        """(id, text) by number."""
        return list(self._numbers)

    def numbers(self, input_ids: Int32) -> Int32:
        """Return the numbers of the tokens of a document, or of a piece of one, adding new tokens.  # int32[n]"""
        for id_ in np.unique(input_ids[self._number_of[input_ids] == _UNSEEN]).tolist():
            try:
                text = self._bytes(id_).decode()
            except UnicodeDecodeError:
                self._number_of[id_] = _CUT
            else:
                self._number_of[id_] = self._number((id_, text))
        numbers = self._number_of[input_ids]
        # An id that ends within a character is followed by one that begins there, so such ids are adjacent.
        cut = np.flatnonzero(numbers == _CUT)
        for group in np.split(cut, np.flatnonzero(np.diff(cut) != 1) + 1) if len(cut) else ():
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            places = group.tolist()
            for place in places:
                id_ = int(input_ids[place])
                text = decoder.decode(self._bytes(id_), final=place == places[-1])
                numbers[place] = self._number((id_, text))
        return numbers

    def json(self, order: Int32) -> bytes:
        """Encode the table of a page, with its tokens in the given order of their numbers."""
        tokens = self.tokens
        chosen = [tokens[number] for number in order.tolist()]
        control = [place for place, (id_, _) in enumerate(chosen) if id_ in self._control]
        ids, texts = [id_ for id_, _ in chosen], [text for _, text in chosen]
        return msgspec.json.encode({"ids": ids, "texts": texts, "control": control})

    def _number(self, token: tuple[int, str]) -> int:
        return self._numbers.setdefault(token, len(self._numbers))

    def _bytes(self, id_: int) -> bytes:
        decoded = self._token_bytes.table[id_]
        if decoded is None:
            return self._names.get(id_, "").encode()
        return decoded


class PackedTokens(NamedTuple):
    """The tokens of some items, encoded for a page."""

    table: str
    items: str
    num_items: int
    """Number of items that fit, counted from the first."""


def pack_tokens(table: TokenTable, items: Sequence[Item], room: int) -> PackedTokens:
    """Compress as many items as fit into `room` bytes, but at least one."""
    numbers = [_numbers(table, item) for item in items]
    counts = np.bincount(np.concatenate([np.zeros(0, np.int32), *numbers]), minlength=len(table.tokens))
    order = np.argsort(-counts, kind="stable").astype(np.int32)[: np.count_nonzero(counts)]
    place = np.zeros(len(counts), np.int32)
    place[order] = np.arange(len(order))
    dtype = "<u2" if len(order) <= 2**16 else "<u4"
    deflate = _deflate()
    written = _base64(deflate.compress(table.json(order)) + deflate.flush())
    deflate, num_bytes = _deflate(), 0
    parts: list[bytes] = []
    for item, own in zip(items, numbers, strict=True):
        header, tokens = _header(item), place[own].astype(dtype).tobytes()
        longer = deflate.copy()
        part = longer.compress(len(header).to_bytes(4, "little") + header + tokens + bytes(-len(tokens) % 4))
        with_end = num_bytes + len(part) + len(longer.copy().flush())
        if parts and len(written) + -(-with_end // 3) * 4 > room:
            break
        deflate, num_bytes = longer, num_bytes + len(part)
        parts.append(part)
    return PackedTokens(written, _base64(b"".join(parts) + deflate.flush()), len(parts))


def _numbers(table: TokenTable, item: Item) -> Int32:
    """Return the token numbers of an item, document by document: characters do not cross documents."""
    numbers = [np.zeros(0, np.int32)]
    for document in item.documents:
        ids = [np.asarray(run.input_ids, np.int32) for run in document.slots]
        numbers.append(table.numbers(np.concatenate(ids)))
    return np.concatenate(numbers)


def _header(item: Item) -> bytes:
    """Encode an item's data other than its tokens, padded so that the tokens begin at a multiple of four."""
    documents, at = [], 0
    for document in item.documents:
        documents.append(
            {
                "at": at,
                "position": at if item.positions_run_on else 0,
                "length": document.length,
                "doc_id": str(document.doc_id),  # too large for a JavaScript number
                "split": document.split,
                "source": document.source,
                "row": document.row,
                "side": document.side,
                "sample_id": document.sample_id,
                "piece_start": document.piece_start,
                "document_length": document.document_length,
                "num_trained": document.num_trained,
                "spans": [(run.kind[0], run.num_tokens, run.message, run.weight) for run in document.slots],
            }
        )
        at += document.num_slots
    fields = {name: getattr(item, name) for name in _ITEM_FIELDS} | {"documents": documents}
    header = msgspec.json.encode(fields)
    return header + b" " * (-len(header) % 4)


def _deflate() -> "zlib._Compress":
    return zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
