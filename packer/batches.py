"""The data that flows between stages: flat arrays with offsets, never one Python object per token or document.

    RowBatch ─render▶ TurnBatch ─tokenize▶ TokenBatch ─supervise▶ DocumentBatch ─pack▶ PackPlan, BlockBatch

All offsets follow one convention: item ``i`` of a flat array is ``flat[offsets[i]:offsets[i + 1]]``, so ``offsets``
starts at 0 and has one more entry than there are items. Example: the items ``[7, 8], [], [9]`` are stored as
``flat = [7, 8, 9]`` with ``offsets = [0, 2, 2, 3]``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from packer.media.carried import DrawnImage, Images, Media

Int8: TypeAlias = npt.NDArray[np.int8]
Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]
UInt64: TypeAlias = npt.NDArray[np.uint64]
Float32: TypeAlias = npt.NDArray[np.float32]
Bool: TypeAlias = npt.NDArray[np.bool_]

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Message fields that may contain reasoning, in order of precedence."""

_encode = msgspec.json.Encoder(order="sorted").encode


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One chat message as passed to the template."""

    fields: dict[str, Any]
    """JSON values by the field names of the OpenAI chat format; ``role`` is always present."""

    trained: bool | None = None
    """Whether an assistant message is trained; None leaves the decision to ``supervision.turns``."""

    spans: tuple[tuple[int, int], ...] | None = None  # of characters of its content: all that is trained of it

    @property
    def role(self) -> str:
        role: str = self.fields["role"]
        return role


def has_content(message: Mapping[str, Any]) -> bool:
    """Whether a message contains any text, tool call or reasoning."""
    texts = map(message.get, ("content", *REASONING_FIELDS))
    return any(isinstance(text, str) and text.strip() for text in texts) or bool(message.get("tool_calls"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PretokenizedTokens:
    """The ids of an already tokenized row, and which of them are trained. N tokens, at least one."""

    input_ids: Int32  # [N] none negative
    trained: Bool  # [N]
    num_padding: int
    """Number of leading padding tokens that were removed from the row."""

    num_given: int
    """Number of tokens of the row, with its padding."""

    by_labels: bool
    """Whether `trained` comes from labels, which were checked to equal the ids at their positions, rather than from a
    mask, which may be misaligned with its tokens."""


Side: TypeAlias = Literal["chosen", "rejected", "desirable", "undesirable"]

SIDES: tuple[Side, ...] = get_args(Side)
"""Role of a document in preference data: one answer of a pair, or an answer that was rated on its own.

Documents store the index into this tuple. In a pair, the chosen document directly precedes the rejected one.
"""

CHOSEN, REJECTED, DESIRABLE, UNDESIRABLE = range(4)


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """What a row of preference data contains besides its conversation."""

    rejected: "Sample | None" = None
    """The same prompt with the rejected answer, or None for an answer that was rated on its own."""

    is_desirable: bool = True
    """Rating of a single answer; for a pair, the rating of its chosen answer."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One input row, parsed according to its schema."""

    kind: Literal["chat", "completion", "text", "tokens"]
    """``chat`` is rendered by the template, ``completion`` and ``text`` are encoded without one, ``tokens`` are ids
    already."""

    row: int
    """Index of the row in its partition, counting rejected rows."""

    messages: tuple[Message, ...] = ()
    tools: list[Any] | None = None
    template_kwargs: dict[str, Any] = {}
    prompt: str = ""
    """Only for ``completion``."""

    text: str = ""
    """The completion if `kind` is ``completion``, the whole text if it is ``text``."""

    pretokenized: PretokenizedTokens | None = None
    """Only for ``tokens``."""

    preference: Preference | None = None
    """Set for preference data. The sample itself is then the conversation with the chosen answer, or with the rated
    one."""

    sample_id: str | None = None
    images: Images | None = None  # what the marks in its texts stand for: packer.media.carried

    @property
    def all_messages(self) -> tuple[Message, ...]:
        """The sample's messages; for a pair, followed by those of the rejected conversation that both do not share."""
        own, *others = (side.messages for side in self.sides)
        return (*own, *(message for other in others for message in other[num_common_messages(own, other) :]))

    @property
    def sides(self) -> tuple["Sample", ...]:
        """The sample, and the rejected answer's if it is a pair."""
        other = None if self.preference is None else self.preference.rejected
        return (self,) if other is None else (self, other)

    def with_sides(self, change: Callable[["Sample"], "Sample"]) -> "Sample":
        """Return the sample with each of its sides changed."""
        changed = change(self)
        if self.preference is None or self.preference.rejected is None:
            return changed
        preference = msgspec.structs.replace(self.preference, rejected=change(self.preference.rejected))
        return msgspec.structs.replace(changed, preference=preference)


