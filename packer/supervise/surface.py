"""What each id spells: the vocabulary read on its own, so that ids can be checked without asking the encoder.

Two families cover the tokenizers of language models. In byte-level BPE a vocabulary entry is written in 256 characters
that stand for bytes. In SentencePiece-like vocabularies an entry is text, a space is written ▁, and `<0x0A>` is a byte.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from packer.batches import Int64
from packer.errors import InputError
from packer.model import TOKENIZER_FILE, AddedToken, Model, load_backend

_SPACE = "▁".encode()
_WHITE_SPACE = "".join(c for c in map(chr, range(0x3001)) if c.isspace() and not "\x1c" <= c <= "\x1f")
"""White space as Unicode has it, and so `tokenizers`; Python counts four separators of files and records too."""

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Surface:
    """The bytes each id spells, and whether ids spell a text."""

    def __init__(self, model: Model) -> None:
        """Read the vocabulary.

        Raises:
            InputError: a kind of vocabulary whose entries do not spell text (WordPiece, word level).

        """
        definition = json.loads(model.files[TOKENIZER_FILE])
        backend: Tokenizer = load_backend(model.files[TOKENIZER_FILE])
        kind = definition["model"].get("type") or ("Unigram" if "unk_id" in definition["model"] else "BPE")
        self._normalizer = backend.normalizer
        self._prepends = "Prepend" in _types(definition.get("normalizer"))
        self._has_dummy_space = self._prepends or _prefixes_space(definition.get("pre_tokenizer"))
        self.byte_level = "ByteLevel" in _types(definition.get("decoder"))
        if kind not in ("BPE", "Unigram") or definition["model"].get("continuing_subword_prefix"):
            raise InputError(
                f"a {kind} tokenizer's ids do not spell its text, so nothing built with it could be proved",
                hint="packer takes byte-level BPE and SentencePiece-like tokenizers",
            )
        self._table: list[bytes | None] = [None] * model.vocab_size
        for piece, token_id in backend.get_vocab(with_added_tokens=False).items():
            self._table[token_id] = _byte_level(piece) if self.byte_level else _spelled(piece)
        self._added: dict[int, AddedToken] = {token.id: token for token in model.added_tokens}
        for token in model.added_tokens:
            self._table[token.id] = token.content.encode()
        unknown = backend.token_to_id(definition["model"].get("unk_token") or "")
        if unknown is not None:
            self._table[unknown] = None
        self.num_bytes: Int64 = np.array([-1 if entry is None else len(entry) for entry in self._table], np.int64)
        """Bytes each id spells; -1 for the unknown token and for ids without an entry."""

    def spell(self, ids: Sequence[int]) -> bytes:
        """The bytes of the ids, each as it is; unknown ids spell nothing."""
        table = self._table
        return b"".join([table[i] or b"" for i in ids])

    def spells(self, ids: Sequence[int], text: bytes, *, after: int | None = None) -> bool:
        """Whether ids are a tokenization of `text`, as far as normalization and dummy spaces let it be seen.

        Ids are read as stretches between added tokens. Where the tokenizer puts a space before words at the start of
        a text or after an added token, a stretch may begin with one the text lacks; added tokens that strip may stand
        for the white space beside them; the text may be what the normalizer makes of it. `after` is the id before
        them, None at the start of a text.
        """
        if any(self._table[i] is None for i in ids):
            return False
        before = None if after is None else self._added.get(after)
        if before is not None and before.rstrip:
            text = text[_past_space(text, 0) :]
        stretches = list(self._stretches(ids, begins=after is None or before is not None))
        if _walk(stretches, self._plain(text)):
            return True
        if self._normalizer is None:
            return False
        normalized = self._normalizer.normalize_str(text.decode()).encode()
        # The dummy space is what a stretch may begin with anyway; it must not count twice.
        return _walk(stretches, self._plain(normalized.removeprefix(_SPACE) if self._prepends else normalized))

    def _plain(self, text: bytes) -> bytes:
        return text if self.byte_level else text.replace(_SPACE, b" ")

    def _stretches(self, ids: Sequence[int], *, begins: bool) -> Iterator["_Stretch"]:
        """`begins`: a dummy space may stand before the first stretch, as before every one after an added token."""
        run: list[int] = []
        for token_id in ids:
            token = self._added.get(token_id)
            if token is None:
                run.append(token_id)
                continue
            if run:
                yield _Stretch(self._plain(self.spell(run)), begins and self._has_dummy_space, None)
                run = []
            yield _Stretch(self._plain(token.content.encode()), False, token)
            begins = True
        if run:
            yield _Stretch(self._plain(self.spell(run)), begins and self._has_dummy_space, None)


class _Stretch(NamedTuple):
    """What some ids spell: ordinary ones up to the next added token, or one added token."""

    spelled: bytes
    dummy: bool
    """Its first space may be one the tokenizer put there."""

    token: AddedToken | None


def _walk(stretches: Sequence[_Stretch], text: bytes) -> bool:
    """Whether the stretches, one after another, cover the text to its end."""
    at = 0
    for spelled, dummy, token in stretches:
        if token is not None and token.lstrip:
            at = _past_space(text, at)
        if text.startswith(spelled, at):
            at += len(spelled)
        elif dummy and spelled.startswith(b" ") and text.startswith(spelled[1:], at):
            at += len(spelled) - 1
        else:
            return False
        if token is not None and token.rstrip:
            at = _past_space(text, at)
    return at == len(text)


def _past_space(text: bytes, at: int) -> int:
    rest = text[at:].decode(errors="replace")
    return at + len(rest[: len(rest) - len(rest.lstrip(_WHITE_SPACE))].encode())


def _types(part: Mapping[str, Any] | None) -> set[str]:
    """Types of a tokenizer component and of those it is made of."""
    if part is None:
        return set()
    members = [member for key in ("decoders", "pretokenizers", "normalizers") for member in part.get(key) or ()]
    return {str(part.get("type"))}.union(*map(_types, members))


def _prefixes_space(pre_tokenizer: Mapping[str, Any] | None) -> bool:
    """Whether a pre-tokenizer puts a space before words that have none."""
    if pre_tokenizer is None:
        return False
    if any(_prefixes_space(member) for member in pre_tokenizer.get("pretokenizers") or ()):
        return True
    if "prepend_scheme" in pre_tokenizer:
        return bool(pre_tokenizer["prepend_scheme"] != "never")
    return bool(pre_tokenizer.get("add_prefix_space", pre_tokenizer.get("type") == "Metaspace"))


@cache
def _byte_characters() -> dict[str, int]:
    """The characters byte-level BPE writes bytes with: printable ones stand for themselves, the rest from U+0100 up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {chr(byte): byte for byte in printable}
    return characters | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def _byte_level(piece: str) -> bytes | None:
    characters = _byte_characters()
    try:
        return bytes([characters[character] for character in piece])
    except KeyError:
        return None


def _spelled(piece: str) -> bytes:
    match = _BYTE.fullmatch(piece)
    return bytes([int(match[1], 16)]) if match else piece.encode()
