"""The words of rows: of all that user and assistant say, and of the first prompt.

System messages, tools, calls and reasoning are left out: they are alike in rows that have nothing else in common.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from packer.batches import Int64, Sample
from packer.curate.signatures import Signatures, signatures
from packer.curate.texts import answers
from packer.curate.words import Words, words_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWords:
    """N rows, M messages."""

    words: Words  # of M texts
    rows: Int64  # [N + 1] the messages of row i are rows[i] … rows[i + 1] - 1
    prompt: Int64  # [N, 2] first message of the first prompt, and the one after it; all of a row without one

    def signatures(self, of: str, ngram: int) -> Signatures:
        """What the rows are compared by. A prompt of fewer words than a shingle is like none.

        Args:
            of: `conversation` or `prompt`.
            ngram: words of a shingle.

        """
        ranges = np.stack([self.rows[:-1], self.rows[1:]], axis=1) if of == "conversation" else self.prompt
        start, stop = self.words.offsets[ranges.T]
        if of == "prompt":  # "hello there" is no prompt to be recognised by
            stop = np.where(stop - start < ngram, start, stop)
        return signatures(self.words, start, stop, ngram)


def row_words(samples: Sequence[Sample]) -> RowWords:
    """Take the texts of rows apart."""
    texts: list[str] = []
    rows, prompt = [0], []
    for sample in samples:
        first, asked = len(texts), -1
        for role, text in said(sample):
            if asked < 0 and role == "user":
                asked = len(texts)
            texts.append(text)
        rows.append(len(texts))
        prompt.append((asked, asked + 1) if asked >= 0 else (first, len(texts)))
    return RowWords(
        words=words_of(texts), rows=np.array(rows, np.int64), prompt=np.array(prompt, np.int64).reshape(-1, 2)
    )


def said(sample: Sample) -> Iterator[tuple[str, str]]:
    """Role and text of what user and assistant say; a plain text and a completion are the assistant's.

    Of a pair, both answers.
    """
    if sample.kind != "chat":
        if sample.prompt:
            yield "user", sample.prompt
        yield from (("assistant", text) for text in answers(sample) if text)
        return
    for message in sample.all_messages:
        text = message.fields.get("content")
        if message.role in {"user", "assistant"} and isinstance(text, str) and text:
            yield message.role, text
