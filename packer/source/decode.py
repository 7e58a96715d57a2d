"""From the bytes of a row to a JSON value, or to the reason why not."""

import json
import re
from typing import Any

import msgspec

MAX_DEPTH = 256
"""Arrays and objects inside one another. A limit of our own: Python's recursion limit depends on who is calling."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_decode = msgspec.json.Decoder().decode


class Refused(Exception):  # noqa: N818 - not an error of the program but a row's fate
    """The row cannot be a sample; becomes a :class:`~packer.batches.Rejection`."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


def decode_json(data: bytes) -> Any:
    """Decode one strict JSON value (RFC 8259: no NaN, no bare control characters, no halves of surrogate pairs).

    Raises:
        Refused: `not_utf8`, `not_json`, or `wrong_type` for a number that no float can hold.

    """
    try:
        value = _decode(data)
    except msgspec.ValidationError:
        raise Refused("wrong_type", "a number is out of range") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(data, str(error)) from None
    # Nothing short or with few brackets can be deep; the rest is looked at closely.
    if len(data) > 2 * MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        raise _too_deep()
    return value


def _too_deep() -> Refused:
    return Refused("not_json", f"nested deeper than {MAX_DEPTH} levels")


def _refusal(data: bytes, message: str) -> Refused:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return Refused("not_utf8", f"invalid UTF-8 at byte {error.start}")
    if _depth(data) > MAX_DEPTH:
        return _too_deep()
    if _SURROGATE.search(data) and _is_lenient_json(data):
        return Refused("not_utf8", "an escape stands for half of a surrogate pair")
    malformed = re.search(r"malformed: (.*) \(byte (\d+)\)", message)
    if malformed:
        return Refused("not_json", f"{malformed[1]} near byte {malformed[2]}")
    return Refused("not_json", f"ends too early, at byte {len(data)}")


def _is_lenient_json(data: bytes) -> bool:
    """Whether Python's own decoder, which lets halves of surrogate pairs through, can read it."""
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _depth(data: bytes) -> int:
    """How deep brackets are nested outside of strings."""
    depth = deepest = 0
    for match in _STRUCTURE.finditer(data):
        first = data[match.start()]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in b"]}":
            depth -= 1
    return deepest
