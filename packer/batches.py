"""What flows between the stages: flat arrays and offsets, never one object a token or a document.

    RowBatch ─render▶ TurnBatch ─tokenize▶ TokenBatch ─supervise▶ DocumentBatch ─pack▶ PackPlan, BlockBatch

Offsets follow one convention: item ``i`` of a flat array is ``flat[offsets[i]:offsets[i + 1]]``, so ``offsets`` has one
entry more than there are items and starts at 0. Worked example: the items ``[7, 8], [], [9]`` are
``flat = [7, 8, 9]`` with ``offsets = [0, 2, 2, 3]``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt

Int8: TypeAlias = npt.NDArray[np.int8]
Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]
UInt64: TypeAlias = npt.NDArray[np.uint64]
Float32: TypeAlias = npt.NDArray[np.float32]
Bool: TypeAlias = npt.NDArray[np.bool_]

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Names a message keeps its reasoning under; the first that is there counts."""

_encode = msgspec.json.Encoder(order="sorted").encode


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message of a chat, as the template will see it."""

    fields: dict[str, Any]
    """JSON values under the field names of the OpenAI chat format; always holds ``role``."""

    weight: float | None = None
    """Loss weight of an assistant message, 0 to 1; None leaves the decision to ``supervision.turns``."""

    @property
    def role(self) -> str:
        role: str = self.fields["role"]
        return role


def says_something(message: Mapping[str, Any]) -> bool:
    """Whether the fields of a message hold text, a call or reasoning."""
    for name in ("content", *REASONING_FIELDS):
        text = message.get(name)
        if isinstance(text, str) and text.strip():
            return True
    return bool(message.get("tool_calls"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PretokenizedTokens:
    """The ids a row brings, and what it says is trained of them. N tokens, at least one."""

    input_ids: Int32  # [N] none negative
    weight: Float32  # [N] in [0, 1]; 0 where a token is not trained
    num_padding: int
    """Padding of the row before them, which is cut off."""

    by_labels: bool
    """Whether labels say so, which were seen to be the ids at their places; a mask may lie beside its tokens."""


Side: TypeAlias = Literal["chosen", "rejected", "desirable", "undesirable"]

SIDES: tuple[Side, ...] = get_args(Side)
"""What a document of preference data is: one of the two answers of a pair, or an answer that was rated alone.

Documents hold the index into this tuple; of a pair, the chosen one stands right before the rejected one.
"""

CHOSEN, REJECTED, DESIRABLE, UNDESIRABLE = range(4)


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """What a row of preference data says beside its conversation."""

    rejected: "Sample | None" = None
    """The same prompt with the answer that was rejected; None where a single answer is rated."""

    is_desirable: bool = True
    """The rating of a single answer; of a pair, that of its chosen one."""

    margin: float | None = None
    """By how much the chosen answer is better, in the row's own unit; carried, never trained."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One input row after its schema was understood."""

    kind: Literal["chat", "completion", "text", "tokens"]
    """``chat`` is rendered by the template; ``completion`` and ``text`` are encoded as they are; ``tokens`` are ids."""

    row: int
    """Row number from 0 within the partition; equals the sample's index among all rows, rejected ones too."""

    messages: tuple[Message, ...] = ()
    tools: list[Any] | None = None
    template_kwargs: dict[str, Any] = {}
    prompt: str = ""
    """Only for ``completion``."""

    text: str = ""
    """The completion of a ``completion``, the whole of a ``text``."""

    given: PretokenizedTokens | None = None
    """Only for ``tokens``."""

    preference: Preference | None = None
    """Of preference data, whose conversation here is the one with the chosen answer, or with the one that is rated."""

    sample_id: str | None = None

    @property
    def all_messages(self) -> tuple[Message, ...]:
        """Its messages, and of a pair after them those of the rejected side that are not of what both share."""
        if self.preference is None or self.preference.rejected is None:
            return self.messages
        rejected = self.preference.rejected.messages
        return (*self.messages, *rejected[num_shared(self.messages, rejected) :])


