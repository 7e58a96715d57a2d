"""Values of JSON: decodes them from the bytes of a row or a text in it, types them, and tells flags and numbers."""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import numpy as np

T = TypeVar("T")

MAX_DEPTH = 256
"""Maximum nesting depth of arrays and objects. It is fixed because Python's recursion limit depends on the caller's
stack."""

_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string, also one that the data ends in: else a search would begin anew at every quote that is escaped in it."""

_BRACKETS = bytes.maketrans(b"[]{}", b"()()")
_NO_BRACKETS = bytes(set(range(256)) - {*b"[]{}"})

_DECODER = msgspec.json.Decoder()


class Refused(Exception):  # noqa: N818 - not a program error
    """The row cannot be a sample; becomes a :class:`~packer.batches.Rejection`."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


def decode_json(data: bytes) -> Any:
    """Decode one strict JSON value (RFC 8259: no NaN, no bare control characters, no lone surrogates).

    Of a key that an object has twice, the last value counts, as in Python's json.

    Raises:
        Refused: `not_utf8`, `not_json`, or `wrong_type` for a number too large for a float.
    """
    try:
        value = _DECODER.decode(data)
    except msgspec.ValidationError:
        raise Refused("wrong_type", "a number is out of range") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _decode_error(data, str(error)) from None
    if _is_deep(data):
        raise Refused("not_json", _TOO_DEEP)
    return value


def decode_lines(data: bytes) -> list[Any] | None:
    """Return the values of ended lines of JSON as :func:`decode_json` does; None unless each line is one.

    They are not decoded by the library's call for lines, which also takes two values in a line, and one in two.
    """
    lines = data.split(b"\n")[:-1]
    try:
        values = [*map(_DECODER.decode, lines)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # Of all that open, one is each object's own; and ``[`` and ``{`` differ in a bit that both may have.
    num_inner = np.count_nonzero(np.frombuffer(data, np.uint8) | 0x20 == ord("{")) - sum(
        [type(value) is dict for value in values]
    )
    return None if num_inner >= MAX_DEPTH and any(map(_is_deep, lines)) else values


def decoded_json(text: str) -> Any:
    """Return the object or list whose JSON a text is; None if it is not that."""
    text = text.strip()
    if not (text.startswith(("{", "[")) and text.endswith(("}", "]"))):
        return None
    try:
        value = decode_json(text.encode())
    except (Refused, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict | list) else None


def _decode_error(data: bytes, message: str) -> Refused:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return Refused("not_utf8", f"invalid UTF-8 at byte {error.start}")
    if _is_deep(data):
        return Refused("not_json", _TOO_DEEP)
    malformed = re.search(r"malformed: (.*) \(byte (\d+)\)", message)
    what = f"{malformed[1]} near byte {malformed[2]}" if malformed else f"ends too early, at byte {len(data)}"
    cut = "; an escape may stand for half of a surrogate pair" if _SURROGATE.search(data) else ""
    return Refused("not_json", what + cut)


def _is_deep(data: bytes) -> bool:
    """Whether brackets outside of strings are nested deeper than MAX_DEPTH."""
    # Short data and data with few brackets cannot be deep, so the full check is rarely needed.
    if len(data) <= MAX_DEPTH or data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRING.sub(b"", data).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):  # remove the innermost pairs, level by level
        if b"()" not in brackets:  # only unclosed ones are left
            return brackets.count(b"(") > MAX_DEPTH
        brackets = brackets.replace(b"()", b"")
    return brackets != b""


def nested_json(text: str, *, where: str, code: str | None = None) -> Any:
    """Decode JSON that is stored in a string of a row; `code` is that of all rejections but `not_utf8`."""
    try:
        return decode_json(text.encode())
    except Refused as refused:
        code = refused.code if code is None or refused.code == "not_utf8" else code
        raise Refused(code, f"the JSON in {where}: {refused.reason}") from None


_MESSAGES_START = re.compile(r"\s*\[\s*\{")
_NAMED_ROLE = re.compile(r"""(["'])(?:role|from)\1\s*:\s*(["'])(?:system|user|human|assistant|gpt)\2""")
_PYTHON_LIST_START = re.compile(r"\s*\[\s*(?:\{\s*)?'")
_PYTHON_LIST = "it is a list as Python prints it, in a cell that `to_csv` wrote for example; write it with json.dumps"


