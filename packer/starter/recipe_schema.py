"""The JSON schema of a recipe, for editors that complete and check YAML."""

import re
from typing import Any

import msgspec

from packer.named_templates import NAMED_TEMPLATES
from packer.recipe.recipe import SCHEMA_CHOICES, Recipe, recipe_keys

_KEY = re.compile(r"\s*(?:- )?(\w+):.*?\s# (.*)")
_GROUP = re.compile(r"(\w+):\s*\Z")
_SIZES = {"Recipe": ("partition_bytes", "shard_bytes"), "Rows": ("max_bytes", "max_render_bytes")}


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a recipe file.

    Sizes may be written as `64MiB`, and each key has a description.
    """
    # Python's \A and \Z in a pattern are ^ and $ in JSON Schema.
    written = msgspec.json.encode(msgspec.json.schema(Recipe)).replace(rb"\\A", b"^").replace(rb"\\Z", b"$")
    schema = msgspec.json.decode(written)
    parts = schema["$defs"]
    for part in parts.values():
        part.pop("description", None)
    for name, keys in _SIZES.items():
        for key in keys:
            number = parts[name]["properties"][key]
            size = {"type": "string", "pattern": r"^\s*[0-9]+\s*(([KkMmGg][Ii]?)?[Bb])?\s*$"}
            parts[name]["properties"][key] = {"anyOf": [number, size], "default": number.pop("default")}
    parts["Source"]["properties"]["schema"] = {"enum": [*SCHEMA_CHOICES], "default": "auto"}
    parts["Template"]["properties"]["name"] = {"enum": [*NAMED_TEMPLATES, None], "default": None}
    for group, key, text in _descriptions():
        name = {"sources": "Source"}.get(group, group.capitalize() or "Recipe")
        parts[name]["properties"][key]["description"] = text
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "packer recipe", **schema}


def _descriptions() -> list[tuple[str, str, str]]:
    """Return group (empty at the top level), key and comment of every key."""
    found, group = [], ""
    for line in recipe_keys().splitlines():
        opened = _GROUP.match(line)
        if opened or not line.startswith(" "):
            group = opened[1] if opened else ""
        key = _KEY.match(line)
        if key and not line.startswith("#"):
            found.append((group, key[1], key[2]))
    return found
