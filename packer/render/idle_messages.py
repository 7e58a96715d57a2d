"""Messages for which a loop of a template does nothing, and what it asks to find that out."""

from collections.abc import Callable, Mapping
from typing import Any

_WORDS = {str}
"""Types of values that others may have, too: `True` equals 1, so that numbers are none."""

_LONGEST_WORD = 64
"""Number of characters up to which a text in a message is a word that others may have, too."""


class IdleMessages:
    """The messages for which a loop does nothing."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        """By their identities; kept alive, so that no others get these."""

        self._alike: dict[tuple[str, ...], set[tuple[Any, ...]]] = {}
        """Values of all that the loop asked about a message, if these are words, by their names."""

    def add(self, message: Mapping[str, Any], asked: "AskedMessage") -> None:
        """Add a message for which the loop did nothing."""
        self._known[id(message)] = message
        names = asked._packer_names  # noqa: SLF001 - so that no template reads it
        if names:  # not if nothing is known to have been asked: code in C may have asked
            self._alike.setdefault(tuple(names), set()).add(tuple([message.get(name) for name in names]))

    def holds(self, message: Mapping[str, Any]) -> bool:
        if id(message) in self._known:
            return True
        for names, values in self._alike.items():
            found = [message.get(name) for name in names]
            if {*map(type, found)} <= _WORDS and tuple(found) in values:
                self._known[id(message)] = message
                return True
        return False


class AskedMessage(dict[str, Any]):
    """A message that knows which of its values were asked for."""

    __slots__ = ("_packer_names",)
    _packer_names: dict[str, None] | None
    """None if something else was asked, or a value that is no word."""

    def __init__(self, message: Mapping[str, Any]) -> None:
        super().__init__(message)
        self._packer_names = {}

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if self._packer_names is not None:
            self._packer_names[name] = None
        if type(value) is not str or len(value) > _LONGEST_WORD:
            self._packer_names = None
        return value

    def __missing__(self, name: str) -> Any:
        self._packer_names = None
        raise KeyError(name)


def _asks_for_all(name: str) -> Callable[..., Any]:
    of_dict = getattr(dict, name)

    def method(self: AskedMessage, *args: Any, **kwargs: Any) -> Any:
        self._packer_names = None
        return of_dict(self, *args, **kwargs)

    return method


for _name in (
    *("get", "keys", "values", "items", "copy", "__contains__", "__iter__", "__reversed__", "__len__", "__repr__"),
    *("__eq__", "__ne__", "__or__", "__ror__"),
):
    setattr(AskedMessage, _name, _asks_for_all(_name))
