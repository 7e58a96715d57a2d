"""What msgspec says of a recipe, in words: the key first, the values it may have, the key that was meant."""

import difflib
import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

from packer.names import in_words


def explain(message: str, root: type, *, otherwise: str) -> tuple[str, str]:
    """The message and the hint for what msgspec says, ``… - at `$.pack.block_len```.

    Args:
        message: of msgspec.
        root: the struct that was asked for.
        otherwise: the hint where there is no better one.

    """
    text, separator, path = in_words(message).partition(" - at `$")
    key = path.rstrip("`").lstrip(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", text):
        fields = _type_at(root, key).__struct_fields__
        close = difflib.get_close_matches(unknown[1], fields, n=1)
        hint = f"did you mean '{close[0]}'?" if close else "keys here: " + ", ".join(fields)
        return f"unknown key '{f'{key}.' if key else ''}{unknown[1]}'", hint
    if invalid := re.fullmatch(r"Invalid enum value (.*)", text):
        return f"{key}: expected {' | '.join(map(str, get_args(_type_at(root, key))))}, found {invalid[1]}", otherwise
    return f"{key}: {text[0].lower()}{text[1:]}" if separator and key else text, otherwise


def _type_at(root: type, key: str) -> Any:
    """The struct, or the `Literal`, that a key such as `sources[0].schema` holds."""
    kind: Any = root
    for name in filter(None, re.sub(r"\[[^]]*\]", "", key).split(".")):
        kind = get_type_hints(kind)[name]
        while not isinstance(kind, type) and get_origin(kind) is not Literal:
            # X | None and tuple[X, ...]: what is of interest comes first. dict[str, X]: it comes last.
            kind = get_args(kind)[-1 if get_origin(kind) is dict else 0]
    return kind
