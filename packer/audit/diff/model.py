"""Tokenizer and template of two caches, from the files they keep."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from packer.audit.diff.recipe import changes
from packer.audit.diff.report import ModelDiff, TextDiff, VocabularyDiff, VocabularyEntry
from packer.build.kept import kept_files
from packer.build.provenance import model_digests
from packer.errors import CheckError
from packer.model import CONFIG_FILE, GENERATION_FILE, TEMPLATE_FILE, TOKENIZER_FILE, TOOL_TEMPLATE_FILE
from packer.store.cache import Cache
from packer.store.manifest import ModelRecord

_IDS = ("vocab_size", "pad_id", "eos_id", "stop_ids", "control_ids")

_FEW = 5
"""Entries of the vocabulary listed of each kind of change."""


def compare_models(old: Cache, new: Cache) -> ModelDiff | None:
    """What differs; None where all files and ids are the same.

    Raises:
        CheckError: a kept file is missing or damaged.

    """
    records = old.manifest.model, new.manifest.model
    ids = tuple(changes(_ids(records[0]), _ids(records[1]), names=_IDS))
    digests = tuple(changes(model_digests(records[0]), model_digests(records[1])))
    if not digests:
        return (
            ModelDiff(files=(), templates=(), vocabulary=None, added_tokens=(), settings=(), ids=ids) if ids else None
        )
    old_files, new_files = kept(old), kept(new)
    tokenizers = _json(old.folder, old_files, TOKENIZER_FILE), _json(new.folder, new_files, TOKENIZER_FILE)
    templates = [
        _text_diff(name, *(files.get(name, b"").decode() for files in (old_files, new_files)))
        for name in (TEMPLATE_FILE, TOOL_TEMPLATE_FILE)
    ]
    return ModelDiff(
        files=digests,
        templates=tuple(found for found in templates if found is not None),
        vocabulary=compare_vocabularies(*(definition.get("model") or {} for definition in tokenizers)),
        added_tokens=tuple(changes(*(_added(definition) for definition in tokenizers))),
        settings=(
            *changes(*(_parts(definition) for definition in tokenizers)),
            *(
                change
                for name in (CONFIG_FILE, GENERATION_FILE)
                for change in changes(
                    _settings(_json(old.folder, old_files, name), name, old_files),
                    _settings(_json(new.folder, new_files, name), name, new_files),
                )
            ),
        ),
        ids=ids,
    )


def kept(cache: Cache) -> dict[str, bytes]:
    """The files of a cache's tokenizer.

    Raises:
        CheckError: one is missing or damaged.
        StorageError: one cannot be read.

    """
    for file in cache.manifest.model.files:
        path = cache.folder / "model" / file.path
        if not path.is_file():
            raise CheckError(f"{path} is missing", hint=f"packer build -o {cache.folder} --repair makes it again")
    return kept_files(cache.folder, cache.manifest)


def _ids(record: ModelRecord) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in _IDS}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _json(folder: Path, files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """A kept file; its digest is right, so that only another program can have written what is no object."""
    try:
        value = json.loads(files.get(name, b"{}"))
    except ValueError as error:
        raise CheckError(f"{folder}: its {name} is not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def _text_diff(name: str, old: str, new: str) -> TextDiff | None:
    if old == new:
        return None
    # Only at newlines: a template may hold other characters that some programs take for the end of a line.
    lines = [line.rstrip("\n") for line in difflib.unified_diff(old.split("\n"), new.split("\n"), n=2)][2:]
    return TextDiff(
        name=name,
        num_added=sum(line.startswith("+") for line in lines),
        num_removed=sum(line.startswith("-") for line in lines),
        lines=tuple(lines),
    )


def _added(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Text of each added token → the rest of its entry."""
    return {
        token["content"]: {name: value for name, value in token.items() if name != "content"}
        for token in definition.get("added_tokens") or ()
    }


def _parts(definition: Mapping[str, Any]) -> dict[str, Any]:
    """All of a tokenizer.json but its vocabulary, its merges and its added tokens."""
    parts = {key: value for key, value in definition.items() if key not in {"added_tokens", "model"}}
    inner = {key: value for key, value in (definition.get("model") or {}).items() if key not in {"vocab", "merges"}}
    parts |= {f"model.{key}": value for key, value in inner.items()}
    return {f"{TOKENIZER_FILE} {key}": value for key, value in parts.items()}


def _settings(values: Mapping[str, Any], name: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Keys of a JSON file; a template in it that is the one in use is told of as a template."""
    in_use = files.get(TEMPLATE_FILE, b"").decode()
    return {f"{name} {key}": value for key, value in values.items() if (key, value) != ("chat_template", in_use)}


def compare_vocabularies(old: Mapping[str, Any], new: Mapping[str, Any]) -> VocabularyDiff | None:
    """Pieces, scores and merges under the key `model` of two tokenizer.json; None where none differ."""
    old_ids, new_ids = _vocabulary(old), _vocabulary(new)
    added = [piece for piece in new_ids if piece not in old_ids]
    removed = [piece for piece in old_ids if piece not in new_ids]
    moved = [piece for piece, number in old_ids.items() if new_ids.get(piece, number) != number]
    old_scores, new_scores = _scores(old), _scores(new)
    scores = sum(score != new_scores.get(piece, score) for piece, score in old_scores.items())
    old_merges, new_merges = _merges(old), _merges(new)
    if not (added or removed or moved or scores) and old_merges == new_merges:
        return None
    known_old, known_new = set(old_merges), set(new_merges)
    shown = (piece for group in (added, removed, moved) for piece in _first(group, old_ids, new_ids))
    return VocabularyDiff(
        old_size=len(old_ids),
        new_size=len(new_ids),
        num_added=len(added),
        num_removed=len(removed),
        num_moved=len(moved),
        num_scores=scores,
        entries=tuple(
            VocabularyEntry(piece=piece, old_id=old_ids.get(piece), new_id=new_ids.get(piece)) for piece in shown
        ),
        merges_added=len(known_new - known_old),
        merges_removed=len(known_old - known_new),
        first_merge=_first_difference(old_merges, new_merges),
    )


def _first(pieces: Sequence[str], old_ids: Mapping[str, int], new_ids: Mapping[str, int]) -> Iterator[str]:
    """The few with the smallest ids."""
    return islice(sorted(pieces, key=lambda piece: old_ids.get(piece, new_ids.get(piece, 0))), _FEW)


def _vocabulary(definition: Mapping[str, Any]) -> dict[str, int]:
    """Piece → id; a unigram vocabulary is a list, numbered as it stands."""
    entries = definition.get("vocab") or {}
    if isinstance(entries, dict):
        return entries
    return {piece: number for number, (piece, _) in enumerate(entries)}


def _scores(definition: Mapping[str, Any]) -> dict[str, float]:
    entries = definition.get("vocab") or {}
    return {} if isinstance(entries, dict) else dict(entries)


def _merges(definition: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Pairs in the order of their rank; some files write a pair as one text with a space."""
    return [
        tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge)
        for merge in definition.get("merges") or ()
    ]


def _first_difference(old: Sequence[object], new: Sequence[object]) -> int | None:
    if old == new:
        return None
    parted = (rank for rank, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    return next(parted, min(len(old), len(new)))
