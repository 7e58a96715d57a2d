"""Checks that ids decode to a text, allowing for what a tokenizer may do to white space."""

import bisect
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from packer.model.backend import definition_of, load_part
from packer.model.model import TOKENIZER_FILE, AddedToken, Model
from packer.model.token_bytes import SPACE, TokenBytes, component_types

_WHITE_SPACE = "".join(c for c in map(chr, range(0x3001)) if c.isspace() and not "\x1c" <= c <= "\x1f")
"""White space as defined by Unicode and so by `tokenizers`; Python also counts four file and record separators."""

_SPACES = re.compile(b"(?:" + b"|".join(re.escape(character.encode()) for character in _WHITE_SPACE) + b")*+")


class RoundTrip:
    """Decides whether ids decode to a text under one model."""

    def __init__(self, model: Model) -> None:
        definition = definition_of(model.files[TOKENIZER_FILE])
        self.token_bytes = TokenBytes(model)
        self._normalizer = load_part(model.files[TOKENIZER_FILE], "normalizer").normalizer
        self._prepends = "Prepend" in component_types(definition.get("normalizer"))
        self._added: dict[int, AddedToken] = {token.id: token for token in model.added_tokens}

    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the concatenated raw bytes of the ids; unknown ids have none."""
        return self.token_bytes.decode(ids)

    def content(self, token_id: int) -> bytes:
        """Return the text of an id; of an added token as a text has it, with a ▁ of its own."""
        token = self._added.get(token_id)
        return self.decode([token_id]) if token is None else token.content.encode()

    def decodes_to(self, ids: Sequence[int], text: bytes, *, after: int | None = None) -> bool:
        """Whether ids are a tokenization of `text`, as far as normalization and dummy spaces allow to tell.

        Ids are read as segments between added tokens. If the tokenizer puts a space before words at the start of
        a text or after an added token, a segment may begin with one that the text lacks; added tokens that strip may
        replace the white space beside them; the text may be compared in its normalized form. `after` is the id before
        the ids, None at the start of a text.
        """
        return self._reading(ids, text, after) is not None

    def num_begun(self, ids: Sequence[int], text: bytes, place: int, *, after: int | None = None) -> int | None:
        """Return how many of the ids begin before a place of the text that they decode to; None if they do not."""
        read = self._reading(ids, text, after)
        if read is None:
            return None
        at = len(read(text[:place]))
        segments = functools.partial(self._segments, dummy_space=self._may_insert_space(after))
        return bisect.bisect_left(
            range(len(ids)), at, key=lambda n: _reached(list(segments(ids[:n])), read(text)) if n else 0
        )

    def _reading(self, ids: Sequence[int], text: bytes, after: int | None) -> Callable[[bytes], bytes] | None:
        """Return the form of a text, as a function of it and of its beginnings, that ids decode to; None if to none."""
        if any(self.token_bytes.table[i] is None for i in ids):
            return None
        before = None if after is None else self._added.get(after)
        skipped = _skip_space(text, 0) if before is not None and before.rstrip else 0
        segments = list(self._segments(ids, dummy_space=self._may_insert_space(after)))

        def plain(part: bytes) -> bytes:
            return self._plain_spaces(part[skipped:])

        def normalized(part: bytes) -> bytes:
            assert self._normalizer is not None
            shown: bytes = self._normalizer.normalize_str(part[skipped:].decode()).encode()
            if self._prepends:  # a segment may begin with a dummy space anyway; it must not count twice
                shown = shown.removeprefix(SPACE.encode())
            return self._plain_spaces(shown)

        forms: list[Callable[[bytes], bytes]] = [plain, *([normalized] if self._normalizer is not None else [])]
        return next((form for form in forms if _reached(segments, form(text)) == len(form(text))), None)

    def _may_insert_space(self, after: int | None) -> bool:
        return after is None or after in self._added

    def _plain_spaces(self, text: bytes) -> bytes:
        return text if self.token_bytes.byte_level else text.replace(SPACE.encode(), b" ")

    def _segments(self, ids: Sequence[int], *, dummy_space: bool) -> Iterator["_Segment"]:
        """Yield segments; with `dummy_space`, the first may begin with one, as those after added tokens may."""
        run: list[int] = []
        for token_id in ids:
            token = self._added.get(token_id)
            if token is None:
                run.append(token_id)
                continue
            if run:
                yield self._run(run, dummy_space=dummy_space)
                run = []
            yield _Segment(self.decode([token_id]), False, token)
            dummy_space = True
        if run:
            yield self._run(run, dummy_space=dummy_space)

    def _run(self, ids: Sequence[int], *, dummy_space: bool) -> "_Segment":
        decoded = self._plain_spaces(self.decode(ids))  # bytes of single ids may make a ▁
        return _Segment(decoded, dummy_space and self.token_bytes.inserts_space, None)


class _Segment(NamedTuple):
    """The bytes of ordinary ids up to the next added token, or of one added token."""

    decoded: bytes
    dummy_space: bool
    """Whether its first space may have been inserted by the tokenizer."""

    token: AddedToken | None


def _reached(segments: Sequence[_Segment], text: bytes) -> int:
    """Return how far into the text the segments, concatenated, lead; -1 if they do not spell it."""
    at = 0
    for decoded, dummy_space, token in segments:
        if token is not None and token.lstrip:
            at = _skip_space(text, at)
        if text.startswith(decoded, at):
            at += len(decoded)
        elif dummy_space and decoded.startswith(b" ") and text.startswith(decoded[1:], at):
            at += len(decoded) - 1
        else:
            return -1
        if token is not None and token.rstrip:
            at = _skip_space(text, at)
    return at


def _skip_space(text: bytes, at: int) -> int:
    found = _SPACES.match(text, at)
    return found.end() if found else at
