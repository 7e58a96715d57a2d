"""Facts of the rows of a cache, read from its inputs: what checks compare.

They come from the inputs and not from the cache, so that a cache that was built without any rule about rows can be
checked, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from packer.audit.check.built_inputs import BuiltInputs, InputPart
from packer.batches import Int64, Sample, UInt64
from packer.curate.contamination import Hits, Questions
from packer.curate.row_words import row_words
from packer.curate.signatures import Signatures, joined
from packer.curate.texts import content_key, prompt_key
from packer.pipeline.executor import jobs_for, local_executor
from packer.pipeline.progress import Progress
from packer.source import read_rows
from packer.store.cache import Cache

NGRAM = 3
"""Words of the shingles by which near copies are found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFacts:
    """Rows that are in the cache, in the order of inputs and rows. N rows."""

    source: Int64  # [N] number of the input
    row: Int64  # [N] row of the input, from 0
    split: Int64  # [N] number of the split in `splits`
    splits: tuple[str, ...]
    learned: tuple[str, ...]
    """Splits that are trained on; the others are held out."""

    content: npt.NDArray[np.bytes_]  # [N] S16: of all that is learned of a row and stands before it
    context: UInt64  # [N] what stands before the answer, of a row that has one question and one answer; else 0
    prompt: UInt64  # [N] of the first prompt, without case and white space
    prompt_words: Int64  # [N]
    prompts: Signatures | None
    """None where near copies are not looked for."""

    conversations: Signatures | None
    hits: Hits | None
    """Rows that hold a question of a benchmark; None where no benchmark is given."""

    def of_split(self, name: str) -> Int64:
        """Places of the rows of a split.  # int64[M]"""
        return np.flatnonzero(self.split == self.splits.index(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """All rows of a partition that could be read. R rows."""

    row: Int64  # [R] from 0 in the partition
    content: bytes  # 16 a row
    context: UInt64
    prompt: UInt64
    prompt_words: Int64
    prompts: Signatures | None
    conversations: Signatures | None
    hits: Hits | None


def read_facts(
    cache: Cache, inputs: BuiltInputs, *, near: bool, questions: Questions | None, jobs: int | None, progress: Progress
) -> RowFacts:
    """Read the rows of a cache again.

    Args:
        cache: says which rows it has, and in which split.
        inputs: of the cache.
        near: whether near copies are looked for.
        questions: of benchmarks, looked for in the rows.
        jobs: processes; by default as many as are worth it.
        progress: listens; counts rows.

    Raises:
        InputError: an input changed while it was read.
        CheckError: a document shard is damaged.
        WorkerDiedError: a process was killed.

    """
    progress.stage("rows", sum(part.partition.num_rows for part in inputs.parts), "rows")
    jobs = jobs or jobs_for(sum(part.partition.num_bytes for part in inputs.parts))
    found: dict[int, _Part] = {}
    executor = local_executor(min(jobs, len(inputs.parts)))
    for number, part in executor.run(_reader, (inputs.max_row_bytes, near, questions), inputs.parts):
        found[number] = part
        progress.advance(inputs.parts[number].partition.num_rows)
    parts = [found[number] for number in range(len(inputs.parts))]
    source = np.repeat([each.source for each in inputs.parts], [len(part.row) for part in parts]).astype(np.int64)
    first = [
        np.zeros(0, np.int64),
        *(part.row + each.partition.first_row for part, each in zip(parts, inputs.parts, strict=True)),
    ]
    row = np.concatenate(first)
    splits, split = _splits_of(cache, source, row)
    kept = np.flatnonzero(split >= 0)
    content = np.frombuffer(b"".join(part.content for part in parts), "S16")
    return RowFacts(
        source=source[kept],
        row=row[kept],
        split=split[kept],
        splits=splits,
        learned=learned_splits({name: len(cache.documents(name)) for name in splits}),
        content=content[kept],
        context=np.concatenate([np.zeros(0, np.uint64), *(part.context for part in parts)])[kept],
        prompt=np.concatenate([np.zeros(0, np.uint64), *(part.prompt for part in parts)])[kept],
        prompt_words=np.concatenate([np.zeros(0, np.int64), *(part.prompt_words for part in parts)])[kept],
        prompts=joined([part.prompts for part in parts if part.prompts is not None]).rows(kept) if near else None,
        conversations=(
            joined([part.conversations for part in parts if part.conversations is not None]).rows(kept)
            if near
            else None
        ),
        hits=None if questions is None else _joined_hits(parts, kept),
    )


def learned_splits(sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Those whose names begin with `train`; where there is none, the largest."""
    named = tuple(name for name in sizes if name.startswith("train"))
    return named or tuple(sorted(sizes, key=lambda name: -sizes[name])[:1])


def _reader(max_row_bytes: int, near: bool, questions: Questions | None) -> Callable[[InputPart], _Part]:  # noqa: FBT001 - handed over by place
    """The function that reads a partition, in this or in another process."""

    def read(part: InputPart) -> _Part:
        batches = read_rows(
            part.partition, schema=part.entry.schema, columns=part.entry.columns, max_row_bytes=max_row_bytes
        )
        return _whole([_facts(batch.samples, near=near, questions=questions) for batch in batches])

    return read


def _facts(samples: Sequence[Sample], *, near: bool, questions: Questions | None) -> _Part:
    words = row_words(samples)
    return _Part(
        row=np.array([sample.row for sample in samples], np.int64),
        content=b"".join(map(content_key, samples)),
        context=np.array([_context_key(sample) for sample in samples], np.uint64),
        prompt=np.array([prompt_key(sample) for sample in samples], np.uint64),
        prompt_words=words.prompt_lengths,
        prompts=words.signatures("prompt", NGRAM) if near else None,
        conversations=words.signatures("conversation", NGRAM) if near else None,
        hits=None if questions is None else questions.find(words.words, words.rows),
    )


def _context_key(sample: Sample) -> int:
    """What stands before the answer of a row with one answer, at its end; 0 for other rows."""
    if sample.kind == "completion":
        return xxh3_64_intdigest(sample.prompt.encode()) or 1
    answers = [i for i, message in enumerate(sample.messages) if message.role == "assistant"]
    if sample.kind != "chat" or answers != [len(sample.messages) - 1]:
        return 0
    before = [message.fields for message in sample.messages[:-1]]
    return xxh3_64_intdigest(msgspec.json.encode([before, sample.tools, sample.template_kwargs])) or 1


def _whole(parts: Sequence[_Part]) -> _Part:
    """The rows of all batches of a partition."""
    prompts = [part.prompts for part in parts if part.prompts is not None]
    conversations = [part.conversations for part in parts if part.conversations is not None]
    hits = any(part.hits is not None for part in parts)
    return _Part(
        row=np.concatenate([part.row for part in parts]),
        content=b"".join(part.content for part in parts),
        context=np.concatenate([part.context for part in parts]),
        prompt=np.concatenate([part.prompt for part in parts]),
        prompt_words=np.concatenate([part.prompt_words for part in parts]),
        prompts=joined(prompts) if prompts else None,
        conversations=joined(conversations) if conversations else None,
        hits=_joined_hits(parts, np.arange(sum(len(part.row) for part in parts))) if hits else None,
    )


def _joined_hits(parts: Sequence[_Part], kept: Int64) -> Hits:
    """The hits of all parts, of rows that are kept, by their places among these."""
    before = np.cumsum([0, *(len(part.row) for part in parts)])
    hits = [part.hits for part in parts if part.hits is not None]
    row = np.concatenate(
        [np.zeros(0, np.int64), *(each.row + first for each, first in zip(hits, before, strict=False))]
    )
    question = np.concatenate([np.zeros(0, np.int64), *(each.question for each in hits)])
    cover = np.concatenate([np.zeros(0), *(each.cover for each in hits)])
    place = np.searchsorted(kept, row)
    there = np.append(kept, -1)[place] == row
    return Hits(row=place[there], question=question[there], cover=cover[there])


def _splits_of(cache: Cache, source: Int64, row: Int64) -> tuple[tuple[str, ...], Int64]:
    """The split of each row that has documents; -1 for the others."""
    splits = cache.splits("documents")
    num_rows = [entry.num_rows for entry in cache.manifest.inputs]
    first = np.cumsum([0, *num_rows])
    split_of = np.full(int(first[-1]), -1)
    for number, name in enumerate(splits):
        sources, rows = cache.documents(name).origins()
        split_of[first[sources] + rows] = number
    return splits, split_of[first[source] + row]
