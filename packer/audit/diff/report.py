"""What there is to say of two caches. A section is None, or empty, where nothing in it differs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packer.audit.stats import Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One named value that differs; None stands for one that is not there, or is null."""

    key: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The three fingerprints, old and new, and what to make of them."""

    fingerprint: tuple[str, str]
    content_fingerprint: tuple[str, str]
    recipe_fingerprint: tuple[str, str]
    manifest: tuple[str, ...]
    """Keys of the manifest that differ."""

    causes: tuple[str, ...]
    """What of the recipe's identity differs: `rules`, `inputs`, `model`, `engine`."""

    meaning: str
    """In a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeDiff:
    """Keys of the recipe, defaults written out."""

    rules: tuple[Change, ...]
    places: tuple[Change, ...]
    """Keys that say where something lies. They enter no identity: what lies there does."""


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
class InputsDiff:
    """Inputs of two caches, paired by digest and path."""

    num_same: int
    reordered: bool
    """Whether those in both were read in another order."""

    changed: tuple[InputChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDiff:
    """A text file of the tokenizer's folder, line by line."""

    name: str
    num_added: int
    num_removed: int
    lines: tuple[str, ...]
    """A unified diff without the two lines of file names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyEntry:
    piece: str
    """As the tokenizer's file writes it."""

    old_id: int | None
    new_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyDiff:
    """Entries of the vocabulary proper, without added tokens, and its merges."""

    old_size: int
    new_size: int
    num_added: int
    num_removed: int
    num_moved: int
    """Entries that have another id."""

    num_scores: int
    """Entries of a unigram vocabulary that have another score."""

    entries: tuple[VocabularyEntry, ...]
    """The first few of each kind."""

    merges_added: int
    merges_removed: int
    first_merge: int | None
    """The first merge, by rank from 0, that is another one; None where all are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDiff:
    """Tokenizer and template."""

    files: tuple[Change, ...]
    """File name → sha256."""

    templates: tuple[TextDiff, ...]
    vocabulary: VocabularyDiff | None
    added_tokens: tuple[Change, ...]
    """Text of an added token → its id and flags."""

    settings: tuple[Change, ...]
    """Other keys of the JSON files, as `file key`; of `tokenizer.json` normalizer, pre_tokenizer, …, and `model.*`."""

    ids: tuple[Change, ...]
    """Vocabulary size, pad, EOS, stop and control ids as the manifests have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRun:
    """Consecutive tokens that are trained in one of two documents."""

    start: int
    num_tokens: int
    text: str
    """Of its first tokens."""

    is_whole: bool
    """Whether `text` is that of all its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSide:
    """One of two documents, around the place where they part."""

    doc_id: int
    length: int
    num_trained: int
    before: str
    """Text of the tokens before that place, by this cache's tokenizer."""

    num_differing: int
    """Tokens from that place on that became those of the other side; 0 where only labels or weights differ."""

    text: str
    """Of those tokens; of the first of them where there are many."""

    input_ids: tuple[int, ...]
    """The first of those tokens."""

    behind: str
    """Text of the tokens behind them; empty where `text` is not all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDiff:
    """Two documents of one row, token by token."""

    what: Literal["ids", "labels", "weights"]
    """The first of these that differs."""

    at: int
    """First token that differs, from 0."""

    differs_again: bool
    """Whether ids differ behind that difference too."""

    same_text: bool
    """Whether both decode to the same text, each by its own tokenizer."""

    old: DocumentSide
    new: DocumentSide
    trained_old: tuple[LabelRun, ...]
    """Runs trained in OLD and not in NEW, of the tokens both have in common at the start; the first few."""

    trained_new: tuple[LabelRun, ...]
    num_trained_old: int
    """Tokens of all such runs."""

    num_trained_new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlace:
    """A row in one cache."""

    input: str
    row: int
    documents: int
    """Documents of the row in this cache that the other one does not have."""

    code: str | None = None
    """Where the row was rejected: why."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExample:
    """A row whose documents differ.

    A side is None where its cache has no document of the row that the other one lacks, and did not reject the row.
    """

    split: str
    old: RowPlace | None
    new: RowPlace | None
    tokens: TokenDiff | None
    """The first documents of both sides that the other side does not have; None where only one side has any."""


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
class BlocksDiff:
    """Blocks of a split."""

    split: str
    old_blocks: int
    new_blocks: int
    old_fill: float
    """Tokens over slots."""

    new_fill: float
    pieces_only_old: int
    """Pieces of documents: the document, where in it the piece starts, and its length."""

    pieces_only_new: int
    pieces_both: int
    same_blocks: bool
    """Whether both have the same blocks, in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsChange:
    """Lengths of a split's documents."""

    split: str
    old: Lengths | None
    new: Lengths | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersDiff:
    """Counts that differ."""

    totals: tuple[Change, ...]
    """Of the manifest's totals, with `trained_share` and `fill` as shares from 0 to 1."""

    rejected: tuple[Change, ...]
    """Code → rows."""

    cut: tuple[Change, ...]
    """Code → documents, parts, tokens and trained tokens that are in no block."""

    lengths: tuple[LengthsChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareDiff:
    """What wrote the caches."""

    engine: tuple[Change, ...]
    """Engine, its version and the version of the rules: these decide documents and enter the recipe's fingerprint."""

    versions: tuple[Change, ...]
    """Of software that may not change the data; they enter the fingerprint alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDiff:
    """Why two caches differ."""

    old: Path
    new: Path
    identity: Identity
    recipe: RecipeDiff | None
    inputs: InputsDiff | None
    model: ModelDiff | None
    documents: tuple[DocumentsDiff, ...]
    """Splits whose documents differ."""

    examples: tuple[RowExample, ...]
    numbers: NumbersDiff | None
    blocks: tuple[BlocksDiff, ...]
    """Splits whose blocks differ."""

    software: SoftwareDiff | None

    @property
    def same(self) -> bool:
        """Whether content and recipe are the same; names, paths and versions may differ."""
        pairs = (self.identity.content_fingerprint, self.identity.recipe_fingerprint)
        return all(old == new for old, new in pairs)

    @property
    def same_bytes(self) -> bool:
        """Whether every file is the same."""
        old, new = self.identity.fingerprint
        return old == new
