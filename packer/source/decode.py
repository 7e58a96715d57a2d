"""Decodes the bytes of a row to a JSON value, or explains why they are not one."""

import json
import re
from collections import Counter
from typing import Any, NoReturn

import msgspec

MAX_DEPTH = 256
"""Maximum nesting depth of arrays and objects. It is fixed because Python's recursion limit depends on the caller's
stack."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string, also one that the data ends in: else a search would begin anew at every quote that is escaped in it."""

_ESCAPED_COLON = b"\\u003"

_TINY = re.compile(rb"[eE]-0*[1-9][0-9]{2}")
"""How a number ends that may be too small for a float; so may a text."""

_SHOWN_KEY = 40
"""Maximum length of a key in a reason, in characters."""

_BRACKETS = bytes.maketrans(b"[]{}", b"()()")
_NO_BRACKETS = bytes(set(range(256)) - {*b"[]{}"})

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Refused(Exception):  # noqa: N818 - not a program error
    """The row cannot be a sample; becomes a :class:`~packer.batches.Rejection`."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


def decode_json(data: bytes) -> Any:
    """Decode one strict JSON value (RFC 8259: no NaN, no bare control characters, no lone surrogates).

    A duplicate key in an object is refused: decoders silently differ in which value they keep.

    Raises:
        Refused: `not_utf8`, `not_json`, `duplicate_key`, or `wrong_type` for a number out of the range of floats, which
            would be read as infinite, or as 0 though it is not.
    """
    try:
        value = _decode(data)
    except msgspec.ValidationError:
        raise Refused("wrong_type", "a number is out of range") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _decode_error(data, str(error)) from None
    if _is_deep(data):
        raise _too_deep_error()
    if (b"e-" in data or b"E-" in data) and _is_below_floats(data):
        raise Refused("wrong_type", "a number is out of range")
    repeated = _repeated_key(data, value)
    if repeated is not None:
        raise Refused("duplicate_key", f"an object has the key `{repeated[:_SHOWN_KEY]}` twice")
    return value


def _is_below_floats(data: bytes) -> bool:
    """Whether a number other than 0 is read as 0."""
    if not _TINY.search(data):
        return False
    numbers: list[str] = []
    json.loads(data, parse_float=numbers.append)
    return any(not float(number) and re.match(r"-?[0.]*[1-9]", number) for number in numbers)


def _repeated_key(data: bytes, value: Any) -> str | None:
    """Return the first key that one object of the text has twice, innermost objects first; None if there is none.

    Decoding drops duplicates together with their colons. So if the value encodes to as many colons as the text has, no
    key was dropped. That holds unless the text contains an escaped colon, which is encoded without the escape.
    """
    if _ESCAPED_COLON not in data and data.count(b":") == _encode(value).count(b":"):
        return None
    repeated: list[str] = []

    def collect_repeated(pairs: list[tuple[str, Any]]) -> None:
        repeated.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)

    json.loads(data, object_pairs_hook=collect_repeated)
    return repeated[0] if repeated else None


def _too_deep_error() -> Refused:
    return Refused("not_json", f"nested deeper than {MAX_DEPTH} levels")


def _decode_error(data: bytes, message: str) -> Refused:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return Refused("not_utf8", f"invalid UTF-8 at byte {error.start}")
    if _is_deep(data):
        return _too_deep_error()
    if _SURROGATE.search(data) and _is_lenient_json(data):
        return Refused("not_utf8", "an escape stands for half of a surrogate pair")
    malformed = re.search(r"malformed: (.*) \(byte (\d+)\)", message)
    if malformed:
        return Refused("not_json", f"{malformed[1]} near byte {malformed[2]}")
    return Refused("not_json", f"ends too early, at byte {len(data)}")


def _is_lenient_json(data: bytes) -> bool:
    """Whether Python's own decoder, which accepts lone surrogates, reads it; NaN and Infinity are still refused."""
    try:
        json.loads(data, parse_constant=_reject_constant)
    except ValueError:
        return False
    return True


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


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
