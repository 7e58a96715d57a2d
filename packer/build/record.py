"""The record of a build: its ledger of what was left out, the tokenizer's files, the totals, the manifest."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from packer import __version__
from packer.build.blocks import PackedSplit
from packer.build.partition import PartitionResult
from packer.build.plan import BuildPlan
from packer.model import Model
from packer.recipe import to_json
from packer.rejections import CODES
from packer.store.content import content_fingerprint
from packer.store.document_shards import DocumentShards
from packer.store.folder import write_atomically
from packer.store.manifest import Input, Manifest, ModelFile, ModelRecord, Shard, Totals
from packer.store.rejected import Rejected

_VERSIONED = ("jinja2", "numpy", "pyarrow", "tokenizers")
"""Software that shaped the bytes."""


def make_manifest(
    plan: BuildPlan,
    folder: Path,
    results: Sequence[PartitionResult],
    blocks: Sequence[Shard],
    packed: Mapping[str, PackedSplit],
    *,
    rejected_sha256: str,
) -> Manifest:
    """The manifest of these shards; writes nothing but the tokenizer's files."""
    shards = (*(result.shard for result in results), *blocks)
    return Manifest(
        format="packer-cache",
        format_version=1,
        label_shift="none",
        recipe=to_json(plan.recipe),
        engine=plan.engine,
        engine_version=plan.engine_version,
        model=_write_model(folder, plan.model),
        inputs=plan.inputs,
        shards=shards,
        rejected_sha256=rejected_sha256,
        totals=_totals(results, blocks, packed, plan.recipe.pack.block_len),
        recipe_fingerprint=plan.recipe_fingerprint,
        content_fingerprint=content_fingerprint(folder, shards),
        versions={name: version(name) for name in _VERSIONED} | {"packer": __version__},
    )


def rejected_lines(
    folder: Path, inputs: Sequence[Input], results: Sequence[PartitionResult], packed: Mapping[str, PackedSplit]
) -> list[Rejected]:
    """Rows that are not in the cache and documents that are in no block, in the order of inputs and rows."""
    lines: list[tuple[int, int, Rejected]] = []
    for result in results:
        shard = result.shard
        assert shard.source is not None
        path = inputs[shard.source].path
        lines += [
            (
                shard.source,
                shard.first_row + row.row,
                Rejected(source=path, row=shard.first_row + row.row, code=row.code, reason=row.reason),
            )
            for row in result.rejected
        ]
    for split, left in packed.items():
        own = [result.shard for result in results if result.shard.split == split]
        documents = DocumentShards(folder, own)
        lengths, ids = documents.lengths(), documents.doc_ids()
        for code, numbers in left.left_out.items():
            for number in numbers.tolist():
                source, row = documents.origin(number)
                line = Rejected(
                    source=inputs[source].path,
                    row=row,
                    code=code,
                    reason=f"{CODES[code]} ({lengths[number]} tokens)",
                    document=int(ids[number]),
                )
                lines.append((source, row, line))
    return [line for _, _, line in sorted(lines, key=lambda entry: entry[:2])]


def _write_model(folder: Path, model: Model) -> ModelRecord:
    """Keep the tokenizer's files in the cache, under a name that is theirs alone."""
    digests = model.digests
    listed = "".join(f"{file} {digest}\n" for file, digest in sorted(digests.items()))
    name = hashlib.sha256(listed.encode()).hexdigest()[:12]
    files = []
    for file, content in sorted(model.files.items()):
        path = f"{name}/{file}"
        write_atomically(folder / "model" / path, content)
        files.append(ModelFile(path=path, num_bytes=len(content), sha256=digests[file]))
    return ModelRecord(
        files=tuple(files),
        vocab_size=model.vocab_size,
        pad_id=model.pad_id,
        eos_id=model.eos_id,
        stop_ids=model.stop_ids,
        control_ids=tuple(sorted(model.control.values())),
    )


def _totals(
    results: Sequence[PartitionResult], blocks: Sequence[Shard], packed: Mapping[str, PackedSplit], block_len: int
) -> Totals:
    shards = [result.shard for result in results]
    rejected = Counter(row.code for result in results for row in result.rejected)
    rows = sum(shard.num_input_rows for shard in shards)
    tokens, trained = sum(shard.num_tokens for shard in shards), sum(shard.num_trained for shard in shards)
    num_blocks, in_blocks = sum(shard.num_rows for shard in blocks), sum(shard.num_tokens for shard in blocks)
    left_out: Counter[str] = Counter()
    for split in packed.values():
        left_out.update({code: len(numbers) for code, numbers in split.left_out.items() if len(numbers)})
    return Totals(
        rows=rows,
        kept=sum(shard.num_kept for shard in shards),
        rejected=dict(sorted(rejected.items())),
        documents=sum(shard.num_rows for shard in shards),
        tokens=tokens,
        trained=trained,
        masked=tokens - trained,
        merged=sum(shard.num_merged for shard in shards),
        packed=sum(split.num_packed for split in packed.values()),
        left_out=dict(sorted(left_out.items())),
        cut=sum(split.num_cut for split in packed.values()),
        cut_trained=sum(split.num_cut_trained for split in packed.values()),
        blocks=num_blocks,
        slots=num_blocks * block_len,
        padding=num_blocks * block_len - in_blocks,
    )
