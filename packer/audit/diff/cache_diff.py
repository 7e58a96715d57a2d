"""The result of a diff. Whatever is empty does not differ."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One named value that differs; None stands for one that is not there, or is null."""

    key: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class InputChange:
    """An input that is not in both caches as it is."""

    kind: Literal["added", "removed", "changed", "renamed"]
    """``renamed``: the same bytes read in the same way, under another path."""

    path: str
    """As the new manifest names it; of a removed input, as the old one does."""

    split: str
    num_rows: int
    changes: tuple[Change, ...]
    """Fields of the manifest's entry that differ; none where the input is in one cache only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateChange:
    """A chat template, line by line."""

    name: str
    lines: tuple[str, ...]
    """A unified diff without the two lines of file names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsDiff:
    """Documents of a split, as a multiset of doc_ids. Where none is in one cache only, their order or rows differ."""

    split: str
    only_old: int
    only_new: int
    both: int
    rows_changed: int
    """Rows that have documents of their own in each cache."""

    rows_only_old: int
    """Rows that have documents in OLD that NEW has not, and none the other way."""

    rows_only_new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRows:
    """Rows that rules about rows put elsewhere; places are splits, or ``left out: CODE``."""

    old: str
    new: str
    rows: int
    first: str
    """Input and number of the first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSide:
    """A row in one cache, and its first document that the other cache does not have, around the first difference."""

    input: str
    row: int
    documents: int
    """Documents of the row that the other cache does not have."""

    code: str | None = None
    """Where the row was rejected: why."""

    reason: str | None = None
    doc_id: int | None = None
    """None where there is no such document on both sides; nothing is compared then."""

    num_tokens: int = 0
    num_trained: int = 0
    before: str = ""
    """Text of the tokens before the first difference."""

    num_differing: int = 0
    """Tokens from the first that differs to the last; 0 where only labels or weights differ."""

    text: str = ""
    """Of the first of those tokens."""

    input_ids: tuple[int, ...] = ()
    """The first of those tokens."""

    num_only_trained: int = 0
    """Tokens trained in this document and not in the other, of those both begin with."""

    only_trained: tuple[tuple[int, int, str], ...] = ()
    """The first runs of them: start, end, text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExample:
    """A row whose documents differ.

    A side is None where its cache has no document of the row that the other one lacks, and did not reject the row.
    """

    split: str
    old: RowSide | None
    new: RowSide | None
    what: Literal["ids", "labels", "weights"] | None
    """The first of these that differs; None where only one side has documents of its own."""

    at: int
    """First token that differs, from 0."""

    same_text: bool
    """Whether both documents decode to the same text, each by its own tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDiff:
    """Why two caches differ. Pairs are (old, new)."""

    old: Path
    new: Path
    fingerprint: tuple[str, str]
    content_fingerprint: tuple[str, str]
    recipe_fingerprint: tuple[str, str]
    causes: tuple[str, ...]
    """What of the recipe's identity differs: `rules`, `inputs`, `model`, `engine`."""

    meaning: str
    """The difference in a sentence."""

    recipe: tuple[Change, ...]
    """Keys of the recipe, defaults written out. Where something lies is no key: inputs and files say what lay there."""

    inputs: tuple[InputChange, ...]
    inputs_reordered: bool
    """Whether the inputs of both were read in another order."""

    model: tuple[Change, ...]
    """Files of the tokenizer with their sha256, then what differs in them."""

    templates: tuple[TemplateChange, ...]
    documents: tuple[DocumentsDiff, ...]
    """Splits whose documents differ."""

    moved: tuple[MovedRows, ...]
    """The most rows first."""

    examples: tuple[RowExample, ...]
    totals: tuple[Change, ...]
    """Of the manifest; also `rejected.CODE` (rows), `cut.CODE` (tokens in no block), `unused_keys.KEY` (messages)."""

    software: tuple[Change, ...]
    """Engine and rules with their versions, then versions of libraries, which may not change the data."""

    @property
    def same(self) -> bool:
        """Whether content and recipe are the same; names, paths and versions may differ."""
        pairs = (self.content_fingerprint, self.recipe_fingerprint)
        return all(old == new for old, new in pairs)

    @property
    def same_bytes(self) -> bool:
        """Whether every file is the same."""
        return self.fingerprint[0] == self.fingerprint[1]
