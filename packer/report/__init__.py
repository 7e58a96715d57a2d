"""Renders the page about a cache, which `packer report` writes as one self-contained file.

It overwrites only another page, never an input, a file of a cache or anything else, and its Content-Security-Policy
permits nothing but its own style and scripts. Content of a cache, its inputs and a template is always text: Jinja
escapes it, and characters that are invisible or change the text direction are written out.
"""

import base64
import functools
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from packer.audit.stats import stats
from packer.display import number, percent, plural, size, visible
from packer.errors import UsageError
from packer.host.files import open_regular, storage_errors
from packer.names import refuse_address, shown
from packer.report.facts import Documents, histograms, reasons, source_facts
from packer.report.tokens import pack_tokens, sample
from packer.store.cache import Cache
from packer.store.folder import write_atomically
from packer.version import __version__

_SOURCES = 20
"""Maximum number of inputs listed; the rest is summed up."""


MAX_BYTES = 5_000_000
"""Maximum size of a page: small enough to mail, and opened by a browser without delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of :func:`report`."""

    path: Path
    num_bytes: int
    items: int
    """Blocks and documents whose tokens the page includes."""

    chosen: int
    """Blocks and documents of the sample."""

    tokens: int
    """Tokens that the page includes."""


def report(folder: Path | str, output: Path | str, *, sources: str | Path | Sequence[str | Path] = ()) -> Report:
    """Write a page about a cache: one file of at most :data:`MAX_BYTES`, written atomically.

    Args:
        folder: the cache.
        output: the file; an existing page is replaced.
        sources: folders of the images that the cache only names, as in :meth:`packer.Cache.open`.
    """
    output = Path(output)
    _check_place(output, folder)
    with Cache.open(folder, sources=sources) as cache:
        documents, found = Documents.of(cache), stats(cache.folder)
        facts = {
            "title": found.summary.folder.resolve().name,
            "found": found,
            "manifest": cache.manifest,
            "recipe": json.dumps(cache.manifest.recipe, indent=2, ensure_ascii=False),
            "sources": source_facts(cache, documents),
            "num_sources": _SOURCES,
            "histograms": histograms(cache, documents),
            "reasons": reasons(cache),
        }
        held = chosen = sample(cache, documents)
        note = _WHOLE_SAMPLE
        while len(content := _page(**facts, note=note, packed=pack_tokens(cache, held))) > MAX_BYTES and len(held) > 1:
            held = held[: len(held) // 2]
            note = f"The first {len(held):,} of {len(chosen):,} that were chosen; a page has no room for more."
    write_atomically(output, content)
    return Report(
        path=output,
        num_bytes=len(content),
        items=len(held),
        chosen=len(chosen),
        tokens=sum(item.num_tokens for item in held),
    )


_WHOLE_SAMPLE = (
    "A sample: blocks spread evenly over each split, and the longest, shortest, most and least trained documents."
)

_TEMPLATES = ("macros", "cache")
_STYLE, _SCRIPTS = "page.css", ("shell.js", "tokens.js")

_MARK = b'<meta name="generator" content="packer '
"""What the first `_HEAD_BYTES` of every page contain."""

_HEAD_BYTES = 512


def _page(**values: Any) -> bytes:
    """Render the page as UTF-8."""
    html: str = (
        _environment()
        .get_template("cache")
        .render(
            style=Markup(_file(_STYLE)),  # noqa: S704 - a file of this package
            scripts=[Markup(_file(name)) for name in _SCRIPTS],  # noqa: S704 - as above
            hash=_hash,
            version=__version__,
            **values,
        )
    )
    return html.encode("utf-8", "backslashreplace")


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=DictLoader({name: _file(f"{name}.html.j2") for name in _TEMPLATES}),
        autoescape=True,  # explicit: select_autoescape() does not recognize `.j2`
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": shown, "percent": _percent, "number": number, "plural": plural, "size": size}
    return environment


def _visible(value: Any) -> Any:
    """Escape what is invisible in everything that a template writes, before Jinja escapes what is HTML."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _percent(share: float) -> str:
    """Format like :func:`percent`, on one line."""
    return percent(share).replace(" ", "\N{NO-BREAK SPACE}")


@functools.cache
def _file(name: str) -> str:
    """Read a template, or a style or script without indentation and comment lines."""
    text = (resources.files(__package__) / name).read_text("utf-8")
    if name.endswith(".j2"):
        return text
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _check_place(output: Path, cache: Path | str) -> None:
    """Check that a page may be written to this file, which must not be in the cache."""
    refuse_address(os.fspath(output), place="file")
    place = output.resolve()
    if place.is_relative_to(Path(cache).resolve()):
        raise UsageError(f"{output} is in the cache {cache}", hint="write the page beside it")
    if not place.exists():
        return
    if not place.is_file():
        raise UsageError(
            f"{output} is not a regular file", hint="name the file to write the page to, such as report.html"
        )
    with storage_errors("read", output), open_regular(place) as file:
        head = file.read(_HEAD_BYTES)
    if head and _MARK not in head:
        raise UsageError(
            f"{output} already exists and is not a page written by packer", hint="name another file, or remove it"
        )
