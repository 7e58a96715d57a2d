"""Text, numbers and progress for people, without what controls their terminal, and without credentials.

Credentials in addresses are refused where a name is taken, and masked where a text is shown. An address may hold them
in front of its host (``s3://KEY:SECRET@bucket``), in its parameters, as a signed URL does, or as a token of the Hub. A
text is masked as a whole, whoever wrote it: messages of libraries quote the addresses that they were given. A blank
ends an address. Up to there, masking may hide more than the secret, such as a path with an ``@`` behind a password, but
never less.
"""

import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
"""Characters that control a terminal, change the direction of text or cannot be written; not newline and tab."""

_BYTE_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def visible(text: str) -> str:
    """Escape everything that :data:`HIDDEN` matches: untrusted text must not control a terminal.

    Zero-width joiners are kept: emoji and several scripts need them.
    """
    return HIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)


def one_line(text: str) -> str:
    """Like :func:`visible`, and escape newlines too, so that a name or a message cannot add lines to a report."""
    return visible(text).replace("\n", "\\n")


def in_shell(path: object) -> str:
    """Quote a path or a name for a command that somebody may copy: 'my cache'."""
    return shlex.quote(str(path))


def number(value: float) -> str:
    """Format with thousands separators: 12,345."""
    return f"{value:,}"


def percent(share: float) -> str:
    """Format with one decimal, rounding so that only 1 shows as 100 %: 0.99999 gives 99.9 %."""
    shown = f"{share:.1%}"
    if shown == "100.0%" and share < 1:
        shown = "99.9%"
    if shown == "0.0%" and share > 0:
        shown = "<0.1%"
    return shown.replace("%", " %")


def size(num_bytes: float) -> str:
    """Format in binary units: 1.5 MiB."""
    value, unit = float(num_bytes), 0
    while value >= 1023.95 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} bytes" if unit == 0 else f"{value:.1f} {_BYTE_UNITS[unit]}"


def plural(count: int, word: str) -> str:
    """Format a count with its noun: `1 row`, `2 rows`."""
    return f"{count:,} {word if count == 1 else f'{word}s'}"


