"""Takes out of docstrings what is meant for other readers than those of the site."""

import re

_ROLE = re.compile(r":(?:class|func|meth|attr|mod):(?=<code>)")
"""Sphinx's role before a name: ``:class:`Step` ``."""

_FLAG = re.compile(r"\s*<span class=\"c1\">\s*# doctest: \+SKIP[^<]*</span>|\s*# doctest: \+SKIP[^\n<]*")


def on_page_content(html: str, **_: object) -> str:
    """Called by MkDocs with each page as HTML."""
    return _FLAG.sub("", _ROLE.sub("", html))
