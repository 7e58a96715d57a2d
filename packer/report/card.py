"""The card of a cache on the Hub: what it is, what it was built from and how it is read, as Markdown.

It says what the manifest and :func:`packer.audit.stats` say; names that strangers chose stand in code spans.
"""

import json
from importlib import resources

from jinja2 import DictLoader, Environment, StrictUndefined

from packer.audit.stats import stats
from packer.display import number, one_line, percent, plural
from packer.report.facts import Documents, source_facts
from packer.store.cache import Cache


def card(cache: Cache, name: str) -> bytes:
    """The card as UTF-8.

    Args:
        cache: the cache.
        name: its name on the Hub, as readers take it.

    Raises:
        CheckError: something of the cache is missing or damaged.
        StorageError: something cannot be read.

    """
    own = DictLoader({"card": (resources.files(__package__) / "card.md.j2").read_text("utf-8")})
    environment = Environment(loader=own, undefined=StrictUndefined, trim_blocks=True, autoescape=False)  # noqa: S701 - no HTML
    environment.filters |= {"number": number, "percent": percent, "plural": plural, "code": _code, "cell": _cell}
    manifest = cache.manifest
    text = environment.get_template("card").render(
        title=name.rpartition("/")[2],
        name=name,
        found=stats(cache.folder),
        sources=source_facts(cache, Documents.of(cache)),
        manifest=manifest,
        versions=", ".join(f"{library} {version}" for library, version in sorted(manifest.versions.items())),
        recipe=json.dumps(manifest.recipe, indent=2),  # in ASCII, where backticks can only be within a line
    )
    return text.encode("utf-8", "backslashreplace")


def _code(text: str) -> str:
    """A code span within a table: no name ends it, or the line."""
    return f"`{_cell(text).replace('`', chr(0x2CB))}`"


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")
