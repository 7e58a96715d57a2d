"""What `packer explain` and the reference say of a recipe's keys: two lists that ship beside this module."""

from pathlib import Path

from packer.recipe.row_schemas import ROW_SCHEMAS
from packer.recipe.strict_yaml import parse_yaml


def recipe_keys() -> str:
    """Return a YAML recipe with every key, its default, and its possible values in a comment."""
    text = Path(__file__).with_name("recipe_keys.yaml").read_text("utf-8")
    return text.replace("ROW_SCHEMAS", " | ".join(ROW_SCHEMAS))


def key_values() -> dict[str, dict[str, str]]:
    """Return what the values of keys train and cost; `EXAMPLE` is a value of a key that takes any."""
    name = "key_values.yaml"
    found: dict[str, dict[str, str]] = parse_yaml(Path(__file__).with_name(name).read_text("utf-8"), name)
    return found
