"""Facts of the rows of a cache, read from its inputs: what checks compare.

They are the traits that a build makes of rows for its rules, made again from the inputs, so that a cache that was built
without any rule about rows can be checked, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from packer.audit.input_parts import InputPart
from packer.batches import Bool, Int64, RowBatch, Sample, UInt64
from packer.curate.contamination import Questions
from packer.curate.select import column, digests
from packer.curate.signatures import Signatures, signatures_in
from packer.curate.trait_rules import TraitRules
from packer.curate.traits import TraitMaker
from packer.pipeline.executor import jobs_for, run_tasks
from packer.progress import Progress
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
    prompts: Signatures
    conversations: Signatures | None
    """None where near copies are not looked for."""

    question: Int64  # [N] of a benchmark that the row holds; -1 for none
    cover: npt.NDArray[np.float64]  # [N] the share of it that the row has

    @property
    def has_prompt(self) -> Bool:
        """Which rows have a first prompt of enough words to be recognised by.  # bool[N]"""
        return np.diff(self.prompts.offsets) > 0

    def of_split(self, name: str) -> Int64:
        """Places of the rows of a split.  # int64[M]"""
        return np.flatnonzero(self.split == self.splits.index(name))


def read_facts(
    cache: Cache,
    parts: Sequence[InputPart],
    max_row_bytes: int,
    *,
    near: bool,
    questions: Questions | None,
    jobs: int | None,
    progress: Progress,
) -> RowFacts:
    """Read the rows of a cache again.

    Args:
        cache: says which rows it has, and in which split.
        parts: of its inputs, at least one.
        max_row_bytes: of its recipe.
        near: whether near copies are looked for.
        questions: of benchmarks, looked for in the rows.
        jobs: processes; by default as many as are worth it.
        progress: listens; counts rows.

    Raises:
        InputError: an input changed while it was read.
        CheckError: a document shard is damaged.
        WorkerDiedError: a process was killed.

    """
    num_rows = [part.partition.num_rows for part in parts]
    progress.stage("rows", sum(num_rows), "rows")
    jobs = jobs or jobs_for(sum(part.partition.num_bytes for part in parts))
    found: dict[int, pa.Table] = {}
    for number, table in run_tasks(_reader, (max_row_bytes, near, questions), parts, jobs=jobs):
        found[number] = table
        progress.advance(num_rows[number])
    traits = pa.concat_tables([found[number] for number in range(len(parts))])
    source = np.repeat(np.array([part.source for part in parts]), num_rows)
    row = np.concatenate([np.arange(each.num_rows) + each.first_row for each in (part.partition for part in parts)])
    splits, split = _splits_of(cache, source, row)
    kept = np.flatnonzero(split >= 0)
    has_questions = questions is not None
    return RowFacts(
        source=source[kept],
        row=row[kept],
        split=split[kept],
        splits=splits,
        learned=learned_splits(cache),
        content=digests(traits, "content")[kept],
        context=column(traits, "context")[kept],
        prompt=column(traits, "prompt")[kept],
        prompts=signatures_in(traits, "prompt", NGRAM).rows(kept),
        conversations=signatures_in(traits, "conversation", NGRAM).rows(kept) if near else None,
        question=column(traits, "question")[kept].astype(np.int64) if has_questions else np.full(len(kept), -1),
        cover=column(traits, "cover")[kept].astype(np.float64) if has_questions else np.zeros(len(kept)),
    )


def learned_splits(cache: Cache) -> tuple[str, ...]:
    """Those whose names begin with `train`; where there is none, the largest."""
    sizes = {name: len(cache.documents(name)) for name in cache.splits("documents")}
    named = tuple(name for name in sizes if name.startswith("train"))
    return named or tuple(sorted(sizes, key=lambda name: -sizes[name])[:1])


def _reader(max_row_bytes: int, near: bool, questions: Questions | None) -> Callable[[InputPart], pa.Table]:  # noqa: FBT001 - handed over by place
    """The function that reads a partition, in this or in another process."""
    maker = TraitMaker(TraitRules.for_check(NGRAM, near=near), questions)

    def read(part: InputPart) -> pa.Table:
        batches, first = [], 0
        for rows in part.rows(max_row_bytes):
            traits = maker.make(rows, first)
            batches.append(traits.append_column("context", pa.array(_contexts(rows, first))))
            first += rows.num_rows
        return pa.Table.from_batches(batches)

    return read


def _contexts(rows: RowBatch, first: int) -> UInt64:
    """What stands before the answer of each row.  # uint64[R]"""
    found = np.zeros(rows.num_rows, np.uint64)
    for sample in rows.samples:
        found[sample.row - first] = _context_key(sample)
    return found


def _context_key(sample: Sample) -> int:
    """What stands before the answer of a row with one answer, at its end; 0 for other rows."""
    if sample.kind == "completion":
        return xxh3_64_intdigest(sample.prompt.encode()) or 1
    answers = [i for i, message in enumerate(sample.messages) if message.role == "assistant"]
    if sample.kind != "chat" or answers != [len(sample.messages) - 1]:
        return 0
    before = [message.fields for message in sample.messages[:-1]]
    return xxh3_64_intdigest(msgspec.json.encode([before, sample.tools, sample.template_kwargs])) or 1


def _splits_of(cache: Cache, source: Int64, row: Int64) -> tuple[tuple[str, ...], Int64]:
    """The split of each row that has documents; -1 for the others."""
    splits = cache.splits("documents")
    first = np.cumsum([0, *(entry.num_rows for entry in cache.manifest.inputs)])
    split_of = np.full(int(first[-1]), -1)
    for number, name in enumerate(splits):
        sources, rows = cache.documents(name).origins()
        split_of[first[sources] + rows] = number
    return splits, split_of[first[source] + row]
