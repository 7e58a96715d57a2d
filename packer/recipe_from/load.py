"""Reads the file that was named: a regular one of a plausible size, with values that a recipe and a screen can say."""

import os
from pathlib import Path
from typing import Any

from packer.errors import InputError, RecipeError
from packer.recipe import parse_mapping
from packer.tokenizer_folder import read_regular

EXPECTED = "a configuration of axolotl (datasets:), one of LLaMA-Factory (dataset:), or a dataset_info.json"

MAX_CONFIG_BYTES = 16 * 2**20
"""Of a configuration. A list of ten thousand data sets has some two million."""

_MOST_VALUES = 1_000_000
"""More come of a value that holds itself, or of anchors that repeat each other."""

_DEEPEST = 100
_MOST_BITS = 1024


def load_config(path: Path) -> dict[str, Any]:
    """The keys of a YAML or JSON file, as plain values.

    Raises:
        RecipeError: no such file, no regular one, too large, not YAML or JSON, no mapping; or a value that a recipe
            has no words for.

    """
    hint = f"FILE is {EXPECTED}"
    if not os.path.lexists(path):
        raise RecipeError(f"{path}: no such file", hint=hint)
    try:
        content = read_regular(path, max_bytes=MAX_CONFIG_BYTES, what=f"configuration {path}")
        text = content.decode("utf-8")
    except InputError as error:
        raise RecipeError(error.message, hint=hint) from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: {error}", hint=hint) from None
    values = parse_mapping(text, path, hint=hint)
    _refuse_unspeakable(values, path)
    return values


def _refuse_unspeakable(values: dict[str, Any], path: Path) -> None:
    """Refuse values that hold themselves, and texts and numbers that cannot be written down."""
    left: list[tuple[Any, int]] = [(values, 0)]
    num_values = 0
    while left:
        value, depth = left.pop()
        num_values += 1
        if num_values + len(left) > _MOST_VALUES or depth > _DEEPEST:
            raise RecipeError(f"{path}: a value holds itself, or is nested too deeply, or there are too many")
        if isinstance(value, dict):
            left += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, list | tuple | set):
            left += [(part, depth + 1) for part in value]
        elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise RecipeError(f"{path}: a number has more than {_MOST_BITS} bits")
        elif isinstance(value, str) and not _is_text(value):
            raise RecipeError(f"{path}: {ascii(value)[:80]} is not UTF-8: it has half a surrogate")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