def tool_parameters(function: Any) -> list[str] | None:
    """Return the names of a tool's parameters: of a JSON schema, or of an object of schemas by name; None if unknown.

    Example:
        >>> tool_parameters({"name": "f", "parameters": {"type": "object", "properties": {"city": {}, "day": {}}}})
        ['city', 'day']
        >>> tool_parameters({"name": "f", "parameters": {"city": {"type": "str"}}})
        ['city']
    """
    parameters = function.get("parameters") if isinstance(function, dict) else None
    if not isinstance(parameters, dict) or not parameters:
        return None
    properties = parameters.get("properties", parameters)
    if not isinstance(properties, dict) or any(not isinstance(schema, dict) for schema in properties.values()):
        return None
    return None if "properties" not in parameters and any(name[:1] == "$" for name in parameters) else [*properties]


def num_common_messages(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return how many leading messages two conversations have in common, whether trained or not."""
    for number, (message, other_message) in enumerate(zip(one, other, strict=False)):
        if not _is_same_message(message.fields, other_message.fields):
            return number
    return min(len(one), len(other))


def _is_same_message(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the fields of two messages are the same JSON. Python alone considers true, 1 and 1.0 equal."""
    is_plain = len(one) == len(other) == 2  # role and content
    return one == other and (is_plain or _encode(one) == _encode(other))


class Rejection(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row that was left out of the cache, with the reason."""

    row: int  # index in its partition
    code: str
    """One of :data:`packer.rejections.CODES`."""

    reason: str
    """One sentence for the user; it never quotes more of the row than a control token or a key."""

    message: int | None = None
    """Index of the message that the reason is about, if it is about one that was rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Consecutive rows of one partition, read and parsed."""

    samples: tuple[Sample, ...]
    rejections: tuple[Rejection, ...]
    num_rows: int
    """Number of rows read for this batch: ``len(samples) + len(rejections)``. Blank lines are not rows."""

    lines: tuple[int, ...] | None = None
    """Line of the file, from 1, on which each of these rows begins; None for formats that are not line-based."""

    first: int = 0
    """Index of the first of these rows in its partition."""

    fields: tuple[tuple[Any, ...], ...] = ()
    """For each requested field, its value in each row from `first` on as in the file, or None if it is absent."""

    names: frozenset[str] = frozenset()
    """Names of fields that any of these rows has; of a table, only of those that are decoded."""

    folder: str | None = field(default=None, compare=False)  # where paths of images begin; None if not on this machine

    @property
    def has_sides(self) -> bool:
        """Whether the rows are pairs or rated answers; those of a partition are of one schema."""
        return bool(self.samples) and self.samples[0].preference is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBatch:
    """Rendered texts, and the turns to train on in them. N texts, T turns, G guarded and M masked ranges.

    ``prompt_end`` and ``completion_end`` count UTF-8 bytes from the start of the turn's own text; the completion is
    ``text[prompt_end:completion_end]`` and ends with its terminator.
    """

    text: bytes
    """All N texts, UTF-8, one after another."""

    text_offsets: Int64  # [N + 1] bytes
    raw: Bool  # [N] encoded with the tokenizer's own special tokens (plain text and completions, not chats)
    sample: Int32  # [N] row of the sample within the partition
    turn_text: Int32  # [T] index of the text a turn is trained in
    turn_message: Int32  # [T] index of the message in its sample; 0 for a completion or a text
    prompt_end: Int64  # [T] bytes
    completion_end: Int64  # [T] bytes
    guarded: Int64  # [G, 2] byte ranges of `text`: control tokens typed by a person, to be encoded as ordinary text
    masked: Int64  # [M, 2] byte ranges of `text`: pieces of completions that are not trained
    skipped: Int32  # [A] row of each answer that was to be trained and is not: see `totals.skipped` of the manifest
    rejections: tuple[Rejection, ...]
    images: Mapping[int, tuple[DrawnImage, ...]] = field(default_factory=dict)  # those of each text that has any


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """The ids of every text, with the ends of each turn's prompt and completion. S sequences, T turns.

    A sequence is the ids of one text. A turn whose boundary merges gets a sequence of its own: the ids of its prompt
    followed by the ids of its completion.
    """

    ids: Int32  # [K]
    offsets: Int64  # [S + 1]
    sequence_text: Int32  # [S] index of the text a sequence was made from
    turn_sequence: Int32  # [T]
    prompt_tokens: Int64  # [T] from the start of the sequence
    completion_tokens: Int64  # [T] from the start of the sequence; the terminator is the id before it
    merged: Bool  # [T] True where the boundary merged
    unencodable: tuple[tuple[int, str], ...] = ()
    """Texts that the tokenizer failed on, each with the tokenizer's message; their sequences are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentBatch:
    """Documents with their trained runs. D documents, U runs."""

    input_ids: Int32  # [K]
    offsets: Int64  # [D + 1]
    sample: Int32  # [D] row of the sample within the partition
    sample_id: tuple[str | None, ...]  # D entries
    run_offsets: Int64  # [D + 1]
    run_start: Int32  # [U] tokens from the start of the document; at least 1
    run_end: Int32  # [U]
    run_message: Int32  # [U]
    side: Int8 | None = None  # [D] index into SIDES; None if the rows have none
    media: Media | None = None  # None if no document has images
    token_values: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # [K], or [K, width]
    values: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # [D]
    """Columns that the recipe takes from rows: of tokens, and of documents."""

    @property
    def num_documents(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentColumns:
    """Documents stored in the flat columns of C chunks (usually shards), with the position of each of N documents.

    All chunks have the same dtypes and contiguous arrays. They may be read-only views of memory-mapped files, of which
    only the pages that are accessed are loaded.
    """

    input_ids: tuple[Int32, ...]
    labels: tuple[Int32, ...]
    chunk: Int32  # [N] index of the chunk a document is in
    start: Int64  # [N] place of its first token in the chunk's flat columns
    length: Int32  # [N] tokens
    doc_id: Int64  # [N]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackPlan:
    """Which piece of which document goes into which block. M pieces, B blocks.

    Pieces are in block order, and in layout order within a block.
    """

    document: Int64  # [M] index of the document
    start: Int64  # [M] first token of the piece within its document
    length: Int32  # [M] tokens
    slots: Int32  # [M] that the piece takes, at least its length; those left over follow it and hold no token
    block_offsets: Int64  # [B + 1] pieces of each block

    @property
    def num_blocks(self) -> int:
        return len(self.block_offsets) - 1

    def between(self, first: int, last: int) -> "PackPlan":
        """Return blocks ``[first, last)`` as a plan of their own."""
        offsets = self.block_offsets[first : last + 1]
        pieces = slice(int(offsets[0]), int(offsets[-1]))
        return PackPlan(
            document=self.document[pieces],
            start=self.start[pieces],
            length=self.length[pieces],
            slots=self.slots[pieces],
            block_offsets=offsets - offsets[0],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockBatch:
    """Blocks of length L. B blocks, M runs, P pieces.

    Runs are the ranges that attention keeps separate; padding is one run, the last of its block. Piece p covers the
    slots ``[doc_places[p], doc_places[p] + doc_lengths[p])`` of its block. Slots outside all pieces contain no document
    token.
    """

    input_ids: Int32  # [B, L]
    labels: Int32  # [B, L]
    position_ids: Int32  # [B, L]
    seq_lengths: Int32  # [M] slots of each run; sums to L in each block
    seq_offsets: Int64  # [B + 1] entries of seq_lengths of each block
    doc_ids: Int64  # [P] identity of the document of each piece
    doc_starts: Int32  # [P] where in its document the piece starts
    doc_lengths: Int32  # [P] tokens of the piece
    doc_places: Int32  # [P] slot of its first token
    doc_offsets: Int64  # [B + 1] entries of the doc_ columns of each block
    length: Int32  # [B] tokens of the pieces
    num_trained: Int32  # [B]

    @property
    def num_blocks(self) -> int:
        return len(self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRows:
    """All input rows of a cache, numbered in partition order. N rows."""

    source: Int32  # [N] the recipe's source that names its input
    split: Int32  # [N] of its source: index into `splits`
    splits: tuple[str, ...]
    num_tokens: Int64  # [N] of its longest document; 0 where it has none, because it was rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedRows:
    """The decision for every row: its split, or why it was dropped. N rows, numbered as in :class:`InputRows`."""

    splits: tuple[str, ...]
    split: Int32  # [N] index into `splits`; -1 where the row is in none
    reason: Int32  # [N] 1 + index into ROW_REASONS; 0 where it is in a split, or was rejected before
    kept: Int64  # [N] the row it lost to, or of `contaminated` the question; -1 where it lost to none
    similarity: Float32  # [N] to that row, 0 to 1; of `contaminated` the share of the question that it has
    detail: Int32  # [N] the rule: index into `RowRules.names`; -1 where the reason has one rule
    num_capped: int = 0
    """Number of near-duplicate keys shared by too many rows, for which each row was compared only with the first ones.
    """
