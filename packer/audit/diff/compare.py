"""Comparison of two caches: fingerprints first, then possible explanations, from the recipe down to tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer.audit.diff.documents import DocumentComparison, DocumentsDiff, MovedRows, moved_rows
from packer.audit.diff.examples import RowExample, make_examples
from packer.audit.diff.settings import (
    Change,
    InputChange,
    TemplateChange,
    changes,
    compare_inputs,
    compare_models,
    compare_recipes,
    pair_inputs,
)
from packer.display import in_shell
from packer.errors import CheckError
from packer.pipeline.identity import model_digests
from packer.recipe import to_json
from packer.store.cache import Cache, content_fingerprint
from packer.store.selected import documents_of
from packer.store.totals import Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDiff:
    """Why two caches differ. Pairs are (old, new)."""

    old: Path
    new: Path
    fingerprint: tuple[str, str]
    content_fingerprint: tuple[str, str]
    recipe_fingerprint: tuple[str, str]
    causes: tuple[str, ...]
    """The parts of the recipe fingerprint that differ: `rules`, `inputs`, `model`, `engine`."""

    meaning: str
    """One-sentence summary of the difference."""

    recipe: tuple[Change, ...]
    """Recipe keys that differ, with defaults filled in. Keys that are paths are excluded: inputs and model files show
    what those paths contained."""

    inputs: tuple[InputChange, ...]
    inputs_reordered: bool
    """Whether the inputs that both caches have were read in a different order."""

    model: tuple[Change, ...]
    """Tokenizer files by their sha256, then the settings that differ in them."""

    templates: tuple[TemplateChange, ...]
    documents: tuple[DocumentsDiff, ...]
    """Splits whose documents differ."""

    moved: tuple[MovedRows, ...]
    """Rows that rules about rows moved to another split or code; the largest group first."""

    examples: tuple[RowExample, ...]
    totals: tuple[Change, ...]
    """Totals; also `rejected.CODE` (rows), `cut.CODE` (tokens in no block), `unused_keys.KEY` (messages)."""

    software: tuple[Change, ...]
    """Versions of engine and rules, then versions of libraries, which may not affect the data."""

    @property
    def same(self) -> bool:
        """Whether content and recipe are the same; names, paths and versions may differ."""
        pairs = (self.content_fingerprint, self.recipe_fingerprint)
        return all(old == new for old, new in pairs)

    @property
    def same_bytes(self) -> bool:
        """Whether every file is the same."""
        return self.fingerprint[0] == self.fingerprint[1]


_ENGINE = ("engine", "engine_version", "rules_version")
_CAUSES = {"rules": "rules", "inputs": "inputs", "model": "tokenizer or template", "engine": "engine"}


def diff(old: Path | str, new: Path | str, *, documents: int = 3) -> CacheDiff:
    """Explain why two caches differ. Nothing is written.

    What is read is also checked: the columns of documents and blocks by the content fingerprint, single documents by
    their digests, kept files by their sha256. Tokens are read only for documents that are shown; use `verify` to check
    all.

    Args:
        old: a cache.
        new: another cache.
        documents: maximum number of rows with differing documents to show.

    Raises:
        InputError: one is not a cache, or its build did not finish.
        CheckError: one is damaged; the message names it.
        StorageError: a file cannot be read.
        ValueError: `documents` is negative.
    """
    if documents < 0:
        raise ValueError(f"expected a number of documents from 0 on, found {documents}")
    with Cache.open(old) as before, Cache.open(new) as after:
        for cache in (before, after):
            _check_content(cache)
        return _compare(before, after, documents)


def _compare(old: Cache, new: Cache, num_examples: int) -> CacheDiff:
    before, after = old.manifest, new.manifest
    pairs = pair_inputs(before.inputs, after.inputs)
    comparisons = [DocumentComparison.of(old, new, split, pairs) for split in _splits(old, new)]
    documents = tuple(found for comparison in comparisons if (found := comparison.report()) is not None)
    recipe = compare_recipes(before.recipe, after.recipe)
    inputs = compare_inputs(before.inputs, after.inputs, pairs)
    reordered = list(pairs.values()) != sorted(pairs.values())
    model, templates = compare_models(old, new)
    engine = changes(*({name: getattr(each, name) for name in _ENGINE} for each in (before, after)))
    differs = {
        "rules": bool(recipe),
        "inputs": reordered or any(entry.is_other for entry in inputs),
        "model": model_digests(before.model) != model_digests(after.model),
        "engine": bool(engine),
    }
    causes = tuple(name for name in differs if differs[name])
    counts = _counts(before.totals), _counts(after.totals)
    return CacheDiff(
        old=old.folder,
        new=new.folder,
        fingerprint=(old.fingerprint, new.fingerprint),
        content_fingerprint=(before.content_fingerprint, after.content_fingerprint),
        recipe_fingerprint=(before.recipe_fingerprint, after.recipe_fingerprint),
        causes=causes,
        meaning=meaning_of(
            same_bytes=old.fingerprint == new.fingerprint,
            same_content=before.content_fingerprint == after.content_fingerprint,
            same_recipe=before.recipe_fingerprint == after.recipe_fingerprint,
            documents=documents,
            causes=causes,
        ),
        recipe=recipe,
        inputs=tuple(sorted(inputs, key=lambda entry: entry.kind == "renamed")),
        inputs_reordered=reordered,
        model=tuple(model),
        templates=tuple(templates),
        documents=documents,
        moved=moved_rows(old, new, pairs),
        examples=make_examples(old, new, comparisons, num_examples) if documents else (),
        totals=tuple(changes(*counts, names=dict.fromkeys([*counts[0], *counts[1]]))),
        software=(*engine, *changes(before.versions, after.versions)),
    )


def meaning_of(
    *,
    same_bytes: bool,
    same_content: bool,
    same_recipe: bool,
    documents: Sequence[DocumentsDiff],
    causes: Sequence[str],
) -> str:
    """Say in one sentence, without a full stop, what the differing fingerprints mean."""
    if same_bytes:
        return "the same bytes"
    if same_content and same_recipe:
        return "the same data by the same recipe; names, places or versions in the manifest differ"
    if same_content:
        data = "the same data"
    elif not documents:
        data = "the same documents in other blocks"
    elif any(entry.only_old or entry.only_new for entry in documents):
        data = "other documents"
    else:
        data = "the same documents in another order, or from other rows"
    if same_recipe:
        return f"{data} by the same recipe, which should not be: the versions of software may be the reason"
    if not causes:
        return f"{data} by another recipe: nothing in it differs that this version of packer knows of"
    return f"{data} by another recipe: other {', '.join(_CAUSES[cause] for cause in causes)}"


def _splits(old: Cache, new: Cache) -> list[str]:
    return list(dict.fromkeys([*old.splits("documents"), *new.splits("documents")]))


def _counts(totals: Totals) -> dict[str, Any]:
    """Flatten the totals; codes that only one cache has are absent from the other's."""
    counts: dict[str, Any] = to_json(totals)
    rejected, cut, unused = counts.pop("rejected"), counts.pop("cut"), counts.pop("unused_keys", {})
    counts |= {f"rejected.{code}": rows for code, rows in rejected.items()}
    counts |= {f"unused_keys.{key}": messages for key, messages in unused.items()}
    return counts | {f"cut.{code}": entry["tokens"] for code, entry in cut.items()}


def _check_content(cache: Cache) -> None:
    manifest = cache.manifest
    found = content_fingerprint(cache.folder, manifest.shards, documents_of(cache.folder, manifest))
    if found != manifest.content_fingerprint:
        raise CheckError(
            f"{cache.folder} is damaged: its documents or blocks are not those its manifest was written for",
            hint=f"packer verify {in_shell(cache.folder)} names the files",
        )
