"""What a build tells while it runs."""

from typing import Protocol


class Progress(Protocol):
    """Listens to a build; the command line draws it, `Silent` does nothing."""

    def stage(self, name: str, total: int, unit: str) -> None:
        """A stage begins that will do `total` units of work (`bytes`, `rows`, `blocks`)."""
        ...

    def advance(self, amount: int, tokens: int = 0) -> None:
        """`amount` units are done, which made `tokens` tokens."""
        ...

    def note(self, message: str) -> None:
        """Something a person may want to know."""
        ...


class Silent:
    """No progress."""

    def stage(self, name: str, total: int, unit: str) -> None: ...

    def advance(self, amount: int, tokens: int = 0) -> None: ...

    def note(self, message: str) -> None: ...
