"""The content of a message: its shape, its texts, and whether a recording writes all of it."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from packer.batches import REASONING_FIELDS
from packer.render.composed.unknowns import ITEM, ZERO, WalkedArguments, kind_of
from packer.render.composed.written import ARGUMENTS, Leaf, Placed, Written, is_unknown_text
from packer.render.readback import ESCAPE
from packer.render.symbolic import OpaqueError
from packer.render.tojson import ToJson

_JSON = ToJson()

BEGINS_ESCAPE = re.compile(r"&[#\w]*\Z")
_USUAL = (None, None, False)
"""Settings of JSON, except for whether it is ASCII."""

_ENDS_ESCAPE = re.compile(r"\w*;")


def value_of(leaf: Leaf, numbers: Sequence[int], messages: Any) -> str:
    base, shift, path, settings, member = leaf
    value: Any = messages[shift if base == ZERO else numbers[base] + shift]
    for name in path:
        value = value[name]
    if member is not None:
        value = [*value.items()][member[0]][member[1]]
    return _JSON(value, *settings) if settings else str(value)


def shape(value: Any, name: Any, *, walks: bool) -> Any:
    """Return a value with a constant in place of each text and of the arguments of each call.

    `walks`: with a constant for each argument in their place.
    """
    kind = type(value)
    if kind is str:
        return "text" if is_unknown_text(value, name) else ("", value)
    if name == ARGUMENTS and (unknown := kind_of(value, walks=walks)) is not None:
        members = value.items() if unknown is WalkedArguments else ()
        return (unknown, *[shape(each, ARGUMENTS, walks=False) for member in members for each in member])
    if kind is dict:
        return (dict, *[(key, shape(each, key, walks=walks)) for key, each in value.items()])
    if kind is list:
        return (list, *[shape(each, None, walks=walks) for each in value])
    if value is None or kind is bool:
        return (kind, value)
    if kind is int or kind is float:
        return (kind, repr(value))
    raise OpaqueError("not JSON")


def shows_all(message: Mapping[str, Any], written: Written) -> bool:
    """Whether all content of a message is written as the message has it: texts as they are, arguments as JSON.

    Results of tools may be JSON, too. Arguments may also be written one by one; whether the call can be read back then
    is another question. Nothing else of what the template writes may look like an escape.
    """
    parts = written.parts
    if parts is None or any(isinstance(part, str) and ESCAPE.search(part) for part in parts):
        return False
    # Losses are looked for with words, about which every answer is no: where one is yes, the template may drop these.
    if any(each.condition.answer for each in written.texts):
        return False
    if any(itertools.starmap(_may_form_other, itertools.pairwise((*parts, "")))):
        return False
    # All of a text is placed, except for white space at its ends: a text that is cut holds what it is cut at.
    placed = [part.leaf for part in parts if isinstance(part, Placed)]
    own = [leaf for leaf in placed if leaf.base == ITEM and not leaf.shift]
    as_it_is = {leaf.place for leaf in own if not leaf.settings}
    as_json = {leaf.place for leaf in own if leaf.settings}
    content = message.get("content")
    path: tuple[str | int, ...] = ("content",)
    if isinstance(content, list):
        if len(content) != 1 or not isinstance(content[0], dict):
            return False
        content, path = content[0].get("text"), ("content", 0, "text")
    is_result = message.get("role") == "tool"
    if content and not isinstance(content, str):
        return False
    if content and not content.isspace() and path not in (as_it_is | as_json if is_result else as_it_is):
        return False
    reasoning = [(name,) for name in REASONING_FIELDS if message.get(name)]
    if reasoning and not as_it_is.intersection(reasoning):
        return False
    calls = message.get("tool_calls") or ()
    return isinstance(calls, list | tuple) and all(
        _shows_call(call, ("tool_calls", number), as_it_is, as_json) for number, call in enumerate(calls)
    )


def reads_back(parts: Sequence[str | Placed]) -> bool:
    """Whether a call that parts show completely is certainly read back: it writes all arguments at once, as JSON.

    Arguments that are a text are JSON as it is usually written, see :func:`packer.render.message_form.renderable`.
    """
    if any(isinstance(part, str) and '\\"' in part for part in parts):
        return False
    leaves = [part.leaf for part in parts if isinstance(part, Placed)]
    arguments = [leaf.settings for leaf in leaves if leaf.path[-1] == ARGUMENTS and leaf.settings is not None]
    return all(leaf.member is None for leaf in leaves) and all(each[1:] == _USUAL for each in arguments)


def _may_form_other(part: str | Placed, following: str | Placed) -> bool:
    """Whether two parts may form what neither is: an escape, or the beginning of a call in Python."""
    if isinstance(part, str):
        return BEGINS_ESCAPE.search(part) is not None
    if isinstance(following, Placed):
        return following.leaf.settings is None
    is_name = part.leaf.path[-1] == "name"
    return _ENDS_ESCAPE.match(following) is not None or (is_name and (not following or following[0] == "("))


def _shows_call(call: Any, path: tuple[str | int, ...], as_it_is: Any, as_json: Any) -> bool:
    if not isinstance(call, dict):
        return False
    if "function" in call:
        call, path = call["function"], (*path, "function")
    if not isinstance(call, dict) or not is_unknown_text(call.get("name"), "name") or (*path, "name") not in as_it_is:
        return False
    arguments, path = call.get("arguments"), (*path, ARGUMENTS)
    if arguments is None or (isinstance(arguments, dict | list) and not arguments):
        return True
    if not isinstance(arguments, dict):
        return path in (as_it_is if isinstance(arguments, str) else as_json)
    return path in as_json or all(
        (*path, n, 0) in as_it_is
        and (*path, n, 1) in (as_json if isinstance(value, dict | list) else as_json | as_it_is)
        for n, value in enumerate(arguments.values())
    )


class Numbers(dict[Any, int]):
    """Numbers of values, in the order in which they are first seen; threads that meet give no number twice."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._next = itertools.count()

    def of(self, value: Any) -> int:
        """Return the number of a value.

        Raises:
            OpaqueError: it is new, and there are too many already.
        """
        found = self.get(value)
        if found is None and len(self) >= self._most:
            raise OpaqueError("too many shapes, states, or variables that differ from row to row")
        return self.setdefault(value, next(self._next)) if found is None else found
