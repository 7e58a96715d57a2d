"""Reference log-probabilities of pairs, in a file beside the cache: computed once, by a user's function.

The file is one line of JSON, and 16 bytes for each pair; docs/reference/format.md defines it. A digest for each pair
detects values that were changed, moved, or taken from another file. A pair's values are either complete or absent:
filling can be interrupted at any moment, and several processes may fill one file.

The line identifies the documents that the values belong to, by a digest of the identities of all documents of the split
in order. These are digests of ids and labels, so the values stay valid for a cache that is packed again.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from packer.batches import Bool, Float32, Int64, UInt64
from packer.errors import CheckError, InputError, UsageError
from packer.limits import storage_errors
from packer.load.arguments import check_callable, check_instance, check_integer
from packer.load.preference import padded_documents, preference_documents
from packer.load.ranks import resolve_rank
from packer.load.rows import documents_of_pairs
from packer.load.step import MicroBatch
from packer.progress import Progress, Silent
from packer.store.cache import Cache, DocumentShards
from packer.store.digest import digest_rows

_RECORD = np.dtype([("logps", "<f4", 2), ("digest", "<u8")])
_ALIGNMENT = 512
_MAX_HEADER_BYTES = 1 << 16
_TOLERANCE = 1e-3
"""Tolerance for sums of log-probabilities that rounding puts above 0."""

LogProbabilities = Callable[[MicroBatch], Any]
"""Maps a padded batch of :func:`~packer.load.preference.padded_documents`, chosen rows first, to its log-
probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Log-probabilities that a reference model assigns to the answers of a split of P pairs."""

    path: Path
    model: str
    """The user's name for the model."""

    documents: str
    """Digest of the split's documents."""

    chosen: Float32  # [P] summed over the trained tokens; NaN if not filled
    rejected: Float32  # [P]

    @property
    def num_missing(self) -> int:
        """Pairs without values."""
        return int(np.count_nonzero(np.isnan(self.chosen)))

    def check(self, documents: DocumentShards) -> None:
        """Check that these are the values of some documents, and of all of them.

        Raises:
            CheckError: they belong to other documents.
            UsageError: some are missing.
        """
        if self.documents != digest_of(documents):
            raise _wrong_documents(self.path)
        if self.num_missing:
            raise UsageError(
                f"{self.path}: {self.num_missing:,} of {len(self.chosen):,} pairs have no reference log-probabilities",
                hint="fill_reference continues where it stopped",
            )