def listed(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Join names for a message: the first ones, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def duration(seconds: float) -> str:
    """Format a duration: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def rate(count: float, seconds: float) -> str:
    """Format a speed with two significant digits: 1.2M/s."""
    value = count / seconds if seconds > 0 else 0.0
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.{1 if value < 10 * factor else 0}f}{letter}"
    return f"{value:.0f}"


def aligned(alignments: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: columns two spaces apart, each aligned by its `<` or `>`, no trailing blanks."""
    widths = [max(len(one_line(row[column])) for row in rows) for column in range(len(alignments))]
    for row in rows:
        columns = zip(row, alignments, widths, strict=True)
        yield "  ".join(["", *(f"{one_line(cell):{alignment}{width}}" for cell, alignment, width in columns)]).rstrip()


def repair_hint(cache: object) -> str:
    """Return the hint for a damaged file of a cache."""
    return f"what built it makes it again with --repair: packer build … -o {in_shell(cache)} --repair"


_ADDRESS = r"(?<![A-Za-z0-9])(?P<scheme>(?>(?P<web>(?i:https?)(?=:))|[A-Za-z][A-Za-z0-9+.-]{1,20})):/{1,2}"
"""A `Path` made from a URL has lost one of its two slashes."""

_USER = re.compile(
    _ADDRESS
    + r"(?P<password>[^\s/@:'\"<>]{0,200}:(?(web)(?!\d{1,5}/))\S{0,2000}@)?(?(password)|[^\s/@:?#'\"<>]{1,200}@)"
)
"""A user with a password, in which AWS has slashes, or a user alone. For a site, digits up to a slash are the port."""

_NAMED_WITH_AT = ("hf", "abfs", "abfss")
"""Schemes whose grammar has an ``@`` without a password: REPOSITORY@REVISION, CONTAINER@ACCOUNT."""

_PARAMETER = re.compile(
    r"(?i)([?&;][^=?&;\s]{0,40}(?:sig|credential|token|secret|passw|key|auth)[^=?&;\s]{0,40}=)[^&;\s'\"<>]+"
)
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{20,}")


def masked(text: str) -> str:
    """Return a text without the credentials of addresses in it.

    Example:
        >>> masked("cannot read s3://AKIA1:a/b+c@bucket/x, https://host/x?X-Amz-Signature=0f0f&part=2")
        'cannot read s3://***@bucket/x, https://host/x?X-Amz-Signature=***&part=2'
    """
    if "@" in text:
        text = _USER.sub(_without_user, text)
    if "=" in text:
        text = _PARAMETER.sub(r"\1***", text)
    return _TOKEN.sub("hf_***", text) if "hf_" in text else text


def scheme_with_credentials(name: str) -> str | None:
    """Return the scheme of an address with credentials in a name; None if there is none. Blanks do not hide them."""
    name = re.sub(r"\s", "_", name.strip())
    found = re.search(_ADDRESS, name)
    return None if found is None or masked(name) == name else found["scheme"].lower()


def shown_cause(error: BaseException) -> BaseException | None:
    """Return an error as the cause of another, which tracebacks show; None if its text holds credentials."""
    return error if masked(str(error)) == str(error) else None


def _without_user(found: re.Match[str]) -> str:
    is_named = found["password"] is None and found["scheme"].lower() in _NAMED_WITH_AT
    return found[0] if is_named else f"{re.match(_ADDRESS, found[0])[0]}***@"  # type: ignore[index]


_URLS: dict[str, str] = {}
"""Local paths of this process that stand for a URL, or for what was piped in."""


def show_as(path: Path, name: str | None) -> None:
    """From now on, show a name in errors in place of this path and paths below it; with None, no longer."""
    _URLS.pop(str(path), None)
    if name is not None:
        _URLS[str(path)] = name


def url_of(path: Path) -> str | None:
    """Return the URL that is shown in place of a path."""
    return _URLS.get(str(path))


def with_urls(text: str) -> str:
    """Return a text with URLs in place of the paths that stand for them."""
    for path, url in list(_URLS.items()):
        text = text.replace(path, url)
    return text


class Progress(Protocol):
    """Receives the progress of a build or another long operation."""

    def stage(self, name: str, total: int, unit: str) -> None:
        """Begin a stage of `total` units of work (`bytes`, `rows`, `tokens`); 0 if the total is unknown."""
        ...

    def advance(self, amount: int, tokens: int = 0) -> None:
        """Report that `amount` more units are done, which produced `tokens` tokens."""
        ...

    def note(self, message: str) -> None:
        """Report something the user may want to know."""
        ...


class Silent:
    """Ignores everything."""

    def stage(self, name: str, total: int, unit: str) -> None: ...

    def advance(self, amount: int, tokens: int = 0) -> None: ...

    def note(self, message: str) -> None: ...


class Lines:
    """Prints lines on stderr: how much of a stage is done, how fast, and the time left. Short stages print none."""

    _every = 5.0
    """Seconds between two lines."""

    def __init__(self) -> None:
        self.stage("", 0, "")

    def stage(self, name: str, total: int, unit: str) -> None:
        self._name, self._total, self._unit = name, total, unit
        self._done = self._tokens = 0
        self._began = self._shown = time.monotonic()

    def advance(self, amount: int, tokens: int = 0) -> None:
        self._done += amount
        self._tokens += tokens
        now = time.monotonic()
        if now - self._shown >= self._every:
            self._shown = now
            self._show(self._line(now - self._began))

    def note(self, message: str) -> None:
        self._show(f"note: {message}")

    def _show(self, line: str) -> None:
        print(one_line(line), file=sys.stderr, flush=True)  # noqa: T201 - for callers from Python, too

    def _line(self, elapsed: float) -> str:
        speed = f", {rate(self._tokens, elapsed)} tokens/s" if self._tokens else ""
        if not self._total:  # rows of an iterator, whose end nobody knows
            return f"{self._name}: {number(self._done)} {self._unit}{speed}"
        share = self._done / self._total
        left = f", {duration(elapsed / share - elapsed)} left" if 0 < share < 1 else ""
        if self._unit == "bytes":
            amount = f"{size(self._done)} of {size(self._total)}"
        else:
            amount = f"{number(self._done)} of {number(self._total)} {self._unit}"
        return f"{self._name}: {amount} ({share:.0%}){speed}{left}"
