"""The bytes of each id, read from the vocabulary, so that ids can be checked independently of the encoder.

Two kinds of vocabulary cover the tokenizers of language models. In byte-level BPE, entries are written in 256
characters that represent bytes. In SentencePiece-like vocabularies, entries are text, ▁ is a space, and `<0x0A>` is a
byte. Their table has spaces for ▁, so that a text with a ▁ of its own is not spelled by its ids.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import Bool, Int32, Int64
from packer.errors import InputError
from packer.layout import offsets_of, taken, taken_ranges
from packer.model.backend import definition_of, vocabulary_of
from packer.model.model import TOKENIZER_FILE, Model
from packer.model.tokenizer_folder import has_step, steps

SPACE = "▁"
"""What SentencePiece writes for a space."""

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """The bytes of S sequences of ids, K in all. A space that the tokenizer put before a word is left out."""

    ends: Int64  # [K + 1]
    """Where the bytes of each id begin and, with the next value, end."""

    bounds: Int64  # [S + 1]
    """Where the bytes of each sequence begin and, with the next value, end."""

    known: Bool  # [S]
    """Whether every id of a sequence has bytes."""

    decoded: npt.NDArray[np.uint8]

    def begins(self, text: bytes, starts: Int64, stops: Int64) -> Bool:
        """Whether the text of each sequence, from `starts` to `stops` in `text`, begins with its bytes.  # bool[S]"""
        decoded, lengths = self.decoded, np.diff(self.bounds)
        fits: Bool = self.known & (lengths <= stops - starts)
        expected = np.frombuffer(text, np.uint8)
        if len(starts) and (not fits.all() or (starts[1:] != (starts + lengths)[:-1]).any()):
            # The texts are not contiguous: compare each sequence with the text it should decode to.
            lengths = np.where(fits, lengths, 0)
            decoded = taken_ranges(decoded, self.bounds[:-1], lengths)
            expected = taken_ranges(expected, starts, lengths)
        elif len(starts):
            expected = expected[starts[0] : starts[0] + len(decoded)]
        wrong = np.flatnonzero(decoded != expected[: len(decoded)])
        fits[np.searchsorted(np.cumsum(lengths), wrong, side="right")] = False
        return fits


