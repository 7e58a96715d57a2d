"""JSON values of which a template is told nothing but what they are: what it gets in place of arguments and tools.

An :class:`Opaque` value is an object, or a list, that is not empty; a template may hand it on, ask what it is, and
write it as JSON. Of a :class:`KnownObject` or :class:`KnownList` a template knows every key and every place, and what
is there may be traced; as a whole it may be written as JSON too. Everything else ends the trace.
"""

import re
from typing import Any, Never

from packer.render.slots import Condition, Settings, Slot, UntraceableError, json_of, refuse, refusing
from packer.render.traced import Traced

_MARK = "zqjson"
_MARKED = re.compile(rf'"{_MARK}(\d+)"')
_PLAIN = frozenset({str, int, float, bool, type(None)})


class Opaque:
    """An object or a list that is not empty; nothing else is known of it."""

    __slots__ = ("_noted", "_number", "is_list")

    def __init__(self, number: int, noted: list[Condition], *, is_list: bool = False) -> None:
        self._number = number
        self._noted = noted
        self.is_list = is_list

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return False if other is None or isinstance(other, str | int | float) else refuse("__eq__")

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        raise UntraceableError("__hash__")

    def __radd__(self, other: object) -> Never:
        if isinstance(other, str) and not self.is_list:
            raise TypeError('can only concatenate str (not "dict") to str')
        refuse("__radd__")


_HARMLESS = {
    *("__class__", "__delattr__", "__dir__", "__doc__", "__getattribute__", "__getstate__", "__init__", "__new__"),
    *("__init_subclass__", "__setattr__", "__subclasshook__", "__class_getitem__"),
}
for _name in {name for kind in (dict, list, str, int, float) for name in dir(kind)}:
    if _name not in Opaque.__dict__ and _name not in _HARMLESS:
        setattr(Opaque, _name, refusing(_name))


class KnownObject(dict[str, Any]):
    """An object whose keys are known, and which is a word as a whole."""

    __slots__ = ("_noted", "_number")

    def __init__(self, items: dict[str, Any], number: int, noted: list[Condition]) -> None:
        super().__init__(items)
        self._number = number
        self._noted = noted


class KnownList(list[Any]):
    """A list whose places are known, and which is a word as a whole."""

    __slots__ = ("_noted", "_number")

    def __init__(self, items: list[Any], number: int, noted: list[Condition]) -> None:
        super().__init__(items)
        self._number = number
        self._noted = noted


WHOLE = Opaque | KnownObject | KnownList
"""What has a number of its own."""


def traced_json(value: Any, settings: Settings) -> str:
    """What `tojson` writes of a value that holds traced ones.

    An object or a list that the template made, or a call, is written around them: without an indentation, JSON within
    JSON is written as it is by itself.

    Raises:
        UntraceableError: JSON within JSON is indented, or a text was joined to another.

    """
    written: list[Traced] = []

    def marked(item: Any) -> Any:
        if isinstance(item, Traced | WHOLE):
            if settings[1] is not None and not isinstance(item, Traced):
                refuse("indented JSON within JSON")
            written.append(_as_json(item, settings))
            return f"{_MARK}{len(written) - 1}"
        if type(item) is dict:
            return {key if type(key) is str else refuse("a key"): marked(part) for key, part in item.items()}
        if type(item) in (list, tuple):
            return [marked(part) for part in item]
        return item if type(item) in _PLAIN else refuse("a value that is not JSON")

    if isinstance(value, Traced | WHOLE):
        return _as_json(value, settings)
    parts = _MARKED.split(json_of(marked(value), settings))
    if sorted(map(int, parts[1::2])) != list(range(len(written))):
        refuse("the mark of a traced value")
    text = parts[0]
    for number, behind in zip(parts[1::2], parts[2::2], strict=True):
        text = text + written[int(number)] + behind
    return text


def _as_json(value: Any, settings: Settings) -> Traced:
    if isinstance(value, Traced):
        return value.as_json(settings)
    slot = Slot(value._number, (("tojson", settings),))  # noqa: SLF001 - of the same module
    return Traced([slot], value._noted).written()  # noqa: SLF001 - as above