def parse_messages(text: str, field: str) -> Any:
    """Return the messages whose JSON a text contains, or the text if it does not begin as messages do.

    What begins so and is not their JSON is refused: Python printed them, they are cut off, or something follows them.
    As a text they would be trained letter by letter.
    """
    if not _MESSAGES_START.match(text):
        return text
    try:
        value = decode_json(text.encode())
    except Refused as refused:
        if refused.code != "not_json" or not _NAMED_ROLE.search(text):
            return text
        why = _PYTHON_LIST if _PYTHON_LIST_START.match(text) else refused.reason
        raise Refused("not_json", f"the messages in field `{field}`: {why}") from None
    messages = all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in value)
    return value if messages else text


def parse_cell_json(text: str, field: str) -> Any:
    """Decode a field that is given as JSON text, as tables do; None if it is blank."""
    if not text.strip():
        return None
    try:
        return nested_json(text, where=f"field `{field}`")
    except Refused as refused:
        if refused.code == "not_json" and _PYTHON_LIST_START.match(text):
            raise Refused("not_json", f"the JSON in field `{field}`: {_PYTHON_LIST}") from None
        raise


def typed(value: Any, shape: type[T]) -> T:
    """Convert the value to a struct of type `shape`, without coercions."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise Refused("wrong_type", type_reason(str(error))) from None


def type_reason(message: str) -> str:
    """Turn an error message of msgspec into a reason.

    Example:
        >>> type_reason("Expected `str`, got `int` - at `$.messages[3].content`")
        'expected `str`, got `int` at $.messages[3].content'
    """
    text, separator, path = message.partition(" - at `")
    missing = re.fullmatch(r"Object missing required field `(.*)`", text)
    text = f"no field `{missing[1]}`" if missing else text[0].lower() + text[1:]
    return f"{text} at {path.rstrip('`')}" if separator else text


def type_name(value: Any) -> str:
    """Return the JSON type of a value, spelled as msgspec spells it."""
    names = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str", list: "array", dict: "object"}
    return names[type(value)]


def coalesce_aliases(fields: Mapping[str, T], *, where: str) -> T | None:
    """Return the value of a field that has several names; a value that is not empty is preferred."""
    present = [value for value in fields.values() if value is not None]
    if len(present) < 2:
        return present[0] if present else None
    nonempty = [value for value in present if value]
    if any(value != nonempty[0] for value in nonempty):
        raise Refused("wrong_type", f"{' and '.join(f'`{name}`' for name in fields)} say different things at {where}")
    return next(iter(nonempty or present), None)


TRAIN_FIELDS = ("train", "training", "trainable", "loss", "loss_mask", "masked")
"""Fields that decide whether a message is trained: packer's and those of OpenAI's dialects, axolotl, tinker, ms-swift,
a mask, and torchtune's, which says the contrary."""

WEIGHT_FIELDS = ("weight", "loss_weight")
"""Fields that say how much a message, or a row, is trained: 0 or 1."""

YES = ("true", "1", "1.0", "yes")
NO = ("false", "0", "0.0", "-1", "-1.0", "no")


def as_flag(value: Any) -> bool | None:
    """Return what a value says if it is yes or no: a boolean, 1, 0 or -1, or a text that says so.

    Example:
        >>> as_flag(1), as_flag("no"), as_flag(0.5), as_flag("A")
        (True, False, None, None)
    """
    said = str(value).lower() if isinstance(value, bool | int | float | str) else ""
    return said in YES if said in (*YES, *NO) else None


def as_number(value: Any) -> float:
    """Return a number, also of a text, since CSV has only texts; NaN for other values.

    Example:
        >>> as_number("-0.5"), as_number(True)
        (-0.5, nan)
    """
    with suppress(OverflowError, TypeError, ValueError):
        return math.nan if isinstance(value, bool) else float(value)
    return math.nan


def as_weight(value: Any) -> float:
    """Return how much a value says that something is trained: a number, or 1 and 0 for yes and no; NaN for others."""
    flag = as_flag(value)
    return as_number(value) if flag is None else float(flag)