class TokenBytes:
    """The bytes of each id of a model."""

    def __init__(self, model: Model) -> None:
        """Read the vocabulary."""
        tokenizer_json = model.files[TOKENIZER_FILE]
        self.byte_level, pieces, ids = read_vocabulary(tokenizer_json)
        self._entries = _by_id(pieces, ids, definition_of(tokenizer_json), model, byte_level=self.byte_level)
        self.is_whole = _never_merged(tokenizer_json, tuple(token.id for token in model.added_tokens), model.vocab_size)
        """Of each id, whether it is an added token's that no merge makes: it stands where its text was cut out."""

        self.num_bytes: Int64 = _lengths(self._entries)
        """Number of bytes of each id; -1 if `table` has None for it."""

        self.inserts_space = inserts_space(definition_of(tokenizer_json))

        self.is_added: Bool = np.zeros(model.vocab_size, np.bool_)
        """Of each id, whether it is an added token's."""

        self.is_added[[token.id for token in model.added_tokens]] = True
        self._contents = {token.id: token.content.encode() for token in model.added_tokens}

    @functools.cached_property
    def table(self) -> list[bytes | None]:
        """Bytes by id; None for the unknown token and for ids without an entry."""
        entries: list[bytes | None] = self._entries.to_pylist()
        return entries

    @functools.cached_property
    def _begins_with_space(self) -> Bool:
        return np.array([entry is not None and entry.startswith(b" ") for entry in self.table], np.bool_)

    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of some ids, concatenated; ids without bytes contribute none."""
        table = self.table
        return b"".join([table[i] or b"" for i in ids])

    def content(self, token_id: int) -> bytes:
        """Return the text of an id; of an added token as a text has it, with a ▁ of its own."""
        return self._contents.get(token_id) or self.decode([token_id])

    def spell(self, ids: Int32, offsets: Int64, is_start: Bool | None = None) -> Spelling:
        """Decode sequences of ids.

        If the tokenizer inserts spaces, the one at the start of a text and after each added token is left out,
        whether the tokenizer put it there or the text has it. So a sequence that spells its text has no other spaces
        than the text has; and one that does not may still be right.

        Args:
            ids: of all sequences, concatenated, int32[K].
            offsets: of the sequences, int64[S + 1].
            is_start: which of them begin where a text does, or behind an added token, bool[S]; by default all.
        """
        decoded, ends, is_known = self._decode_all(ids)
        unknown = np.zeros(len(offsets), np.int64) if is_known else offsets_of(self.num_bytes[ids] < 0)[offsets]
        if self.inserts_space and len(ids):
            inserted = np.zeros(len(ids), np.bool_)
            inserted[1:] = self.is_added[ids[:-1]]
            begins = np.diff(offsets) > 0
            inserted[offsets[:-1][begins]] = True if is_start is None else is_start[begins]
            inserted &= self._begins_with_space[ids]
            decoded = np.delete(decoded, ends[:-1][inserted])
            ends = ends - offsets_of(inserted)
        return Spelling(ends=ends, bounds=ends[offsets], known=np.diff(unknown) == 0, decoded=decoded)

    def _decode_all(self, ids: Int32) -> tuple[npt.NDArray[np.uint8], Int64, bool]:
        """Like :meth:`decode`, but vectorized for many ids.

        Returns:
            uint8[N], where the bytes of each id begin and end as int64[K + 1], and whether every id has bytes.
        """
        if not len(ids):
            return np.zeros(0, np.uint8), np.zeros(1, np.int64), True
        entries = taken(self._entries, ids)
        _, offsets, values = entries.buffers()
        ends = np.frombuffer(offsets, np.int64, len(entries) + 1)
        decoded = np.zeros(0, np.uint8) if values is None else np.frombuffer(values, np.uint8)[ends[0] : ends[-1]]
        return decoded, ends - ends[0] if ends[0] else ends, entries.null_count == 0


@functools.lru_cache(maxsize=2)
def read_vocabulary(tokenizer_json: bytes) -> tuple[bool, pa.Array, Int64]:
    """Return whether a vocabulary is byte-level, and the bytes and the id of each entry but added tokens. Cached."""
    definition = definition_of(tokenizer_json)
    model = definition["model"]
    kind = model.get("type") or ("Unigram" if "unk_id" in model else "BPE")
    if kind not in ("BPE", "Unigram") or model.get("continuing_subword_prefix"):
        raise InputError(
            f"a {kind} tokenizer's ids do not decode to its text, so nothing built with it could be proved",
            hint="packer supports byte-level BPE and tokenizers in the style of SentencePiece",
        )
    vocabulary = vocabulary_of(definition)
    byte_level = has_step(definition.get("decoder"), "ByteLevel")
    pieces = _byte_level_pieces(list(vocabulary)) if byte_level else _binary([*map(_bytes_of_piece, vocabulary)])
    return byte_level, pieces, np.fromiter(vocabulary.values(), np.int64, len(vocabulary))


def _by_id(pieces: pa.Array, ids: Int64, definition: dict[str, Any], model: Model, *, byte_level: bool) -> pa.Array:
    """Return the bytes of each id, with the added tokens; None for the unknown token and for ids without an entry."""
    added = model.added_tokens
    none = len(pieces) + len(added)  # the place of None, behind the entries and the added tokens
    place = np.full(model.vocab_size, none, np.int64)
    place[ids] = np.arange(len(pieces))
    place[[token.id for token in added]] = len(pieces) + np.arange(len(added))
    name = definition["model"].get("unk_token") or ""
    unknown = next((token.id for token in added if token.content == name), vocabulary_of(definition).get(name))
    if unknown is not None:
        place[unknown] = none
    contents = [token.content if byte_level else token.content.replace(SPACE, " ") for token in added]
    written = _binary([content.encode() for content in contents])
    return taken(pa.concat_arrays([pieces, written, pa.nulls(1, pa.large_binary())]), place)


@functools.lru_cache(maxsize=2)
def _never_merged(tokenizer_json: bytes, added: tuple[int, ...], vocab_size: int) -> Bool:
    """Return the added tokens whose ids the underlying model never makes of an entry, a merge or a byte. Cached.

    With `ignore_merges`, the model produces an entry for a text that is spelled like it, without any merge.
    """
    definition = definition_of(tokenizer_json)
    never: Bool = np.zeros(vocab_size, np.bool_)
    never[list(added)] = True
    bpe, vocabulary = definition["model"], vocabulary_of(definition)
    entries = {*added} & set(vocabulary.values())
    if not entries:
        return never
    if "merges" not in bpe or any(bpe.get(key) for key in ("ignore_merges", "end_of_word_suffix")):
        never[sorted(entries)] = False
        return never
    pieces = {piece: token_id for piece, token_id in vocabulary.items() if token_id in entries}
    merges = msgspec.json.decode(bpe["merges"])
    joined = (merge.replace(" ", "") if isinstance(merge, str) else "".join(merge) for merge in merges)
    made = {piece for piece in joined if piece in pieces}
    for piece, token_id in pieces.items():
        never[token_id] = len(piece) > 1 and piece not in made and not _BYTE.fullmatch(piece)
    return never


@functools.cache
def _bytes_of_characters() -> npt.NDArray[np.int16]:
    """Return a table from character code to the byte it represents in byte-level BPE; -1 for all other characters.

    Printable characters represent themselves, the remaining bytes start at U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    found = np.full(0x100 + len(others) + 1, -1, np.int16)
    found[printable] = printable
    found[0x100 : 0x100 + len(others)] = others
    return found