def fill_reference(
    cache: str | Path | Cache,
    path: str | Path,
    logps: LogProbabilities,
    *,
    model: str,
    split: str = "train",
    batch_size: int = 8,
    rank: int | None = None,
    world_size: int | None = None,
    progress: Progress | None = None,
) -> Reference:
    """Compute the reference log-probabilities of all pairs that have none yet.

    Pairs of similar length share a batch. With several ranks on one machine, each fills its share of the file; values
    that another rank has not written when this one finishes are missing from the result.

    Args:
        cache: folder of a cache of pairs, or an open one.
        path: the file; created if it does not exist, otherwise completed.
        logps: returns the log-probability of each row of a batch, summed over the tokens where ``completion_mask`` is
            1: either the result of :func:`packer.load.answer_logps`, or 2B numbers, the B chosen answers first.
        model: recorded in the file to identify the model: its name and revision, and anything else that affects the
            values, such as the dtype. In bfloat16, sums differ by some tenths with the layout of batches.
        split: name of the split.
        batch_size: pairs per batch.
        rank: of this process; by default that of ``torch.distributed``.
        world_size: number of processes.
        progress: progress listener; counts pairs.

    Raises:
        UsageError: the cache has no pairs, the file has values of another model, or the function returned something
            else than log-probabilities.
        CheckError: the file is damaged, or belongs to other documents.
        StorageError: the file cannot be written.
    """
    check_callable("logps", logps, "a function from a batch to log-probabilities")
    check_instance("model", model, str, "a name of the reference model")
    check_integer("batch_size", batch_size, minimum=1)
    rank, world_size = resolve_rank(rank, world_size)
    found, documents = _pairs(cache, split)
    file = _File(Path(path), documents, split)
    progress = progress or Silent()
    progress.stage("filling", len(documents) // 2, "pairs")
    with file.open_for_filling(model) as descriptor:
        is_missing = np.isnan(file.reference().chosen)
        for pairs in _batches(documents, is_missing, batch_size, rank, world_size):
            rows = documents_of_pairs(pairs)
            with torch.no_grad():
                values = logps(padded_documents(documents, rows, pad_id=found.manifest.model.pad_id))
            file.write(descriptor, pairs, _by_side(values, pairs))
            progress.advance(len(pairs), int(documents.lengths()[rows].sum()))
    return file.reference()


def read_reference(cache: str | Path | Cache, path: str | Path, *, split: str = "train") -> Reference:
    """Read a file written by :func:`fill_reference`.

    Raises:
        InputError: there is no such file.
        CheckError: it is damaged, or belongs to other documents.
        UsageError: the cache has no pairs.
    """
    _, documents = _pairs(cache, split)
    if not Path(path).is_file():
        raise InputError(f"{path} is not there", hint="fill_reference makes it")
    return _File(Path(path), documents, split).reference()


def digest_of(documents: DocumentShards) -> str:
    """Return a digest of the ids and labels of some documents in order, computed from their identities."""
    return xxh3_128_hexdigest(documents.doc_ids().astype("<i8").tobytes())


class _File:
    """The reference file of some documents."""

    def __init__(self, path: Path, documents: DocumentShards, split: str) -> None:
        self.path = path
        self._digest = digest_of(documents)
        self._num_pairs = len(documents) // 2
        self._header = {"format": "packer-reference", "version": 1, "split": split, "documents": self._digest}

    @contextmanager
    def open_for_filling(self, model: str) -> Iterator[int]:
        """Open the file for writing, created at full size if it does not exist; it is synced to disk at the end."""
        header = json.dumps(self._header | {"pairs": self._num_pairs, "model": model}).encode()
        header = header.ljust(-(-(len(header) + 1) // _ALIGNMENT) * _ALIGNMENT - 1) + b"\n"
        with storage_errors("write", self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with storage_errors("write", self.path):
                # Several processes may do this concurrently, or die between the two, but they write the same bytes.
                if not os.fstat(descriptor).st_size:
                    os.pwrite(descriptor, header, 0)
                if os.fstat(descriptor).st_size == len(header):
                    os.ftruncate(descriptor, len(header) + self._num_pairs * _RECORD.itemsize)
            _, found = self._read_header()
            if found != model:
                raise UsageError(
                    f"{self.path} holds log-probabilities of the model '{found}'; expected '{model}'",
                    hint="fill another file",
                )
            yield descriptor
            with storage_errors("write", self.path):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def reference(self) -> Reference:
        """Read the file; values are NaN for pairs that are not filled.

        Raises:
            CheckError: a record is not what was written.
        """
        header, model = self._read_header()
        with storage_errors("read", self.path):
            records = np.fromfile(self.path, _RECORD, offset=len(header))
        if len(records) != self._num_pairs:
            raise _damaged(self.path, f"expected {self._num_pairs:,} records, found {len(records):,}")
        values: Float32 = np.ascontiguousarray(records["logps"], np.float32)
        is_empty = (records["digest"] == 0) & (values == 0).all(1)
        wrong = ~is_empty & (records["digest"] != _digests(header, np.arange(len(values)), values))
        if wrong.any():
            raise _damaged(self.path, f"the values of pair {int(wrong.argmax())} are not those that were written")
        values[is_empty] = np.nan
        chosen, rejected = np.ascontiguousarray(values.T)
        return Reference(path=self.path, model=model, documents=self._digest, chosen=chosen, rejected=rejected)

    def write(self, descriptor: int, pairs: Int64, values: Float32) -> None:
        """Write the values of some pairs."""
        header, _ = self._read_header()
        records = np.empty(len(pairs), _RECORD)
        records["logps"], records["digest"] = values, _digests(header, pairs, values)
        with storage_errors("write", self.path):
            for pair, record in zip(pairs.tolist(), records, strict=True):
                os.pwrite(descriptor, record.tobytes(), len(header) + pair * _RECORD.itemsize)

    def _read_header(self) -> tuple[bytes, str]:
        """Return the first line with its padding, and the model it names.

        Raises:
            CheckError: it is not a header, or belongs to other documents.
        """
        with storage_errors("read", self.path), self.path.open("rb") as file:
            header = file.readline(_MAX_HEADER_BYTES)
        try:
            found = json.loads(header)
            model, num_pairs = str(found.pop("model")), found.pop("pairs")
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            raise _damaged(self.path, "it does not begin as one does") from None
        if any(found.get(name) != self._header[name] for name in ("format", "version")):
            raise _damaged(self.path, "it is not a reference file of this version of packer")
        if found != self._header or num_pairs != self._num_pairs or len(header) % _ALIGNMENT:
            raise _wrong_documents(self.path)
        return header, model


def _digests(header: bytes, pairs: Int64, values: Float32) -> UInt64:
    """Return the digest of each record.  # uint64[B]"""
    key = np.full(len(pairs), xxh3_64_intdigest(header), np.uint64).view(np.int64)
    bits = np.ascontiguousarray(values, "<f4").view("<i8")[:, 0]
    return digest_rows(np.stack([pairs, bits, key], axis=1), [])


def _batches(
    documents: DocumentShards, is_missing: Bool, batch_size: int, rank: int, world_size: int
) -> Iterator[Int64]:
    """Yield the pairs this rank fills, longest first, so that running out of memory shows immediately."""
    longest = documents.lengths().reshape(-1, 2).max(1)
    rank_pairs = np.argsort(-longest, kind="stable")[rank::world_size]
    rank_pairs = rank_pairs[is_missing[rank_pairs]]
    for first in range(0, len(rank_pairs), batch_size):
        yield rank_pairs[first : first + batch_size]


def _by_side(values: Any, pairs: Int64) -> Float32:
    """Check the result of the user's function and arrange it by side.  # float32[B, 2]"""
    is_by_side = isinstance(values, tuple | list) and [getattr(part, "ndim", 0) for part in values] == [1, 1]
    try:
        parts = [torch.as_tensor(part) for part in (values if is_by_side else [values])]
        values = torch.stack(parts).flatten() if is_by_side else parts[0]
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"logps gave no log-probabilities of both sides of {len(pairs)} pairs: {error}") from error
    found = values.detach().float().cpu().numpy()
    if found.shape != (2 * len(pairs),):
        raise UsageError(f"logps gave values of shape {list(found.shape)}; expected [{2 * len(pairs)}]")
    by_side: Float32 = np.ascontiguousarray(found.reshape(2, -1).T)
    wrong = ~np.isfinite(by_side) | (by_side > _TOLERANCE)
    if wrong.any():
        row, side = np.argwhere(wrong)[0].tolist()
        raise UsageError(
            f"logps gave {by_side[row, side]} for pair {pairs[row]}; a log-probability is a finite number, at most 0",
            hint="sum the log-probabilities of the trained tokens, not their losses, in float32",
        )
    return by_side


def _pairs(cache: str | Path | Cache, split: str) -> tuple[Cache, DocumentShards]:
    found, documents = preference_documents(cache, split)
    if not documents.is_paired:
        raise UsageError(
            f"{found.folder} contains rated answers, but references are computed for pairs",
            hint="a KTOTrainer computes its own: precompute_ref_log_probs=True",
        )
    return found, documents


def _damaged(path: Path, reason: str) -> CheckError:
    return CheckError(f"{path} is damaged: {reason}", hint="fill another file, or remove this one")


def _wrong_documents(path: Path) -> CheckError:
    return CheckError(
        f"{path} holds the log-probabilities of other documents than this split's",
        hint="the cache was built again from other rows or rules: write to another file",
    )
