"""A page's style and scripts, and where it may be written, with a Content-Security-Policy that permits nothing else.

A page overwrites only another page, never an input, a file of a cache or anything else.

Content of a cache, its inputs and a template is always text: Jinja escapes it, and characters that are invisible or
change the text direction are written out.
"""

import base64
import functools
import hashlib
import os
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from packer.display import number, percent, plural, size, visible
from packer.errors import UsageError
from packer.host.limits import storage_errors
from packer.host.regular_file import open_regular
from packer.names import refuse_address, shown
from packer.version import __version__

_TEMPLATES = ("macros", "cache")
_STYLE, _SCRIPTS = "page.css", ("shell.js", "tokens.js")

_MARK = b'<meta name="generator" content="packer '
"""What the first `_HEAD_BYTES` of every page contain."""

_HEAD_BYTES = 512


def fill(*, title: str, **values: Any) -> bytes:
    """Render the page as UTF-8."""
    html: str = (
        _environment()
        .get_template("cache")
        .render(
            policy=_content_security_policy(),
            style=Markup(_file(_STYLE)),  # noqa: S704 - a file of this package
            scripts=[Markup(_file(name)) for name in _SCRIPTS],  # noqa: S704 - as above
            title=title,
            version=__version__,
            **values,
        )
    )
    return html.encode("utf-8", "backslashreplace")


def _content_security_policy() -> str:
    """Return the policy of the page: only its own scripts, style and images."""
    directives = [
        "default-src 'none'",
        f"script-src {' '.join(map(_hash, _SCRIPTS))}",
        f"style-src {_hash(_STYLE)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return "; ".join(directives)


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
    environment.filters |= {
        "shown": shown,
        "content": _content,
        "percent": _percent,
        "number": number,
        "plural": plural,
        "size": size,
    }
    return environment


def _visible(value: Any) -> Any:
    """Escape what is invisible in everything that a template writes, before Jinja escapes what is HTML."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _content(text: str) -> Markup:
    """Escape visible text for element content. Quotes stay as they are: entities would take five bytes each."""
    return Markup(str(escape(visible(text))).replace("&#34;", '"').replace("&#39;", "'"))  # noqa: S704 - escaped


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


def _hash(name: str) -> str:
    digest = hashlib.sha256(_file(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def check_place(output: Path, *caches: Path | str) -> None:
    """Check that a page may be written to this file, which must not be in one of the caches."""
    refuse_address(os.fspath(output), place="file")
    place = output.resolve()
    for cache in caches:
        if place.is_relative_to(Path(cache).resolve()):
            raise UsageError(f"{output} is in the cache {cache}", hint="write the page beside it")
    if not place.exists():
        return
    if not place.is_file():
        raise UsageError(f"{output} is not a file", hint="name the file of the page")
    with storage_errors("read", output), open_regular(place) as file:
        head = file.read(_HEAD_BYTES)
    if head and _MARK not in head:
        raise UsageError(
            f"{output} already exists and is not a page written by packer", hint="name another file, or remove it"
        )
