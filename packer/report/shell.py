"""What all pages share: their frame, look and scripts, under a Content-Security-Policy that lets these alone run.

A page takes the place of no input, no file of a cache and nothing else but another page.

Whatever a cache, its inputs and a template hold is text here: Jinja escapes it, and characters that would turn its
direction or not be seen are written out.
"""

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from packer.display import number, percent, plural, size, visible
from packer.errors import UsageError
from packer.limits import storage_errors
from packer.store.folder import AtomicFile
from packer.store.mirror import shown
from packer.version import __version__

_TEMPLATES = ("base", "macros", "cache", "text")
_STYLE = "page.css"
SCRIPT = "shell.js"

_MARK, _HEAD_BYTES = b'<meta name="generator" content="packer ', 512
"""What stands near the start of every page."""


def fill(template: str, *, title: str, scripts: Sequence[str] = (SCRIPT,), live: bool = False, **values: Any) -> bytes:
    """A page as UTF-8.

    `scripts` are files of this package; `live`: whether a server answers what the page asks for.
    """
    html: str = (
        _environment()
        .get_template(template)
        .render(
            policy=content_security_policy(scripts, live=live),
            style=Markup(_file(_STYLE)),  # noqa: S704 - a file of this package
            scripts=[Markup(_file(name)) for name in scripts],  # noqa: S704 - as above
            title=title,
            live=live,
            version=__version__,
            **values,
        )
    )
    return html.encode("utf-8", "backslashreplace")


def content_security_policy(scripts: Sequence[str], *, live: bool) -> str:
    """What a page may do: run its own scripts and style, and ask its own server where there is one."""
    directives = [
        "default-src 'none'",
        f"script-src {' '.join(map(_hash, scripts))}",
        f"style-src {_hash(_STYLE)}",
        *(["connect-src 'self'"] if live else []),
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
        autoescape=True,  # by hand: what chooses by the name of a file does not know `.j2`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": visible,
        "shown": shown,
        "content": _content,
        "percent": _percent,
        "number": number,
        "plural": plural,
        "size": size,
    }
    return environment


def _content(text: str) -> Markup:
    """Visible text for within an element, where quotes are no danger: as references they take five bytes each."""
    return Markup(str(escape(visible(text))).replace("&#34;", '"').replace("&#39;", "'"))  # noqa: S704 - escaped


def _percent(share: float) -> str:
    return percent(share).replace(" ", "\N{NO-BREAK SPACE}")


@functools.cache
def _file(name: str) -> str:
    """A template, or a style or script without the blanks before its lines and without lines of comments."""
    text = (resources.files(__package__) / name).read_text("utf-8")
    if name.endswith(".j2"):
        return text
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _hash(name: str) -> str:
    digest = hashlib.sha256(_file(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def check_place(output: Path, *caches: Path | str) -> None:
    """Refuse a place where a page would take that of something else.

    Args:
        output: the file.
        caches: in which it must not be.

    Raises:
        UsageError: it is in a cache, or there is a file that is no page, or a folder.
        StorageError: what is there cannot be read.

    """
    place = output.resolve()
    for cache in caches:
        if place.is_relative_to(Path(cache).resolve()):
            raise UsageError(f"{output} is in the cache {cache}", hint="write the page beside it")
    if not place.exists():
        return
    if not place.is_file():
        raise UsageError(f"{output} is no file", hint="name the file of the page")
    with storage_errors("read", output), place.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head and _MARK not in head:
        raise UsageError(f"{output} is there, and is no page of packer", hint="name another file, or remove it")


def write_page(page: bytes, output: Path) -> None:
    """Write a page, complete or not at all.

    Raises:
        StorageError: the disk refuses.

    """
    with AtomicFile(output.parent) as file:
        file.write(page)
        file.commit(output.name)
