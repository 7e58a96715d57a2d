"""From the bytes of a row to a JSON value, or to the reason why not."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NoReturn

import msgspec

from packer.source.chunks import READ_BYTES
from packer.source.elements import Scanner

MAX_DEPTH = 256
"""Arrays and objects inside one another. A limit of our own: Python's recursion limit depends on who is calling."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"(?:[ \t\r\n]*+(:))?', re.DOTALL)
_RARE_COLONS = (b" :", b"\t:", b"\r:", b"\n:", b'\\\\":')
"""Where one of these is, the colons of keys cannot be told by the byte before them."""

_SHOWN_KEY = 40
_SHOWN_PATH = 200
"""Characters of a key and of a path that a reason holds."""

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


def decode_rows(rows: Sequence[bytes]) -> list[Any] | None:
    """The values of many rows, where :func:`decode_json` has nothing against any; None where it may have.

    Keys are counted in all rows at once: of no row can there be fewer in the text than in the value.
    """
    try:
        values = [*map(_decode, rows)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if any(map(_is_deep, rows)):
        return None
    text = b"\n".join(rows)
    odd = _rows_with_rare_colons(rows, text)
    if any(_repeats_keys(rows[i], values[i]) for i in odd):
        return None
    num_keys = sum(map(_num_keys, values)) - sum(_num_keys(values[i]) for i in odd)
    num_colons = _num_colons(text) - sum(_num_colons(rows[i]) for i in odd)
    return values if num_colons == num_keys else None


def _rows_with_rare_colons(rows: Sequence[bytes], text: bytes) -> set[int]:
    """Rows in which keys have to be counted one by one; `text` is all rows, a byte between each two."""
    found: set[int] = set()
    ends: list[int] = []
    for rare in _RARE_COLONS:
        at = text.find(rare)
        while at >= 0:
            ends = ends or list(accumulate(len(row) + 1 for row in rows))
            row = bisect_right(ends, at)
            found.add(row)
            at = text.find(rare, ends[row])
    return found


def _num_colons(text: bytes) -> int:
    return text.count(b'":') - text.count(b'\\":')


def _repeats_keys(data: bytes, value: Any) -> bool:
    r"""Whether the text has more keys than the value.

    A key is a string with a colon behind it, and within strings ``":`` can only stand as ``\":``. So counting two short
    patterns tells most rows at the speed of memory; where white space or a backslash stands at a key, its strings are
    taken one by one.
    """
    num_keys = _num_keys(value)
    if _num_colons(data) == num_keys and not any(rare in data for rare in _RARE_COLONS):
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
    if _SURROGATE.search(data) and (place := _half_pair(data)) is not None:
        return Refused("not_utf8", f"an escape stands for half of a surrogate pair at {place}")
    malformed = re.search(r"malformed: (.*) \(byte (\d+)\)", message)
    if malformed:
        return Refused("not_json", f"{malformed[1]} near byte {malformed[2]}")
    return Refused("not_json", f"ends too early, at byte {len(data)}")


def _half_pair(data: bytes) -> str | None:
    """Path of the first text with half of a surrogate pair; None where even a lenient decoder reads no JSON."""
    try:
        # Python's own decoder lets halves through; NaN and Infinity, which it takes too, are no JSON.
        value = json.loads(data, object_pairs_hook=tuple, parse_constant=_no_json)
    except ValueError:
        return None
    path = _path_to_half(value, "$")
    return path if path is None or len(path) <= _SHOWN_PATH else f"{path[:_SHOWN_PATH]}…"


def _no_json(constant: str) -> NoReturn:
    raise ValueError(constant)


def _path_to_half(value: Any, path: str) -> str | None:
    """`value` has its objects as tuples of pairs, so that a repeated key hides nothing."""
    if isinstance(value, str):
        return path if _HALF.search(value) else None
    parts: Iterable[tuple[Any, str]] = ()
    if isinstance(value, tuple):
        if any(_HALF.search(key) for key, _ in value):
            return f"{path} (a key)"
        parts = ((item, f"{path}.{key[:_SHOWN_KEY]}") for key, item in value)
    elif isinstance(value, list):
        parts = ((item, f"{path}[{i}]") for i, item in enumerate(value))
    return next((found for item, at in parts if (found := _path_to_half(item, at)) is not None), None)


def _is_deep(data: bytes) -> bool:
    """Whether brackets outside of strings are nested deeper than MAX_DEPTH; a megabyte in memory at a time."""
    # Nothing short or with few brackets can be deep; the rest is looked at closely.
    if len(data) <= MAX_DEPTH or data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    scanner = Scanner()
    chunks = (data[start : start + READ_BYTES] for start in range(0, len(data), READ_BYTES))
    return any(scanner.deepest(chunk) > MAX_DEPTH for chunk in chunks)