def num_shared(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages two conversations have in common from their start on, whatever their weights are."""
    for number, (message, its) in enumerate(zip(one, other, strict=False)):
        if not _says_the_same(message.fields, its.fields):
            return number
    return min(len(one), len(other))


def _says_the_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the fields of two messages are the same JSON; for Python alone, the argument true equals 1 and 1.0."""
    is_plain = len(one) == len(other) == 2  # role and content
    return one == other and (is_plain or _encode(one) == _encode(other))


class Rejection(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row that is not in the cache, and why."""

    row: int
    """Row number from 0 within the partition."""

    code: str
    """One of :data:`packer.rejections.CODES`."""

    reason: str
    """One sentence for a person; never the row's content beyond a short quote of a control token or a key."""

    message: int | None = None
    """The message the reason is about, where there is one and it was rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Consecutive rows of one partition, read and understood."""

    samples: tuple[Sample, ...]
    rejections: tuple[Rejection, ...]
    num_rows: int
    """Rows read for this batch: ``len(samples) + len(rejections)``. Blank lines are not rows."""

    lines: tuple[int, ...] | None = None
    """Line of the file, from 1, at which each of these rows begins; None where rows are no lines."""

    fields: tuple[tuple[Any, ...], ...] = ()
    """For each field that was asked for, its value in each row as in the file; None if it is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBatch:
    """Rendered texts, and the turns to train on in them. N texts, T turns, G guarded ranges.

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
    weight: Float32  # [T]
    guarded: Int64  # [G, 2] byte ranges of `text`: control tokens typed by a person, to be encoded as ordinary text
    skipped: Int32  # [B] row of each answer that was to be trained and is not: see `totals.skipped` of the manifest
    rejections: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """The ids of every text, and where each turn's prompt and completion end in them. S sequences, T turns.

    A sequence is a text's ids, except for a turn whose boundary merges: it has a sequence of its own, the ids of
    its prompt followed by the ids of its completion.
    """

    ids: Int32  # [K]
    offsets: Int64  # [S + 1]
    sequence_text: Int32  # [S] index of the text a sequence was made from
    turn_sequence: Int32  # [T]
    prompt_tokens: Int64  # [T] from the start of the sequence
    completion_tokens: Int64  # [T] from the start of the sequence; the terminator is the id before it
    merged: Bool  # [T] True where the boundary merged
    unencodable: tuple[tuple[int, str], ...] = ()
    """Texts the tokenizer fails on, and what it says; such a text has a sequence without ids."""


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
    run_weight: Float32  # [U] in (0, 1]
    side: Int8 | None = None  # [D] index into SIDES; None where the rows are no preference data
    margin: Float32 | None = None  # [D] of its row, NaN where that has none; None where `side` is

    @property
    def num_documents(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentColumns:
    """Documents in the flat columns of C chunks (shards, usually), and where each of N documents lies in them.

    Arrays are contiguous and alike in chunks. They may be read-only views of mapped files; only the pages that are
    asked for are touched.
    """

    input_ids: tuple[Int32, ...]
    labels: tuple[Int32, ...]
    loss_weights: tuple[Float32, ...] | None
    """Only where a weight is fractional."""

    chunk: Int32  # [N] index of the chunk a document is in
    start: Int64  # [N] place of its first token in the chunk's flat columns
    length: Int32  # [N] tokens
    doc_id: Int64  # [N]
    paired: bool = False
    """Documents 2i and 2i + 1 are the chosen and the rejected answer of pair i."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackPlan:
    """Which piece of which document lies where. M pieces, B blocks.

    Pieces are in block order, and within a block in the order they are laid out.
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
        """Blocks ``[first, last)``, as a plan of their own."""
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
    """Blocks of one length L. B blocks, M runs, P pieces.

    Runs are what attention keeps apart; a run of padding is the last of its block. Piece p is the slots
    ``[doc_places[p], doc_places[p] + doc_lengths[p])`` of its block. What is in no piece holds no document's token.
    """

    input_ids: Int32  # [B, L]
    labels: Int32  # [B, L]
    position_ids: Int32  # [B, L]
    loss_weights: Float32 | None  # [B, L], only where a weight is fractional
    seq_lengths: Int32  # [M] slots of each run; sums to L in each block
    seq_offsets: Int64  # [B + 1] entries of seq_lengths of each block
    doc_ids: Int64  # [P] identity of the document of each piece
    doc_starts: Int32  # [P] where in its document the piece starts
    doc_lengths: Int32  # [P] tokens of the piece
    doc_places: Int32  # [P] slot of its first token
    doc_offsets: Int64  # [B + 1] entries of the doc_ columns of each block
    length: Int32  # [B] tokens of the pieces
    num_trained: Int32  # [B]
    pairs: Int64 | None = None  # [P / 2] pair that pieces 2i and 2i + 1 are; None where documents are in no pairs

    @property
    def num_blocks(self) -> int:
        return len(self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRows:
    """All rows of a cache's inputs, numbered through in the order of its partitions. N rows."""

    source: Int32  # [N] the recipe's source that names its input
    split: Int32  # [N] of its source: index into `splits`
    splits: tuple[str, ...]
    num_tokens: Int64  # [N] of its longest document; 0 where it has none, because it was rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedRows:
    """What is decided of every row: its split, or why it is in none. N rows, numbered as in :class:`InputRows`."""

    splits: tuple[str, ...]
    split: Int32  # [N] index into `splits`; -1 where the row is in none
    reason: Int32  # [N] 1 + index into ROW_REASONS; 0 where it is in a split, or was rejected before
    kept: Int64  # [N] the row it lost to, or of `contaminated` the question; -1 where it lost to none
    similarity: Float32  # [N] to that row, 0 to 1; of `contaminated` the share of the question that it has
    detail: Int32  # [N] the rule: index into `RowRules.names`; -1 where the reason has one rule
    num_capped: int = 0
    """Keys of near copies that so many rows share that each was compared with the first of them alone."""


def numbers_of(column: Any) -> npt.NDArray[Any]:
    """The values of an array of Arrow, or of a chunked one, that holds numbers and no null.

    Arrow's own `to_numpy` imports pandas where that is installed, which takes a third of a second.
    """
    dtype = np.dtype(column.type.to_pandas_dtype())
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in getattr(column, "chunks", [column])
        if len(chunk)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])


def array_of(values: npt.NDArray[Any]) -> Any:
    """Numbers as an array of Arrow over the same memory; `pa.array` of an array of numpy imports pandas, too."""
    import pyarrow as pa  # noqa: PLC0415 - whoever asks for one has it

    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )
