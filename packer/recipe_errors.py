"""What msgspec says of a recipe, in the words of its keys."""

import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from packer.names import in_words


def explain(message: str, recipe: type[msgspec.Struct], every_key: str) -> tuple[str, str]:
    """What is wrong, ``… - at `$.pack.block_len```, with the key first; and a hint.

    Args:
        message: of msgspec.
        recipe: the type that was asked for.
        every_key: the hint where there is no better one.

    """
    text, separator, path = in_words(message).partition(" - at `$")
    key = path.rstrip("`").lstrip(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", text):
        import difflib  # noqa: PLC0415 - only on this path

        keys = _kind_of(recipe, key).__struct_encode_fields__
        close = difflib.get_close_matches(unknown[1], keys, n=1)
        hint = f"did you mean '{close[0]}'?" if close else "keys here: " + ", ".join(keys)
        return f"unknown key '{f'{key}.' if key else ''}{unknown[1]}'", hint
    if invalid := re.fullmatch(r"Invalid enum value (.*)", text):
        values = " | ".join(str(value) for value in get_args(_kind_of(recipe, key)))
        return f"{key}: expected {values}, found {invalid[1]}", every_key
    return f"{key}: {text[0].lower()}{text[1:]}" if separator and key else text, every_key


def _kind_of(recipe: type[msgspec.Struct], key: str) -> Any:
    """The struct or the words that a key may have: of `pack.mode` isolated, eos, stream and none."""
    kind: Any = recipe
    for name in filter(None, re.sub(r"\[[^]]*\]", "", key).split(".")):
        field = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))[name]
        kind = get_type_hints(kind)[field]
        while not isinstance(kind, type) or get_origin(kind) is not None:
            if get_origin(kind) is Literal:
                break
            kind = get_args(kind)[-1 if get_origin(kind) is dict else 0]  # X | None, tuple[X, ...], dict[str, X]
    return kind
