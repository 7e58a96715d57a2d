"""Rows of a file as a preview shows them under a template, what it says of them, and what is trained."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import twins

from packer.audit.preview import Preview, preview
from packer.recipe.recipe import make_recipe


def shown_for(folder: Path, template: str, rows: Sequence[Any], *overrides: str, **source: Any) -> Preview:
    """The preview of rows by a recipe with these settings and keys of their source."""
    model = twins.byte_level(folder / "model", template=template)
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return preview(make_recipe({"sources": [{"path": str(path), **source}], "tokenizer": str(model)}, overrides))


def hint_for(seen: Preview) -> str:
    """What a build of these rows would ask, or else the hint of the first row."""
    hint = seen.hint or seen.rows[0].hint
    assert hint is not None
    return hint


def learned(seen: Preview) -> list[str]:
    """What is trained of the first row."""
    runs = [run for document in seen.rows[0].view.documents for run in document.runs]
    return [run.text for run in runs if run.message is not None]


def whole(seen: Preview) -> str:
    """The text of the first row, as the template writes it."""
    return "".join(run.text for document in seen.rows[0].view.documents for run in document.runs)
