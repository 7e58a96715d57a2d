"""What JSON lines are by the letter of RFC 8259, decoded by Python's own json."""

import json
import re
from typing import Any

from packer.rejections import CODES

BLANK = b" \t\r\n"
_NUMBER_OUT_OF_RANGE = re.compile(rb"\d[eE]\+?\d{3}|(?<![\d.])\d{4301}")
_HALF = re.compile("[\ud800-\udfff]")


def refuse(_: str) -> Any:
    raise ValueError("no JSON")


def what_it_is(line: bytes) -> str:
    """A line by the letter of RFC 8259, decoded by Python's json: `row`, `no object`, or the code it must have."""
    if _NUMBER_OUT_OF_RANGE.search(line):
        return "out of range"
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return "not_utf8"

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {f"{number} {key}": value for number, (key, value) in enumerate(pairs)}

    try:
        value = json.loads(text, parse_constant=refuse, object_pairs_hook=noted)
    except (ValueError, RecursionError):
        return "not_json"
    if depth(value) > 256:
        return "not_json"
    if _HALF.search(json.dumps(value, ensure_ascii=False)):
        return "not_json"
    return "row" if isinstance(value, dict) else "no object"


def depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) + max(map(depth, parts), default=0)


def agrees(line: bytes, code: str, reason: str) -> bool:
    """Whether packer's verdict on a line, a code or `kept`, is what the oracle allows."""
    found = what_it_is(line)
    if found == "out of range":  # where such a number stands before a mistake, either may be named
        return code in CODES
    if found == "no object":
        return code == "wrong_type" and reason.startswith("expected `object`, got")
    if found == "row":  # a text within it may be JSON that is none
        is_about_json = code in ("not_json", "not_utf8")
        return code != "row_too_large" and (not is_about_json or reason.startswith("the JSON in "))
    return code == found
