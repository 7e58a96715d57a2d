"""Why two caches differ: fingerprints, then what they were made from and what they hold.

Documents are the same if their doc_ids are: a doc_id is a digest of ids, labels and values of rows. The side,
where there is one, must be the same too.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from packer.batches import Bool, Int64
from packer.display import in_shell
from packer.errors import CheckError
from packer.pipeline.messages.changes import Change, compare, compare_recipes
from packer.recipe.recipe import to_json
from packer.store.arrow_columns import digest_rows
from packer.store.cache import Cache
from packer.store.entries import Totals
from packer.store.manifest import Input
from packer.store.row_tables import content_fingerprint, documents_of
from packer.store.shards import DocumentShards

_ENGINE = ("engine", "engine_version", "rules_version")
_IDS = ("vocab_size", "pad_id", "eos_id", "stop_ids", "control_ids")
_ROW_BITS = 40
"""Lower bits of a document's place: its row; the input's number stands above them."""

_NAMED_ROWS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsDiff:
    """Document counts of a split, as multisets. If `only_old` and `only_new` are 0, their order or rows differ."""

    split: str
    only_old: int
    only_new: int
    both: int
    first_old: tuple[str, ...]
    """The first rows, at most three, of documents that only the old cache has: input and row number."""

    first_new: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDiff:
    """Why two caches differ. Pairs are (old, new)."""

    old: Path
    new: Path
    fingerprint: tuple[str, str]
    content_fingerprint: tuple[str, str]
    recipe_fingerprint: tuple[str, str]
    recipe: tuple[Change, ...]
    """Recipe keys that differ, with defaults filled in. Keys that are paths are excluded: inputs and model files show
    what those paths contained."""

    inputs: tuple[Change, ...]
    """Inputs with other bytes, or read in another way, by path and split; of those that both caches name, each field.
    The same bytes read in the same way are the same input, whatever their name. If only their order differs, that."""

    model: tuple[Change, ...]
    """Files of tokenizer and template by their sha256, then the ids that training depends on."""

    documents: tuple[DocumentsDiff, ...]
    totals: tuple[Change, ...]
    """Totals; also `rejected.CODE` (rows), `cut.CODE` (tokens in no block)."""

    software: tuple[Change, ...]
    """Versions of engine and rules, then versions of libraries, which may not affect the data."""

    same_bytes: bool
    """Whether the manifests are the same, and so every file."""

    @property
    def same(self) -> bool:
        """Whether content and recipe are the same; names, paths, engine and versions may differ."""
        pairs = (self.content_fingerprint, self.recipe_fingerprint)
        return self.fingerprint[0] == self.fingerprint[1] or all(old == new for old, new in pairs)

    @property
    def meaning(self) -> str:
        """What the differing fingerprints mean, in one sentence without a full stop."""
        if self.same_bytes:
            return "the same bytes"
        if self.same:
            return "the same data by the same recipe; names, places, engine or versions in the manifest differ"
        data = "the same documents in another order, or from other rows"
        if self.content_fingerprint[0] == self.content_fingerprint[1]:
            data = "the same data"
        elif not self.documents:
            has_columns = any(change.key.startswith(("token_columns", "document_columns")) for change in self.recipe)
            data = "the same documents " + ("with other columns" if has_columns else "in other blocks")
        elif any(entry.only_old or entry.only_new for entry in self.documents):
            data = "other documents"
        if self.recipe_fingerprint[0] == self.recipe_fingerprint[1]:
            return f"{data} by the same recipe, which should not be: the versions of software may be the reason"
        engine = [change for change in self.software if change.key in _ENGINE]
        causes = {"rules": self.recipe, "inputs": self.inputs, "tokenizer or template": self.model, "engine": engine}
        found = ", ".join(name for name, changes in causes.items() if changes)
        return f"{data}: " + (f"different {found}" if found else "nothing differs that packer knows of")


def diff(old: Path | str, new: Path | str) -> CacheDiff:
    """Explain why two caches differ. Nothing is written.

    Of the files, the columns that the content fingerprint is made of are read and checked; use `verify` to check all.

    Raises:
        InputError: one is not a cache, or its build did not finish.
        CheckError: one is damaged; the message names it.
        StorageError: a file cannot be read.
    """
    with Cache.open(old) as before, Cache.open(new) as after:
        for cache in (before, after):
            _check_content(cache)
        return _compare(before, after)


def _compare(old: Cache, new: Cache) -> CacheDiff:
    before, after = old.manifest, new.manifest
    splits = dict.fromkeys([*old.splits("documents"), *new.splits("documents")])
    ids = ({name: to_json(getattr(each.model, name)) for name in _IDS} for each in (before, after))
    engine = ({name: getattr(each, name) for name in _ENGINE} for each in (before, after))
    return CacheDiff(
        old=old.folder,
        new=new.folder,
        fingerprint=(old.fingerprint, new.fingerprint),
        content_fingerprint=(before.content_fingerprint, after.content_fingerprint),
        recipe_fingerprint=(before.recipe_fingerprint, after.recipe_fingerprint),
        recipe=compare_recipes(before.recipe, after.recipe),
        inputs=compare_inputs(before.inputs, after.inputs),
        model=(*compare(before.model.digests, after.model.digests), *compare(*ids)),
        documents=tuple(found for split in splits if (found := _compare_documents(old, new, split)) is not None),
        totals=compare(_counts(before.totals), _counts(after.totals)),
        software=(*compare(*engine), *compare(before.versions, after.versions)),
        same_bytes=before == after,
    )


def compare_inputs(old: Sequence[Input], new: Sequence[Input]) -> tuple[Change, ...]:
    """Return the inputs that differ; one that only one cache has by its rows and its digest."""
    read = [[_reading(entry) for entry in inputs] for inputs in (old, new)]
    only = Counter(read[0]) - Counter(read[1]), Counter(read[1]) - Counter(read[0])
    if not any(only) and read[0] != read[1]:
        return (Change(key="order", old=[entry.path for entry in old], new=[entry.path for entry in new]),)
    before, after = (
        {f"{entry.path} ({entry.split})": entry for entry in own if _reading(entry) in others}
        for own, others in zip((old, new), only, strict=True)
    )
    found: list[Change] = []
    for name in dict.fromkeys([*before, *after]):
        one, other = before.get(name), after.get(name)
        if one is not None and other is not None:
            # The part of an input that a recipe takes is a change of the recipe.
            changes = compare(*({**to_json(entry), "part": None} for entry in (one, other)))
            found += [replace(change, key=f"{name}: {change.key}") for change in changes]
        else:
            told = [entry and f"{entry.num_rows:,} rows, sha256 {entry.sha256[:16]}" for entry in (one, other)]
            found.append(Change(key=name, old=told[0], new=told[1]))
    return tuple(found)


def _reading(entry: Input) -> str:
    """Return what decides an input's rows: its bytes and how they are read; fewer rows are a rule, `limit`."""
    fields = {**to_json(entry), "path": None, "num_rows": None, "part": None}
    return json.dumps(fields, sort_keys=True)


