"""Docstrings say ``:class:`Step` `` where Sphinx would link; the site shows the name as code."""

import re

_ROLE = re.compile(r":(?:class|func|meth|attr|mod):(?=<code>|`)")


def on_page_content(html: str, **_: object) -> str:
    """Drop the role before a name, once the page is HTML."""
    return _ROLE.sub("", html)
