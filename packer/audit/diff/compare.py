"""Comparing two caches: identity first, then what may explain it, from the rules down to tokens."""

from pathlib import Path

from packer.audit.diff.blocks import compare_blocks
from packer.audit.diff.documents import DocumentComparison, InputPairs, Side
from packer.audit.diff.examples import make_examples
from packer.audit.diff.inputs import compare_inputs, pair_inputs
from packer.audit.diff.meaning import causes_of, meaning_of
from packer.audit.diff.model import compare_models
from packer.audit.diff.numbers import compare_numbers
from packer.audit.diff.recipe import compare_recipes, compare_software
from packer.audit.diff.report import CacheDiff, Identity
from packer.errors import CheckError
from packer.store.cache import Cache
from packer.store.content import content_fingerprint
from packer.store.document_shards import DocumentShards


def diff(old: Path | str, new: Path | str, *, documents: int = 3) -> CacheDiff:
    """Say why two caches differ. Nothing is written.

    What is read is checked: the columns of documents and blocks by the content fingerprint, single documents by their
    digests, kept files by their sha256. The tokens of documents that are not shown are not read; `verify` is for that.

    Args:
        old: a cache.
        new: another one.
        documents: rows whose documents differ to show, at most.

    Raises:
        InputError: one is not a cache, or its build did not finish.
        CheckError: one is damaged; the message names it.
        StorageError: something cannot be read.
        ValueError: `documents` is negative.

    """
    if documents < 0:
        raise ValueError(f"expected a number of documents from 0 on, found {documents}")
    with Cache.open(old) as before, Cache.open(new) as after:
        for cache in (before, after):
            _check_content(cache)
        return _compare(before, after, documents)


def _compare(old: Cache, new: Cache, most: int) -> CacheDiff:
    inputs_old, inputs_new = old.manifest.inputs, new.manifest.inputs
    pairs = pair_inputs(inputs_old, inputs_new)
    splits = tuple(dict.fromkeys((*old.splits("documents"), *new.splits("documents"))))
    comparisons = [(split, _compare_documents(old, new, split, pairs)) for split in splits]
    reports = [(comparison, comparison.report()) for _, comparison in comparisons]
    documents = tuple(report for _, report in reports if report is not None)
    examples = make_examples(old, new, comparisons, most) if documents else ()
    split_blocks = dict.fromkeys((*old.splits("blocks"), *new.splits("blocks")))
    blocks = tuple(found for split in split_blocks if (found := compare_blocks(old, new, split)) is not None)
    recipe = compare_recipes(old.manifest.recipe, new.manifest.recipe)
    inputs = compare_inputs(inputs_old, inputs_new, pairs)
    model = compare_models(old, new)
    software = compare_software(old.manifest, new.manifest)
    causes = causes_of(recipe, inputs, model, software)
    pairs_of = tuple(
        (getattr(old.manifest, name), getattr(new.manifest, name))
        for name in ("content_fingerprint", "recipe_fingerprint")
    )
    identity = Identity(
        fingerprint=(old.fingerprint, new.fingerprint),
        content_fingerprint=pairs_of[0],
        recipe_fingerprint=pairs_of[1],
        manifest=tuple(
            name
            for name in old.manifest.__struct_fields__
            if getattr(old.manifest, name) != getattr(new.manifest, name)
        ),
        causes=causes,
        meaning=meaning_of(
            same_bytes=old.fingerprint == new.fingerprint,
            same_content=pairs_of[0][0] == pairs_of[0][1],
            same_recipe=pairs_of[1][0] == pairs_of[1][1],
            documents=documents,
            causes=causes,
        ),
    )
    return CacheDiff(
        old=old.folder,
        new=new.folder,
        identity=identity,
        recipe=recipe,
        inputs=inputs,
        model=model,
        documents=documents,
        examples=examples,
        numbers=compare_numbers(old, new, splits),
        blocks=blocks,
        software=software,
    )


def _compare_documents(old: Cache, new: Cache, split: str, pairs: dict[int, int]) -> DocumentComparison:
    inputs = InputPairs.of(pairs, old.manifest.inputs, new.manifest.inputs, split)
    before = Side.of(_documents(old, split), inputs.old, len(old.manifest.inputs))
    after = Side.of(_documents(new, split), inputs.new, len(new.manifest.inputs))
    return DocumentComparison(split, before, after, inputs)


def _documents(cache: Cache, split: str) -> DocumentShards:
    """None at all where the cache has no such split."""
    return cache.documents(split) if split in cache.splits("documents") else DocumentShards(cache.folder, ())


def _check_content(cache: Cache) -> None:
    if content_fingerprint(cache.folder, cache.manifest.shards) != cache.manifest.content_fingerprint:
        raise CheckError(
            f"{cache.folder} is damaged: its documents or blocks are not those its manifest was written for",
            hint=f"packer verify {cache.folder} names the files",
        )
