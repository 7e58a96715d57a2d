"""Decodes the bytes of a row to a JSON value, or explains why they are not one."""

import re
from typing import Any

import msgspec
import numpy as np

MAX_DEPTH = 256
"""Maximum nesting depth of arrays and objects. It is fixed because Python's recursion limit depends on the caller's
stack."""

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
        raise _too_deep_error()
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


def _too_deep_error() -> Refused:
    return Refused("not_json", f"nested deeper than {MAX_DEPTH} levels")


def _decode_error(data: bytes, message: str) -> Refused:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return Refused("not_utf8", f"invalid UTF-8 at byte {error.start}")
    if _is_deep(data):
        return _too_deep_error()
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
