"""Control tokens typed by a person: found, stood in for while rendering, and put back as guarded text.

A message that holds the text `<|im_end|>` must not end a turn. Each such piece is replaced by a stand-in made of
private-use characters before rendering, so that no search for a stop token can meet it, and put back afterwards; the
bytes it ends up in are *guarded*: the encoder treats them as ordinary text.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packer.literals import longest_of

_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_RESERVED = re.compile("[\ue0f0-\ue0f4]")
"""Private-use characters with a meaning here: of stand-ins, of generation marks, of the aliases that guarded texts are
encoded with, and the letter no prompt holds."""

_STAND_IN = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


def control_pattern(contents: Mapping[str, int]) -> re.Pattern[str] | None:
    """Matches any control token's text, the longest first; None where there are none."""
    if not contents:
        return None
    return re.compile(longest_of(contents))


def find_control(value: Any, pattern: re.Pattern[str]) -> str | None:
    """The first control token typed anywhere in a JSON value, keys included."""
    if isinstance(value, str):
        match = pattern.search(value)
        return match[0] if match else None
    if isinstance(value, dict):
        parts = [*value.values(), *value]
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        return None
    return next((found for part in parts if (found := find_control(part, pattern)) is not None), None)


def typed_fields(message: Mapping[str, Any]) -> dict[str, Any]:
    """What a person typed of a message: all of it but its role, which is one of a few words."""
    return {key: item for key, item in message.items() if key != "role"}


@dataclass(slots=True)
class StandIns:
    """Replaces typed control tokens by stand-ins, and back."""

    pattern: re.Pattern[str]
    typed: list[str]
    """Text of each stand-in, by number."""

    def hide(self, value: Any) -> Any:
        """A copy of a JSON value where every typed control token is a stand-in."""
        return _map_strings(value, lambda text: self.pattern.sub(self._number, text))

    def hide_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """As :meth:`hide`, for messages, which keep their roles."""
        return [{"role": message["role"], **self.hide(typed_fields(message))} for message in messages]

    def reveal(self, text: str) -> tuple[str, list[tuple[int, int]], Callable[[int], int]]:
        """Put the typed text back.

        Returns:
            The text; the character ranges of what was put back; and a function that maps a position in `text` to one
            in the result. Worked example: with stand-in 0 for `<s>` (3 characters; its stand-in has 3 too, `␣0␣`) the
            ranges of "a␣0␣b" are [(1, 4)].

        """
        pieces: list[str] = []
        ranges: list[tuple[int, int]] = []
        shifts: list[tuple[int, int]] = []
        length = last = 0
        for match in _STAND_IN.finditer(text):
            before, typed = text[last : match.start()], self.typed[int(match[1])]
            pieces += (before, typed)
            start = length + len(before)
            length = start + len(typed)
            ranges.append((start, length))
            last = match.end()
            shifts.append((last, length - last))
        pieces.append(text[last:])

        def moved(position: int) -> int:
            return position + next((shift for end, shift in reversed(shifts) if end <= position), 0)

        return "".join(pieces), ranges, moved

    def _number(self, match: re.Match[str]) -> str:
        self.typed.append(match[0])
        return f"{_OPEN}{len(self.typed) - 1}{_CLOSE}"


def holds_stand_in(value: Any) -> bool:
    """True where data already holds the private-use characters, so that stand-ins or aliases would be ambiguous."""
    if isinstance(value, str):
        return _RESERVED.search(value) is not None
    if isinstance(value, dict):
        return any(holds_stand_in(item) for pair in value.items() for item in pair)
    return isinstance(value, list | tuple) and any(holds_stand_in(item) for item in value)


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_strings(item, change) for item in value]
    return value
