"""From the bytes of a row to a JSON value, or to the reason why not."""

import json
import re
from typing import Any, NoReturn

import msgspec

MAX_DEPTH = 256
"""Arrays and objects inside one another. A limit of our own: Python's recursion limit depends on who is calling."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"(?:[ \t\r\n]*+(:))?', re.DOTALL)

_SHOWN_KEY = 40
"""Characters of a key that a reason holds."""

_BRACKETS = bytes.maketrans(b"[]{}", b"()()")
_NO_BRACKETS = bytes(set(range(256)) - {*b"[]{}"})

_CONTAINERS = frozenset({dict, list})

_decode = msgspec.json.Decoder().decode


class Refused(Exception):  # noqa: N818 - not an error of the program but a row's fate
    """The row cannot be a sample; becomes a :class:`~packer.batches.Rejection`."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


def decode_json(data: bytes) -> Any:
    """Decode one strict JSON value (RFC 8259: no NaN, no bare control characters, no halves of surrogate pairs).

    A key that an object has twice is refused: decoders differ in which value they take, and none says so.

    Raises:
        Refused: `not_utf8`, `not_json`, `duplicate_key`, or `wrong_type` for a number that no float can hold.

    """
    try:
        value = _decode(data)
    except msgspec.ValidationError:
        raise Refused("wrong_type", "a number is out of range") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(data, str(error)) from None
    if _is_deep(data):
        raise _too_deep()
    if _repeats_keys(data, value):
        raise Refused("duplicate_key", f"an object has the key {_repeated_key(data)} twice")
    return value


def _repeats_keys(data: bytes, value: Any) -> bool:
    r"""Whether the text has more keys than the value.

    Where there are no more colons than keys, none is there twice. Else: a key is a string with a colon behind it, and
    within strings ``":`` can only stand as ``\":``. So counting two short patterns tells most rows at the speed of
    memory; where white space or a backslash stands at a key, its strings are taken one by one.
    """
    num_keys = _num_keys(value)
    if data.count(b":") == num_keys:
        return False
    num_colons = data.count(b'":') - data.count(b'\\":')
    # In a row, where a loop over the five would take longer than all the rest.
    rare = b" :" in data or b"\t:" in data or b"\r:" in data or b"\n:" in data or b'\\\\":' in data
    if num_colons == num_keys and not rare:
        return False
    return _STRING.findall(data).count(b":") != num_keys


def _num_keys(value: Any) -> int:
    if type(value) is dict and _CONTAINERS.isdisjoint(map(type, value.values())):
        return len(value)
    number = 0
    left = [value]
    while left:
        value = left.pop()
        if type(value) is dict:
            number += len(value)
            left += [item for item in value.values() if type(item) is dict or type(item) is list]
        elif type(value) is list and not _CONTAINERS.isdisjoint(map(type, value)):  # lists of ids are passed over fast
            left += [item for item in value if type(item) is dict or type(item) is list]
    return number


def _repeated_key(data: bytes) -> str:
    """The first key, from the inside out, that its object has twice, quoted and shortened."""

    def first_repeated(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                repeated.append(key)
            seen.add(key)

    repeated: list[str] = []
    json.loads(data, object_pairs_hook=first_repeated)
    return f"`{repeated[0][:_SHOWN_KEY]}`"


def _too_deep() -> Refused:
    return Refused("not_json", f"nested deeper than {MAX_DEPTH} levels")


def _refusal(data: bytes, message: str) -> Refused:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return Refused("not_utf8", f"invalid UTF-8 at byte {error.start}")
    if _is_deep(data):
        return _too_deep()
    if _SURROGATE.search(data) and _is_lenient_json(data):
        return Refused("not_utf8", "an escape stands for half of a surrogate pair")
    malformed = re.search(r"malformed: (.*) \(byte (\d+)\)", message)
    if malformed:
        return Refused("not_json", f"{malformed[1]} near byte {malformed[2]}")
    return Refused("not_json", f"ends too early, at byte {len(data)}")


def _is_lenient_json(data: bytes) -> bool:
    """Whether Python's own decoder, which lets halves of pairs through, reads it; NaN and Infinity are no JSON."""
    try:
        json.loads(data, parse_constant=_no_json)
    except ValueError:
        return False
    return True


def _no_json(constant: str) -> NoReturn:
    raise ValueError(constant)


def _is_deep(data: bytes) -> bool:
    """Whether brackets outside of strings are nested deeper than MAX_DEPTH."""
    # Nothing short or with few brackets can be deep; the rest is looked at closely.
    if len(data) <= MAX_DEPTH or data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRING.sub(b"", data).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):  # the innermost pairs go, level by level
        if b"()" not in brackets:  # those that are never closed are left
            return brackets.count(b"(") > MAX_DEPTH
        brackets = brackets.replace(b"()", b"")
    return brackets != b""
