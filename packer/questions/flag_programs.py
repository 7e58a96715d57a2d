"""Programs of jq that move flags to keys of messages that packer reads."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from packer.batches import REASONING_FIELDS
from packer.questions.read_places import ITEMS, Path, up_to_items
from packer.source.file_bytes import quoted
from packer.source.jq_commands import jq_field, jq_path

CALLS = "tool_calls"


class Place(NamedTuple):
    """Where something is said, and of what."""

    path: Path
    of: Literal["row", "message", "items", "list", "list of answers", "numbers"]
    """`items` are in lists, or in JSON text, under a key of messages, from where no program moves them."""

    messages: Path = ()
    """Where the messages are to which a list of the row belongs."""

    first: int = 0
    """The number of the first message, in a list of numbers."""

    @property
    def whose(self) -> Path:
        """The path of what says it: the messages or their parts, a list, or the row."""
        return () if self.of == "row" else up_to_items(self.path) if self.of == "message" else self.path


def listed(values: Sequence[Any]) -> str:
    return ", ".join(json.dumps(value, ensure_ascii=False) for value in values)


def programs(
    place: Place, kind: str, forms: Mapping[str, Collection[str]], *, is_silent: bool
) -> Iterator[tuple[str, str]]:
    """Yield what a flag may say, each with the program of jq that moves it to a key of messages that packer reads.

    `forms`: how each word is written, in the small letters of jq. Where only a yes is ever said, silence says no, and
    the other way round.
    """
    name = quoted(place.path[-1])
    silence = json.dumps("true" not in forms) if is_silent and kind == "flags" and len(forms) == 1 else None
    said = "" if silence is None else f"if . == null then {silence} else . end | "
    keys = {
        "flags": [("yes", "train", f"{said}."), ("no", "masked", f"{said}.")],
        "words": [
            (word, "train", f"tostring | ascii_downcase | IN({listed(sorted(forms[word]))})") for word in sorted(forms)
        ],
        "signs": [("more than 0", "train", "tonumber > 0")],
        "weights": [("a number", "weight", ".")],
    }
    is_of_message = place.of == "message" and place.path.count(ITEMS) == 1
    if kind == "words" and is_silent and is_of_message:
        yield masking(place.whose, place.path[len(place.whose) :])
    if place.of == "numbers":
        when = f"if {name} numbers the trained messages from {place.first}"
        yield when, _of_list(place, "train", f".key + {place.first} | IN($flags[])")
        return
    for word, key, value in keys.get(kind, ()) if place.of in ("message", "list") else ():
        says = "how much an answer is trained" if kind == "weights" else "that an answer is trained"
        when = f"if {word} under {name} says {says}"
        if place.of == "list":
            yield when, _of_list(place, key, f"$flags[.key] | {value}")
            continue
        each, at = jq_path(place.whose), jq_path(place.path[len(place.whose) :])
        if place.whose[-2:] == (CALLS, ITEMS):
            yield when, _of_calls(place, at, f"{{{key}: ({value})}}", is_silent=is_silent and silence is None)
            continue
        kept = f" | select({at} != null)" if silence is None else ""
        yield when, f"({each}{kept}) |= (.{key} = ({at} | {value}) | del({at}))"


def masking(messages: Path, key: Path) -> tuple[str, str]:
    """Return the program that trains all messages but those with something under a key, after its condition.

    `key` may lead into an object, which goes away as a whole.
    """
    having = f'({jq_path(messages)} | select({jq_path(key)} | IN(null, false, "", [], {{}}) | not))'
    when = f"if {quoted('.'.join(key))} says that an answer is not to be trained"
    return when, f"{having} |= (.train = false | del({jq_field(key[0])}))"


def _of_calls(place: Place, at: str, flag: str, *, is_silent: bool) -> str:
    """Return the program that makes messages of calls, as pieces of the turn of which each has a flag.

    What is said before them stays a message without calls.
    """
    texts = ", ".join(f".{key}" for key in ("content", "value", *REASONING_FIELDS))
    said = f'del(.{CALLS}) | select([{texts}] | any(. != null and . != "" and . != []))'
    own = f"($call | {at} | {f'if . == null then {{}} else {flag} end' if is_silent else flag})"
    call = f".{CALLS}[] as $call | del({texts}) + {{content: null, {CALLS}: [$call | del({at})]}} + {own}"
    messages = jq_path(place.whose[: -len((ITEMS, CALLS, ITEMS))])
    return f"{messages} |= [.[]? | if any(.{CALLS}[]?; {at} != null) then ({said}), ({call}) else . end]"


def _of_list(place: Place, key: str, value: str) -> str:
    """Return the program that moves the flags in a list of the row to a key of the messages."""
    flags, messages = jq_path(place.path), jq_path(place.messages)
    moved = f"{messages} |= (to_entries | map(.value + {{{key}: ({value})}}))"
    return f"(({flags} | arrays) // []) as $flags | {moved} | del({flags})"
