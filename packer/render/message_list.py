"""The list of messages of a conversation: detects when a template depends on where it ends."""

from collections.abc import Callable, Sequence
from typing import Any

from packer.render.symbolic import OpaqueError


class MessageList(list[Any]):
    """The messages of a conversation so far, or a suffix of them.

    Args:
        known: the messages.
        start: index of the first of them in the conversation.
        root: the list of the whole conversation; None if this is it.

    Attributes:
        depends_on_end: whether the template read anything that may differ in a longer conversation (root only).
    """

    def __init__(self, known: Sequence[Any], start: int = 0, root: "MessageList | None" = None) -> None:
        super().__init__(known)
        self.known = list(known)
        self.start = start
        self._root = root
        self.depends_on_end = False
        self.num_in_every_extension = len(known)
        self.num_read = 0
        """Number of messages, from the first, beyond which nothing was read unless it depends on the end (root only).
        """

        self.size: Any = None
        """What stands for the number of messages (root only); None for the number itself."""

        self.recorder: Any = None
        """Who answers for the messages instead, from the start of the loop on (root only)."""

    @property
    def root(self) -> "MessageList":
        """The list of the whole conversation."""
        return self if self._root is None else self._root  # a list that refers to itself would be freed late

    def refuse_if_recorded(self) -> None:
        """Refuse to be asked for anything but single messages and the length while what a template does is recorded.

        Raises:
            OpaqueError: it is recorded.
        """
        if self.root.recorder is not None:
            raise OpaqueError("the list of messages is used in another way")

    def is_in_every_extension(self, number: int) -> bool:
        """Whether the first `number` messages of this list can be read without setting `depends_on_end`."""
        root, number = self.root, self.start + number
        if number > root.num_in_every_extension:
            return False
        root.num_read = max(root.num_read, number)
        return True

    def __bool__(self) -> bool:
        if not self.is_in_every_extension(1):
            self.refuse_if_recorded()
            self.root.depends_on_end = True
        return bool(self.known)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice) and self.root.recorder is not None:
            return self.root.recorder.cut(self, place)
        self.refuse_if_recorded()
        if type(place) is int and place >= 0 and self.is_in_every_extension(place + 1):
            return self.known[place]
        if isinstance(place, slice) and place.stop is None and place.step is None and (place.start or 0) >= 0:
            start = place.start or 0
            if self.is_in_every_extension(start):
                return MessageList(self.known[start:], self.start + start, self.root)
        self.root.depends_on_end = True
        return self.known[place]


def _records_dependence(name: str) -> Callable[..., Any]:
    of_list = getattr(list, name)

    def method(self: MessageList, *args: Any, **kwargs: Any) -> Any:
        self.refuse_if_recorded()
        self.root.depends_on_end = True
        return of_list(self, *args, **kwargs)

    return method


def _radd(self: MessageList, other: list[Any]) -> list[Any]:
    """Return `other + messages`; list's own method would read the messages without setting `depends_on_end`."""
    self.refuse_if_recorded()
    self.root.depends_on_end = True
    return other + self.known


for _name in (
    *("__len__", "__iter__", "__reversed__", "__contains__", "__repr__", "__add__", "__mul__", "__rmul__", "copy"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "index", "count"),
):
    setattr(MessageList, _name, _records_dependence(_name))
MessageList.__radd__ = _radd  # type: ignore[attr-defined]
