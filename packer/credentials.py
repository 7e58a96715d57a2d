"""Credentials in addresses: refused where a name is taken, masked where a text is shown.

An address may hold them in front of its host (``s3://KEY:SECRET@bucket``), in its parameters, as a signed URL does, or
as a token of the Hub. A text is masked as a whole, whoever wrote it: messages of libraries quote the addresses that
they were given. A blank ends an address. Up to there, masking may hide more than the secret, such as a path with an
``@`` behind a password, but never less.
"""

import re

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
