"""The kinds of content a cache can have: examples to imitate, preference pairs, or rated answers."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from packer.errors import UsageError
from packer.store.cache import Cache

Content: TypeAlias = Literal["examples", "pairs", "rated answers"]


def content_of(cache: Cache) -> Content:
    """Return the kind of content of a cache: examples to imitate, or preference data."""
    if not cache.is_preference:
        return "examples"
    return "pairs" if cache.is_paired else "rated answers"


def content_of_all(caches: Iterable[Cache]) -> Content:
    """Return the kind of content that several caches share.

    Raises:
        UsageError: they have different kinds of content.
    """
    found = {content_of(cache): cache.folder for cache in caches}
    if len(found) > 1:
        names = " and ".join(f"{content} ({folder})" for content, folder in found.items())
        raise UsageError(f"{names} cannot be mixed", hint="read each with a loader of its own")
    return next(iter(found))


def refuse_preference(content: Content, what: str) -> None:
    """Keep a consumer that trains on every answer from imitating rejected answers.

    Raises:
        UsageError: the content is preference data.
    """
    if content != "examples":
        raise UsageError(
            f"{what} trains examples, and this cache holds {content}: it would imitate rejected answers too",
            hint="a loop of your own over PackedLoader gives them with their sides; trainers of pairs are in "
            "packer.load.trainers",
        )
