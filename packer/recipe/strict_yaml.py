"""Read hand-written YAML and JSON strictly: no duplicate keys, no implicit dates, no alias bombs.

Also translates msgspec's validation errors into messages in terms of the recipe's keys.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import yaml

from packer.errors import RecipeError, did_you_mean, near, near_paths
from packer.host.files import read_regular_bytes
from packer.names import in_words

_PLACE = re.compile(r"\[[^]]*\]")
"""The place of an entry in a list: `[...]`."""

_MOST_REPEATED = 1_000_000


def load_mapping(path: Path, *, what: str = "", hint: str | None = None) -> dict[str, Any]:
    """Read the mapping in a YAML or JSON file as plain values; an empty file gives an empty mapping.

    Errors put `what` before the path; `hint` says what to do if the file does not exist.
    """
    try:
        text = read_regular_bytes(path).decode()
    except FileNotFoundError:
        raise RecipeError(f"{what}{path}: no such file", hint=did_you_mean(near_paths(path), hint or "")) from None
    except IsADirectoryError:
        hint = did_you_mean(map(str, sorted(path.glob("*.y*ml"))), hint or "")
        raise RecipeError(f"{what}{path}: is a folder, not a file", hint=hint) from None
    except OSError as error:
        raise RecipeError(f"{what}{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{what}{path}: {error}") from error
    values = _parse_json(text) if path.suffix == ".json" else None
    values = parse_yaml(text, str(path)) if values is None else values
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise RecipeError(f"{what}{path}: expected a mapping of keys, found {type(values).__name__}")
    return values


def as_yaml(values: Mapping[str, Any]) -> str:
    """Format plain values as a recipe's YAML, in their order; innermost mappings and lists get one line each."""
    text: str = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    return text


def parse_yaml(text: str, where: str) -> Any:
    """Parse a YAML value."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        raise _no_yaml(error, text, where) from None
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        # ValueError: a number of thousands of digits, a day that is in no calendar.
        raise RecipeError(f"{where}: not valid YAML: {' '.join(str(error).split())}", hint=_AS_YAML) from None
    except RecipeError as error:
        raise RecipeError(f"{where}: {error.message}") from None


_AS_YAML = "text with : # [ { or * in it needs quotes, brackets are closed, and what belongs together is indented alike"


def _no_yaml(error: yaml.MarkedYAMLError, text: str, where: str) -> RecipeError:
    """Return the error for text that is no YAML, with the line at which it ends to be."""
    line = 0 if error.problem_mark is None else error.problem_mark.line
    shown = [*text.splitlines(), ""][line].strip()
    return RecipeError(f"{where}: not valid YAML: line {line + 1}: {error.problem}: {shown}", hint=_AS_YAML)


def _num_values(node: yaml.Node, known: dict[int, int]) -> int:
    """Count the values of a node, aliased ones each time; a node that contains itself counts once."""
    found = known.get(id(node))
    if found is None:
        known[id(node)] = found = 1
        if isinstance(node, yaml.CollectionNode):
            parts = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
            found += sum(_num_values(part, known) for part in parts)
            known[id(node)] = found
    return found


class _StrictLoader(yaml.SafeLoader):
    """YAML without duplicate keys and without dates: ``date: 2026-01-01`` stays a string.

    Aliases are allowed, but may expand to at most `_MOST_REPEATED` values: a few lines can expand to billions.
    """

    def compose_document(self) -> yaml.Node | None:
        node: yaml.Node | None = super().compose_document()
        if node is not None and _num_values(node, {}) > _MOST_REPEATED:
            raise RecipeError(f"its aliases (*name) stand for too many values, more than {_MOST_REPEATED:,}")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - yaml's signature
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue  # `<<: *other` brings the keys of another mapping, which this one's own may cover
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise RecipeError(f"duplicate key '{key}' in line {key_node.start_mark.line + 1}")
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _parse_json(text: str) -> Any:
    """Parse JSON, which YAML would refuse if it is indented with tabs; None if the text is not JSON."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            raise ValueError("a key twice: YAML says which")
        return values

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return None


def explain(message: str, recipe: type[msgspec.Struct], every_key: str) -> tuple[str, str]:
    """Return msgspec's message with the recipe's key first, and a hint: `every_key` if none is better."""
    text, separator, path = in_words(message).partition(" - at `$")
    key = path.rstrip("`").lstrip(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", text):
        group = kind_of(recipe, key)
        keys, above = group.__struct_encode_fields__, f"{key}." * bool(key)
        below = [f"{above}{place}" for place in places_of(group, unknown[1])]
        meant = below or [*places_of(recipe, unknown[1])] or near(unknown[1], keys)
        hint = did_you_mean(meant, "keys here: " + ", ".join(keys))
        return f"unknown key '{above}{unknown[1]}'", hint
    if invalid := re.fullmatch(r"Invalid enum value (.*)", text):
        values = [str(value) for value in get_args(kind_of(recipe, key))]
        hint = did_you_mean(near(invalid[1].strip("'"), values), every_key)
        return f"{key}: expected {' | '.join(values)}, found {invalid[1]}", hint
    hint = every_key  # or how a value of another type is written
    if re.match(r"Expected `array( \| null)?`, got", text):
        hint = f"write a list: {key}: [...]"
    elif text.startswith("Expected `int`, got `str`"):
        hint = "a whole number, without quotes"
    elif text.startswith("Expected `object`") and hasattr(group := kind_of(recipe, key), "__struct_encode_fields__"):
        required = [f"write {{{each.encode_name}: …}}; " for each in msgspec.structs.fields(group) if each.required]
        hint = f"{''.join(required[:1])}its keys are {', '.join(group.__struct_encode_fields__)}"
    return f"{key}: {text[0].lower()}{text[1:]}" if separator and key else text, hint


def places_of(recipe: type[msgspec.Struct], name: str) -> Iterator[str]:
    """Yield the keys of this name one level down: `pack.block_len` for `block_len`."""
    for group in recipe.__struct_encode_fields__:
        kind = kind_of(recipe, group)
        if name in getattr(kind, "__struct_encode_fields__", ()):
            yield f"{group}.{name}"


def kind_of(recipe: type[msgspec.Struct], key: str) -> Any:
    """The struct or the words that a key may have: of `pack.mode` isolated, eos, stream and none.

    Raises:
        KeyError, AttributeError: there is no such key.
    """
    kind: Any = recipe
    for name in filter(None, re.sub(_PLACE, "", key).split(".")):
        field = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))[name]
        kind = get_type_hints(kind)[field]
        while not isinstance(kind, type) or get_origin(kind) is not None:
            if get_origin(kind) is Literal:
                break
            kind = get_args(kind)[-1 if get_origin(kind) is dict else 0]  # X | None, tuple[X, ...], dict[str, X]
    return kind