def _binary(entries: Sequence[bytes]) -> pa.Array:
    """Return an array of bytes; pyarrow's own way from a list takes several times as long."""
    buffers = [None, pa.py_buffer(offsets_of([*map(len, entries)])), pa.py_buffer(b"".join(entries))]
    return pa.Array.from_buffers(pa.large_binary(), len(entries), buffers)


def _byte_level_pieces(pieces: Sequence[str]) -> pa.Array:
    """Return the bytes of byte-level entries, in which every character is a byte; None for one with any other."""
    table = _bytes_of_characters()
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    characters = np.frombuffer("".join(pieces).encode("utf-32-le", "surrogatepass"), np.uint32)
    decoded = table[np.minimum(characters, len(table) - 1)]
    valid = None
    if (decoded < 0).any():
        piece = np.repeat(np.arange(len(pieces)), lengths)
        is_foreign = np.bincount(piece[decoded < 0], minlength=len(pieces)) > 0
        decoded, lengths = decoded[~is_foreign[piece]], np.where(is_foreign, 0, lengths)
        valid = pa.py_buffer(np.packbits(~is_foreign, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets_of(lengths)), pa.py_buffer(decoded.astype(np.uint8))]
    return pa.Array.from_buffers(pa.large_binary(), len(pieces), buffers)


def _lengths(entries: pa.Array) -> Int64:
    """Return the number of bytes of each entry; -1 for None.  # int64[N]"""
    bits, offsets, _ = entries.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(entries) + 1)
    lengths: Int64 = bounds[1:] - bounds[:-1]
    if bits is not None:
        lengths[np.unpackbits(np.frombuffer(bits, np.uint8), count=len(entries), bitorder="little") == 0] = -1
    return lengths


def _bytes_of_piece(piece: str) -> bytes:
    """Return the bytes of an entry of a SentencePiece-like vocabulary."""
    match = _BYTE.fullmatch(piece) if piece.startswith("<") else None  # a quarter of a million pieces
    return bytes([int(match[1], 16)]) if match else piece.replace(SPACE, " ").encode()


def inserts_space(definition: Mapping[str, Any]) -> bool:
    """Whether a tokenizer may put a space before a word at the start of a text or after an added token."""
    prefixes = any(map(_prefixes_space, steps(definition.get("pre_tokenizer"))))
    return prefixes or has_step(definition.get("normalizer"), "Prepend")


def _prefixes_space(step: Mapping[str, Any]) -> bool:
    """Whether a step of a pre-tokenizer puts a space before words that have none."""
    if "prepend_scheme" in step:
        return bool(step["prepend_scheme"] != "never")
    return bool(step.get("add_prefix_space", step.get("type") == "Metaspace"))
