"""Tokenizer and template of two caches, from the files they keep."""

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from packer.audit.diff.cache_diff import Change, TemplateChange
from packer.audit.diff.settings import changes
from packer.audit.text_runs import kept_model_files
from packer.errors import CheckError
from packer.model import CONFIG_FILE, GENERATION_FILE, TEMPLATE_FILE, TOKENIZER_FILE, TOOL_TEMPLATE_FILE
from packer.pipeline.identity import model_digests
from packer.store.cache import Cache
from packer.store.manifest import ModelRecord

Files = Mapping[str, bytes]

_IDS = ("vocab_size", "pad_id", "eos_id", "stop_ids", "control_ids")


def compare_models(old: Cache, new: Cache) -> tuple[list[Change], list[TemplateChange]]:
    """What differs of files, settings and ids; and of the chat templates.

    Raises:
        CheckError: a kept file is missing or damaged.

    """
    before, after = (cache.manifest.model for cache in (old, new))
    ids = changes(_ids(before), _ids(after), names=_IDS)
    files = changes(model_digests(before), model_digests(after))
    if not files:
        return ids, []
    kept = [kept_model_files(cache.folder, cache.manifest) for cache in (old, new)]
    return [*files, *changes(*map(_settings, kept)), *ids], _compare_templates(*kept)


def _compare_templates(old: Files, new: Files) -> list[TemplateChange]:
    found = []
    for name in (TEMPLATE_FILE, TOOL_TEMPLATE_FILE):
        # Only at newlines: a template may hold other characters that some programs take for the end of a line.
        before, after = (files.get(name, b"").decode().split("\n") for files in (old, new))
        if before != after:
            lines = [line.rstrip("\n") for line in difflib.unified_diff(before, after, n=2)][2:]
            found.append(TemplateChange(name=name, lines=tuple(lines)))
    return found


def _ids(record: ModelRecord) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in _IDS}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _settings(files: Files) -> dict[str, Any]:
    """What the JSON files say, long lists as digests, but for a template that is reported as a template."""
    definition = _json(files, TOKENIZER_FILE)
    model = definition.pop("model", None) or {}
    model |= {name: _digest(model[name]) for name in ("vocab", "merges") if model.get(name) is not None}
    found = {f"added token {token.pop('content')}": token for token in definition.pop("added_tokens", None) or []}
    found |= {f"{TOKENIZER_FILE} {key}": value for key, value in definition.items()}
    found |= {f"{TOKENIZER_FILE} model.{key}": value for key, value in model.items()}
    in_use = files.get(TEMPLATE_FILE, b"").decode()
    for name in (CONFIG_FILE, GENERATION_FILE):
        values = _json(files, name).items()
        found |= {f"{name} {key}": value for key, value in values if (key, value) != ("chat_template", in_use)}
    return found


def _digest(values: Sequence[Any] | Mapping[str, Any]) -> str:
    """Stands for a vocabulary or a list that is too long to show."""
    return f"{len(values):,} entries, sha256 {hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]}"


def _json(files: Files, name: str) -> dict[str, Any]:
    """A kept file; its digest is right, so that only another program can have written what is no object."""
    try:
        value = json.loads(files.get(name, b"{}"))
    except ValueError as error:
        raise CheckError(f"the kept {name} is not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}
