"""The text of each token of a document, from the bytes of the vocabulary."""

import codecs
from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import numpy as np

from packer.batches import Int32
from packer.errors import CheckError
from packer.model.model import Model
from packer.model.token_bytes import TokenBytes
from packer.pipeline.kept_tokenizer import kept_model
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache

_UNSEEN, _CUT = -1, -2
_HINT = "packer verify CACHE --full names the file and the row"


class TokenTexts:
    """The texts of the tokens of documents, and a number for each distinct one: an id and its text.

    The text is the bytes of the id in the vocabulary, as they are used to verify trained tokens. It is not what the
    tokenizer decodes the id to: decoding one id at a time loses spaces under SentencePiece, and some decoders do not
    know added letters. If an id ends within a character, the character belongs to the token that completes it.
    """

    def __init__(self, model: Model) -> None:
        self._token_bytes = TokenBytes(model)
        self._names = {id_: text for text, id_ in model.control.items()}
        self._number_of = np.full(model.vocab_size, _UNSEEN, np.int32)
        self._numbers: dict[tuple[int, str], int] = {}
        self._texts: list[str] = []

    @classmethod
    def of(cls, cache: Cache) -> Self:
        """Return the texts of the tokenizer that a cache keeps."""
        recipe = make_recipe(cache.manifest.recipe, where="the manifest's recipe")
        return cls(kept_model(cache.folder, cache.manifest, recipe))

    @property
    def tokens(self) -> list[tuple[int, str]]:
        """(id, text) by number."""
        return list(self._numbers)

    def numbers(self, input_ids: Int32) -> Int32:
        """Return the numbers of the tokens of a document, or of a piece of one, adding new tokens.  # int32[n]"""
        highest = int(input_ids.view(np.uint32).max(initial=0))  # one below 0 is huge there
        if highest >= len(self._number_of):
            found = f"expected ids up to {len(self._number_of) - 1}, found {np.uint32(highest).view(np.int32)}"
            raise CheckError(f"a document has tokens that are not in the vocabulary: {found}", hint=_HINT)
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

    def decode(self, input_ids: Int32) -> str:
        """Return the text of a document, or of a piece of one."""
        return "".join([self._texts[number] for number in self.numbers(input_ids).tolist()])

    def decode_runs(self, input_ids: Int32, boundaries: Sequence[int]) -> list[str]:
        """Return the text between each boundary and the next, of the ids of a document from its first one on.

        A space at the start that the tokenizer may have put there is left out. Worked example: `a龍b`, where the ids
        are `a`, two parts of `龍`, and `b`, with the boundaries 0, 2, 4: `a` and `龍b`.
        """
        numbers = self.numbers(input_ids)
        runs = ["".join([self._texts[number] for number in numbers[a:b].tolist()]) for a, b in pairwise(boundaries)]
        if runs and not boundaries[0] and self._token_bytes.inserts_space:
            runs[0] = runs[0].removeprefix(" ")
        return runs

    def _number(self, token: tuple[int, str]) -> int:
        number = self._numbers.setdefault(token, len(self._numbers))
        if number == len(self._texts):
            self._texts.append(token[1])
        return number

    def _bytes(self, id_: int) -> bytes:
        decoded = self._token_bytes.table[id_]
        if decoded is None:
            return self._names.get(id_, "").encode()
        return decoded