def _compare_documents(old: Cache, new: Cache, split: str) -> DocumentsDiff | None:
    """Count the documents of a split that only one cache has; None if documents, their order and rows are the same."""
    (ids_old, rows_old), (ids_new, rows_new) = _documents(old, split), _documents(new, split)
    if np.array_equal(ids_old, ids_new) and np.array_equal(rows_old, rows_new):
        return None
    left_old, left_new = unmatched(ids_old, ids_new), unmatched(ids_new, ids_old)
    return DocumentsDiff(
        split=split,
        only_old=int(left_old.sum()),
        only_new=int(left_new.sum()),
        both=int((~left_old).sum()),
        first_old=_named(old, rows_old[left_old]),
        first_new=_named(new, rows_new[left_new]),
    )


def _documents(cache: Cache, split: str) -> tuple[Int64, Int64]:
    """Return the identity of each document of a split, and its row: the index of the input in the high bits."""
    found = cache.documents(split) if split in cache.splits("documents") else DocumentShards(cache.folder, ())
    ids = found.doc_ids()
    if found.has_sides:
        ids = digest_rows(np.column_stack([ids, found.sides()]), []).view(np.int64)
    source, row = found.origins()
    return ids, (source << _ROW_BITS) | row


def _named(cache: Cache, rows: Int64) -> tuple[str, ...]:
    places = (divmod(row, 1 << _ROW_BITS) for row in np.unique(rows)[:_NAMED_ROWS].tolist())
    return tuple(f"{cache.manifest.inputs[source].path} row {row}" for source, row in places)


def unmatched(own: Int64, other: Int64) -> Bool:
    """Mark the entries of `own` that `other` does not have as often; of equal ones, the last.

    Worked example: [7, 7, 7, 8] beside [9, 7, 7] gives [F, F, T, T].
    """
    values, inverse = np.unique(np.concatenate([own, other]), return_inverse=True)
    mine = inverse[: len(own)]
    order = np.argsort(mine, kind="stable")
    # In sorted order, the number of equal entries before one is its index minus the index at which its group begins.
    before = np.empty(len(own), np.int64)
    before[order] = np.arange(len(own)) - np.searchsorted(mine[order], mine[order])
    found: Bool = before >= np.bincount(inverse[len(own) :], minlength=len(values))[mine]
    return found


def _counts(totals: Totals) -> dict[str, Any]:
    """Flatten the totals; codes that only one cache has are absent from the other's."""
    counts: dict[str, Any] = to_json(totals)
    rejected, cut = counts.pop("rejected"), counts.pop("cut")
    counts |= {f"rejected.{code}": rows for code, rows in rejected.items()}
    return counts | {f"cut.{code}": entry["tokens"] for code, entry in cut.items()}


def _check_content(cache: Cache) -> None:
    manifest = cache.manifest
    found = content_fingerprint(cache.folder, manifest.shards, documents_of(cache.folder, manifest))
    if found != manifest.content_fingerprint:
        raise CheckError(
            f"{cache.folder} is damaged: its documents or blocks are not those its manifest was written for",
            hint=f"packer verify {in_shell(cache.folder)} names the files",
        )
